//! A connected host: runs scripts, streams and interactive sessions, and probes TCP addresses.
//!
//! Every channel has a task that only reads and writes it, never waits for anything else and closes it at the end.

use std::sync::Arc;
use std::sync::atomic::{AtomicUsize, Ordering};
use std::time::Duration;

use futures_util::FutureExt as _;
use futures_util::future::BoxFuture;
use russh::ChannelOpenFailure;
use tokio::sync::{OwnedSemaphorePermit, RwLock, Semaphore, mpsc, oneshot};
use tokio::time::Instant;

use super::connection::{self, SshConnection, TcpChannelResult};
use super::framing::PRINT_SHELL_PID;
use super::output_buffer::OutputSink;
use super::pty::InteractiveEnds;
use super::script_session::ScriptSession;
use super::session_pool::SessionPool;
use crate::model::remote_command::{CommandOutput, RemoteCommand};
use crate::remote::byte_channel::byte_channel;
use crate::remote::{InteractiveChannel, OutputChunk, PtySpec, Remote, RemoteError, RemoteStream, TcpReachability};
use crate::text::shell_quote;

/// Concurrent sessions: eight in total; OpenSSH allows ten. Two have priority: while one waits for ranks to stop, the other kills them. Four
/// streams: the logs of tasks in the container and beside it, and two for files where a host gets a copy of its own file.
const COMMAND_SESSIONS: usize = 2;
const PRIORITY_SESSIONS: usize = 2;
const STREAM_SESSIONS: usize = 4;
/// Concurrent address probes: each is an open file of its sshd.
const MAX_TCP_PROBES: usize = 128;
/// Chunks queued for a stream's writer.
const INPUT_QUEUE_CHUNKS: usize = 64;
/// Chunks (32 KiB at most, each) of an interactive session queued for their reader.
const OUTPUT_QUEUE_CHUNKS: usize = 16;
/// A host behind one connection, or one of several behind the same.
pub(super) struct SshHost {
    connection: Arc<SshConnection>,
    sessions: Arc<SessionPool>,
    commands: Arc<Semaphore>,
    priority: Arc<Semaphore>,
    streams: Arc<Semaphore>,
    tcp_probes: Semaphore,
    /// Read lock for concurrent probes, write lock for exclusive ones.
    probe_lock: RwLock<()>,
    /// How many use the same connections, this one included; the last one closes them.
    users: Arc<AtomicUsize>,
}

impl SshHost {
    /// One of several that use the same connections.
    pub(super) fn new(sessions: Arc<SessionPool>, users: Arc<AtomicUsize>) -> Self {
        let slots = |n| Arc::new(Semaphore::new(n));
        users.fetch_add(1, Ordering::Relaxed);
        SshHost {
            connection: sessions.primary().clone(),
            sessions,
            commands: slots(COMMAND_SESSIONS),
            priority: slots(PRIORITY_SESSIONS),
            streams: slots(STREAM_SESSIONS),
            tcp_probes: Semaphore::new(MAX_TCP_PROBES),
            probe_lock: RwLock::new(()),
            users,
        }
    }

    /// Waits for a slot, at most for the command's timeout.
    async fn acquire_slot(&self, slots: &Arc<Semaphore>, command: &RemoteCommand) -> Result<OwnedSemaphorePermit, RemoteError> {
        let timeout = || RemoteError::Timeout { title: command.title.clone(), after: command.timeout };
        let waiting = tokio::time::timeout(command.timeout, slots.clone().acquire_owned());
        match self.connection.closed.run_until_cancelled(waiting).await {
            None | Some(Ok(Err(_))) => Err(self.connection.lost_error()),
            Some(Err(_)) => Err(timeout()),
            Some(Ok(Ok(permit))) => Ok(permit),
        }
    }

    fn new_session(&self, command: &RemoteCommand) -> ScriptSession {
        ScriptSession::new(self.sessions.clone(), command)
    }

    async fn run_script(&self, slots: &Arc<Semaphore>, command: &RemoteCommand, sink: OutputSink) -> Result<CommandOutput, RemoteError> {
        let permit = self.acquire_slot(slots, command).await?;
        let mut job = self.new_session(command);
        let script = format!("{PRINT_SHELL_PID}{}", job.frame.wrap(&command.script));
        let (tx, rx) = oneshot::channel();
        self.connection.tasks.spawn(async move {
            let mut tx = tx;
            let (result, rest) = job.exec(script, sink, tx.closed()).await;
            if tx.send(result).is_err() {
                tracing::debug!("no task waits for this output any more");
            }
            if let Some(rest) = rest {
                job.close_channel(rest).await;
            }
            drop(permit);
        });
        rx.await.unwrap_or_else(|_| Err(self.connection.lost_error()))
    }

    async fn start_stream(&self, command: &RemoteCommand) -> Result<RemoteStream, RemoteError> {
        let permit = self.acquire_slot(&self.streams, command).await?;
        let mut job = self.new_session(command);
        let script = format!("{PRINT_SHELL_PID}{}", job.frame.wrap_streaming(&command.script));
        let (output, reader) = byte_channel(command.output_limit);
        let (input, writer) = mpsc::channel(INPUT_QUEUE_CHUNKS);
        let (tx, rx) = oneshot::channel();
        self.connection.tasks.spawn(async move {
            job.run_stream(script, output, writer, tx).await;
            drop(permit);
        });
        rx.await.unwrap_or_else(|_| Err(self.connection.lost_error()))?;
        Ok(RemoteStream { output: reader, input })
    }

