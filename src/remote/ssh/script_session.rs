//! One script in its own session: sent, read to its end mark, closed, and killed if necessary.
//!
//! Every channel is read until it is closed: an unread channel stops its whole connection.

use std::sync::Arc;
use std::time::Duration;

use russh::client::Msg;
use russh::{Channel, ChannelMsg, ChannelReadHalf, ChannelWriteHalf, Sig};
use tokio::sync::oneshot;
use tokio::time::Instant;

use super::connection::{self, SshConnection};
use super::framing::{BeginMarkScanner, FrameDecoder};
use super::output_buffer::{CapturedOutput, OutputSink};
use super::session_pool::{SessionPool, SessionSlot};
use crate::model::exit::SIGNAL_NAMES;
use crate::model::remote_command::{CommandOutput, RemoteCommand};
use crate::model::script_frame::ScriptFrame;
use crate::remote::{OutputChunk, RemoteError};
use crate::text::mask::mask_secrets;

/// How long the exit status, and after it the rest, may take after the end mark.
const EXIT_GRACE: Duration = Duration::from_millis(200);
/// How long to wait for the pid of a shell to kill.
const SHELL_PID_TIMEOUT: Duration = Duration::from_secs(5);
/// How long ending a script may take before its connection is dropped. The signal needs a session of its own, and a login shell may take
/// many seconds to read its rc files on a busy host.
const KILL_TIMEOUT: Duration = Duration::from_secs(30);
/// Runs every script, independent of the login shell.
const START_SHELL: &str = "exec /bin/sh -s";

/// A script being run.
pub(super) struct ScriptSession {
    /// The connection on which it runs; before it has a slot on one, the host's first.
    pub(super) connection: Arc<SshConnection>,
    pub(super) title: String,
    masks: Vec<String>,
    timeout: Duration,
    started: Instant,
    pub(super) frame: ScriptFrame,
    sessions: Arc<SessionPool>,
    /// Its session slot once it has one; other slots belong to its connection.
    slot: Option<SessionSlot>,
}

/// How a channel ended, as far as known.
#[derive(Default)]
pub(super) struct ChannelStatus {
    pub(super) exit_status: Option<u32>,
    pub(super) exit_signal: Option<String>,
    eof: bool,
    pub(super) closed: bool,
    pub(super) refused: bool,
}

impl ChannelStatus {
    /// Whether the remote shell has ended.
    pub(super) fn has_exited(&self) -> bool {
        self.exit_status.is_some() || self.exit_signal.is_some()
    }

    /// The exit status as in a shell: 128 + n if signal n ended it.
    pub(super) fn exit_code(&self) -> Option<i32> {
        match (&self.exit_signal, self.exit_status) {
            (Some(name), _) => Some(128 + SIGNAL_NAMES.iter().find(|(known, _)| known == name).map_or(0, |(_, number)| *number)),
            (None, status) => status.map(|status| i32::try_from(status).unwrap_or(255)),
        }
    }

    fn describe(&self) -> String {
        match (&self.exit_signal, self.exit_status) {
            (Some(signal), _) => format!("its shell was killed by signal {signal}"),
            (None, Some(status)) => format!("its shell exited with status {status}"),
            (None, None) => "its channel was closed".to_owned(),
        }
    }
}

/// The rest of a channel after its work.
pub(super) struct FinishedChannel {
    pub(super) read: ChannelReadHalf,
    pub(super) write: ChannelWriteHalf<Msg>,
    pub(super) status: ChannelStatus,
    /// Whether to kill what still runs: by a signal, and by the shell's pid where it is known.
    pub(super) kill: bool,
    /// Bytes that may contain the shell's pid; `None` if it prints none.
    pub(super) scanner: Option<BeginMarkScanner>,
}

impl ScriptSession {
    pub(super) fn new(sessions: Arc<SessionPool>, command: &RemoteCommand) -> Self {
        let nonce: String = connection::random_bytes().iter().map(|b| format!("{b:02x}")).collect();
        ScriptSession {
            connection: sessions.primary().clone(),
            title: command.title.clone(),
            masks: command.secrets.clone(),
            timeout: command.timeout,
            started: Instant::now(),
            frame: ScriptFrame::new(nonce),
            sessions,
            slot: None,
        }
    }

