//! The way to one host: connected when first needed, connected again after a loss, its clock compared with ours.

use std::collections::HashSet;
use std::sync::Arc;
use std::sync::atomic::{AtomicBool, AtomicI64, Ordering};
use std::time::Duration;

use tokio::sync::{Mutex, mpsc};
use tokio::time::Instant;

use crate::engine::emitter::{Emitter, now_unix_millis};
use crate::engine::log_stream_event::LogStreamEvent;
use crate::event::{EventKind, UnixMillis};
use crate::model::log_file::LogFile;
use crate::model::remote_command::{CommandOutput, RemoteCommand};
use crate::model::tcp_reachability::TcpReachability;
use crate::plan::facts::HostFacts;
use crate::remote::{HostConnector, OutputChunk, Remote, RemoteError, RemoteStream};

/// The most starts and ends that one host can report: of the 4096 wrappers that `assets/follow.sh` looks at, and a margin.
const MAX_REPORTED_EVENTS: usize = 2 * 4096 + 16;

/// The run, whether an end was reported, and the file.
type ReportedEvents = (String, HashSet<(bool, Option<LogFile>)>);

/// One host's connection. The lock is held while connecting, so that several callers share one attempt.
pub(crate) struct HostConnection {
    host_index: usize,
    connector: Arc<dyn HostConnector>,
    emitter: Emitter,
    remote: Mutex<Option<Arc<dyn Remote>>>,
    is_lost: AtomicBool,
    was_reached: AtomicBool,
    disk_warning_sent: AtomicBool,
    reported_events: std::sync::Mutex<ReportedEvents>,
    disk_reported_at: std::sync::Mutex<Option<Instant>>,
    sent_warnings: std::sync::Mutex<HashSet<String>>,
    clock_offset: AtomicI64,
    clock_uncertainty: AtomicI64,
}

impl HostConnection {
    /// Not connected yet.
    pub(crate) fn new(host: usize, connect: Arc<dyn HostConnector>, emit: Emitter) -> HostConnection {
        HostConnection {
            host_index: host,
            connector: connect,
            emitter: emit,
            remote: Mutex::new(None),
            is_lost: AtomicBool::new(false),
            was_reached: AtomicBool::new(false),
            disk_warning_sent: AtomicBool::new(false),
            reported_events: std::sync::Mutex::default(),
            disk_reported_at: std::sync::Mutex::default(),
            sent_warnings: std::sync::Mutex::default(),
            clock_offset: AtomicI64::new(0),
            clock_uncertainty: AtomicI64::new(0),
        }
    }

    pub(crate) fn host_index(&self) -> usize {
        self.host_index
    }

    /// The host's number as events carry it.
    pub(crate) fn event_host_index(&self) -> u32 {
        u32::try_from(self.host_index).unwrap_or(u32::MAX)
    }

    /// Seconds on the host's clock as milliseconds on ours, and how wrong that may be. 0 stays 0: unknown.
    pub(crate) fn to_local_time(&self, host_seconds: f64) -> (UnixMillis, i64) {
        if host_seconds <= 0.0 {
            return (0, 0);
        }
        // A `date` without fractions (busybox) prints the current second.
        let coarse = if host_seconds.fract() == 0.0 { 1000 } else { 0 };
        (
            (host_seconds * 1000.0) as UnixMillis - self.clock_offset.load(Ordering::Relaxed),
            self.clock_uncertainty.load(Ordering::Relaxed) + coarse,
        )
    }

    /// The connection, made now if there is none.
    ///
    /// # Errors
    /// Why there is none.
    pub(crate) async fn get_or_connect(&self) -> Result<Arc<dyn Remote>, RemoteError> {
        let mut current = self.remote.lock().await;
        if let Some(remote) = current.as_ref().filter(|r| !r.is_closed()) {
            return Ok(remote.clone());
        }
        *current = None;
        if !self.is_lost.load(Ordering::Relaxed) {
            self.emitter.send(EventKind::HostConnecting { host: self.event_host_index() });
        }
        let remote = self.connector.connect(self.host_index).await?;
        *current = Some(remote.clone());
        if self.is_lost.swap(false, Ordering::Relaxed) {
            self.emit_connected();
        }
        Ok(remote)
    }

    /// A dedicated connection for slow work, which leaves the shared one free.
    ///
    /// # Errors
    /// Why there is none.
    pub(crate) async fn connect_dedicated(&self) -> Result<Arc<dyn Remote>, RemoteError> {
        self.connector.connect(self.host_index).await
    }

