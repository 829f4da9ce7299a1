//! A connected host: scripts to their end, long streams, the question whether an address can be reached from there.
//!
//! Uses `link` and `collect`. Every channel has a task that only reads and writes it, never waits for anyone else and closes it at the end.

use std::sync::Arc;
use std::time::Duration;

use bytes::Bytes;
use futures_util::FutureExt as _;
use futures_util::future::BoxFuture;
use russh::client::Msg;
use russh::{Channel, ChannelMsg, ChannelOpenFailure, ChannelReadHalf, ChannelWriteHalf, Sig};
use tokio::sync::{OwnedSemaphorePermit, RwLock, Semaphore, mpsc, oneshot};
use tokio::time::Instant;
use tokio_util::sync::CancellationToken;

use super::client_handler::DisconnectInfo;
use super::connection::{self, SshConnection, TcpChannelResult};
use super::framing::{BeginMarkScanner, FrameDecoder, PRINT_SHELL_PID};
use super::output_buffer::{CapturedOutput, OutputSink};
use super::session_pool::{ConnectionFactory, SessionPool, SessionSlot};
use crate::model::remote_command::{CommandOutput, RemoteCommand};
use crate::model::script_frame::ScriptFrame;
use crate::model::tcp_reachability::TcpReachability;
use crate::remote::byte_channel::byte_channel;
use crate::remote::{InteractiveChannel, OutputChunk, PtySpec, Remote, RemoteError, RemoteStream};
use crate::text::mask::mask_secrets;
use crate::text::shell_quote;

/// Sessions at once: six in all; OpenSSH allows ten. Urgent are two: while one waits for ranks that were asked to end, the other kills them.
const COMMAND_SESSIONS: usize = 2;
const PRIORITY_SESSIONS: usize = 2;
const STREAM_SESSIONS: usize = 2;
/// Addresses that are tried side by side: each is an open file of its sshd.
const MAX_TCP_PROBES: usize = 128;
/// How long after the end mark its exit status, and after that the rest, may come.
const EXIT_GRACE: Duration = Duration::from_millis(200);
/// Chunks that a stream's writer holds.
const INPUT_QUEUE_CHUNKS: usize = 64;
/// Pieces (32 KiB at most, each) of a talk that may wait for their reader.
const OUTPUT_QUEUE_CHUNKS: usize = 16;
/// How long a shell that is to be killed may take to say its number.
const SHELL_PID_TIMEOUT: Duration = Duration::from_secs(5);
/// How long ending a script may take before the connection goes.
const KILL_TIMEOUT: Duration = Duration::from_secs(5);
/// What every script is handed to, whatever the login shell is.
const START_SHELL: &str = "exec /bin/sh -s";

/// A host behind one connection.
pub(super) struct SshHost {
    connection: Arc<SshConnection>,
    sessions: Arc<SessionPool>,
    commands: Arc<Semaphore>,
    priority: Arc<Semaphore>,
    streams: Arc<Semaphore>,
    tcp_probes: Semaphore,
    /// Read by who tries an address beside others, written by who must be alone.
    probe_lock: RwLock<()>,
}

impl SshHost {
    pub(super) fn new(link: Arc<SshConnection>, further: ConnectionFactory) -> Self {
        let slots = |n| Arc::new(Semaphore::new(n));
        let (ways, alone) = (Semaphore::new(MAX_TCP_PROBES), RwLock::new(()));
        let sessions = SessionPool::new(link.clone(), further);
        SshHost {
            connection: link,
            sessions,
            commands: slots(COMMAND_SESSIONS),
            priority: slots(PRIORITY_SESSIONS),
            streams: slots(STREAM_SESSIONS),
            tcp_probes: ways,
            probe_lock: alone,
        }
    }

