//! What each launcher is told: one launcher a file, with its flags, the workers' command, what its environment means, what its exit status
//! means and how it is stopped.
//!
//! Uses `inventory` and `plan/world`. A launcher's own flags are built here and typed nowhere else. Every launcher but `processes` starts its
//! workers as `/bin/sh <run dir>/worker`, which gives each its own log, pid and exit status; `processes` does so itself.

pub mod accelerate;
mod deepspeed;
mod processes;
mod script;
mod torchrun;

#[cfg(test)]
mod tests;

use std::collections::BTreeMap;

use crate::inventory::{Entrypoint, Gpus, Host, Job, Launcher, Payload};
use crate::plan::facts::HostFacts;
use crate::plan::site::Site;
use crate::plan::world::World;

/// What one host's node wrapper and worker wrappers are given.
#[derive(Debug, Clone, PartialEq, Eq, Default)]
pub struct Start {
    /// The launcher's argument vector.
    pub argv: Vec<String>,
    /// The workers' argument vector.
    pub worker: Vec<String>,
    /// The environment beyond the container's, in the order of its names.
    pub env: BTreeMap<String, String>,
    /// Variables that are set only where nobody else has set them: not the inventory, not the image.
    pub defaults: BTreeMap<String, String>,
    /// What each rank of this host is given beyond that.
    pub ranks: Vec<RankStart>,
    /// Further files of the run directory, by name.
    pub files: BTreeMap<String, String>,
    /// Whether the launcher runs through the image's ENTRYPOINT.
    pub entrypoint: bool,
    /// What must be found where the ranks run.
    pub needs: Needs,
    /// The same run by hand: the launcher with the true command, without wrappers.
    pub by_hand: ByHand,
}

/// What one rank is given by its launcher.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct RankStart {
    /// `rank 3`, or `each rank` where the rendezvous hands ranks out.
    pub title: String,
    /// Its own variables.
    pub env: BTreeMap<String, String>,
}

/// What must be found where the ranks run.
#[derive(Debug, Clone, PartialEq, Eq, Default)]
pub struct Needs {
    /// Programs on PATH.
    pub programs: Vec<String>,
    /// The entry script, absolute or beneath the working directory.
    pub entry: Option<String>,
    /// A config file of accelerate, and what it must not contradict.
    pub config: Option<accelerate::Config>,
    /// Flags that an older launcher may not know, and the words that print its help.
    pub flags: Option<(Vec<String>, Vec<String>)>,
}

/// The launch without wrappers, as a person types it.
#[derive(Debug, Clone, PartialEq, Eq)]
pub enum ByHand {
    /// One command.
    Command(Vec<String>),
    /// The same command once for each entry, each with these variables, side by side.
    Each(Vec<String>, Vec<BTreeMap<String, String>>),
}

impl Default for ByHand {
    fn default() -> Self {
        ByHand::Command(Vec::new())
    }
}

/// What a launcher is built from.
pub(super) struct Here<'a> {
    job: &'a Job,
    world: &'a World,
    site: &'a Site,
    /// The node rank.
    host: usize,
    /// The host's own command.
    payload: &'a Payload,
    /// `CUDA_VISIBLE_DEVICES` of each local rank, where each process sees its own GPU alone.
    devices: Vec<String>,
}

