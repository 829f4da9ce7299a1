//! Inventories whose host order differs from the run's record: every log byte is fetched once, under the names of the record.

use std::path::{Path, PathBuf};

use crate::support::{JobSpec, Laptop, SandboxFixture, path_str, wait_until};

/// The inventory with only these hosts, in this order.
fn inventory_with_hosts(fixture: &SandboxFixture, file: &Path, name: &str, hosts: &[&str]) -> PathBuf {
    let text = std::fs::read_to_string(file).expect("an inventory");
    let (known, rest): (Vec<&str>, Vec<&str>) = text.lines().partition(|line| line.starts_with("  - { name: gpu"));
    let line = |host: &&str| *known.iter().find(|line| line.contains(&format!("name: {host},"))).expect("a host");
    let lines: Vec<&str> = hosts.iter().map(line).collect();
    let text = rest.join("\n").replacen("\nhosts:\n", &format!("\nhosts:\n{}\n", lines.join("\n")), 1) + "\n";
    fixture.write_yaml(name, &text)
}

/// A run of one rank on each of three hosts: launched, detached, ended. The launcher logs have different lengths.
async fn launch_three_hosts(fixture: &SandboxFixture, name: &str) -> (Laptop, PathBuf) {
    fixture.set_payload_setup("n=0; while [ $n -lt $((RANK * 40 + 3)) ]; do echo \"line $n of rank $RANK\"; n=$((n + 1)); done");
    let (laptop, file) = (
        fixture.new_laptop("laptop"),
        fixture.write_inventory(name, &JobSpec { top_level: "teardown: never\n".to_owned(), ..JobSpec::default() }),
    );
    laptop.run(&["up", "-d", path_str(&file)]).await.assert_exit_code(0);
    fixture.wait_for_ranks(3).await;
    (laptop, file)
}

async fn end_run_and_read_launcher_logs(fixture: &SandboxFixture, name: &str) -> Vec<Vec<u8>> {
    fixture.end_ranks(None, 0);
    let over = |host: usize| fixture.run_file(name, host, "node.rc").exists();
    wait_until("every launcher has ended", async || (0..3).all(over).then_some(())).await;
    (0..3).map(|host| std::fs::read(fixture.run_file(name, host, "node.log")).expect("a launcher's log")).collect()
}

/// Lines that each launcher writes, so that the launcher logs differ in length.
fn append_launcher_lines(fixture: &SandboxFixture, name: &str) {
    for host in 0..3 {
        let log = fixture.run_file(name, host, "node.log");
        let text = std::fs::read_to_string(&log).expect("a log") + &format!("launcher {host}\n").repeat(50 - host * 20);
        std::fs::write(log, text).expect("written");
    }
}

fn expected_rank_log(rank: usize) -> String {
    let lines: String = (0..rank * 40 + 3).map(|n| format!("line {n} of rank {rank}\n")).collect();
    format!("rank {rank} of 3 on gpu0{}\n{lines}rank {rank} ends with 0\n", rank + 1)
}

#[track_caller]
fn assert_logs_complete(laptop: &Laptop, launchers: &[Vec<u8>]) {
    let mut names: Vec<String> = std::fs::read_dir(laptop.only_run_dir().join("logs"))
        .expect("a folder")
        .map(|entry| entry.expect("an entry").file_name().to_string_lossy().into_owned())
        .filter(|name| !name.starts_with('.'))
        .collect();
    names.sort();
    assert_eq!(names, ["node-0.log", "node-1.log", "node-2.log", "rank-0.log", "rank-1.log", "rank-2.log"]);
    for (host, launcher) in launchers.iter().enumerate() {
        let text = |bytes: &[u8]| String::from_utf8_lossy(bytes).into_owned();
        assert_eq!(text(&laptop.read_log(&format!("node-{host}.log"))), text(launcher), "node {host}");
        assert_eq!(text(&laptop.read_log(&format!("rank-{host}.log"))), expected_rank_log(host), "rank {host}");
    }
}

#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn reversed_hosts_fetch_every_byte_once() {
    let fixture = SandboxFixture::with_hosts(3).await;
    let (laptop, file) = launch_three_hosts(&fixture, "turned").await;
    let turned = inventory_with_hosts(&fixture, &file, "turned-round", &["gpu03", "gpu02", "gpu01"]);
    append_launcher_lines(&fixture, "turned");
    // The first bytes arrive in one order, the rest in the other.
    laptop.run(&["logs", path_str(&file)]).await.assert_exit_code(0);
    let launchers = end_run_and_read_launcher_logs(&fixture, "turned").await;
    laptop
        .run(&["logs", path_str(&turned)])
        .await
        .assert_exit_code(0)
        .assert_contains("[rank 2 gpu03] rank 2 ends with 0")
        .assert_contains("[launcher gpu03] launcher 2");
    assert_logs_complete(&laptop, &launchers);
    laptop.run(&["attach", path_str(&turned)]).await.assert_exit_code(0);
    assert_logs_complete(&laptop, &launchers);
    laptop.run(&["down", path_str(&turned)]).await.assert_exit_code(0).assert_contains("nothing is left");
    assert_logs_complete(&laptop, &launchers);
    fixture.assert_clean_and_stop().await;
}

