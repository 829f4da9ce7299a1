//! Follows the logs of a run: one stream a host, by byte offset, resumed where it broke off; what is on the laptop's disk is acknowledged.

use std::collections::{BTreeSet, HashMap};
use std::sync::Arc;
use std::time::Duration;

use bytes::Bytes;
use tokio::sync::mpsc;
use tokio_util::sync::CancellationToken;

use crate::engine::link::Link;
use crate::engine::log_event::Report;
use crate::event::EventKind;
use crate::plan::follow::{self, Frame, Purpose, Reader};
use crate::plan::site::Site;
use crate::plan::words::LogFile;
use crate::remote::{RemoteError, Stream};

/// What the laptop already has of each file of a host.
pub type Offsets = Arc<dyn Fn(usize) -> Vec<(LogFile, u64)> + Send + Sync>;

/// A stream that says nothing for so long is dead: it owes a sign of life every 5 s.
const SILENCE: Duration = Duration::from_secs(30);

/// Why a stream ended early.
#[derive(Debug)]
pub enum Trouble {
    /// The connection.
    Remote(RemoteError),
    /// The laptop's disk.
    NotStored,
    /// What was stored may not survive a power cut, and why.
    NotSynced(String),
}

/// What a fetch brought.
#[derive(Debug, Default, Clone, PartialEq, Eq)]
pub struct Fetched {
    /// How many bytes.
    pub bytes: u64,
    /// Files that shrank on the host meanwhile: what was in them before may be lost.
    pub shrunk: BTreeSet<LogFile>,
}

/// One pass over a host's stream.
struct Session<'a> {
    link: &'a Link,
    stream: Stream,
    have: &'a mut HashMap<LogFile, u64>,
    shrunk: BTreeSet<LogFile>,
    sent: u64,
    frames: u64,
    /// A follower waits for the laptop's disk; a fetch gives up.
    patient: bool,
}

/// Follows a host until told to stop; a lost connection is made again. `terms`: how many hosts are followed, and why.
pub async fn watch(
    link: Arc<Link>,
    site: Site,
    offsets: Offsets,
    terms: (usize, Purpose),
    up: mpsc::UnboundedSender<Report>,
    end: CancellationToken,
) {
    let mut have: HashMap<LogFile, u64> = offsets(link.host()).into_iter().collect();
    let mut pause = Duration::from_millis(250);
    loop {
        // The follower ends before its watchers: then nobody is left to care.
        let pass = one_pass(&link, &site, &mut have, terms, |report| !link.is_news(&site.run, &report) || up.send(report).is_ok());
        let ended = tokio::select! {
            () = end.cancelled() => return,
            ended = pass => ended,
        };
        match ended {
            Ok(_) => return,
            Err(Trouble::Remote(error)) => {
                link.drop_connection(&error, error.may_retry()).await;
                if !error.may_retry() {
                    link.emitter().notice(Some(link.host()), format!("its logs are no longer followed: {error}"), true);
                    return;
                }
            }
            Err(Trouble::NotStored | Trouble::NotSynced(_)) => {}
        }
        tokio::select! {
            () = end.cancelled() => return,
            () = tokio::time::sleep(pause) => {}
        }
        pause = (pause * 2).min(Duration::from_secs(10));
    }
}

/// As [`fetch`]; what came, and what came before it, is on the laptop's disk then: the host may delete it.
///
/// # Errors
/// The connection, or the laptop's disk.
pub async fn fetch_for_good(link: &Arc<Link>, site: &Site, offsets: &Offsets, hosts: usize) -> Result<Fetched, Trouble> {
    let fetched = fetch(link, site, offsets, hosts).await?;
    link.emitter().sync().await.map_err(Trouble::NotSynced)?;
    Ok(fetched)
}

/// Fetches what is there and the laptop lacks.
///
/// # Errors
/// The connection, or the laptop's disk.
pub async fn fetch(link: &Arc<Link>, site: &Site, offsets: &Offsets, hosts: usize) -> Result<Fetched, Trouble> {
    let mut have: HashMap<LogFile, u64> = offsets(link.host()).into_iter().collect();
    one_pass(link, site, &mut have, (hosts, Purpose::Fetch), |report| {
        if link.is_news(&site.run, &report) {
            emit(link, &report);
        }
        true
    })
    .await
}

