//! The end of a node's task: how the ranks' start is run in each kind of container.

use super::inputs::{ScriptInputs, host_path, quote_host_path, without_first_line};
use super::step_tasks;
use crate::inventory::{ContainerGpus, ContainerSettings, ContainerUser, PullPolicy, SlurmContainer};
use crate::plan::action::container::StartContainer;
use crate::plan::action::memlock;
use crate::text::shell_quote::quote;
use crate::text::shell_template::{self, variable};

/// The whole text of the task.
pub(super) fn task_text(inputs: &ScriptInputs<'_>) -> String {
    let common = common_text(inputs);
    let tail = match inputs.container() {
        SlurmContainer::None => "\ncd || fail 'no home directory'\nwith_secrets /bin/sh \"$ORCH_RUN_DIR/start\"\n".to_owned(),
        // This shell is in the container already.
        SlurmContainer::Pyxis => "\nwith_secrets /bin/sh \"$ORCH_RUN_DIR/start\"\n".to_owned(),
        SlurmContainer::Apptainer => apptainer_text(inputs),
        SlurmContainer::Docker => inputs.container_settings().map_or_else(String::new, |spec| docker_task_text(inputs, spec)),
    };
    format!("{common}{tail}")
}

/// What every task of a node begins with.
fn common_text(inputs: &ScriptInputs<'_>) -> String {
    format!("{}{}", include_str!("../../../assets/slurm/task.sh"), step_tasks::collect_text(inputs))
}

/// The further files of the nodes that tasks of `prepare`, and containers, make necessary.
pub(super) fn container_files(inputs: &ScriptInputs<'_>) -> Vec<(String, String)> {
    let file = |name: &str, text: String| (name.to_owned(), text);
    let (common, has_steps) = (common_text(inputs), step_tasks::has_steps(inputs));
    match (inputs.container(), inputs.container_settings()) {
        (SlurmContainer::Docker, Some(spec)) => {
            let mut files = vec![file("remove", remove_text(spec))];
            if has_steps {
                let step = step_tasks::step_tail("docker exec -i \"$container\" ");
                files.push(file("step", format!("{common}\n{}container=orch-$ORCH_NAME-$host-$SLURM_JOB_ID\n{step}", engine_text(spec))));
                files.push(file("hold", format!("{common}{}", docker_text(inputs, spec))));
                files.push(file("idle", include_str!("../../../assets/slurm/idle.sh").to_owned()));
            }
            files
        }
        (SlurmContainer::Pyxis, _) if has_steps => vec![
            file("remove", include_str!("../../../assets/slurm/remove-pyxis.sh").to_owned()),
            file("step", format!("{common}{}", step_tasks::step_tail(""))),
        ],
        _ => Vec::new(),
    }
}

/// The ranks in a container of their own, or in the one in which tasks have run.
fn docker_task_text(inputs: &ScriptInputs<'_>, spec: &ContainerSettings) -> String {
    if !step_tasks::has_steps(inputs) {
        return docker_text(inputs, spec);
    }
    let body = without_first_line(include_str!("../../../assets/slurm/exec.sh"));
    let grace = inputs.slurm.job.launch.stop_grace.as_secs();
    format!("\n{}stop_grace={grace}\n{body}\nwith_secrets in_container /bin/sh \"$ORCH_RUN_DIR/start\"\n", engine_text(spec))
}

/// Lines of `look` that make the directories of mounts with `create`.
pub(super) fn mount_sources_text(inputs: &ScriptInputs<'_>) -> String {
    let spec = inputs.container_settings();
    let sources = spec.map(|spec| spec.mounts.as_slice()).unwrap_or_default().iter().filter(|mount| mount.create_source);
    let line = |path: String| format!("mkdir -p {path} || fail 'cannot make the source of a mount'\n");
    sources.map(|mount| line(quote_host_path(&mount.source))).collect()
}

/// The image as enroot names it: a file as it is, `#` between registry and name.
pub(super) fn pyxis_image(inputs: &ScriptInputs<'_>) -> String {
    let image = match (&inputs.slurm.settings.image, inputs.container_settings()) {
        (Some(image), _) => return image.clone(),
        (None, spec) => spec.map_or_else(String::new, |spec| spec.image.clone()),
    };
    match image.split_once('/') {
        Some((first, rest)) if first.contains(['.', ':']) || first == "localhost" => format!("{first}#{rest}"),
        _ => image,
    }
}

fn apptainer_text(inputs: &ScriptInputs<'_>) -> String {
    let spec = inputs.container_settings();
    let image = match (&inputs.slurm.settings.image, spec) {
        (Some(image), _) => image.clone(),
        (None, spec) => spec.map_or_else(String::new, |spec| format!("docker://{}", spec.image)),
    };
    let mut words = Vec::new();
    if inputs.slurm.settings.gpus_per_node > 0 {
        words.push("--nv".to_owned());
    }
    words.extend(["--writable-tmpfs".to_owned(), "--bind=\0ORCH_ROOT\0/\0ORCH_NAME\0".to_owned()]);
    for mount in spec.map(|spec| spec.mounts.as_slice()).unwrap_or_default() {
        let end = if mount.read_only { ":ro" } else { "" };
        words.push(format!("--bind={}:{}{end}", host_path(&mount.source), mount.target));
    }
    let flags: String = words.iter().map(|word| format!("  {} \\\n", shell_template::quote(word))).collect();
    format!(
        "{}\nwith_secrets \"$apptainer\" exec \\\n{flags}  {} /bin/sh \"$ORCH_RUN_DIR/start\"\n",
        APPTAINER_SH,
        shell_template::quote(&image)
    )
}

