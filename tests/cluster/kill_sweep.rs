//! `kill -9` of `orchestrate` at every remote command of a plan: a later `down --yes` leaves nothing, a later `up` converges.
//!
//! The login shell of user `swept` counts commands. At command k it holds the answer, or stops before it runs anything, and the test kills
//! the client there. Every fifth time the next `up` cleans the hosts instead of `down`.

use std::fs;
use std::time::{Duration, Instant};

use crate::laptop::{CliProcess, Laptop, path_str, wait_until};
use crate::support::{Cluster, JobSpec};

/// A held stream never ends by itself: it counts as held after this time.
const STREAM_HELD_AFTER: Duration = Duration::from_millis(1500);

struct KillSweep {
    cluster: Cluster,
    /// Removes the image from the hosts before each kill, so that it is pulled with a login.
    pulls_image: bool,
    held_host: &'static str,
    job: JobSpec,
    /// The laptop whose `up` is killed.
    laptop: Laptop,
}

impl KillSweep {
    fn new(name: &'static str, held: &'static str, bare: bool) -> KillSweep {
        let job = JobSpec::busybox(name).with_user("swept").with_command(&["/bin/sh", "-c", "echo ran on $RANK; sleep 0.2"]);
        let job = if bare { job.without_container() } else { job };
        KillSweep { cluster: Cluster::acquire(), pulls_image: false, held_host: held, job, laptop: KillSweep::new_laptop() }
    }

    fn new_laptop() -> Laptop {
        Laptop::new().with_env("REG_PASSWORD", "open $esame 'now'")
    }

    /// Removes the pulled image from the hosts.
    fn remove_image(&self) {
        if self.pulls_image {
            let image = self.cluster.registry_image();
            for host in ["gpu01", "gpu02"] {
                self.cluster.exec_on(host, &format!("docker rmi -f {image} >/dev/null 2>&1; true"));
            }
        }
    }

    fn shell_state(&self) -> String {
        fs::read_to_string(self.cluster.counting_shell_dir(self.held_host).join("state")).unwrap_or_default()
    }

    /// Lets `up` run into call `k` and kills it there; `false`: `up` succeeded before call `k`.
    #[track_caller]
    fn kill_at_call(&self, how: &str, k: u32) -> bool {
        let (up, struck) = self.start_held_at_call(how, k);
        if struck {
            up.kill();
        } else {
            up.wait_for_exit().assert_exit_code(0);
        }
        self.cluster.run_hosts_script(&["release", self.held_host]);
        struck
    }

    /// Like `kill_at_call`, with Ctrl-C: once `up` has ended, nothing is left in memory or on a disk.
    #[track_caller]
    fn interrupt_at_call(&self, how: &str, k: u32) {
        let what = format!("Ctrl-C, {how} {k} on {}", self.held_host);
        let (mut up, struck) = self.start_held_at_call(how, k);
        if struck && up.is_running() {
            up.send_signal("INT");
            up.wait_for_output(": stopping ");
        }
        self.cluster.run_hosts_script(&["release", self.held_host]);
        let ended = up.wait_for_exit();
        assert!(matches!(ended.exit_code, Some(0 | 130)), "{what}: {}", ended.transcript());
        self.wait_for_clean_hosts(&what);
    }

    /// Starts `up`, which is held at call `k`; `false`: it ended before.
    #[track_caller]
    fn start_held_at_call(&self, how: &str, k: u32) -> (CliProcess, bool) {
        self.cluster.run_hosts_script(&["count", self.held_host, "reset"]);
        self.cluster.run_hosts_script(&["hold", self.held_host, how, &k.to_string()]);
        self.remove_image();
        let file = self.cluster.write_inventory(&self.laptop, &self.job);
        let mut up = self.laptop.start(&["up", path_str(&file)]);
        let mut streaming = None;
        let struck = wait_until("the call is held, or `up` has ended", || {
            let state = self.shell_state();
            let mine = state.split_whitespace().next() == Some(k.to_string().as_str());
            if mine && (state.contains("done") || state.contains("waiting")) {
                return Some(true);
            }
            if mine && state.contains("started") && streaming.get_or_insert_with(Instant::now).elapsed() > STREAM_HELD_AFTER {
                return Some(true);
            }
            (!up.is_running()).then_some(false)
        });
        (up, struck)
    }

    #[track_caller]
    fn wait_for_clean_hosts(&self, what: &str) {
        // Less than the 30 s after which things end by themselves.
        let end = Instant::now() + Duration::from_secs(24);
        for host in ["gpu01", "gpu02"] {
            while let Err(differs) = self.cluster.compare_with_baseline(host) {
                assert!(Instant::now() < end, "{what}: {differs}");
                std::thread::sleep(Duration::from_millis(100));
            }
        }
    }

    /// From a laptop that does not know the run.
    #[track_caller]
    fn recover(&self, what: &str, by_up: bool) {
        self.cluster.run_hosts_script(&["count", self.held_host, "reset"]);
        let laptop = KillSweep::new_laptop();
        let file = self.cluster.write_inventory(&laptop, &self.job);
        let words: &[&str] = if by_up { &["up", "--lock-wait", "60s"] } else { &["down", "--yes"] };
        let ended = laptop.run(&[words, &[path_str(&file)]].concat());
        assert_eq!(ended.exit_code, Some(0), "{what}: {}", ended.transcript());
        self.wait_for_clean_hosts(what);
    }

