//! What a sandbox is: how many hosts, what they have, and what is wrong with them, as read from YAML.

use std::collections::BTreeMap;
use std::fmt;

use serde::de::{self, SeqAccess, Visitor};
use serde::{Deserialize, Deserializer, Serialize};

use super::error::SandboxError;

/// The most hosts one sandbox has: each is a listening port.
const MAX_HOSTS: usize = 1024;

/// A sandbox on paper.
#[derive(Debug, Clone, PartialEq, Deserialize)]
#[serde(deny_unknown_fields, default)]
pub struct Scenario {
    /// A count (`hosts: 4` gives gpu01 … gpu04) or a list of hosts.
    #[serde(deserialize_with = "count_or_list")]
    pub hosts: Vec<HostSpec>,
    /// GPUs of each host that does not say otherwise.
    pub gpus: u32,
    /// What `nvidia-smi` calls them.
    pub gpu_model: String,
    /// Memory of each GPU.
    pub gpu_memory_mib: u64,
    /// Images that every host has.
    pub images: Vec<String>,
    /// Images that a host can pull.
    pub registry: Vec<String>,
    /// Registries that want a login, and which opens them.
    pub logins: Vec<RegistryLogin>,
    /// What is special about an image, by its name.
    pub image_details: BTreeMap<String, ImageSpec>,
    /// The user that may log in.
    pub user: String,
    /// A password that opens the hosts too.
    pub password: Option<String>,
    /// What is wrong with every host that has no `faults` of its own.
    pub faults: Faults,
}

impl Default for Scenario {
    fn default() -> Self {
        Scenario {
            hosts: numbered_hosts(1),
            gpus: 8,
            gpu_model: "NVIDIA H100 80GB HBM3".to_owned(),
            gpu_memory_mib: 81_559,
            images: vec!["demo/train:1".to_owned()],
            registry: Vec::new(),
            logins: Vec::new(),
            image_details: BTreeMap::new(),
            user: "demo".to_owned(),
            password: None,
            faults: Faults::default(),
        }
    }
}

impl Scenario {
    /// So many healthy hosts.
    pub fn with_hosts(count: usize) -> Self {
        Scenario { hosts: numbered_hosts(count), ..Scenario::default() }
    }

    /// Reads a scenario from YAML text.
    pub fn parse(text: &str) -> Result<Self, SandboxError> {
        let scenario: Scenario = serde_yaml::from_str(text).map_err(|e| SandboxError::Scenario(e.to_string()))?;
        scenario.validate()
    }

    /// Refuses host names that cannot be a folder or that are used twice.
    pub(super) fn validate(self) -> Result<Self, SandboxError> {
        for (index, host) in self.hosts.iter().enumerate() {
            let plain = host.name.bytes().all(|b| b.is_ascii_alphanumeric() || b == b'-' || b == b'_' || b == b'.');
            if host.name.is_empty() || !plain || host.name.starts_with('.') {
                return Err(SandboxError::Scenario(format!("hosts[{index}].name: `{}` is not a host name", host.name)));
            }
            if self.hosts.iter().take(index).any(|other| other.name == host.name) {
                return Err(SandboxError::Scenario(format!("hosts[{index}].name: `{}` is used twice", host.name)));
            }
        }
        if self.hosts.is_empty() || self.hosts.len() > MAX_HOSTS {
            return Err(SandboxError::Scenario(format!("hosts: {} requested, allowed are from 1 to {MAX_HOSTS}", self.hosts.len())));
        }
        Ok(self)
    }
}

/// One host of a scenario.
#[derive(Debug, Clone, Default, PartialEq, Deserialize)]
#[serde(deny_unknown_fields, default)]
pub struct HostSpec {
    pub name: String,
    /// Its GPUs, if not the scenario's.
    pub gpus: Option<u32>,
    /// Its images, if not the scenario's.
    pub images: Option<Vec<String>>,
    /// Its faults, if not the scenario's.
    pub faults: Option<Faults>,
}

/// A login that a registry accepts.
#[derive(Debug, Clone, Default, PartialEq, Eq, Serialize, Deserialize)]
#[serde(deny_unknown_fields)]
pub struct RegistryLogin {
    /// The registry, as it begins an image's name.
    pub server: String,
    pub username: String,
    pub password: String,
}

/// What an image says about its containers.
#[derive(Debug, Clone, Default, PartialEq, Eq, Serialize, Deserialize)]
#[serde(deny_unknown_fields, default)]
pub struct ImageSpec {
    /// `ENTRYPOINT`.
    pub entrypoint: Vec<String>,
    /// `CMD`.
    pub cmd: Vec<String>,
    /// `ENV`, as `K=V`.
    pub env: Vec<String>,
    /// `USER`.
    pub user: String,
    /// `WORKDIR`.
    pub workdir: String,
    /// How many layers a pull has; 0: 3.
    pub layers: u32,
}

