//! What the dashboard is told and what it may ask for; the same words for a live run and for a journal that is played.
//!
//! Uses `event`, `state`, `diagnose` and `report`. A feed never waits for the screen: while too much waits, log bytes and samples are left out, since
//! the files have them and the next sample replaces the last.

use std::collections::VecDeque;
use std::io;
use std::os::fd::{AsFd, BorrowedFd, OwnedFd};
use std::sync::{Arc, Mutex, MutexGuard, PoisonError};

use crate::diagnose::{Evidence, Lang};
pub use crate::event::controls::{DashboardCapabilities, DashboardRole, UserAction};
use crate::event::{Event, EventKind, LogFile, UnixMillis};
use crate::report::ReportSink;
use crate::state::RunState;

/// Log bytes and samples are left out beyond this many waiting bytes.
const MAX_QUEUED_LOG_BYTES: usize = 16 << 20;
/// Everything is left out beyond this.
const MAX_QUEUED_BYTES: usize = 128 << 20;
/// What an event weighs beside its bytes.
const EVENT_OVERHEAD_BYTES: usize = 512;

/// Where a journal that is played stands.
#[derive(Debug, Clone, Copy, PartialEq)]
pub struct ReplayClock {
    /// Nothing moves until told.
    pub paused: bool,
    /// How many seconds of the run pass in one.
    pub speed: f64,
    /// The time of the first event.
    pub start: UnixMillis,
    /// The time of the last one.
    pub end: UnixMillis,
}

/// A reader of stored logs; `cli` hands it in.
pub trait StoredLogs: Send {
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
pub trait Clipboard: Send {
    /// Gives text to the terminal multiplexer that this runs in, which gives it to the clipboard; `None`: there is none.
    fn copy_to_multiplexer(&self, text: &str) -> Option<io::Result<()>>;

    /// Writes text to a new file whose name begins so; its path.
    ///
    /// # Errors
    /// When it cannot be written.
    fn save_to_file(&self, name: &str, text: &str) -> io::Result<String>;
}

/// One thing that the dashboard is told.
pub enum FeedMessage {
    Event(Event),
    Tick(UnixMillis),
    /// By which rules trouble is explained, and in which language; told before any event.
    DiagnosisRules(Box<Evidence>, Lang),
    /// Where log text can be read.
    StoredLogs(Box<dyn StoredLogs>),
    /// Who takes copies of text.
    Clipboard(Box<dyn Clipboard>),
    /// What can be asked for changed.
    Capabilities(DashboardCapabilities),
    /// Where the journal stands.
    ReplayClock(ReplayClock),
    /// All that was told is void: the journal is played from its beginning.
    Reset,
    /// A line for the person at the screen.
    ShowToast(String),
    /// Break, so that tests see what becomes of the terminal.
    #[cfg(debug_assertions)]
    Panic,
    /// How many seconds their clock is ahead of UTC.
    UtcOffset(i64),
}

#[derive(Default)]
struct FeedQueue {
    messages: VecDeque<FeedMessage>,
    queued_bytes: usize,
    skipped_bytes: u64,
    closed: bool,
    receiver_dropped: bool,
    /// The bell was rung for what waits.
    wake_pending: bool,
    /// The second that was told last.
    last_second: UnixMillis,
}

impl FeedQueue {
    /// Whether the bell is to be rung for a note: once for all that waits; the time alone is no news until it shows, since clocks and ages
    /// count seconds.
    fn should_wake(&mut self, message: &FeedMessage) -> bool {
        if let FeedMessage::Tick(now) = message
            && std::mem::replace(&mut self.last_second, now.div_euclid(1000)) == now.div_euclid(1000)
        {
            return false;
        }
        !std::mem::replace(&mut self.wake_pending, true)
    }
}

struct FeedShared {
    queue: Mutex<FeedQueue>,
    wake_writer: OwnedFd,
}

/// The telling end. The last one that is dropped closes the feed.
pub struct FeedSender {
    shared: Arc<FeedShared>,
}

pub(crate) struct FeedReceiver {
    shared: Arc<FeedShared>,
    wake_reader: OwnedFd,
}

/// A feed.
///
/// # Errors
/// When the system has no pipe for its bell.
pub(crate) fn feed_channel() -> io::Result<(FeedSender, FeedReceiver)> {
    let (reader, writer) = rustix::pipe::pipe()?;
    for end in [&reader, &writer] {
        rustix::io::fcntl_setfd(end, rustix::io::FdFlags::CLOEXEC)?;
        rustix::fs::fcntl_setfl(end, rustix::fs::OFlags::NONBLOCK)?;
    }
    let shared = Arc::new(FeedShared { queue: Mutex::default(), wake_writer: writer });
    Ok((FeedSender { shared: Arc::clone(&shared) }, FeedReceiver { shared, wake_reader: reader }))
}

impl FeedShared {
    fn lock(&self) -> MutexGuard<'_, FeedQueue> {
        self.queue.lock().unwrap_or_else(PoisonError::into_inner)
    }

