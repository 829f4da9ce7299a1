//! `check --smoke` in the sandbox: a fake python prints what the script would print. The real-host tests run torch itself.

use std::path::Path;

use serde_json::Value;

use crate::support::{CliOutput, JobSpec, Laptop, SandboxFixture, path_str};
use crate::test_program::write_program;

/// The lines of a rank that completes every step, plus `more`.
fn successful_smoke_output(more: &[&str]) -> String {
    let mut lines = vec![
        r#""imported", "torch": "2.6.0", "gpus": 1"#,
        r#""store""#,
        r#""arrived""#,
        r#""group", "backend": "nccl""#,
        r#""ring", "gbps": 180.5"#,
    ];
    lines.extend(more);
    lines.push(r#""done""#);
    fake_python(&lines, "exit 0")
}

/// A python3 that prints these lines and then runs this command.
fn fake_python(lines: &[&str], then: &str) -> String {
    let lines: Vec<String> = lines.iter().map(|line| format!("orch-smoke {{\"smoke\": {line}, \"at\": 12.34}}")).collect();
    format!("cat <<'LINES'\n{}\nLINES\n{then}\n", lines.join("\n"))
}

/// Replaces python on a host from now on.
fn set_fake_python(fixture: &SandboxFixture, host: &str, script: &str) {
    std::fs::write(fixture.control_dir().join(format!("does.{host}")), script).expect("written");
}

/// `check` with this python and a port of its own.
async fn run_check(fixture: &SandboxFixture, laptop: &Laptop, file: &Path, more: &[&str]) -> CliOutput {
    let program = fixture.control_dir().join("python");
    if !program.exists() {
        write_program(&program, "#!/bin/sh\n. \"$BENCH/does.$ORCH_HOST\"\n");
    }
    let port = format!("launch.master_port={}", 30_100 + std::process::id() % 200 * 10);
    let python = format!("launch.python={}", program.display());
    let mut words = vec!["check", path_str(file), "--set", &port, "--set", &python];
    words.extend(more);
    laptop.run(&words).await
}

/// The smoke test's level and all its texts.
#[track_caller]
fn smoke_row(ended: &CliOutput) -> (String, String) {
    let value: Value = serde_json::from_str(&ended.stdout).unwrap_or_else(|e| panic!("{e}: {}", ended.stdout));
    let row = value["checks"].as_array().and_then(|all| all.iter().find(|c| c["name"] == "smoke")).expect("a smoke");
    (row["level"].as_str().unwrap_or_default().to_owned(), row["results"].to_string())
}

#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn smoke_reports_bandwidth_and_slow_pairs() {
    let fixture = SandboxFixture::start("{hosts: 3, gpus: 1}").await;
    let laptop = fixture.new_laptop("laptop");
    let file = fixture.write_inventory("sound", &JobSpec::default());
    let pair = |one: u32, two: u32, gbps: f64| format!("\"pair\", \"pair\": [{one}, {two}], \"gbps\": {gbps}");
    set_fake_python(&fixture, "gpu01", &successful_smoke_output(&[&pair(0, 1, 21.0), &pair(0, 2, 22.0)]));
    set_fake_python(&fixture, "gpu02", &successful_smoke_output(&[&pair(1, 2, 20.25)]));
    set_fake_python(&fixture, "gpu03", &successful_smoke_output(&[]));
    let page = run_check(&fixture, &laptop, &file, &["--only", "docker,smoke"]).await;
    page.assert_exit_code(0)
        .assert_contains("ok    smoke: gpu[01-03]: nccl, 3 ranks, all-reduce 180 GB/s, slowest pair gpu02-gpu03 20.2 GB/s (12.3 s)");
    assert!(page.stdout.lines().all(|line| line.chars().count() <= 120), "{}", page.stdout);
    fixture.assert_no_leftovers().await;
    // A slow pair is a warning for both hosts.
    set_fake_python(&fixture, "gpu02", &successful_smoke_output(&[&pair(1, 2, 1.5)]));
    let page = run_check(&fixture, &laptop, &file, &["--only", "smoke", "--json"]).await;
    page.assert_exit_code(0);
    let (level, text) = smoke_row(&page);
    assert_eq!(level, "warn", "{text}");
    assert!(text.contains("slow: gpu02-gpu03 1.5 GB/s") && text.contains(r#"["gpu02","gpu03"]"#), "{text}");
    // The smoke test runs only on request, and not after a failed check.
    let failed =
        run_check(&fixture, &laptop, &file, &["--smoke", "--json", "--only", "shm", "--set", "checks.paths=[/nowhere]", "--only", "paths"])
            .await;
    failed.assert_exit_code(3);
    let (level, text) = smoke_row(&failed);
    assert!(level == "skipped" && text.contains("a check failed"), "{text}");
    let without = run_check(&fixture, &laptop, &file, &["--only", "docker", "--json"]).await;
    assert!(!without.stdout.contains("smoke"), "{}", without.stdout);
    fixture.assert_clean_and_stop().await;
}

#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn failed_smoke_names_missing_hosts() {
    let fixture = SandboxFixture::start("{hosts: 3, gpus: 1}").await;
    let laptop = fixture.new_laptop("laptop");
    let file = fixture.write_inventory("held", &JobSpec::default());
    // The others wait until they are ended.
    let waits = fake_python(&[r#""imported", "torch": "2.6.0", "gpus": 1"#, r#""store""#], "exec sleep 300");
    for host in ["gpu01", "gpu02"] {
        set_fake_python(&fixture, host, &waits);
    }
    let blocked = r#""failed", "phase": "store", "why": "no answer from 127.0.0.1:4711 in 30 s""#;
    set_fake_python(&fixture, "gpu03", &fake_python(&[r#""imported", "torch": "2.6.0", "gpus": 1"#, blocked], "exit 1"));
    let page = run_check(&fixture, &laptop, &file, &["--only", "smoke"]).await;
    page.assert_exit_code(3)
        .assert_contains("FAIL  smoke: gpu03: did not arrive: no answer from 127.0.0.1:4711")
        .assert_contains("waiting for: gpu03")
        .assert_contains("ranks' logs are in");
    fixture.assert_no_leftovers().await;
    // An image without torch.
    for host in ["gpu01", "gpu02", "gpu03"] {
        set_fake_python(&fixture, host, &fake_python(&[r#""skip", "why": "torch""#], "exit 0"));
    }
    let page = run_check(&fixture, &laptop, &file, &["--only", "smoke"]).await;
    page.assert_exit_code(0).assert_contains("skip  smoke: the image has no torch");
    fixture.assert_no_leftovers().await;
    // A live run of the same name is not disturbed.
    laptop.run(&["up", "-d", path_str(&file)]).await.assert_exit_code(0);
    let page = run_check(&fixture, &laptop, &file, &["--only", "smoke"]).await;
    page.assert_exit_code(3)
        .assert_contains("is live and needs the hosts")
        .assert_contains(&format!("`orchestrate attach {} --set", path_str(&file)));
    laptop.run(&["down", "--yes", path_str(&file)]).await.assert_exit_code(0);
    fixture.assert_clean_and_stop().await;
}
