//! Ranks' logs of a smoke and the results made from them.

use super::{COMMAND_TEMPLATE, SmokeContext, SmokeRankLog, evaluate_smoke};
use crate::model::level::Level;
use crate::preflight::CheckResult;

const TEST_CONTEXT: SmokeContext<'_> =
    SmokeContext { hosts: &[], store_address: "10.0.0.1:29501", environment: "image", uses_gpus: false, failure_reason: "" };

/// The results for one rank per host.
fn evaluate_logs(context: SmokeContext<'_>, logs: &[&str]) -> Vec<(Level, String)> {
    let hosts: Vec<String> = (1..=logs.len()).map(|n| format!("gpu{n:02}")).collect();
    let rank_logs: Vec<SmokeRankLog> = logs.iter().enumerate().map(|(host, log)| SmokeRankLog::parse(host, log)).collect();
    let whole = |cell: CheckResult| (cell.level, cell.message);
    evaluate_smoke(&SmokeContext { hosts: &hosts, ..context }, &rank_logs).into_iter().map(whole).collect()
}

fn smoke_line(text: &str) -> String {
    format!("orch-smoke {{\"smoke\": {text}, \"at\": 1.5}}\n")
}

fn smoke_lines(all: &[&str]) -> String {
    all.iter().map(|text| smoke_line(text)).collect()
}

const IMPORTED: &str = r#""imported", "torch": "2.6.0", "gpus": 0"#;
const GROUP: &str = r#""group", "backend": "gloo""#;

