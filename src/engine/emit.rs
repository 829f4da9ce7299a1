#![expect(clippy::disallowed_methods, reason = "events are stamped here and nowhere else")]
//! Stamps events with their number and time and hands them up; a log chunk comes back as stored or not.

use std::sync::Arc;
use std::sync::atomic::{AtomicU64, Ordering};
use std::time::{SystemTime, UNIX_EPOCH};

use tokio::sync::{mpsc, oneshot};

use crate::event::{Event, EventKind, Millis};

/// What is on its way up.
pub enum Delivery {
    /// What happened; and, asked for where the bytes must be in the laptop's file before they are acknowledged to the host, whether they are.
    Event(Box<Event>, Option<oneshot::Sender<bool>>),
    /// Asks that every log byte that was stored is on the laptop's disk, and why it is not.
    Sync(oneshot::Sender<Result<(), String>>),
}

/// Where events go. Emitting never waits: there are few of them, and log bytes are bounded by their acknowledgement.
#[derive(Clone)]
pub struct Emitter {
    up: mpsc::UnboundedSender<Delivery>,
    seq: Arc<AtomicU64>,
}

/// Milliseconds since 1970 on this laptop.
pub fn now() -> Millis {
    SystemTime::now().duration_since(UNIX_EPOCH).map_or(0, |d| Millis::try_from(d.as_millis()).unwrap_or(Millis::MAX))
}

impl Emitter {
    /// An emitter and its consumer's end.
    pub fn new() -> (Emitter, mpsc::UnboundedReceiver<Delivery>) {
        let (up, down) = mpsc::unbounded_channel();
        (Emitter { up, seq: Arc::new(AtomicU64::new(0)) }, down)
    }

    fn stamp(&self, kind: EventKind) -> Event {
        Event { seq: self.seq.fetch_add(1, Ordering::Relaxed) + 1, at: now(), kind }
    }

    /// Tells what happened. When nobody listens any more, nobody needs to know.
    pub fn send(&self, kind: EventKind) {
        if self.up.send(Delivery::Event(Box::new(self.stamp(kind)), None)).is_err() {
            tracing::debug!("an event came after the last listener had gone");
        }
    }

    /// Hands log bytes up and waits until they are stored; `false`: they could not be.
    pub async fn store(&self, kind: EventKind) -> bool {
        let (stored, answer) = oneshot::channel();
        if self.up.send(Delivery::Event(Box::new(self.stamp(kind)), Some(stored))).is_err() {
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
        if self.up.send(Delivery::Sync(done)).is_err() {
            return Err("the reporter has ended".to_owned());
        }
        answer.await.unwrap_or_else(|_| Err("the reporter has ended".to_owned()))
    }

    /// Something a person should know.
    pub fn notice(&self, host: Option<usize>, text: impl Into<String>, warn: bool) {
        let host = host.map(|h| u32::try_from(h).unwrap_or(u32::MAX));
        self.send(EventKind::Notice { host, text: text.into(), warn });
    }
}
