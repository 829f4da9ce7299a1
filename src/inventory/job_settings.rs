//! What a launch needs: every value final.

use std::collections::BTreeMap;
use std::time::Duration;

use super::container_settings::ContainerSettings;
use super::launcher::Launcher;
use super::task_settings::PrepareTask;

/// The launch half: every value final.
#[derive(Debug, Clone, PartialEq)]
pub struct Job {
    /// Whether there is a `launch`; without one the inventory has tasks alone.
    pub has_launch: bool,
    /// Worker processes a host (for `script`: 1 process, but this many GPUs a host); `None` where they are not known, or differ.
    pub nproc_per_node: Option<u32>,
    /// Same order as [`Inventory::hosts`](super::Inventory::hosts).
    pub hosts: Vec<JobHost>,
    /// Names of the laptop's variables that are passed as secrets.
    pub secret_names: Vec<String>,
    /// What runs before the launch.
    pub tasks: Vec<PrepareTask>,
    /// How the ranks start.
    pub launch: LaunchSettings,
    /// What happens at the end.
    pub teardown: Teardown,
    /// What preflight is to look at besides.
    pub checks: CheckSettings,
    /// What a hang leads to.
    pub on_failure: OnFailure,
    /// The longest that one log may become on a host, bytes.
    pub max_log_bytes: u64,
}

impl Job {
    /// Worker processes of one host.
    pub fn nproc(&self, host: usize) -> Option<u32> {
        self.hosts.get(host).and_then(|host| host.nproc)
    }

    /// Hosts without which the gang cannot be: all, or as many as an elastic one needs.
    pub fn min_hosts(&self) -> usize {
        let all = self.hosts.len();
        self.launch.min_nodes.and_then(|least| usize::try_from(least).ok()).map_or(all, |least| least.min(all))
    }

    /// Whether its launchers handle a dead worker: they restart workers, or continue with fewer hosts.
    pub fn is_elastic(&self) -> bool {
        self.launch.max_restarts > 0 || self.min_hosts() < self.hosts.len()
    }
}

/// One host's part of the job.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct JobHost {
    /// `env` with the host's `env` over it.
    pub env: BTreeMap<String, String>,
    /// The container, the host's part merged over the common one; `None`: bare host.
    pub container: Option<ContainerSettings>,
    /// Where the ranks start.
    pub workdir: Option<String>,
    /// Its worker processes: as many as all have, or where they differ as it gives GPUs.
    pub nproc: Option<u32>,
    /// What this host runs: the common command with this host's name, rank and address in it.
    pub command: LaunchCommand,
}

/// `launch`.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct LaunchSettings {
    pub launcher: Launcher,
    /// Fixed port; `None`: `auto`.
    pub master_port: Option<u16>,
    /// Further words for the launcher itself, as they are.
    pub launcher_args: Vec<String>,
    /// Shell lines before each launcher, or before each process of `script` and `processes`.
    pub setup: Option<String>,
    /// The interpreter (`python3`).
    pub python: String,
    /// Which GPUs a process of `processes` sees.
    pub gpu_visibility: GpuVisibility,
    /// How often a launcher starts its workers again (torchrun with c10d only).
    pub max_restarts: u32,
    /// With how few hosts the gang may begin (torchrun with c10d only); `None`: all.
    pub min_nodes: Option<u32>,
    /// Whether node rank 0 starts before the others.
    pub start: StartOrder,
    /// What the others wait for.
    pub gate: StartGate,
    /// How long they wait.
    pub master_timeout: Duration,
    /// A regex in any rank's log that marks the run as training.
    pub ready_pattern: Option<String>,
    /// From TERM to KILL.
    pub stop_grace: Duration,
}

/// `launch.gpu_visibility`.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub enum GpuVisibility {
    /// Every process sees all GPUs of its host, and LOCAL_RANK chooses.
    All,
    /// Every process sees its own alone.
    OnePerProcess,
}

impl GpuVisibility {
    pub(super) const WORDS: [(&'static str, GpuVisibility); 2] = [("all", GpuVisibility::All), ("own", GpuVisibility::OnePerProcess)];
}

/// `launch.command` or `launch.shell`.
#[derive(Debug, Clone, PartialEq, Eq)]
pub enum LaunchCommand {
    /// An argument vector, byte for byte.
    Argv(Vec<String>),
    /// A bash script (only `script` and `processes`).
    Shell(String),
}

/// `launch.start`.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub enum StartOrder {
    /// The master, the gate, then the others.
    MasterFirst,
    Together,
}

impl StartOrder {
    pub(super) const WORDS: [(&'static str, StartOrder); 2] =
        [("master-first", StartOrder::MasterFirst), ("together", StartOrder::Together)];
}

/// `launch.gate`.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub enum StartGate {
    /// The master's port listens.
    MasterPort,
    /// The master's launcher runs.
    MasterStarted,
    None,
}

impl StartGate {
    pub(super) const WORDS: [(&'static str, StartGate); 3] =
        [("port", StartGate::MasterPort), ("started", StartGate::MasterStarted), ("none", StartGate::None)];
}

/// `teardown`.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub enum Teardown {
    Always,
    /// Only when the run succeeded.
    OnSuccess,
    /// Never: `--keep`.
    Never,
}

/// `checks`.
#[derive(Debug, Clone, PartialEq, Eq, Default)]
pub struct CheckSettings {
    /// Commands whose output must be equal on all hosts.
    pub same_output_commands: Vec<String>,
    /// Host paths that must exist with the same content on all hosts; absolute, or `~/…`.
    pub same_content_paths: Vec<String>,
    /// How far apart the clocks may be; `None`: not configured.
    pub max_clock_skew: Option<Duration>,
    /// Names of [`CHECK_NAMES`](super::check_settings::CHECK_NAMES) that are left out.
    pub skip: Vec<String>,
}

/// `on_failure`.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Default)]
pub struct OnFailure {
    /// Whether a gang that seems to hang is stopped; else it is only warned of.
    pub stop_on_hang: bool,
    /// The longest time for which a healthy run may be silent; `None`: it is learned from the run.
    pub hang_after: Option<Duration>,
}
