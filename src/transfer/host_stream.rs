//! One session with `assets/transfer.sh` on a host: command lines and data in one direction, answers and bulk data in the other.

use std::collections::VecDeque;
use std::time::Duration;

use bytes::{Bytes, BytesMut};
use tokio::sync::mpsc;

use super::content_pieces::as_u64;
use super::error::TransferError;
use super::host_hello::{HostHello, parse_hello};
use crate::model::remote_command::RemoteCommand;
use crate::plan::host_context::TOOL_PATH_SH;
use crate::remote::{ByteReceiver, Remote, RemoteError};
use crate::text::shell_quote::{join_quoted, quote, quote_home};

const SCRIPT: &str = include_str!("../../assets/transfer.sh");
/// A host that neither accepts nor sends a byte for this time has failed; long steps report every 20 s.
const STALL_LIMIT: Duration = Duration::from_secs(120);
/// Reports of one long step: the script writes one each 20 s, for an hour at most.
const MAX_REPORTS: u32 = 180;
/// How often a host that only reports may take nothing for the stall limit: an hour.
const MAX_STALLS: u32 = 30;
/// Pieces of output that are read while a session ends.
const MAX_LAST_PIECES: usize = 1_000;
/// How long the script may take to start.
const START_LIMIT: Duration = Duration::from_secs(60);
/// Bulk data is acknowledged in these frames; the script sends at most 3 without.
const FRAME_BYTES: u64 = 2 << 20;
/// More than the unacknowledged frames.
const OUTPUT_LIMIT: usize = 8 << 20;
/// Small writes are joined up to this size.
pub(crate) const CHUNK_BYTES: usize = 64 << 10;
const MAX_LINE_BYTES: usize = 4 << 10;

/// A directory of a host.
#[derive(Debug, Clone)]
pub(crate) struct HostDirectory {
    /// Absolute, or `~` or `~/…` for the ssh user's home.
    pub(crate) path: String,
    /// Words before `sh -c SCRIPT` that run it in a container, which the last one names: `docker exec -i NAME`. Empty: on the host.
    pub(crate) enter: Vec<String>,
}

impl HostDirectory {
    /// A directory of the host itself.
    pub(crate) fn on_host(path: impl Into<String>) -> Self {
        HostDirectory { path: path.into(), enter: Vec::new() }
    }

    fn script(&self, nonce: &str) -> String {
        let script = format!("root={} nonce={nonce}\n{SCRIPT}", quote_home(&self.path, quote));
        if self.enter.is_empty() { script } else { format!("{TOOL_PATH_SH}exec {} sh -c {}", join_quoted(&self.enter), quote(&script)) }
    }
}

pub(crate) struct HostStream {
    input: mpsc::Sender<Bytes>,
    output: ByteReceiver<RemoteError>,
    outgoing: BytesMut,
    incoming: BytesMut,
    /// Why the output ended, received while bytes before it wait in `incoming`.
    early_error: Option<RemoteError>,
    bulk_bytes: u64,
    acknowledged: u64,
    expected: VecDeque<&'static str>,
    nonce: String,
    /// The container in which the script runs.
    container: Option<String>,
    pub(super) stall_limit: Duration,
}

impl HostStream {
    /// Starts a session. `nonce`: random hex.
    ///
    /// # Errors
    /// The host cannot be reached, or lacks a tool.
    pub(crate) async fn open(
        remote: &dyn Remote,
        directory: &HostDirectory,
        nonce: &str,
    ) -> Result<(HostStream, HostHello), TransferError> {
        let command = RemoteCommand::from_script("transfer files", directory.script(nonce), START_LIMIT).with_output_limit(OUTPUT_LIMIT);
        let container = directory.enter.last().cloned();
        let stream = remote.open_stream(&command).await.map_err(|error| TransferError::of_session(error, container.as_deref()))?;
        let mut stream = HostStream::new(stream.input, stream.output, nonce, container);
        let line = stream.read_line().await?;
        let hello = parse_hello(&line)?;
        Ok((stream, hello))
    }

    fn new(input: mpsc::Sender<Bytes>, output: ByteReceiver<RemoteError>, nonce: &str, container: Option<String>) -> Self {
        HostStream {
            input,
            output,
            outgoing: BytesMut::new(),
            incoming: BytesMut::new(),
            early_error: None,
            bulk_bytes: 0,
            acknowledged: 0,
            expected: VecDeque::new(),
            nonce: nonce.to_owned(),
            container,
            stall_limit: STALL_LIMIT,
        }
    }

