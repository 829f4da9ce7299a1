//! What befalls the laptop or the way to a host while a run goes on: a full disk, a key that changes, a server with few sessions.

use std::path::{Path, PathBuf};
use std::process::Command;

use crate::support::{Bench, Job, Laptop, sha256, until, word};

/// How many bytes a rank writes at once: more than the small disk has.
const FLOOD: usize = 3_000_000;

/// A laptop whose state lies on a small disk.
struct SmallDisk(PathBuf);

impl SmallDisk {
    fn mount(laptop: &Laptop) -> SmallDisk {
        let at = laptop.home.join("state");
        std::fs::create_dir_all(&at).expect("made");
        let mount = Command::new("mount").args(["-t", "tmpfs", "-o", "size=1m,mode=700", "none"]).arg(&at).output().expect("mount runs");
        assert!(mount.status.success(), "a tmpfs cannot be mounted, which takes root: {}", String::from_utf8_lossy(&mount.stderr));
        SmallDisk(at)
    }

    fn grow(&self) {
        let mount = Command::new("mount").args(["-o", "remount,size=64m"]).arg(&self.0).output().expect("mount runs");
        assert!(mount.status.success(), "{}", String::from_utf8_lossy(&mount.stderr));
    }

    /// Bytes that are free.
    fn free(&self) -> u64 {
        let told = rustix::fs::statvfs(&self.0).expect("a file system");
        told.f_bavail * told.f_frsize
    }
}

impl Drop for SmallDisk {
    fn drop(&mut self) {
        let unmounted = Command::new("umount").arg("-l").arg(&self.0).status();
        assert!(unmounted.is_ok_and(|status| status.success()) || std::thread::panicking(), "the small disk stays mounted");
    }
}

/// The second in which a follower last said that it is there.
fn attached(bench: &Bench, name: &str) -> u64 {
    let text = std::fs::read_to_string(bench.run_dir(name, 0).join("attached")).unwrap_or_default();
    text.split_whitespace().next().and_then(|word| word.parse().ok()).unwrap_or(0)
}

/// Two hosts whose rank 0 floods its log once it runs.
async fn flooding(name: &str) -> (Bench, Laptop, PathBuf, SmallDisk) {
    let bench = Bench::hosts(2).await;
    bench.job(&format!("[ \"$RANK\" != 0 ] || yes 0123456789 | head -c {FLOOD}"));
    let (laptop, file) = (bench.laptop("laptop"), bench.inventory(name, &Job::default()));
    let disk = SmallDisk::mount(&laptop);
    (bench, laptop, file, disk)
}

#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
#[ignore = "needs root: mounts a small file system"]
async fn a_full_laptop_disk_stops_the_copies_and_neither_failures_nor_control() {
    let (bench, laptop, file, disk) = flooding("full").await;
    let mut up = laptop.start(&["up", word(&file), "--keep"]);
    up.says("the copying of logs waits").await;
    assert!(disk.free() >= 10 << 10, "{} bytes are free", disk.free());
    bench.ranks_up(2).await;
    // Longer than a host waits for a follower that says nothing.
    let first = attached(&bench, "full");
    until("the host hears of the follower", async || (attached(&bench, "full") > first + 31).then_some(())).await;
    assert!(bench.term(0).is_none(), "the run goes on");
    bench.end(Some(1), 7);
    let ended = up.end().await;
    ended.says("rank 1 on gpu02 failed: exit 7");
    assert_ne!(ended.code, Some(0), "{}", ended.err);
    assert!(bench.term(0).is_some(), "the other rank was stopped");
    let whole = std::fs::read(bench.written("full", 0, "rank-0.0.log")).expect("the host's log");
    assert!(whole.len() >= FLOOD);

    // What could not be copied is not deleted.
    let down = laptop.run(&["down", word(&file)]).await;
    down.code(5).says("free");
    assert_eq!(sha256(&std::fs::read(bench.written("full", 0, "rank-0.0.log")).expect("still there")), sha256(&whole));
    disk.grow();
    laptop.run(&["down", word(&file)]).await.code(0);
    assert_eq!(sha256(&laptop.log("rank-0.log")), sha256(&whole));
    bench.done().await;
}

#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
#[ignore = "needs root: mounts a small file system"]
async fn when_a_full_disk_has_room_again_the_copies_go_on_at_their_byte() {
    let (bench, laptop, file, disk) = flooding("room").await;
    let mut up = laptop.start(&["up", word(&file), "--keep"]);
    up.says("the copying of logs waits").await;
    bench.ranks_up(2).await;
    disk.grow();
    up.says("logs are copied again").await;
    let host = std::fs::read(bench.written("room", 0, "rank-0.0.log")).expect("the host's log");
    until("the copy is whole", async || (laptop.log("rank-0.log").len() >= host.len()).then_some(())).await;
    assert_eq!(sha256(&laptop.log("rank-0.log")), sha256(&host), "{} bytes", host.len());
    bench.end(None, 0);
    up.end().await.code(0);
    laptop.run(&["down", word(&file)]).await.code(0);
    bench.done().await;
}

#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn a_host_whose_key_changes_during_a_run_is_given_up_and_the_run_fails() {
    let bench = Bench::hosts(2).await;
    let (laptop, file) = (bench.laptop("laptop"), bench.inventory("rekeyed", &Job::default()));
    let good = std::fs::read_to_string(bench.sandbox.known_hosts()).expect("keys");
    let known = bench.path().join("known");
    std::fs::write(&known, &good).expect("written");
    let set = format!("ssh.known_hosts={}", known.display());
    let mut up = laptop.start(&["up", word(&file), "--keep", "--set", &set, "--set", "ssh.give_up=3s"]);
    bench.ranks_up(2).await;
    up.says("ready ").await;
    let lines: Vec<&str> = good.lines().collect();
    let (place, key) = (lines[1].split_once(' ').expect("a line").0, lines[0].split_once(' ').expect("a line").1);
    replace(&known, &format!("{}\n{place} {key}\n", lines[0]));
    bench.sandbox.drop_connections("gpu02").expect("a host");
    let ended = up.end().await;
    ended.says("it is tried again for 3 s, then the host is given up").says("gpu02 was given up").says("changed");
    assert!(matches!(ended.code, Some(1 | 4 | 5)), "{:?}: {}", ended.code, ended.err);
    assert!(bench.term(0).is_some(), "the other hosts do not wait for it");
    replace(&known, &good);
    laptop.run(&["down", word(&file), "--set", &set]).await.code(0);
    bench.done().await;
}

/// A file that is there as a whole or not at all.
fn replace(path: &Path, text: &str) {
    let new = path.with_extension("new");
    std::fs::write(&new, text).expect("written");
    std::fs::rename(&new, path).expect("renamed");
}

#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn a_server_that_opens_one_session_a_connection_serves_a_whole_run() {
    let bench = Bench::new("{hosts: 2, gpus: 2, faults: {max_sessions: 1}}").await;
    let (laptop, file) = (bench.laptop("laptop"), bench.inventory("single", &Job::default()));
    let mut up = laptop.start(&["up", word(&file)]);
    bench.ranks_up(2).await;
    up.says("ready ").await;
    laptop.run(&["ps", word(&file)]).await.code(0).says("1 running");
    bench.end(None, 0);
    up.end().await.code(0);
    bench.done().await;
}
