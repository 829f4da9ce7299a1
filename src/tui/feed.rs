//! What the dashboard is told and what it may ask for; the same words for a live run and for a journal that is played.
//!
//! Uses `event`, `state`, `diagnose` and `report`. A feed never waits for the screen: while too much waits, log bytes and samples are left out, since
//! the files have them and the next sample replaces the last.

use std::collections::VecDeque;
use std::io;
use std::os::fd::{AsFd, BorrowedFd, OwnedFd};
use std::sync::{Arc, Mutex, MutexGuard, PoisonError};

use crate::diagnose::{Evidence, Lang};
use crate::event::{Event, EventKind, LogFile, Millis};
use crate::report::Sink;
use crate::state::RunState;

/// Log bytes and samples are left out beyond this many waiting bytes.
const CHATTER: usize = 16 << 20;
/// Everything is left out beyond this.
const ALL: usize = 128 << 20;
/// What an event weighs beside its bytes.
const WEIGHT: usize = 512;

/// Who sits at the dashboard.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub enum Role {
    /// Ctrl-C stops the run, then kills it.
    Launcher,
    /// Ctrl-C leaves the run alone.
    Onlooker,
    /// There is no run, only its journal.
    Replay,
}

/// What can be asked for now.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct Offer {
    /// Who sits here.
    pub role: Role,
    /// The plan is shown and waits for a word: what starting it would do.
    pub start: Option<String>,
    /// A run is followed: it can be stopped, killed and torn down.
    pub act: bool,
    /// What is followed can be launched again.
    pub again: bool,
    /// Nothing is followed, but hosts may hold something that can be torn down.
    pub clear: bool,
}

impl Offer {
    /// Nothing but to look.
    pub fn of(role: Role) -> Offer {
        Offer { role, start: None, act: false, again: false, clear: false }
    }
}

/// Where a journal that is played stands.
#[derive(Debug, Clone, Copy, PartialEq)]
pub struct Pace {
    /// Nothing moves until told.
    pub paused: bool,
    /// How many seconds of the run pass in one.
    pub speed: f64,
    /// The time of the first event.
    pub from: Millis,
    /// The time of the last one.
    pub to: Millis,
}

/// A reader of stored logs; `cli` hands it in.
pub trait Stored: Send {
    /// How many bytes there are.
    ///
    /// # Errors
    /// When the file is there and cannot be looked at.
    fn len(&self, host: &str, file: LogFile) -> io::Result<u64>;

    /// At most `most` bytes from `from` on.
    ///
    /// # Errors
    /// When the file cannot be read.
    fn read(&self, host: &str, file: LogFile, from: u64, most: usize) -> io::Result<Vec<u8>>;
}

/// What the dashboard may have done with text on this laptop; `cli` hands it in.
pub trait Hand: Send {
    /// Gives text to the terminal multiplexer that this runs in, which gives it to the clipboard; `None`: there is none.
    fn multiplexer(&self, text: &str) -> Option<io::Result<()>>;

    /// Writes text to a new file whose name begins so; its path.
    ///
    /// # Errors
    /// When it cannot be written.
    fn save(&self, name: &str, text: &str) -> io::Result<String>;
}

/// One thing that the dashboard is told.
pub enum Note {
    /// Something happened.
    Event(Event),
    /// Time went by.
    Now(Millis),
    /// By which rules trouble is explained, and in which language; told before any event.
    Explain(Box<Evidence>, Lang),
    /// Where log text can be read.
    Stored(Box<dyn Stored>),
    /// Who takes copies of text.
    Hand(Box<dyn Hand>),
    /// What can be asked for changed.
    Offer(Offer),
    /// Where the journal stands.
    Pace(Pace),
    /// All that was told is void: the journal is played from its beginning.
    Anew,
    /// A line for the person at the screen.
    Say(String),
    /// Break, so that tests see what becomes of the terminal.
    #[cfg(debug_assertions)]
    Break,
    /// How many seconds their clock is ahead of UTC.
    Zone(i64),
}

