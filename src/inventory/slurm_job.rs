//! The job as SLURM runs it. Nodes, addresses, port and run id are known when the job starts: their values are variables of the script.

use super::errors::InventoryErrors;
use super::eval::NPROC_LIMIT;
use super::slurm::{SlurmContainer, SlurmSettings};
use super::slurm_prepare::{check_tasks, login_inventory, place_tasks};
use super::yaml_tree::{SourceLocation, YamlEntry, YamlNode};
use super::{
    ContainerGpus, ContainerUser, EntrypointMode, GpuSelection, Inventory, InventoryHost, InventoryProblem, Job, LaunchCommand,
    PrepareTask, RuntimeValues,
};
use crate::text::shell_template::{self, variable};

/// How long before the end of the time limit the ranks are asked to stop, beyond `launch.stop_grace`: SLURM's signal may come late.
const SIGNAL_MARGIN_SECS: u64 = 30;

/// What a script for SLURM is made of.
#[derive(Debug, Clone)]
pub struct SlurmJob {
    pub settings: SlurmSettings,
    /// Every template evaluated; all hosts are equal.
    pub job: Job,
    /// One host a node; names and addresses are variables.
    pub hosts: Vec<InventoryHost>,
    /// Fabric addresses that the inventory gives to nodes, by their name.
    pub fabric_addresses: Vec<(String, String)>,
}

impl SlurmJob {
    /// The tasks that are steps of the job, in its containers.
    pub(crate) fn step_tasks(&self) -> impl Iterator<Item = &PrepareTask> {
        self.job.tasks.iter().filter(|task| task.in_container)
    }

    /// What is done on the login node before the job is submitted.
    pub(crate) fn login_tasks(&self) -> impl Iterator<Item = &PrepareTask> {
        self.job.tasks.iter().filter(|task| !task.in_container)
    }

    /// Seconds from the signal to the end of the time limit.
    pub fn signal_secs(&self) -> u64 {
        self.job.launch.stop_grace.as_secs() + SIGNAL_MARGIN_SECS
    }
}

impl Inventory {
    /// The job as the block `slurm` asks for it.
    ///
    /// # Errors
    /// Everything that is wrong with it, or that SLURM cannot do, in the order of the files.
    pub fn slurm_job(&self) -> Result<SlurmJob, Vec<InventoryProblem>> {
        let Some(settings) = &self.slurm else {
            let location = self.merged.tree.location.child("slurm");
            let tree = &self.merged.tree;
            // It is as many as the ranks of a node, if these are known.
            let nproc = tree.get_path(&["launch", "nproc_per_node"]);
            let nproc = nproc.and_then(|node| InventoryErrors::default().read_number(node, 1, NPROC_LIMIT));
            let uses_no_gpus = tree.get_path(&["container", "gpus"]).is_some_and(|gpus| gpus.as_text() == Some("none"));
            let gpus = match nproc {
                _ if uses_no_gpus => ", gpus_per_node: 0",
                Some(_) => "",
                None => ", gpus_per_node: 8",
            };
            let container = if tree.get("container").is_some() { ", container: docker" } else { "" };
            let rest = format!("{gpus}{container}");
            let hint = format!("add it to the inventory, for example `slurm: {{ login: LOGIN_NODE, partition: gpu{rest} }}`");
            return Err(vec![location.problem("`slurm` is missing", hint)]);
        };
        let view = self.slurm_view();
        let known = view.slurm_values();
        let job = view.job(&known).map_err(readable)?;
        if !job.has_launch {
            let location = self.merged.tree.location.child("launch");
            return Err(vec![location.problem("`launch` is missing", "add what to run: launch: { command: [train.py] }")]);
        }
        let mut errors = InventoryErrors::default();
        SlurmChecks { inventory: self, settings, job: &job, errors: &mut errors }.run();
        check_tasks(&view.merged.tree, &job.tasks, settings.container, &mut errors);
        let fabric = self.hosts.iter().filter_map(|host| Some((host.name.clone(), host.fabric_address.clone()?))).collect();
        let job = SlurmJob { settings: settings.clone(), job, hosts: view.hosts, fabric_addresses: fabric };
        errors.into_result(Some(job)).map_err(readable)
    }

