//! Watchers of hosts that are lost, refuse, or do not keep to the protocol.

use std::sync::atomic::{AtomicUsize, Ordering};

use futures_util::future::BoxFuture;

use super::*;
use crate::engine::emit::{Delivery, Emitter};
use crate::remote::inflow::{InflowSender, inflow};
use crate::remote::{Connect, Piece, Reached, Remote, Talk, Terminal};
use crate::shell::{Command, Output};

/// What a host does when it is followed.
#[derive(Clone)]
enum Way {
    /// It cannot be reached.
    Lost,
    /// It refuses us.
    Refused,
    /// It says this, then nothing more.
    Says(&'static str),
}

/// The host's ends of a stream.
type Open = (InflowSender<RemoteError>, mpsc::Receiver<Bytes>);

#[derive(Clone)]
struct Host {
    way: Way,
    tries: Arc<AtomicUsize>,
    open: Arc<std::sync::Mutex<Vec<Open>>>,
}

impl Remote for Host {
    fn exec<'a>(&'a self, _: &'a Command) -> BoxFuture<'a, Result<Output, RemoteError>> {
        Box::pin(std::future::pending())
    }

    fn relay<'a>(&'a self, _: &'a Command, _: mpsc::Sender<Piece>) -> BoxFuture<'a, Result<i32, RemoteError>> {
        Box::pin(std::future::pending())
    }

    fn stream<'a>(&'a self, command: &'a Command) -> BoxFuture<'a, Result<Stream, RemoteError>> {
        let (sender, output) = inflow(command.limit);
        let (input, told) = mpsc::channel(64);
        if let Way::Says(text) = self.way {
            assert!(sender.send(Bytes::from_static(text.as_bytes()), |_| RemoteError::Protocol { what: String::new() }));
        }
        self.open.lock().expect("whole").push((sender, told));
        Box::pin(async { Ok(Stream { output, input }) })
    }

    fn talk<'a>(&'a self, _: &'a Command, _: Option<Terminal>) -> BoxFuture<'a, Result<Talk, RemoteError>> {
        Box::pin(std::future::pending())
    }

    fn reach<'a>(&'a self, _: &'a str, _: u16, _: Duration) -> BoxFuture<'a, Result<Reached, RemoteError>> {
        Box::pin(std::future::pending())
    }

    fn is_closed(&self) -> bool {
        false
    }

    fn close(&self) -> BoxFuture<'_, ()> {
        Box::pin(async {})
    }
}

impl Connect for Host {
    fn give_up(&self, _: usize) -> Duration {
        Duration::from_millis(200)
    }

    fn connect(&self, _: usize) -> BoxFuture<'_, Result<Arc<dyn Remote>, RemoteError>> {
        self.tries.fetch_add(1, Ordering::Relaxed);
        let host: Arc<dyn Remote> = Arc::new(self.clone());
        let answer = match self.way {
            Way::Lost => Err(RemoteError::Lost { what: "no route".to_owned(), hint: String::new(), retry: true }),
            Way::Refused => Err(RemoteError::Refused { what: "its key has changed".to_owned(), hint: "mend it".to_owned() }),
            Way::Says(_) => Ok(host),
        };
        Box::pin(async { answer })
    }
}

fn site() -> Site {
    Site {
        name: "n".to_owned(),
        host: "gpu01".to_owned(),
        run: "run1".to_owned(),
        base: "/r".to_owned(),
        sudo: false,
        engine: None,
        contained: false,
        token: None,
        old: false,
        log_max: 0,
        ranks: 2,
    }
}

/// Follows a host whose logs nobody stores; what is reported until `enough`, and how often it was connected.
#[expect(clippy::disallowed_methods, reason = "both tasks are ended here")]
async fn follow(way: Way, enough: impl Fn(&[Report], usize) -> bool) -> (Vec<Report>, usize) {
    let host = Host { way, tries: Arc::default(), open: Arc::default() };
    let tries = host.tries.clone();
    let (emit, mut deliveries) = Emitter::new();
    let stored = tokio::spawn(async move {
        while let Some(delivery) = deliveries.recv().await {
            if let Delivery::Event(_, Some(done)) = delivery {
                assert!(done.send(false).is_ok());
            }
        }
    });
    let link = Arc::new(Link::new(0, Arc::new(host), emit));
    let (up, mut reports) = mpsc::channel(64);
    let end = CancellationToken::new();
    let offsets: Offsets = Arc::new(|_| Vec::new());
    let watcher = tokio::spawn(watch(link, site(), offsets, (1, Purpose::Guard), up, end.clone()));
    let mut told = Vec::new();
    let heard = async {
        while !enough(&told, tries.load(Ordering::Relaxed)) {
            if let Ok(Some(report)) = tokio::time::timeout(Duration::from_millis(20), reports.recv()).await {
                told.push(report);
            }
        }
    };
    tokio::time::timeout(Duration::from_secs(120), heard).await.expect("it is heard");
    end.cancel();
    watcher.await.expect("it ends");
    stored.abort();
    (told, tries.load(Ordering::Relaxed))
}

fn gave_up(told: &[Report], _: usize) -> bool {
    matches!(told.last(), Some(Report::GivenUp(..)))
}

#[tokio::test]
async fn what_no_retry_mends_is_tried_for_a_while_and_a_lost_network_without_end() {
    let (told, tries) = follow(Way::Refused, gave_up).await;
    assert_eq!(told, [Report::GivenUp(0, "its key has changed; mend it (tried for 0 s)".to_owned())]);
    assert!(tries > 3, "{tries}");
    let (told, _) = follow(Way::Lost, |_, tries| tries >= 4).await;
    assert_eq!(told, []);
}

#[tokio::test]
async fn a_host_that_does_not_keep_to_the_protocol_is_given_up_with_what_it_did() {
    let endless: &'static str = Box::leak("x".repeat(5000).into_boxed_str());
    let many: &'static str = Box::leak((0..9000).map(|n| format!("P rank-1.{n} 7 9 11.5\n")).collect::<String>().into_boxed_str());
    for (says, what) in [
        (endless, "out of step"),
        ("Segmentation fault\n", "out of step at \"Segmentation fault\""),
        ("F rank-1.0 0 99999999\n", "out of step"),
        ("P rank-2.0 7 9 11.5\n", "the host tells of rank 2, and the run has 2"),
        (many, "more than 8208 starts and ends"),
    ] {
        let (told, _) = follow(Way::Says(says), gave_up).await;
        let Some(Report::GivenUp(0, why)) = told.last() else { panic!("{told:?}") };
        assert!(why.contains(what), "{why}");
    }
}

#[tokio::test]
async fn while_logs_cannot_be_stored_starts_and_ends_are_asked_for_alone() {
    // The log cannot be stored; what is told behind it comes with the next stream, and a host that sends logs all the same is cut off.
    let says = "P rank-0.0 7 9 11.5\nF rank-0.0 0 5\nabcd\nX rank-1.0 7 12.5\n";
    let (told, _) = follow(Way::Says(says), gave_up).await;
    let rank = |rank| LogFile::Rank { rank, restart: 0 };
    assert!(matches!(told[0], Report::Started(0, file, _) if file == rank(0)), "{told:?}");
    let Some(Report::GivenUp(0, why)) = told.last() else { panic!("{told:?}") };
    assert!(why.contains("a log that was not asked for"), "{why}");
}
