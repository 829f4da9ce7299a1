//! What docker's shim does: starts a container's main process, waits for it, ends what is left of the container and writes down how it went.
#![expect(clippy::disallowed_methods, reason = "a supervisor is a process that starts, watches and kills others")]

use std::fs::File;
use std::io::Write as _;
use std::os::unix::process::ExitStatusExt;
use std::process::{Child, Command, ExitCode, ExitStatus, Stdio};
use std::time::{Duration, Instant};

use super::super::processes;
use super::super::program::{Answer, Here, again};
use super::Failure;
use super::run::{find_program, inside, workdir};
use super::store::{Container, Status, Store, now};

const TICK: Duration = Duration::from_millis(20);
/// How long the rest of a container may take to die of KILL.
const END: Duration = Duration::from_secs(10);

/// `sandbox-shim container ID`: says `ok` once the main process lives, then lives as long as the container.
pub(in super::super) fn supervise(here: &Here, words: &[String]) -> ExitCode {
    let Some(id) = words.first() else { return Answer::fail(125, "sandbox-shim: which container?").say() };
    // The one who started us may be the leader of a group that gets signals: from here on we are in none of them.
    if let Err(error) = rustix::process::setsid() {
        tracing::debug!(%error, "setsid");
    }
    let store = Store::of(&here.place);
    match begin(here, &store, id) {
        Ok((child, container)) => watch(here, &store, child, &container),
        Err(failure) => Answer::ok(failure.text).say(),
    }
}

fn begin(here: &Here, store: &Store, id: &str) -> Result<(Child, Container), Failure> {
    let container = store.read().find(id).cloned().ok_or_else(|| super::no_container(id))?;
    let folder = store.folder(id);
    let variables = inside(&here.place, store, &container);
    let mut words = container.entrypoint.iter().chain(&container.cmd);
    let program = find_program(store, &container, &variables, words.next().map_or("", String::as_str))?;
    let mut command: Command = again("sandbox-shim")?;
    command.arg("setsid").arg(program).args(words).env_clear().envs(variables).current_dir(workdir(store, &container, None)?);
    let log = |name: &str| File::options().create(true).append(true).open(folder.join(name));
    // Our own input is the client's, where `docker run -i` gives one, and /dev/null else.
    command.stdin(Stdio::inherit()).stdout(log("out")?).stderr(log("err")?);
    let child = command.spawn()?;
    let pid = i32::try_from(child.id()).unwrap_or_default();
    store.change(|state| -> Result<(), Failure> {
        state.find_mut(id).into_iter().for_each(|c| {
            c.status = Status::Running;
            c.pid = pid;
            c.exit_code = 0;
            c.oom_killed = false;
            c.error.clear();
            c.started = now();
        });
        Ok(())
    })?;
    Ok((child, container))
}

fn watch(here: &Here, store: &Store, mut child: Child, container: &Container) -> ExitCode {
    // Our output is the pipe on which `docker run` waits: the answer, and its end.
    let said = std::io::stdout().write_all(b"ok\n").and_then(|()| std::io::stdout().flush());
    let devnull = File::options().write(true).open("/dev/null");
    if said.is_err() || devnull.is_ok_and(|null| rustix::stdio::dup2_stdout(&null).is_err()) {
        tracing::debug!("nobody waits for the container's start");
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
            if here.place.abandoned() {
                processes::kill_all(&container.marker(), END);
            }
            let fault = here.place.faults().oom_kill.filter(|fault| started.elapsed().as_secs_f64() >= fault.after);
            if !oom_killed && fault.is_some_and(|fault| processes::starve(&container.marker(), &fault)) {
                oom_killed = true;
                note_oom(store, &container.id);
            }
        }
        std::thread::sleep(TICK);
    };
    let left = processes::kill_all(&container.marker(), END);
    record(store, &container.id, status, &left)
}

fn note_oom(store: &Store, id: &str) {
    let noted = store.change(|state| -> Result<(), Failure> {
        state.find_mut(id).into_iter().for_each(|c| c.oom_killed = true);
        Ok(())
    });
    if let Err(failure) = noted {
        tracing::debug!(text = failure.text, "OOMKilled is not noted");
    }
}

fn record(store: &Store, id: &str, status: ExitStatus, left: &[i32]) -> ExitCode {
    let code = status.code().or(status.signal().map(|signal| 128 + signal)).unwrap_or(255);
    let changed = store.change(|state| -> Result<bool, Failure> {
        Ok(state.find_mut(id).is_some_and(|c| {
            c.status = Status::Exited;
            c.pid = 0;
            c.exit_code = code;
            c.finished = now();
            c.error = if left.is_empty() { String::new() } else { format!("processes are left: {left:?}") };
            c.auto_remove
        }))
    });
    match changed {
        Ok(true) => match super::life::forget(store, id) {
            Ok(()) => ExitCode::SUCCESS,
            Err(_) => ExitCode::FAILURE,
        },
        Ok(false) => ExitCode::SUCCESS,
        Err(_) => ExitCode::FAILURE,
    }
}
