//! What each launcher is told: one launcher a file, with its flags, the workers' command, what its environment means, what its exit status
//! means and how it is stopped.
//!
//! Uses `inventory` and `plan/rank_layout`. A launcher's own flags are built here and typed nowhere else. Every launcher but `processes` starts its
//! workers as `/bin/sh <run dir>/worker`, which gives each its own log, pid and exit status; `processes` does so itself.

pub mod accelerate;
mod deepspeed;
mod processes;
mod script;
mod torchrun;

#[cfg(test)]
mod tests;

use std::collections::BTreeMap;

use crate::inventory::{EntrypointMode, GpuSelection, InventoryHost, Job, LaunchCommand, Launcher};
use crate::plan::facts::HostFacts;
use crate::plan::host_context::HostContext;
use crate::plan::rank_layout::RankLayout;

/// What one host's node wrapper and worker wrappers are given.
#[derive(Debug, Clone, PartialEq, Eq, Default)]
pub struct LaunchSpec {
    /// The launcher's argument vector.
    pub argv: Vec<String>,
    /// The workers' argument vector.
    pub worker_argv: Vec<String>,
    /// The environment beyond the container's, in the order of its names.
    pub env: BTreeMap<String, String>,
    /// Variables that are set only where nobody else has set them: not the inventory, not the image.
    pub env_defaults: BTreeMap<String, String>,
    /// What each rank of this host is given beyond that.
    pub ranks: Vec<RankEnv>,
    /// Further files of the run directory, by name.
    pub files: BTreeMap<String, String>,
    /// Whether the launcher runs through the image's ENTRYPOINT.
    pub use_entrypoint: bool,
    /// What must be found where the ranks run.
    pub requirements: RankRequirements,
    /// The same run by hand: the launcher with the true command, without wrappers.
    pub manual_launch: ManualLaunch,
}

/// What one rank is given by its launcher.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct RankEnv {
    /// `rank 3`, or `each rank` where the rendezvous hands ranks out.
    pub title: String,
    /// Its own variables.
    pub env: BTreeMap<String, String>,
}

/// What must be found where the ranks run.
#[derive(Debug, Clone, PartialEq, Eq, Default)]
pub struct RankRequirements {
    /// Programs on PATH.
    pub programs: Vec<String>,
    /// The entry script, absolute or beneath the working directory.
    pub entry_script: Option<String>,
    /// A config file of accelerate, and what it must not contradict.
    pub accelerate_config: Option<accelerate::AccelerateConfig>,
    /// Flags that an older launcher may not know, and the words that print its help.
    pub flags_and_help: Option<(Vec<String>, Vec<String>)>,
}

/// The launch without wrappers, as a person types it.
#[derive(Debug, Clone, PartialEq, Eq)]
pub enum ManualLaunch {
    /// One command.
    Command(Vec<String>),
    /// The same command once for each entry, each with these variables, side by side.
    PerRank(Vec<String>, Vec<BTreeMap<String, String>>),
}

impl Default for ManualLaunch {
    fn default() -> Self {
        ManualLaunch::Command(Vec::new())
    }
}

/// What a launcher is built from.
pub(super) struct LauncherBuilder<'a> {
    job: &'a Job,
    layout: &'a RankLayout,
    context: &'a HostContext,
    /// The node rank.
    node_rank: usize,
    /// The host's own command.
    payload: &'a LaunchCommand,
    /// `CUDA_VISIBLE_DEVICES` of each local rank, where each process sees its own GPU alone.
    devices: Vec<String>,
}

