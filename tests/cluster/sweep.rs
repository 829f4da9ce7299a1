//! `kill -9` of `orchestrate` at every remote command of a plan: a later `down --yes` leaves nothing, a later `up` converges.
//!
//! The login shell of user `swept` counts the commands; at command k it holds the answer, or holds before it runs anything, and the client is
//! killed there. Every fifth time the hosts are not cleaned by `down` but by the next `up`.

use std::fs;
use std::time::{Duration, Instant};

use crate::laptop::{Laptop, until, word};
use crate::support::{Cluster, Job};

/// A held stream never ends by itself: it counts as held this long after it began.
const STREAM: Duration = Duration::from_millis(1500);

struct Sweep {
    cluster: Cluster,
    /// Removed from the hosts before each strike, so that it is pulled with a login.
    pulled: Option<&'static str>,
    held: &'static str,
    job: Job,
}

impl Sweep {
    fn new(name: &'static str, held: &'static str, bare: bool) -> Option<Sweep> {
        let job = Job::quick(name).user("swept").command(&["/bin/sh", "-c", "echo ran on $RANK; sleep 0.2"]);
        let job = if bare { job.bare() } else { job };
        Some(Sweep { cluster: Cluster::take()?, pulled: None, held, job })
    }

    fn laptop() -> Laptop {
        Laptop::new().with("REG_PASSWORD", "open $esame 'now'")
    }

    /// Takes the pulled image from the hosts again.
    fn without_image(&self) {
        if let Some(image) = self.pulled {
            for host in ["gpu01", "gpu02"] {
                self.cluster.on(host, &format!("docker rmi -f {image} >/dev/null 2>&1; true"));
            }
        }
    }

    fn state(&self) -> String {
        fs::read_to_string(self.cluster.shell(self.held).join("state")).unwrap_or_default()
    }

    /// Lets `up` run into call `k` and kills it there; `false`: it ended before.
    #[track_caller]
    fn strike(&self, how: &str, k: u32) -> bool {
        self.cluster.hosts(&["count", self.held, "reset"]);
        self.cluster.hosts(&["hold", self.held, how, &k.to_string()]);
        self.without_image();
        let laptop = Sweep::laptop();
        let file = self.cluster.inventory(&laptop, &self.job);
        let mut up = laptop.start(&["up", word(&file)]);
        let mut streaming = None;
        let struck = until("the call is held, or `up` has ended", || {
            let state = self.state();
            let mine = state.split_whitespace().next() == Some(k.to_string().as_str());
            if mine && (state.contains("done") || state.contains("waiting")) {
                return Some(true);
            }
            if mine && state.contains("started") && streaming.get_or_insert_with(Instant::now).elapsed() > STREAM {
                return Some(true);
            }
            (!up.runs()).then_some(false)
        });
        up.kill();
        self.cluster.hosts(&["release", self.held]);
        struck
    }

    #[track_caller]
    fn clean(&self, what: &str) {
        let end = Instant::now() + Duration::from_secs(20);
        for host in ["gpu01", "gpu02"] {
            while let Err(differs) = self.cluster.clean(host) {
                assert!(Instant::now() < end, "{what}: {differs}");
                std::thread::sleep(Duration::from_millis(100));
            }
        }
    }

    /// From a laptop that knows nothing of it.
    #[track_caller]
    fn mend(&self, what: &str, by_up: bool) {
        self.cluster.hosts(&["count", self.held, "reset"]);
        let laptop = Sweep::laptop();
        let file = self.cluster.inventory(&laptop, &self.job);
        let words: &[&str] = if by_up { &["up", "--lock-wait", "60s"] } else { &["down", "--yes"] };
        let ended = laptop.run(&[words, &[word(&file)]].concat());
        assert_eq!(ended.code, Some(0), "{what}: {}", ended.said());
        self.clean(what);
    }

    #[track_caller]
    fn run(&self) {
        let began = Instant::now();
        let mut calls = 0;
        for how in ["answer", "before"] {
            for k in 1.. {
                let what = format!("{how} {k} on {}", self.held);
                let struck = self.strike(how, k);
                self.mend(&what, struck && k % 5 == 0);
                if !struck {
                    break;
                }
                calls += 1;
                assert!(k < 60, "the plan has no end");
            }
        }
        eprintln!("{}: killed at {calls} calls of {} in {:.0?}", self.job.name, self.held, began.elapsed());
        assert!(calls >= 20, "only {calls} calls were seen");
        self.cluster.hosts(&["count", self.held, "reset"]);
        self.without_image();
        self.cluster.registry_login(false);
        self.cluster.as_before();
    }
}

#[test]
fn kill_9_at_every_remote_command_with_containers() {
    if let Some(sweep) = Sweep::new("sweep-c", "gpu01", false) {
        sweep.run();
    }
}

/// The image comes from a registry that wants a login. What is left in memory or on a disk would be in the listing.
#[test]
fn kill_9_at_every_remote_command_with_a_login_at_a_registry() {
    let Some(mut sweep) = Sweep::new("sweep-r", "gpu02", false) else { return };
    let image = "172.30.77.10:5000/orchestrate/pulled:test";
    sweep.pulled = Some(image);
    sweep.job.image = Some(image);
    sweep.job.container = "pull: missing\nregistry: { server: \"172.30.77.10:5000\", username: li, password: REG_PASSWORD }\n".to_owned();
    sweep.cluster.registry_login(true);
    sweep.run();
}

#[test]
fn kill_9_at_every_remote_command_on_bare_hosts() {
    if let Some(sweep) = Sweep::new("sweep-b", "gpu02", true) {
        sweep.run();
    }
}
