//! Hosts that have other places in the inventory than when the run was launched: every byte of its logs comes once, under the names of its record.

use std::path::{Path, PathBuf};

use crate::support::{Bench, Job, Laptop, until, word};

/// The inventory with only these of its hosts, in this order.
fn with_hosts(bench: &Bench, file: &Path, name: &str, hosts: &[&str]) -> PathBuf {
    let text = std::fs::read_to_string(file).expect("an inventory");
    let (known, rest): (Vec<&str>, Vec<&str>) = text.lines().partition(|line| line.starts_with("  - { name: gpu"));
    let line = |host: &&str| *known.iter().find(|line| line.contains(&format!("name: {host},"))).expect("a host");
    let lines: Vec<&str> = hosts.iter().map(line).collect();
    let text = rest.join("\n").replacen("\nhosts:\n", &format!("\nhosts:\n{}\n", lines.join("\n")), 1) + "\n";
    bench.write(name, &text)
}

/// A run of one rank on each of three hosts: launched, detached, ended. Launchers say how long their host's name is in as many lines, so that
/// every log has another length.
async fn ended(bench: &Bench, name: &str) -> (Laptop, PathBuf) {
    bench.job("n=0; while [ $n -lt $((RANK * 40 + 3)) ]; do echo \"line $n of rank $RANK\"; n=$((n + 1)); done");
    let (laptop, file) = (bench.laptop("laptop"), bench.inventory(name, &Job { top: "teardown: never\n".to_owned(), ..Job::default() }));
    laptop.run(&["up", "-d", word(&file)]).await.code(0);
    bench.ranks_up(3).await;
    (laptop, file)
}

async fn end(bench: &Bench, name: &str) -> Vec<Vec<u8>> {
    bench.end(None, 0);
    let over = |host: usize| bench.written(name, host, "node.rc").exists();
    until("every launcher has ended", async || (0..3).all(over).then_some(())).await;
    (0..3).map(|host| std::fs::read(bench.written(name, host, "node.log")).expect("a launcher's log")).collect()
}

/// Lines that a launcher writes so that launchers' logs differ.
fn mark(bench: &Bench, name: &str) {
    for host in 0..3 {
        let log = bench.written(name, host, "node.log");
        let text = std::fs::read_to_string(&log).expect("a log") + &format!("launcher {host}\n").repeat(50 - host * 20);
        std::fs::write(log, text).expect("written");
    }
}

fn rank_log(rank: usize) -> String {
    let lines: String = (0..rank * 40 + 3).map(|n| format!("line {n} of rank {rank}\n")).collect();
    format!("rank {rank} of 3 on gpu0{}\n{lines}rank {rank} ends with 0\n", rank + 1)
}

#[track_caller]
fn whole(laptop: &Laptop, launchers: &[Vec<u8>]) {
    let mut names: Vec<String> = std::fs::read_dir(laptop.run_dir().join("logs"))
        .expect("a folder")
        .map(|entry| entry.expect("an entry").file_name().to_string_lossy().into_owned())
        .filter(|name| !name.starts_with('.'))
        .collect();
    names.sort();
    assert_eq!(names, ["node-0.log", "node-1.log", "node-2.log", "rank-0.log", "rank-1.log", "rank-2.log"]);
    for (host, launcher) in launchers.iter().enumerate() {
        let text = |bytes: &[u8]| String::from_utf8_lossy(bytes).into_owned();
        assert_eq!(text(&laptop.log(&format!("node-{host}.log"))), text(launcher), "node {host}");
        assert_eq!(text(&laptop.log(&format!("rank-{host}.log"))), rank_log(host), "rank {host}");
    }
}

#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn with_the_hosts_turned_round_every_byte_comes_once() {
    let bench = Bench::hosts(3).await;
    let (laptop, file) = ended(&bench, "turned").await;
    let turned = with_hosts(&bench, &file, "turned-round", &["gpu03", "gpu02", "gpu01"]);
    mark(&bench, "turned");
    // The first words come in one order, the rest in the other.
    laptop.run(&["logs", word(&file)]).await.code(0);
    let launchers = end(&bench, "turned").await;
    laptop.run(&["logs", word(&turned)]).await.code(0).says("[rank 2 gpu03] rank 2 ends with 0").says("[node gpu03] launcher 2");
    whole(&laptop, &launchers);
    laptop.run(&["attach", word(&turned)]).await.code(0);
    whole(&laptop, &launchers);
    laptop.run(&["down", word(&turned)]).await.code(0).says("nothing is left");
    whole(&laptop, &launchers);
    bench.done().await;
}