impl LauncherBuilder<'_> {
    fn run_dir_path(&self, name: &str) -> String {
        format!("{}/{name}", self.context.run_dir())
    }

    /// The words that start a worker through its wrapper.
    fn worker_wrapper_argv(&self) -> [String; 2] {
        ["/bin/sh".to_owned(), self.run_dir_path("worker")]
    }

    /// The launcher as a program, or as a module of the interpreter that the inventory names.
    fn launcher_argv(&self, name: &str, module: &str) -> Vec<String> {
        let python = &self.job.launch.python;
        if python == "python3" { vec![name.to_owned()] } else { vec![python.clone(), "-m".to_owned(), module.to_owned()] }
    }

    /// The worker's command where the launcher would run a Python script: a script for the interpreter, `-m module`, or with `--no_python` a
    /// program. With what the launcher itself takes in its place, and the needs of it.
    fn python_worker(&self) -> PythonWorker {
        let LaunchCommand::Argv(words) = self.payload else { return PythonWorker::default() };
        let python = &self.job.launch.python;
        match words.split_first() {
            Some((first, rest)) if first == "--no_python" || first == "--no-python" => PythonWorker {
                argv: rest.to_vec(),
                manual_argv: std::iter::once("--no_python".to_owned()).chain(rest.iter().cloned()).collect(),
                program: rest.first().cloned(),
                entry_script: None,
            },
            first => {
                let command = [python.clone(), "-u".to_owned()].into_iter().chain(words.iter().cloned()).collect();
                let module = first.is_some_and(|(first, _)| first == "-m");
                let entry = first.filter(|_| !module).map(|(first, _)| first.clone());
                PythonWorker { argv: command, manual_argv: words.clone(), program: Some(python.clone()), entry_script: entry }
            }
        }
    }

    /// A command that is a program: of `script` and `processes`.
    fn program_worker_argv(&self) -> Vec<String> {
        match self.payload {
            LaunchCommand::Argv(words) => words.clone(),
            LaunchCommand::Shell(_) => vec!["bash".to_owned(), self.run_dir_path("script")],
        }
    }

    /// The same as typed by hand: a script stands in the command line.
    fn program_manual_argv(&self) -> Vec<String> {
        match self.payload {
            LaunchCommand::Argv(words) => words.clone(),
            LaunchCommand::Shell(text) => vec!["bash".to_owned(), "-c".to_owned(), text.clone()],
        }
    }

    fn local_ranks(&self) -> std::ops::Range<u32> {
        0..self.layout.local_world_size(self.node_rank)
    }

    /// What torch's launchers set for each worker of this host; one entry for all where the ranks are not known beforehand.
    fn torch_rank_envs(&self, further: &[(&str, String)]) -> Vec<RankEnv> {
        let (world, local) = (self.layout.process_count_text(), self.layout.nproc_text(self.node_rank));
        let of = |title: String, own: Vec<(&str, String)>| {
            let common = [
                ("WORLD_SIZE", world.clone()),
                ("LOCAL_WORLD_SIZE", local.clone()),
                ("MASTER_ADDR", self.layout.master_address().to_owned()),
                ("MASTER_PORT", self.layout.port_text()),
            ];
            let all = own.into_iter().chain(common).chain(further.iter().cloned());
            RankEnv { title, env: all.map(|(name, value)| (name.to_owned(), value)).collect() }
        };
        if self.layout.is_incomplete() || self.layout.launcher.has_dynamic_ranks() {
            let rank = "<from the rendezvous>".to_owned();
            let rank =
                if self.layout.launcher.has_dynamic_ranks() { rank } else { format!("<{} x {} + LOCAL_RANK>", self.node_rank, local) };
            return vec![of("each rank".to_owned(), vec![("RANK", rank), ("LOCAL_RANK", format!("<0 to {local} - 1>"))])];
        }
        let node = u32::try_from(self.node_rank).unwrap_or(u32::MAX);
        let first = self.layout.first_rank(self.node_rank);
        let rank = |local: u32| {
            let rank = first.saturating_add(local);
            let own = vec![("RANK", rank.to_string()), ("LOCAL_RANK", local.to_string()), ("GROUP_RANK", node.to_string())];
            of(format!("rank {rank}"), own)
        };
        self.local_ranks().map(rank).collect()
    }
}

#[derive(Default)]
struct PythonWorker {
    argv: Vec<String>,
    manual_argv: Vec<String>,
    program: Option<String>,
    entry_script: Option<String>,
}

/// Variables from pairs.
fn env_map<const N: usize>(pairs: [(&str, String); N]) -> BTreeMap<String, String> {
    pairs.into_iter().map(|(name, value)| (name.to_owned(), value)).collect()
}

/// Builds the start of host number `host` of the gang.
pub fn build_launch_spec(
    job: &Job,
    world: &RankLayout,
    site: &HostContext,
    host: usize,
    hosts: &[InventoryHost],
    facts: Option<&HostFacts>,
) -> LaunchSpec {
    let part = job.hosts.get(host);
    let payload = part.map_or(&job.launch.command, |p| &p.command);
    let own = hosts.get(host).map(|h| &h.gpus);
    let devices = match (job.launch.gpu_visibility, own) {
        (crate::inventory::GpuVisibility::All, _) => Vec::new(),
        // Inside a container they are numbered from 0, whichever they are outside.
        (_, Some(GpuSelection::List(list))) if !site.in_container => list.iter().map(u32::to_string).collect(),
        _ => (0..world.local_world_size(host)).map(|i| i.to_string()).collect(),
    };
    let here = LauncherBuilder { job, layout: world, context: site, node_rank: host, payload, devices };
    let mut start = match job.launch.launcher {
        Launcher::Torchrun(rendezvous) => torchrun::torchrun_spec(&here, rendezvous),
        Launcher::Accelerate => accelerate::accelerate_spec(&here),
        Launcher::Deepspeed(form) => deepspeed::deepspeed_spec(&here, form),
        Launcher::Processes => processes::processes_spec(&here),
        Launcher::Script => script::script_spec(&here),
    };
    let mut env = common_env(&here, hosts, facts);
    env.append(&mut start.env);
    if let Some(part) = part {
        env.extend(part.env.clone());
    }
    // In a container `--gpus` decides; on a bare host only this keeps a run on the GPUs that it may use.
    if let (false, Some(GpuSelection::List(list))) = (site.in_container, own) {
        let visible = list.iter().map(u32::to_string).collect::<Vec<_>>().join(",");
        env.entry("CUDA_VISIBLE_DEVICES".to_owned()).or_insert(visible);
    }
    start.env = env;
    start.env_defaults = interface_env(&here, facts);
    start.files.insert("hostfile".to_owned(), hostfile_text(world, hosts));
    if let LaunchCommand::Shell(text) = payload {
        start.files.insert("script".to_owned(), text.clone());
    }
    start.use_entrypoint = part.and_then(|p| p.container.as_ref()).is_some_and(|c| c.entrypoint == EntrypointMode::Image);
    if let Some(lines) = &job.launch.setup {
        start.files.insert("setup".to_owned(), format!("{}\n", lines.trim_end()));
        start.files.insert("with-setup".to_owned(), include_str!("../../../assets/setup.sh").to_owned());
        let wrapped = match job.launch.launcher {
            Launcher::Processes | Launcher::Script => &mut start.worker_argv,
            _ => &mut start.argv,
        };
        wrapped.splice(0..0, ["bash".to_owned(), here.run_dir_path("with-setup")]);
        start.requirements.programs.insert(0, "bash".to_owned());
    }
    start
}

