//! The way to one host: connected when first needed, connected again after a loss, its clock compared with ours.

use std::collections::HashSet;
use std::sync::Arc;
use std::sync::atomic::{AtomicBool, AtomicI64, Ordering};
use std::time::Duration;

use tokio::sync::{Mutex, mpsc};
use tokio::time::Instant;

use crate::engine::emit::{Emitter, now};
use crate::engine::log_event::Report;
use crate::event::{EventKind, Millis};
use crate::plan::facts::HostFacts;
use crate::plan::words::LogFile;
use crate::remote::{Connect, Piece, Reached, Remote, RemoteError, Stream};
use crate::shell::{Command, Output};

/// The most starts and ends that one host can have to tell: of 4096 wrappers, as `assets/follow.sh` looks at, and of what it cannot know.
const REPORTS: usize = 2 * 4096 + 16;

/// Of which run, and what was told: whether it was an end, and of which file.
type Told = (String, HashSet<(bool, Option<LogFile>)>);

/// One host's connection. The lock is held while connecting, so that several callers share one attempt.
pub struct Link {
    host: usize,
    connect: Arc<dyn Connect>,
    emit: Emitter,
    current: Mutex<Option<Arc<dyn Remote>>>,
    lost: AtomicBool,
    warned: AtomicBool,
    told: std::sync::Mutex<Told>,
    disk_told: std::sync::Mutex<Option<Instant>>,
    warnings: std::sync::Mutex<HashSet<String>>,
    offset: AtomicI64,
    uncertainty: AtomicI64,
}

impl Link {
    /// A way that is not yet gone.
    pub fn new(host: usize, connect: Arc<dyn Connect>, emit: Emitter) -> Link {
        Link {
            host,
            connect,
            emit,
            current: Mutex::new(None),
            lost: AtomicBool::new(false),
            warned: AtomicBool::new(false),
            told: std::sync::Mutex::default(),
            disk_told: std::sync::Mutex::default(),
            warnings: std::sync::Mutex::default(),
            offset: AtomicI64::new(0),
            uncertainty: AtomicI64::new(0),
        }
    }

    /// The host's number.
    pub fn host(&self) -> usize {
        self.host
    }

    /// The host's number as events carry it.
    pub fn id(&self) -> u32 {
        u32::try_from(self.host).unwrap_or(u32::MAX)
    }

    /// Seconds on the host's clock as milliseconds on ours, and how wrong that may be. 0 stays 0: unknown.
    pub fn our_time(&self, host_seconds: f64) -> (Millis, i64) {
        if host_seconds <= 0.0 {
            return (0, 0);
        }
        // A `date` without fractions (busybox) tells the second that has begun.
        let coarse = if host_seconds.fract() == 0.0 { 1000 } else { 0 };
        ((host_seconds * 1000.0) as Millis - self.offset.load(Ordering::Relaxed), self.uncertainty.load(Ordering::Relaxed) + coarse)
    }

    /// The connection, made now if there is none.
    ///
    /// # Errors
    /// Why there is none.
    pub async fn get(&self) -> Result<Arc<dyn Remote>, RemoteError> {
        let mut current = self.current.lock().await;
        if let Some(remote) = current.as_ref().filter(|r| !r.is_closed()) {
            return Ok(remote.clone());
        }
        *current = None;
        if !self.lost.load(Ordering::Relaxed) {
            self.emit.send(EventKind::HostConnecting { host: self.id() });
        }
        let remote = self.connect.connect(self.host).await?;
        *current = Some(remote.clone());
        if self.lost.swap(false, Ordering::Relaxed) {
            self.connected();
        }
        Ok(remote)
    }

    /// A connection of its own, for one who may take their time: the shared one is left alone.
    ///
    /// # Errors
    /// Why there is none.
    pub async fn apart(&self) -> Result<Arc<dyn Remote>, RemoteError> {
        self.connect.connect(self.host).await
    }

