//! The text that decides whether two launches are equal, before anything that differs from run to run is filled in.

use std::fmt::Write as _;
use std::time::Duration;

use super::{
    ContainerGpus, ContainerSettings, ContainerUser, DeepspeedLauncher, EntrypointMode, FileSource, FileTask, FingerprintText,
    GpuSelection, GpuVisibility, Inventory, Job, JobHost, LaunchCommand, LaunchSettings, Launcher, Mount, PrepareTask, PullPolicy,
    Rendezvous, StartGate, StartOrder, TaskCommand,
};

impl Inventory {
    /// What decides "equal" for one host. `run.id`, `run.stamp` and values that only the hosts know are placeholders in it.
    pub fn fingerprint_text(&self, host: usize) -> FingerprintText {
        let all = self.merged.evaluated.fingerprints.get_or_init(|| match self.draft() {
            Ok(job) => (0..self.hosts.len()).filter_map(|host| self.build_fingerprint(job, host)).collect(),
            Err(_) => Vec::new(),
        });
        all.get(host).cloned().unwrap_or_default()
    }

    fn build_tasks_text(job: &Job, host: usize) -> String {
        let mut lines = FingerprintLines::default();
        for task in &job.tasks {
            let PrepareTask {
                number,
                in_container,
                uses_sudo,
                register,
                hosts,
                files,
                // How it is named, selected, tried and counted is not part of what it does.
                name: _,
                tags: _,
                timeout: _,
                retries: _,
                delay: _,
                shares_value: _,
                changed_pattern: _,
            } = task;
            let Some(TaskCommand { script, chdir, env, creates, unless }) = hosts.get(host).and_then(Option::as_ref) else { continue };
            let key = |key: &str| format!("prepare[{number}].{key}");
            if let Some(files) = files {
                push_files(&mut lines, *number, files, host);
                continue;
            }
            lines.push(&key("run"), script);
            if !in_container && job.hosts.get(host).is_some_and(|own| own.container.is_some()) {
                lines.push(&key("in"), "host");
            }
            if *uses_sudo {
                lines.push(&key("become"), "sudo");
            }
            for (name, value) in [("chdir", chdir), ("creates", creates), ("unless", unless), ("register", register)] {
                if let Some(value) = value {
                    lines.push(&key(name), value);
                }
            }
            for (name, value) in env {
                lines.push(&key(&format!("env.{name}")), value);
            }
        }
        lines.text
    }

    fn build_fingerprint(&self, job: &Job, host: usize) -> Option<FingerprintText> {
        let (own, member) = (job.hosts.get(host)?, self.hosts.get(host)?);
        let mut container = FingerprintLines::default();
        if let Some(block) = &own.container {
            push_container(&mut container, block);
            container.push("run_dir", &self.run_dir);
            container.push("gpus", gpu_selection_text(&member.gpus));
            container.push("stop_grace", format_millis(job.launch.stop_grace));
        }
        let mut launch = FingerprintLines::default();
        let names: Vec<&str> = self.hosts.iter().map(|host| host.name.as_str()).collect();
        launch.push_list("hosts", &names);
        launch.push("rank", host);
        launch.push("gpus", gpu_selection_text(&member.gpus));
        launch.push("fabric_address", member.fabric_address.as_deref().unwrap_or_default());
        launch.push("nproc_per_node", own.nproc.map_or_else(String::new, |nproc| nproc.to_string()));
        push_host(&mut launch, own);
        launch.push_list("secrets", &job.secret_names);
        push_launch(&mut launch, &job.launch);
        Some(FingerprintText { container: container.text, launch: launch.text, tasks: Self::build_tasks_text(job, host) })
    }
}

#[derive(Default)]
struct FingerprintLines {
    text: String,
}

impl FingerprintLines {
    fn push(&mut self, key: &str, value: impl ToString) {
        // Writing into a text cannot fail.
        let written = writeln!(self.text, "{key} {:?}", value.to_string());
        debug_assert!(written.is_ok());
    }

    fn push_list<S: AsRef<str>>(&mut self, key: &str, values: &[S]) {
        let values: Vec<&str> = values.iter().map(AsRef::as_ref).collect();
        let written = writeln!(self.text, "{key} {values:?}");
        debug_assert!(written.is_ok());
    }
}

fn format_millis(duration: Duration) -> String {
    format!("{}ms", duration.as_millis())
}

fn gpu_selection_text(gpus: &GpuSelection) -> String {
    match gpus {
        GpuSelection::Any => "any".to_owned(),
        GpuSelection::Count(count) => count.to_string(),
        GpuSelection::List(list) => format!("{list:?}"),
    }
}

