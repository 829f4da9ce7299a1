//! The inventory: what the user wrote, validated. A value of these types cannot be wrong in a way the file alone could show.
//!
//! Uses `shell` for names and quoting. Knows no files and no clock: texts come in, problems or values go out.
//! Reading has two halves. [`Inventory`] is what every command needs: who the hosts are and how to reach them. [`Job`] is what a launch needs,
//! with every template evaluated once, for the whole run, from [`Known`] values.

mod check;
pub mod checks;
pub mod constraint;
mod container;
pub mod expand;
mod exposure;
mod flags;
pub mod flat;
mod hash;
mod hosts;
pub mod import;
mod job;
mod launch;
pub mod lint;
mod load;
mod logs;
mod metrics;
mod names;
mod on_failure;
mod raw;
pub mod rules;
mod schema;
mod scope;
mod secrets;
pub mod smoke;
mod ssh_words;
mod template;
mod tree;
mod words;

pub use checks::Checks;
pub use hash::HashText;
pub use load::Source;
pub use names::{valid_address, valid_host_name, valid_jump, valid_name, valid_run_id, valid_user};
pub use on_failure::OnFailure;
pub(crate) use schema::nearest;

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
    /// Its own metrics by name: patterns whose one group is the value in a log line.
    pub metrics: BTreeMap<String, String>,
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
    /// For how long a host of a run is tried again after an error that no retry mends; then the run fails.
    pub give_up: Option<Duration>,
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
    /// Worker processes a host (for `script`: 1 process, but this many GPUs a host); `None` where they are not known, or differ.
    pub nproc_per_node: Option<u32>,
    /// Same order as [`Inventory::hosts`].
    pub hosts: Vec<JobHost>,
    /// Names of the laptop's variables that are handed over secretly.
    pub secrets: Vec<String>,
    /// How the ranks start.
    pub launch: Launch,
    /// What happens at the end.
    pub teardown: Teardown,
    /// What preflight is to look at besides.
    pub checks: Checks,
    /// What a hang leads to.
    pub on_failure: OnFailure,
    /// The longest that one log may become on a host, bytes.
    pub log_max: u64,
}

impl Job {
    /// Worker processes of one host.
    pub fn nproc(&self, host: usize) -> Option<u32> {
        self.hosts.get(host).and_then(|host| host.nproc)
    }

    /// Hosts without which the gang cannot be: all, or as many as an elastic one needs.
    pub fn least(&self) -> usize {
        let all = self.hosts.len();
        self.launch.min_nodes.and_then(|least| usize::try_from(least).ok()).map_or(all, |least| least.min(all))
    }

    /// Whether its launchers decide what a dead worker means: they start workers again, or go on with fewer hosts.
    pub fn forgives(&self) -> bool {
        self.launch.max_restarts > 0 || self.least() < self.hosts.len()
    }
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
    /// Its worker processes: as many as all have, or where they differ as it gives GPUs.
    pub nproc: Option<u32>,
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
    /// Whether the ranks run through the image's ENTRYPOINT.
    pub entrypoint: Entrypoint,
    /// The private registry that the image is pulled from.
    pub registry: Option<Registry>,
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

/// `container.entrypoint`.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub enum Entrypoint {
    /// It is overridden and runs nowhere.
    None,
    /// The ranks run through the image's.
    Image,
}

/// `container.registry`.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct Registry {
    /// What `docker login` gets.
    pub server: String,
    /// Who logs in.
    pub username: String,
    /// The NAME of the laptop's variable that holds the password.
    pub password: String,
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
    /// Further words for the launcher itself, as they are.
    pub args: Vec<String>,
    /// Shell lines before each launcher, or before each process of `script` and `processes`.
    pub setup: Option<String>,
    /// The interpreter (`python3`).
    pub python: String,
    /// Which GPUs a process of `processes` sees.
    pub visibility: Visibility,
    /// How often a launcher starts its workers again (torchrun with c10d only).
    pub max_restarts: u32,
    /// With how few hosts the gang may begin (torchrun with c10d only); `None`: all.
    pub min_nodes: Option<u32>,
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
    /// One `accelerate launch` a host.
    Accelerate,
    /// One launcher for DeepSpeed a host.
    Deepspeed(Form),
    /// One process a GPU.
    Processes,
    /// One process a host.
    Script,
}

impl Launcher {
    /// Its word in `launch.with`.
    pub fn word(self) -> &'static str {
        match self {
            Launcher::Torchrun(_) => "torchrun",
            Launcher::Accelerate => "accelerate",
            Launcher::Deepspeed(_) => "deepspeed",
            Launcher::Processes => "processes",
            Launcher::Script => "script",
        }
    }

    /// Whether the rendezvous, and not the inventory, says who is which rank.
    pub fn ranks_are_handed_out(self) -> bool {
        matches!(self, Launcher::Torchrun(Rendezvous::C10d) | Launcher::Deepspeed(Form::Torchrun(Rendezvous::C10d)))
    }
}

/// Who starts the workers of a DeepSpeed job.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub enum Form {
    /// `python -m torch.distributed.run`.
    Torchrun(Rendezvous),
    /// `deepspeed --hostfile … --no_ssh`, one a host.
    Hostfile,
}

/// `launch.gpu_visibility`.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub enum Visibility {
    /// Every process sees all GPUs of its host, and LOCAL_RANK chooses.
    All,
    /// Every process sees its own alone.
    Own,
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
    /// A bash script (only `script` and `processes`).
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