    /// Says once that a host is reached that is never asked for its facts.
    pub(crate) fn report_reached(&self) {
        if !self.was_reached.swap(true, Ordering::Relaxed) {
            self.emit_connected();
        }
    }

    fn emit_connected(&self) {
        self.emitter.send(EventKind::HostConnected {
            host: self.event_host_index(),
            clock_offset: self.clock_offset.load(Ordering::Relaxed),
            uncertainty: self.clock_uncertainty.load(Ordering::Relaxed),
        });
    }

    /// Whether the last attempt to use it failed.
    pub(crate) fn is_lost(&self) -> bool {
        self.is_lost.load(Ordering::Relaxed)
    }

    /// For how long it is tried again after an error that no retry mends.
    pub(crate) fn retry_window(&self) -> Duration {
        self.connector.retry_window(self.host_index)
    }

    /// Notes that the connection is of no use any more.
    pub(crate) async fn drop_connection(&self, error: &RemoteError, retrying: bool) {
        self.close().await;
        if !self.is_lost.swap(true, Ordering::Relaxed) || !retrying {
            let (host, hint) = (self.event_host_index(), error.hint().to_owned());
            self.emitter.send(EventKind::HostLost { host, error: error.to_string(), hint, will_retry: retrying });
        }
    }

    /// Runs a command. A connection that has died is made again by the next call.
    ///
    /// # Errors
    /// Why there is no answer.
    pub(crate) async fn exec(&self, command: &RemoteCommand) -> Result<CommandOutput, RemoteError> {
        let answer = self.get_or_connect().await?.exec(command).await;
        self.log_command_duration(command, &answer);
        answer
    }

    /// As [`HostConnection::exec`], in the session that is kept free for stopping.
    ///
    /// # Errors
    /// Why there is no answer.
    pub(crate) async fn exec_priority(&self, command: &RemoteCommand) -> Result<CommandOutput, RemoteError> {
        let answer = self.get_or_connect().await?.exec_priority(command).await;
        self.log_command_duration(command, &answer);
        answer
    }

    /// As [`HostConnection::exec`]; the command's output is forwarded as it arrives.
    ///
    /// # Errors
    /// Why it did not complete.
    pub(crate) async fn exec_streaming(&self, command: &RemoteCommand, chunks: mpsc::Sender<OutputChunk>) -> Result<i32, RemoteError> {
        self.get_or_connect().await?.exec_streaming(command, chunks).await
    }

    /// Starts a stream.
    ///
    /// # Errors
    /// Why there is none.
    pub(crate) async fn open_stream(&self, command: &RemoteCommand) -> Result<RemoteStream, RemoteError> {
        self.get_or_connect().await?.open_stream(command).await
    }

    /// Tries a TCP connection from the host.
    ///
    /// # Errors
    /// When it is unknown.
    pub(crate) async fn probe_tcp(&self, address: &str, port: u16, within: Duration) -> Result<TcpReachability, RemoteError> {
        self.get_or_connect().await?.probe_tcp(address, port, within).await
    }

    /// Says that a step is tried again.
    pub(crate) fn emit_step_retry(&self, step: u32, error: &RemoteError) {
        self.emitter.send(EventKind::StepRetrying { step, error: error.to_string() });
    }

    /// Reports how full the disk under the run directory is, and warns once when it is nearly full: a rank whose log cannot grow dies.
    pub(crate) fn report_disk_space(&self, free: u64, total: u64) {
        let mut reported = self.disk_reported_at.lock().unwrap_or_else(std::sync::PoisonError::into_inner);
        // A host may send it at any rate.
        if reported.is_some_and(|when| when.elapsed() < Duration::from_secs(1)) {
            return;
        }
        *reported = Some(Instant::now());
        drop(reported);
        self.emitter.send(EventKind::DiskSpace { host: self.event_host_index(), free, total });
        if total > 0 && free < total / 10 && !self.disk_warning_sent.swap(true, Ordering::Relaxed) {
            let text = format!("{} MiB of {} are free under the run directory: a rank whose log cannot grow dies", free >> 20, total >> 20);
            self.emitter.send_notice(Some(self.host_index), text, true);
        }
    }