    fn connected(&self) {
        self.emit.send(EventKind::HostConnected {
            host: self.id(),
            clock_offset: self.offset.load(Ordering::Relaxed),
            uncertainty: self.uncertainty.load(Ordering::Relaxed),
        });
    }

    /// For how long it is tried again after an error that no retry mends.
    pub fn give_up(&self) -> Duration {
        self.connect.give_up(self.host)
    }

    /// Notes that the connection is of no use any more.
    pub async fn drop_connection(&self, error: &RemoteError, retrying: bool) {
        let gone = self.current.lock().await.take();
        if let Some(remote) = gone {
            remote.close().await;
        }
        if !self.lost.swap(true, Ordering::Relaxed) || !retrying {
            self.emit.send(EventKind::HostLost { host: self.id(), error: error.to_string(), retrying });
        }
    }

    /// Runs a command. A connection that proves dead is dropped, so that the next call makes a new one.
    ///
    /// # Errors
    /// Why there is no answer.
    pub async fn exec(&self, command: &Command) -> Result<Output, RemoteError> {
        let remote = self.get().await?;
        let answer = remote.exec(command).await;
        self.note(command, &answer);
        if answer.is_err() && remote.is_closed() {
            self.forget(&remote).await;
        }
        answer
    }

    /// As [`Link::exec`], in the session that is kept free for stopping.
    ///
    /// # Errors
    /// Why there is no answer.
    pub async fn urgent(&self, command: &Command) -> Result<Output, RemoteError> {
        let remote = self.get().await?;
        let answer = remote.urgent(command).await;
        self.note(command, &answer);
        if answer.is_err() && remote.is_closed() {
            self.forget(&remote).await;
        }
        answer
    }

    /// As [`Link::exec`]; what the command writes is handed over as it comes.
    ///
    /// # Errors
    /// Why it did not come to its end.
    pub async fn relay(&self, command: &Command, pieces: mpsc::Sender<Piece>) -> Result<i32, RemoteError> {
        let remote = self.get().await?;
        remote.relay(command, pieces).await
    }

    /// Starts a stream.
    ///
    /// # Errors
    /// Why there is none.
    pub async fn stream(&self, command: &Command) -> Result<Stream, RemoteError> {
        let remote = self.get().await?;
        let answer = remote.stream(command).await;
        if answer.is_err() && remote.is_closed() {
            self.forget(&remote).await;
        }
        answer
    }

    /// Tries a TCP connection from the host.
    ///
    /// # Errors
    /// Where it cannot be told.
    pub async fn reach(&self, address: &str, port: u16, within: Duration) -> Result<Reached, RemoteError> {
        self.get().await?.reach(address, port, within).await
    }

    /// Says that a step is tried again.
    pub fn retrying(&self, step: u32, error: &RemoteError) {
        self.emit.send(EventKind::StepRetrying { step, error: error.to_string() });
    }

    /// Tells how full the disk under the run directory is, and warns once when it is nearly full: a rank whose log cannot grow dies.
    pub fn disk(&self, free: u64, total: u64) {
        let mut told = self.disk_told.lock().unwrap_or_else(std::sync::PoisonError::into_inner);
        // A host may say it as often as it likes.
        if told.is_some_and(|when| when.elapsed() < Duration::from_secs(1)) {
            return;
        }
        *told = Some(Instant::now());
        drop(told);
        self.emit.send(EventKind::Disk { host: self.id(), free, total });
        if total > 0 && free < total / 10 && !self.warned.swap(true, Ordering::Relaxed) {
            let text = format!("{} MiB of {} are free under the run directory: a rank whose log cannot grow dies", free >> 20, total >> 20);
            self.emit.notice(Some(self.host), text, true);
        }
    }