impl Here<'_> {
    fn file(&self, name: &str) -> String {
        format!("{}/{name}", self.site.run_dir())
    }

    /// The words that start a worker through its wrapper.
    fn wrapper(&self) -> [String; 2] {
        ["/bin/sh".to_owned(), self.file("worker")]
    }

    /// The launcher as a program, or as a module of the interpreter that the inventory names.
    fn program(&self, name: &str, module: &str) -> Vec<String> {
        let python = &self.job.launch.python;
        if python == "python3" { vec![name.to_owned()] } else { vec![python.clone(), "-m".to_owned(), module.to_owned()] }
    }

    /// The worker's command where the launcher would run a Python script: a script for the interpreter, `-m module`, or with `--no_python` a
    /// program. With what the launcher itself takes in its place, and the needs of it.
    fn python_worker(&self) -> PythonWorker {
        let Payload::Argv(words) = self.payload else { return PythonWorker::default() };
        let python = &self.job.launch.python;
        match words.split_first() {
            Some((first, rest)) if first == "--no_python" || first == "--no-python" => PythonWorker {
                command: rest.to_vec(),
                by_hand: std::iter::once("--no_python".to_owned()).chain(rest.iter().cloned()).collect(),
                program: rest.first().cloned(),
                entry: None,
            },
            first => {
                let command = [python.clone(), "-u".to_owned()].into_iter().chain(words.iter().cloned()).collect();
                let module = first.is_some_and(|(first, _)| first == "-m");
                let entry = first.filter(|_| !module).map(|(first, _)| first.clone());
                PythonWorker { command, by_hand: words.clone(), program: Some(python.clone()), entry }
            }
        }
    }

    /// A command that is a program: of `script` and `processes`.
    fn program_worker(&self) -> Vec<String> {
        match self.payload {
            Payload::Argv(words) => words.clone(),
            Payload::Shell(_) => vec!["bash".to_owned(), self.file("script")],
        }
    }

    /// The same as typed by hand: a script stands in the command line.
    fn program_by_hand(&self) -> Vec<String> {
        match self.payload {
            Payload::Argv(words) => words.clone(),
            Payload::Shell(text) => vec!["bash".to_owned(), "-c".to_owned(), text.clone()],
        }
    }

    fn local_ranks(&self) -> std::ops::Range<u32> {
        0..self.world.local_size(self.host)
    }

    /// What torch's launchers set for each worker of this host; one entry for all where the ranks are not known beforehand.
    fn torch_ranks(&self, further: &[(&str, String)]) -> Vec<RankStart> {
        let (world, local) = (self.world.processes_text(), self.world.nproc_text(self.host));
        let of = |title: String, own: Vec<(&str, String)>| {
            let common = [
                ("WORLD_SIZE", world.clone()),
                ("LOCAL_WORLD_SIZE", local.clone()),
                ("MASTER_ADDR", self.world.master().to_owned()),
                ("MASTER_PORT", self.world.port_text()),
            ];
            let all = own.into_iter().chain(common).chain(further.iter().cloned());
            RankStart { title, env: all.map(|(name, value)| (name.to_owned(), value)).collect() }
        };
        if self.world.open() || self.world.launcher.ranks_are_handed_out() {
            let rank = "<from the rendezvous>".to_owned();
            let rank = if self.world.launcher.ranks_are_handed_out() { rank } else { format!("<{} x {} + LOCAL_RANK>", self.host, local) };
            return vec![of("each rank".to_owned(), vec![("RANK", rank), ("LOCAL_RANK", format!("<0 to {local} - 1>"))])];
        }
        let node = u32::try_from(self.host).unwrap_or(u32::MAX);
        let first = self.world.first_rank(self.host);
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
    command: Vec<String>,
    by_hand: Vec<String>,
    program: Option<String>,
    entry: Option<String>,
}

/// Variables from pairs.
fn variables<const N: usize>(pairs: [(&str, String); N]) -> BTreeMap<String, String> {
    pairs.into_iter().map(|(name, value)| (name.to_owned(), value)).collect()
}

/// Builds the start of host number `host` of the gang.
pub fn start(job: &Job, world: &World, site: &Site, host: usize, hosts: &[Host], facts: Option<&HostFacts>) -> Start {
    let part = job.hosts.get(host);
    let payload = part.map_or(&job.launch.command, |p| &p.command);
    let own = hosts.get(host).map(|h| &h.gpus);
    let devices = match (job.launch.visibility, own) {
        (crate::inventory::Visibility::All, _) => Vec::new(),
        // Inside a container they are numbered from 0, whichever they are outside.
        (_, Some(Gpus::List(list))) if !site.contained => list.iter().map(u32::to_string).collect(),
        _ => (0..world.local_size(host)).map(|i| i.to_string()).collect(),
    };
    let here = Here { job, world, site, host, payload, devices };
    let mut start = match job.launch.with {
        Launcher::Torchrun(rendezvous) => torchrun::start(&here, rendezvous),
        Launcher::Accelerate => accelerate::start(&here),
        Launcher::Deepspeed(form) => deepspeed::start(&here, form),
        Launcher::Processes => processes::start(&here),
        Launcher::Script => script::start(&here),
    };
    let mut env = common(&here, hosts, facts);
    env.append(&mut start.env);
    if let Some(part) = part {
        env.extend(part.env.clone());
    }
    // In a container `--gpus` decides; on a bare host only this keeps a run on the GPUs that it may use.
    if let (false, Some(Gpus::List(list))) = (site.contained, own) {
        let visible = list.iter().map(u32::to_string).collect::<Vec<_>>().join(",");
        env.entry("CUDA_VISIBLE_DEVICES".to_owned()).or_insert(visible);
    }
    start.env = env;
    start.defaults = interfaces(&here, facts);
    start.files.insert("hostfile".to_owned(), hostfile(world, hosts));
    if let Payload::Shell(text) = payload {
        start.files.insert("script".to_owned(), text.clone());
    }
    start.entrypoint = part.and_then(|p| p.container.as_ref()).is_some_and(|c| c.entrypoint == Entrypoint::Image);
    if let Some(lines) = &job.launch.setup {
        start.files.insert("setup".to_owned(), format!("{}\n", lines.trim_end()));
        start.files.insert("with-setup".to_owned(), include_str!("../../../assets/setup.sh").to_owned());
        let wrapped = match job.launch.with {
            Launcher::Processes | Launcher::Script => &mut start.worker,
            _ => &mut start.argv,
        };
        wrapped.splice(0..0, ["bash".to_owned(), here.file("with-setup")]);
        start.needs.programs.insert(0, "bash".to_owned());
    }
    start
}