/// What the person at the dashboard asks for.
#[derive(Debug, Clone, Copy, PartialEq)]
pub enum Ask {
    /// Start what the plan shows.
    Start,
    /// Leave the run alone and end.
    Detach,
    /// End every rank with time to save.
    Stop,
    /// End every rank now.
    Kill,
    /// Stop and remove everything.
    Teardown,
    /// Stop the gang and launch it again.
    Restart,
    /// What nvidia-smi prints on this host.
    Look(u32),
    /// A shell on this host, with the variables of this rank.
    Shell(u32, Option<u32>),
    /// Ctrl-C.
    Interrupt,
    /// Leave now, whatever is under way.
    LeaveNow,
    /// The terminal is gone.
    Hangup,
    /// The dashboard broke: the terminal is as it was, the run goes on.
    Broken,
    /// Stop or go on playing.
    Pause,
    /// The next event.
    Step,
    /// Play this many times as fast as until now.
    Speed(f64),
    /// Go so many milliseconds on, or back.
    Seek(i64),
}

#[derive(Default)]
struct Queue {
    notes: VecDeque<Note>,
    bytes: usize,
    skipped: u64,
    closed: bool,
    gone: bool,
    /// The bell was rung for what waits.
    rung: bool,
    /// The second that was told last.
    second: Millis,
}

impl Queue {
    /// Whether the bell is to be rung for a note: once for all that waits; the time alone is no news until it shows, since clocks and ages
    /// count seconds.
    fn wakes(&mut self, note: &Note) -> bool {
        if let Note::Now(now) = note
            && std::mem::replace(&mut self.second, now.div_euclid(1000)) == now.div_euclid(1000)
        {
            return false;
        }
        !std::mem::replace(&mut self.rung, true)
    }
}

struct Shared {
    queue: Mutex<Queue>,
    bell: OwnedFd,
}

/// The telling end. The last one that is dropped closes the feed.
pub struct Mouth {
    shared: Arc<Shared>,
}

/// The dashboard's end.
pub(crate) struct Ear {
    shared: Arc<Shared>,
    bell: OwnedFd,
}

/// A feed.
///
/// # Errors
/// When the system has no pipe for its bell.
pub(crate) fn feed() -> io::Result<(Mouth, Ear)> {
    let (reader, writer) = rustix::pipe::pipe()?;
    for end in [&reader, &writer] {
        rustix::io::fcntl_setfd(end, rustix::io::FdFlags::CLOEXEC)?;
        rustix::fs::fcntl_setfl(end, rustix::fs::OFlags::NONBLOCK)?;
    }
    let shared = Arc::new(Shared { queue: Mutex::default(), bell: writer });
    Ok((Mouth { shared: Arc::clone(&shared) }, Ear { shared, bell: reader }))
}

impl Shared {
    fn lock(&self) -> MutexGuard<'_, Queue> {
        self.queue.lock().unwrap_or_else(PoisonError::into_inner)
    }

    fn tell(&self, note: Note) -> bool {
        let mut queue = self.lock();
        if queue.gone {
            return false;
        }
        let (bytes, limit) = match &note {
            Note::Event(event) => match &event.kind {
                EventKind::Log { bytes, .. } => (bytes.len(), CHATTER),
                kind if kind.is_sample() => (0, CHATTER),
                _ => (0, ALL),
            },
            _ => (0, usize::MAX),
        };
        if let (Note::Now(now), Some(Note::Now(last))) = (&note, queue.notes.back_mut()) {
            *last = *now;
            let wakes = queue.wakes(&note);
            drop(queue);
            if wakes {
                self.ring();
            }
            return true;
        }
        let (mut note, mut bytes) = (note, bytes);
        if queue.bytes.saturating_add(bytes + WEIGHT) > limit {
            queue.skipped += bytes as u64;
            // How far a log has grown is told in any case.
            match &mut note {
                Note::Event(Event { kind: EventKind::Log { bytes, .. }, .. }) if queue.bytes + WEIGHT <= ALL => {
                    *bytes = bytes::Bytes::new()
                }
                _ => return true,
            }
            bytes = 0;
        }
        queue.bytes += bytes + WEIGHT;
        let wakes = queue.wakes(&note);
        queue.notes.push_back(note);
        drop(queue);
        if wakes {
            self.ring();
        }
        true
    }

    fn ring(&self) {
        // A bell that is full rings already.
        if let Err(error) = rustix::io::write(&self.bell, b"!") {
            tracing::trace!(%error, "the dashboard's bell");
        }
    }
}