fn arrived_log(more: &[&str]) -> String {
    smoke_lines(&[IMPORTED, r#""store""#, r#""arrived""#]) + &smoke_lines(more)
}

fn complete_log(more: &[&str]) -> String {
    arrived_log(&[GROUP]) + &smoke_lines(more) + &smoke_line(r#""done""#)
}

#[test]
fn successful_smoke_is_one_line() {
    let ring = r#""ring", "bytes": 1048576, "gbps": 1.1"#;
    let first = complete_log(&[
        r#""ring", "bytes": 4, "gbps": 0.2"#,
        ring,
        r#""trying", "pair": [0, 1]"#,
        r#""pair", "pair": [0, 1], "gbps": 0.9"#,
    ]);
    let found = evaluate_logs(TEST_CONTEXT, &[&first, &complete_log(&[ring])]);
    let text = "gloo, 2 ranks, all-reduce 1.1 GB/s, pair gpu01-gpu02 0.9 GB/s (1.5 s)".to_owned();
    assert_eq!(found, [(Level::Pass, text.clone()), (Level::Pass, text)]);
    // Ranks that were to have GPUs and found none.
    let found = evaluate_logs(SmokeContext { uses_gpus: true, ..TEST_CONTEXT }, &[&first, &complete_log(&[ring])]);
    assert_eq!(found[0].0, Level::Warn);
    assert!(found[0].1.starts_with("torch 2.6.0 sees no GPU, so the test used gloo, 2 ranks"), "{found:?}");
}

#[test]
fn slow_pair_warns_on_both_hosts() {
    let mut ranks = vec![complete_log(&[]); 4];
    let pairs = [((0, 1), 1.0), ((0, 2), 0.9), ((0, 3), 1.1), ((1, 2), 0.06), ((1, 3), 1.0), ((2, 3), 0.56)];
    for ((one, two), gbps) in pairs {
        ranks[one] += &smoke_line(&format!(r#""pair", "pair": [{one}, {two}], "gbps": {gbps}"#));
    }
    let logs: Vec<&str> = ranks.iter().map(String::as_str).collect();
    let found = evaluate_logs(TEST_CONTEXT, &logs);
    let levels: Vec<Level> = found.iter().map(|(level, _)| *level).collect();
    assert_eq!(levels, [Level::Pass, Level::Warn, Level::Warn, Level::Pass]);
    assert_eq!(found[1].1, "slow: gpu02-gpu03 60 MB/s; half of the pairs have 1.0 GB/s or more");
    assert_eq!(found[1].1, found[2].1);
    assert!(found[0].1.contains("slowest pair gpu02-gpu03 60 MB/s"), "{found:?}");
}

#[test]
fn missing_rank_is_named_with_its_reason() {
    let waits = smoke_lines(&[IMPORTED, r#""store""#, r#""waiting", "missing": [1, 2]"#]);
    let blocked = smoke_lines(&[IMPORTED, r#""failed", "phase": "store", "why": "no answer from 10.0.0.1:29501 in 30 s""#]);
    let found = evaluate_logs(TEST_CONTEXT, &[&waits, &blocked, "Illegal instruction\n"]);
    assert_eq!(found[0], (Level::Pass, "arrived; waiting for: gpu02 gpu03".to_owned()));
    assert_eq!(found[1], (Level::Fail, "did not arrive: no answer from 10.0.0.1:29501 in 30 s; waiting for: gpu02 gpu03".to_owned()));
    assert_eq!(found[2], (Level::Fail, "did not arrive: importing torch took too long; waiting for: gpu02 gpu03".to_owned()));
    // It failed before the master's patience was at its end.
    let stopped = smoke_lines(&[IMPORTED, r#""store""#]);
    let found = evaluate_logs(TEST_CONTEXT, &[&stopped, &blocked]);
    assert_eq!(found[1], (Level::Fail, "did not arrive: no answer from 10.0.0.1:29501 in 30 s; waiting for: gpu02".to_owned()));
    // A library that is broken on one host.
    let broken = smoke_lines(&[r#""failed", "phase": "import", "why": "OSError: libcudart.so.12""#]);
    let found = evaluate_logs(TEST_CONTEXT, &[&waits.replace("[1, 2]", "[1]"), &broken]);
    assert!(found[1].1.starts_with("did not arrive: torch cannot be imported: OSError: libcudart.so.12"), "{found:?}");
    // Where the store does not start, only its host is to blame.
    let taken = smoke_lines(&[IMPORTED, r#""failed", "phase": "store", "why": "Address already in use""#]);
    let found = evaluate_logs(TEST_CONTEXT, &[&taken, &blocked]);
    assert_eq!(found[0], (Level::Fail, "did not arrive: no store at 10.0.0.1:29501: Address already in use".to_owned()));
    assert_eq!(found[1].0, Level::Skipped);
}

#[test]
fn stall_after_rendezvous_names_its_phase() {
    let refused = arrived_log(&[r#""failed", "phase": "group", "why": "RuntimeError: connect [10.0.0.1]:4711: Connection refused""#]);
    let waits = arrived_log(&[r#""failed", "phase": "group", "why": "no end within its time""#]);
    let found = evaluate_logs(TEST_CONTEXT, &[&waits, &refused]);
    assert_eq!(found[0].0, Level::Skipped);
    assert_eq!(
        found[1],
        (Level::Fail, "the process group was not created: RuntimeError: connect [10.0.0.1]:4711: Connection refused".to_owned())
    );
    let hung = arrived_log(&[GROUP, r#""failed", "phase": "ring", "why": "no end within its time""#]);
    let found = evaluate_logs(TEST_CONTEXT, &[&hung, &hung]);
    assert_eq!(found[1], (Level::Fail, "the all-reduce did not finish: no end within its time".to_owned()));
    // A process that is gone without a word.
    let why = SmokeContext { failure_reason: "rank 1 on gpu02 failed: signal 11 (SEGV)", ..TEST_CONTEXT };
    let found = evaluate_logs(why, &[&complete_log(&[]), &arrived_log(&[GROUP])]);
    assert_eq!(found[0].0, Level::Pass);
    assert_eq!(found[1], (Level::Fail, "the all-reduce did not finish: rank 1 on gpu02 failed: signal 11 (SEGV)".to_owned()));
    let between = arrived_log(&[GROUP, r#""trying", "pair": [1, 2]"#, r#""failed", "phase": "pairs", "why": "no end within its time""#]);
    let found = evaluate_logs(TEST_CONTEXT, &[&hung, &between, &hung]);
    assert_eq!(found[0].0, Level::Pass);
    assert_eq!(found[2], (Level::Fail, "no data passes between gpu02 and gpu03".to_owned()));
}

#[test]
fn smoke_without_torch_is_skipped() {
    let none = smoke_line(r#""skip", "why": "torch""#);
    let skipped = (Level::Skipped, "the image has no torch".to_owned());
    assert_eq!(evaluate_logs(TEST_CONTEXT, &[&none, &none]), [skipped.clone(), skipped]);
    let found = evaluate_logs(TEST_CONTEXT, &[&smoke_lines(&[IMPORTED, r#""store""#]), &none]);
    assert_eq!(found[1], (Level::Fail, "the image has no torch, but other hosts have it".to_owned()));
    let found = evaluate_logs(SmokeContext { failure_reason: "the launcher on gpu01 failed: exit 125", ..TEST_CONTEXT }, &["", ""]);
    assert_eq!(found[0], (Level::Fail, "did not start: the launcher on gpu01 failed: exit 125".to_owned()));
    assert_eq!(evaluate_logs(TEST_CONTEXT, &[]), []);
}

#[test]
fn malformed_smoke_lines_are_ignored() {
    let log = format!(
        "orch-smoke\norch-smoke {{}}\norch-smoke [1]\norch-smoke {{\"smoke\": \"nope\"}}\n orch-smoke {{\"smoke\": \"done\"}}\n{}{}{}",
        smoke_line(r#""ring", "gbps": -1e400"#),
        smoke_line(r#""pair", "pair": [7, 9999999], "gbps": 1.0"#),
        complete_log(&[r#""ring", "gbps": 0.5"#, r#""waiting", "missing": [4294967295]"#])
    );
    let found = evaluate_logs(TEST_CONTEXT, &[&log, &log]);
    assert_eq!(found[0].1, "gloo, 2 ranks, all-reduce 0.5 GB/s, slowest pair ?-? 1.0 GB/s (1.5 s)");
}

#[test]
fn smoke_ports_are_near_the_master_port() {
    use crate::plan::facts_request::nearby_ports;
    assert_eq!(nearby_ports(29500), [29501, 29502, 29503, 29504, 29505, 29506, 29507, 29508]);
    assert_eq!(nearby_ports(65533)[..3], [65534, 65535, 65532]);
    assert!(COMMAND_TEMPLATE.iter().flatten().all(|word| !word.contains("{{") && !word.contains('\0')), "templates are evaluated in them");
}
