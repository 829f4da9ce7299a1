//! What docker says about its containers and itself: `inspect`, `ps`, `version`, `info`.

use serde_json::{Map, Value, json};

use super::super::fake_program::{ProgramContext, ProgramOutput};
use super::error::DockerError;
use super::flags::ParsedFlags;
use super::format::{format_object, format_values, list_or_null, parse_template, render_template};
use super::image;
use super::store::{ContainerStatus, DockerContainer, DockerStore, image_id};

/// The version it claims to be.
pub(super) const DOCKER_VERSION: &str = "24.0.7";

/// A container as `docker inspect` shows it.
fn container_json(container: &DockerContainer) -> Value {
    let words: Vec<&String> = container.entrypoint.iter().chain(&container.cmd).collect();
    let list = |name: &str| container.lists.get(name).map_or(Value::Null, |list| json!(list));
    let running = container.status == ContainerStatus::Running;
    let mounts: Vec<Value> = container
        .mounts
        .iter()
        .map(|m| json!({"Type": "bind", "Source": m.source, "Destination": m.target, "Mode": "", "RW": !m.read_only, "Propagation": "rprivate"}))
        .collect();
    let binds: Vec<Value> =
        container.mounts.iter().map(|m| json!({"Type": "bind", "Source": m.source, "Target": m.target, "ReadOnly": m.read_only})).collect();
    json!({
        "Id": container.id, "Created": container.created, "Name": format!("/{}", container.name), "Image": image_id(&container.image),
        "Path": words.first(), "Args": words.get(1..).unwrap_or_default(), "RestartCount": 0, "Driver": "overlay2", "Platform": "linux",
        "LogPath": "", "Mounts": mounts,
        "State": {
            "Status": container.status.as_str(), "Running": running, "Paused": false, "Restarting": false, "OOMKilled": container.oom_killed,
            "Dead": false, "Pid": container.pid, "ExitCode": container.exit_code, "Error": container.error,
            "StartedAt": container.started, "FinishedAt": container.finished,
        },
        "Config": {
            "Hostname": container.short_id(), "User": container.user, "Env": container.env, "Cmd": list_or_null(&container.cmd),
            "Image": container.image, "WorkingDir": container.workdir, "Entrypoint": list_or_null(&container.entrypoint),
            "Labels": container.labels, "StopSignal": container.stop_signal, "StopTimeout": container.stop_timeout,
        },
        "HostConfig": {
            "Binds": Value::Null, "Mounts": binds, "NetworkMode": container.network, "ShmSize": container.shm_size, "Init": container.init,
            "IpcMode": container.ipc, "Privileged": container.privileged, "AutoRemove": container.auto_remove,
            "RestartPolicy": {"Name": container.restart, "MaximumRetryCount": 0},
            "LogConfig": {"Type": container.log_driver, "Config": log_options_json(container)},
            "DeviceRequests": device_requests_json(container), "CapAdd": list("cap-add"), "CapDrop": list("cap-drop"), "SecurityOpt": list("security-opt"),
            "Ulimits": list("ulimit"), "Devices": list("device"),
        },
        "NetworkSettings": {"Networks": {(container.network.as_str()): {}}},
    })
}

fn log_options_json(container: &DockerContainer) -> Map<String, Value> {
    let list = container.lists.get("log-opt").into_iter().flatten();
    list.map(|pair| pair.split_once('=').unwrap_or((pair, ""))).map(|(k, v)| (k.to_owned(), v.into())).collect()
}

fn device_requests_json(container: &DockerContainer) -> Value {
    match (&container.gpus, container.all_gpus) {
        (None, _) => Value::Null,
        (Some(_), true) => json!([{"Driver": "", "Count": -1, "DeviceIDs": Value::Null, "Capabilities": [["gpu"]], "Options": {}}]),
        (Some(list), false) => {
            let ids: Vec<String> = list.iter().map(u32::to_string).collect();
            json!([{"Driver": "", "Count": 0, "DeviceIDs": ids, "Capabilities": [["gpu"]], "Options": {}}])
        }
    }
}

/// `docker inspect` and `docker container inspect`.
pub(super) fn docker_inspect(store: &DockerStore, flags: &ParsedFlags) -> Result<ProgramOutput, DockerError> {
    let state = store.read_state();
    let kind = flags.last_value("type").unwrap_or_default();
    let mut values = Vec::new();
    let mut missing = Vec::new();
    for word in &flags.positional {
        let container = state.find_container(word).filter(|_| kind != "image").map(container_json);
        match container.or_else(|| image::inspect_image(store, word).filter(|_| kind != "container")) {
            Some(value) => values.push(value),
            None => missing.push(word),
        }
    }
    // Docker prints an empty line where a template found nothing to fill.
    let mut answer = format_values(&values, flags.last_value("format"))?;
    if values.is_empty() && flags.last_value("format").is_some() {
        answer.stdout.push('\n');
    }
    for word in missing {
        let what = match kind {
            "container" => "Error response from daemon: No such container",
            "image" => "Error response from daemon: No such image",
            _ => "Error: No such object",
        };
        answer.stderr.push_str(&format!("{what}: {word}\n"));
        answer.code = 1;
    }
    Ok(answer)
}

