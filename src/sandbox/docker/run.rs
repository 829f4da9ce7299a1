//! `docker run`, `create` and `exec`: from flags to a container, and into one.

use std::collections::BTreeMap;
use std::fs;
use std::path::Path;
use std::process::{ExitCode, Stdio};

use super::super::fake_program::{ProgramContext, ProgramOutput, exit_code, reexec_as, shell_code};
use super::container_process::{container_env, find_program, resolve_workdir};
use super::error::DockerError;
use super::flags::{EXEC_FLAGS, ParsedFlags, RUN_FLAGS};
use super::store::{BindMount, ContainerStatus, DockerContainer, DockerStore, docker_timestamp, new_container_id};
use super::{container_lifecycle, image};

/// Lists that docker remembers and this stand-in does not act upon.
const IGNORED_LIST_FLAGS: &[&str] =
    &["ulimit", "device", "cap-add", "cap-drop", "security-opt", "log-opt", "add-host", "group-add", "tmpfs"];

/// `docker run` and `docker create`.
pub(super) fn docker_run(
    context: &ProgramContext,
    store: &DockerStore,
    config: &std::path::Path,
    args: &[String],
    command: &str,
) -> Result<ExitCode, DockerError> {
    let response = |text: String| DockerError::new(125, format!("docker: {text}.\nSee 'docker run --help'."));
    let flags = RUN_FLAGS.parse(args, false).map_err(|e| DockerError::new(125, format!("{e}\nSee 'docker {command} --help'.")))?;
    let Some(reference) = flags.positional.first() else {
        return Err(DockerError::new(1, format!("\"docker {command}\" requires at least 1 argument.\nSee 'docker {command} --help'.")));
    };
    if let Some(text) = context.host.faults().run_fails {
        return Err(response(format!("Error response from daemon: {text}")));
    }
    image::ensure_image(context, store, config, reference, flags.last_value("pull").unwrap_or("missing"))
        .map_err(|failure| response(failure.message.trim_end_matches('.').to_owned()))?;
    let container = build_container(context, store, &flags).map_err(|text| response(format!("Error response from daemon: {text}")))?;
    let id = container.id.clone();
    store
        .update(|state| {
            if let Some(other) = state.containers.iter().find(|c| c.name == container.name) {
                return Err(DockerError::new(125, name_conflict_message(&container.name, &other.id)));
            }
            state.containers.push(container);
            Ok(())
        })
        .map_err(|failure| response(format!("Error response from daemon: {}", failure.message.trim_end_matches('.'))))?;
    if command == "create" {
        return Ok(ProgramOutput::ok(format!("{id}\n")).print());
    }
    let reads = flags.has("interactive") && !flags.has("detach");
    if let Err(failure) = container_lifecycle::start_container(context, store, &id, if reads { Stdio::inherit() } else { Stdio::null() }) {
        let code = if failure.code == 127 || failure.code == 126 { failure.code } else { 125 };
        return Err(DockerError::new(code, response(failure.message.trim_end_matches('.').to_owned()).message));
    }
    if flags.has("detach") {
        return Ok(ProgramOutput::ok(format!("{id}\n")).print());
    }
    run_in_foreground(store, &id)
}

fn name_conflict_message(name: &str, other: &str) -> String {
    format!(
        "Conflict. The container name \"/{name}\" is already in use by container \"{other}\". You have to remove (or rename) that container to \
         be able to reuse that name."
    )
}

/// Follows a container that was started without `-d` to its end.
fn run_in_foreground(store: &DockerStore, id: &str) -> Result<ExitCode, DockerError> {
    container_lifecycle::follow_logs(store, id)?;
    let code = store.read_state().find_container(id).map_or(0, |c| c.exit_code);
    let auto_remove = store.read_state().find_container(id).is_some_and(|c| c.auto_remove);
    if auto_remove {
        container_lifecycle::delete_container(store, id)?;
    }
    Ok(exit_code(code))
}