/// What is wrong with a host. Times are seconds. May be changed while the host runs: `faults.json` in the host's root is read again at each event.
#[derive(Debug, Clone, Default, PartialEq, Serialize, Deserialize)]
#[serde(deny_unknown_fields, default)]
pub struct Faults {
    /// The right key is refused.
    pub refuse_key: bool,
    /// How long a byte needs to the host and back, for connections that are opened from now on.
    pub round_trip: f64,
    /// How long each authentication request takes.
    pub auth_delay: f64,
    /// A connection is lost after the host has sent this many bytes.
    pub drop_after_bytes: Option<u64>,
    /// A connection is lost after this time.
    pub drop_after_seconds: Option<f64>,
    /// A command that contains this (in its words or in what it is sent to read) is held and never starts.
    pub hang_on: Option<String>,
    /// As `hang_on`, but the connection is lost instead.
    pub drop_on: Option<String>,
    /// What rc files print before each command.
    pub noise: Option<String>,
    /// Sessions a connection may have at a time (10).
    pub max_sessions: Option<usize>,
    /// No session gets a terminal (PermitTTY no).
    pub no_terminal: bool,
    /// `docker` says that it is not found (127); it can still be found by `command -v`.
    pub docker_missing: bool,
    /// Docker's daemon does not run.
    pub docker_down: bool,
    /// The user may not use docker's socket (`sudo` may).
    pub docker_permission_denied: bool,
    /// `sudo -n` asks for a password.
    pub sudo_refused: bool,
    /// Docker has no nvidia runtime.
    pub no_gpu_runtime: bool,
    /// How long a pull takes, all layers together.
    pub pull_delay: f64,
    pub pull_fails: bool,
    /// Docker refuses each `run` with this text.
    pub run_fails: Option<String>,
    /// A rank is killed as the kernel does when memory is short.
    pub oom_kill: Option<OomKill>,
    /// Programs of the host that are these sh scripts instead, by name: `dmesg`, `nvidia-smi`. The replaced program is `$SANDBOX_HOST/bin/NAME`.
    pub programs: BTreeMap<String, String>,
    /// The host's clock is ahead by so much (behind, if negative), for `date`.
    pub clock_skew: f64,
    /// A command that is held until this changes; `held` in the host's root says that it is.
    pub hold: Option<HeldCommand>,
}

/// Which command is held.
#[derive(Debug, Clone, Default, PartialEq, Eq, Serialize, Deserialize)]
#[serde(deny_unknown_fields, default)]
pub struct HeldCommand {
    /// Its number among the commands that the host is sent, from 1, since this has last changed from nothing.
    pub call: u32,
    /// Whether it runs at once and what it says is held; else it begins later.
    pub answer: bool,
}

/// Which rank is killed for lack of memory, and when.
#[derive(Debug, Clone, Default, PartialEq, Serialize, Deserialize)]
#[serde(deny_unknown_fields, default)]
pub struct OomKill {
    /// The process with this `RANK`.
    pub rank: u32,
    /// How long after its start.
    pub after: f64,
    /// Only a process whose command line contains this; empty: the innermost that is not a `sleep`.
    pub matching: String,
}

fn numbered_hosts(count: usize) -> Vec<HostSpec> {
    (1..=count).map(|n| HostSpec { name: format!("gpu{n:02}"), ..HostSpec::default() }).collect()
}

fn count_or_list<'de, D: Deserializer<'de>>(deserializer: D) -> Result<Vec<HostSpec>, D::Error> {
    struct HostsVisitor;
    impl<'de> Visitor<'de> for HostsVisitor {
        type Value = Vec<HostSpec>;
        fn expecting(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
            write!(f, "a number of hosts from 1 to {MAX_HOSTS}, or a list of hosts")
        }
        fn visit_u64<E: de::Error>(self, count: u64) -> Result<Self::Value, E> {
            match usize::try_from(count) {
                Ok(count) if (1..=MAX_HOSTS).contains(&count) => Ok(numbered_hosts(count)),
                _ => Err(E::invalid_value(de::Unexpected::Unsigned(count), &self)),
            }
        }
        fn visit_seq<A: SeqAccess<'de>>(self, mut seq: A) -> Result<Self::Value, A::Error> {
            let mut hosts = Vec::new();
            while let Some(host) = seq.next_element()? {
                hosts.push(host);
            }
            Ok(hosts)
        }
    }
    deserializer.deserialize_any(HostsVisitor)
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn hosts_parse_as_count_or_list() {
        let scenario = Scenario::parse("hosts: 3\ngpus: 2").expect("a count");
        assert_eq!(scenario.hosts.iter().map(|h| h.name.as_str()).collect::<Vec<_>>(), ["gpu01", "gpu02", "gpu03"]);
        let scenario = Scenario::parse("hosts: [{name: a, gpus: 4}, {name: b, faults: {refuse_key: true}}]").expect("a list");
        assert_eq!(scenario.hosts[0].gpus, Some(4));
        assert!(scenario.hosts[1].faults.as_ref().expect("faults").refuse_key);
    }

    #[test]
    fn invalid_scenarios_are_rejected() {
        for (text, expected) in [
            ("hosts: 0", "from 1 to 1024"),
            ("hosts: []", "from 1 to 1024"),
            ("hosts: [{name: a}, {name: a}]", "twice"),
            ("hosts: [{name: ../x}]", "not a host name"),
            ("host: 3", "unknown field"),
            ("faults: {hang: true}", "unknown field"),
        ] {
            let error = Scenario::parse(text).expect_err(text).to_string();
            assert!(error.contains(expected), "{text}: {error}");
        }
    }
}
