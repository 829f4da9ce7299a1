//! Messages to the dashboard and actions from it; the same for a live run and a replayed journal.
//!
//! A feed never waits for the screen: when its queue is full, log bytes and samples are dropped, because
//! the files have the bytes and the next sample replaces the last.

use std::collections::VecDeque;
use std::io;
use std::os::fd::{AsFd, BorrowedFd, OwnedFd};
use std::sync::{Arc, Mutex, MutexGuard, PoisonError};

use crate::diagnose::{Evidence, Lang};
pub use crate::event::controls::{DashboardCapabilities, DashboardRole, UserAction};
use crate::event::{Event, EventKind, LogFile, UnixMillis};
use crate::report::ReportSink;
use crate::state::RunState;

/// Above this many queued bytes, log bytes and samples are dropped.
const MAX_QUEUED_LOG_BYTES: usize = 16 << 20;
/// Above this, everything is dropped.
const MAX_QUEUED_BYTES: usize = 128 << 20;
/// Size of an event in the queue besides its bytes.
const EVENT_OVERHEAD_BYTES: usize = 512;

/// Position of the replay.
#[derive(Debug, Clone, Copy, PartialEq)]
pub struct ReplayClock {
    pub paused: bool,
    /// Seconds of the run per second of replay.
    pub speed: f64,
    /// Time of the first event.
    pub start: UnixMillis,
    /// Time of the last event.
    pub end: UnixMillis,
}

/// Reads stored logs; implemented in `cli`.
pub trait StoredLogs: Send {
    /// Length of the log in bytes.
    ///
    /// # Errors
    /// If the file exists and cannot be read.
    fn len(&self, host: &str, file: LogFile) -> io::Result<u64>;

    /// Up to `most` bytes starting at `from`.
    ///
    /// # Errors
    /// If the file cannot be read.
    fn read(&self, host: &str, file: LogFile, from: u64, most: usize) -> io::Result<Vec<u8>>;
}

/// Copies and saves text on this laptop; implemented in `cli`.
pub trait Clipboard: Send {
    /// Copies text to the terminal multiplexer, which passes it to the clipboard; `None` outside of a multiplexer.
    fn copy_to_multiplexer(&self, text: &str) -> Option<io::Result<()>>;

    /// Writes text to a new file with this name prefix and returns its path.
    ///
    /// # Errors
    /// If it cannot be written.
    fn save_to_file(&self, name: &str, text: &str) -> io::Result<String>;
}

/// A message to the dashboard.
pub enum FeedMessage {
    Event(Event),
    Tick(UnixMillis),
    /// Diagnosis rules and their language; sent before any event.
    DiagnosisRules(Box<Evidence>, Lang),
    StoredLogs(Box<dyn StoredLogs>),
    Clipboard(Box<dyn Clipboard>),
    /// The available controls have changed.
    Capabilities(DashboardCapabilities),
    ReplayClock(ReplayClock),
    /// The replay restarts: everything known of the run is discarded.
    Reset,
    ShowToast(String),
    /// Panic, to test that the terminal is restored.
    #[cfg(debug_assertions)]
    Panic,
    /// Offset of local time from UTC in seconds.
    UtcOffset(i64),
}

#[derive(Default)]
struct FeedQueue {
    messages: VecDeque<FeedMessage>,
    queued_bytes: usize,
    skipped_bytes: u64,
    closed: bool,
    receiver_dropped: bool,
    /// The receiver has been woken for the queued messages.
    wake_pending: bool,
    /// Second of the last tick.
    last_second: UnixMillis,
}

impl FeedQueue {
    /// Whether a message wakes the receiver: once for all queued messages; a tick only when the second changes, because clocks and ages
    /// show seconds.
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

/// Sending end. Dropping it closes the feed.
pub struct FeedSender {
    shared: Arc<FeedShared>,
}

pub(crate) struct FeedReceiver {
    shared: Arc<FeedShared>,
    wake_reader: OwnedFd,
}

/// # Errors
/// If the system cannot create the wake pipe.
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
        let (mut queued, mut bytes) = (message, bytes);
        if queue.queued_bytes.saturating_add(bytes + EVENT_OVERHEAD_BYTES) > limit {
            queue.skipped_bytes += bytes as u64;
            // The growth of a log is always reported.
            match &mut queued {
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
        let wakes = queue.should_wake(&queued);
        queue.messages.push_back(queued);
        drop(queue);
        if wakes {
            self.wake();
        }
        true
    }

    fn wake(&self) {
        // A full pipe wakes the receiver already.
        if let Err(error) = rustix::io::write(&self.wake_writer, b"!") {
            tracing::trace!(%error, "the dashboard's bell");
        }
    }
}

impl FeedSender {
    /// Sends a message; `false` if the dashboard has ended.
    pub fn send(&self, message: FeedMessage) -> bool {
        self.shared.send(message)
    }

    /// Ends the dashboard after the queued messages.
    pub(super) fn close(&self) {
        self.shared.lock().closed = true;
        self.shared.wake();
    }

    /// A sender that does not keep the feed open.
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

/// Sends to a feed that another sender keeps open.
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
    /// All messages since the last call, the number of dropped log bytes, and whether the feed is closed.
    pub(super) fn drain(&self) -> (VecDeque<FeedMessage>, u64, bool) {
        let mut sink = [0; 64];
        while matches!(rustix::io::read(&self.wake_reader, &mut sink), Ok(n) if n == sink.len()) {}
        let mut queue = self.shared.lock();
        (queue.queued_bytes, queue.wake_pending) = (0, false);
        let messages = std::mem::take(&mut queue.messages);
        (messages, std::mem::take(&mut queue.skipped_bytes), queue.closed)
    }

    /// Becomes readable when a message is queued.
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

    /// Returns whether the receiver is woken, and drains it.
    fn drain_and_check_wake(receiver: &FeedReceiver) -> bool {
        let mut ends = [rustix::event::PollFd::from_borrowed_fd(receiver.wake_fd(), rustix::event::PollFlags::IN)];
        let now = rustix::event::Timespec { tv_sec: 0, tv_nsec: 0 };
        let ready = rustix::event::poll(&mut ends, Some(&now)).expect("polled");
        receiver.drain();
        ready > 0
    }

    #[test]
    fn ticks_wake_once_a_second() {
        let (sender, receiver) = feed_channel().expect("a feed");
        let woken = [1_000, 1_200, 1_999, 2_000, 2_200].map(|now| {
            sender.send(FeedMessage::Tick(now));
            drain_and_check_wake(&receiver)
        });
        assert_eq!(woken, [true, false, false, true, false]);
        // A message wakes although the tick before it did not.
        sender.send(FeedMessage::Tick(2_400));
        sender.send(FeedMessage::ShowToast("news".to_owned()));
        sender.send(FeedMessage::Tick(2_600));
        assert!(drain_and_check_wake(&receiver));
        sender.send(FeedMessage::Tick(2_800));
        sender.send(FeedMessage::Tick(3_000));
        assert!(drain_and_check_wake(&receiver), "one more second, although a tick is queued");
    }
}
