//! Messages to the dashboard and actions from it; the same for a live run and a replayed journal.
//!
//! A feed never waits for the screen: when its queue is full, log bytes and samples are dropped, because
//! the files have the bytes and the next sample replaces the last.

use std::collections::VecDeque;
use std::io;
use std::os::fd::{AsFd, BorrowedFd, OwnedFd};
use std::sync::atomic::{AtomicBool, Ordering};
use std::sync::{Arc, Mutex, MutexGuard, PoisonError};

use tokio::sync::Notify;

pub use super::feed_message::{Clipboard, FeedMessage, ReplayClock};
pub use crate::event::controls::{DashboardCapabilities, DashboardRole, UserAction};
use crate::event::{Event, EventKind, UnixMillis};
use crate::report::bounded_queue::{BoundedQueue, DroppedCounts};
pub use crate::report::past_runs::StoredLogs;
use crate::report::{ReportSink, RunSnapshot};
use crate::state::RunState;

use super::timeline::EventDescriber;

/// What a queued message takes beside the bytes of a log.
const MESSAGE_OVERHEAD: usize = 512;

struct FeedQueue {
    messages: BoundedQueue<FeedMessage>,
    closed: bool,
    receiver_dropped: bool,
    /// The receiver has been woken for the queued messages.
    wake_pending: bool,
    /// Second of the last tick.
    last_second: UnixMillis,
}

impl FeedQueue {
    fn new() -> FeedQueue {
        let messages = BoundedQueue::new(MESSAGE_OVERHEAD);
        FeedQueue { messages, closed: false, receiver_dropped: false, wake_pending: false, last_second: 0 }
    }

    /// Whether a message wakes the receiver: once for all queued messages; a tick only when the second changes, because clocks and ages
    /// show seconds. A sample waits for the next message or the receiver's longest wait, which is shorter than the time between two frames of
    /// samples.
    fn should_wake(&mut self, message: &FeedMessage) -> bool {
        if matches!(message, FeedMessage::Event(event) if event.kind.is_sample()) {
            return false;
        }
        if let FeedMessage::Tick(now) = message
            && std::mem::replace(&mut self.last_second, now.div_euclid(1000)) == now.div_euclid(1000)
        {
            return false;
        }
        !std::mem::replace(&mut self.wake_pending, true)
    }

    /// Queues a message if there is room for it; a tick replaces one that is the last. Whether the receiver must be woken.
    fn push(&mut self, mut message: FeedMessage) -> bool {
        let bytes = match &mut message {
            FeedMessage::Event(event) => match (self.messages.admits(&event.kind), &mut event.kind) {
                (true, EventKind::Log { bytes, .. }) => bytes.len(),
                (true, _) => 0,
                // The growth of a log is always reported.
                (false, EventKind::Log { bytes, .. }) if self.messages.has_room() => {
                    *bytes = bytes::Bytes::new();
                    0
                }
                (false, _) => return false,
            },
            FeedMessage::Timeline(_) if !self.messages.has_room() => return false,
            _ => 0,
        };
        let wakes = self.should_wake(&message);
        match (&message, self.messages.last_mut()) {
            (FeedMessage::Tick(now), Some(FeedMessage::Tick(last))) => *last = *now,
            _ => self.messages.push(message, bytes),
        }
        wakes
    }
}

struct FeedShared {
    queue: Mutex<FeedQueue>,
    wake_writer: OwnedFd,
    snapshot_wanted: AtomicBool,
    /// Wakes the sending end for a snapshot.
    snapshot_request: Arc<Notify>,
}

/// Sending end. Dropping it closes the feed.
pub struct FeedSender {
    shared: Arc<FeedShared>,
    describer: EventDescriber,
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
    let shared = Arc::new(FeedShared {
        queue: Mutex::new(FeedQueue::new()),
        wake_writer: writer,
        snapshot_wanted: AtomicBool::new(false),
        snapshot_request: Arc::default(),
    });
    Ok((FeedSender { shared: Arc::clone(&shared), describer: EventDescriber::default() }, FeedReceiver { shared, wake_reader: reader }))
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
        let wakes = queue.push(message);
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

    /// The run begins again: everything known of it is discarded.
    pub fn reset(&mut self) {
        self.describer = EventDescriber::default();
        self.send(FeedMessage::Reset);
    }

