//! An interactive session: a terminal if requested, the program, then bytes in both directions until it ends.
//!
//! Nothing is framed: input and output are passed through unchanged.

use russh::client::Msg;
use russh::{ChannelMsg, ChannelReadHalf, ChannelWriteHalf};
use tokio::sync::mpsc;
use tokio::time::Instant;

use super::script_session::{ChannelStatus, FinishedChannel, ScriptSession, StartSender, apply_channel_message, report_start};
use crate::remote::{ChannelInput, OutputChunk, PtySpec, RemoteError};

/// Connects the session with its caller.
pub(super) struct InteractiveEnds {
    pub(super) output: mpsc::Sender<OutputChunk>,
    pub(super) input: mpsc::Receiver<ChannelInput>,
    /// Reports whether the program started.
    pub(super) started: StartSender,
}

/// State before the start.
struct PendingStart {
    started: Option<StartSender>,
    /// Expected replies: one for the terminal, one for the program.
    pending_replies: usize,
    has_pty: bool,
}

impl ScriptSession {
    /// Runs a session to its end; returns how the program ended.
    pub(super) async fn run_interactive(
        &mut self,
        line: String,
        terminal: Option<PtySpec>,
        ends: InteractiveEnds,
    ) -> Result<i32, RemoteError> {
        let InteractiveEnds { output, input, started } = ends;
        let (mut read, write) = match self.open().await {
            Ok(channel) => channel.split(),
            Err(error) => {
                report_start(started, Err(error.clone()));
                return Err(error);
            }
        };
        let mut end = ChannelStatus::default();
        let answers = 1 + usize::from(terminal.is_some());
        let mut start = PendingStart { started: Some(started), pending_replies: answers, has_pty: terminal.is_some() };
        let how = tokio::select! {
            how = self.forward_output(&mut read, &mut end, &mut start, &output) => how,
            () = send_input(&write, line, terminal, input) => Err(self.truncated_error(&ChannelStatus::default(), &[], &[])),
        };
        if let (Some(started), Err(error)) = (start.started.take(), &how) {
            report_start(started, Err(error.clone()));
        }
        let kill = !end.has_exited();
        self.close_channel(FinishedChannel { read, write, status: end, kill, scanner: None }).await;
        how
    }

    /// Forwards output until the channel is closed or the receiver is dropped.
    async fn forward_output(
        &self,
        read: &mut ChannelReadHalf,
        status: &mut ChannelStatus,
        start: &mut PendingStart,
        output: &mpsc::Sender<OutputChunk>,
    ) -> Result<i32, RemoteError> {
        loop {
            let begun = start.started.is_none();
            let message = tokio::select! {
                biased;
                message = read.wait() => message,
                () = self.connection.closed.cancelled() => None,
                () = output.closed() => return Err(self.truncated_error(status, &[], &[])),
                () = sleep_until_deadline((!begun).then(|| self.deadline())) => return Err(self.timeout_error()),
            };
            let message = message.ok_or_else(|| self.connection.lost_error())?;
            if let ChannelMsg::Success = message {
                start.pending_replies = start.pending_replies.saturating_sub(1);
                if start.pending_replies == 0
                    && let Some(started) = start.started.take()
                {
                    report_start(started, Ok(()));
                }
            }
            let chunk = match apply_channel_message(message, status) {
                Some(chunk) => chunk,
                None if status.refused && !begun => return Err(self.start_refusal(start)),
                None if status.closed => return status.exit_code().ok_or_else(|| self.truncated_error(status, &[], &[])),
                None => continue,
            };
            if output.send(chunk).await.is_err() {
                return Err(self.truncated_error(status, &[], &[]));
            }
        }
    }

    /// The error for a refused request: the terminal is requested first.
    fn start_refusal(&self, start: &PendingStart) -> RemoteError {
        if start.has_pty && start.pending_replies == 2 {
            return RemoteError::refused(
                "sshd refused to allocate a terminal",
                "set PermitTTY yes in sshd_config and remove `no-pty` from the key in authorized_keys; or append `| cat` to run without a terminal",
            );
        }
        self.no_shell_error()
    }
}

async fn sleep_until_deadline(when: Option<Instant>) {
    match when {
        Some(when) => tokio::time::sleep_until(when).await,
        None => std::future::pending().await,
    }
}

/// Requests the terminal and the program, then forwards input; ends when the sender is dropped.
async fn send_input(write: &ChannelWriteHalf<Msg>, line: String, terminal: Option<PtySpec>, mut input: mpsc::Receiver<ChannelInput>) {
    let begin = async {
        if let Some(PtySpec { term, columns, rows }) = terminal {
            write.request_pty(true, &term, columns.into(), rows.into(), 0, 0, &[]).await?;
        }
        write.exec(true, line).await
    };
    if let Err(error) = begin.await {
        tracing::debug!(%error, "a session did not start");
        return;
    }
    while let Some(message) = input.recv().await {
        let sent = match message {
            ChannelInput::Bytes(bytes) => write.data_bytes(bytes).await,
            ChannelInput::Resize(columns, rows) => write.window_change(columns.into(), rows.into(), 0, 0).await,
            ChannelInput::Eof => write.eof().await,
        };
        if let Err(error) = sent {
            tracing::debug!(%error, "a session takes no more input");
            // Its output may still arrive.
            input.close();
            std::future::pending::<()>().await;
        }
    }
}
