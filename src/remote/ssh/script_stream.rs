//! A stream: begin mark, then bytes in both directions until either side ends it.
//!
//! One task handles both directions, and neither waits for the other.

use bytes::Bytes;
use russh::client::Msg;
use russh::{ChannelMsg, ChannelReadHalf, ChannelWriteHalf};
use tokio::sync::{mpsc, oneshot};
use tokio_util::sync::CancellationToken;

use super::framing::{BeginMarkScanner, BoundedBuffer};
use super::script_session::{ChannelOutput, ChannelStatus, FinishedChannel, ScriptSession, apply_channel_message, start_script};
use crate::remote::RemoteError;
use crate::remote::byte_channel::ByteSender;

/// Bytes of standard error kept, for error messages.
const STDERR_TAIL_BYTES: usize = 4 << 10;

/// State of a stream besides its bytes.
struct StreamState {
    scanner: BeginMarkScanner,
    status: ChannelStatus,
    stderr: BoundedBuffer,
}

type StreamStartSender = oneshot::Sender<Result<(), RemoteError>>;

impl ScriptSession {
    /// Runs a stream until it ends or its receiver is dropped. `started` reports whether the begin mark arrived.
    pub(super) async fn run_stream(
        &mut self,
        script: String,
        output: ByteSender<RemoteError>,
        input: mpsc::Receiver<Bytes>,
        started: StreamStartSender,
    ) {
        let (mut read, write) = match self.open().await {
            Ok(channel) => channel.split(),
            Err(error) => {
                report_start(started, Err(error));
                return;
            }
        };
        let begun = CancellationToken::new();
        let mut state =
            StreamState { scanner: BeginMarkScanner::new(&self.frame), status: ChannelStatus::default(), stderr: BoundedBuffer::default() };
        let reading = async {
            if let Some(rest) = self.start_reading(&mut read, &mut state, started).await {
                begun.cancel();
                if rest.is_empty() || output.send(rest, |most| self.flood_error(most)) {
                    self.forward_stream(&mut read, &output, &mut state).await;
                }
            }
        };
        tokio::select! {
            () = reading => {}
            () = write_input(&write, script, input, &begun) => {}
        }
        drop(output);
        let kill = !state.status.has_exited();
        self.close_channel(FinishedChannel { read, write, status: state.status, kill, scanner: Some(state.scanner) }).await;
    }

    /// Reads to the begin mark and reports the start; returns the bytes after the mark, or `None` at the end.
    async fn start_reading(&self, read: &mut ChannelReadHalf, state: &mut StreamState, mut started: StreamStartSender) -> Option<Bytes> {
        match self.wait_for_begin_mark(read, state, &mut started).await {
            Ok(Some(rest)) => {
                report_start(started, Ok(()));
                Some(rest)
            }
            Ok(None) => None,
            Err(error) => {
                report_start(started, Err(error));
                None
            }
        }
    }

    fn flood_error(&self, max: usize) -> RemoteError {
        let what = format!("`{}`: the host sent {} KiB more than requested; the stream was closed", self.title, max >> 10);
        RemoteError::Protocol { what }
    }

    /// Forwards output until either side ends.
    async fn forward_stream(&self, read: &mut ChannelReadHalf, output: &ByteSender<RemoteError>, state: &mut StreamState) {
        let StreamState { status: end, stderr, .. } = state;
        loop {
            let message = tokio::select! {
                biased;
                message = read.wait() => message,
                () = output.wait_closed() => return,
                () = self.connection_closed.cancelled() => None,
            };
            let Some(message) = message else {
                output.fail(self.lost_error());
                return;
            };
            match apply_channel_message(message, end) {
                ChannelOutput::Stdout(bytes) => {
                    if !output.send(bytes, |most| self.flood_error(most)) {
                        return;
                    }
                }
                ChannelOutput::Stderr(bytes) => stderr.push_rolling(&bytes, STDERR_TAIL_BYTES),
                ChannelOutput::Empty => {}
            }
            if end.closed {
                if end.exit_status != Some(0) {
                    output.fail(self.truncated_error(end, &stderr.bytes, &[]));
                }
                return;
            }
        }
    }

    /// Waits for the begin mark; returns the bytes after it, or `None` if the receiver was dropped.
    async fn wait_for_begin_mark(
        &self,
        read: &mut ChannelReadHalf,
        state: &mut StreamState,
        started: &mut StreamStartSender,
    ) -> Result<Option<Bytes>, RemoteError> {
        let StreamState { scanner: opening, status: end, stderr } = state;
        loop {
            let message: Option<ChannelMsg> = tokio::select! {
                biased;
                message = read.wait() => message,
                () = self.connection_closed.cancelled() => None,
                () = started.closed() => return Ok(None),
                () = tokio::time::sleep_until(self.deadline()) => return Err(self.timeout_error()),
            };
            let message = message.ok_or_else(|| self.lost_error())?;
            match apply_channel_message(message, end) {
                ChannelOutput::Stdout(bytes) => {
                    if let Some(rest) = opening.push(&bytes) {
                        return Ok(Some(rest.into()));
                    }
                }
                ChannelOutput::Stderr(bytes) => stderr.push_rolling(&bytes, STDERR_TAIL_BYTES),
                ChannelOutput::Empty => {}
            }
            if end.refused {
                return Err(self.no_shell_error());
            }
            if end.closed {
                return Err(self.truncated_error(end, &stderr.bytes, opening.noise()));
            }
        }
    }
}

/// Sends the script and, after its begin mark, the input. Ends only with the channel.
async fn write_input(write: &ChannelWriteHalf<Msg>, script: String, mut input: mpsc::Receiver<Bytes>, begun: &CancellationToken) {
    let feeding = async {
        start_script(write, script).await?;
        begun.cancelled().await;
        while let Some(bytes) = input.recv().await {
            write.data_bytes(bytes).await?;
        }
        write.eof().await
    };
    if let Err(error) = feeding.await {
        tracing::debug!(%error, "a stream takes no more input");
        input.close();
    }
    std::future::pending::<()>().await;
}

fn report_start(started: StreamStartSender, how: Result<(), RemoteError>) {
    if started.send(how).is_err() {
        tracing::debug!("no task waits for this stream any more");
    }
}