    pub(crate) fn nonce(&self) -> &str {
        &self.nonce
    }

    /// Queues bytes; small ones are joined.
    pub(crate) async fn send(&mut self, bytes: &[u8]) -> Result<(), TransferError> {
        self.outgoing.extend_from_slice(bytes);
        if self.outgoing.len() >= CHUNK_BYTES { self.flush().await } else { Ok(()) }
    }

    /// Sends shared bytes without a copy, unless they are few.
    pub(crate) async fn send_shared(&mut self, bytes: Bytes) -> Result<(), TransferError> {
        if bytes.len() < CHUNK_BYTES / 4 {
            return self.send(&bytes).await;
        }
        self.flush().await?;
        self.send_now(bytes).await
    }

    pub(crate) async fn flush(&mut self) -> Result<(), TransferError> {
        if self.outgoing.is_empty() {
            return Ok(());
        }
        let bytes = self.outgoing.split().freeze();
        self.send_now(bytes).await
    }

    async fn send_now(&mut self, bytes: Bytes) -> Result<(), TransferError> {
        if self.offer(bytes).await? { Ok(()) } else { Err(self.reason_for_end().await) }
    }

    /// Sends them, unless the session has ended. A host that works on what it has takes nothing for a while, but reports.
    async fn offer(&mut self, bytes: Bytes) -> Result<bool, TransferError> {
        for _ in 0..MAX_STALLS {
            let waiting = tokio::time::timeout(self.stall_limit, self.input.clone().reserve_owned()).await;
            match waiting {
                Ok(Ok(room)) => {
                    room.send(bytes);
                    return Ok(true);
                }
                Ok(Err(_)) => return Ok(false),
                Err(_) if self.has_reported().await? => {}
                Err(_) if self.early_error.is_some() => return Ok(false),
                Err(_) => return Err(stalled("took")),
            }
        }
        Err(endless_step())
    }

    /// Whether anything arrived that was not read yet.
    async fn has_reported(&mut self) -> Result<bool, TransferError> {
        let before = self.incoming.len();
        while let Ok(Some(received)) = tokio::time::timeout(Duration::from_millis(1), self.output.recv()).await {
            match received {
                Ok(bytes) => self.incoming.extend_from_slice(&bytes),
                Err(error) => self.early_error = Some(error),
            }
            if self.incoming.len() > OUTPUT_LIMIT {
                return Err(TransferError::protocol("more output than was asked for"));
            }
        }
        Ok(self.incoming.len() > before)
    }

    /// A command whose answer `word` is read later, in order.
    pub(crate) async fn command(&mut self, line: &str, word: &'static str) -> Result<(), TransferError> {
        self.expected.push_back(word);
        self.send(line.as_bytes()).await?;
        self.send(b"\n").await
    }

    /// Reads the answers of every command so far; returns the fields of the last one.
    pub(crate) async fn answer(&mut self) -> Result<String, TransferError> {
        self.wait_for_answers(0).await
    }

    /// Reads answers until at most `open` commands wait for theirs, which bounds what a host has to keep.
    pub(crate) async fn wait_for_answers(&mut self, open: usize) -> Result<String, TransferError> {
        let mut fields = String::new();
        if self.expected.len() > open {
            self.flush().await?;
        }
        while self.expected.len() > open
            && let Some(word) = self.expected.pop_front()
        {
            let line = self.read_line().await?;
            fields = match line.strip_prefix(word) {
                Some(rest) => rest.trim_start().to_owned(),
                None => {
                    return Err(TransferError::protocol(format!(
                        "`{}` instead of `{word}`",
                        super::entry::printable_bytes(line.as_bytes())
                    )));
                }
            };
        }
        Ok(fields)
    }

    /// A command that bulk data answers.
    pub(crate) async fn bulk_command(&mut self, line: &str, body: &[u8]) -> Result<(), TransferError> {
        (self.bulk_bytes, self.acknowledged) = (0, 0);
        self.send(line.as_bytes()).await?;
        self.send(b"\n").await?;
        self.send(body).await?;
        self.flush().await
    }