    /// Whether a report is told for the first time: a resumed stream says again who started and ended.
    ///
    /// # Errors
    /// When it is one more than a host can have to tell.
    pub fn is_news(&self, run: &str, report: &Report) -> Result<bool, String> {
        let what = match report {
            Report::Log(..) => return Ok(true),
            Report::Started(_, file, _) => (false, Some(*file)),
            Report::Ended(_, file, ..) => (true, Some(*file)),
            Report::Nothing(_) | Report::GivenUp(..) => (true, None),
        };
        let mut told = self.told.lock().unwrap_or_else(std::sync::PoisonError::into_inner);
        if told.0 != run {
            *told = (run.to_owned(), HashSet::new());
        }
        if told.1.len() >= REPORTS && !told.1.contains(&what) {
            return Err(format!("the host tells of more than {REPORTS} starts and ends"));
        }
        Ok(told.1.insert(what))
    }

    /// A warning about this host, unless it was said before: a resumed stream says again what it found. After 256 nothing more is said.
    pub fn warn_once(&self, text: String) {
        let mut warnings = self.warnings.lock().unwrap_or_else(std::sync::PoisonError::into_inner);
        if warnings.len() < 256 && warnings.insert(text.clone()) {
            self.emit.notice(Some(self.host), text, true);
        }
    }

    /// Where events about this host go.
    pub fn emitter(&self) -> &Emitter {
        &self.emit
    }

    /// What a command took, for those who look for lost time (`-vv`).
    fn note(&self, command: &Command, answer: &Result<Output, RemoteError>) {
        if let Ok(output) = answer {
            tracing::debug!(host = self.host, took_us = output.elapsed.as_micros(), title = command.title, "answered");
        }
    }

    async fn forget(&self, dead: &Arc<dyn Remote>) {
        let mut current = self.current.lock().await;
        if current.as_ref().is_some_and(|c| Arc::ptr_eq(c, dead)) {
            *current = None;
        }
    }

    /// Notes how far the host's clock is from ours, milliseconds, where that is known better than before.
    pub fn set_clock(&self, offset: f64, uncertain: f64) {
        self.offset.store(offset as i64, Ordering::Relaxed);
        self.uncertainty.store(uncertain.ceil() as i64, Ordering::Relaxed);
    }

    /// Connects and asks for the facts; compares the clocks by the way.
    ///
    /// # Errors
    /// Why there are none.
    pub async fn facts(&self, command: &Command) -> Result<HostFacts, RemoteError> {
        let mut tries = 0;
        loop {
            let asked = match self.get().await {
                // A connection that dies between two commands, or under this one: once more on a new one.
                Ok(_) => self.ask_facts(command).await.map_err(|error| (error.may_retry() && tries < 1, error)),
                Err(error) => Err((false, error)),
            };
            match asked {
                Ok(facts) => return Ok(facts),
                Err((true, error)) if !matches!(error, RemoteError::Timeout { .. }) => {
                    tracing::debug!(%error, host = self.host, "the facts are asked for once more");
                    tries += 1;
                }
                Err((_, error)) => {
                    self.drop_connection(&error, false).await;
                    return Err(error);
                }
            }
        }
    }

    async fn ask_facts(&self, command: &Command) -> Result<HostFacts, RemoteError> {
        let sent = now();
        let output = self.exec(command).await?;
        let received = now();
        let facts = HostFacts::read(&output.text());
        if facts.run_dir.is_empty() {
            return Err(RemoteError::CutOff {
                title: command.title.clone(),
                what: format!("the facts are not whole: {}", output.complaint()),
            });
        }
        let on_host = ((facts.clock.1 - facts.clock.0) * 1000.0) as i64;
        let around = ((received - sent) - on_host).max(0);
        self.offset.store((facts.clock.0 * 1000.0) as i64 - (sent + around / 2), Ordering::Relaxed);
        self.uncertainty.store(around / 2 + 1, Ordering::Relaxed);
        self.lost.store(false, Ordering::Relaxed);
        self.connected();
        Ok(facts)
    }

    /// Says goodbye.
    pub async fn close(&self) {
        let gone = self.current.lock().await.take();
        if let Some(remote) = gone {
            remote.close().await;
        }
    }
}
