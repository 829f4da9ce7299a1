//! A stream's life: begin mark, then bytes both ways, until either side ends it.
//!
//! Uses `session`. One task holds both directions, and neither waits for the other.

use bytes::Bytes;
use russh::client::Msg;
use russh::{ChannelMsg, ChannelReadHalf, ChannelWriteHalf};
use tokio::sync::{mpsc, oneshot};
use tokio_util::sync::CancellationToken;

use super::collect::{Bounded, Opening};
use super::session::{End, Job, Rest, Said, note, send};
use crate::remote::RemoteError;
use crate::remote::inflow::InflowSender;

/// What is kept of a stream's standard error, for its last words.
const LAST_WORDS: usize = 4 << 10;

type Started = oneshot::Sender<Result<(), RemoteError>>;

impl Job {
    /// Runs a stream until it ends or nobody reads it any more. `started` hears whether its begin mark came.
    pub(super) async fn stream(
        &mut self,
        script: String,
        output: InflowSender<RemoteError>,
        input: mpsc::Receiver<Bytes>,
        started: Started,
    ) {
        let (mut read, write) = match self.open().await {
            Ok(channel) => channel.split(),
            Err(error) => {
                report(started, Err(error));
                return;
            }
        };
        let begun = CancellationToken::new();
        let mut opening = Opening::new(&self.frame);
        let end = tokio::select! {
            end = self.read(&mut read, &mut opening, output, started, &begun) => end,
            () = feed(&write, script, input, &begun) => End::default(),
        };
        let kill = !end.over();
        self.finish(Rest { read, write, end, kill, opening: Some(opening) }).await;
    }

    async fn read(
        &self,
        read: &mut ChannelReadHalf,
        opening: &mut Opening,
        output: InflowSender<RemoteError>,
        started: Started,
        begun: &CancellationToken,
    ) -> End {
        let (mut end, mut stderr) = (End::default(), Bounded::default());
        let mut started = started;
        let begin = self.begin(read, opening, &mut started, &mut end, &mut stderr).await;
        let rest = match begin {
            Ok(Some(rest)) => rest,
            Ok(None) => return end,
            Err(error) => {
                report(started, Err(error));
                return end;
            }
        };
        begun.cancel();
        report(started, Ok(()));
        if rest.is_empty() || output.send(rest, |most| self.flooded(most)) {
            self.pass_on(read, &output, &mut end, &mut stderr).await;
        }
        end
    }

    fn flooded(&self, most: usize) -> RemoteError {
        let what = format!("`{}`: the host sent {} KiB more than was asked for: it is cut off", self.title, most >> 10);
        RemoteError::Protocol { what }
    }

    /// Passes on what comes until either side has enough.
    async fn pass_on(&self, read: &mut ChannelReadHalf, output: &InflowSender<RemoteError>, end: &mut End, stderr: &mut Bounded) {
        loop {
            let message = tokio::select! {
                biased;
                message = read.wait() => message,
                () = output.closed() => return,
                () = self.dead.cancelled() => None,
            };
            let Some(message) = message else {
                output.fail(self.lost());
                return;
            };
            match note(message, end) {
                Said::Out(bytes) => {
                    if !output.send(bytes, |most| self.flooded(most)) {
                        return;
                    }
                }
                Said::Err(bytes) => stderr.roll(&bytes, LAST_WORDS),
                Said::Nothing => {}
            }
            if end.closed {
                if end.status != Some(0) {
                    output.fail(self.cut_off(end, &stderr.bytes, &[]));
                }
                return;
            }
        }
    }

    /// Waits for the begin mark; gives what came behind it, or nothing when nobody waits any more.
    async fn begin(
        &self,
        read: &mut ChannelReadHalf,
        opening: &mut Opening,
        started: &mut Started,
        end: &mut End,
        stderr: &mut Bounded,
    ) -> Result<Option<Bytes>, RemoteError> {
        loop {
            let message: Option<ChannelMsg> = tokio::select! {
                biased;
                message = read.wait() => message,
                () = self.dead.cancelled() => None,
                () = started.closed() => return Ok(None),
                () = tokio::time::sleep_until(self.deadline()) => return Err(self.late()),
            };
            let message = message.ok_or_else(|| self.lost())?;
            match note(message, end) {
                Said::Out(bytes) => {
                    if let Some(rest) = opening.push(&bytes) {
                        return Ok(Some(rest.into()));
                    }
                }
                Said::Err(bytes) => stderr.roll(&bytes, LAST_WORDS),
                Said::Nothing => {}
            }
            if end.refused {
                return Err(self.no_shell());
            }
            if end.closed {
                return Err(self.cut_off(end, &stderr.bytes, opening.noise()));
            }
        }
    }
}

/// Writes the script and, once its begin mark was seen, whatever comes. Never ends by itself unless the channel is gone.
async fn feed(write: &ChannelWriteHalf<Msg>, script: String, mut input: mpsc::Receiver<Bytes>, begun: &CancellationToken) {
    let feeding = async {
        send(write, script).await?;
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

fn report(started: Started, how: Result<(), RemoteError>) {
    if started.send(how).is_err() {
        tracing::debug!("nobody waits for this stream any more");
    }
}
