//! The inventory: what the user wrote, validated. A value of these types cannot be wrong in a way the file alone could show.
//!
//! Uses `shell` for names and quoting. Knows no files and no clock: texts come in, problems or values go out.
//! Reading has two halves. [`Inventory`] is what every command needs: who the hosts are and how to reach them. [`Job`] is what a launch needs,
//! with every template evaluated once, for the whole run, from [`Known`] values.

mod check;
mod constraint;
mod container;
pub mod expand;
mod hash;
mod hosts;
mod job;
mod launch;
mod load;
mod raw;
mod schema;
mod scope;
mod template;
mod tree;
mod words;

pub use hash::HashText;
pub use load::Source;

use std::collections::BTreeMap;
use std::fmt;
use std::time::Duration;

/// The validated half that every command needs. Made by [`Inventory::load`].
#[derive(Debug, Clone)]
pub struct Inventory {
    /// `[a-z0-9][a-z0-9-]{0,39}`: names containers, labels and run directories.
    pub name: String,
    /// In node-rank order: the master is first.
    pub hosts: Vec<Host>,
    /// Where runs live on the hosts; may begin with `~`.
    pub run_dir: String,
    /// `container.host`-like settings that commands without a launch need; `None`: the inventory has no container.
    pub engine: Option<Engine>,
    /// What [`Inventory::job`] evaluates later.
    read: load::Read,
}

/// The container engine of the hosts.
#[derive(Debug, Clone, PartialEq, Eq, Default)]
pub struct Engine {
    /// `container.host`, handed to docker as `DOCKER_HOST`.
    pub host: Option<String>,
}

/// One host and the way to it.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct Host {
    /// The name in the inventory; also the alias that ssh_config is asked for.
    pub name: String,
    /// Where ssh connects; `None`: what ssh_config says for the name.
    pub address: Option<String>,
    /// What ranks use to reach this host; `None`: found from its interfaces and routes.
    pub fabric_address: Option<String>,
    /// Which GPUs this run may use.
    pub gpus: Gpus,
    /// The way to it.
    pub ssh: Ssh,
}

/// `hosts[].gpus`.
#[derive(Debug, Clone, PartialEq, Eq, Default)]
pub enum Gpus {
    /// Whatever the host has.
    #[default]
    Any,
    /// So many must be there.
    Count(u32),
    /// These indexes may be used.
    List(Vec<u32>),
}

/// SSH settings of the inventory for one host; what is `None` comes from ssh_config, then from OpenSSH's defaults.
#[derive(Debug, Clone, PartialEq, Eq, Default)]
pub struct Ssh {
    /// User on the host.
    pub user: Option<String>,
    /// Port of sshd.
    pub port: Option<u16>,
    /// Private key files of the laptop, `~` and relative paths not yet resolved.
    pub identity: Vec<String>,
    /// Used instead of `~/.ssh/config`.
    pub config: Option<String>,
    /// Used instead of ssh_config's files.
    pub known_hosts: Option<String>,
    /// Jump hosts, first hop first.
    pub jump: Option<Vec<String>>,
    /// The name of the variable that holds the password.
    pub password: Option<String>,
    /// What to do with a host key that is not known.
    pub host_keys: Option<HostKeys>,
    /// For TCP, key exchange and authentication together.
    pub connect_timeout: Option<Duration>,
    /// How often a silent connection is asked whether it lives.
    pub keepalive: Option<Duration>,
    /// How docker is run.
    pub r#become: Become,
}

/// `ssh.host_keys`.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub enum HostKeys {
    /// An unknown key is refused.
    Strict,
    /// An unknown key is noted and accepted; a changed or revoked one is refused.
    AcceptNew,
}

/// `ssh.become`.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Default)]
pub enum Become {
    /// As the ssh user.
    #[default]
    None,
    /// Through `sudo -n`.
    Sudo,
}

/// What is known of a run when its templates are evaluated. `None`: not known yet; the value prints as `<from HOST: what>`.
#[derive(Debug, Clone, Default)]
pub struct Known {
    /// `run.id`.
    pub run_id: String,
    /// `run.stamp`: `20261121-0915`-like, made once.
    pub run_stamp: String,
    /// GPUs given to each host, same order as [`Inventory::hosts`].
    pub gpus: Vec<Option<u32>>,
    /// Fabric address of each host, same order.
    pub addresses: Vec<Option<String>>,
    /// The port picked for `master_port: auto`.
    pub master_port: Option<u16>,
}

/// The launch half: every value final.
#[derive(Debug, Clone, PartialEq)]
pub struct Job {
    /// Worker processes a host (for `script`: 1 process, but this many GPUs a host).
    pub nproc_per_node: Option<u32>,
    /// Same order as [`Inventory::hosts`].
    pub hosts: Vec<JobHost>,
    /// Names of the laptop's variables that are handed over secretly.
    pub secrets: Vec<String>,
    /// How the ranks start.
    pub launch: Launch,
    /// What happens at the end.
    pub teardown: Teardown,
}

