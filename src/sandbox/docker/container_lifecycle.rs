//! A container's life from outside: start, stop, rm, logs.

use std::fs;
use std::io::{Read as _, Seek as _, SeekFrom};
use std::process::{ExitCode, Stdio};
use std::time::{Duration, Instant};

use rustix::process::Signal;

use super::super::fake_program::{ProgramContext, ProgramOutput, reexec_as};
use super::super::processes;
use super::container_process::{container_env, find_program};
use super::error::{DockerError, no_such_container};
use super::flags::ParsedFlags;
use super::store::{ContainerStatus, DockerContainer, DockerStore};

/// How long a container's supervisor may take to record what happened.
const RECORD_TIMEOUT: Duration = Duration::from_secs(30);
const POLL_INTERVAL: Duration = Duration::from_millis(10);

/// Starts a created or ended container; returns when its main process lives.
pub(super) fn start_container(context: &ProgramContext, store: &DockerStore, word: &str, stdin: Stdio) -> Result<(), DockerError> {
    let container = store.container(word)?;
    if container.status == ContainerStatus::Running {
        return Ok(());
    }
    if container.gpus.is_some() && (context.host.faults().no_gpu_runtime || context.host.settings().gpus == 0) {
        return Err(DockerError::new(125, "Error response from daemon: could not select device driver \"\" with capabilities: [[gpu]]."));
    }
    let words: Vec<&String> = container.entrypoint.iter().chain(&container.cmd).collect();
    let Some(program) = words.first() else { return Err(DockerError::new(125, "Error response from daemon: no command specified")) };
    let variables = container_env(&context.host, store, &container);
    if let Err(failure) = find_program(store, &container, &variables, program) {
        let text = format!(
            "failed to create task for container: failed to create shim task: OCI runtime create failed: runc create failed: {}",
            failure.message
        );
        store.update_container(&container.id, |c| {
            c.exit_code = i32::from(failure.code);
            c.error.clone_from(&text);
        })?;
        return Err(DockerError::new(failure.code, format!("Error response from daemon: {text}")));
    }
    for folder in ["root", "tmp"] {
        fs::create_dir_all(store.container_dir(&container.id).join(folder))?;
    }
    let mut shim = reexec_as("sandbox-shim")?;
    shim.args(["container", &container.id]).stdin(stdin).stdout(Stdio::piped()).stderr(Stdio::null());
    // The supervisor is not a part of the shell that started it: it must survive the end of that session.
    shim.env_clear().envs(context.host.marker_variables());
    let mut child = shim.spawn()?;
    let mut response = String::new();
    if let Some(mut pipe) = child.stdout.take() {
        pipe.read_to_string(&mut response)?;
    }
    if response == "ok\n" { Ok(()) } else { Err(DockerError::new(125, format!("Error response from daemon: {}", response.trim_end()))) }
}

/// Runs `act` for each named container, as docker does: the names that worked on standard output, the others' complaints on standard error.
fn for_each_container(flags: &ParsedFlags, mut act: impl FnMut(&str) -> Result<String, DockerError>) -> ProgramOutput {
    let mut answer = ProgramOutput::default();
    for word in &flags.positional {
        match act(word) {
            Ok(line) => answer.stdout.push_str(&format!("{line}\n")),
            Err(failure) => {
                answer.stderr.push_str(&format!("{}\n", failure.message));
                answer.code = answer.code.max(failure.code);
            }
        }
    }
    answer
}

/// `docker start`.
pub(super) fn docker_start(context: &ProgramContext, store: &DockerStore, flags: &ParsedFlags) -> Result<ProgramOutput, DockerError> {
    Ok(for_each_container(flags, |word| {
        start_container(context, store, word, Stdio::null())
            .map_err(|failure| DockerError::new(1, failure.message))
            .map(|()| word.to_owned())
    }))
}

fn wait_for_container(store: &DockerStore, id: &str, within: Duration, done: impl Fn(Option<&DockerContainer>) -> bool) -> bool {
    let end = Instant::now() + within;
    loop {
        if done(store.read_state().find_container(id)) {
            return true;
        }
        if Instant::now() >= end {
            return false;
        }
        std::thread::sleep(POLL_INTERVAL);
    }
}