    /// The tasks that are done on the login node before the job is submitted; `None`: there are none, or no login node.
    pub(crate) fn slurm_login_inventory(&self) -> Option<Inventory> {
        let login = self.slurm.as_ref()?.login.as_ref()?;
        let view = self.slurm_view();
        login_inventory(&view, login, &view.slurm_values())
    }

    /// The same inventory with the cluster's nodes for hosts.
    pub(super) fn slurm_view(&self) -> Inventory {
        let Some(settings) = &self.slurm else { return self.clone() };
        let at = self.merged.tree.location.child("slurm");
        let names = (0..settings.nodes).map(|node| variable(if node == 0 { "ORCH_MASTER_NAME" } else { "ORCH_HOST" }));
        let gpus = GpuSelection::Count(settings.gpus_per_node);
        let hosts = names.map(|name| InventoryHost { name, gpus: gpus.clone(), ..InventoryHost::default() }).collect();
        let entry = |key: &str, value: YamlNode| YamlEntry::new(key, at.clone(), value);
        let mut tree = self.merged.tree.clone();
        place_tasks(&mut tree, settings.container, &self.merged.all_host_names);
        if tree.get_path(&["launch", "master_port"]).is_none() && tree.get("launch").is_some() {
            // Two jobs may share a node: without a port of its own a job takes one by its id.
            let port = YamlNode::map(at.clone(), vec![entry("master_port", YamlNode::scalar(at.clone(), "auto", true))]);
            tree = tree.merge(YamlNode::map(at.clone(), vec![entry("launch", port)]));
        }
        self.with_hosts(tree, hosts, &at)
    }

    /// What templates get where only the running job knows.
    pub(super) fn slurm_values(&self) -> RuntimeValues {
        let count = self.hosts.len();
        let address = |node: usize| Some(variable(if node == 0 { "ORCH_MASTER_ADDR" } else { "ORCH_ADDRESS" }));
        RuntimeValues {
            run_id: variable("ORCH_RUN_ID"),
            run_stamp: variable("ORCH_RUN_STAMP"),
            gpu_counts: self.hosts.iter().map(|host| if let GpuSelection::Count(count) = host.gpus { Some(count) } else { None }).collect(),
            fabric_addresses: (0..count).map(address).collect(),
            master_port: None,
        }
    }
}

/// Problems without the signs of variables.
pub(super) fn readable(problems: Vec<InventoryProblem>) -> Vec<InventoryProblem> {
    let text = |text: &str| shell_template::describe(&text.replace(&variable("ORCH_MASTER_NAME"), "each node"));
    problems.into_iter().map(|p| InventoryProblem { message: text(&p.message), hint: text(&p.hint), ..p }).collect()
}

struct SlurmChecks<'a> {
    inventory: &'a Inventory,
    settings: &'a SlurmSettings,
    job: &'a Job,
    errors: &'a mut InventoryErrors,
}