    pub(super) fn deadline(&self) -> Instant {
        self.started + self.timeout
    }

    pub(super) fn timeout_error(&self) -> RemoteError {
        RemoteError::Timeout { title: self.title.clone(), after: self.timeout }
    }

    pub(super) fn truncated_error(&self, status: &ChannelStatus, stderr: &[u8], noise: &[u8]) -> RemoteError {
        let last = |bytes: &[u8]| String::from_utf8_lossy(bytes).lines().rev().map(str::trim).find(|l| !l.is_empty()).map(str::to_owned);
        let detail = last(stderr).or_else(|| last(noise)).map(|s| format!(": {s}")).unwrap_or_default();
        // A restricted shell refuses to start /bin/sh every time, so this is not retryable.
        if detail.ends_with("exec: restricted") {
            return RemoteError::refused(
                format!("the login shell does not run /bin/sh for `{}`{detail}", self.title),
                "a restricted shell cannot run ranks: give the ssh user a full one (`chsh -s /bin/bash USER`), or set another ssh.user",
            );
        }
        RemoteError::Truncated { title: self.title.clone(), what: mask_secrets(&format!("{}{detail}", status.describe()), &self.masks) }
    }

    pub(super) fn no_shell_error(&self) -> RemoteError {
        RemoteError::refused(
            format!("sshd refused to start /bin/sh for `{}`", self.title),
            "check for a ForceCommand, a command= option in authorized_keys, or a login shell like nologin",
        )
    }

    /// Opens its session on a connection with a free slot.
    pub(super) async fn open(&mut self) -> Result<Channel<Msg>, RemoteError> {
        let (channel, slot) = self.sessions.open(&self.title, self.deadline()).await?;
        self.connection = slot.connection.clone();
        self.slot = Some(slot);
        Ok(channel)
    }