#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn with_a_host_taken_out_its_logs_are_fetched_by_the_record() {
    let bench = Bench::hosts(3).await;
    let (laptop, file) = ended(&bench, "shrunk").await;
    mark(&bench, "shrunk");
    laptop.run(&["logs", word(&file)]).await.code(0);
    let launchers = end(&bench, "shrunk").await;
    let fewer = with_hosts(&bench, &file, "fewer", &["gpu03", "gpu02"]);
    laptop.run(&["logs", word(&fewer)]).await.code(0);
    laptop.run(&["down", word(&fewer), "--yes"]).await.code(0).says("nothing is left");
    whole(&laptop, &launchers);
    bench.done().await;
}

#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn hosts_that_only_the_record_names_are_reached_when_the_person_says_so() {
    let bench = Bench::hosts(3).await;
    let (laptop, file) = ended(&bench, "named").await;
    mark(&bench, "named");
    end(&bench, "named").await;
    let fewer = with_hosts(&bench, &file, "fewer", &["gpu03", "gpu02"]);
    let before = bench.containers(0);
    let up = laptop.run(&["up", word(&fewer)]).await;
    up.code(3).says("hosts that are not in the inventory: gpu01 (").says("--yes");
    assert_eq!(bench.containers(0), before, "nothing was changed");
    let down = laptop.run(&["down", word(&fewer)]).await;
    down.code(5).recap("LEFTOVERS").says("only the run's record named them: gpu01 (").says("put them into the inventory");
    assert_eq!(bench.containers(0), before, "it was not reached");
    laptop.run(&["down", word(&file)]).await.code(0).says("nothing is left");
    bench.done().await;
}

#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn with_a_limit_each_host_keeps_its_number() {
    let bench = Bench::hosts(3).await;
    let (laptop, file) = ended(&bench, "limited").await;
    mark(&bench, "limited");
    laptop.run(&["logs", word(&file), "--limit", "gpu02"]).await.code(0);
    let launchers = end(&bench, "limited").await;
    laptop.run(&["logs", word(&file), "--limit", "gpu03"]).await.code(0).says("[rank 2 gpu03] rank 2 ends with 0");
    laptop.run(&["down", word(&file), "--limit", "gpu03"]).await.code(0);
    laptop.run(&["down", word(&file), "--limit", "gpu01,gpu02"]).await.code(0);
    whole(&laptop, &launchers);
    bench.done().await;
}

#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn with_another_master_and_from_another_laptop_the_names_are_the_same() {
    let bench = Bench::hosts(3).await;
    let (laptop, file) = ended(&bench, "master").await;
    let other = bench.laptop("other");
    mark(&bench, "master");
    let text = std::fs::read_to_string(&file).expect("an inventory").replacen("\nhosts:\n", "\nmaster: gpu02\nhosts:\n", 1);
    let file = bench.write("other-master", &text);
    other.run(&["logs", word(&file)]).await.code(0);
    laptop.run(&["logs", word(&file)]).await.code(0);
    let launchers = end(&bench, "master").await;
    other.run(&["attach", word(&file)]).await.code(0);
    laptop.run(&["down", word(&file)]).await.code(0).says("nothing is left");
    whole(&laptop, &launchers);
    whole(&other, &launchers);
    bench.done().await;
}

#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn what_is_not_on_the_laptops_disk_is_not_deleted() {
    let bench = Bench::hosts(3).await;
    let (laptop, file) = ended(&bench, "unsynced").await;
    mark(&bench, "unsynced");
    laptop.run(&["logs", word(&file)]).await.code(0);
    let launchers = end(&bench, "unsynced").await;
    // A copy that this user cannot bring to the disk: what bears its name is a link to nowhere.
    let copy = laptop.run_dir().join("logs/rank-9.log");
    std::os::unix::fs::symlink("/nowhere/at/all", &copy).expect("linked");
    let down = laptop.run(&["down", word(&file)]).await;
    down.code(5).recap("LEFTOVERS").says("could not sync").says("rank-9.log").says("the host keeps them");
    for (host, launcher) in launchers.iter().enumerate() {
        assert_eq!(&std::fs::read(bench.written("unsynced", host, "node.log")).expect("still there"), launcher);
    }
    std::fs::remove_file(copy).expect("removed");
    laptop.run(&["down", word(&file)]).await.code(0).says("nothing is left");
    whole(&laptop, &launchers);
    bench.done().await;
}
