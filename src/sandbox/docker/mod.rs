//! docker's stand-in: the commands, their messages and exit codes, without a daemon. Its state is in `store`; `supervise` watches
//! a container's main process.
//!
//! Knows nothing of SSH and nothing of how `orchestrate` uses docker.

mod container_lifecycle;
mod container_process;
mod error;
mod flags;
mod format;
mod image;
mod inspect;
mod login;
mod run;
mod store;
mod supervise;
mod tty;

use std::process::ExitCode;

use super::fake_program::{ProgramContext, ProgramOutput};
use error::DockerError;
use inspect::DOCKER_VERSION;
use store::DockerStore;

pub(super) use supervise::supervise_container;

/// Acts as `docker`.
pub(super) fn docker_main(context: &ProgramContext, args: &[String]) -> ExitCode {
    match dispatch(context, args) {
        Ok(code) => code,
        Err(failure) => ProgramOutput::fail(failure.code, failure.message).print(),
    }
}

fn dispatch(context: &ProgramContext, words: &[String]) -> Result<ExitCode, DockerError> {
    let mut words = words;
    let mut config = None;
    // Global flags: which daemon is meant makes no difference here.
    while let Some((word, rest)) = words.split_first() {
        if let Some(folder) = word.strip_prefix("--config=") {
            config = Some(folder);
        } else if word == "--config" {
            config = rest.first().map(String::as_str);
        }
        match word.as_str() {
            "-H" | "--host" | "--config" | "-c" | "--context" | "-l" | "--log-level" => words = rest.get(1..).unwrap_or_default(),
            _ if word.starts_with("--host=") || word.starts_with("--config=") || word.starts_with("--context=") => words = rest,
            "container" | "image" if rest.first().is_some_and(|next| !next.starts_with('-')) => break,
            "--version" | "-v" => return Ok(ProgramOutput::ok(format!("Docker version {DOCKER_VERSION}, build sandbox\n")).print()),
            _ => break,
        }
    }
    let (kind, words) = match words.split_first() {
        Some((kind, rest)) if kind == "container" || kind == "image" => (kind.as_str(), rest),
        _ => ("", words),
    };
    let Some((command, args)) = words.split_first() else { return Ok(ProgramOutput::ok("Usage:  docker [OPTIONS] COMMAND\n").print()) };
    check_faults(context, command, words)?;
    let store = DockerStore::for_host(&context.host);
    let config = login::config_dir(config);
    let parsed = || {
        let flags = flags::flags_of_command(command).parse(args, true);
        flags.map_err(|e| DockerError::new(125, format!("{e}\nSee 'docker {command} --help'.")))
    };
    let output = match (kind, command.as_str()) {
        ("image", "inspect") => image::docker_image_inspect(&store, &parsed()?)?,
        (_, "pull") => image::docker_pull(context, &store, &config, &parsed()?)?,
        (_, "login") => login::docker_login(context, &config, &parsed()?)?,
        (_, "version") => inspect::docker_version(&parsed()?)?,
        (_, "info") => inspect::docker_info(context, &store, &parsed()?)?,
        (_, "run" | "create") => return run::docker_run(context, &store, &config, args, command),
        (_, "start") => container_lifecycle::docker_start(context, &store, &parsed()?)?,
        (_, "exec") => return run::docker_exec(context, &store, args),
        (_, "inspect") => inspect::docker_inspect(&store, &parsed()?)?,
        (_, "ps") => inspect::docker_ps(&store, &parsed()?)?,
        (_, "stop") => container_lifecycle::docker_stop(&store, &parsed()?)?,
        (_, "rm") => container_lifecycle::docker_rm(&store, &parsed()?)?,
        (_, "logs") => return container_lifecycle::docker_logs(&store, &parsed()?),
        _ => return Err(DockerError::new(1, format!("docker: '{command}' is not a docker command.\nSee 'docker --help'"))),
    };
    Ok(output.print())
}

/// What is wrong with docker itself on this host.
fn check_faults(context: &ProgramContext, command: &str, args: &[String]) -> Result<(), DockerError> {
    let faults = context.host.faults();
    // The stand-in stays in its place even so: a script that adds folders to its PATH must not come upon this machine's own docker.
    if faults.docker_missing {
        return Err(DockerError::new(127, "sh: 1: docker: not found"));
    }
    if faults.hang_on.as_ref().is_some_and(|phrase| format!("docker {}", args.join(" ")).contains(phrase.as_str())) {
        loop {
            std::thread::sleep(std::time::Duration::from_secs(3600));
        }
    }
    let socket = "unix:///var/run/docker.sock";
    if faults.docker_down {
        return Err(DockerError::new(1, format!("Cannot connect to the Docker daemon at {socket}. Is the docker daemon running?")));
    }
    if faults.docker_permission_denied && !context.via_sudo {
        let verb = if command == "run" { "docker: " } else { "" };
        let code = if command == "run" { 126 } else { 1 };
        return Err(DockerError::new(
            code,
            format!(
                "{verb}permission denied while trying to connect to the Docker daemon socket at {socket}: Get \
                 \"http://%2Fvar%2Frun%2Fdocker.sock/v1.43/containers/json\": dial unix /var/run/docker.sock: connect: permission denied"
            ),
        ));
    }
    Ok(())
}