    fn send(&self, message: FeedMessage) -> bool {
        let mut queue = self.lock();
        if queue.receiver_dropped {
            return false;
        }
        let (bytes, limit) = match &message {
            FeedMessage::Event(event) => match &event.kind {
                EventKind::Log { bytes, .. } => (bytes.len(), MAX_QUEUED_LOG_BYTES),
                kind if kind.is_sample() => (0, MAX_QUEUED_LOG_BYTES),
                _ => (0, MAX_QUEUED_BYTES),
            },
            _ => (0, usize::MAX),
        };
        if let (FeedMessage::Tick(now), Some(FeedMessage::Tick(last))) = (&message, queue.messages.back_mut()) {
            *last = *now;
            let wakes = queue.should_wake(&message);
            drop(queue);
            if wakes {
                self.wake();
            }
            return true;
        }
        let (mut note, mut bytes) = (message, bytes);
        if queue.queued_bytes.saturating_add(bytes + EVENT_OVERHEAD_BYTES) > limit {
            queue.skipped_bytes += bytes as u64;
            // How far a log has grown is told in any case.
            match &mut note {
                FeedMessage::Event(Event { kind: EventKind::Log { bytes, .. }, .. })
                    if queue.queued_bytes + EVENT_OVERHEAD_BYTES <= MAX_QUEUED_BYTES =>
                {
                    *bytes = bytes::Bytes::new()
                }
                _ => return true,
            }
            bytes = 0;
        }
        queue.queued_bytes += bytes + EVENT_OVERHEAD_BYTES;
        let wakes = queue.should_wake(&note);
        queue.messages.push_back(note);
        drop(queue);
        if wakes {
            self.wake();
        }
        true
    }

    fn wake(&self) {
        // A bell that is full rings already.
        if let Err(error) = rustix::io::write(&self.wake_writer, b"!") {
            tracing::trace!(%error, "the dashboard's bell");
        }
    }
}

impl FeedSender {
    /// Tells one thing; `false`: nobody listens any more.
    pub fn send(&self, message: FeedMessage) -> bool {
        self.shared.send(message)
    }

    /// Ends the dashboard once it has taken what was told.
    pub(super) fn close(&self) {
        self.shared.lock().closed = true;
        self.shared.wake();
    }

    /// The same feed for another teller, who does not keep it open.
    pub fn downgrade(&self) -> WeakFeedSender {
        WeakFeedSender { shared: Arc::downgrade(&self.shared) }
    }
}

impl Drop for FeedSender {
    fn drop(&mut self) {
        self.close();
    }
}

impl ReportSink for FeedSender {
    fn on_event(&mut self, event: &Event, _state: &RunState) -> io::Result<()> {
        if self.send(FeedMessage::Event(event.clone())) { Ok(()) } else { Err(io::ErrorKind::BrokenPipe.into()) }
    }

    fn tick(&mut self, now: UnixMillis, _state: &RunState) -> io::Result<()> {
        self.send(FeedMessage::Tick(now));
        Ok(())
    }

    fn finish(&mut self, _state: &RunState) -> io::Result<()> {
        self.close();
        Ok(())
    }
}

/// Tells into a feed that someone else keeps open.
#[derive(Clone)]
pub struct WeakFeedSender {
    shared: std::sync::Weak<FeedShared>,
}

impl WeakFeedSender {
    /// As [`FeedSender::send`].
    pub fn send(&self, message: FeedMessage) -> bool {
        self.shared.upgrade().is_some_and(|shared| shared.send(message))
    }
}

impl FeedReceiver {
    /// All that was told since; how many log bytes were left out; whether nothing more comes.
    pub(super) fn drain(&self) -> (VecDeque<FeedMessage>, u64, bool) {
        let mut sink = [0; 64];
        while matches!(rustix::io::read(&self.wake_reader, &mut sink), Ok(n) if n == sink.len()) {}
        let mut queue = self.shared.lock();
        (queue.queued_bytes, queue.wake_pending) = (0, false);
        let notes = std::mem::take(&mut queue.messages);
        (notes, std::mem::take(&mut queue.skipped_bytes), queue.closed)
    }

    /// What becomes readable when something was told.
    pub(super) fn wake_fd(&self) -> BorrowedFd<'_> {
        self.wake_reader.as_fd()
    }
}

impl Drop for FeedReceiver {
    fn drop(&mut self) {
        let mut queue = self.shared.lock();
        queue.receiver_dropped = true;
        queue.messages.clear();
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    /// Whether the bell rings; then all is taken.
    fn drain_and_check_wake(receiver: &FeedReceiver) -> bool {
        let mut ends = [rustix::event::PollFd::from_borrowed_fd(receiver.wake_fd(), rustix::event::PollFlags::IN)];
        let now = rustix::event::Timespec { tv_sec: 0, tv_nsec: 0 };
        let ready = rustix::event::poll(&mut ends, Some(&now)).expect("polled");
        receiver.drain();
        ready > 0
    }

    #[test]
    fn ticks_wake_once_a_second() {
        let (mouth, ear) = feed_channel().expect("a feed");
        let told = [1_000, 1_200, 1_999, 2_000, 2_200].map(|now| {
            mouth.send(FeedMessage::Tick(now));
            drain_and_check_wake(&ear)
        });
        assert_eq!(told, [true, false, false, true, false]);
        // What is news rings although the time that was told before it did not.
        mouth.send(FeedMessage::Tick(2_400));
        mouth.send(FeedMessage::ShowToast("news".to_owned()));
        mouth.send(FeedMessage::Tick(2_600));
        assert!(drain_and_check_wake(&ear));
        mouth.send(FeedMessage::Tick(2_800));
        mouth.send(FeedMessage::Tick(3_000));
        assert!(drain_and_check_wake(&ear), "a second more, told over a time that waits");
    }
}