async fn one_pass(
    link: &Link,
    site: &Site,
    have: &mut HashMap<LogFile, u64>,
    (hosts, purpose): (usize, Purpose),
    tell: impl FnMut(Report) -> bool,
) -> Result<Fetched, Trouble> {
    let offsets: Vec<(LogFile, u64)> = have.iter().map(|(f, o)| (*f, *o)).collect();
    let command = follow::command(site, &offsets, hosts, purpose);
    let stream = link.stream(&command).await.map_err(Trouble::Remote)?;
    let mut session = Session { link, stream, have, shrunk: BTreeSet::new(), sent: 0, frames: 0, patient: purpose != Purpose::Fetch };
    session.run(tell).await?;
    Ok(Fetched { bytes: session.sent, shrunk: session.shrunk })
}

impl Session<'_> {
    async fn run(&mut self, mut tell: impl FnMut(Report) -> bool) -> Result<(), Trouble> {
        let mut reader = Reader::default();
        loop {
            while let Some(frame) = reader.read().map_err(|e| lost(e.to_string()))? {
                match frame {
                    Frame::Complete => return Ok(()),
                    Frame::Nothing => {
                        tell(Report::Nothing(self.link.host()));
                        return Ok(());
                    }
                    other => {
                        if !self.take(other, &mut tell).await? {
                            return Ok(());
                        }
                    }
                }
            }
            match tokio::time::timeout(SILENCE, self.stream.output.recv()).await {
                Ok(Some(Ok(bytes))) => reader.push(&bytes),
                Ok(Some(Err(error))) => return Err(Trouble::Remote(error)),
                Ok(None) => return Err(lost("the log stream ended".to_owned())),
                Err(_) => return Err(lost(format!("the log stream was silent for {} s", SILENCE.as_secs()))),
            }
        }
    }

    async fn take(&mut self, frame: Frame, tell: &mut impl FnMut(Report) -> bool) -> Result<bool, Trouble> {
        let host = self.link.host();
        match frame {
            Frame::Log { file, offset, bytes, last } => {
                self.store(file, offset, &bytes).await?;
                let end = offset + bytes.len() as u64;
                self.have.insert(file, end);
                self.sent += bytes.len() as u64;
                if last {
                    self.acknowledge().await?;
                }
                Ok(tell(Report::Log(host, file, bytes)))
            }
            Frame::Started(file, at) => Ok(tell(Report::Started(host, file, self.link.our_time(at).0))),
            Frame::Ended(file, exit, at) => {
                let (when, uncertainty) = self.link.our_time(at);
                Ok(tell(Report::Ended(host, file, exit, when, uncertainty)))
            }
            Frame::Beat { free, total } => {
                self.acknowledge().await?;
                self.link.disk(free * 1024, total * 1024);
                Ok(true)
            }
            Frame::Lost { file, kind, offset, least, most } => {
                self.link.warn_once(missing(file, &kind, (offset, least, most)));
                Ok(true)
            }
            Frame::Note(file, text) => {
                self.link.warn_once(unguarded(file, &text));
                Ok(true)
            }
            Frame::Odd(word, name) => {
                self.link.warn_once(odd(&word, &name));
                Ok(true)
            }
            Frame::Shrunk { file, size } => {
                self.shrunk(file, size).await?;
                Ok(true)
            }
            Frame::Nothing | Frame::Complete => Ok(false),
        }
    }

    /// A file is shorter than what came of it: the copy so far is kept beside, and the file comes again from its first byte.
    async fn shrunk(&mut self, file: LogFile, size: u64) -> Result<(), Trouble> {
        self.hand_up(file, EventKind::LogShrunk { host: self.link.id(), file, size }).await?;
        self.have.insert(file, 0);
        self.shrunk.insert(file);
        Ok(())
    }

    async fn store(&self, file: LogFile, offset: u64, bytes: &Bytes) -> Result<(), Trouble> {
        self.hand_up(file, EventKind::Log { host: self.link.id(), file, offset, bytes: bytes.clone(), len: bytes.len() as u64 }).await
    }

    /// Hands an event up until it is stored. A full laptop disk stops the copy, not the run.
    async fn hand_up(&self, file: LogFile, kind: EventKind) -> Result<(), Trouble> {
        let mut told = false;
        loop {
            if self.link.emitter().store(kind.clone()).await {
                return Ok(());
            }
            if !self.patient {
                return Err(Trouble::NotStored);
            }
            if !told {
                told = true;
                let text = format!("{file}'s log cannot be written on this laptop; the host keeps it, and it is tried again every 5 s");
                self.link.emitter().notice(Some(self.link.host()), text, true);
            }
            tokio::time::sleep(Duration::from_secs(5)).await;
        }
    }

    async fn acknowledge(&mut self) -> Result<(), Trouble> {
        self.frames += 1;
        let line = Bytes::from(format!("{} {}\n", self.sent, self.frames));
        let sent = tokio::time::timeout(SILENCE, self.stream.input.send(line)).await;
        if matches!(sent, Ok(Ok(()))) { Ok(()) } else { Err(lost("the log stream takes no acknowledgement".to_owned())) }
    }
}

