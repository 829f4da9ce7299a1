//! Follows the logs of a run: one stream a host, by byte offset, resumed where it broke off; what is on the laptop's disk is acknowledged.

use std::collections::{BTreeSet, HashMap};
use std::sync::Arc;
use std::time::Duration;

use bytes::Bytes;
use tokio::sync::mpsc;
use tokio::time::Instant;

use crate::engine::host_connection::HostConnection;
use crate::engine::log_stream_event::LogStreamEvent;
use crate::engine::log_stream_reporting::{describe_appender_problem, describe_missing_bytes, describe_unexpected_file, emit_stream_event};
use crate::event::EventKind;
use crate::model::log_file::{LogFile, MAX_LOG_CHUNK_BYTES};
use crate::plan::host_context::HostContext;
use crate::plan::protocol::log_frames;
use crate::plan::protocol::log_frames::{LogFrame, LogFrameReader, LogStreamPurpose};
use crate::remote::{RemoteError, RemoteStream};

/// What the laptop already has of each file of a host.
pub(crate) type LogOffsets = Arc<dyn Fn(usize) -> Vec<(LogFile, u64)> + Send + Sync>;

/// A stream that is silent for this time is dead: it sends a heartbeat every 5 s.
const SILENCE_TIMEOUT: Duration = Duration::from_secs(30);
/// How often this laptop's disk is checked for free space; doubled when it has space but a write still fails.
pub(super) const DISK_SPACE_POLL_INTERVAL: Duration = Duration::from_secs(5);
/// The most logs of one host: as many as `assets/follow.sh` looks at, and the launcher's.
const MAX_LOG_FILES: usize = 4097;

/// Why a stream ended early.
#[derive(Debug)]
pub(crate) enum LogStreamError {
    Remote(RemoteError),
    NotStored,
}

/// What a fetch brought.
#[derive(Debug, Default, Clone, PartialEq, Eq)]
pub(crate) struct FetchedLogs {
    pub bytes: u64,
    /// Files that shrank on the host meanwhile: what was in them before may be lost.
    pub truncated_files: BTreeSet<LogFile>,
}

/// Receives what a stream delivers.
pub(super) enum StreamEventTarget<'a> {
    /// The follower; it ends before its watchers.
    Follower(&'a mpsc::Sender<LogStreamEvent>),
    /// The event stream alone.
    Emitter,
}

/// One request to a host.
#[derive(Clone, Copy)]
pub(super) struct StreamRequest {
    /// Of how many hosts this is one.
    pub(super) host_count: usize,
    pub(super) purpose: LogStreamPurpose,
    /// Starts and ends alone, without the logs: this laptop cannot store them. How often it is looked whether it can.
    pub(super) without_logs_poll: Option<Duration>,
}

/// How a stream ended.
pub(super) enum StreamEnd {
    /// There is nothing more.
    Complete(FetchedLogs),
    /// The laptop's disk has room again.
    DiskSpaceAvailable,
}

/// One pass over a host's stream.
struct LogStreamSession<'a> {
    connection: &'a HostConnection,
    host: &'a HostContext,
    stream: RemoteStream,
    offsets: &'a mut HashMap<LogFile, u64>,
    sink: StreamEventTarget<'a>,
    without_logs_poll: Option<Duration>,
    truncated_files: BTreeSet<LogFile>,
    /// Files whose end was reached.
    current_files: BTreeSet<LogFile>,
    /// Files of which more follows.
    growing_files: BTreeSet<LogFile>,
    received_bytes: u64,
    ack_count: u64,
}

/// Fetches what is there and the laptop lacks.
///
/// # Errors
/// The connection, or the laptop's disk.
pub(crate) async fn fetch_logs(
    connection: &Arc<HostConnection>,
    context: &HostContext,
    offsets: &LogOffsets,
    hosts: usize,
) -> Result<FetchedLogs, LogStreamError> {
    let mut have: HashMap<LogFile, u64> = offsets(connection.host_index()).into_iter().collect();
    let wanted = StreamRequest { host_count: hosts, purpose: LogStreamPurpose::Fetch, without_logs_poll: None };
    let mut all = FetchedLogs::default();
    let begun = Instant::now();
    for place in std::iter::once(context.clone()).chain(context.host_task_context()) {
        match run_stream_once(connection, &place, &mut have, wanted, StreamEventTarget::Emitter).await? {
            StreamEnd::Complete(mut fetched) => {
                all.bytes += fetched.bytes;
                all.truncated_files.append(&mut fetched.truncated_files);
            }
            StreamEnd::DiskSpaceAvailable => return Err(LogStreamError::NotStored),
        }
    }
    tracing::debug!(host = connection.host_index(), took_us = begun.elapsed().as_micros(), title = "fetch the logs", "answered");
    Ok(all)
}