/// One host's part of the job.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct JobHost {
    /// `env` with the host's `env` over it.
    pub env: BTreeMap<String, String>,
    /// The container, the host's part merged over the common one; `None`: bare host.
    pub container: Option<Container>,
    /// Where the ranks start.
    pub workdir: Option<String>,
    /// What this host runs: the common command with this host's name, rank and address in it.
    pub command: Payload,
}

/// `container`.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct Container {
    /// `DOCKER_HOST`.
    pub engine_host: Option<String>,
    /// Image reference.
    pub image: String,
    /// When to pull.
    pub pull: Pull,
    /// What `--gpus` gets.
    pub gpus: ContainerGpus,
    /// `--network`.
    pub network: String,
    /// `--user`.
    pub user: User,
    /// `--shm-size`.
    pub shm_size: String,
    /// Bind mounts, by target.
    pub mounts: Vec<Mount>,
    /// `container.env`.
    pub env: BTreeMap<String, String>,
    /// Further words for `docker run`.
    pub args: Vec<String>,
}

/// `container.pull`.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub enum Pull {
    /// Where the host lacks the image.
    Missing,
    /// Each time.
    Always,
    /// The image must be there.
    Never,
}

/// `container.gpus`.
#[derive(Debug, Clone, PartialEq, Eq)]
pub enum ContainerGpus {
    /// All that the host's `gpus` allows.
    All,
    /// No `--gpus`.
    None,
    /// So many idle ones.
    Count(u32),
    /// These indexes.
    List(Vec<u32>),
}

/// `container.user`.
#[derive(Debug, Clone, PartialEq, Eq)]
pub enum User {
    /// What the image says.
    Image,
    /// The ssh user's uid and gid.
    Me,
    /// `0:0`.
    Root,
    /// `uid:gid`.
    Ids(String),
}

/// A bind mount.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct Mount {
    /// On the host: absolute, or `~/…` of the ssh user.
    pub from: String,
    /// In the container: absolute.
    pub to: String,
    /// `:ro`.
    pub read_only: bool,
    /// Whether a missing source is made.
    pub create: bool,
}

/// `launch`.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct Launch {
    /// Which launcher.
    pub with: Launcher,
    /// Fixed port; `None`: `auto`.
    pub master_port: Option<u16>,
    /// The command of node rank 0; each host's own is [`JobHost::command`].
    pub command: Payload,
    /// The interpreter (`python3`).
    pub python: String,
    /// Whether node rank 0 starts before the others.
    pub start: Start,
    /// What the others wait for.
    pub gate: Gate,
    /// How long they wait.
    pub master_timeout: Duration,
    /// A regex in any rank's log that marks the run as training.
    pub ready_when: Option<String>,
    /// From TERM to KILL.
    pub stop_grace: Duration,
}

/// `launch.with`.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub enum Launcher {
    /// One torchrun a host.
    Torchrun(Rendezvous),
    /// One process a host.
    Script,
}

/// `launch.rendezvous`.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub enum Rendezvous {
    /// Node ranks are given; rank 0 is on the master.
    Static,
    /// The c10d store hands out ranks.
    C10d,
}

/// `launch.command` or `launch.shell`.
#[derive(Debug, Clone, PartialEq, Eq)]
pub enum Payload {
    /// An argument vector, byte for byte.
    Argv(Vec<String>),
    /// A bash script (only `script`).
    Shell(String),
}

/// `launch.start`.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub enum Start {
    /// The master, the gate, then the others.
    MasterFirst,
    /// All at once.
    Together,
}

/// `launch.gate`.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub enum Gate {
    /// The master's port listens.
    Port,
    /// The master's launcher runs.
    Started,
    /// Nothing.
    None,
}

/// `teardown`.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub enum Teardown {
    /// Whatever happened.
    Always,
    /// Only when the run succeeded.
    OnSuccess,
    /// Never: `--keep`.
    Never,
}

/// One thing that is wrong, with its place and what would be right.
#[derive(Debug, Clone, PartialEq, Eq, PartialOrd, Ord)]
pub struct Problem {
    /// The file's name as given, or `--set`.
    pub file: String,
    /// From 1; 0: the whole file.
    pub line: usize,
    /// From 1; 0: the whole line.
    pub column: usize,
    /// `hosts[2].gpus`; empty: the whole file.
    pub path: String,
    /// What is wrong: a lower-case fragment.
    pub says: String,
    /// What would be right; may be empty.
    pub hint: String,
}

impl fmt::Display for Problem {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.write_str(&self.file)?;
        if self.line > 0 {
            write!(f, ":{}:{}", self.line, self.column)?;
        }
        if !self.path.is_empty() {
            write!(f, ": {}", self.path)?;
        }
        write!(f, ": {}", self.says)?;
        if self.hint.is_empty() { Ok(()) } else { write!(f, "\n    help: {}", self.hint) }
    }
}

#[cfg(test)]
mod tests;