fn has_exited(container: Option<&DockerContainer>) -> bool {
    container.is_none_or(|c| c.status != ContainerStatus::Running)
}

/// Reads `TERM`, `SIGTERM` or `15`.
fn parse_signal(word: &str) -> Option<Signal> {
    let name = word.strip_prefix("SIG").unwrap_or(word);
    let known = [
        ("HUP", Signal::HUP),
        ("INT", Signal::INT),
        ("QUIT", Signal::QUIT),
        ("KILL", Signal::KILL),
        ("TERM", Signal::TERM),
        ("USR1", Signal::USR1),
        ("USR2", Signal::USR2),
        ("STOP", Signal::STOP),
        ("CONT", Signal::CONT),
        ("ABRT", Signal::ABORT),
        ("WINCH", Signal::WINCH),
    ];
    known.into_iter().find(|(n, s)| *n == name || s.as_raw().to_string() == name).map(|(_, s)| s)
}

/// Sends a signal to the main process. The first process of a real container never gets a signal it has no handler for (but KILL); with
/// `--init` that first process hands all on.
fn send_signal(container: &DockerContainer, signal: Signal) {
    let sure = matches!(signal, Signal::KILL | Signal::STOP) || container.init;
    if sure || has_signal_handler(container.pid, signal) {
        processes::send_signal(container.pid, signal);
    }
}

#[cfg(target_os = "linux")]
fn has_signal_handler(pid: i32, signal: Signal) -> bool {
    let status = fs::read_to_string(format!("/proc/{pid}/status")).unwrap_or_default();
    let caught = status.lines().find_map(|line| line.strip_prefix("SigCgt:")).and_then(|mask| u64::from_str_radix(mask.trim(), 16).ok());
    caught.is_some_and(|mask| mask & (1 << (signal.as_raw() - 1)) != 0)
}

#[cfg(not(target_os = "linux"))]
fn has_signal_handler(_: i32, _: Signal) -> bool {
    true
}

/// `docker stop`.
pub(super) fn docker_stop(store: &DockerStore, flags: &ParsedFlags) -> Result<ProgramOutput, DockerError> {
    let asked = flags.last_value("time").or(flags.last_value("timeout"));
    let asked = asked
        .map(|t| t.parse::<i64>().map_err(|_| DockerError::new(125, format!("invalid argument \"{t}\" for \"-t, --time\" flag"))))
        .transpose()?;
    Ok(for_each_container(flags, |word| {
        let container = store.container(word)?;
        if container.status != ContainerStatus::Running {
            return Ok(word.to_owned());
        }
        let seconds = asked.unwrap_or(container.stop_timeout.and_then(|t| i64::try_from(t).ok()).unwrap_or(10));
        send_signal(&container, parse_signal(flags.last_value("signal").unwrap_or(&container.stop_signal)).unwrap_or(Signal::TERM));
        let finish_timeout = u64::try_from(seconds).map_or(Duration::from_secs(1 << 30), Duration::from_secs);
        if !wait_for_container(store, &container.id, finish_timeout, has_exited) {
            processes::send_signal(container.pid, Signal::KILL);
            wait_for_container(store, &container.id, RECORD_TIMEOUT, has_exited);
        }
        Ok(word.to_owned())
    }))
}

/// Takes a container out of docker's memory, with its files.
pub(super) fn delete_container(store: &DockerStore, id: &str) -> Result<(), DockerError> {
    store.update(|state| {
        state.containers.retain(|c| c.id != id);
        Ok(())
    })?;
    for removed in [fs::remove_file(store.gpu_record_path(id)), fs::remove_dir_all(store.container_dir(id))] {
        match removed {
            Err(error) if error.kind() != std::io::ErrorKind::NotFound => return Err(error.into()),
            _ => {}
        }
    }
    Ok(())
}