/// The names that mean one thing only, whatever the launcher makes of `WORLD_SIZE`.
fn common_env(here: &LauncherBuilder<'_>, hosts: &[InventoryHost], facts: Option<&HostFacts>) -> BTreeMap<String, String> {
    let LauncherBuilder { job, layout: world, context: site, node_rank: host, .. } = here;
    env_map([
        ("ORCH_RUN_ID", site.run_id.clone()),
        ("ORCH_NAME", site.name.clone()),
        ("ORCH_RUN_DIR", site.run_dir()),
        ("ORCH_HOST", site.host.clone()),
        ("ORCH_HOSTS", hosts.iter().map(|h| h.name.as_str()).collect::<Vec<_>>().join(",")),
        ("ORCH_HOSTFILE", here.run_dir_path("hostfile")),
        ("ORCH_NNODES", world.fabric_addresses.len().to_string()),
        ("ORCH_NODE_RANK", host.to_string()),
        ("ORCH_GPUS_PER_NODE", world.nproc_text(*host)),
        ("ORCH_WORLD_SIZE", world.process_count_text()),
        ("ORCH_MASTER_ADDR", world.master_address().to_owned()),
        ("ORCH_MASTER_PORT", world.port_text()),
        ("ORCH_WORKDIR", job.hosts.get(*host).and_then(|h| h.workdir.as_deref()).map_or_else(String::new, |dir| expand_home(dir, facts))),
        // Else the log of a Python rank stays empty for minutes (mission.md 5.7).
        ("PYTHONUNBUFFERED", "1".to_owned()),
    ])
}

/// A path of the host with the ssh user's home written out.
pub fn expand_home(path: &str, facts: Option<&HostFacts>) -> String {
    let home = facts.map_or("~", |f| f.home.as_str());
    match path.strip_prefix("~/") {
        Some(rest) => format!("{home}/{rest}"),
        None if path == "~" => home.to_owned(),
        None => path.to_owned(),
    }
}

/// The hosts in DeepSpeed's form: names are labels, the order is the node rank.
fn hostfile_text(world: &RankLayout, hosts: &[InventoryHost]) -> String {
    hosts.iter().enumerate().map(|(index, h)| format!("{} slots={}\n", h.name, world.nproc_text(index))).collect()
}

/// The network interface that has the address under which the others know this host. NCCL takes a list of prefixes, and `=` for an exact name;
/// gloo takes a name (mission.md 5.9). Only where the ranks see the host's own interfaces.
fn interface_env(here: &LauncherBuilder<'_>, facts: Option<&HostFacts>) -> BTreeMap<String, String> {
    let part = here.job.hosts.get(here.node_rank);
    let container = part.and_then(|p| p.container.as_ref());
    let network = container.is_none_or(|c| c.network == "host");
    let address = here.layout.fabric_addresses.get(here.node_rank);
    let interface = address.zip(facts).and_then(|(address, facts)| facts.interface_for(address));
    let (true, Some(interface)) = (network && here.layout.fabric_addresses.len() > 1, interface) else { return BTreeMap::new() };
    let given = |name: &str| part.is_some_and(|p| p.env.contains_key(name)) || container.is_some_and(|c| c.env.contains_key(name));
    let both = [("NCCL_SOCKET_IFNAME", format!("={interface}")), ("GLOO_SOCKET_IFNAME", interface.to_owned())];
    both.into_iter().filter(|(name, _)| !given(name)).map(|(name, value)| (name.to_owned(), value)).collect()
}