/// The container gets its own PATH, which `env` of the inventory may set inside.
const APPTAINER_SH: &str = "
apptainer=$(command -v apptainer || command -v singularity) || fail 'neither apptainer nor singularity is installed'
# The job's GPUs, also where a site's configuration cleans the environment.
if [ -n \"${CUDA_VISIBLE_DEVICES:-}\" ]; then
  APPTAINERENV_CUDA_VISIBLE_DEVICES=$CUDA_VISIBLE_DEVICES SINGULARITYENV_CUDA_VISIBLE_DEVICES=$CUDA_VISIBLE_DEVICES
  export APPTAINERENV_CUDA_VISIBLE_DEVICES SINGULARITYENV_CUDA_VISIBLE_DEVICES
fi
";

/// The step that removes a container which the ranks' step left, from the same engine.
fn remove_text(spec: &ContainerSettings) -> String {
    let body = include_str!("../../../assets/slurm/remove.sh");
    let (head, rest) = body.split_once("dir=").unwrap_or(("", body));
    format!("{head}{}dir={rest}", engine_text(spec))
}

/// docker with another engine than its own default.
fn engine_text(spec: &ContainerSettings) -> String {
    spec.engine_host.as_ref().map_or_else(String::new, |host| format!("docker() {{ command docker -H {} \"$@\"; }}\n", quote(host)))
}

fn docker_text(inputs: &ScriptInputs<'_>, spec: &ContainerSettings) -> String {
    let mut text = format!("\n{}", engine_text(spec));
    let body = include_str!("../../../assets/slurm/docker.sh");
    text.push_str(body.split_once('\n').map_or(body, |(_, rest)| rest));
    let image = quote(&spec.image);
    let inspect = format!("docker image inspect {image} >/dev/null 2>&1");
    text.push('\n');
    text.push_str(&match spec.pull {
        PullPolicy::Missing => format!("{inspect} || docker pull -q {image} || fail 'cannot pull the image'\n"),
        PullPolicy::Always => format!("docker pull -q {image} || fail 'cannot pull the image'\n"),
        PullPolicy::Never => format!("{inspect} || fail 'the image is missing, and container.pull is never'\n"),
    });
    let takes_gpus = inputs.slurm.settings.gpus_per_node > 0 && spec.gpus != ContainerGpus::None;
    if takes_gpus {
        text.push_str("job_gpus\n");
    }
    text.push_str("ib=''\nif [ -d /dev/infiniband ]; then ib=--device=/dev/infiniband; fi\n");
    // Rootless docker, and one without CAP_SYS_RESOURCE, starts no container that may lock memory without a limit.
    let unlimited = memlock::UNLIMITED_FLAG;
    text.push_str(&format!(
        "lock={unlimited}\ncase $(docker run --rm --network=none \"$lock\" --entrypoint=/bin/sh {image} -c : </dev/null 2>&1) in *rlimit*) lock='' ;; esac\n"
    ));
    if spec.user == ContainerUser::SshUser {
        text.push_str("ids=$(id -u):$(id -g)\n");
    }
    let (start, main) = if step_tasks::has_steps(inputs) {
        text.push_str(&without_first_line(include_str!("../../../assets/slurm/hold.sh")));
        ("with_secrets hold_container docker run -d --rm", "idle")
    } else {
        text.push_str(&without_first_line(include_str!("../../../assets/slurm/run.sh")));
        ("with_secrets run_container docker run -i --rm --sig-proxy=false", "start")
    };
    text.push_str(&format!("\n{start} \\\n"));
    text.push_str("  ${ib:+\"$ib\"} ${lock:+\"$lock\"} ${cgroup_flag:+\"$cgroup_flag\"} \\\n");
    for flag in docker_flags(inputs, spec, takes_gpus) {
        text.push_str(&format!("  {} \\\n", shell_template::quote(&flag)));
    }
    text.push_str(&format!("  --entrypoint=/bin/sh {image} \"$ORCH_RUN_DIR/{main}\"\n"));
    text
}

/// The flags of a bare host's container, with this job's names and labels.
fn docker_flags(inputs: &ScriptInputs<'_>, spec: &ContainerSettings, takes_gpus: bool) -> Vec<String> {
    let start = StartContainer {
        context: inputs.context.clone(),
        owner: variable("owner"),
        stop_grace: inputs.slurm.job.launch.stop_grace.as_secs(),
        // The flag's value is CSV: a list needs quotes of its own.
        gpus_flag: takes_gpus.then(|| format!("\"device={}\"", variable("gpus"))),
        user_ids: variable("ids"),
        home: variable("HOME"),
        ..StartContainer::default()
    };
    let other = ["--name=", "--restart=", "--label=orchestrate.container_hash=", "--env=", "--log-"];
    let mut flags =
        vec![format!("--name={}", variable("container")), format!("--label=orchestrate.slurm_job={}", variable("SLURM_JOB_ID"))];
    flags.extend(start.docker_flags(spec).into_iter().filter(|flag| !other.iter().any(|name| flag.starts_with(name))));
    flags.extend(spec.docker_args.iter().cloned());
    flags
}