pub(super) async fn run_stream_once(
    connection: &HostConnection,
    context: &HostContext,
    stored_lengths: &mut HashMap<LogFile, u64>,
    request: StreamRequest,
    target: StreamEventTarget<'_>,
) -> Result<StreamEnd, LogStreamError> {
    let offsets: Vec<(LogFile, u64)> = stored_lengths.iter().map(|(f, o)| (*f, *o)).collect();
    let command =
        log_frames::log_stream_command(context, &offsets, request.host_count, request.purpose, request.without_logs_poll.is_none());
    let stream = connection.open_stream(&command).await.map_err(LogStreamError::Remote)?;
    if context.cluster_job.is_some() {
        connection.report_reached();
    }
    let (shrunk, no_logs) = (BTreeSet::new(), request.without_logs_poll);
    LogStreamSession {
        connection,
        host: context,
        stream,
        offsets: stored_lengths,
        sink: target,
        without_logs_poll: no_logs,
        truncated_files: shrunk,
        current_files: BTreeSet::new(),
        growing_files: BTreeSet::new(),
        received_bytes: 0,
        ack_count: 0,
    }
    .read_until_end()
    .await
}

impl LogStreamSession<'_> {
    async fn read_until_end(&mut self) -> Result<StreamEnd, LogStreamError> {
        let mut reader = LogFrameReader::default();
        let mut silent = Instant::now() + SILENCE_TIMEOUT;
        let mut next_poll = Instant::now() + self.without_logs_poll.unwrap_or(DISK_SPACE_POLL_INTERVAL);
        loop {
            while let Some(frame) = reader.next_frame().map_err(|e| protocol_error(e.to_string()))? {
                if !self.handle_frame(frame).await? {
                    return Ok(self.take_fetched());
                }
            }
            tokio::select! {
                piece = self.stream.output.recv() => match piece {
                    Some(Ok(bytes)) => self.push_received(&mut reader, &bytes),
                    Some(Err(error)) => return Err(LogStreamError::Remote(error)),
                    None => return Err(connection_lost_error("the log stream ended".to_owned())),
                },
                () = tokio::time::sleep_until(silent) => return Err(connection_lost_error(format!("the log stream was silent for {} s", SILENCE_TIMEOUT.as_secs()))),
                () = tokio::time::sleep_until(next_poll), if self.without_logs_poll.is_some() => {
                    if self.connection.emitter().can_store_logs().await {
                        return Ok(StreamEnd::DiskSpaceAvailable);
                    }
                    next_poll = Instant::now() + DISK_SPACE_POLL_INTERVAL;
                    continue;
                }
            }
            silent = Instant::now() + SILENCE_TIMEOUT;
        }
    }

    /// Passes on what has arrived, up to one log chunk: each chunk is waited for until it is stored, and a packet is only an eighth of one.
    fn push_received(&mut self, reader: &mut LogFrameReader, first: &[u8]) {
        reader.push(first);
        while reader.buffered_bytes() < MAX_LOG_CHUNK_BYTES
            && let Some(more) = self.stream.output.try_recv()
        {
            reader.push(&more);
        }
    }

    fn take_fetched(&mut self) -> StreamEnd {
        StreamEnd::Complete(FetchedLogs { bytes: self.received_bytes, truncated_files: std::mem::take(&mut self.truncated_files) })
    }

    /// Forwards a report that is new; returns whether the receiver wants more.
    async fn forward_if_new(&self, event: LogStreamEvent) -> Result<bool, LogStreamError> {
        if !self.connection.is_first_report(&self.host.run_id, &event).map_err(protocol_error)? {
            return Ok(true);
        }
        match self.sink {
            StreamEventTarget::Follower(up) => Ok(up.send(event).await.is_ok()),
            StreamEventTarget::Emitter => {
                emit_stream_event(self.connection, &event);
                Ok(true)
            }
        }
    }

    fn report_current(&mut self, file: LogFile, is_current: bool) {
        if !is_current {
            self.growing_files.insert(file);
            return;
        }
        self.growing_files.remove(&file);
        if matches!(self.sink, StreamEventTarget::Follower(_)) && self.current_files.insert(file) {
            self.connection.emitter().send(EventKind::LogCurrent { host: self.connection.event_host_index(), file });
        }
    }

    /// A pass over all files precedes a heartbeat: of those that sent nothing this laptop has all.
    fn report_unsent_current(&mut self) {
        if self.without_logs_poll.is_some() {
            return;
        }
        let unsent: Vec<LogFile> = self.offsets.keys().copied().filter(|file| !self.growing_files.contains(file)).collect();
        unsent.into_iter().for_each(|file| self.report_current(file, true));
    }

    /// That a file can be one of this run: else a host could have any number of files made here.
    fn check_file_allowed(&self, file: LogFile) -> Result<(), LogStreamError> {
        match file {
            LogFile::Rank { rank, .. } if self.host.world_size > 0 && rank as usize >= self.host.world_size as usize => {
                Err(protocol_error(format!("the host reports rank {rank}, but the run has {}", self.host.world_size)))
            }
            _ if self.offsets.len() >= MAX_LOG_FILES && !self.offsets.contains_key(&file) => {
                Err(protocol_error(format!("the host sends more than {MAX_LOG_FILES} logs")))
            }
            _ => Ok(()),
        }
    }

    /// Handles a frame; returns whether to read on.
    async fn handle_frame(&mut self, frame: LogFrame) -> Result<bool, LogStreamError> {
        let host = self.connection.host_index();
        match frame {
            LogFrame::Data { .. } if self.without_logs_poll.is_some() => {
                Err(protocol_error("the host sends a log that was not asked for".to_owned()))
            }
            LogFrame::Data { file, offset, bytes, frame_end } => {
                self.check_file_allowed(file)?;
                self.store_log_bytes(file, offset, &bytes).await?;
                let end = offset + bytes.len() as u64;
                self.offsets.insert(file, end);
                self.received_bytes += bytes.len() as u64;
                if let Some(left) = frame_end {
                    self.acknowledge().await?;
                    self.report_current(file, left == 0);
                }
                self.forward_if_new(LogStreamEvent::Log(host, file, bytes)).await
            }
            LogFrame::Started(file, at) => {
                self.check_file_allowed(file)?;
                self.forward_if_new(LogStreamEvent::ProcessStarted(host, file, self.connection.to_local_time(at).0)).await
            }
            LogFrame::Ended(file, exit, at) => {
                self.check_file_allowed(file)?;
                let (when, uncertainty) = self.connection.to_local_time(at);
                self.forward_if_new(LogStreamEvent::ProcessEnded(host, file, exit, when, uncertainty)).await
            }
            LogFrame::Heartbeat { free_kib: free, total_kib: total } => {
                self.acknowledge().await?;
                self.report_unsent_current();
                self.connection.report_disk_space(free.saturating_mul(1024), total.saturating_mul(1024));
                Ok(true)
            }
            LogFrame::LostBytes { file, kind, offset, min_bytes: least, max_bytes: most } => {
                self.connection.warn_once(describe_missing_bytes(file, &kind, (offset, least, most)));
                Ok(true)
            }
            LogFrame::AppenderWarning(file, text) => {
                self.connection.warn_once(describe_appender_problem(file, &text));
                Ok(true)
            }
            LogFrame::SuspiciousFile(word, name) => {
                self.connection.warn_once(describe_unexpected_file(&word, &name));
                Ok(true)
            }
            LogFrame::Truncated { file, size } => {
                self.check_file_allowed(file)?;
                self.handle_truncated_file(file, size).await?;
                Ok(true)
            }
            LogFrame::NoRunDirectory => {
                self.forward_if_new(LogStreamEvent::RunMissing(host)).await?;
                Ok(false)
            }
            LogFrame::Complete => Ok(false),
        }
    }

    /// A file is shorter than what came of it: the copy so far is kept beside, and the file comes again from its first byte.
    async fn handle_truncated_file(&mut self, file: LogFile, size: u64) -> Result<(), LogStreamError> {
        self.send_and_wait_stored(EventKind::LogTruncated { host: self.connection.event_host_index(), file, size }).await?;
        self.offsets.insert(file, 0);
        self.truncated_files.insert(file);
        Ok(())
    }

    async fn store_log_bytes(&self, file: LogFile, offset: u64, bytes: &Bytes) -> Result<(), LogStreamError> {
        self.send_and_wait_stored(EventKind::log(self.connection.event_host_index(), file, offset, bytes.clone())).await
    }

    /// Hands an event up and waits until it is stored.
    async fn send_and_wait_stored(&self, kind: EventKind) -> Result<(), LogStreamError> {
        if self.connection.emitter().send_and_wait_stored(kind).await { Ok(()) } else { Err(LogStreamError::NotStored) }
    }

    async fn acknowledge(&mut self) -> Result<(), LogStreamError> {
        self.ack_count += 1;
        let line = Bytes::from(format!("{} {}\n", self.received_bytes, self.ack_count));
        let sent = tokio::time::timeout(SILENCE_TIMEOUT, self.stream.input.send(line)).await;
        if matches!(sent, Ok(Ok(()))) { Ok(()) } else { Err(connection_lost_error("the log stream takes no acknowledgement".to_owned())) }
    }
}

fn connection_lost_error(what: String) -> LogStreamError {
    LogStreamError::Remote(RemoteError::Lost { what, hint: String::new(), retry: true })
}

fn protocol_error(what: String) -> LogStreamError {
    LogStreamError::Remote(RemoteError::Protocol { what })
}
