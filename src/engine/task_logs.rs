//! The logs of tasks of `prepare` while a plan is executed: one stream a host, from the first task to the last.

use std::collections::BTreeSet;
use std::sync::Arc;
use std::time::Duration;

use tokio::sync::{mpsc, watch};
use tokio::task::JoinSet;
use tokio_util::sync::CancellationToken;

use crate::engine::Engine;
use crate::engine::host_connection::HostConnection;
use crate::engine::log_follower::LogFollower;
use crate::engine::log_stream::LogOffsets;
use crate::engine::log_stream_event::LogStreamEvent;
use crate::model::log_file::LogFile;
use crate::plan::host_context::HostContext;
use crate::plan::protocol::log_frames::LogStreamPurpose;

/// How long the result of a task waits for the end of its log.
const LOG_END_TIMEOUT: Duration = Duration::from_secs(5);
const EVENT_QUEUE_CAPACITY: usize = 128;

/// Hosts and numbers of tasks whose logs have come to their end.
type EndedTasks = BTreeSet<(usize, u32)>;

/// The streams of all hosts.
pub(super) struct TaskLogs {
    connections: Vec<Arc<HostConnection>>,
    end: CancellationToken,
    streams: JoinSet<()>,
    ended: watch::Receiver<EndedTasks>,
}

impl TaskLogs {
    pub(super) fn start(engine: &Engine, hosts: &[HostContext], offsets: &LogOffsets) -> TaskLogs {
        let (up, mut events) = mpsc::channel(EVENT_QUEUE_CAPACITY);
        let (sender, ended) = watch::channel(EndedTasks::new());
        let end = CancellationToken::new();
        let mut streams = JoinSet::new();
        for (connection, context) in engine.connections.iter().zip(hosts) {
            // Two where tasks run beside the container.
            let beside = context.host_task_context().map(|beside| (beside, LogStreamPurpose::Read));
            for (context, purpose) in std::iter::once((context.clone(), LogStreamPurpose::Supervise)).chain(beside) {
                let follower = LogFollower {
                    connection: connection.clone(),
                    context,
                    offsets: offsets.clone(),
                    host_count: hosts.len(),
                    purpose,
                    events: up.clone(),
                };
                streams.spawn(follower.run(end.clone()));
            }
        }
        drop(up);
        streams.spawn(async move {
            while let Some(event) = events.recv().await {
                if let LogStreamEvent::ProcessEnded(host, LogFile::Task { number }, ..) = event {
                    sender.send_modify(|ended| {
                        ended.insert((host, number));
                    });
                }
            }
        });
        TaskLogs { connections: engine.connections.clone(), end, streams, ended }
    }

    /// Waits a few seconds at most until a task's log was received completely.
    pub(super) fn wait_for_end(&self, host: usize, number: u32) -> impl Future<Output = ()> + Send + 'static {
        let mut ended = self.ended.clone();
        async move {
            let received = ended.wait_for(|ended| ended.contains(&(host, number)));
            if !matches!(tokio::time::timeout(LOG_END_TIMEOUT, received).await, Ok(Ok(_))) {
                tracing::debug!(host, number, "the end of the task's log has not come");
            }
        }
    }

    pub(super) async fn stop(mut self) {
        self.end.cancel();
        while self.streams.join_next().await.is_some() {}
        // Ranks may have ended meanwhile: who reads the logs next must hear of it.
        self.connections.iter().for_each(|connection| connection.forget_reports());
    }
}
