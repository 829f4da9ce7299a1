//! Follows the logs of a run: one stream a host, by byte offset, resumed where it broke off; what is on the laptop's disk is acknowledged.

use std::collections::{BTreeSet, HashMap};
use std::sync::Arc;
use std::time::Duration;

use bytes::Bytes;
use tokio::sync::mpsc;
use tokio::time::Instant;
use tokio_util::sync::CancellationToken;

use crate::engine::link::Link;
use crate::engine::log_event::Report;
use crate::engine::log_words::{advised, emit, missing, odd, span, unguarded};
use crate::event::EventKind;
use crate::plan::follow::{self, Frame, Purpose, Reader};
use crate::plan::site::Site;
use crate::plan::words::LogFile;
use crate::remote::{RemoteError, Stream};

/// What the laptop already has of each file of a host.
pub type Offsets = Arc<dyn Fn(usize) -> Vec<(LogFile, u64)> + Send + Sync>;

/// A stream that says nothing for so long is dead: it owes a sign of life every 5 s.
const SILENCE: Duration = Duration::from_secs(30);
/// Before a lost connection is made again; doubled each time.
const PAUSE: Duration = Duration::from_millis(250);
const LONGEST: Duration = Duration::from_secs(10);
/// The longest pause after an error that no retry mends: a person has to do something, and a login that is refused too often is locked out.
const MENDING: Duration = Duration::from_secs(60);
/// A stream that has lived so long is well: what was before is forgotten.
const WELL: Duration = Duration::from_secs(60);
/// How often it is looked whether this laptop's disk has room again; doubled where it said so and took nothing.
const LOOK: Duration = Duration::from_secs(5);
/// The most logs of one host: as many as `assets/follow.sh` looks at, and the launcher's.
const FILES: usize = 4097;

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

/// Who is told what a stream brings.
enum Ear<'a> {
    /// The follower; it ends before its watchers.
    Follower(&'a mpsc::Sender<Report>),
    /// Nobody but those who hear events.
    Events,
}

/// What is asked for.
#[derive(Clone, Copy)]
struct Wanted {
    /// Of how many hosts this is one.
    hosts: usize,
    purpose: Purpose,
    /// Starts and ends alone, without the logs: this laptop cannot store them. How often it is looked whether it can.
    no_logs: Option<Duration>,
}

/// How a stream came to its end.
enum Pass {
    /// There is nothing more.
    Whole(Fetched),
    /// The laptop's disk has room again.
    Room,
}

/// One pass over a host's stream.
struct Session<'a> {
    link: &'a Link,
    site: &'a Site,
    stream: Stream,
    have: &'a mut HashMap<LogFile, u64>,
    ear: Ear<'a>,
    no_logs: Option<Duration>,
    shrunk: BTreeSet<LogFile>,
    sent: u64,
    frames: u64,
}

/// Follows a host until told to stop; a lost connection is made again without end, and after an error that no retry mends the host is given up
/// in the end. While the laptop cannot store logs, starts and ends go on to come. `terms`: how many hosts are followed, and why.
pub async fn watch(
    link: Arc<Link>,
    site: Site,
    offsets: Offsets,
    terms: (usize, Purpose),
    up: mpsc::Sender<Report>,
    end: CancellationToken,
) {
    let offsets = || offsets(link.host()).into_iter().collect();
    let mut have: HashMap<LogFile, u64> = offsets();
    let (hosts, purpose) = terms;
    let (mut pause, mut look, mut no_logs) = (PAUSE, LOOK, None);
    let mut mending = Duration::ZERO;
    loop {
        let begun = Instant::now();
        let pass = one_pass(&link, &site, &mut have, Wanted { hosts, purpose, no_logs }, Ear::Follower(&up));
        let ended = tokio::select! {
            () = end.cancelled() => return,
            ended = pass => ended,
        };
        if begun.elapsed() > WELL {
            (pause, look, mending) = (PAUSE, LOOK, Duration::ZERO);
        }
        let wait = match ended {
            Ok(Pass::Whole(_)) => return,
            Ok(Pass::Room) => {
                no_logs = None;
                continue;
            }
            Err(Trouble::NotStored | Trouble::NotSynced(_)) => {
                // What is there may be other than we thought.
                have = offsets();
                no_logs = Some(look);
                look = (look * 2).min(MENDING);
                continue;
            }
            Err(Trouble::Remote(error)) if error.may_retry() => {
                link.drop_connection(&error, true).await;
                let longer = (pause * 2).min(LONGEST);
                std::mem::replace(&mut pause, longer)
            }
            Err(Trouble::Remote(error)) => {
                let limit = link.give_up();
                link.drop_connection(&error, mending < limit).await;
                if mending >= limit {
                    return give_up(link.host(), &error, limit, &up).await;
                }
                link.warn_once(format!("{}; it is tried again for {}, then the host is given up", advised(&error), span(limit)));
                let wait = (limit / 10).min(MENDING);
                mending += wait;
                wait
            }
        };
        tokio::select! {
            () = end.cancelled() => return,
            () = tokio::time::sleep(wait) => {}
        }
    }
}