    /// Kills at one call, then cleans up from another laptop. `false`: the plan has no such call.
    #[track_caller]
    fn kill_and_recover(&self, how: &str, k: u32) -> bool {
        let what = format!("{how} {k} on {}", self.held_host);
        let struck = self.kill_at_call(how, k);
        self.recover(&what, struck && k.is_multiple_of(5));
        struck
    }

    /// Kills before and after every call.
    #[track_caller]
    fn kill_at_every_call(&self) {
        let began = Instant::now();
        let mut calls = 0;
        for how in ["answer", "before"] {
            let struck = (1..60).take_while(|k| self.kill_and_recover(how, *k)).count();
            assert!((10..59).contains(&struck), "{struck} calls were seen");
            calls += struck;
        }
        eprintln!("{}: killed at {calls} calls of {} in {:.0?}", self.job.name, self.held_host, began.elapsed());
        self.finish();
    }

    /// Kills before the first call or after the last call of each phase.
    #[track_caller]
    fn kill_in_each_phase(&self, how: &str) {
        let calls = self.phase_call_ranges();
        assert!(calls.len() >= 5, "a plan has more phases than {calls:?}");
        for (first, last) in calls {
            self.kill_and_recover(how, if how == "before" { first } else { last });
        }
        self.finish();
    }

    /// The first and the last call of each phase of an undisturbed run.
    #[track_caller]
    fn phase_call_ranges(&self) -> Vec<(u32, u32)> {
        self.cluster.run_hosts_script(&["count", self.held_host, "reset"]);
        let laptop = KillSweep::new_laptop();
        laptop.run(&["up", path_str(&self.cluster.write_inventory(&laptop, &self.job))]).assert_exit_code(0);
        let journal = fs::read_to_string(laptop.only_run_dir().join("journal.jsonl")).expect("a journal");
        let events = journal.lines().map(|line| serde_json::from_str::<serde_json::Value>(line).expect("JSON"));
        let phases: Vec<f64> = events.filter(|e| e["kind"] == "phase-started").filter_map(|e| e["at"].as_f64()).collect();
        let mut ends: Vec<Option<(u32, u32)>> = vec![None; phases.len()];
        let calls = fs::read_to_string(self.cluster.counting_shell_dir(self.held_host).join("calls")).expect("the calls");
        for call in calls.lines() {
            let mut words = call.split(' ');
            let number: u32 = words.next().and_then(|w| w.parse().ok()).expect("a number");
            let at: f64 = words.next().and_then(|w| w.parse().ok()).expect("a time");
            // The journal has millisecond timestamps.
            let Some(phase) = phases.iter().rposition(|began| *began <= at * 1e3) else { continue };
            ends[phase].get_or_insert((number, number)).1 = number;
        }
        ends.into_iter().flatten().collect()
    }

    fn finish(&self) {
        self.cluster.run_hosts_script(&["count", self.held_host, "reset"]);
        self.remove_image();
        if self.pulls_image {
            self.cluster.set_registry_login(false);
        }
        self.cluster.assert_hosts_unchanged();
    }
}

#[test]
#[ignore = "needs the test hosts: tests/run says how"]
fn kill_9_after_each_phase_with_containers_recovers() {
    KillSweep::new("sweep-c", "gpu01", false).kill_in_each_phase("answer");
}

#[test]
#[ignore = "needs the test hosts: tests/run says how"]
fn kill_9_before_each_phase_on_bare_hosts_recovers() {
    KillSweep::new("sweep-b", "gpu02", true).kill_in_each_phase("before");
}

/// Tier 2.
mod whole {
    use super::*;

    #[test]
    #[ignore = "needs the test hosts: tests/run says how"]
    fn kill_9_at_every_command_with_containers_recovers() {
        KillSweep::new("sweep-c", "gpu01", false).kill_at_every_call();
    }

    /// The registry requires a login. Anything left in memory or on a disk would be in the listing.
    #[test]
    #[ignore = "needs the test hosts: tests/run says how"]
    fn kill_9_at_every_command_with_registry_login_recovers() {
        let mut sweep = KillSweep::new("sweep-r", "gpu02", false);
        sweep.pulls_image = true;
        sweep.job = sweep.job.with_registry_image(&sweep.cluster);
        sweep.cluster.set_registry_login(true);
        sweep.kill_at_every_call();
    }

    /// The sandbox covers every command (`tests/it/registry_login.rs`); docker and sshd are the real ones here.
    #[test]
    #[ignore = "needs the test hosts: tests/run says how"]
    fn ctrl_c_in_each_phase_with_registry_login_leaves_nothing() {
        let mut sweep = KillSweep::new("sweep-i", "gpu02", false);
        sweep.pulls_image = true;
        sweep.job = sweep.job.with_registry_image(&sweep.cluster);
        sweep.cluster.set_registry_login(true);
        let calls = sweep.phase_call_ranges();
        assert!(calls.len() >= 5, "a plan has more phases than {calls:?}");
        for (first, last) in calls {
            sweep.interrupt_at_call("before", first);
            sweep.interrupt_at_call("answer", last);
        }
        sweep.finish();
    }

    #[test]
    #[ignore = "needs the test hosts: tests/run says how"]
    fn kill_9_at_every_command_on_bare_hosts_recovers() {
        KillSweep::new("sweep-b", "gpu02", true).kill_at_every_call();
    }
}