    /// Runs a script to its end mark; the caller must then finish its channel.
    pub(super) async fn exec(
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
                tracing::debug!(host = %self.connection.name, %error, "a script was not sent completely");
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

    /// Reads the complete answer: end mark, exit status, and what follows within the grace time. Returns the script's status.
    async fn read_answer(
        &self,
        read: &mut ChannelReadHalf,
        decoder: &mut FrameDecoder,
        status: &mut ChannelStatus,
        sink: &mut OutputSink,
    ) -> Result<i32, RemoteError> {
        let mut until = self.deadline();
        loop {
            let done = decoder.exit_status();
            let message = tokio::select! {
                // The deadline first: a script that never stops writing times out as well. Received bytes come before the news of an end.
                biased;
                () = tokio::time::sleep_until(until) => return done.ok_or_else(|| self.timeout_error()),
                message = read.wait() => message,
                () = self.connection.closed.cancelled() => None,
                () = sink.wait_closed() => return Err(self.timeout_error()),
            };
            let taken = match message.map(|message| apply_channel_message(message, status)) {
                None => return done.ok_or_else(|| self.connection.lost_error()),
                Some(Some(OutputChunk::Stdout(bytes))) => sink.push(OutputChunk::Stdout(decoder.push(bytes)), self.deadline()).await,
                Some(Some(stderr)) => sink.push(stderr, self.deadline()).await,
                Some(None) if status.refused => return Err(self.no_shell_error()),
                Some(None) => true,
            };
            let ended = decoder.exit_status();
            if let Some(code) = ended.filter(|_| status.closed || status.eof && status.has_exited()) {
                return Ok(code);
            }
            if !taken {
                return Err(self.timeout_error());
            }
            if status.closed {
                return Err(self.truncated_error(status, sink.stderr_tail(), decoder.noise()));
            }
            if ended.is_some() && done.is_none() {
                until = Instant::now() + EXIT_GRACE;
            }
        }
    }

    /// Closes a channel and reads it until it is closed: an unread channel stops its whole connection.
    pub(super) async fn close_channel(&self, rest: FinishedChannel) {
        let FinishedChannel { mut read, write, status: mut end, kill, scanner } = rest;
        let shell = match scanner {
            Some(scanner) if kill => self.wait_for_shell_pid(&mut read, scanner, &mut end).await,
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
                    tracing::debug!(host = %self.connection.name, %error, "a script could not be killed by its pid");
                }
            }
            write.close().await
        };
        let ended = tokio::select! {
            () = self.connection.closed.cancelled() => return,
            ended = tokio::time::timeout(KILL_TIMEOUT, closing) => ended,
            () = reading => return,
        };
        match ended {
            Ok(Ok(())) => {}
            Ok(Err(error)) => tracing::debug!(host = %self.connection.name, %error, "a channel was closed already"),
            Err(_) => self.connection.cut(format!("`{}` could not be killed in time", self.title)),
        }
    }

    /// The pid of a shell to kill: one that has just started may not have printed it yet.
    async fn wait_for_shell_pid(
        &self,
        read: &mut ChannelReadHalf,
        mut scanner: BeginMarkScanner,
        status: &mut ChannelStatus,
    ) -> Option<u32> {
        let pid_printed = async {
            while scanner.may_print_shell_pid() && !status.closed {
                let Some(message) = read.wait().await else { break };
                if let Some(OutputChunk::Stdout(bytes)) = apply_channel_message(message, status) {
                    drop(scanner.push(&bytes));
                }
            }
        };
        tokio::select! {
            () = pid_printed => {}
            () = self.connection.closed.cancelled() => {}
            () = tokio::time::sleep(SHELL_PID_TIMEOUT) => tracing::debug!(host = %self.connection.name, "a shell to kill has not reported its pid"),
        }
        scanner.shell_pid()
    }

    /// Kills a shell by pid, since sshd delivers no signals to root's sessions.
    async fn kill_shell(&self, shell: Option<u32>) -> Result<(), russh::Error> {
        let Some(shell) = shell else { return Ok(()) };
        let Ok((channel, _slot)) = self.sessions.open("kill a script", Instant::now() + KILL_TIMEOUT).await else {
            return Err(russh::Error::Disconnect);
        };
        let (mut read, write) = channel.split();
        write.exec(false, format!("exec /bin/sh -c 'kill -9 -{shell}'")).await?;
        while read.wait().await.is_some_and(|message| !matches!(message, ChannelMsg::Close)) {}
        write.close().await
    }
}

/// Starts the shell of a new session and sends a script; its reply is not awaited, which saves a round trip.
pub(super) async fn start_script(write: &ChannelWriteHalf<Msg>, script: String) -> Result<(), russh::Error> {
    write.exec(true, START_SHELL).await?;
    write.data_bytes(script.into_bytes()).await
}

/// Sends a script and the end of input; returns only on failure.
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

/// Records a message; returns the output in it.
pub(super) fn apply_channel_message(message: ChannelMsg, status: &mut ChannelStatus) -> Option<OutputChunk> {
    match message {
        ChannelMsg::Data { data } => return Some(OutputChunk::Stdout(data)),
        ChannelMsg::ExtendedData { data, ext: 1 } => return Some(OutputChunk::Stderr(data)),
        ChannelMsg::ExitStatus { exit_status } => status.exit_status = Some(exit_status),
        ChannelMsg::ExitSignal { signal_name, .. } => status.exit_signal = Some(format!("{signal_name:?}")),
        ChannelMsg::Eof => status.eof = true,
        ChannelMsg::Close => status.closed = true,
        ChannelMsg::Failure => status.refused = true,
        _ => {}
    }
    None
}

/// Tells the caller of a session whether it started.
pub(super) type StartSender = oneshot::Sender<Result<(), RemoteError>>;

pub(super) fn report_start(started: StartSender, how: Result<(), RemoteError>) {
    if started.send(how).is_err() {
        tracing::debug!("no task waits for this session any more");
    }
}
