//! `kill -9` of `orchestrate` at every remote command of a plan: a later `down --yes` leaves nothing, a later `up` converges.
//!
//! The login shell of user `swept` counts the commands; at command k it holds the answer, or holds before it runs anything, and the client is
//! killed there. Every fifth time the hosts are not cleaned by `down` but by the next `up`.

use std::fs;
use std::time::{Duration, Instant};

use crate::laptop::{Laptop, Running, until, word};
use crate::support::{Cluster, Job};

/// A held stream never ends by itself: it counts as held this long after it began.
const STREAM: Duration = Duration::from_millis(1500);

struct Sweep {
    cluster: Cluster,
    /// Removed from the hosts before each strike, so that it is pulled with a login.
    pulled: bool,
    held: &'static str,
    job: Job,
    /// Whose `up` is struck.
    laptop: Laptop,
}

impl Sweep {
    fn new(name: &'static str, held: &'static str, bare: bool) -> Sweep {
        let job = Job::quick(name).user("swept").command(&["/bin/sh", "-c", "echo ran on $RANK; sleep 0.2"]);
        let job = if bare { job.bare() } else { job };
        Sweep { cluster: Cluster::take(), pulled: false, held, job, laptop: Sweep::laptop() }
    }

    fn laptop() -> Laptop {
        Laptop::new().with("REG_PASSWORD", "open $esame 'now'")
    }

