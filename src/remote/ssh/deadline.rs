//! A deadline for servers that pauses while the user or an agent is waited for; during a prompt, queue slots are released.

use std::future::Future;
use std::sync::{Mutex, PoisonError};
use std::time::Duration;

use tokio::sync::OwnedSemaphorePermit;
use tokio::time::Instant;

/// Polling interval of a paused clock.
const POLL_INTERVAL: Duration = Duration::from_millis(200);

/// Slots in the handshake queues.
pub(super) type QueuePermits = Vec<OwnedSemaphorePermit>;

/// The deadline, and the queue slots held until then.
pub(super) struct PausableDeadline(Mutex<DeadlineState>);

struct DeadlineState {
    deadline: Instant,
    paused_since: Option<Instant>,
    /// How long the clock was paused.
    paused_total: Duration,
    queue_permits: QueuePermits,
}

impl PausableDeadline {
    pub(super) fn new(end: Instant, permits: QueuePermits) -> Self {
        PausableDeadline(Mutex::new(DeadlineState {
            deadline: end,
            paused_since: None,
            paused_total: Duration::ZERO,
            queue_permits: permits,
        }))
    }

    /// Like `pause`, and releases the queue slots: a prompt may take minutes, and this handshake has almost no work
    /// left to do.
    pub(super) fn pause_for_user(&self) -> PauseGuard<'_> {
        drop(std::mem::take(&mut self.state().queue_permits));
        self.pause()
    }

    fn state(&self) -> std::sync::MutexGuard<'_, DeadlineState> {
        self.0.lock().unwrap_or_else(PoisonError::into_inner)
    }

    /// Pauses the clock until the guard is dropped.
    pub(super) fn pause(&self) -> PauseGuard<'_> {
        self.state().paused_since = Some(Instant::now());
        PauseGuard(self)
    }

    /// Total paused time.
    pub(super) fn paused_total(&self) -> Duration {
        self.state().paused_total
    }

    /// Runs `work`; `None` if the time is over.
    pub(super) async fn wait_for<T>(&self, work: impl Future<Output = T>) -> Option<T> {
        tokio::pin!(work);
        loop {
            let (end, paused) = {
                let state = self.state();
                (state.deadline, state.paused_since.is_some())
            };
            let until = if paused { Instant::now() + POLL_INTERVAL } else { end };
            match tokio::time::timeout_at(until, &mut work).await {
                Ok(done) => return Some(done),
                Err(_) => {
                    let state = self.state();
                    if state.paused_since.is_none() && state.deadline <= Instant::now() {
                        return None;
                    }
                }
            }
        }
    }
}

/// Pauses the clock while it exists.
pub(super) struct PauseGuard<'a>(&'a PausableDeadline);

impl Drop for PauseGuard<'_> {
    fn drop(&mut self) {
        let mut state = self.0.state();
        if let Some(since) = state.paused_since.take() {
            let waited = since.elapsed();
            state.deadline += waited;
            state.paused_total += waited;
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[tokio::test]
    async fn user_prompt_pauses_the_deadline() {
        let short = Duration::from_millis(50);
        let queue = std::sync::Arc::new(tokio::sync::Semaphore::new(1));
        let permits = vec![queue.clone().acquire_owned().await.expect("open")];
        let clock = PausableDeadline::new(Instant::now() + short, permits);
        let work = async {
            drop(clock.pause());
            assert_eq!(queue.available_permits(), 0);
            let pause = clock.pause_for_user();
            assert_eq!(queue.available_permits(), 1, "others need not wait for a person");
            tokio::time::sleep(6 * short).await;
            drop(pause);
        };
        assert_eq!(clock.wait_for(work).await, Some(()));
        assert!(clock.paused_total() >= 6 * short);
        assert_eq!(clock.wait_for(std::future::pending::<()>()).await, None);
    }
}
