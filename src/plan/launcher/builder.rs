//! What all launchers are built from: one host of the gang, with the arguments and variables that several of them use.

use std::collections::BTreeMap;

use super::spec::RankEnv;
use crate::inventory::{DEFAULT_PYTHON, GpuSelection, GpuVisibility, InventoryHost, Job, LaunchCommand};
use crate::plan::facts::HostFacts;
use crate::plan::host_context::HostContext;
use crate::plan::rank_layout::RankLayout;
use crate::text::shell_template::variable;

/// What a launcher is built from: one host of the gang.
#[derive(Debug, Clone, Copy)]
pub(crate) struct LaunchSpecBuilder<'a> {
    /// What the gang does.
    pub job: &'a Job,
    /// Which rank is where.
    pub layout: &'a RankLayout,
    pub context: &'a HostContext,
    pub node_rank: usize,
    /// All hosts, by node rank.
    pub hosts: &'a [InventoryHost],
    /// The host's facts, where they are known.
    pub facts: Option<&'a HostFacts>,
}

impl LaunchSpecBuilder<'_> {
    /// The host's own command. The job has each host of the layout.
    pub(super) fn payload(&self) -> &LaunchCommand {
        static NO_COMMAND: LaunchCommand = LaunchCommand::Argv(Vec::new());
        self.job.hosts.get(self.node_rank).map_or(&NO_COMMAND, |host| &host.command)
    }

    /// The GPUs that the inventory names, where the ranks see them by these numbers: inside a container they are numbered from 0, whichever
    /// they are outside.
    pub(super) fn listed_gpus(&self) -> Option<Vec<String>> {
        match self.hosts.get(self.node_rank).map(|host| &host.gpus) {
            Some(GpuSelection::List(list)) if !self.context.in_container => Some(list.iter().map(u32::to_string).collect()),
            _ => None,
        }
    }

    /// `CUDA_VISIBLE_DEVICES` of each local rank, where each process sees its own GPU alone.
    pub(super) fn devices(&self) -> Vec<String> {
        match self.job.launch.gpu_visibility {
            GpuVisibility::All => Vec::new(),
            GpuVisibility::OnePerProcess if self.layout.is_symbolic && !self.context.in_container => vec![variable("ORCH_DEVICES")],
            GpuVisibility::OnePerProcess => self.listed_gpus().unwrap_or_else(|| self.local_ranks().map(|i| i.to_string()).collect()),
        }
    }

    pub(super) fn node_rank_text(&self) -> String {
        self.layout.node_text("ORCH_NODE_RANK", self.node_rank)
    }

    pub(super) fn run_dir_path(&self, name: &str) -> String {
        format!("{}/{name}", self.context.run_dir())
    }

    /// The words that start a worker through its wrapper.
    pub(super) fn worker_wrapper_argv(&self) -> [String; 2] {
        ["/bin/sh".to_owned(), self.run_dir_path("worker")]
    }

    /// The launcher as a program, or as a module of the interpreter that the inventory names.
    pub(super) fn launcher_argv(&self, name: &str, module: &str) -> Vec<String> {
        let python = &self.job.launch.python;
        if python == DEFAULT_PYTHON { vec![name.to_owned()] } else { vec![python.clone(), "-m".to_owned(), module.to_owned()] }
    }

    /// The worker's command where the launcher would run a Python script: a script for the interpreter, `-m module`, or with `--no_python` a
    /// program. With what the launcher itself takes in its place, and what both need.
    pub(super) fn python_worker(&self, launcher: &[String]) -> PythonWorker {
        let needed = |program: Option<&String>| {
            let mut programs: Vec<String> = launcher.first().into_iter().chain(program).cloned().collect();
            programs.dedup();
            programs
        };
        let LaunchCommand::Argv(words) = self.payload() else { return PythonWorker { programs: needed(None), ..PythonWorker::default() } };
        let python = &self.job.launch.python;
        match words.split_first() {
            Some((first, rest)) if first == "--no_python" || first == "--no-python" => PythonWorker {
                argv: rest.to_vec(),
                manual_argv: std::iter::once("--no_python".to_owned()).chain(rest.iter().cloned()).collect(),
                programs: needed(rest.first()),
                entry_script: None,
            },
            first => {
                let command = [python.clone(), "-u".to_owned()].into_iter().chain(words.iter().cloned()).collect();
                let module = first.is_some_and(|(first, _)| first == "-m");
                let entry = first.filter(|_| !module).map(|(first, _)| first.clone());
                PythonWorker { argv: command, manual_argv: words.clone(), programs: needed(Some(python)), entry_script: entry }
            }
        }
    }

    /// A command that is a program: of `script` and `processes`.
    pub(super) fn program_worker_argv(&self) -> Vec<String> {
        match self.payload() {
            LaunchCommand::Argv(words) => words.clone(),
            LaunchCommand::Shell(_) => vec!["bash".to_owned(), self.run_dir_path("script")],
        }
    }

    /// The same as typed by hand: a script is a part of the command line.
    pub(super) fn program_manual_argv(&self) -> Vec<String> {
        match self.payload() {
            LaunchCommand::Argv(words) => words.clone(),
            LaunchCommand::Shell(text) => vec!["bash".to_owned(), "-c".to_owned(), text.clone()],
        }
    }

    pub(super) fn local_ranks(&self) -> std::ops::Range<u32> {
        0..self.layout.local_world_size(self.node_rank)
    }

    /// What torch's launchers set for each worker of this host; one entry for all where the ranks are not known beforehand.
    pub(super) fn torch_rank_envs(&self, further: &[(&str, String)]) -> Vec<RankEnv> {
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

/// A worker that is a Python script, and what it needs.
#[derive(Default)]
pub(super) struct PythonWorker {
    pub(super) argv: Vec<String>,
    pub(super) manual_argv: Vec<String>,
    pub(super) programs: Vec<String>,
    pub(super) entry_script: Option<String>,
}

pub(super) fn bracket_ipv6(address: &str) -> String {
    if address.contains(':') { format!("[{address}]") } else { address.to_owned() }
}

pub(super) fn env_map<const N: usize>(pairs: [(&str, String); N]) -> BTreeMap<String, String> {
    pairs.into_iter().map(|(name, value)| (name.to_owned(), value)).collect()
}
