//! What docker's shim does: starts a container's main process, waits for it, ends what is left of the container and writes down how it went.

use std::fs::File;
use std::io::Write as _;
use std::os::unix::process::ExitStatusExt;
use std::process::{Child, Command, ExitCode, ExitStatus, Stdio};
use std::time::{Duration, Instant};

use super::super::fake_program::{ProgramContext, ProgramOutput, reexec_as, shell_code};
use super::super::processes;
use super::container_lifecycle::delete_container;
use super::container_process::{container_env, find_program, resolve_workdir};
use super::error::DockerError;
use super::store::{ContainerStatus, DockerContainer, DockerStore, docker_timestamp};

const POLL_INTERVAL: Duration = Duration::from_millis(20);
/// How long the rest of a container may take to die of KILL.
const KILL_TIMEOUT: Duration = Duration::from_secs(10);

/// `sandbox-shim container ID`: says `ok` once the main process lives, then lives as long as the container.
pub(in super::super) fn supervise_container(context: &ProgramContext, args: &[String]) -> ExitCode {
    let Some(id) = args.first() else { return ProgramOutput::fail(125, "sandbox-shim: which container?").print() };
    // The parent process may lead a group that gets signals: from here on this process is in a session of its own.
    if let Err(error) = rustix::process::setsid() {
        tracing::debug!(%error, "setsid");
    }
    let store = DockerStore::for_host(&context.host);
    match spawn_main_process(context, &store, id) {
        Ok((child, container)) => watch_container(context, &store, child, &container),
        Err(failure) => ProgramOutput::ok(failure.message).print(),
    }
}

fn spawn_main_process(context: &ProgramContext, store: &DockerStore, id: &str) -> Result<(Child, DockerContainer), DockerError> {
    let container = store.container(id)?;
    let folder = store.container_dir(id);
    let variables = container_env(&context.host, store, &container);
    let mut words = container.entrypoint.iter().chain(&container.cmd);
    let program = find_program(store, &container, &variables, words.next().map_or("", String::as_str))?;
    let mut command: Command = reexec_as("sandbox-shim")?;
    command.arg("setsid").arg(program).args(words).env_clear().envs(variables).current_dir(resolve_workdir(store, &container, None)?);
    let log = |name: &str| File::options().create(true).append(true).open(folder.join(name));
    // Our own input is the client's, where `docker run -i` gives one, and /dev/null else.
    command.stdin(Stdio::inherit()).stdout(log("out")?).stderr(log("err")?);
    let child = command.spawn()?;
    let pid = i32::try_from(child.id()).unwrap_or_default();
    store.update_container(id, |c| {
        c.status = ContainerStatus::Running;
        c.pid = pid;
        c.exit_code = 0;
        c.oom_killed = false;
        c.error.clear();
        c.started = docker_timestamp();
    })?;
    Ok((child, container))
}

fn watch_container(context: &ProgramContext, store: &DockerStore, mut child: Child, container: &DockerContainer) -> ExitCode {
    // Our output is the pipe on which `docker run` waits: the answer, and its end.
    let response = std::io::stdout().write_all(b"ok\n").and_then(|()| std::io::stdout().flush());
    let devnull = File::options().write(true).open("/dev/null");
    if response.is_err() || devnull.is_ok_and(|null| rustix::stdio::dup2_stdout(&null).is_err()) {
        tracing::debug!("no task waits for the start of the container");
    }
    let started = Instant::now();
    let mut looked = Instant::now();
    let mut oom_killed = false;
    let status = loop {
        match child.try_wait() {
            Ok(Some(status)) => break status,
            Ok(None) => {}
            Err(_) => break ExitStatus::from_raw(255 << 8),
        }
        if looked.elapsed() > Duration::from_millis(500) {
            looked = Instant::now();
            if context.host.is_abandoned() {
                processes::kill_marked(&container.env_marker(), KILL_TIMEOUT);
            }
            let fault = context.host.faults().oom_kill.filter(|fault| started.elapsed().as_secs_f64() >= fault.after);
            if !oom_killed && fault.is_some_and(|fault| processes::oom_kill_rank(&container.env_marker(), &fault)) {
                oom_killed = true;
                record_oom_kill(store, &container.id);
            }
        }
        std::thread::sleep(POLL_INTERVAL);
    };
    let left = processes::kill_marked(&container.env_marker(), KILL_TIMEOUT);
    record_exit(store, &container.id, status, &left)
}

fn record_oom_kill(store: &DockerStore, id: &str) {
    if let Err(failure) = store.update_container(id, |c| c.oom_killed = true) {
        tracing::debug!(text = failure.message, "OOMKilled was not recorded");
    }
}

fn record_exit(store: &DockerStore, id: &str, status: ExitStatus, left: &[i32]) -> ExitCode {
    let changed = store.update_container(id, |c| {
        c.status = ContainerStatus::Exited;
        c.pid = 0;
        c.exit_code = shell_code(status);
        c.finished = docker_timestamp();
        c.error = if left.is_empty() { String::new() } else { format!("processes are left: {left:?}") };
        c.auto_remove
    });
    match changed.and_then(|remove| if remove { delete_container(store, id) } else { Ok(()) }) {
        Ok(()) => ExitCode::SUCCESS,
        Err(_) => ExitCode::FAILURE,
    }
}