#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn removed_host_logs_are_fetched_by_record() {
    let fixture = SandboxFixture::with_hosts(3).await;
    let (laptop, file) = launch_three_hosts(&fixture, "shrunk").await;
    append_launcher_lines(&fixture, "shrunk");
    laptop.run(&["logs", path_str(&file)]).await.assert_exit_code(0);
    let launchers = end_run_and_read_launcher_logs(&fixture, "shrunk").await;
    let fewer = inventory_with_hosts(&fixture, &file, "fewer", &["gpu03", "gpu02"]);
    laptop.run(&["logs", path_str(&fewer)]).await.assert_exit_code(0);
    laptop.run(&["down", path_str(&fewer), "--yes"]).await.assert_exit_code(0).assert_contains("nothing is left");
    assert_logs_complete(&laptop, &launchers);
    fixture.assert_clean_and_stop().await;
}

#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn recorded_hosts_are_reached_only_on_request() {
    let fixture = SandboxFixture::with_hosts(3).await;
    let (laptop, file) = launch_three_hosts(&fixture, "named").await;
    append_launcher_lines(&fixture, "named");
    end_run_and_read_launcher_logs(&fixture, "named").await;
    let fewer = inventory_with_hosts(&fixture, &file, "fewer", &["gpu03", "gpu02"]);
    let before = fixture.containers(0);
    let up = laptop.run(&["up", path_str(&fewer)]).await;
    up.assert_exit_code(3).assert_contains("hosts that are not in the inventory: gpu01 (").assert_contains("--yes");
    assert_eq!(fixture.containers(0), before, "nothing was changed");
    let down = laptop.run(&["down", path_str(&fewer)]).await;
    down.assert_exit_code(5)
        .assert_recap("LEFTOVERS")
        .assert_contains("only the run's record named them: gpu01 (")
        .assert_contains("add them to the inventory");
    assert_eq!(fixture.containers(0), before, "it was not reached");
    laptop.run(&["down", path_str(&file)]).await.assert_exit_code(0).assert_contains("nothing is left");
    fixture.assert_clean_and_stop().await;
}

#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn limit_keeps_each_hosts_number() {
    let fixture = SandboxFixture::with_hosts(3).await;
    let (laptop, file) = launch_three_hosts(&fixture, "limited").await;
    append_launcher_lines(&fixture, "limited");
    laptop.run(&["logs", path_str(&file), "--limit", "gpu02"]).await.assert_exit_code(0);
    let launchers = end_run_and_read_launcher_logs(&fixture, "limited").await;
    laptop
        .run(&["logs", path_str(&file), "--limit", "gpu03"])
        .await
        .assert_exit_code(0)
        .assert_contains("[rank 2 gpu03] rank 2 ends with 0");
    laptop.run(&["down", path_str(&file), "--limit", "gpu03"]).await.assert_exit_code(0);
    laptop.run(&["down", path_str(&file), "--limit", "gpu01,gpu02"]).await.assert_exit_code(0);
    assert_logs_complete(&laptop, &launchers);
    fixture.assert_clean_and_stop().await;
}

#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn another_master_or_laptop_keeps_log_names() {
    let fixture = SandboxFixture::with_hosts(3).await;
    let (laptop, file) = launch_three_hosts(&fixture, "master").await;
    let other = fixture.new_laptop("other");
    append_launcher_lines(&fixture, "master");
    let text = std::fs::read_to_string(&file).expect("an inventory").replacen("\nhosts:\n", "\nmaster: gpu02\nhosts:\n", 1);
    let file = fixture.write_yaml("other-master", &text);
    other.run(&["logs", path_str(&file)]).await.assert_exit_code(0);
    laptop.run(&["logs", path_str(&file)]).await.assert_exit_code(0);
    let launchers = end_run_and_read_launcher_logs(&fixture, "master").await;
    other.run(&["attach", path_str(&file)]).await.assert_exit_code(0);
    laptop.run(&["down", path_str(&file)]).await.assert_exit_code(0).assert_contains("nothing is left");
    assert_logs_complete(&laptop, &launchers);
    assert_logs_complete(&other, &launchers);
    fixture.assert_clean_and_stop().await;
}

#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn unsynced_logs_are_not_deleted() {
    let fixture = SandboxFixture::with_hosts(3).await;
    let (laptop, file) = launch_three_hosts(&fixture, "unsynced").await;
    append_launcher_lines(&fixture, "unsynced");
    laptop.run(&["logs", path_str(&file)]).await.assert_exit_code(0);
    let launchers = end_run_and_read_launcher_logs(&fixture, "unsynced").await;
    // A copy that cannot be synced: a dangling symbolic link has its name.
    let copy = laptop.only_run_dir().join("logs/rank-9.log");
    std::os::unix::fs::symlink("/nowhere/at/all", &copy).expect("linked");
    let down = laptop.run(&["down", path_str(&file)]).await;
    down.assert_exit_code(5)
        .assert_recap("LEFTOVERS")
        .assert_contains("could not sync")
        .assert_contains("rank-9.log")
        .assert_contains("the host keeps them");
    for (host, launcher) in launchers.iter().enumerate() {
        assert_eq!(&std::fs::read(fixture.run_file("unsynced", host, "node.log")).expect("still there"), launcher);
    }
    std::fs::remove_file(copy).expect("removed");
    laptop.run(&["down", path_str(&file)]).await.assert_exit_code(0).assert_contains("nothing is left");
    assert_logs_complete(&laptop, &launchers);
    fixture.assert_clean_and_stop().await;
}