    /// Notified when the dashboard wants a snapshot.
    pub fn snapshot_request(&self) -> Arc<Notify> {
        Arc::clone(&self.shared.snapshot_request)
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
    fn on_event(&mut self, event: &Event, state: &RunState) -> io::Result<()> {
        if !self.send(FeedMessage::Event(event.clone())) {
            return Err(io::ErrorKind::BrokenPipe.into());
        }
        if let Some(entry) = self.describer.describe(event, state) {
            self.send(FeedMessage::Timeline(entry));
        }
        Ok(())
    }

    fn wants_snapshot(&self) -> bool {
        self.shared.snapshot_wanted.load(Ordering::Acquire)
    }

    fn on_snapshot(&mut self, snapshot: RunSnapshot) {
        self.shared.snapshot_wanted.store(false, Ordering::Release);
        self.send(FeedMessage::Snapshot(snapshot));
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
    /// Asks for what is known of the run; a [`FeedMessage::Snapshot`] answers.
    pub(super) fn request_snapshot(&self) {
        self.shared.snapshot_wanted.store(true, Ordering::Release);
        self.shared.snapshot_request.notify_one();
    }

    /// All messages since the last call, what was dropped, and whether the feed is closed.
    pub(super) fn drain(&self) -> (VecDeque<FeedMessage>, DroppedCounts, bool) {
        let mut sink = [0; 64];
        while matches!(rustix::io::read(&self.wake_reader, &mut sink), Ok(n) if n == sink.len()) {}
        let mut queue = self.shared.lock();
        queue.wake_pending = false;
        (queue.messages.take_items(), queue.messages.take_dropped(), queue.closed)
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
        drop(queue.messages.take_items());
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::event::LogFile;
    use crate::report::RunFold;

    /// Returns whether the receiver is woken, and drains it.
    fn drain_and_check_wake(receiver: &FeedReceiver) -> bool {
        let mut ends = [rustix::event::PollFd::from_borrowed_fd(receiver.wake_fd(), rustix::event::PollFlags::IN)];
        let now = rustix::event::Timespec { tv_sec: 0, tv_nsec: 0 };
        let ready = rustix::event::poll(&mut ends, Some(&now)).expect("polled");
        receiver.drain();
        ready > 0
    }

    #[test]
    fn snapshot_follows_the_events_that_it_includes() {
        let (mut sender, receiver) = feed_channel().expect("a feed");
        let mut fold = RunFold::default();
        receiver.request_snapshot();
        assert!(sender.wants_snapshot());
        let event = Event { seq: 7, at: 1, kind: EventKind::Ready };
        fold.apply(&event);
        sender.on_event(&event, fold.state()).expect("open");
        sender.on_snapshot(fold.snapshot());
        assert!(!sender.wants_snapshot());
        let (messages, dropped, _) = receiver.drain();
        let messages: Vec<FeedMessage> = messages.into();
        let [FeedMessage::Event(_), FeedMessage::Timeline(_), FeedMessage::Snapshot(snapshot)] = &messages[..] else {
            panic!("{} messages", messages.len())
        };
        assert_eq!((snapshot.state.last_seq, dropped.is_empty()), (7, true));
    }

    #[test]
    fn full_feed_keeps_the_growth_of_logs_and_counts_their_bytes() {
        let (sender, receiver) = feed_channel().expect("a feed");
        let log = |n: u64| {
            let bytes = bytes::Bytes::from(vec![b'x'; 1 << 20]);
            let kind = EventKind::Log { host: 0, file: LogFile::Launcher, offset: n << 20, len: 1 << 20, bytes };
            FeedMessage::Event(Event { seq: n, at: 1, kind })
        };
        (0..20).for_each(|n| assert!(sender.send(log(n))));
        let (messages, dropped, _) = receiver.drain();
        assert_eq!((messages.len(), dropped.log_bytes), (20, 5 << 20));
        sender.send(log(20));
        assert_eq!(receiver.drain().1, DroppedCounts::default());
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

    #[test]
    fn samples_wait_for_the_next_message() {
        let (sender, receiver) = feed_channel().expect("a feed");
        let sample = || FeedMessage::Event(Event { seq: 1, at: 1, kind: EventKind::Gpus { host: 0, gpus: Vec::new().into() } });
        sender.send(sample());
        assert!(!drain_and_check_wake(&receiver));
        sender.send(sample());
        sender.send(FeedMessage::Event(Event { seq: 2, at: 1, kind: EventKind::Ready }));
        assert!(drain_and_check_wake(&receiver), "the sample before it counts for no wake");
    }
}