fn build_container(context: &ProgramContext, store: &DockerStore, flags: &ParsedFlags) -> Result<DockerContainer, String> {
    let (reference, cmd) = flags.positional.split_first().ok_or("no image")?;
    let spec = store.image_spec(reference);
    let id = new_container_id().map_err(|e| e.to_string())?;
    let entrypoint = flags.last_value("entrypoint");
    let (all_gpus, gpus) = parse_gpus_flag(flags.last_value("gpus"), context.host.settings().gpus)?;
    let mut env = spec.env.clone();
    env.extend(parse_env_flags(flags)?);
    let own_cmd = entrypoint.is_none() && cmd.is_empty();
    let name = flags.last_value("name").map_or_else(|| format!("brave_{}", id.get(..6).unwrap_or_default()), str::to_owned);
    if !name.bytes().enumerate().all(|(at, b)| b.is_ascii_alphanumeric() || (at > 0 && b"_.-".contains(&b))) {
        return Err(format!("Invalid container name ({name}), only [a-zA-Z0-9][a-zA-Z0-9_.-] are allowed"));
    }
    Ok(DockerContainer {
        name,
        image: reference.clone(),
        created: docker_timestamp(),
        labels: parse_labels(&flags.all_values("label")),
        env,
        entrypoint: entrypoint.map_or(spec.entrypoint, |e| if e.is_empty() { Vec::new() } else { vec![e.to_owned()] }),
        cmd: if own_cmd { spec.cmd } else { cmd.to_vec() },
        workdir: flags.last_value("workdir").map_or(spec.workdir, str::to_owned),
        user: flags.last_value("user").map_or(spec.user, str::to_owned),
        mounts: parse_mounts(flags)?,
        network: flags.last_value("network").or(flags.last_value("net")).unwrap_or("bridge").to_owned(),
        gpus,
        all_gpus,
        init: flags.has("init"),
        auto_remove: flags.has("rm"),
        stop_timeout: flags.last_value("stop-timeout").and_then(|t| t.parse().ok()),
        stop_signal: flags.last_value("stop-signal").unwrap_or("SIGTERM").to_owned(),
        shm_size: flags.last_value("shm-size").map_or(Ok(64 << 20), parse_size)?,
        ipc: flags.last_value("ipc").unwrap_or("private").to_owned(),
        restart: flags.last_value("restart").unwrap_or("no").to_owned(),
        privileged: flags.has("privileged"),
        lists: IGNORED_LIST_FLAGS
            .iter()
            .map(|name| ((*name).to_owned(), flags.all_values(name)))
            .filter(|(_, list)| !list.is_empty())
            .collect(),
        log_driver: flags.last_value("log-driver").unwrap_or("json-file").to_owned(),
        started: super::store::ZERO_TIME.to_owned(),
        finished: super::store::ZERO_TIME.to_owned(),
        id,
        ..DockerContainer::default()
    })
}

/// `-e K=V`, `-e K` (the client's own value) and `--env-file`.
fn parse_env_flags(flags: &ParsedFlags) -> Result<Vec<String>, String> {
    let mut variables = Vec::new();
    for file in flags.all_values("env-file") {
        let text = fs::read_to_string(&file).map_err(|_| format!("open {file}: no such file or directory"))?;
        variables.extend(text.lines().filter(|line| !line.is_empty() && !line.starts_with('#')).map(str::to_owned));
    }
    for variable in flags.all_values("env") {
        if variable.contains('=') {
            variables.push(variable);
        } else if let Ok(value) = std::env::var(&variable) {
            variables.push(format!("{variable}={value}"));
        }
    }
    Ok(variables)
}

fn parse_labels(list: &[String]) -> BTreeMap<String, String> {
    list.iter().map(|pair| pair.split_once('=').unwrap_or((pair, ""))).map(|(k, v)| (k.to_owned(), v.to_owned())).collect()
}

