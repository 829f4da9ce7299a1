//! Watchers of hosts that are lost, refuse, or do not keep to the protocol.

use std::sync::atomic::{AtomicUsize, Ordering};

use bytes::Bytes;
use futures_util::future::BoxFuture;

use super::*;
use crate::engine::emitter::{Emitter, EngineMessage};
use crate::model::remote_command::RemoteCommand;
use crate::remote::byte_channel::{ByteSender, byte_channel};
use crate::remote::stub_remote::StubRemote;
use crate::remote::{HostConnector, Remote, RemoteStream};

/// What a host does when it is followed.
#[derive(Clone)]
enum HostBehavior {
    /// It cannot be reached.
    Unreachable,
    RefusesConnection,
    /// It sends this, then nothing more.
    Sends(&'static str),
}

/// The host's ends of a stream.
type HostStreamEnds = (ByteSender<RemoteError>, mpsc::Receiver<Bytes>);

#[derive(Clone)]
struct ScriptedHost {
    behavior: HostBehavior,
    connect_attempts: Arc<AtomicUsize>,
    open_streams: Arc<std::sync::Mutex<Vec<HostStreamEnds>>>,
}

impl StubRemote for ScriptedHost {
    fn open_stream<'a>(&'a self, command: &'a RemoteCommand) -> BoxFuture<'a, Result<RemoteStream, RemoteError>> {
        let (sender, output) = byte_channel(command.output_limit);
        let (input, reported) = mpsc::channel(64);
        if let HostBehavior::Sends(text) = self.behavior {
            assert!(sender.send(Bytes::from_static(text.as_bytes()), |_| RemoteError::Protocol { what: String::new() }));
        }
        self.open_streams.lock().expect("whole").push((sender, reported));
        Box::pin(async { Ok(RemoteStream { output, input }) })
    }
}

impl HostConnector for ScriptedHost {
    fn retry_window(&self, _: usize) -> Duration {
        Duration::from_millis(200)
    }

    fn connect(&self, _: usize) -> BoxFuture<'_, Result<Arc<dyn Remote>, RemoteError>> {
        self.connect_attempts.fetch_add(1, Ordering::Relaxed);
        let host: Arc<dyn Remote> = Arc::new(self.clone());
        let answer = match self.behavior {
            HostBehavior::Unreachable => Err(RemoteError::Lost { what: "no route".to_owned(), hint: String::new(), retry: true }),
            HostBehavior::RefusesConnection => {
                Err(RemoteError::Refused { what: "its key has changed".to_owned(), hint: "mend it".to_owned() })
            }
            HostBehavior::Sends(_) => Ok(host),
        };
        Box::pin(async { answer })
    }
}

fn test_host_context() -> HostContext {
    HostContext { run_id: "run1".to_owned(), world_size: 2, ..HostContext::new("n", "gpu01", "/r") }
}

/// Follows a host without storing its logs; returns the reports until `enough`, and the number of connections.
async fn follow_scripted_host(behavior: HostBehavior, enough: impl Fn(&[LogStreamEvent], usize) -> bool) -> (Vec<LogStreamEvent>, usize) {
    let host = ScriptedHost { behavior, connect_attempts: Arc::default(), open_streams: Arc::default() };
    let tries = host.connect_attempts.clone();
    let (emit, mut deliveries) = Emitter::new();
    let stored = tokio::spawn(async move {
        while let Some(delivery) = deliveries.recv().await {
            if let EngineMessage::Event(_, Some(done)) = delivery {
                assert!(done.send(false).is_ok());
            }
        }
    });
    let link = Arc::new(HostConnection::new(0, Arc::new(host), emit));
    let (up, mut reports) = mpsc::channel(64);
    let end = CancellationToken::new();
    let offsets: LogOffsets = Arc::new(|_| Vec::new());
    let follower = LogFollower {
        connection: link,
        context: test_host_context(),
        offsets,
        host_count: 1,
        purpose: LogStreamPurpose::Supervise,
        events: up,
    };
    let watcher = tokio::spawn(follower.run(end.clone()));
    let mut reported = Vec::new();
    let all_reports = async {
        while !enough(&reported, tries.load(Ordering::Relaxed)) {
            if let Ok(Some(report)) = tokio::time::timeout(Duration::from_millis(20), reports.recv()).await {
                reported.push(report);
            }
        }
    };
    tokio::time::timeout(Duration::from_secs(120), all_reports).await.expect("the reports arrive");
    end.cancel();
    watcher.await.expect("it ends");
    stored.abort();
    (reported, tries.load(Ordering::Relaxed))
}

fn has_given_up(reported: &[LogStreamEvent], _: usize) -> bool {
    matches!(reported.last(), Some(LogStreamEvent::HostGivenUp(..)))
}

#[tokio::test]
async fn fatal_errors_give_up_lost_network_retries_forever() {
    let (reported, tries) = follow_scripted_host(HostBehavior::RefusesConnection, has_given_up).await;
    assert_eq!(reported, [LogStreamEvent::HostGivenUp(0, "its key has changed; mend it (tried for 0 s)".to_owned())]);
    assert!(tries > 3, "{tries}");
    let (reported, _) = follow_scripted_host(HostBehavior::Unreachable, |_, tries| tries >= 4).await;
    assert_eq!(reported, []);
}

#[tokio::test]
async fn protocol_violations_give_up_with_reason() {
    let endless: &'static str = Box::leak("x".repeat(5000).into_boxed_str());
    let many: &'static str = Box::leak((0..9000).map(|n| format!("P rank-1.{n} 7 9 11.5\n")).collect::<String>().into_boxed_str());
    for (says, what) in [
        (endless, "out of step"),
        ("Segmentation fault\n", "out of step at \"Segmentation fault\""),
        ("F rank-1.0 0 99999999 0\n", "out of step"),
        ("P rank-2.0 7 9 11.5\n", "the host reports rank 2, but the run has 2"),
        (many, "more than 8208 starts and ends"),
    ] {
        let (reported, _) = follow_scripted_host(HostBehavior::Sends(says), has_given_up).await;
        let Some(LogStreamEvent::HostGivenUp(0, why)) = reported.last() else { panic!("{reported:?}") };
        assert!(why.contains(what), "{why}");
    }
}

#[tokio::test]
async fn full_disk_streams_events_without_logs() {
    // The log cannot be stored; what is reported after it comes with the next stream, and a host that sends logs all the same is cut off.
    let says = "P rank-0.0 7 9 11.5\nF rank-0.0 0 5 0\nabcd\nX rank-1.0 7 12.5\n";
    let (reported, _) = follow_scripted_host(HostBehavior::Sends(says), has_given_up).await;
    let rank = |rank| LogFile::Rank { rank, restart: 0 };
    assert!(matches!(reported[0], LogStreamEvent::ProcessStarted(0, file, _) if file == rank(0)), "{reported:?}");
    let Some(LogStreamEvent::HostGivenUp(0, why)) = reported.last() else { panic!("{reported:?}") };
    assert!(why.contains("a log that was not asked for"), "{why}");
}
