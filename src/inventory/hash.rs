//! The text that decides whether two launches are equal, before anything that differs from run to run is filled in.
//!
//! Uses jobs. Knows nothing of hashing: that is the plan's.

use std::fmt::Write as _;
use std::time::Duration;

use super::{
    Container, ContainerGpus, Entrypoint, Form, Gate, Gpus, Inventory, Job, JobHost, Known, Launch, Launcher, Mount, Payload, Pull,
    Rendezvous, Start, User, Visibility,
};

/// Canonical texts, one `key value` a line, so that two of them can be compared line by line.
#[derive(Debug, Clone, PartialEq, Eq, Default)]
pub struct HashText {
    /// What the container is made of; empty on a bare host.
    pub container: String,
    /// What the ranks are started with.
    pub launch: String,
}

impl Inventory {
    /// What decides "equal" for one host. `run.id`, `run.stamp` and whatever only the hosts know stand in it as placeholders.
    pub fn hash_text(&self, host: usize) -> HashText {
        let all = self.read.hashes.get_or_init(|| match self.job(&Known::default()) {
            Ok(job) => (0..self.hosts.len()).filter_map(|host| self.text_of(&job, host)).collect(),
            Err(_) => Vec::new(),
        });
        all.get(host).cloned().unwrap_or_default()
    }

    fn text_of(&self, job: &Job, host: usize) -> Option<HashText> {
        let (own, member) = (job.hosts.get(host)?, self.hosts.get(host)?);
        let mut container = Lines::default();
        if let Some(block) = &own.container {
            container_lines(&mut container, block);
            container.add("run_dir", &self.run_dir);
            container.add("gpus", gpus(&member.gpus));
            container.add("stop_grace", seconds(job.launch.stop_grace));
        }
        let mut launch = Lines::default();
        let names: Vec<&str> = self.hosts.iter().map(|host| host.name.as_str()).collect();
        launch.list("hosts", &names);
        launch.add("rank", host);
        launch.add("gpus", gpus(&member.gpus));
        launch.add("fabric_address", member.fabric_address.as_deref().unwrap_or_default());
        launch.add("nproc_per_node", own.nproc.map_or_else(String::new, |nproc| nproc.to_string()));
        host_lines(&mut launch, own);
        launch.list("secrets", &job.secrets);
        launch_lines(&mut launch, &job.launch);
        Some(HashText { container: container.text, launch: launch.text })
    }
}

#[derive(Default)]
struct Lines {
    text: String,
}

impl Lines {
    fn add(&mut self, key: &str, value: impl ToString) {
        // Writing into a text cannot fail.
        let written = writeln!(self.text, "{key} {:?}", value.to_string());
        debug_assert!(written.is_ok());
    }

    fn list<S: AsRef<str>>(&mut self, key: &str, values: &[S]) {
        let values: Vec<&str> = values.iter().map(AsRef::as_ref).collect();
        let written = writeln!(self.text, "{key} {values:?}");
        debug_assert!(written.is_ok());
    }
}

fn seconds(duration: Duration) -> String {
    format!("{}ms", duration.as_millis())
}

fn gpus(gpus: &Gpus) -> String {
    match gpus {
        Gpus::Any => "any".to_owned(),
        Gpus::Count(count) => count.to_string(),
        Gpus::List(list) => format!("{list:?}"),
    }
}

fn container_lines(lines: &mut Lines, block: &Container) {
    // `pull` says when to look for the image, not what it is; `create` of a mount is about the host's side.
    // So does the registry, which says where it comes from.
    let Container { engine_host, image, pull, gpus, network, user, entrypoint, registry: _, shm_size, mounts, env, args } = block;
    match pull {
        Pull::Missing | Pull::Always | Pull::Never => {}
    }
    lines.add("container.host", engine_host.as_deref().unwrap_or_default());
    lines.add("container.image", image);
    lines.add(
        "container.gpus",
        match gpus {
            ContainerGpus::All => "all".to_owned(),
            ContainerGpus::None => "none".to_owned(),
            ContainerGpus::Count(count) => count.to_string(),
            ContainerGpus::List(list) => format!("{list:?}"),
        },
    );
    lines.add("container.network", network);
    lines.add(
        "container.user",
        match user {
            User::Image => "image",
            User::Me => "me",
            User::Root => "root",
            User::Ids(ids) => ids,
        },
    );
    if *entrypoint == Entrypoint::Image {
        lines.add("container.entrypoint", "image");
    }
    lines.add("container.shm_size", shm_size);
    for Mount { from, to, read_only, create: _ } in mounts {
        lines.list(&format!("container.mounts.{to:?}"), &[from.as_str(), if *read_only { "ro" } else { "rw" }]);
    }
    for (key, value) in env {
        lines.add(&format!("container.env.{key}"), value);
    }
    lines.list("container.args", args);
}

fn host_lines(lines: &mut Lines, host: &JobHost) {
    for (key, value) in &host.env {
        lines.add(&format!("env.{key}"), value);
    }
    lines.add("workdir", host.workdir.as_deref().unwrap_or_default());
    match &host.command {
        Payload::Argv(words) => lines.list("command", words),
        Payload::Shell(text) => lines.add("shell", text),
    }
}

fn launch_lines(lines: &mut Lines, launch: &Launch) {
    let Launch {
        with,
        master_port,
        command: _,
        args,
        setup,
        python,
        visibility,
        max_restarts,
        min_nodes,
        start,
        gate,
        master_timeout,
        ready_when,
        stop_grace,
    } = launch;
    lines.add(
        "launch.with",
        match with {
            Launcher::Torchrun(Rendezvous::Static) => "torchrun static",
            Launcher::Torchrun(Rendezvous::C10d) => "torchrun c10d",
            Launcher::Accelerate => "accelerate",
            Launcher::Deepspeed(Form::Torchrun(Rendezvous::Static)) => "deepspeed static",
            Launcher::Deepspeed(Form::Torchrun(Rendezvous::C10d)) => "deepspeed c10d",
            Launcher::Deepspeed(Form::Hostfile) => "deepspeed hostfile",
            Launcher::Processes => "processes",
            Launcher::Script => "script",
        },
    );
    lines.add("launch.master_port", master_port.map_or_else(|| "auto".to_owned(), |port| port.to_string()));
    lines.list("launch.args", args);
    lines.add("launch.setup", setup.as_deref().unwrap_or_default());
    lines.add("launch.python", python);
    lines.add(
        "launch.gpu_visibility",
        match visibility {
            Visibility::All => "all",
            Visibility::Own => "own",
        },
    );
    lines.add("launch.max_restarts", max_restarts);
    lines.add("launch.min_nodes", min_nodes.map_or_else(String::new, |nodes| nodes.to_string()));
    lines.add(
        "launch.start",
        match start {
            Start::MasterFirst => "master-first",
            Start::Together => "together",
        },
    );
    lines.add(
        "launch.gate",
        match gate {
            Gate::Port => "port",
            Gate::Started => "started",
            Gate::None => "none",
        },
    );
    lines.add("launch.master_timeout", seconds(*master_timeout));
    lines.add("launch.ready_when", ready_when.as_deref().unwrap_or_default());
    lines.add("launch.stop_grace", seconds(*stop_grace));
}