/// What is said of bytes that a log lacks.
fn missing(file: LogFile, kind: &str, (offset, least, most): (u64, u64, u64)) -> String {
    let count = if least == most { format!("{most} bytes") } else { format!("{least} to {most} bytes") };
    let why = match kind {
        "killed" => "the appender was killed",
        "full" => "the disk took no more",
        "max" => "the log reached logs.max",
        "plain" => "the appender could not go on; from there on nothing is counted",
        _ => "for several reasons",
    };
    format!("{file}'s log lacks {count} from byte {offset} on: {why}")
}

/// What is said of a log whose appender cannot do all that it should.
fn unguarded(file: LogFile, text: &str) -> String {
    match text.split_once(": ") {
        None => format!("{file}'s log: there is no setsid, so a KILL of the rank's process group can lose its last 128 KiB"),
        Some(("direct", why)) => {
            format!("{file}'s log is written without an appender ({why}): a rank that reopens its stderr can erase it")
        }
        Some((_, why)) => format!("{file}'s output is discarded: {why}"),
    }
}

/// What is said of something in a run's open directory that is not what it should be.
fn odd(word: &str, name: &str) -> String {
    let what = match word {
        "docker" => {
            return "docker does not answer: the logs still come, but whether the run's container goes on there cannot be seen; \
                    help: `docker ps` and `journalctl -u docker` on the host"
                .to_owned();
        }
        "keeper" if name == "again" => return "the run's keeper had ended, and was started again".to_owned(),
        "keeper" => {
            return "the run's keeper has ended: while nobody is attached, a rank that fails there stops no other rank; \
                    help: `orchestrate up --recreate` begins again"
                .to_owned();
        }
        "name" => "is not the name of a log or a status",
        "kind" => "is not a regular file",
        "text" => "does not hold what a wrapper writes",
        "unreadable" => "cannot be read",
        "long" => "is longer than a log may be; the rest is left on the host",
        "cut" => "was cut again and again; the rest is left on the host",
        "rank" => "is of a rank that the run does not have",
        "more" => "is not as expected either, and there may be more that is not named",
        "many" => "and further files are too many",
        _ => "is not as expected",
    };
    format!("{name} in the run's directory {what}: it is ignored")
}

fn lost(what: String) -> Trouble {
    Trouble::Remote(RemoteError::Lost { what, hint: String::new(), retry: true })
}

/// Tells a report as an event.
pub fn emit(link: &Link, report: &Report) {
    let host = link.id();
    let kind = match *report {
        Report::Started(_, LogFile::Node, _) => EventKind::NodeStarted { host },
        Report::Started(_, LogFile::Rank { rank, restart }, when) => EventKind::RankStarted { host, rank, restart, when },
        Report::Ended(_, LogFile::Node, exit, when, _) => EventKind::NodeExited { host, exit, when },
        Report::Ended(_, LogFile::Rank { rank, restart }, exit, when, uncertainty) => {
            EventKind::RankExited { host, rank, restart, exit, when, uncertainty }
        }
        Report::Nothing(_) | Report::Log(..) => return,
    };
    link.emitter().send(kind);
}
