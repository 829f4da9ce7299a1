//! Local helper programs, each in a process group that is killed with its owner.
#![expect(clippy::disallowed_methods, reason = "processes of the laptop")]

use std::ffi::OsStr;
use std::io;
use std::os::unix::process::ExitStatusExt as _;
use std::process::{ExitStatus, Stdio};
use std::time::Duration;

use rustix::process::{Pid, Signal, kill_process_group};
use tokio::io::{AsyncRead, AsyncReadExt as _};
use tokio::process::{Child, ChildStderr, ChildStdin, ChildStdout, Command};

/// Number of output lines shown for a failed program.
const MAX_SHOWN_LINES: usize = 3;

/// A running program with everything it started in its group. Dropping it kills them.
#[derive(Debug)]
pub(super) struct ProcessGroup {
    child: Child,
    group: Option<Pid>,
}

pub(super) type ChildPipes = (Option<ChildStdin>, ChildStdout, ChildStderr);

impl ProcessGroup {
    /// Starts a program; without `input` its standard input is empty.
    pub(super) fn spawn(program: impl AsRef<OsStr>, arguments: &[impl AsRef<OsStr>], input: bool) -> io::Result<(Self, ChildPipes)> {
        let mut command = Command::new(program);
        command.args(arguments).stdin(if input { Stdio::piped() } else { Stdio::null() });
        command.stdout(Stdio::piped()).stderr(Stdio::piped()).kill_on_drop(true).process_group(0);
        let mut child = command.spawn()?;
        let missing = || io::Error::other("it has no pipes");
        let pipes = (child.stdin.take(), child.stdout.take().ok_or_else(missing)?, child.stderr.take().ok_or_else(missing)?);
        let group = child.id().and_then(|id| i32::try_from(id).ok()).and_then(Pid::from_raw);
        Ok((ProcessGroup { child, group }, pipes))
    }

    /// Sends HUP to the group; a group that is already gone is not an error.
    pub(super) fn send_hangup(&self) {
        self.signal(Signal::HUP);
    }

    /// Waits until the program exits. The rest of its group is killed.
    pub(super) async fn wait(&mut self) -> io::Result<ExitStatus> {
        let status = self.child.wait().await;
        // The pid may be reused after the wait, so this is the last signal.
        self.signal(Signal::KILL);
        self.group = None;
        status
    }

    fn signal(&self, signal: Signal) {
        if let Some(Err(error)) = self.group.map(|g| kill_process_group(g, signal)) {
            tracing::debug!(%error, "the processes were gone already");
        }
    }
}

impl Drop for ProcessGroup {
    fn drop(&mut self) {
        self.signal(Signal::KILL);
    }
}

/// Describes how a program ended.
pub(super) fn describe_exit_status(status: ExitStatus) -> String {
    match (status.code(), status.signal()) {
        (Some(code), _) => format!("it exited with status {code}"),
        (None, Some(signal)) => format!("it was killed by signal {signal}"),
        (None, None) => "it ended".to_owned(),
    }
}

/// The last lines of a program's output joined into one, without control characters, at most 300 characters.
pub(super) fn last_lines(text: &[u8]) -> Option<String> {
    let text = String::from_utf8_lossy(text);
    let lines: Vec<&str> = text.lines().rev().map(str::trim).filter(|l| !l.is_empty()).take(MAX_SHOWN_LINES).collect();
    let line = lines.into_iter().rev().collect::<Vec<_>>().join("; ");
    (!line.is_empty()).then(|| line.chars().filter(|c| !c.is_control()).take(300).collect())
}

/// Output of a program up to a limit, and its exit status.
pub(super) struct ProcessOutput {
    pub(super) stdout: Vec<u8>,
    pub(super) stderr: Vec<u8>,
    pub(super) status: ExitStatus,
}

/// Runs a program to its end. The error is a fragment: it could not be started, took too long, or printed too much.
pub(super) async fn run_process(
    program: impl AsRef<OsStr>,
    arguments: &[impl AsRef<OsStr>],
    within: Duration,
    limit: u64,
) -> Result<ProcessOutput, String> {
    let (mut group, (_, out, err)) = ProcessGroup::spawn(program, arguments, false).map_err(|e| format!("it could not be started: {e}"))?;
    let all = async {
        let (out, err) = tokio::try_join!(read_limited(out, limit), read_limited(err, limit))?;
        let status = group.wait().await.map_err(|e| e.to_string())?;
        Ok(ProcessOutput { stdout: out, stderr: err, status })
    };
    tokio::time::timeout(within, all).await.unwrap_or_else(|_| Err(format!("it did not exit within {within:?}")))
}

async fn read_limited(from: impl AsyncRead + Unpin, limit: u64) -> Result<Vec<u8>, String> {
    let mut bytes = Vec::new();
    let count = from.take(limit + 1).read_to_end(&mut bytes).await.map_err(|e| e.to_string())?;
    if u64::try_from(count).is_ok_and(|c| c > limit) { Err(format!("it printed more than {limit} bytes")) } else { Ok(bytes) }
}

#[cfg(test)]
mod tests {
    use super::*;

    const SECOND: Duration = Duration::from_secs(1);

    async fn sh(script: &str, within: Duration) -> Result<ProcessOutput, String> {
        run_process("/bin/sh", &["-c", script], within, 1000).await
    }

    #[tokio::test]
    async fn process_output_and_status_are_captured() {
        let output = sh("echo out; echo err >&2; exit 3", SECOND * 10).await.expect("an answer");
        assert_eq!(
            (output.stdout.as_slice(), output.stderr.as_slice(), describe_exit_status(output.status).as_str()),
            (&b"out\n"[..], &b"err\n"[..], "it exited with status 3")
        );
        let output = sh("kill -9 $$", SECOND * 10).await.expect("an answer");
        assert_eq!(describe_exit_status(output.status), "it was killed by signal 9");
        assert_eq!(last_lines(b"one\ntwo\n\n\tthree\x1b[0m\r\nfour\n\n").as_deref(), Some("two; three[0m; four"));
        assert_eq!(last_lines(b" \n"), None);
        assert!(sh("head -c 2000 /dev/zero", SECOND * 10).await.is_err_and(|e| e.contains("more than 1000")));
        assert!(run_process("/nowhere", &[""; 0], SECOND, 10).await.is_err_and(|e| e.contains("could not be started")));
    }

    #[tokio::test]
    #[cfg(target_os = "linux")]
    async fn timed_out_process_group_is_killed() {
        let dir = tempfile::tempdir().expect("a folder");
        let file = dir.path().join("pid");
        let script = format!("sleep 600 & echo $! >{}; wait", file.display());
        assert!(sh(&script, SECOND * 3).await.is_err_and(|e| e.contains("did not exit within 3s")));
        let pid = std::fs::read_to_string(file).expect("a pid");
        for _ in 0..2000 {
            // A zombie still has a /proc entry, but no files.
            if !std::path::Path::new(&format!("/proc/{}/fd/0", pid.trim())).exists() {
                return;
            }
            tokio::time::sleep(Duration::from_millis(10)).await;
        }
        panic!("{pid} is still there");
    }
}
