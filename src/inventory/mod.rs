//! The inventory: what the user wrote, validated. A value of these types cannot be wrong in a way the file alone could show.
//!
//! Uses `shell` for names and quoting. Knows no files and no clock: texts come in, problems or values go out.
//! Reading has two halves. [`Inventory`] is what every command needs: who the hosts are and how to reach them. [`Job`] is what a launch needs,
//! with every template evaluated once, for the whole run, from [`RuntimeValues`] values.

pub mod check_settings;
pub mod constraint;
mod container;
pub mod diagnosis_rules;
mod errors;
mod eval;
mod fingerprint;
mod host_exposure;
mod hosts;
pub mod import;
mod job;
mod launch;
pub mod lint;
mod load;
mod log_settings;
mod metric_patterns;
mod name_syntax;
mod on_failure;
mod reserved_flags;
mod schema;
mod secrets;
pub mod smoke_test;
mod ssh_args;
mod template;
pub mod yaml_pairs;
mod yaml_parser;
mod yaml_tree;

pub use check_settings::CheckSettings;
pub use fingerprint::FingerprintText;
pub use load::InventorySource;
pub use name_syntax::{is_valid_address, is_valid_host_name, is_valid_inventory_name, is_valid_jump_host, is_valid_run_id, is_valid_user};
pub use on_failure::OnFailure;
pub(crate) use schema::nearest_word;

use std::collections::BTreeMap;
use std::fmt;
use std::time::Duration;

/// The validated half that every command needs. Made by [`Inventory::load`].
#[derive(Debug, Clone)]
pub struct Inventory {
    /// `[a-z0-9][a-z0-9-]{0,39}`: names containers, labels and run directories.
    pub name: String,
    /// In node-rank order: the master is first.
    pub hosts: Vec<InventoryHost>,
    /// Where runs live on the hosts; may begin with `~`.
    pub run_dir: String,
    /// `container.host`-like settings that commands without a launch need; `None`: the inventory has no container.
    pub engine: Option<ContainerEngine>,
    /// Its own metrics by name: patterns whose one group is the value in a log line.
    pub metrics: BTreeMap<String, String>,
    /// What [`Inventory::job`] evaluates later.
    merged: load::MergedInventory,
}

/// The container engine of the hosts.
#[derive(Debug, Clone, PartialEq, Eq, Default)]
pub struct ContainerEngine {
    /// `container.host`, handed to docker as `DOCKER_HOST`.
    pub host: Option<String>,
}

/// One host and the way to it.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct InventoryHost {
    /// The name in the inventory; also the alias that ssh_config is asked for.
    pub name: String,
    /// Where ssh connects; `None`: what ssh_config says for the name.
    pub address: Option<String>,
    /// What ranks use to reach this host; `None`: found from its interfaces and routes.
    pub fabric_address: Option<String>,
    /// Which GPUs this run may use.
    pub gpus: GpuSelection,
    /// The way to it.
    pub ssh: HostSshSettings,
}

/// `hosts[].gpus`.
#[derive(Debug, Clone, PartialEq, Eq, Default)]
pub enum GpuSelection {
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
pub struct HostSshSettings {
    /// User on the host.
    pub user: Option<String>,
    /// Port of sshd.
    pub port: Option<u16>,
    /// Private key files of the laptop, `~` and relative paths not yet resolved.
    pub identity_files: Vec<String>,
    /// Used instead of `~/.ssh/config`.
    pub config_file: Option<String>,
    /// Used instead of ssh_config's files.
    pub known_hosts_file: Option<String>,
    /// Jump hosts, first hop first.
    pub jump_hosts: Option<Vec<String>>,
    /// The name of the variable that holds the password.
    pub password_variable: Option<String>,
    /// What to do with a host key that is not known.
    pub host_key_checking: Option<HostKeyChecking>,
    /// For TCP, key exchange and authentication together.
    pub connect_timeout: Option<Duration>,
    /// How often a silent connection is asked whether it lives.
    pub keepalive_interval: Option<Duration>,
    /// For how long a host of a run is tried again after an error that no retry mends; then the run fails.
    pub give_up_after: Option<Duration>,
    /// How docker is run.
    pub r#become: Become,
}

/// `ssh.host_keys`.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub enum HostKeyChecking {
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
pub struct RuntimeValues {
    /// `run.id`.
    pub run_id: String,
    /// `run.stamp`: `20261121-0915`-like, made once.
    pub run_stamp: String,
    /// GPUs given to each host, same order as [`Inventory::hosts`].
    pub gpu_counts: Vec<Option<u32>>,
    /// Fabric address of each host, same order.
    pub fabric_addresses: Vec<Option<String>>,
    /// The port picked for `master_port: auto`.
    pub master_port: Option<u16>,
}

impl RuntimeValues {
    /// Before any of this many hosts has answered.
    pub fn unknown(hosts: usize) -> RuntimeValues {
        RuntimeValues { gpu_counts: vec![None; hosts], fabric_addresses: vec![None; hosts], ..RuntimeValues::default() }
    }
}

/// The launch half: every value final.
#[derive(Debug, Clone, PartialEq)]
pub struct Job {
    /// Worker processes a host (for `script`: 1 process, but this many GPUs a host); `None` where they are not known, or differ.
    pub nproc_per_node: Option<u32>,
    /// Same order as [`Inventory::hosts`].
    pub hosts: Vec<JobHost>,
    /// Names of the laptop's variables that are handed over secretly.
    pub secret_names: Vec<String>,
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