    /// Waits for a slot, at most as long as the command itself may take.
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
        let nonce: String = connection::random_bytes().iter().map(|b| format!("{b:02x}")).collect();
        ScriptSession {
            host: self.connection.name.clone(),
            title: command.title.clone(),
            masks: command.secrets.clone(),
            timeout: command.timeout,
            started: Instant::now(),
            frame: ScriptFrame::new(nonce),
            sessions: self.sessions.clone(),
            slot: None,
            connection_closed: self.connection.closed.clone(),
            disconnect_info: self.connection.disconnect_info(),
            abort: self.connection.abort_token(),
        }
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
                tracing::debug!("nobody waits for this answer any more");
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
        let line = shell_quote::one_line_command(&command.script);
        let (output, pieces) = mpsc::channel(OUTPUT_QUEUE_CHUNKS);
        let (input, told) = mpsc::channel(INPUT_QUEUE_CHUNKS);
        let (tx, rx) = oneshot::channel();
        let (ended, end) = oneshot::channel();
        self.connection.tasks.spawn(async move {
            let how = job.run_interactive(line, terminal, output, told, tx).await;
            if ended.send(how).is_err() {
                tracing::debug!("nobody waits for the end of this talk");
            }
        });
        rx.await.unwrap_or_else(|_| Err(self.connection.lost_error()))?;
        Ok(InteractiveChannel { output: pieces, input, exit: end })
    }

    /// Tries an address. Many are tried side by side, for one that does not answer must hold up none; who is refused asks again alone, so that
    /// the reason is its own. Waiting for a turn is no part of the time that the address has.
    async fn try_address(&self, address: &str, port: u16, within: Duration) -> Result<TcpReachability, RemoteError> {
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
        pieces: mpsc::Sender<OutputChunk>,
    ) -> BoxFuture<'a, Result<i32, RemoteError>> {
        async { Ok(self.run_script(&self.commands, command, OutputSink::forward(pieces)).await?.exit_code) }.boxed()
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
        self.try_address(address, port, within).boxed()
    }

    fn is_closed(&self) -> bool {
        self.connection.is_closed()
    }

    fn close(&self) -> BoxFuture<'_, ()> {
        self.sessions.disconnect().boxed()
    }
}

/// OpenSSH's sshd gives the system's reason as text; another server may give none.
fn classify_open_failure(code: ChannelOpenFailure, reason: &str) -> TcpReachability {
    if reason.contains("refused") {
        TcpReachability::Refused
    } else if code == ChannelOpenFailure::AdministrativelyProhibited {
        TcpReachability::Unknown("its sshd forwards nothing (AllowTcpForwarding)".to_owned())
    } else if ["timed out", "no route", "unreachable", "resolve", "not known"].iter().any(|r| reason.contains(r)) {
        TcpReachability::Blocked(reason.to_owned())
    } else {
        TcpReachability::Unknown(format!("its sshd says only: {reason}"))
    }
}

/// One script on its way.
pub(super) struct ScriptSession {
    host: String,
    pub(super) title: String,
    masks: Vec<String>,
    timeout: Duration,
    started: Instant,
    pub(super) frame: ScriptFrame,
    sessions: Arc<SessionPool>,
    /// Its session's place, once it has one; the rest is that of its connection.
    slot: Option<SessionSlot>,
    pub(super) connection_closed: CancellationToken,
    disconnect_info: Arc<DisconnectInfo>,
    abort: CancellationToken,
}

/// The signals that SSH names (RFC 4254, 6.10), with their numbers.
const SIGNAL_NUMBERS: [(&str, i32); 10] =
    [("HUP", 1), ("INT", 2), ("QUIT", 3), ("ILL", 4), ("ABRT", 6), ("FPE", 8), ("KILL", 9), ("SEGV", 11), ("PIPE", 13), ("TERM", 15)];

/// How a channel ended, as far as it has.
#[derive(Default)]
pub(super) struct ChannelStatus {
    pub(super) exit_status: Option<u32>,
    pub(super) exit_signal: Option<String>,
    eof: bool,
    pub(super) closed: bool,
    pub(super) refused: bool,
}

impl ChannelStatus {
    /// Whether the remote shell is over.
    pub(super) fn has_exited(&self) -> bool {
        self.exit_status.is_some() || self.exit_signal.is_some()
    }

    /// The exit status as a shell sees it: 128 + n where signal n ended it.
    pub(super) fn exit_code(&self) -> Option<i32> {
        match (&self.exit_signal, self.exit_status) {
            (Some(name), _) => Some(128 + SIGNAL_NUMBERS.iter().find(|(known, _)| known == name).map_or(0, |(_, number)| *number)),
            (None, status) => status.map(|status| i32::try_from(status).unwrap_or(255)),
        }
    }

    fn describe(&self) -> String {
        match (&self.exit_signal, self.exit_status) {
            (Some(signal), _) => format!("its shell was ended by signal {signal}"),
            (None, Some(status)) => format!("its shell ended with status {status}"),
            (None, None) => "its channel was closed".to_owned(),
        }
    }
}

/// What is left of a channel when its work is done.
pub(super) struct FinishedChannel {
    pub(super) read: ChannelReadHalf,
    pub(super) write: ChannelWriteHalf<Msg>,
    pub(super) status: ChannelStatus,
    /// Whether what still runs there is killed: by a signal, and by the shell's number where it is known.
    pub(super) kill: bool,
    /// What the shell has said of itself so far; none where it has no number to say.
    pub(super) scanner: Option<BeginMarkScanner>,
}

impl ScriptSession {
    pub(super) fn deadline(&self) -> Instant {
        self.started + self.timeout
    }

    pub(super) fn timeout_error(&self) -> RemoteError {
        RemoteError::Timeout { title: self.title.clone(), after: self.timeout }
    }

    pub(super) fn lost_error(&self) -> RemoteError {
        connection::connection_lost_error(&self.disconnect_info)
    }

