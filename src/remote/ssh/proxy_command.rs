//! `ProxyCommand`: a local program whose input and output carry the connection. It is killed with the connection, and the end of its
//! standard error is kept for the error message.

use std::io;
use std::pin::Pin;
use std::process::ExitStatus;
use std::sync::{Arc, Mutex, OnceLock, PoisonError};
use std::task::{Context, Poll};
use std::time::Duration;

use tokio::io::{AsyncRead, AsyncReadExt as _, AsyncWrite, ReadBuf};
use tokio::process::{ChildStderr, ChildStdin, ChildStdout};
use tokio_util::sync::{CancellationToken, DropGuard};
use tokio_util::task::TaskTracker;

use super::framing::push_tail;
use crate::remote::connection_options::ProxyCommand;
use crate::remote::local_process::{self, ProcessGroup};

/// How long it may take to exit after its connection ended; then it is killed.
const EXIT_GRACE: Duration = Duration::from_millis(500);

/// A running ProxyCommand. Dropping it ends the program.
pub(super) struct ProxyProcess {
    input: Option<ChildStdin>,
    output: ChildStdout,
    _stop: DropGuard,
}

/// Details of a ProxyCommand, also after its end.
#[derive(Debug, Clone)]
pub(super) struct ProxyLog {
    command: String,
    origin: String,
    end: Arc<ProxyEnd>,
    tasks: TaskTracker,
}

#[derive(Debug, Default)]
struct ProxyEnd {
    stderr: Mutex<Vec<u8>>,
    status: OnceLock<ExitStatus>,
}

/// Starts the program; the error is a fragment.
pub(super) fn start_proxy(proxy: &ProxyCommand) -> Result<(ProxyProcess, ProxyLog), String> {
    let (command, place) = (proxy.command.clone(), proxy.origin.clone());
    let script = format!("exec {command}");
    let started = ProcessGroup::spawn(proxy.shell.as_str(), &["-c", &script], true);
    let (group, (input, output, err)) =
        started.map_err(|e| format!("ProxyCommand `{command}` ({place}): {} could not be started: {e}", proxy.shell))?;
    let (end, over, tasks) = (Arc::new(ProxyEnd::default()), CancellationToken::new(), TaskTracker::new());
    tasks.spawn(watch_exit(group, over.clone(), end.clone()));
    tasks.spawn(collect_stderr(err, over.clone(), end.clone()));
    tasks.close();
    Ok((ProxyProcess { input, output, _stop: over.drop_guard() }, ProxyLog { command, origin: place, end, tasks }))
}

/// Waits for the program or its connection to end; in the latter case it gets HUP and soon KILL.
async fn watch_exit(mut group: ProcessGroup, closed: CancellationToken, proxy_end: Arc<ProxyEnd>) {
    let ended = match closed.run_until_cancelled(group.wait()).await {
        Some(ended) => Some(ended),
        None => {
            group.send_hangup();
            tokio::time::timeout(EXIT_GRACE, group.wait()).await.ok()
        }
    };
    match ended {
        Some(Ok(status)) => {
            proxy_end.status.get_or_init(|| status);
        }
        Some(Err(error)) => tracing::debug!(%error, "a ProxyCommand was not waited for"),
        None => tracing::debug!("a ProxyCommand had to be killed"),
    }
}

/// Keeps the end of its standard error. A program that it left behind may hold the pipe forever: then this ends with the connection.
async fn collect_stderr(mut err: ChildStderr, closed: CancellationToken, proxy_end: Arc<ProxyEnd>) {
    let mut bytes = [0; 1024];
    loop {
        let read = match closed.run_until_cancelled(err.read(&mut bytes)).await {
            Some(read) => read,
            // Its output before it was asked to exit.
            None => tokio::time::timeout(EXIT_GRACE, err.read(&mut bytes)).await.unwrap_or(Ok(0)),
        };
        let Some(received) = read.ok().filter(|n| *n > 0).and_then(|n| bytes.get(..n)) else { return };
        push_tail(&mut proxy_end.stderr.lock().unwrap_or_else(PoisonError::into_inner), received);
    }
}

impl ProxyLog {
    /// The command, its exit status and the end of its output; call after its connection ended.
    pub(super) async fn describe(&self) -> String {
        if tokio::time::timeout(EXIT_GRACE * 3, self.tasks.wait()).await.is_err() {
            tracing::debug!("a ProxyCommand is slow to end");
        }
        let hung_up = |status: &ExitStatus| std::os::unix::process::ExitStatusExt::signal(status) == Some(1);
        let status = self
            .end
            .status
            .get()
            .filter(|s| !hung_up(s))
            .map(|s| format!("; {}", local_process::describe_exit_status(*s)))
            .unwrap_or_default();
        let tail = self.end.stderr.lock().unwrap_or_else(PoisonError::into_inner);
        let output = local_process::last_lines(&tail).map(|line| format!("; it printed “{line}”")).unwrap_or_default();
        format!("ProxyCommand `{}` ({}){status}{output}", self.command, self.origin)
    }
}

impl AsyncRead for ProxyProcess {
    fn poll_read(mut self: Pin<&mut Self>, cx: &mut Context<'_>, buf: &mut ReadBuf<'_>) -> Poll<io::Result<()>> {
        Pin::new(&mut self.output).poll_read(cx, buf)
    }
}

impl AsyncWrite for ProxyProcess {
    fn poll_write(mut self: Pin<&mut Self>, cx: &mut Context<'_>, buf: &[u8]) -> Poll<io::Result<usize>> {
        match &mut self.input {
            Some(input) => Pin::new(input).poll_write(cx, buf),
            None => Poll::Ready(Err(io::ErrorKind::BrokenPipe.into())),
        }
    }

    fn poll_flush(mut self: Pin<&mut Self>, cx: &mut Context<'_>) -> Poll<io::Result<()>> {
        self.input.as_mut().map_or(Poll::Ready(Ok(())), |input| Pin::new(input).poll_flush(cx))
    }

    fn poll_shutdown(mut self: Pin<&mut Self>, _: &mut Context<'_>) -> Poll<io::Result<()>> {
        // Closing the pipe signals the end.
        self.input = None;
        Poll::Ready(Ok(()))
    }
}