    async fn start_interactive(&self, command: &RemoteCommand, terminal: Option<PtySpec>) -> Result<InteractiveChannel, RemoteError> {
        let mut job = self.new_session(command);
        let line = shell_quote::encode_for_login_shell(&command.script);
        let (output, pieces) = mpsc::channel(OUTPUT_QUEUE_CHUNKS);
        let (input, input_receiver) = mpsc::channel(INPUT_QUEUE_CHUNKS);
        let (started, rx) = oneshot::channel();
        let (ended, end) = oneshot::channel();
        let ends = InteractiveEnds { output, input: input_receiver, started };
        self.connection.tasks.spawn(async move {
            let how = job.run_interactive(line, terminal, ends).await;
            if ended.send(how).is_err() {
                tracing::debug!("no task waits for the end of this session");
            }
        });
        rx.await.unwrap_or_else(|_| Err(self.connection.lost_error()))?;
        Ok(InteractiveChannel { output: pieces, input, exit: end })
    }

    /// Probes an address. Probes run concurrently, since a silent address must not delay others; a refused one repeats alone, to get
    /// its own reason. Waiting for a turn does not count as probe time.
    async fn probe_address(&self, address: &str, port: u16, within: Duration) -> Result<TcpReachability, RemoteError> {
        let Ok(_turn) = self.tcp_probes.acquire().await else { return Err(self.connection.lost_error()) };
        let mut opened = {
            let _beside = self.probe_lock.read().await;
            self.connection.open_tcp(address, port, Instant::now() + within, false).await
        };
        if let TcpChannelResult::Refused { .. } = opened {
            let _alone = self.probe_lock.write().await;
            opened = self.connection.open_tcp(address, port, Instant::now() + within, true).await;
        }
        match opened {
            TcpChannelResult::Open(channel) => {
                connection::close_channel(&channel, &self.connection.closed).await;
                Ok(TcpReachability::Open)
            }
            TcpChannelResult::Refused { code, reason } => Ok(classify_open_failure(code, &reason.to_lowercase())),
            TcpChannelResult::ConnectionLost => Err(self.connection.lost_error()),
            TcpChannelResult::TimedOut => Ok(TcpReachability::Blocked(format!("no answer within {} s", within.as_secs()))),
        }
    }
}

impl Remote for SshHost {
    fn exec<'a>(&'a self, command: &'a RemoteCommand) -> BoxFuture<'a, Result<CommandOutput, RemoteError>> {
        self.run_script(&self.commands, command, OutputSink::capture(command.output_limit)).boxed()
    }

    fn exec_streaming<'a>(
        &'a self,
        command: &'a RemoteCommand,
        chunks: mpsc::Sender<OutputChunk>,
    ) -> BoxFuture<'a, Result<i32, RemoteError>> {
        async { Ok(self.run_script(&self.commands, command, OutputSink::forward(chunks)).await?.exit_code) }.boxed()
    }

    fn exec_priority<'a>(&'a self, command: &'a RemoteCommand) -> BoxFuture<'a, Result<CommandOutput, RemoteError>> {
        self.run_script(&self.priority, command, OutputSink::capture(command.output_limit)).boxed()
    }

    fn open_stream<'a>(&'a self, command: &'a RemoteCommand) -> BoxFuture<'a, Result<RemoteStream, RemoteError>> {
        self.start_stream(command).boxed()
    }

    fn open_interactive<'a>(
        &'a self,
        command: &'a RemoteCommand,
        terminal: Option<PtySpec>,
    ) -> BoxFuture<'a, Result<InteractiveChannel, RemoteError>> {
        self.start_interactive(command, terminal).boxed()
    }

    fn probe_tcp<'a>(&'a self, address: &'a str, port: u16, within: Duration) -> BoxFuture<'a, Result<TcpReachability, RemoteError>> {
        self.probe_address(address, port, within).boxed()
    }

    fn is_closed(&self) -> bool {
        self.connection.is_closed()
    }

    fn close(&self) -> BoxFuture<'_, ()> {
        if self.users.fetch_sub(1, Ordering::Relaxed) > 1 {
            return std::future::ready(()).boxed();
        }
        self.sessions.disconnect().boxed()
    }
}

/// OpenSSH's sshd returns the system's reason as text; another server may return none.
fn classify_open_failure(code: ChannelOpenFailure, reason: &str) -> TcpReachability {
    if reason.contains("refused") {
        TcpReachability::Refused
    } else if code == ChannelOpenFailure::AdministrativelyProhibited {
        TcpReachability::Unknown("its sshd does not allow forwarding (AllowTcpForwarding)".to_owned())
    } else if ["timed out", "no route", "unreachable", "resolve", "not known"].iter().any(|r| reason.contains(r)) {
        TcpReachability::Blocked(reason.to_owned())
    } else {
        TcpReachability::Unknown(format!("its sshd reports only: {reason}"))
    }
}