    pub(super) fn truncated_error(&self, end: &ChannelStatus, stderr: &[u8], noise: &[u8]) -> RemoteError {
        let last = |bytes: &[u8]| String::from_utf8_lossy(bytes).lines().rev().map(str::trim).find(|l| !l.is_empty()).map(str::to_owned);
        let said = last(stderr).or_else(|| last(noise)).map(|s| format!(": {s}")).unwrap_or_default();
        // What a restricted shell says of the words that start /bin/sh: another time it says the same.
        if said.ends_with("exec: restricted") {
            return RemoteError::Refused {
                what: format!("the login shell does not run /bin/sh for `{}`{said}", self.title),
                hint:
                    "a restricted shell cannot run ranks: give the ssh user a full one (`chsh -s /bin/bash USER`), or set another ssh.user"
                        .to_owned(),
            };
        }
        RemoteError::Truncated { title: self.title.clone(), what: mask_secrets(&format!("{}{said}", end.describe()), &self.masks) }
    }

    pub(super) fn no_shell_error(&self) -> RemoteError {
        RemoteError::Refused {
            what: format!("sshd refused to start /bin/sh for `{}`", self.title),
            hint: "is there a ForceCommand, a command= before the key in authorized_keys, or a login shell like nologin?".to_owned(),
        }
    }

    /// Opens its session, on whichever connection has room.
    pub(super) async fn open(&mut self) -> Result<Channel<Msg>, RemoteError> {
        let (channel, seat) = self.sessions.open(&self.title, self.deadline()).await?;
        (self.connection_closed, self.disconnect_info, self.abort) =
            (seat.connection.closed.clone(), seat.connection.disconnect_info(), seat.connection.abort_token());
        self.slot = Some(seat);
        Ok(channel)
    }

    /// Runs a script to its end mark; what is left of its channel must be finished then.
    async fn exec(
        &mut self,
        script: String,
        mut sink: OutputSink,
        unwanted: impl Future<Output = ()>,
    ) -> (Result<CommandOutput, RemoteError>, Option<FinishedChannel>) {
        let (mut read, write) = match self.open().await {
            Ok(channel) => channel.split(),
            Err(error) => return (Err(error), None),
        };
        let (mut answer, mut end) = (FrameDecoder::new(self.frame.clone()), ChannelStatus::default());
        let result = tokio::select! {
            biased;
            () = unwanted => Err(self.timeout_error()),
            result = self.read_answer(&mut read, &mut answer, &mut end, &mut sink) => result,
            error = send_script(&write, script) => {
                tracing::debug!(host = %self.host, %error, "a script was not taken to its end");
                self.read_answer(&mut read, &mut answer, &mut end, &mut sink).await
            }
        };
        let kill = result.is_err() && !end.has_exited();
        let CapturedOutput { stdout, stderr } = sink.into_captured();
        let output = result.map(|code| {
            let dropped = stdout.dropped + stderr.dropped;
            CommandOutput {
                exit_code: code,
                stdout: stdout.bytes,
                stderr: stderr.bytes,
                dropped_bytes: dropped,
                elapsed: self.started.elapsed(),
            }
        });
        (output, Some(FinishedChannel { read, write, status: end, kill, scanner: Some(answer.into_scanner()) }))
    }

    /// Reads until the answer is whole: its end mark, then its exit status and what else comes within the grace. Gives the script's status.
    async fn read_answer(
        &self,
        read: &mut ChannelReadHalf,
        answer: &mut FrameDecoder,
        end: &mut ChannelStatus,
        sink: &mut OutputSink,
    ) -> Result<i32, RemoteError> {
        let mut until = self.deadline();
        loop {
            let done = answer.exit_status();
            let message = tokio::select! {
                // The time first: a script that never stops talking is late as well. What was received comes before the news of an end.
                biased;
                () = tokio::time::sleep_until(until) => return done.ok_or_else(|| self.timeout_error()),
                message = read.wait() => message,
                () = self.connection_closed.cancelled() => None,
                () = sink.wait_closed() => return Err(self.timeout_error()),
            };
            let taken = match message.map(|message| record_message(message, end)) {
                None => return done.ok_or_else(|| self.lost_error()),
                Some(ChannelOutput::Stdout(bytes)) => sink.push(OutputChunk::Stdout(answer.push(bytes)), self.deadline()).await,
                Some(ChannelOutput::Stderr(bytes)) => sink.push(OutputChunk::Stderr(bytes), self.deadline()).await,
                Some(ChannelOutput::Empty) if end.refused => return Err(self.no_shell_error()),
                Some(ChannelOutput::Empty) => true,
            };
            let ended = answer.exit_status();
            if let Some(code) = ended.filter(|_| end.closed || end.eof && end.has_exited()) {
                return Ok(code);
            }
            if !taken {
                return Err(self.timeout_error());
            }
            if end.closed {
                return Err(self.truncated_error(end, sink.stderr_tail(), answer.noise()));
            }
            if ended.is_some() && done.is_none() {
                until = Instant::now() + EXIT_GRACE;
            }
        }
    }