/// The names that mean one thing only, whatever the launcher makes of `WORLD_SIZE`.
fn common(here: &Here<'_>, hosts: &[Host], facts: Option<&HostFacts>) -> BTreeMap<String, String> {
    let Here { job, world, site, host, .. } = here;
    variables([
        ("ORCH_RUN_ID", site.run.clone()),
        ("ORCH_NAME", site.name.clone()),
        ("ORCH_RUN_DIR", site.run_dir()),
        ("ORCH_HOST", site.host.clone()),
        ("ORCH_HOSTS", hosts.iter().map(|h| h.name.as_str()).collect::<Vec<_>>().join(",")),
        ("ORCH_HOSTFILE", here.file("hostfile")),
        ("ORCH_NNODES", world.addresses.len().to_string()),
        ("ORCH_NODE_RANK", host.to_string()),
        ("ORCH_GPUS_PER_NODE", world.nproc_text(*host)),
        ("ORCH_WORLD_SIZE", world.processes_text()),
        ("ORCH_MASTER_ADDR", world.master().to_owned()),
        ("ORCH_MASTER_PORT", world.port_text()),
        ("ORCH_WORKDIR", job.hosts.get(*host).and_then(|h| h.workdir.as_deref()).map_or_else(String::new, |dir| at_home(dir, facts))),
        // Else the log of a Python rank stays empty for minutes (mission.md 5.7).
        ("PYTHONUNBUFFERED", "1".to_owned()),
    ])
}

/// A path of the host with the ssh user's home written out.
pub fn at_home(path: &str, facts: Option<&HostFacts>) -> String {
    let home = facts.map_or("~", |f| f.home.as_str());
    match path.strip_prefix("~/") {
        Some(rest) => format!("{home}/{rest}"),
        None if path == "~" => home.to_owned(),
        None => path.to_owned(),
    }
}

/// The hosts in DeepSpeed's form: names are labels, the order is the node rank.
fn hostfile(world: &World, hosts: &[Host]) -> String {
    hosts.iter().enumerate().map(|(index, h)| format!("{} slots={}\n", h.name, world.nproc_text(index))).collect()
}

/// The network interface that has the address under which the others know this host. NCCL takes a list of prefixes, and `=` for an exact name;
/// gloo takes a name (mission.md 5.9). Only where the ranks see the host's own interfaces.
fn interfaces(here: &Here<'_>, facts: Option<&HostFacts>) -> BTreeMap<String, String> {
    let part = here.job.hosts.get(here.host);
    let container = part.and_then(|p| p.container.as_ref());
    let network = container.is_none_or(|c| c.network == "host");
    let address = here.world.addresses.get(here.host);
    let interface = address.zip(facts).and_then(|(address, facts)| facts.interface(address));
    let (true, Some(interface)) = (network && here.world.addresses.len() > 1, interface) else { return BTreeMap::new() };
    let given = |name: &str| part.is_some_and(|p| p.env.contains_key(name)) || container.is_some_and(|c| c.env.contains_key(name));
    let both = [("NCCL_SOCKET_IFNAME", format!("={interface}")), ("GLOO_SOCKET_IFNAME", interface.to_owned())];
    both.into_iter().filter(|(name, _)| !given(name)).map(|(name, value)| (name.to_owned(), value)).collect()
}