impl Mouth {
    /// Tells one thing; `false`: nobody listens any more.
    pub fn tell(&self, note: Note) -> bool {
        self.shared.tell(note)
    }

    /// Ends the dashboard once it has taken what was told.
    pub(super) fn close(&self) {
        self.shared.lock().closed = true;
        self.shared.ring();
    }

    /// The same feed for another teller, who does not keep it open.
    pub fn again(&self) -> Teller {
        Teller { shared: Arc::downgrade(&self.shared) }
    }
}

impl Drop for Mouth {
    fn drop(&mut self) {
        self.close();
    }
}

impl Sink for Mouth {
    fn on(&mut self, event: &Event, _state: &RunState) -> io::Result<()> {
        if self.tell(Note::Event(event.clone())) { Ok(()) } else { Err(io::ErrorKind::BrokenPipe.into()) }
    }

    fn tick(&mut self, now: Millis, _state: &RunState) -> io::Result<()> {
        self.tell(Note::Now(now));
        Ok(())
    }

    fn finish(&mut self, _state: &RunState) -> io::Result<()> {
        self.close();
        Ok(())
    }
}

/// Tells into a feed that someone else keeps open.
#[derive(Clone)]
pub struct Teller {
    shared: std::sync::Weak<Shared>,
}

impl Teller {
    /// As [`Mouth::tell`].
    pub fn tell(&self, note: Note) -> bool {
        self.shared.upgrade().is_some_and(|shared| shared.tell(note))
    }
}

impl Ear {
    /// All that was told since; how many log bytes were left out; whether nothing more comes.
    pub(super) fn take(&self) -> (VecDeque<Note>, u64, bool) {
        let mut sink = [0; 64];
        while matches!(rustix::io::read(&self.bell, &mut sink), Ok(n) if n == sink.len()) {}
        let mut queue = self.shared.lock();
        (queue.bytes, queue.rung) = (0, false);
        let notes = std::mem::take(&mut queue.notes);
        (notes, std::mem::take(&mut queue.skipped), queue.closed)
    }

    /// What becomes readable when something was told.
    pub(super) fn bell(&self) -> BorrowedFd<'_> {
        self.bell.as_fd()
    }
}

impl Drop for Ear {
    fn drop(&mut self) {
        let mut queue = self.shared.lock();
        queue.gone = true;
        queue.notes.clear();
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    /// Whether the bell rings; then all is taken.
    fn rings(ear: &Ear) -> bool {
        let mut ends = [rustix::event::PollFd::from_borrowed_fd(ear.bell(), rustix::event::PollFlags::IN)];
        let now = rustix::event::Timespec { tv_sec: 0, tv_nsec: 0 };
        let ready = rustix::event::poll(&mut ends, Some(&now)).expect("polled");
        ear.take();
        ready > 0
    }

    #[test]
    fn the_time_wakes_once_a_second() {
        let (mouth, ear) = feed().expect("a feed");
        let told = [1_000, 1_200, 1_999, 2_000, 2_200].map(|now| {
            mouth.tell(Note::Now(now));
            rings(&ear)
        });
        assert_eq!(told, [true, false, false, true, false]);
        // What is news rings although the time that was told before it did not.
        mouth.tell(Note::Now(2_400));
        mouth.tell(Note::Say("news".to_owned()));
        mouth.tell(Note::Now(2_600));
        assert!(rings(&ear));
        mouth.tell(Note::Now(2_800));
        mouth.tell(Note::Now(3_000));
        assert!(rings(&ear), "a second more, told over a time that waits");
    }
}