/// Which GPUs `--gpus` gives: whether all, and the indexes.
fn parse_gpus_flag(requested: Option<&str>, there: u32) -> Result<(bool, Option<Vec<u32>>), String> {
    let Some(asked) = requested.map(|a| a.trim_matches('"')) else { return Ok((false, None)) };
    let unknown = || format!("invalid argument \"{asked}\" for \"--gpus\" flag");
    if asked == "all" || asked == "count=all" || asked == "count=-1" || asked == "-1" {
        return Ok((true, Some((0..there).collect())));
    }
    if let Some(devices) = asked.strip_prefix("device=") {
        let list = devices.trim_matches('"').split(',').map(str::parse).collect::<Result<Vec<u32>, _>>().map_err(|_| unknown())?;
        if let Some(wrong) = list.iter().find(|index| **index >= there) {
            return Err(format!(
                "failed to create task for container: failed to create shim task: OCI runtime create failed: runc create failed: unable to start \
                 container process: error during container init: nvidia-container-cli: device error: {wrong}: unknown device: unknown"
            ));
        }
        return Ok((false, Some(list)));
    }
    let count: u32 = asked.strip_prefix("count=").unwrap_or(asked).parse().map_err(|_| unknown())?;
    Ok((false, Some((0..count.min(there)).collect())))
}

fn parse_mounts(flags: &ParsedFlags) -> Result<Vec<BindMount>, String> {
    let mut binds = Vec::new();
    for text in flags.all_values("mount") {
        let bind = parse_mount(&text)?;
        if !Path::new(&bind.source).exists() {
            return Err(format!("invalid mount config for type \"bind\": bind source path does not exist: {}", bind.source));
        }
        binds.push(bind);
    }
    for text in flags.all_values("volume") {
        let mut parts = text.split(':');
        let (Some(source), Some(target)) = (parts.next(), parts.next()) else { continue };
        if source.starts_with('/') && !Path::new(source).exists() {
            fs::create_dir_all(source).map_err(|e| format!("error while creating mount source path '{source}': {e}"))?;
        }
        let read_only = parts.next().is_some_and(|options| options.split(',').any(|o| o == "ro"));
        binds.push(BindMount { source: source.to_owned(), target: target.to_owned(), read_only });
    }
    for (index, bind) in binds.iter().enumerate() {
        if binds.iter().take(index).any(|other| other.target == bind.target) {
            return Err(format!("Duplicate mount point: {}", bind.target));
        }
    }
    Ok(binds)
}

/// `type=bind,source=…,target=…[,readonly]`; a field with a comma is in double quotes, as in CSV.
fn parse_mount(text: &str) -> Result<BindMount, String> {
    let mut bind = BindMount::default();
    for field in split_csv(text) {
        let (key, value) = field.split_once('=').unwrap_or((&field, "true"));
        match key {
            "type" if value == "bind" => {}
            "type" => return Err(format!("mount type unknown: \"{value}\"")),
            "source" | "src" => bind.source = value.to_owned(),
            "target" | "dst" | "destination" => bind.target = value.to_owned(),
            "readonly" | "ro" => bind.read_only = value != "false",
            "bind-propagation" | "consistency" => {}
            _ => return Err(format!("invalid argument \"{text}\" for \"--mount\" flag: unexpected key '{key}' in '{field}'")),
        }
    }
    match (bind.source.starts_with('/'), bind.target.starts_with('/')) {
        (true, true) => Ok(bind),
        (false, _) => {
            Err(format!("invalid mount config for type \"bind\": invalid mount path: '{}' mount path must be absolute", bind.source))
        }
        (_, false) => {
            Err(format!("invalid mount config for type \"bind\": invalid mount path: '{}' mount path must be absolute", bind.target))
        }
    }
}

fn split_csv(text: &str) -> Vec<String> {
    let mut fields = vec![String::new()];
    let mut quoted = false;
    let mut chars = text.chars().peekable();
    while let Some(c) = chars.next() {
        match c {
            '"' if quoted && chars.peek() == Some(&'"') => {
                chars.next();
                fields.last_mut().into_iter().for_each(|f| f.push('"'));
            }
            '"' => quoted = !quoted,
            ',' if !quoted => fields.push(String::new()),
            c => fields.last_mut().into_iter().for_each(|f| f.push(c)),
        }
    }
    fields
}

fn parse_size(text: &str) -> Result<u64, String> {
    let lower = text.to_lowercase();
    let digits = lower.trim_end_matches(|c: char| c.is_alphabetic());
    let shift = match lower.get(digits.len()..).unwrap_or_default().trim_end_matches('b').trim_end_matches('i') {
        "" => 0,
        "k" => 10,
        "m" => 20,
        "g" => 30,
        "t" => 40,
        _ => return Err(format!("invalid size: '{text}'")),
    };
    digits.parse::<f64>().map(|number| (number * 2_f64.powi(shift)) as u64).map_err(|_| format!("invalid size: '{text}'"))
}

