//! What ranks may tell of a smoke, and what is made of it.

use super::super::Cell;
use super::{Heard, Terms, WORDS, judged, near};
use crate::plan::words::Level;

const TERMS: Terms<'_> = Terms { hosts: &[], store: "10.0.0.1:29501", place: "image", gpus: false, why: "" };

/// What is made of one rank a host.
fn cells(terms: Terms<'_>, logs: &[&str]) -> Vec<(Level, String)> {
    let hosts: Vec<String> = (1..=logs.len()).map(|n| format!("gpu{n:02}")).collect();
    let heard: Vec<Heard> = logs.iter().enumerate().map(|(host, log)| Heard::read(host, log)).collect();
    let whole = |cell: Cell| (cell.level, cell.what);
    judged(&Terms { hosts: &hosts, ..terms }, &heard).into_iter().map(whole).collect()
}

fn line(text: &str) -> String {
    format!("orch-smoke {{\"smoke\": {text}, \"at\": 1.5}}\n")
}

fn lines(all: &[&str]) -> String {
    all.iter().map(|text| line(text)).collect()
}

const IMPORTED: &str = r#""imported", "torch": "2.6.0", "gpus": 0"#;
const GROUP: &str = r#""group", "backend": "gloo""#;

fn arrived(more: &[&str]) -> String {
    lines(&[IMPORTED, r#""store""#, r#""arrived""#]) + &lines(more)
}

fn whole(more: &[&str]) -> String {
    arrived(&[GROUP]) + &lines(more) + &line(r#""done""#)
}

#[test]
fn a_sound_fleet_is_told_in_one_line() {
    let ring = r#""ring", "bytes": 1048576, "gbps": 1.1"#;
    let first =
        whole(&[r#""ring", "bytes": 4, "gbps": 0.2"#, ring, r#""trying", "pair": [0, 1]"#, r#""pair", "pair": [0, 1], "gbps": 0.9"#]);
    let found = cells(TERMS, &[&first, &whole(&[ring])]);
    let text = "gloo, 2 ranks, all-reduce 1.1 GB/s, pair gpu01-gpu02 0.9 GB/s (1.5 s)".to_owned();
    assert_eq!(found, [(Level::Pass, text.clone()), (Level::Pass, text)]);
    // Ranks that were to have GPUs and found none.
    let found = cells(Terms { gpus: true, ..TERMS }, &[&first, &whole(&[ring])]);
    assert_eq!(found[0].0, Level::Warn);
    assert!(found[0].1.starts_with("torch 2.6.0 sees no GPU, so it went over gloo, 2 ranks"), "{found:?}");
}

#[test]
fn a_pair_slower_than_half_of_the_median_names_both() {
    let mut ranks = vec![whole(&[]); 4];
    let pairs = [((0, 1), 1.0), ((0, 2), 0.9), ((0, 3), 1.1), ((1, 2), 0.06), ((1, 3), 1.0), ((2, 3), 0.56)];
    for ((one, two), gbps) in pairs {
        ranks[one] += &line(&format!(r#""pair", "pair": [{one}, {two}], "gbps": {gbps}"#));
    }
    let logs: Vec<&str> = ranks.iter().map(String::as_str).collect();
    let found = cells(TERMS, &logs);
    let levels: Vec<Level> = found.iter().map(|(level, _)| *level).collect();
    assert_eq!(levels, [Level::Pass, Level::Warn, Level::Warn, Level::Pass]);
    assert_eq!(found[1].1, "slow: gpu02-gpu03 60 MB/s; half of the pairs have 1.0 GB/s or more");
    assert_eq!(found[1].1, found[2].1);
    assert!(found[0].1.contains("slowest pair gpu02-gpu03 60 MB/s"), "{found:?}");
}

#[test]
fn who_does_not_arrive_is_named_with_the_reason() {
    let waits = lines(&[IMPORTED, r#""store""#, r#""waiting", "missing": [1, 2]"#]);
    let blocked = lines(&[IMPORTED, r#""failed", "phase": "store", "why": "no answer from 10.0.0.1:29501 in 30 s""#]);
    let found = cells(TERMS, &[&waits, &blocked, "Illegal instruction\n"]);
    assert_eq!(found[0], (Level::Pass, "arrived; waiting for: gpu02 gpu03".to_owned()));
    assert_eq!(found[1], (Level::Fail, "did not arrive: no answer from 10.0.0.1:29501 in 30 s; waiting for: gpu02 gpu03".to_owned()));
    assert_eq!(found[2], (Level::Fail, "did not arrive: torch was not imported in time; waiting for: gpu02 gpu03".to_owned()));
    // It failed before the master's patience was at its end.
    let stopped = lines(&[IMPORTED, r#""store""#]);
    let found = cells(TERMS, &[&stopped, &blocked]);
    assert_eq!(found[1], (Level::Fail, "did not arrive: no answer from 10.0.0.1:29501 in 30 s; waiting for: gpu02".to_owned()));
    // A library that is broken on one host.
    let broken = lines(&[r#""failed", "phase": "import", "why": "OSError: libcudart.so.12""#]);
    let found = cells(TERMS, &[&waits.replace("[1, 2]", "[1]"), &broken]);
    assert!(found[1].1.starts_with("did not arrive: torch cannot be imported: OSError: libcudart.so.12"), "{found:?}");
    // Nobody else is to blame where the store does not begin.
    let taken = lines(&[IMPORTED, r#""failed", "phase": "store", "why": "Address already in use""#]);
    let found = cells(TERMS, &[&taken, &blocked]);
    assert_eq!(found[0], (Level::Fail, "did not arrive: no store at 10.0.0.1:29501: Address already in use".to_owned()));
    assert_eq!(found[1].0, Level::Skipped);
}

#[test]
fn what_stops_after_the_meeting_is_named_with_its_phase() {
    let refused = arrived(&[r#""failed", "phase": "group", "why": "RuntimeError: connect [10.0.0.1]:4711: Connection refused""#]);
    let waits = arrived(&[r#""failed", "phase": "group", "why": "no end within its time""#]);
    let found = cells(TERMS, &[&waits, &refused]);
    assert_eq!(found[0].0, Level::Skipped);
    assert_eq!(
        found[1],
        (Level::Fail, "the process group was not made: RuntimeError: connect [10.0.0.1]:4711: Connection refused".to_owned())
    );
    let hung = arrived(&[GROUP, r#""failed", "phase": "ring", "why": "no end within its time""#]);
    let found = cells(TERMS, &[&hung, &hung]);
    assert_eq!(found[1], (Level::Fail, "the all-reduce did not end: no end within its time".to_owned()));
    // A process that is gone without a word.
    let why = Terms { why: "rank 1 on gpu02 failed: SIGSEGV", ..TERMS };
    let found = cells(why, &[&whole(&[]), &arrived(&[GROUP])]);
    assert_eq!(found[0].0, Level::Pass);
    assert_eq!(found[1], (Level::Fail, "the all-reduce did not end: rank 1 on gpu02 failed: SIGSEGV".to_owned()));
    let between = arrived(&[GROUP, r#""trying", "pair": [1, 2]"#, r#""failed", "phase": "pairs", "why": "no end within its time""#]);
    let found = cells(TERMS, &[&hung, &between, &hung]);
    assert_eq!(found[0].0, Level::Pass);
    assert_eq!(found[2], (Level::Fail, "nothing comes through between gpu02 and gpu03".to_owned()));
}

#[test]
fn without_torch_there_is_nothing_to_judge() {
    let none = line(r#""skip", "why": "torch""#);
    let skipped = (Level::Skipped, "the image has no torch".to_owned());
    assert_eq!(cells(TERMS, &[&none, &none]), [skipped.clone(), skipped]);
    let found = cells(TERMS, &[&lines(&[IMPORTED, r#""store""#]), &none]);
    assert_eq!(found[1], (Level::Fail, "the image has no torch, and others have it".to_owned()));
    let found = cells(Terms { why: "the launcher on gpu01 failed: exit 125", ..TERMS }, &["", ""]);
    assert_eq!(found[0], (Level::Fail, "it did not begin: the launcher on gpu01 failed: exit 125".to_owned()));
    assert_eq!(cells(TERMS, &[]), []);
}

#[test]
fn rubbish_is_passed_over() {
    let log = format!(
        "orch-smoke\norch-smoke {{}}\norch-smoke [1]\norch-smoke {{\"smoke\": \"nope\"}}\n orch-smoke {{\"smoke\": \"done\"}}\n{}{}{}",
        line(r#""ring", "gbps": -1e400"#),
        line(r#""pair", "pair": [7, 9999999], "gbps": 1.0"#),
        whole(&[r#""ring", "gbps": 0.5"#, r#""waiting", "missing": [4294967295]"#])
    );
    let found = cells(TERMS, &[&log, &log]);
    assert_eq!(found[0].1, "gloo, 2 ranks, all-reduce 0.5 GB/s, slowest pair ?-? 1.0 GB/s (1.5 s)");
}

#[test]
fn it_meets_beside_the_port_of_the_job() {
    assert_eq!(near(29500), [29501, 29502, 29503, 29504, 29505, 29506, 29507, 29508]);
    assert_eq!(near(65533)[..3], [65534, 65535, 65532]);
    assert!(WORDS.iter().flatten().all(|word| !word.contains("{{") && !word.contains('\0')), "templates are evaluated in them");
}
