//! What waits for a slow output: log bytes and samples are dropped when the queue is long, everything when it is very long.
//!
//! The files have the bytes, and the next sample replaces the last. Dropped items are counted, so that the output can report them.

use std::collections::VecDeque;
use std::fmt;

use crate::event::EventKind;
use crate::text::plural::count_noun;

/// Log bytes and samples are dropped beyond this many queued bytes.
pub(crate) const LOG_QUEUE_LIMIT: usize = 16 << 20;
/// Everything is dropped beyond this.
const QUEUE_LIMIT: usize = 128 << 20;

/// What a slow output did not get.
#[derive(Debug, Clone, Copy, Default, PartialEq, Eq)]
pub(crate) struct DroppedCounts {
    pub(crate) log_bytes: u64,
    pub(crate) samples: u64,
    pub(crate) events: u64,
}

impl DroppedCounts {
    pub(crate) fn is_empty(self) -> bool {
        self == DroppedCounts::default()
    }
}

/// `60 bytes of logs, 1 sample`.
impl fmt::Display for DroppedCounts {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        let count = |n: u64, noun: &str| (n > 0).then(|| count_noun(usize::try_from(n).unwrap_or(usize::MAX), noun));
        let bytes = count(self.log_bytes, "byte").map(|bytes| format!("{bytes} of logs"));
        let parts = [bytes, count(self.samples, "sample"), count(self.events, "event")];
        f.write_str(&parts.into_iter().flatten().collect::<Vec<_>>().join(", "))
    }
}

/// Items in order, with the bytes that they hold.
#[derive(Debug)]
pub(crate) struct BoundedQueue<T> {
    items: VecDeque<T>,
    /// What an item counts beside its bytes.
    item_overhead: usize,
    queued_bytes: usize,
    dropped: DroppedCounts,
}

impl<T> BoundedQueue<T> {
    pub(crate) fn new(item_overhead: usize) -> Self {
        BoundedQueue { items: VecDeque::new(), item_overhead, queued_bytes: 0, dropped: DroppedCounts::default() }
    }

    pub(crate) fn push(&mut self, item: T, bytes: usize) {
        self.queued_bytes = self.queued_bytes.saturating_add(bytes).saturating_add(self.item_overhead);
        self.items.push_back(item);
    }

    /// The newest item that still waits.
    pub(crate) fn last_mut(&mut self) -> Option<&mut T> {
        self.items.back_mut()
    }

    /// Whether the event may be queued; one that may not is counted as dropped.
    pub(crate) fn admits(&mut self, kind: &EventKind) -> bool {
        let (bytes, limit, dropped, count) = match kind {
            EventKind::Log { bytes, .. } => (bytes.len(), LOG_QUEUE_LIMIT, &mut self.dropped.log_bytes, bytes.len() as u64),
            kind if kind.is_sample() => (0, LOG_QUEUE_LIMIT, &mut self.dropped.samples, 1),
            _ => (0, QUEUE_LIMIT, &mut self.dropped.events, 1),
        };
        let has_room = self.queued_bytes.saturating_add(bytes).saturating_add(self.item_overhead) <= limit;
        if !has_room {
            *dropped += count;
        }
        has_room
    }

    /// Whether log bytes are taken again.
    pub(crate) fn has_room_for_logs(&self) -> bool {
        self.queued_bytes + self.item_overhead <= LOG_QUEUE_LIMIT
    }

    /// Whether an item without bytes is taken.
    pub(crate) fn has_room(&self) -> bool {
        self.queued_bytes + self.item_overhead <= QUEUE_LIMIT
    }

    /// What was dropped since the last call.
    pub(crate) fn take_dropped(&mut self) -> DroppedCounts {
        std::mem::take(&mut self.dropped)
    }

    /// Everything that waits; the queue is empty then.
    pub(crate) fn take_items(&mut self) -> VecDeque<T> {
        self.queued_bytes = 0;
        std::mem::take(&mut self.items)
    }

    pub(crate) fn is_empty(&self) -> bool {
        self.items.is_empty()
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::event::LogFile;

    fn log(bytes: usize) -> EventKind {
        EventKind::log(0, LogFile::Launcher, 0, vec![b'x'; bytes])
    }

    #[test]
    fn logs_are_dropped_before_events_and_counted() {
        let mut queue = BoundedQueue::new(16);
        assert!(queue.admits(&log(1000)));
        queue.push((), LOG_QUEUE_LIMIT);
        assert!(!queue.admits(&log(60)) && !queue.admits(&EventKind::Gpus { host: 0, gpus: Vec::new().into() }));
        assert!(queue.admits(&EventKind::Ready) && !queue.has_room_for_logs());
        assert_eq!(queue.take_dropped().to_string(), "60 bytes of logs, 1 sample");
        assert!(queue.take_dropped().is_empty());
        queue.push((), QUEUE_LIMIT);
        assert!(!queue.admits(&EventKind::Ready) && !queue.has_room());
        assert_eq!(queue.take_items().len(), 2);
        assert!(queue.admits(&EventKind::Ready) && queue.admits(&log(60)) && queue.is_empty());
        assert_eq!(queue.take_dropped().to_string(), "1 event");
    }
}
