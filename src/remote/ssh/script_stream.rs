//! A stream: begin mark, then bytes in both directions until either side ends it.
//!
//! One task handles both directions, and neither waits for the other.

use bytes::Bytes;
use russh::client::Msg;
use russh::{ChannelReadHalf, ChannelWriteHalf};
use tokio::sync::mpsc;
use tokio_util::sync::CancellationToken;

use super::framing::{BeginMarkScanner, push_tail};
use super::script_session::{
    ChannelStatus, FinishedChannel, ScriptSession, StartSender, apply_channel_message, report_start, start_script,
};
use crate::remote::byte_channel::ByteSender;
use crate::remote::{OutputChunk, RemoteError};

/// State of a stream besides its bytes.
struct StreamState {
    scanner: BeginMarkScanner,
    status: ChannelStatus,
    stderr: Vec<u8>,
}

impl ScriptSession {
    /// Runs a stream until it ends or its receiver is dropped. `started` reports whether the begin mark arrived.
    pub(super) async fn run_stream(
        &mut self,
        script: String,
        output: ByteSender<RemoteError>,
        input: mpsc::Receiver<Bytes>,
        mut started: StartSender,
    ) {
        let (mut read, write) = match self.open().await {
            Ok(channel) => channel.split(),
            Err(error) => {
                report_start(started, Err(error));
                return;
            }
        };
        let begun = CancellationToken::new();
        let mut state = StreamState { scanner: BeginMarkScanner::new(&self.frame), status: ChannelStatus::default(), stderr: Vec::new() };
        let reading = async {
            match self.wait_for_begin_mark(&mut read, &mut state, &mut started).await {
                Ok(Some(rest)) => {
                    report_start(started, Ok(()));
                    begun.cancel();
                    if rest.is_empty() || output.send(rest, |max| self.flood_error(max)) {
                        self.forward_stream(&mut read, &output, &mut state).await;
                    }
                }
                Ok(None) => {}
                Err(error) => report_start(started, Err(error)),
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
                () = self.connection.closed.cancelled() => None,
            };
            let Some(message) = message else {
                output.fail(self.connection.lost_error());
                return;
            };
            match apply_channel_message(message, end) {
                Some(OutputChunk::Stdout(bytes)) => {
                    let has_room = output.send(bytes, |max| self.flood_error(max));
                    if !has_room {
                        return;
                    }
                }
                Some(OutputChunk::Stderr(bytes)) => push_tail(stderr, &bytes),
                None => {}
            }
            if end.closed {
                if end.exit_status != Some(0) {
                    output.fail(self.truncated_error(end, stderr, &[]));
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
        started: &mut StartSender,
    ) -> Result<Option<Bytes>, RemoteError> {
        let StreamState { scanner, status: end, stderr } = state;
        loop {
            let message = tokio::select! {
                biased;
                message = read.wait() => message,
                () = self.connection.closed.cancelled() => None,
                () = started.closed() => return Ok(None),
                () = tokio::time::sleep_until(self.deadline()) => return Err(self.timeout_error()),
            };
            let message = message.ok_or_else(|| self.connection.lost_error())?;
            match apply_channel_message(message, end) {
                Some(OutputChunk::Stdout(bytes)) => {
                    if let Some(rest) = scanner.push(&bytes) {
                        return Ok(Some(rest.into()));
                    }
                }
                Some(OutputChunk::Stderr(bytes)) => push_tail(stderr, &bytes),
                None => {}
            }
            if end.refused {
                return Err(self.no_shell_error());
            }
            if end.closed {
                return Err(self.truncated_error(end, stderr, scanner.noise()));
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