/// Whether a container passes the `--filter`s: several of one kind are alternatives, except labels, which must all be there.
fn matches_filters(container: &DockerContainer, filters: &[String]) -> Result<bool, DockerError> {
    let mut kinds: Vec<(&str, bool)> = Vec::new();
    for filter in filters {
        let (key, value) = filter.split_once('=').ok_or_else(|| {
            DockerError::new(
                1,
                format!("invalid argument \"{filter}\" for \"-f, --filter\" flag: bad format of filter (expected name=value)"),
            )
        })?;
        let fits = match key {
            "label" => match value.split_once('=') {
                Some((name, wanted)) => container.labels.get(name).is_some_and(|v| v == wanted),
                None => container.labels.contains_key(value),
            },
            "name" => regex::Regex::new(value).is_ok_and(|r| r.is_match(&container.name) || r.is_match(&format!("/{}", container.name))),
            _ => return Err(DockerError::new(1, format!("Error response from daemon: invalid filter '{key}'"))),
        };
        match kinds.iter_mut().find(|(k, _)| *k == key) {
            Some((_, all)) if key == "label" => *all = *all && fits,
            Some((_, any)) => *any = *any || fits,
            None => kinds.push((key, fits)),
        }
    }
    Ok(kinds.iter().all(|(_, fits)| *fits))
}

/// A container as `docker ps --format` knows it.
fn ps_row(container: &DockerContainer, full: bool) -> Value {
    let words: Vec<&str> = container.entrypoint.iter().chain(&container.cmd).map(String::as_str).collect();
    let status = match container.status {
        ContainerStatus::Created => "Created".to_owned(),
        ContainerStatus::Running => "Up Less than a second".to_owned(),
        ContainerStatus::Exited => format!("Exited ({}) 1 second ago", container.exit_code),
    };
    let labels = container.labels.iter().map(|(k, v)| format!("{k}={v}")).collect::<Vec<_>>().join(",");
    json!({
        "ID": if full { container.id.as_str() } else { container.short_id() }, "Names": container.name, "Image": container.image,
        "Command": format!("\"{}\"", words.join(" ")), "State": container.status.as_str(), "Status": status, "Labels": labels,
        "CreatedAt": container.created, "RunningFor": "1 second ago", "Ports": "", "Size": "0B", "LocalVolumes": "0",
        "Networks": container.network, "Mounts": container.mounts.iter().map(|m| m.source.as_str()).collect::<Vec<_>>().join(","),
        "Label()": container.labels,
    })
}

/// `docker ps`.
pub(super) fn docker_ps(store: &DockerStore, flags: &ParsedFlags) -> Result<ProgramOutput, DockerError> {
    let filters = flags.all_values("filter");
    let state = store.read_state();
    let (head, text) = match flags.last_value("format").unwrap_or_default() {
        "json" => ("", "{{json .}}"),
        _ if flags.has("quiet") => ("", "{{.ID}}"),
        "" => ("CONTAINER ID\tIMAGE\tCOMMAND\tSTATUS\tNAMES\n", "{{.ID}}\t{{.Image}}\t{{.Command}}\t{{.Status}}\t{{.Names}}"),
        text => ("", text),
    };
    let template = parse_template(text)?;
    let mut out = head.to_owned();
    for container in state.containers.iter().rev().filter(|c| flags.has("all") || c.status == ContainerStatus::Running) {
        if matches_filters(container, &filters)? {
            out.push_str(&render_template(&template, &ps_row(container, flags.has("no-trunc")))?);
            out.push('\n');
        }
    }
    Ok(ProgramOutput::ok(out))
}

/// `docker version`.
pub(super) fn docker_version(flags: &ParsedFlags) -> Result<ProgramOutput, DockerError> {
    let side = json!({"Version": DOCKER_VERSION, "ApiVersion": "1.43", "MinAPIVersion": "1.12", "Os": "linux", "Arch": "amd64", "GoVersion": "go1.20.10"});
    let value = json!({"Client": side, "Server": side});
    let plain = format!("Client:\n Version:           {DOCKER_VERSION}\n\nServer:\n Engine:\n  Version:          {DOCKER_VERSION}\n");
    format_object(&value, flags.last_value("format"), plain)
}

/// `docker info`.
pub(super) fn docker_info(context: &ProgramContext, store: &DockerStore, flags: &ParsedFlags) -> Result<ProgramOutput, DockerError> {
    let state = store.read_state();
    let running = state.containers.iter().filter(|c| c.status == ContainerStatus::Running).count();
    let mut runtimes = json!({"runc": {"path": "runc"}, "io.containerd.runc.v2": {"path": "runc"}});
    if !context.host.faults().no_gpu_runtime
        && context.host.settings().gpus > 0
        && let Some(map) = runtimes.as_object_mut()
    {
        map.insert("nvidia".to_owned(), json!({"path": "nvidia-container-runtime"}));
    }
    let value = json!({
        "ServerVersion": DOCKER_VERSION, "Containers": state.containers.len(), "ContainersRunning": running, "Images": state.images.len(),
        "Driver": "overlay2", "CgroupDriver": "cgroupfs", "CgroupVersion": "2", "DefaultRuntime": "runc", "Runtimes": runtimes,
        "DockerRootDir": context.host.root().join("docker"), "Name": context.host.settings().name, "OSType": "linux", "Architecture": "x86_64",
        "SecurityOptions": ["name=seccomp,profile=builtin"], "ServerErrors": Value::Null, "OperatingSystem": "Sandbox",
    });
    let count = state.containers.len();
    let plain = format!("Server:\n Containers: {count}\n Server Version: {DOCKER_VERSION}\n Storage Driver: overlay2\n");
    format_object(&value, flags.last_value("format"), plain)
}
