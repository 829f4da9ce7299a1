//! Follows the logs of one host: reconnects, and waits where the laptop's disk is full.

use std::collections::HashMap;
use std::sync::Arc;
use std::time::Duration;

use tokio::sync::mpsc;
use tokio::time::Instant;
use tokio_util::sync::CancellationToken;

use crate::engine::host_connection::HostConnection;
use crate::engine::log_stream::{
    DISK_SPACE_POLL_INTERVAL, LogOffsets, LogStreamError, StreamEnd, StreamEventTarget, StreamRequest, run_stream_once,
};
use crate::engine::log_stream_event::LogStreamEvent;
use crate::engine::log_stream_reporting::error_with_hint;
use crate::model::log_file::LogFile;
use crate::plan::host_context::HostContext;
use crate::plan::protocol::log_frames::LogStreamPurpose;
use crate::remote::RemoteError;
use crate::text::duration::format_rounded;

/// Follows the logs of one host. A lost connection is made again without end; after an error that no retry fixes the host is given up in the
/// end. While this laptop cannot store logs, only starts and exits are streamed.
pub(crate) struct LogFollower {
    pub connection: Arc<HostConnection>,
    pub context: HostContext,
    pub offsets: LogOffsets,
    /// How many hosts are followed.
    pub host_count: usize,
    pub purpose: LogStreamPurpose,
    pub events: mpsc::Sender<LogStreamEvent>,
}

/// Before a lost connection is made again; doubled each time.
const RETRY_PAUSE: Duration = Duration::from_millis(250);

const MAX_RETRY_PAUSE: Duration = Duration::from_secs(10);

/// The longest pause after an error that no retry mends: a person has to do something, and a login that is refused too often is locked out.
const MAX_FATAL_RETRY_PAUSE: Duration = Duration::from_secs(60);

/// A stream that has lived this long is healthy: earlier failures are forgotten.
const HEALTHY_STREAM_AGE: Duration = Duration::from_secs(60);

/// The pauses before the next tries.
struct RetryPauses {
    reconnect: Duration,
    disk_poll: Duration,
    /// The time spent so far on an error that no retry fixes.
    spent_on_fatal: Duration,
}

impl RetryPauses {
    const INITIAL: RetryPauses =
        RetryPauses { reconnect: RETRY_PAUSE, disk_poll: DISK_SPACE_POLL_INTERVAL, spent_on_fatal: Duration::ZERO };

    fn next_reconnect(&mut self) -> Duration {
        let longer = (self.reconnect * 2).min(MAX_RETRY_PAUSE);
        std::mem::replace(&mut self.reconnect, longer)
    }

    fn next_disk_poll(&mut self) -> Duration {
        let longer = (self.disk_poll * 2).min(MAX_FATAL_RETRY_PAUSE);
        std::mem::replace(&mut self.disk_poll, longer)
    }
}

impl LogFollower {
    pub(crate) async fn run(self, end: CancellationToken) {
        let stored_lengths = || (self.offsets)(self.connection.host_index()).into_iter().collect();
        let mut lengths: HashMap<LogFile, u64> = stored_lengths();
        let mut pauses = RetryPauses::INITIAL;
        let mut without_logs_poll = None;
        loop {
            let started = Instant::now();
            let request = StreamRequest { host_count: self.host_count, purpose: self.purpose, without_logs_poll };
            let target = StreamEventTarget::Follower(&self.events);
            let stream = run_stream_once(&self.connection, &self.context, &mut lengths, request, target);
            let Some(result) = end.run_until_cancelled(stream).await else { return };
            if started.elapsed() > HEALTHY_STREAM_AGE {
                pauses = RetryPauses::INITIAL;
            }
            let pause = match result {
                Ok(StreamEnd::Complete(_)) => return,
                Ok(StreamEnd::DiskSpaceAvailable) => {
                    without_logs_poll = None;
                    continue;
                }
                Err(LogStreamError::NotStored) => {
                    // The files may be shorter than counted here.
                    lengths = stored_lengths();
                    without_logs_poll = Some(pauses.next_disk_poll());
                    continue;
                }
                Err(LogStreamError::Remote(error)) => match self.pause_after_error(&error, &mut pauses).await {
                    Some(pause) => pause,
                    None => return,
                },
            };
            if end.run_until_cancelled(tokio::time::sleep(pause)).await.is_none() {
                return;
            }
        }
    }

    /// Drops the connection; the pause before the next one, `None` once the host is given up.
    async fn pause_after_error(&self, error: &RemoteError, pauses: &mut RetryPauses) -> Option<Duration> {
        if error.is_retryable() {
            self.connection.drop_connection(error, true).await;
            return Some(pauses.next_reconnect());
        }
        let limit = self.connection.retry_window();
        let will_retry = pauses.spent_on_fatal < limit;
        self.connection.drop_connection(error, will_retry).await;
        if !will_retry {
            report_give_up(self.connection.host_index(), error, limit, &self.events).await;
            return None;
        }
        self.connection.warn_once(format!(
            "{}; it is tried again for {}, then the host is given up",
            error_with_hint(error),
            format_limit(limit)
        ));
        let pause = (limit / 10).min(MAX_FATAL_RETRY_PAUSE);
        pauses.spent_on_fatal += pause;
        Some(pause)
    }
}

fn format_limit(limit: Duration) -> String {
    format_rounded(i64::try_from(limit.as_millis()).unwrap_or(i64::MAX))
}

async fn report_give_up(host: usize, error: &RemoteError, limit: Duration, events: &mpsc::Sender<LogStreamEvent>) {
    let why = format!("{} (tried for {})", error_with_hint(error), format_limit(limit));
    if events.send(LogStreamEvent::HostGivenUp(host, why)).await.is_err() {
        tracing::debug!(host, "the follower ended before the host was given up");
    }
}

#[cfg(test)]
#[path = "log_follower_tests.rs"]
mod tests;