    /// Whether a report is new: a resumed stream repeats which ranks started and ended.
    ///
    /// # Errors
    /// The host has reported more than it can have.
    pub(crate) fn is_first_report(&self, run: &str, event: &LogStreamEvent) -> Result<bool, String> {
        let what = match event {
            LogStreamEvent::Log(..) => return Ok(true),
            LogStreamEvent::ProcessStarted(_, file, _) => (false, Some(*file)),
            LogStreamEvent::ProcessEnded(_, file, ..) => (true, Some(*file)),
            LogStreamEvent::RunMissing(_) | LogStreamEvent::HostGivenUp(..) => (true, None),
        };
        let mut reported = self.reported_events.lock().unwrap_or_else(std::sync::PoisonError::into_inner);
        if reported.0 != run {
            *reported = (run.to_owned(), HashSet::new());
        }
        if reported.1.len() >= MAX_REPORTED_EVENTS && !reported.1.contains(&what) {
            return Err(format!("the host reports more than {MAX_REPORTED_EVENTS} starts and ends"));
        }
        Ok(reported.1.insert(what))
    }

    /// The next stream of logs has another reader: what it repeats is new to that one.
    pub(crate) fn forget_reports(&self) {
        self.reported_events.lock().unwrap_or_else(std::sync::PoisonError::into_inner).1.clear();
    }

    /// Emits a warning about this host once: a resumed stream repeats what it found. After 256 warnings it emits no more.
    pub(crate) fn warn_once(&self, text: String) {
        let mut warnings = self.sent_warnings.lock().unwrap_or_else(std::sync::PoisonError::into_inner);
        if warnings.len() < 256 && warnings.insert(text.clone()) {
            self.emitter.send_notice(Some(self.host_index), text, true);
        }
    }

    /// Where events about this host go.
    pub(crate) fn emitter(&self) -> &Emitter {
        &self.emitter
    }

    /// Logs the duration of a command (`-vv`).
    fn log_command_duration(&self, command: &RemoteCommand, answer: &Result<CommandOutput, RemoteError>) {
        if let Ok(output) = answer {
            tracing::debug!(host = self.host_index, took_us = output.elapsed.as_micros(), title = command.title, "answered");
        }
    }

    /// Notes how far the host's clock is from ours, and how wrong that may be, in milliseconds.
    pub(crate) fn set_clock_offset(&self, offset: f64, uncertain: f64) {
        self.clock_offset.store(offset as i64, Ordering::Relaxed);
        self.clock_uncertainty.store(uncertain.ceil() as i64, Ordering::Relaxed);
    }

    /// Connects and asks for the facts; compares the clocks by the way. `will_retry`: the caller asks again if there are none.
    ///
    /// # Errors
    /// Why there are none.
    pub(crate) async fn connect_and_gather_facts(&self, command: &RemoteCommand, will_retry: bool) -> Result<HostFacts, RemoteError> {
        let mut tries = 0;
        loop {
            let asked = match self.get_or_connect().await {
                // A connection that dies between two commands, or under this one: once more on a new one.
                Ok(_) => self.gather_facts(command).await.map_err(|error| (error.is_retryable() && tries < 1, error)),
                Err(error) => Err((false, error)),
            };
            match asked {
                Ok(facts) => return Ok(facts),
                Err((true, error)) if !matches!(error, RemoteError::Timeout { .. }) => {
                    tracing::debug!(%error, host = self.host_index, "the facts are asked for once more");
                    tries += 1;
                }
                Err((_, error)) => {
                    self.drop_connection(&error, will_retry).await;
                    return Err(error);
                }
            }
        }
    }

    async fn gather_facts(&self, command: &RemoteCommand) -> Result<HostFacts, RemoteError> {
        let sent = now_unix_millis();
        let output = self.exec(command).await?;
        let received = now_unix_millis();
        let facts = HostFacts::parse(&output.stdout_text());
        if facts.run_dir.is_empty() {
            return Err(RemoteError::Truncated {
                title: command.title.clone(),
                what: format!("the facts are not whole: {}", output.error_line()),
            });
        }
        let on_host = ((facts.clock_range.1 - facts.clock_range.0) * 1000.0) as i64;
        let around = ((received - sent) - on_host).max(0);
        self.clock_offset.store((facts.clock_range.0 * 1000.0) as i64 - (sent + around / 2), Ordering::Relaxed);
        self.clock_uncertainty.store(around / 2 + 1, Ordering::Relaxed);
        self.is_lost.store(false, Ordering::Relaxed);
        self.emit_connected();
        Ok(facts)
    }

    pub(crate) async fn close(&self) {
        let gone = self.remote.lock().await.take();
        if let Some(remote) = gone {
            remote.close().await;
        }
    }
}