    /// Takes the pulled image from the hosts again.
    fn without_image(&self) {
        if self.pulled {
            let image = self.cluster.registry_image();
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
        let (up, struck) = self.held_at(how, k);
        up.kill();
        self.cluster.hosts(&["release", self.held]);
        struck
    }

    /// As `strike`, with Ctrl-C: `up` itself leaves nothing, in memory or on a disk, when it ends.
    #[track_caller]
    fn interrupt(&self, how: &str, k: u32) {
        let what = format!("Ctrl-C, {how} {k} on {}", self.held);
        let (mut up, struck) = self.held_at(how, k);
        if struck && up.runs() {
            up.signal("INT");
            up.says("stopping the ranks");
        }
        self.cluster.hosts(&["release", self.held]);
        let ended = up.end();
        assert!(matches!(ended.code, Some(0 | 130)), "{what}: {}", ended.said());
        self.clean(&what);
    }

    /// `up`, which runs into call `k` and is held there; `false`: it ended before.
    #[track_caller]
    fn held_at(&self, how: &str, k: u32) -> (Running, bool) {
        self.cluster.hosts(&["count", self.held, "reset"]);
        self.cluster.hosts(&["hold", self.held, how, &k.to_string()]);
        self.without_image();
        let file = self.cluster.inventory(&self.laptop, &self.job);
        let mut up = self.laptop.start(&["up", word(&file)]);
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
        (up, struck)
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

    /// Strikes at one call; whoever comes next finds nothing of it. `false`: the plan has no such call.
    #[track_caller]
    fn turn(&self, how: &str, k: u32) -> bool {
        let what = format!("{how} {k} on {}", self.held);
        let struck = self.strike(how, k);
        self.mend(&what, struck && k.is_multiple_of(5));
        struck
    }

    /// Every call, killed before it and after it.
    #[track_caller]
    fn every_call(&self) {
        let began = Instant::now();
        let mut calls = 0;
        for how in ["answer", "before"] {
            let struck = (1..60).take_while(|k| self.turn(how, *k)).count();
            assert!((10..59).contains(&struck), "{struck} calls were seen");
            calls += struck;
        }
        eprintln!("{}: killed at {calls} calls of {} in {:.0?}", self.job.name, self.held, began.elapsed());
        self.end();
    }

    /// Of each phase the first call, killed before it, or the last one, killed after it.
    #[track_caller]
    fn each_phase(&self, how: &str) {
        let calls = self.calls_of_phases();
        assert!(calls.len() >= 5, "a plan has more phases than {calls:?}");
        for (first, last) in calls {
            self.turn(how, if how == "before" { first } else { last });
        }
        self.end();
    }

    /// The first and the last call of each phase of a run that nothing disturbs.
    #[track_caller]
    fn calls_of_phases(&self) -> Vec<(u32, u32)> {
        self.cluster.hosts(&["count", self.held, "reset"]);
        let laptop = Sweep::laptop();
        laptop.run(&["up", word(&self.cluster.inventory(&laptop, &self.job))]).code(0);
        let journal = fs::read_to_string(laptop.run_dir().join("journal.jsonl")).expect("a journal");
        let events = journal.lines().map(|line| serde_json::from_str::<serde_json::Value>(line).expect("JSON"));
        let phases: Vec<f64> = events.filter(|e| e["kind"] == "phase-started").filter_map(|e| e["at"].as_f64()).collect();
        let mut ends: Vec<Option<(u32, u32)>> = vec![None; phases.len()];
        let calls = fs::read_to_string(self.cluster.shell(self.held).join("calls")).expect("the calls");
        for call in calls.lines() {
            let mut words = call.split(' ');
            let number: u32 = words.next().and_then(|w| w.parse().ok()).expect("a number");
            let at: f64 = words.next().and_then(|w| w.parse().ok()).expect("a time");
            // The journal counts in milliseconds.
            let Some(phase) = phases.iter().rposition(|began| *began <= at * 1e3) else { continue };
            ends[phase].get_or_insert((number, number)).1 = number;
        }
        ends.into_iter().flatten().collect()
    }

    fn end(&self) {
        self.cluster.hosts(&["count", self.held, "reset"]);
        self.without_image();
        if self.pulled {
            self.cluster.registry_login(false);
        }
        self.cluster.as_before();
    }
}

#[test]
#[ignore = "needs the test hosts: tests/run says how"]
fn kill_9_after_the_last_command_of_each_phase_with_containers() {
    Sweep::new("sweep-c", "gpu01", false).each_phase("answer");
}

#[test]
#[ignore = "needs the test hosts: tests/run says how"]
fn kill_9_before_the_first_command_of_each_phase_on_bare_hosts() {
    Sweep::new("sweep-b", "gpu02", true).each_phase("before");
}

/// Tier 2.
mod whole {
    use super::*;

    #[test]
    #[ignore = "needs the test hosts: tests/run says how"]
    fn kill_9_at_every_remote_command_with_containers() {
        Sweep::new("sweep-c", "gpu01", false).every_call();
    }

    /// The image comes from a registry that wants a login. What is left in memory or on a disk would be in the listing.
    #[test]
    #[ignore = "needs the test hosts: tests/run says how"]
    fn kill_9_at_every_remote_command_with_a_login_at_a_registry() {
        let mut sweep = Sweep::new("sweep-r", "gpu02", false);
        sweep.pulled = true;
        sweep.job = sweep.job.pulled(&sweep.cluster);
        sweep.cluster.registry_login(true);
        sweep.every_call();
    }

    /// In the sandbox every command is struck (`tests/it/registry.rs`); here docker and sshd are the real ones.
    #[test]
    #[ignore = "needs the test hosts: tests/run says how"]
    fn ctrl_c_at_the_first_and_last_command_of_each_phase_of_a_first_up_with_a_login() {
        let mut sweep = Sweep::new("sweep-i", "gpu02", false);
        sweep.pulled = true;
        sweep.job = sweep.job.pulled(&sweep.cluster);
        sweep.cluster.registry_login(true);
        let calls = sweep.calls_of_phases();
        assert!(calls.len() >= 5, "a plan has more phases than {calls:?}");
        for (first, last) in calls {
            sweep.interrupt("before", first);
            sweep.interrupt("answer", last);
        }
        sweep.end();
    }

    #[test]
    #[ignore = "needs the test hosts: tests/run says how"]
    fn kill_9_at_every_remote_command_on_bare_hosts() {
        Sweep::new("sweep-b", "gpu02", true).every_call();
    }
}
