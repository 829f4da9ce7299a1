//! A deadline for servers that stands still while a person or an agent is waited for; while it is a person, nothing is kept from others.
//!
//! Uses nothing.

use std::future::Future;
use std::sync::{Mutex, PoisonError};
use std::time::Duration;

use tokio::sync::OwnedSemaphorePermit;
use tokio::time::Instant;

/// How often a standing clock is looked at.
const LOOK: Duration = Duration::from_millis(200);

/// Places in the queues that handshakes wait in.
pub(super) type Places = Vec<OwnedSemaphorePermit>;

/// When an answer is late, and which places in the queues are held until then.
pub(super) struct Clock(Mutex<State>);

struct State {
    end: Instant,
    since: Option<Instant>,
    /// Whether somebody was waited for.
    waited: Duration,
    places: Places,
}

impl Clock {
    pub(super) fn new(end: Instant, places: Places) -> Self {
        Clock(Mutex::new(State { end, since: None, waited: Duration::ZERO, places }))
    }

    /// The same as `pause`, and gives the places in the queues to others: a person may take minutes, and this handshake has nearly no work
    /// left to do.
    pub(super) fn pause_for_a_person(&self) -> Pause<'_> {
        drop(std::mem::take(&mut self.state().places));
        self.pause()
    }

    fn state(&self) -> std::sync::MutexGuard<'_, State> {
        self.0.lock().unwrap_or_else(PoisonError::into_inner)
    }

    /// Stops the clock until the guard is dropped.
    pub(super) fn pause(&self) -> Pause<'_> {
        self.state().since = Some(Instant::now());
        Pause(self)
    }

    /// How long others than the server were waited for.
    pub(super) fn waited(&self) -> Duration {
        self.state().waited
    }

    /// Waits for `work`; `None`: the time is over.
    pub(super) async fn within<T>(&self, work: impl Future<Output = T>) -> Option<T> {
        tokio::pin!(work);
        loop {
            let (end, stands) = {
                let state = self.state();
                (state.end, state.since.is_some())
            };
            let until = if stands { Instant::now() + LOOK } else { end };
            match tokio::time::timeout_at(until, &mut work).await {
                Ok(done) => return Some(done),
                Err(_) => {
                    let state = self.state();
                    if state.since.is_none() && state.end <= Instant::now() {
                        return None;
                    }
                }
            }
        }
    }
}

/// While it lives, the clock stands.
pub(super) struct Pause<'a>(&'a Clock);

impl Drop for Pause<'_> {
    fn drop(&mut self) {
        let mut state = self.0.state();
        if let Some(since) = state.since.take() {
            let waited = since.elapsed();
            state.end += waited;
            state.waited += waited;
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[tokio::test]
    async fn time_for_a_person_is_not_the_servers() {
        let short = Duration::from_millis(50);
        let queue = std::sync::Arc::new(tokio::sync::Semaphore::new(1));
        let places = vec![queue.clone().acquire_owned().await.expect("open")];
        let clock = Clock::new(Instant::now() + short, places);
        let work = async {
            drop(clock.pause());
            assert_eq!(queue.available_permits(), 0);
            let pause = clock.pause_for_a_person();
            assert_eq!(queue.available_permits(), 1, "others need not wait for a person");
            tokio::time::sleep(6 * short).await;
            drop(pause);
        };
        assert_eq!(clock.within(work).await, Some(()));
        assert!(clock.waited() >= 6 * short);
        assert_eq!(clock.within(std::future::pending::<()>()).await, None);
    }
}