async fn give_up(host: usize, error: &RemoteError, limit: Duration, up: &mpsc::Sender<Report>) {
    let why = format!("{} (tried for {})", advised(error), span(limit));
    if up.send(Report::GivenUp(host, why)).await.is_err() {
        tracing::debug!(host, "nobody hears any more that it is given up");
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
    let wanted = Wanted { hosts, purpose: Purpose::Fetch, no_logs: None };
    match one_pass(link, site, &mut have, wanted, Ear::Events).await? {
        Pass::Whole(fetched) => Ok(fetched),
        Pass::Room => Err(Trouble::NotStored),
    }
}

async fn one_pass(link: &Link, site: &Site, have: &mut HashMap<LogFile, u64>, wanted: Wanted, ear: Ear<'_>) -> Result<Pass, Trouble> {
    let offsets: Vec<(LogFile, u64)> = have.iter().map(|(f, o)| (*f, *o)).collect();
    let command = follow::command(site, &offsets, wanted.hosts, wanted.purpose, wanted.no_logs.is_none());
    let stream = link.stream(&command).await.map_err(Trouble::Remote)?;
    let (shrunk, no_logs) = (BTreeSet::new(), wanted.no_logs);
    Session { link, site, stream, have, ear, no_logs, shrunk, sent: 0, frames: 0 }.run().await
}

impl Session<'_> {
    async fn run(&mut self) -> Result<Pass, Trouble> {
        let mut reader = Reader::default();
        let mut silent = Instant::now() + SILENCE;
        let mut look = Instant::now() + self.no_logs.unwrap_or(LOOK);
        loop {
            while let Some(frame) = reader.read().map_err(|e| wrong(e.to_string()))? {
                if !self.take(frame).await? {
                    return Ok(self.whole());
                }
            }
            tokio::select! {
                piece = self.stream.output.recv() => match piece {
                    Some(Ok(bytes)) => reader.push(&bytes),
                    Some(Err(error)) => return Err(Trouble::Remote(error)),
                    None => return Err(lost("the log stream ended".to_owned())),
                },
                () = tokio::time::sleep_until(silent) => return Err(lost(format!("the log stream was silent for {} s", SILENCE.as_secs()))),
                () = tokio::time::sleep_until(look), if self.no_logs.is_some() => {
                    if self.link.emitter().room().await {
                        return Ok(Pass::Room);
                    }
                    look = Instant::now() + LOOK;
                    continue;
                }
            }
            silent = Instant::now() + SILENCE;
        }
    }

    fn whole(&mut self) -> Pass {
        Pass::Whole(Fetched { bytes: self.sent, shrunk: std::mem::take(&mut self.shrunk) })
    }

    /// Tells a report that is news; whether anyone wants more.
    async fn tell(&self, report: Report) -> Result<bool, Trouble> {
        if !self.link.is_news(&self.site.run, &report).map_err(wrong)? {
            return Ok(true);
        }
        match self.ear {
            Ear::Follower(up) => Ok(up.send(report).await.is_ok()),
            Ear::Events => {
                emit(self.link, &report);
                Ok(true)
            }
        }
    }

    /// That a file can be one of this run: else a host could have any number of files made here.
    fn ours(&self, file: LogFile) -> Result<(), Trouble> {
        match file {
            LogFile::Rank { rank, .. } if self.site.ranks > 0 && rank as usize >= self.site.ranks as usize => {
                Err(wrong(format!("the host tells of rank {rank}, and the run has {}", self.site.ranks)))
            }
            _ if self.have.len() >= FILES && !self.have.contains_key(&file) => Err(wrong(format!("the host sends more than {FILES} logs"))),
            _ => Ok(()),
        }
    }

    /// Takes a frame; whether more is wanted.
    async fn take(&mut self, frame: Frame) -> Result<bool, Trouble> {
        let host = self.link.host();
        match frame {
            Frame::Log { .. } if self.no_logs.is_some() => Err(wrong("the host sends a log that was not asked for".to_owned())),
            Frame::Log { file, offset, bytes, last } => {
                self.ours(file)?;
                self.store(file, offset, &bytes).await?;
                let end = offset + bytes.len() as u64;
                self.have.insert(file, end);
                self.sent += bytes.len() as u64;
                if last {
                    self.acknowledge().await?;
                }
                self.tell(Report::Log(host, file, bytes)).await
            }
            Frame::Started(file, at) => {
                self.ours(file)?;
                self.tell(Report::Started(host, file, self.link.our_time(at).0)).await
            }
            Frame::Ended(file, exit, at) => {
                self.ours(file)?;
                let (when, uncertainty) = self.link.our_time(at);
                self.tell(Report::Ended(host, file, exit, when, uncertainty)).await
            }
            Frame::Beat { free, total } => {
                self.acknowledge().await?;
                self.link.disk(free.saturating_mul(1024), total.saturating_mul(1024));
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
                self.ours(file)?;
                self.shrunk(file, size).await?;
                Ok(true)
            }
            Frame::Nothing => {
                self.tell(Report::Nothing(host)).await?;
                Ok(false)
            }
            Frame::Complete => Ok(false),
        }
    }

    /// A file is shorter than what came of it: the copy so far is kept beside, and the file comes again from its first byte.
    async fn shrunk(&mut self, file: LogFile, size: u64) -> Result<(), Trouble> {
        self.hand_up(EventKind::LogShrunk { host: self.link.id(), file, size }).await?;
        self.have.insert(file, 0);
        self.shrunk.insert(file);
        Ok(())
    }

    async fn store(&self, file: LogFile, offset: u64, bytes: &Bytes) -> Result<(), Trouble> {
        self.hand_up(EventKind::Log { host: self.link.id(), file, offset, bytes: bytes.clone(), len: bytes.len() as u64 }).await
    }

    /// Hands an event up and waits until it is stored.
    async fn hand_up(&self, kind: EventKind) -> Result<(), Trouble> {
        if self.link.emitter().store(kind).await { Ok(()) } else { Err(Trouble::NotStored) }
    }

    async fn acknowledge(&mut self) -> Result<(), Trouble> {
        self.frames += 1;
        let line = Bytes::from(format!("{} {}\n", self.sent, self.frames));
        let sent = tokio::time::timeout(SILENCE, self.stream.input.send(line)).await;
        if matches!(sent, Ok(Ok(()))) { Ok(()) } else { Err(lost("the log stream takes no acknowledgement".to_owned())) }
    }
}

fn lost(what: String) -> Trouble {
    Trouble::Remote(RemoteError::Lost { what, hint: String::new(), retry: true })
}

fn wrong(what: String) -> Trouble {
    Trouble::Remote(RemoteError::Protocol { what })
}

#[cfg(test)]
#[path = "watch_tests.rs"]
mod tests;