fn push_files(lines: &mut FingerprintLines, number: u32, files: &FileTask, host: usize) {
    let kind = if matches!(files.source, FileSource::Directory { .. }) { "sync" } else { "copy" };
    let key = |key: &str| format!("prepare[{number}].{kind}.{key}");
    lines.push(&key("from"), &files.from);
    lines.push(&key("to"), files.target(host).unwrap_or_default());
    if let FileSource::Directory { exclude, delete } = &files.source {
        lines.push_list(&key("exclude"), exclude);
        if *delete {
            lines.push(&key("delete"), delete);
        }
    }
    if let Some(mode) = files.mode {
        lines.push(&key("mode"), format!("{mode:04o}"));
    }
    if files.in_container {
        lines.push(&key("in"), "container");
    }
}

fn push_container(lines: &mut FingerprintLines, block: &ContainerSettings) {
    // `pull` says when to look for the image, not what it is; `create` of a mount is about the host's side.
    // `registry` is left out too: it says where the image comes from.
    let ContainerSettings {
        engine_host,
        image,
        pull,
        gpus,
        network,
        user,
        entrypoint,
        registry: _,
        shm_size,
        mounts,
        env,
        docker_args: args,
    } = block;
    match pull {
        PullPolicy::Missing | PullPolicy::Always | PullPolicy::Never => {}
    }
    lines.push("container.host", engine_host.as_deref().unwrap_or_default());
    lines.push("container.image", image);
    lines.push(
        "container.gpus",
        match gpus {
            ContainerGpus::All => "all".to_owned(),
            ContainerGpus::None => "none".to_owned(),
            ContainerGpus::Count(count) => count.to_string(),
            ContainerGpus::List(list) => format!("{list:?}"),
        },
    );
    lines.push("container.network", network);
    lines.push(
        "container.user",
        match user {
            ContainerUser::Image => "image",
            ContainerUser::SshUser => "me",
            ContainerUser::Root => "root",
            ContainerUser::Ids(ids) => ids,
        },
    );
    if *entrypoint == EntrypointMode::Image {
        lines.push("container.entrypoint", "image");
    }
    lines.push("container.shm_size", shm_size);
    for Mount { source: from, target: to, read_only, create_source: _ } in mounts {
        lines.push_list(&format!("container.mounts.{to:?}"), &[from.as_str(), if *read_only { "ro" } else { "rw" }]);
    }
    for (key, value) in env {
        lines.push(&format!("container.env.{key}"), value);
    }
    lines.push_list("container.args", args);
}

fn push_host(lines: &mut FingerprintLines, host: &JobHost) {
    for (key, value) in &host.env {
        lines.push(&format!("env.{key}"), value);
    }
    lines.push("workdir", host.workdir.as_deref().unwrap_or_default());
    match &host.command {
        LaunchCommand::Argv(words) => lines.push_list("command", words),
        LaunchCommand::Shell(text) => lines.push("shell", text),
    }
}

fn launcher_text(launcher: &Launcher) -> &'static str {
    match launcher {
        Launcher::Torchrun(Rendezvous::Static) => "torchrun static",
        Launcher::Torchrun(Rendezvous::C10d) => "torchrun c10d",
        Launcher::Accelerate => "accelerate",
        Launcher::Deepspeed(DeepspeedLauncher::Torchrun(Rendezvous::Static)) => "deepspeed static",
        Launcher::Deepspeed(DeepspeedLauncher::Torchrun(Rendezvous::C10d)) => "deepspeed c10d",
        Launcher::Deepspeed(DeepspeedLauncher::Hostfile) => "deepspeed hostfile",
        Launcher::Processes => "processes",
        Launcher::Script => "script",
    }
}

/// How the inventory writes a choice.
fn word_of<T: PartialEq>(words: &[(&'static str, T)], value: &T) -> &'static str {
    words.iter().find(|(_, known)| known == value).map_or("", |(word, _)| word)
}

fn push_launch(lines: &mut FingerprintLines, launch: &LaunchSettings) {
    let LaunchSettings {
        launcher: with,
        master_port,
        launcher_args: args,
        setup,
        python,
        gpu_visibility: visibility,
        max_restarts,
        min_nodes,
        start,
        gate,
        master_timeout,
        ready_pattern: ready_when,
        stop_grace,
    } = launch;
    lines.push("launch.with", launcher_text(with));
    lines.push("launch.master_port", master_port.map_or_else(|| "auto".to_owned(), |port| port.to_string()));
    lines.push_list("launch.args", args);
    lines.push("launch.setup", setup.as_deref().unwrap_or_default());
    lines.push("launch.python", python);
    lines.push("launch.gpu_visibility", word_of(&GpuVisibility::WORDS, visibility));
    lines.push("launch.max_restarts", max_restarts);
    lines.push("launch.min_nodes", min_nodes.map_or_else(String::new, |nodes| nodes.to_string()));
    lines.push("launch.start", word_of(&StartOrder::WORDS, start));
    lines.push("launch.gate", word_of(&StartGate::WORDS, gate));
    lines.push("launch.master_timeout", format_millis(*master_timeout));
    lines.push("launch.ready_when", ready_when.as_deref().unwrap_or_default());
    lines.push("launch.stop_grace", format_millis(*stop_grace));
}
