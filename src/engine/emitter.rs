#![expect(clippy::disallowed_methods, reason = "events are stamped here and nowhere else")]
//! Stamps events with their number and time, and exits with whether a stop caused them; sends them to the reporter. A log chunk comes back
//! as stored or not.

use std::sync::atomic::{AtomicU64, AtomicUsize, Ordering};
use std::sync::{Arc, Mutex, PoisonError};
use std::time::{SystemTime, UNIX_EPOCH};

use tokio::sync::{mpsc, oneshot};

use crate::event::stop_orders::StopOrders;
use crate::event::{Event, EventKind, UnixMillis};

/// What is on its way up.
pub(crate) enum EngineMessage {
    /// What happened; and, asked for where the bytes must be in the laptop's file before they are acknowledged to the host, whether they are.
    Event(Box<Event>, Option<oneshot::Sender<bool>>),
    /// Asks that every log byte that was stored is on the laptop's disk, and why it is not.
    SyncLogs(oneshot::Sender<Result<(), String>>),
    /// Asks whether log bytes can be stored again.
    CheckLogSpace(oneshot::Sender<bool>),
}

/// Samples are left out while so much waits: the next one replaces them.
const SAMPLE_QUEUE_LIMIT: usize = 4096;

/// Where events go. Emitting never waits, and each sender bounds its part of the queue: a stream emits one piece of a log and waits until it is
/// stored, reports each start and end once (`HostConnection::is_first_report`), each warning once and 256 at most (`HostConnection::warn_once`), a disk
/// once a second; a lost connection is reported once a try. Samples are counted here.
#[derive(Clone)]
pub(crate) struct Emitter {
    sender: mpsc::UnboundedSender<EngineMessage>,
    queued: Arc<AtomicUsize>,
    seq: Arc<AtomicU64>,
    stop_orders: Arc<Mutex<StopOrders>>,
}

pub(crate) struct EngineMessageReceiver {
    receiver: mpsc::UnboundedReceiver<EngineMessage>,
    queued: Arc<AtomicUsize>,
}

impl EngineMessageReceiver {
    /// The next; `None` once every emitter is gone.
    pub(crate) async fn recv(&mut self) -> Option<EngineMessage> {
        let delivery = self.receiver.recv().await?;
        self.queued.fetch_sub(1, Ordering::Relaxed);
        Some(delivery)
    }

    /// The next, if there is one now.
    pub(crate) fn try_recv(&mut self) -> Option<EngineMessage> {
        let delivery = self.receiver.try_recv().ok()?;
        self.queued.fetch_sub(1, Ordering::Relaxed);
        Some(delivery)
    }
}

/// Milliseconds since 1970 on this laptop.
pub(crate) fn now_unix_millis() -> UnixMillis {
    SystemTime::now().duration_since(UNIX_EPOCH).map_or(0, |d| UnixMillis::try_from(d.as_millis()).unwrap_or(UnixMillis::MAX))
}

impl Emitter {
    /// An emitter and its consumer's end.
    pub(crate) fn new() -> (Emitter, EngineMessageReceiver) {
        let (up, down) = mpsc::unbounded_channel();
        let waiting = Arc::new(AtomicUsize::new(0));
        (
            Emitter { sender: up, queued: waiting.clone(), seq: Arc::new(AtomicU64::new(0)), stop_orders: Arc::default() },
            EngineMessageReceiver { receiver: down, queued: waiting },
        )
    }

    /// Without a receiver the message is dropped, and a question has no answer.
    fn enqueue(&self, message: EngineMessage) {
        self.queued.fetch_add(1, Ordering::Relaxed);
        if self.sender.send(message).is_err() {
            tracing::debug!("a message came after the last listener had gone");
        }
    }

    fn stamp(&self, mut kind: EventKind) -> Event {
        let at = now_unix_millis();
        self.stop_orders.lock().unwrap_or_else(PoisonError::into_inner).stamp(&mut kind, at);
        Event { seq: self.seq.fetch_add(1, Ordering::Relaxed) + 1, at, kind }
    }

    /// Sends an event. Without a receiver it is dropped.
    pub(crate) fn send(&self, kind: EventKind) {
        if kind.is_sample() && self.queued.load(Ordering::Relaxed) >= SAMPLE_QUEUE_LIMIT {
            return;
        }
        self.enqueue(EngineMessage::Event(Box::new(self.stamp(kind)), None));
    }

    /// Hands log bytes up and waits until they are stored; `false`: they could not be.
    pub(crate) async fn send_and_wait_stored(&self, kind: EventKind) -> bool {
        let (stored, answer) = oneshot::channel();
        self.enqueue(EngineMessage::Event(Box::new(self.stamp(kind)), Some(stored)));
        answer.await.unwrap_or(false)
    }

    /// Waits until all log bytes of the run that were stored are on the laptop's disk, so that the hosts may delete theirs.
    ///
    /// # Errors
    /// Why they are not.
    pub(crate) async fn sync_logs(&self) -> Result<(), String> {
        let (done, answer) = oneshot::channel();
        self.enqueue(EngineMessage::SyncLogs(done));
        answer.await.unwrap_or_else(|_| Err("the reporter has ended".to_owned()))
    }

    /// Whether log bytes can be stored again; stores none.
    pub(crate) async fn can_store_logs(&self) -> bool {
        let (asked, answer) = oneshot::channel();
        self.enqueue(EngineMessage::CheckLogSpace(asked));
        answer.await.unwrap_or(false)
    }

    /// Something a person should know.
    pub(crate) fn send_notice(&self, host: Option<usize>, text: impl Into<String>, warn: bool) {
        let host = host.map(|h| u32::try_from(h).unwrap_or(u32::MAX));
        self.send(EventKind::Notice { host, text: text.into(), warn });
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn stalled_reporter_drops_only_samples() {
        let (emit, mut deliveries) = Emitter::new();
        for _ in 0..3 * SAMPLE_QUEUE_LIMIT {
            emit.send(EventKind::GpuProcesses { host: 0, processes: Vec::new() });
        }
        emit.send_notice(None, "what must not be lost", true);
        let waiting = std::iter::from_fn(|| deliveries.try_recv()).count();
        assert_eq!(waiting, SAMPLE_QUEUE_LIMIT + 1);
        emit.send(EventKind::GpuProcesses { host: 0, processes: Vec::new() });
        assert!(deliveries.try_recv().is_some());
    }
}