/// `docker rm`.
pub(super) fn docker_rm(store: &DockerStore, flags: &ParsedFlags) -> Result<ProgramOutput, DockerError> {
    let force = flags.has("force");
    Ok(for_each_container(flags, |word| {
        let state = store.read_state();
        let Some(container) = state.find_container(word) else {
            return if force { Err(DockerError::new(0, no_such_container(word).message)) } else { Err(no_such_container(word)) };
        };
        if container.status == ContainerStatus::Running {
            if !force {
                let text = "Stop the container before attempting removal or force remove";
                return Err(DockerError::new(
                    1,
                    format!("Error response from daemon: You cannot remove a running container {}. {text}", container.id),
                ));
            }
            processes::send_signal(container.pid, Signal::KILL);
            wait_for_container(store, &container.id, RECORD_TIMEOUT, has_exited);
        }
        delete_container(store, &container.id)?;
        Ok(word.to_owned())
    }))
}

/// Copies what a container writes until it ends.
pub(super) fn follow_logs(store: &DockerStore, id: &str) -> Result<(), DockerError> {
    let (mut out, mut err) = (0, 0);
    loop {
        let over = has_exited(store.read_state().find_container(id));
        out += copy_log(store, id, "out", out, &mut std::io::stdout())?;
        err += copy_log(store, id, "err", err, &mut std::io::stderr())?;
        if over {
            return Ok(());
        }
        std::thread::sleep(POLL_INTERVAL);
    }
}

fn copy_log(store: &DockerStore, id: &str, name: &str, from: u64, to: &mut impl std::io::Write) -> Result<u64, DockerError> {
    let Ok(mut file) = fs::File::open(store.container_dir(id).join(name)) else { return Ok(0) };
    file.seek(SeekFrom::Start(from))?;
    let copied = std::io::copy(&mut file, to)?;
    to.flush()?;
    Ok(copied)
}

/// `docker logs`.
pub(super) fn docker_logs(store: &DockerStore, flags: &ParsedFlags) -> Result<ExitCode, DockerError> {
    let word = flags.positional.first().ok_or_else(|| DockerError::new(1, "\"docker logs\" requires exactly 1 argument."))?;
    let id = store.container(word)?.id;
    let lines = flags.last_value("tail").and_then(|n| n.parse::<usize>().ok());
    if flags.has("follow") && lines.is_none() {
        follow_logs(store, &id)?;
        return Ok(ExitCode::SUCCESS);
    }
    for (name, to) in [("out", &mut std::io::stdout() as &mut dyn std::io::Write), ("err", &mut std::io::stderr())] {
        let bytes = fs::read(store.container_dir(&id).join(name)).unwrap_or_default();
        to.write_all(last_lines(&bytes, lines))?;
    }
    Ok(ExitCode::SUCCESS)
}

fn last_lines(bytes: &[u8], count: Option<usize>) -> &[u8] {
    let Some(count) = count else { return bytes };
    if count == 0 {
        return &[];
    }
    let body = bytes.strip_suffix(b"\n").unwrap_or(bytes);
    let start = memchr::memrchr_iter(b'\n', body).nth(count - 1).map_or(0, |at| at + 1);
    bytes.get(start..).unwrap_or_default()
}

#[cfg(test)]
mod tests {
    use super::*;

    /// As `docker rm -f running missing`: a container that is not there is no failure, and does not hide one.
    #[test]
    fn a_later_container_does_not_hide_an_earlier_failure() {
        let words = ["bad", "missing"].map(str::to_owned);
        let flags = super::super::flags::flags_of_command("rm").parse(&words, true).expect("no flags");
        let output = for_each_container(&flags, |word| Err(DockerError::new(u8::from(word == "bad"), word)));
        assert_eq!((output.code, output.stderr.as_str()), (1, "bad\nmissing\n"));
    }

    #[test]
    fn last_lines_keeps_complete_lines() {
        assert_eq!(last_lines(b"a\nb\nc\n", Some(2)), b"b\nc\n");
        assert_eq!(last_lines(b"a\nb\nc", Some(1)), b"c");
        assert_eq!(last_lines(b"a\n", Some(9)), b"a\n");
        assert_eq!(last_lines(b"a\n", Some(0)), b"");
        assert_eq!(last_lines(b"a\nb", None), b"a\nb");
    }

    #[test]
    fn signals_parse_from_three_spellings() {
        assert_eq!(parse_signal("TERM"), Some(Signal::TERM));
        assert_eq!(parse_signal("SIGKILL"), Some(Signal::KILL));
        assert_eq!(parse_signal("2"), Some(Signal::INT));
        assert_eq!(parse_signal("NOPE"), None);
    }
}
