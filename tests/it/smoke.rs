//! `check --smoke` in the sandbox: python is a stand-in that tells what the script would tell. What torch does is proved on real hosts.

use std::os::unix::fs::PermissionsExt as _;
use std::path::Path;

use serde_json::Value;

use crate::support::{Bench, Ended, Job, Laptop, word};

/// Lines of a rank that goes through everything; `more` beside them.
fn whole(more: &[&str]) -> String {
    let mut lines = vec![
        r#""imported", "torch": "2.6.0", "gpus": 1"#,
        r#""store""#,
        r#""arrived""#,
        r#""group", "backend": "nccl""#,
        r#""ring", "gbps": 180.5"#,
    ];
    lines.extend(more);
    lines.push(r#""done""#);
    python(&lines, "exit 0")
}

/// A python3 that tells these lines and then does this.
fn python(lines: &[&str], then: &str) -> String {
    let lines: Vec<String> = lines.iter().map(|line| format!("orch-smoke {{\"smoke\": {line}, \"at\": 12.34}}")).collect();
    format!("cat <<'LINES'\n{}\nLINES\n{then}\n", lines.join("\n"))
}

/// What python does on a host from now on.
fn stand_in(bench: &Bench, host: &str, script: &str) {
    std::fs::write(bench.bench().join(format!("does.{host}")), script).expect("written");
}

/// `check` with this python, and a port that no other bench is given.
async fn check(bench: &Bench, laptop: &Laptop, file: &Path, more: &[&str]) -> Ended {
    let program = bench.bench().join("python");
    if !program.exists() {
        std::fs::write(&program, "#!/bin/sh\n. \"$BENCH/does.$ORCH_HOST\"\n").expect("written");
        std::fs::set_permissions(&program, std::fs::Permissions::from_mode(0o755)).expect("made a program");
    }
    let port = format!("launch.master_port={}", 30_100 + std::process::id() % 200 * 10);
    let python = format!("launch.python={}", program.display());
    let mut words = vec!["check", word(file), "--set", &port, "--set", &python];
    words.extend(more);
    laptop.run(&words).await
}

/// The smoke's level and all its words.
#[track_caller]
fn row(ended: &Ended) -> (String, String) {
    let value: Value = serde_json::from_str(&ended.out).unwrap_or_else(|e| panic!("{e}: {}", ended.out));
    let row = value["checks"].as_array().and_then(|all| all.iter().find(|c| c["name"] == "smoke")).expect("a smoke");
    (row["level"].as_str().unwrap_or_default().to_owned(), row["results"].to_string())
}

#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn a_smoke_is_a_row_of_the_matrix() {
    let bench = Bench::new("{hosts: 3, gpus: 1}").await;
    let laptop = bench.laptop("laptop");
    let file = bench.inventory("sound", &Job::default());
    let pair = |one: u32, two: u32, gbps: f64| format!("\"pair\", \"pair\": [{one}, {two}], \"gbps\": {gbps}");
    stand_in(&bench, "gpu01", &whole(&[&pair(0, 1, 21.0), &pair(0, 2, 22.0)]));
    stand_in(&bench, "gpu02", &whole(&[&pair(1, 2, 20.25)]));
    stand_in(&bench, "gpu03", &whole(&[]));
    let page = check(&bench, &laptop, &file, &["--only", "docker,smoke"]).await;
    page.code(0).says("ok    smoke: gpu[01-03]: nccl, 3 ranks, all-reduce 180 GB/s, slowest pair\n      gpu02-gpu03 20.2 GB/s (12.3 s)");
    assert!(page.out.lines().all(|line| line.chars().count() <= 80), "{}", page.out);
    bench.nothing_left().await;
    // A pair that is slow is a warning to both.
    stand_in(&bench, "gpu02", &whole(&[&pair(1, 2, 1.5)]));
    let page = check(&bench, &laptop, &file, &["--only", "smoke", "--json"]).await;
    page.code(0);
    let (level, text) = row(&page);
    assert_eq!(level, "warn", "{text}");
    assert!(text.contains("slow: gpu02-gpu03 1.5 GB/s") && text.contains(r#"["gpu02","gpu03"]"#), "{text}");
    // Nothing is begun after a failure, and without the word for it.
    let failed =
        check(&bench, &laptop, &file, &["--smoke", "--json", "--only", "shm", "--set", "checks.paths=[/nowhere]", "--only", "paths"]).await;
    failed.code(3);
    let (level, text) = row(&failed);
    assert!(level == "skipped" && text.contains("a check failed"), "{text}");
    let without = check(&bench, &laptop, &file, &["--only", "docker", "--json"]).await;
    assert!(!without.out.contains("smoke"), "{}", without.out);
    bench.done().await;
}

#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn a_smoke_that_fails_names_who_did_not_arrive() {
    let bench = Bench::new("{hosts: 3, gpus: 1}").await;
    let laptop = bench.laptop("laptop");
    let file = bench.inventory("held", &Job::default());
    // The others wait until they are told to end.
    let waits = python(&[r#""imported", "torch": "2.6.0", "gpus": 1"#, r#""store""#], "exec sleep 300");
    for host in ["gpu01", "gpu02"] {
        stand_in(&bench, host, &waits);
    }
    let blocked = r#""failed", "phase": "store", "why": "no answer from 127.0.0.1:4711 in 30 s""#;
    stand_in(&bench, "gpu03", &python(&[r#""imported", "torch": "2.6.0", "gpus": 1"#, blocked], "exit 1"));
    let page = check(&bench, &laptop, &file, &["--only", "smoke"]).await;
    page.code(3)
        .says("FAIL  smoke: gpu03: did not arrive: no answer from 127.0.0.1:4711")
        .says("waiting for: gpu03")
        .says("ranks' logs are in");
    bench.nothing_left().await;
    // An image without torch.
    for host in ["gpu01", "gpu02", "gpu03"] {
        stand_in(&bench, host, &python(&[r#""skip", "why": "torch""#], "exit 0"));
    }
    let page = check(&bench, &laptop, &file, &["--only", "smoke"]).await;
    page.code(0).says("skip  smoke: the image has no torch");
    bench.nothing_left().await;
    // A run of the job's own is not disturbed.
    laptop.run(&["up", "-d", word(&file)]).await.code(0);
    let page = check(&bench, &laptop, &file, &["--only", "smoke"]).await;
    page.code(3).says("is live and needs the hosts").says("`orchestrate attach`");
    laptop.run(&["down", "--yes", word(&file)]).await.code(0);
    bench.done().await;
}