    /// The next bytes of bulk data.
    pub(crate) async fn read_bulk(&mut self) -> Result<Bytes, TransferError> {
        let bytes = if self.incoming.is_empty() { self.receive().await? } else { self.incoming.split().freeze() };
        self.bulk_bytes += as_u64(bytes.len());
        if self.bulk_bytes / FRAME_BYTES > self.acknowledged {
            self.acknowledged = self.bulk_bytes / FRAME_BYTES;
            let line = Bytes::from(format!("{}\n", self.acknowledged));
            // Where the session has ended, the reason follows the bytes that are still to be read.
            self.offer(line).await?;
        }
        Ok(bytes)
    }

    /// Gives back bytes that follow the bulk data.
    pub(crate) fn unread(&mut self, bytes: &[u8]) {
        self.incoming = [bytes, &self.incoming].concat().as_slice().into();
    }

    /// The next line; the host's complaint is an error.
    pub(crate) async fn read_line(&mut self) -> Result<String, TransferError> {
        let mut reports = 0;
        loop {
            if let Some(end) = memchr::memchr(b'\n', &self.incoming) {
                let line = self.incoming.split_to(end + 1);
                let line = String::from_utf8_lossy(&line).trim_end_matches('\n').to_owned();
                match line.strip_prefix("F ") {
                    Some(complaint) => return Err(TransferError::from_host(complaint)),
                    None if line == "K" && reports == MAX_REPORTS => return Err(endless_step()),
                    None if line == "K" => {
                        reports += 1;
                        continue;
                    }
                    None => return Ok(line),
                }
            }
            if self.incoming.len() > MAX_LINE_BYTES {
                return Err(TransferError::protocol("a line without end"));
            }
            let bytes = self.receive().await?;
            self.incoming.extend_from_slice(&bytes);
        }
    }

    async fn receive(&mut self) -> Result<Bytes, TransferError> {
        if let Some(error) = self.early_error.take() {
            return Err(self.session_error(error));
        }
        match tokio::time::timeout(self.stall_limit, self.output.recv()).await {
            Ok(Some(Ok(bytes))) => Ok(bytes),
            Ok(Some(Err(error))) => Err(self.session_error(error)),
            Ok(None) => Err(TransferError {
                unreachable: true,
                ..TransferError::new("the session ended early", "run the same command again: what is complete stays")
            }),
            Err(_) => Err(stalled("sent")),
        }
    }

    fn session_error(&self, error: RemoteError) -> TransferError {
        TransferError::of_session(error, self.container.as_deref())
    }

    /// Why a host accepts no more data: its last message.
    async fn reason_for_end(&mut self) -> TransferError {
        for _ in 0..MAX_LAST_PIECES {
            if let Err(error) = self.read_line().await {
                return error;
            }
        }
        TransferError::protocol("output without end")
    }

    /// Ends the session: the host removes what it kept for it.
    pub(crate) async fn finish(mut self) -> Result<(), TransferError> {
        self.answer().await?;
        self.flush().await?;
        self.send(b"Z\n").await?;
        self.flush().await?;
        if let Some(error) = self.early_error.take() {
            return Err(self.session_error(error));
        }
        let mut left = OUTPUT_LIMIT;
        for _ in 0..MAX_LAST_PIECES {
            match tokio::time::timeout(self.stall_limit, self.output.recv()).await {
                Ok(Some(Ok(bytes))) if bytes.len() <= left => left -= bytes.len(),
                Ok(Some(Ok(_))) => break,
                Ok(None) => return Ok(()),
                Ok(Some(Err(error))) => return Err(self.session_error(error)),
                Err(_) => return Err(stalled("sent")),
            }
        }
        Err(TransferError::protocol("output without end"))
    }
}

/// A host that reports for longer than the script does.
fn endless_step() -> TransferError {
    TransferError::new(
        "the host reports for more than an hour that it works, without a result",
        "check its disk, then run the same command again",
    )
}

fn stalled(verb: &str) -> TransferError {
    let what = format!("the host {verb} nothing for {} s", STALL_LIMIT.as_secs());
    let hint = "check its disk and network, then run the same command again: what is complete stays";
    TransferError { unreachable: true, ..TransferError::new(what, hint) }
}

#[cfg(test)]
mod tests;
