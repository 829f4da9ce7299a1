#![expect(clippy::disallowed_methods, reason = "events are stamped here and nowhere else")]
//! Stamps events with their number and time and hands them up; a log chunk comes back as stored or not.

use std::sync::Arc;
use std::sync::atomic::{AtomicU64, AtomicUsize, Ordering};
use std::time::{SystemTime, UNIX_EPOCH};

use tokio::sync::{mpsc, oneshot};

use crate::event::{Event, EventKind, Millis};

/// What is on its way up.
pub enum Delivery {
    /// What happened; and, asked for where the bytes must be in the laptop's file before they are acknowledged to the host, whether they are.
    Event(Box<Event>, Option<oneshot::Sender<bool>>),
    /// Asks that every log byte that was stored is on the laptop's disk, and why it is not.
    Sync(oneshot::Sender<Result<(), String>>),
    /// Asks whether log bytes can be stored again.
    Room(oneshot::Sender<bool>),
}

/// Samples are left out while so much waits: the next one replaces them.
const SAMPLES: usize = 4096;

/// Where events go. Emitting never waits, and what waits is bounded by who emits: a stream hands up one piece of a log and waits until it is
/// stored, tells each start and end once (`Link::is_news`), a warning once and of 256 at most (`Link::warn_once`), a disk once a second; a
/// lost connection is reported once a try. Samples are counted here.
#[derive(Clone)]
pub struct Emitter {
    up: mpsc::UnboundedSender<Delivery>,
    waiting: Arc<AtomicUsize>,
    seq: Arc<AtomicU64>,
}

/// The consumer's end.
pub struct Deliveries {
    up: mpsc::UnboundedReceiver<Delivery>,
    waiting: Arc<AtomicUsize>,
}

impl Deliveries {
    /// The next; `None` once every emitter is gone.
    pub async fn recv(&mut self) -> Option<Delivery> {
        let delivery = self.up.recv().await?;
        self.waiting.fetch_sub(1, Ordering::Relaxed);
        Some(delivery)
    }

    /// The next, if there is one now.
    pub fn now(&mut self) -> Option<Delivery> {
        let delivery = self.up.try_recv().ok()?;
        self.waiting.fetch_sub(1, Ordering::Relaxed);
        Some(delivery)
    }
}

/// Milliseconds since 1970 on this laptop.
pub fn now() -> Millis {
    SystemTime::now().duration_since(UNIX_EPOCH).map_or(0, |d| Millis::try_from(d.as_millis()).unwrap_or(Millis::MAX))
}

impl Emitter {
    /// An emitter and its consumer's end.
    pub fn new() -> (Emitter, Deliveries) {
        let (up, down) = mpsc::unbounded_channel();
        let waiting = Arc::new(AtomicUsize::new(0));
        (Emitter { up, waiting: waiting.clone(), seq: Arc::new(AtomicU64::new(0)) }, Deliveries { up: down, waiting })
    }

    /// Whether it was taken.
    fn hand_up(&self, delivery: Delivery) -> bool {
        self.waiting.fetch_add(1, Ordering::Relaxed);
        self.up.send(delivery).is_ok()
    }

    fn stamp(&self, kind: EventKind) -> Event {
        Event { seq: self.seq.fetch_add(1, Ordering::Relaxed) + 1, at: now(), kind }
    }

    /// Tells what happened. When nobody listens any more, nobody needs to know.
    pub fn send(&self, kind: EventKind) {
        if kind.is_sample() && self.waiting.load(Ordering::Relaxed) >= SAMPLES {
            return;
        }
        if !self.hand_up(Delivery::Event(Box::new(self.stamp(kind)), None)) {
            tracing::debug!("an event came after the last listener had gone");
        }
    }

    /// Hands log bytes up and waits until they are stored; `false`: they could not be.
    pub async fn store(&self, kind: EventKind) -> bool {
        let (stored, answer) = oneshot::channel();
        if !self.hand_up(Delivery::Event(Box::new(self.stamp(kind)), Some(stored))) {
            return false;
        }
        answer.await.unwrap_or(false)
    }

    /// Waits until all log bytes of the run that were stored are on the laptop's disk, so that the hosts may delete theirs.
    ///
    /// # Errors
    /// Why they are not.
    pub async fn sync(&self) -> Result<(), String> {
        let (done, answer) = oneshot::channel();
        if !self.hand_up(Delivery::Sync(done)) {
            return Err("the reporter has ended".to_owned());
        }
        answer.await.unwrap_or_else(|_| Err("the reporter has ended".to_owned()))
    }

    /// Whether log bytes can be stored again, judged without storing any.
    pub async fn room(&self) -> bool {
        let (asked, answer) = oneshot::channel();
        self.hand_up(Delivery::Room(asked)) && answer.await.unwrap_or(false)
    }

    /// Something a person should know.
    pub fn notice(&self, host: Option<usize>, text: impl Into<String>, warn: bool) {
        let host = host.map(|h| u32::try_from(h).unwrap_or(u32::MAX));
        self.send(EventKind::Notice { host, text: text.into(), warn });
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn samples_do_not_pile_up_before_a_reporter_that_stands_still() {
        let (emit, mut deliveries) = Emitter::new();
        for _ in 0..3 * SAMPLES {
            emit.send(EventKind::GpuProcesses { host: 0, processes: Vec::new() });
        }
        emit.notice(None, "what must not be lost", true);
        let waiting = std::iter::from_fn(|| deliveries.now()).count();
        assert_eq!(waiting, SAMPLES + 1);
        emit.send(EventKind::GpuProcesses { host: 0, processes: Vec::new() });
        assert!(deliveries.now().is_some());
    }
}
