//! Faults of the laptop or the connection during a run: a full disk, a changed host key, a server with few sessions.

use std::path::{Path, PathBuf};
use std::process::Command;

use crate::support::{JobSpec, Laptop, SandboxFixture, path_str, sha256_hex, wait_until};

/// How many bytes a rank writes at once: more than the small disk holds.
const FLOOD_BYTES: usize = 3_000_000;

/// A laptop with its state on a small disk.
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

    fn free_bytes(&self) -> u64 {
        let output = rustix::fs::statvfs(&self.0).expect("a file system");
        output.f_bavail * output.f_frsize
    }
}

impl Drop for SmallDisk {
    fn drop(&mut self) {
        let unmounted = Command::new("umount").arg("-l").arg(&self.0).status();
        assert!(unmounted.is_ok_and(|status| status.success()) || std::thread::panicking(), "the small disk stays mounted");
    }
}

/// The second of the follower's last heartbeat.
fn last_attached_second(fixture: &SandboxFixture, name: &str) -> u64 {
    let text = std::fs::read_to_string(fixture.run_dir(name, 0).join("attached")).unwrap_or_default();
    text.split_whitespace().next().and_then(|word| word.parse().ok()).unwrap_or(0)
}

/// Two hosts; rank 0 floods its log once it runs.
async fn flooding_fixture(name: &str) -> (SandboxFixture, Laptop, PathBuf, SmallDisk) {
    let fixture = SandboxFixture::with_hosts(2).await;
    fixture.set_payload_setup(&format!("[ \"$RANK\" != 0 ] || yes 0123456789 | head -c {FLOOD_BYTES}"));
    let (laptop, file) = (fixture.new_laptop("laptop"), fixture.write_inventory(name, &JobSpec::default()));
    let disk = SmallDisk::mount(&laptop);
    (fixture, laptop, file, disk)
}

#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
#[ignore = "needs root: mounts a small file system"]
async fn full_local_disk_pauses_only_log_copies() {
    let (fixture, laptop, file, disk) = flooding_fixture("full").await;
    let mut up = laptop.start(&["up", path_str(&file), "--keep"]);
    up.wait_for_output("the copying of logs waits").await;
    assert!(disk.free_bytes() >= 10 << 10, "{} bytes are free", disk.free_bytes());
    fixture.wait_for_ranks(2).await;
    // Longer than a host waits for a silent follower.
    let first = last_attached_second(&fixture, "full");
    wait_until("the follower's heartbeat reaches the host", async || (last_attached_second(&fixture, "full") > first + 31).then_some(()))
        .await;
    assert!(fixture.term_received_at(0).is_none(), "the run continues");
    fixture.end_ranks(Some(1), 7);
    let ended = up.wait_for_exit().await;
    ended.assert_contains("rank 1 on gpu02 failed: exit 7");
    assert_ne!(ended.exit_code, Some(0), "{}", ended.stderr);
    assert!(fixture.term_received_at(0).is_some(), "the other rank was stopped");
    let whole = std::fs::read(fixture.run_file("full", 0, "rank-0.0.log")).expect("the host's log");
    assert!(whole.len() >= FLOOD_BYTES);

    // Logs that could not be copied are not deleted.
    let down = laptop.run(&["down", path_str(&file)]).await;
    down.assert_exit_code(5).assert_contains("free");
    assert_eq!(sha256_hex(&std::fs::read(fixture.run_file("full", 0, "rank-0.0.log")).expect("still there")), sha256_hex(&whole));
    disk.grow();
    laptop.run(&["down", path_str(&file)]).await.assert_exit_code(0);
    assert_eq!(sha256_hex(&laptop.read_log("rank-0.log")), sha256_hex(&whole));
    fixture.assert_clean_and_stop().await;
}

#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
#[ignore = "needs root: mounts a small file system"]
async fn log_copies_resume_when_disk_has_room() {
    let (fixture, laptop, file, disk) = flooding_fixture("room").await;
    let mut up = laptop.start(&["up", path_str(&file), "--keep"]);
    up.wait_for_output("the copying of logs waits").await;
    fixture.wait_for_ranks(2).await;
    disk.grow();
    up.wait_for_output("logs are copied again").await;
    let log = fixture.run_file("room", 0, "rank-0.0.log");
    wait_until("the host has the whole log", async || log.metadata().is_ok_and(|log| log.len() >= FLOOD_BYTES as u64).then_some(())).await;
    let host = std::fs::read(log).expect("the host's log");
    wait_until("the copy is whole", async || (laptop.read_log("rank-0.log").len() >= host.len()).then_some(())).await;
    assert_eq!(sha256_hex(&laptop.read_log("rank-0.log")), sha256_hex(&host), "{} bytes", host.len());
    fixture.end_ranks(None, 0);
    up.wait_for_exit().await.assert_exit_code(0);
    laptop.run(&["down", path_str(&file)]).await.assert_exit_code(0);
    fixture.assert_clean_and_stop().await;
}

#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn host_with_changed_key_is_given_up() {
    let fixture = SandboxFixture::with_hosts(2).await;
    let (laptop, file) = (fixture.new_laptop("laptop"), fixture.write_inventory("rekeyed", &JobSpec::default()));
    let good = std::fs::read_to_string(fixture.sandbox.known_hosts_path()).expect("keys");
    let known = fixture.root().join("known");
    std::fs::write(&known, &good).expect("written");
    let set = format!("ssh.known_hosts={}", known.display());
    let mut up = laptop.start(&["up", path_str(&file), "--keep", "--set", &set, "--set", "ssh.give_up=3s"]);
    fixture.wait_for_ranks(2).await;
    up.wait_for_output("ready ").await;
    let lines: Vec<&str> = good.lines().collect();
    let (location, key) = (lines[1].split_once(' ').expect("a line").0, lines[0].split_once(' ').expect("a line").1);
    replace_file_atomically(&known, &format!("{}\n{location} {key}\n", lines[0]));
    fixture.sandbox.drop_connections("gpu02").expect("a host");
    let ended = up.wait_for_exit().await;
    ended
        .assert_contains("it is tried again for 3 s, then the host is given up")
        .assert_contains("gpu02 was given up")
        .assert_contains("changed");
    assert!(matches!(ended.exit_code, Some(1 | 4 | 5)), "{:?}: {}", ended.exit_code, ended.stderr);
    assert!(fixture.term_received_at(0).is_some(), "the other hosts do not wait for it");
    replace_file_atomically(&known, &good);
    laptop.run(&["down", path_str(&file), "--set", &set]).await.assert_exit_code(0);
    fixture.assert_clean_and_stop().await;
}

/// Writes a file atomically.
fn replace_file_atomically(path: &Path, text: &str) {
    let new = path.with_extension("new");
    std::fs::write(&new, text).expect("written");
    std::fs::rename(&new, path).expect("renamed");
}

#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn single_session_server_supports_a_full_run() {
    let fixture = SandboxFixture::start("{hosts: 2, gpus: 2, faults: {max_sessions: 1}}").await;
    let (laptop, file) = (fixture.new_laptop("laptop"), fixture.write_inventory("single", &JobSpec::default()));
    let mut up = laptop.start(&["up", path_str(&file)]);
    fixture.wait_for_ranks(2).await;
    up.wait_for_output("ready ").await;
    laptop.run(&["ps", path_str(&file)]).await.assert_exit_code(0).assert_contains("1 running");
    fixture.end_ranks(None, 0);
    up.wait_for_exit().await.assert_exit_code(0);
    fixture.assert_clean_and_stop().await;
}