impl SlurmChecks<'_> {
    fn run(&mut self) {
        self.check_values();
        self.check_secrets();
        self.check_time();
        if self.settings.container != SlurmContainer::None {
            self.check_container();
        }
    }

    fn location(&self, keys: &[&str]) -> SourceLocation {
        let tree = &self.inventory.merged.tree;
        let block = keys.first().and_then(|key| tree.get(key)).map_or(&tree.location, |node| &node.location);
        tree.get_path(keys).map_or_else(|| block.clone(), |node| node.location.clone())
    }

    fn report(&mut self, keys: &[&str], message: impl Into<String>, hint: &str) {
        self.errors.report(&self.location(keys), message, hint);
    }

    /// Values that differ from node to node, or that nothing can know in time.
    fn check_values(&mut self) {
        let Some(first) = self.job.hosts.first() else { return };
        let key = if matches!(first.command, LaunchCommand::Shell(_)) { "shell" } else { "command" };
        for (keys, differs) in [
            (&["launch", key][..], self.job.hosts.iter().any(|host| host.command != first.command)),
            (&["env"][..], self.job.hosts.iter().any(|host| host.env != first.env)),
            (&["container"][..], self.job.hosts.iter().any(|host| host.container != first.container)),
        ] {
            if differs {
                let hint = "let the program read ORCH_HOST, ORCH_NODE_RANK and ORCH_MASTER_ADDR from its environment";
                self.report(keys, "`host` differs from node to node, and SLURM chooses the nodes when the job starts", hint);
            }
        }
        let mut texts: Vec<&str> = first.env.values().map(String::as_str).collect();
        match &first.command {
            LaunchCommand::Argv(words) => texts.extend(words.iter().map(String::as_str)),
            LaunchCommand::Shell(text) => texts.push(text),
        }
        texts.extend(self.job.launch.setup.as_deref());
        texts.extend(self.job.launch.launcher_args.iter().map(String::as_str));
        if texts.iter().any(|text| text.contains("<from \0")) {
            let hint = "let the program read ORCH_MASTER_PORT from its environment, or set launch.master_port";
            self.report(&["launch"], "master.port is known when the job starts: every job has its own", hint);
        }
        if texts.iter().any(|text| text.contains('\r')) {
            self.report(&["launch"], "sbatch refuses a script with carriage returns", "remove them, or read the text from a file");
        }
        // The job runs these texts as they are.
        let shell = if let LaunchCommand::Shell(text) = &first.command { Some(text) } else { None };
        for (key, text) in [("shell", shell), ("setup", self.job.launch.setup.as_ref())] {
            if text.is_some_and(|text| text.contains('\0')) {
                let hint = "write $ORCH_RUN_ID, $ORCH_RUN_STAMP, $ORCH_MASTER_NAME or $ORCH_MASTER_ADDR: they are variables of the script";
                self.report(&["launch", key], "a template here is known when the job starts", hint);
            }
        }
    }

    fn check_secrets(&mut self) {
        if self.job.secret_names.is_empty() {
            return;
        }
        if !self.settings.secrets_in_file {
            let hint = "set slurm.secrets: file to let them wait in a 0600 file of the run directory, which the job deletes when it starts";
            self.report(&["secrets"], "on SLURM secrets wait in the queue", hint);
        }
        if self.settings.requeue {
            let hint = "remove one of the two: the first start deletes the secrets, and a requeued job would have none";
            self.report(&["slurm", "requeue"], "a job with secrets cannot be requeued", hint);
        }
    }

    fn check_time(&mut self) {
        let Some((text, seconds)) = &self.settings.time else { return };
        let before = self.job.launch.stop_grace.as_secs() + SIGNAL_MARGIN_SECS;
        if *seconds > 0 && *seconds <= before + 60 {
            let message = format!("a job of `{text}` would be stopped as soon as it starts: its ranks get TERM {before} s before the end");
            self.report(&["slurm", "time"], message, "raise slurm.time, or lower launch.stop_grace");
        }
    }

    /// What of `container` only docker can do, or only without SLURM.
    fn check_container(&mut self) {
        let Some(container) = self.job.hosts.first().and_then(|host| host.container.clone()) else { return };
        let mode = self.settings.container;
        let docker = mode == SlurmContainer::Docker;
        if container.entrypoint == EntrypointMode::Image {
            let hint = "remove it, or start the entrypoint in launch.command";
            self.report(&["container", "entrypoint"], "`image` is not supported yet on SLURM", hint);
        }
        if container.registry.is_some() {
            let hint =
                if docker { "log in on the nodes, or load the image there" } else { "give the credentials to the cluster's own tool" };
            self.report(&["container", "registry"], "a login to a registry is not supported yet on SLURM", hint);
        }
        if matches!(container.gpus, ContainerGpus::Count(_) | ContainerGpus::List(_)) {
            self.report(&["container", "gpus"], "SLURM chooses the GPUs", "remove it, and set slurm.gpus_per_node");
        }
        if docker {
            return;
        }
        let mode = mode.as_str();
        if !container.docker_args.is_empty() {
            self.report(
                &["container", "args"],
                format!("{mode} does not take options of `docker run`"),
                "remove them, or use slurm.container: docker",
            );
        }
        if container.network != "host" {
            self.report(&["container", "network"], format!("{mode} runs in the host's network"), "remove it");
        }
        let user = match &container.user {
            ContainerUser::Ids(_) | ContainerUser::Root if mode == "apptainer" => Some("me"),
            ContainerUser::Ids(_) => Some("me or root"),
            _ => None,
        };
        if let Some(known) = user {
            self.report(&["container", "user"], format!("{mode} knows only {known}"), "remove it, or use slurm.container: docker");
        }
    }
}