    /// Whether its launchers decide what a dead worker means: they start workers again, or go on with fewer hosts.
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

/// `container`.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct ContainerSettings {
    /// `DOCKER_HOST`.
    pub engine_host: Option<String>,
    /// Image reference.
    pub image: String,
    /// When to pull.
    pub pull: PullPolicy,
    /// What `--gpus` gets.
    pub gpus: ContainerGpus,
    /// `--network`.
    pub network: String,
    /// `--user`.
    pub user: ContainerUser,
    /// Whether the ranks run through the image's ENTRYPOINT.
    pub entrypoint: EntrypointMode,
    /// The private registry that the image is pulled from.
    pub registry: Option<RegistrySettings>,
    /// `--shm-size`.
    pub shm_size: String,
    /// Bind mounts, by target.
    pub mounts: Vec<Mount>,
    /// `container.env`.
    pub env: BTreeMap<String, String>,
    /// Further words for `docker run`.
    pub docker_args: Vec<String>,
}

/// `container.pull`.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub enum PullPolicy {
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
pub enum EntrypointMode {
    /// It is overridden and runs nowhere.
    Overridden,
    /// The ranks run through the image's.
    Image,
}

/// `container.registry`.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct RegistrySettings {
    /// What `docker login` gets.
    pub server: String,
    /// Who logs in.
    pub username: String,
    /// The NAME of the laptop's variable that holds the password.
    pub password_variable: String,
}

/// `container.user`.
#[derive(Debug, Clone, PartialEq, Eq)]
pub enum ContainerUser {
    /// What the image says.
    Image,
    /// The ssh user's uid and gid.
    SshUser,
    /// `0:0`.
    Root,
    /// `uid:gid`.
    Ids(String),
}

/// A bind mount.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct Mount {
    /// On the host: absolute, or `~/…` of the ssh user.
    pub source: String,
    /// In the container: absolute.
    pub target: String,
    /// `:ro`.
    pub read_only: bool,
    /// Whether a missing source is made.
    pub create_source: bool,
}

/// `launch`.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct LaunchSettings {
    /// Which launcher.
    pub launcher: Launcher,
    /// Fixed port; `None`: `auto`.
    pub master_port: Option<u16>,
    /// The command of node rank 0; each host's own is [`JobHost::command`].
    pub command: LaunchCommand,
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

/// `launch.with`.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub enum Launcher {
    /// One torchrun a host.
    Torchrun(Rendezvous),
    /// One `accelerate launch` a host.
    Accelerate,
    /// One launcher for DeepSpeed a host.
    Deepspeed(DeepspeedLauncher),
    /// One process a GPU.
    Processes,
    /// One process a host.
    Script,
}

impl Launcher {
    /// Its word in `launch.with`.
    pub fn as_str(self) -> &'static str {
        match self {
            Launcher::Torchrun(_) => "torchrun",
            Launcher::Accelerate => "accelerate",
            Launcher::Deepspeed(_) => "deepspeed",
            Launcher::Processes => "processes",
            Launcher::Script => "script",
        }
    }

    /// Whether the rendezvous, and not the inventory, says who is which rank.
    pub fn has_dynamic_ranks(self) -> bool {
        matches!(self, Launcher::Torchrun(Rendezvous::C10d) | Launcher::Deepspeed(DeepspeedLauncher::Torchrun(Rendezvous::C10d)))
    }
}

/// Who starts the workers of a DeepSpeed job.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub enum DeepspeedLauncher {
    /// `python -m torch.distributed.run`.
    Torchrun(Rendezvous),
    /// `deepspeed --hostfile … --no_ssh`, one a host.
    Hostfile,
}

/// `launch.gpu_visibility`.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub enum GpuVisibility {
    /// Every process sees all GPUs of its host, and LOCAL_RANK chooses.
    All,
    /// Every process sees its own alone.
    OnePerProcess,
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
    /// All at once.
    Together,
}

/// `launch.gate`.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub enum StartGate {
    /// The master's port listens.
    MasterPort,
    /// The master's launcher runs.
    MasterStarted,
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
pub struct InventoryProblem {
    /// The file's name as given, or `--set`.
    pub file: String,
    /// From 1; 0: the whole file.
    pub line: usize,
    /// From 1; 0: the whole line.
    pub column: usize,
    /// `hosts[2].gpus`; empty: the whole file.
    pub key_path: String,
    /// What is wrong: a lower-case fragment.
    pub message: String,
    /// What would be right; may be empty.
    pub hint: String,
}

impl fmt::Display for InventoryProblem {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.write_str(&self.file)?;
        if self.line > 0 {
            write!(f, ":{}:{}", self.line, self.column)?;
        }
        if !self.key_path.is_empty() {
            write!(f, ": {}", self.key_path)?;
        }
        write!(f, ": {}", self.message)?;
        if self.hint.is_empty() { Ok(()) } else { write!(f, "\n    help: {}", self.hint) }
    }
}

#[cfg(test)]
mod tests;