/// `docker exec`.
pub(super) fn docker_exec(context: &ProgramContext, store: &DockerStore, args: &[String]) -> Result<ExitCode, DockerError> {
    let flags = EXEC_FLAGS.parse(args, false).map_err(|e| DockerError::new(125, format!("{e}\nSee 'docker exec --help'.")))?;
    let [name, program, rest @ ..] = flags.positional.as_slice() else {
        return Err(DockerError::new(1, "\"docker exec\" requires at least 2 arguments.\nSee 'docker exec --help'."));
    };
    let container = store.container(name)?;
    if container.status != ContainerStatus::Running {
        return Err(DockerError::new(1, format!("Error response from daemon: container {} is not running", container.id)));
    }
    let mut variables = container_env(&context.host, store, &container);
    let extra = parse_env_flags(&flags).map_err(|e| DockerError::new(125, e))?;
    variables.extend(extra.iter().filter_map(|pair| pair.split_once('=')).map(|(k, v)| (k.to_owned(), v.to_owned())));
    let found = match find_program(store, &container, &variables, program) {
        Ok(found) => found,
        Err(_) if flags.has("detach") => return Ok(ExitCode::SUCCESS),
        Err(failure) => return Err(DockerError::new(failure.code, format!("OCI runtime exec failed: exec failed: {}", failure.message))),
    };
    let tty = flags.has("tty") && !flags.has("detach");
    if tty && flags.has("interactive") && !rustix::termios::isatty(std::io::stdin()) {
        return Err(DockerError::new(1, "the input device is not a TTY"));
    }
    let mut command = reexec_as("sandbox-shim")?;
    command.arg("setsid").args(tty.then_some("-c")).arg(found).args(rest).env_clear();
    if tty {
        command.env("TERM", "xterm");
    }
    command.envs(variables).current_dir(resolve_workdir(store, &container, flags.last_value("workdir"))?);
    if tty {
        return super::tty::run_with_tty(command, flags.has("interactive"));
    }
    if flags.has("detach") {
        if container.gpus.is_some() {
            fs::write(store.gpu_record_path(&container.id), "")?;
        }
        command.stdin(Stdio::null()).stdout(Stdio::null()).stderr(Stdio::null()).spawn()?;
        return Ok(ExitCode::SUCCESS);
    }
    if !flags.has("interactive") {
        command.stdin(Stdio::null());
    }
    Ok(exit_code(shell_code(command.status()?)))
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn mounts_parse_like_docker() {
        let bind = parse_mount("type=bind,source=/a b,target=/c,readonly").expect("a bind");
        assert_eq!((bind.source.as_str(), bind.target.as_str(), bind.read_only), ("/a b", "/c", true));
        let bind = parse_mount("type=bind,\"source=/a,b\",target=/c").expect("a quoted field");
        assert_eq!(bind.source, "/a,b");
        assert!(parse_mount("type=bind,source=a,target=/c").expect_err("relative").contains("must be absolute"));
        assert!(parse_mount("type=bind,sauce=/a,target=/c").expect_err("unknown").contains("unexpected key 'sauce'"));
    }

    #[test]
    fn gpus_flag_selects_indexes() {
        assert_eq!(parse_gpus_flag(Some("all"), 4), Ok((true, Some(vec![0, 1, 2, 3]))));
        assert_eq!(parse_gpus_flag(Some("\"device=1,3\""), 4), Ok((false, Some(vec![1, 3]))));
        assert_eq!(parse_gpus_flag(Some("2"), 4), Ok((false, Some(vec![0, 1]))));
        assert_eq!(parse_gpus_flag(None, 4), Ok((false, None)));
        assert!(parse_gpus_flag(Some("device=9"), 4).expect_err("no such device").contains("unknown device"));
    }

    #[test]
    fn sizes_parse_with_units() {
        assert_eq!(parse_size("64m"), Ok(64 << 20));
        assert_eq!(parse_size("32g"), Ok(32 << 30));
        assert_eq!((parse_size("1024"), parse_size("1.5t")), (Ok(1024), Ok(3 << 39)));
        assert!(parse_size("3x").is_err());
    }
}