    /// Closes a channel, and goes on reading it until then: one that nobody reads stops its whole connection.
    pub(super) async fn close_channel(&self, rest: FinishedChannel) {
        let FinishedChannel { mut read, write, status: mut end, kill, scanner: opening } = rest;
        let shell = match opening {
            Some(opening) if kill => self.wait_for_shell_pid(&mut read, opening, &mut end).await,
            _ => None,
        };
        if end.closed {
            return;
        }
        let reading = async {
            while read.wait().await.is_some() {}
            std::future::pending().await
        };
        let closing = async {
            if kill {
                write.signal(Sig::KILL).await?;
                if let Err(error) = self.kill_shell(shell).await {
                    tracing::debug!(host = %self.host, %error, "a script could not be killed by its number");
                }
            }
            write.close().await
        };
        let ended = tokio::select! {
            () = self.connection_closed.cancelled() => return,
            ended = tokio::time::timeout(KILL_TIMEOUT, closing) => ended,
            () = reading => return,
        };
        match ended {
            Ok(Ok(())) => {}
            Ok(Err(error)) => tracing::debug!(host = %self.host, %error, "a channel was closed already"),
            Err(_) => {
                self.disconnect_info.reason.get_or_init(|| format!("`{}` could not be ended in time", self.title));
                self.abort.cancel();
            }
        }
    }

    /// The number of a shell that is to be killed: one that has just started may not have said it yet.
    async fn wait_for_shell_pid(&self, read: &mut ChannelReadHalf, mut opening: BeginMarkScanner, end: &mut ChannelStatus) -> Option<u32> {
        let heard = async {
            while opening.may_print_shell_pid() && !end.closed {
                match read.wait().await.map(|message| record_message(message, end)) {
                    Some(ChannelOutput::Stdout(bytes)) => drop(opening.push(&bytes)),
                    Some(ChannelOutput::Stderr(_) | ChannelOutput::Empty) => {}
                    None => break,
                }
            }
        };
        tokio::select! {
            () = heard => {}
            () = self.connection_closed.cancelled() => {}
            () = tokio::time::sleep(SHELL_PID_TIMEOUT) => tracing::debug!(host = %self.host, "a shell that is to be killed has not said its number"),
        }
        opening.shell_pid()
    }

    /// Kills a shell by its number, since sshd delivers no signals to root's sessions.
    async fn kill_shell(&self, shell: Option<u32>) -> Result<(), russh::Error> {
        let Some(shell) = shell else { return Ok(()) };
        let Ok((channel, _seat)) = self.sessions.open("kill a script", Instant::now() + KILL_TIMEOUT).await else {
            return Err(russh::Error::Disconnect);
        };
        let (mut read, write) = channel.split();
        write.exec(false, format!("exec /bin/sh -c 'kill -9 -{shell}'")).await?;
        while read.wait().await.is_some_and(|message| !matches!(message, ChannelMsg::Close)) {}
        write.close().await
    }
}

/// Starts the shell of a fresh session and hands it a script; its answer is not waited for, that saves a round trip.
pub(super) async fn start_script(write: &ChannelWriteHalf<Msg>, script: String) -> Result<(), russh::Error> {
    write.exec(true, START_SHELL).await?;
    write.data_bytes(script.into_bytes()).await
}

/// Hands over a script and says that nothing follows; ends only when that fails.
async fn send_script(write: &ChannelWriteHalf<Msg>, script: String) -> russh::Error {
    let sent = async {
        start_script(write, script).await?;
        write.eof().await
    };
    match sent.await {
        Ok(()) => std::future::pending().await,
        Err(error) => error,
    }
}

/// What a message carried.
pub(super) enum ChannelOutput {
    Stdout(Bytes),
    Stderr(Bytes),
    Empty,
}

/// Takes note of a message; gives back what was written.
pub(super) fn record_message(message: ChannelMsg, end: &mut ChannelStatus) -> ChannelOutput {
    match message {
        ChannelMsg::Data { data } => return ChannelOutput::Stdout(data),
        ChannelMsg::ExtendedData { data, ext: 1 } => return ChannelOutput::Stderr(data),
        ChannelMsg::ExitStatus { exit_status } => end.exit_status = Some(exit_status),
        ChannelMsg::ExitSignal { signal_name, .. } => end.exit_signal = Some(format!("{signal_name:?}")),
        ChannelMsg::Eof => end.eof = true,
        ChannelMsg::Close => end.closed = true,
        ChannelMsg::Failure => end.refused = true,
        _ => {}
    }
    ChannelOutput::Empty
}
