//! The rules on their own lines, on lines of programs that are well, and on runs that failed for real.

use std::fmt::Write as _;
use std::path::{Path, PathBuf};

use bytes::Bytes;

use crate::event::{Event, EventKind, Exit, LogFile, RankInfo, RunInfo};
use crate::inventory::diagnosis_rules::Blame;
use crate::state::{Culprit, RunState};

use super::{DiagnosisFinding, Evidence, RuleSet, diagnose_run};
use crate::text::translation::Lang;

#[test]
fn rules_match_their_own_examples_first() {
    let rules = RuleSet::built_in().expect("a good table");
    let mut wrong = Vec::new();
    for rule in rules.rules() {
        for line in &rule.examples {
            let found = rules.match_line(line.as_bytes()).map(|(at, _)| rules.rules()[at].id.as_str());
            if found != Some(rule.id.as_str()) {
                wrong.push(format!("{line}\n    {} wanted, {found:?} found", rule.id));
            }
        }
    }
    assert!(wrong.is_empty(), "{}", wrong.join("\n"));
}

#[test]
fn rules_are_bilingual_and_prefiltered() {
    let rules = RuleSet::built_in().expect("a good table");
    for rule in rules.rules().iter().filter(|rule| rule.blame != Blame::Harmless) {
        for words in [&rule.summary, &rule.explanation, &rule.next_step] {
            assert!(!words.en.is_empty() && !words.zh.is_empty(), "{}", rule.id);
            assert!(words.en.is_ascii() || words.en.contains(['×', '…']), "{}: {}", rule.id, words.en);
        }
        assert!(rule.summary.zh.chars().any(|c| ('\u{4e00}'..='\u{9fff}').contains(&c)) || rule.id == "python-exception", "{}", rule.id);
    }
    assert_eq!(rules.unfiltered_rule_ids(), Vec::<&str>::new(), "these are looked for in every line");
}

#[test]
fn training_lines_pass_the_prefilter_unmatched() {
    let rules = RuleSet::built_in().expect("a good table");
    let text = b"step 7/1000 | loss 2.1234 | grad norm 0.12 | lr 3.00e-04 | 5212 tokens/s | mfu 41.3% | mem 61.2GiB\n\
        {'loss': 2.1, 'grad_norm': 0.1, 'learning_rate': 3.0e-04, 'epoch': 0.2}\n\
        2026-11-22 01:30:11,123 - INFO - trainer - saving checkpoint to /data/ckpt/step-1234\n\
        gpu01:10000:10090 [0] NCCL INFO Channel 00/0 : 0[0] -> 1[1] [send] via NET/IB/0/GDRDMA\n";
    let mut looked = Vec::new();
    rules.for_each_candidate_line(text, |from, to| looked.push(String::from_utf8_lossy(&text[from..to]).into_owned()));
    assert_eq!(looked, Vec::<String>::new());
    let nan = |line: &str| rules.match_line(line.as_bytes()).map(|(at, _)| rules.rules()[at].id.clone());
    for line in ["loss is NaN at step 5", "grad_norm = inf", "Gradient became nan", "loss :inf"] {
        assert_eq!(nan(line).as_deref(), Some("nan"), "{line}");
    }
}

fn test_data_path(name: &str) -> PathBuf {
    Path::new(env!("CARGO_MANIFEST_DIR")).join("tests/data/diagnosis").join(name)
}

#[test]
fn harmless_lines_match_no_cause() {
    let rules = RuleSet::built_in().expect("a good table");
    let text = std::fs::read_to_string(test_data_path("harmless.txt")).expect("lines");
    let lines: Vec<&str> = text.lines().filter(|line| !line.is_empty() && !line.starts_with("## ")).collect();
    assert!(lines.len() >= 200, "{}", lines.len());
    let reported = lines.iter().filter_map(|line| {
        let (at, _) = rules.match_line(line.as_bytes())?;
        let rule = &rules.rules()[at];
        (!matches!(rule.blame, Blame::Harmless | Blame::PossibleCause)).then(|| format!("{}: {line}", rule.id))
    });
    let reported: Vec<String> = reported.collect();
    assert!(reported.is_empty(), "{}", reported.join("\n"));
}

/// A recorded run, with its log bytes from the files beside the journal.
fn replay_recorded_run(dir: &Path) -> (RunState, Evidence) {
    let (mut state, mut evidence) = (RunState::new(), Evidence::with_built_in_rules());
    let journal = std::fs::read_to_string(dir.join("journal.jsonl")).expect("a journal");
    for line in journal.lines().filter(|line| line.starts_with("{\"seq\"")) {
        let mut event: Event = serde_json::from_str(line).expect("an event");
        if let EventKind::Log { host, file, offset, bytes, len } = &mut event.kind {
            let name = match file {
                LogFile::Rank { rank, restart: 0 } => format!("rank-{rank}.log"),
                LogFile::Rank { rank, restart } => format!("rank-{rank}.{restart}.log"),
                LogFile::Launcher => format!("node-{host}.log"),
                LogFile::Task { number } => format!("task-{number}-{host}.log"),
            };
            let all = std::fs::read(dir.join(name)).expect("a log");
            let (from, to) = (*offset as usize, (*offset + *len) as usize);
            *bytes = Bytes::copy_from_slice(&all[from.min(all.len())..to.min(all.len())]);
        }
        state.apply(&event);
        evidence.apply(&event);
    }
    (state, evidence)
}

/// `rule @ ranks or hosts` of the first finding.
fn describe_first_finding(findings: &[DiagnosisFinding], state: &RunState) -> String {
    let Some(first) = findings.first() else { return "nothing".to_owned() };
    let ranks: Vec<String> = first.ranks.iter().map(u32::to_string).collect();
    if !ranks.is_empty() {
        return format!("{} @ {}", first.rule, ranks.join(","));
    }
    let hosts: Vec<&str> = first.hosts.iter().map(|host| state.host_name(*host)).collect();
    format!("{} @ {}", first.rule, hosts.join(","))
}

/// The runs that were recorded on the test hosts (`tests/cluster/record.rs`), each with what was done to it.
#[test]
fn recorded_runs_get_expected_findings() {
    let expected = std::fs::read_to_string(test_data_path("expected.tsv")).expect("what is wanted");
    let (mut right, mut report) = (0, String::new());
    let mut wrong = 0;
    for line in expected.lines().filter(|line| !line.starts_with('#')) {
        let (case, wanted) = line.split_once('\t').expect("case, tab, finding");
        if !test_data_path("recorded").join(case).exists() {
            wrong += 1;
            writeln!(report, "{case}: not recorded").expect("a String");
            continue;
        }
        let (state, evidence) = replay_recorded_run(&test_data_path("recorded").join(case));
        let found = diagnose_run(&evidence, &state);
        let text = describe_first_finding(&found, &state);
        // `3|1`: whichever of them the clocks say was first.
        if text == wanted || wanted.strip_suffix("any").is_some_and(|rule| text.starts_with(rule)) {
            right += 1;
        } else {
            wrong += 1;
            writeln!(report, "{case}: {wanted} wanted, {text} found").expect("a String");
        }
    }
    println!("recorded runs: {right} explained rightly, {wrong} not");
    assert_eq!(wrong, 0, "{report}");
    let recorded = std::fs::read_dir(test_data_path("recorded")).expect("a folder").count();
    assert_eq!(recorded, right, "every recorded run has its line in expected.tsv");
}

#[test]
fn advice_names_the_rank_that_failed_first() {
    let (mut state, evidence) = replay_recorded_run(&test_data_path("recorded/not-executable"));
    let ranks = diagnose_run(&evidence, &state)[0].ranks.clone();
    let last = *ranks.last().expect("a rank");
    assert!(last > ranks[0], "{ranks:?}");
    let mut named_rank = |ranks: Vec<u32>| {
        state.culprit = Some(Culprit { ranks, hosts: vec![0] });
        diagnose_run(&evidence, &state)[0].values.known["rank"].clone()
    };
    assert_eq!(named_rank(vec![last]), last.to_string());
    assert_eq!(named_rank(Vec::new()), ranks[0].to_string());
}

#[test]
fn finding_texts_are_bilingual() {
    let (state, evidence) = replay_recorded_run(&test_data_path("recorded/missing-module"));
    let found = diagnose_run(&evidence, &state);
    let first = &found[0];
    assert_eq!(first.summary(Lang::En), "Python cannot import flash_attn_that_is_not_there");
    assert_eq!(first.summary(Lang::Zh), "Python 无法导入 flash_attn_that_is_not_there");
    assert!(!first.next_step(Lang::En).contains('{') && !first.explanation(Lang::Zh).is_empty());
}

#[test]
fn line_with_group_values_is_quoted() {
    let (state, evidence) = replay_recorded_run(&test_data_path("recorded/wrong-address"));
    let first = &diagnose_run(&evidence, &state)[0];
    assert_eq!(first.summary(Lang::En), "another host is unreachable from this one: 172.30.77.250");
    assert!(first.evidence[0].contains("(172.30.77.250, 29611)"), "{:?}", first.evidence);
    let found = findings_for_dead_rank(Exit::Code(1), "OSError: [Errno 113] No route to host\n", &[]);
    assert_eq!(found[0].summary(Lang::Zh), "从该主机无法到达另一台主机");
}

#[test]
fn without_rules_no_line_is_kept() {
    let text = "CUDA out of memory\nno end";
    let file = LogFile::Rank { rank: 1, restart: 0 };
    let kind = EventKind::log(1, file, 0, text);
    let event = Event { seq: 1, at: 1000, kind };
    let (mut none, mut built_in) = (Evidence::default(), Evidence::with_built_in_rules());
    none.apply(&event);
    built_in.apply(&event);
    assert!(none.log_scan(1, file).is_none() && built_in.log_scan(1, file).is_some());
}

/// A teardown makes another plan of the run that failed; the plan of another launch has no run id yet.
#[test]
fn evidence_of_a_later_attempt_outlives_its_teardown() {
    let plan = |run: &str, attempt| {
        let (hosts, ranks) = (vec!["gpu01".to_owned()], vec![RankInfo { rank: 0, host: 0, local_rank: 0 }]);
        let command = "up".to_owned();
        EventKind::RunStarted(RunInfo { run_id: run.to_owned(), command, attempt, hosts, ranks, ..RunInfo::default() })
    };
    let (mut state, mut evidence) = (RunState::new(), Evidence::with_built_in_rules());
    let file = LogFile::Rank { rank: 0, restart: 0 };
    let kinds = [
        plan("r2", 2),
        EventKind::log(0, file, 0, "ModuleNotFoundError: No module named 'einops'\n"),
        EventKind::RankExited { host: 0, rank: 0, restart: 0, exit: Exit::Code(1), ended_at: 9, uncertainty: 0, stopped: None },
        plan("r2", 2),
    ];
    for (seq, kind) in (1..).zip(kinds) {
        let event = Event { seq, at: 1000, kind };
        state.apply(&event);
        evidence.apply(&event);
    }
    let rules: Vec<String> = diagnose_run(&evidence, &state).into_iter().map(|finding| finding.rule).collect();
    assert_eq!(rules, ["py-module"]);
    evidence.apply(&Event { seq: 9, at: 2000, kind: plan("", 3) });
    assert!(evidence.log_scan(0, file).is_none());
}

/// A run of two hosts in which rank 1 on gpu02 died so, with what it had written and what its host then said.
fn findings_for_dead_rank(exit: Exit, log: &str, postmortem: &[&str]) -> Vec<DiagnosisFinding> {
    findings_for_ranks(exit, log, postmortem, None)
}

/// The same; rank 0 on gpu01 was then stopped and ended so, with this log.
fn findings_for_ranks(exit: Exit, log: &str, postmortem: &[&str], stopped: Option<(Exit, &str)>) -> Vec<DiagnosisFinding> {
    let (mut state, mut evidence) = (RunState::new(), Evidence::with_built_in_rules());
    let file = LogFile::Rank { rank: 1, restart: 0 };
    let info = RunInfo {
        hosts: vec!["gpu01".to_owned(), "gpu02".to_owned()],
        ranks: (0..2).map(|rank| RankInfo { rank, host: rank, local_rank: 0 }).collect(),
        ..RunInfo::default()
    };
    let kinds = [
        EventKind::RunStarted(info),
        EventKind::RankStarted { host: 0, rank: 0, restart: 0, started_at: 1 },
        EventKind::RankStarted { host: 1, rank: 1, restart: 0, started_at: 1 },
        EventKind::log(1, file, 0, log.to_owned()),
        EventKind::RankExited { host: 1, rank: 1, restart: 0, exit, ended_at: 9, uncertainty: 0, stopped: None },
        EventKind::Culprit { ranks: vec![1], hosts: vec![1] },
        EventKind::Postmortem { host: 1, lines: postmortem.iter().map(|line| (*line).to_owned()).collect() },
    ];
    let late = stopped.map(|(exit, log)| {
        let file = LogFile::Rank { rank: 0, restart: 0 };
        let ended = EventKind::RankExited { host: 0, rank: 0, restart: 0, exit, ended_at: 12, uncertainty: 0, stopped: Some(true) };
        [EventKind::log(0, file, 0, log.to_owned()), ended]
    });
    for (seq, kind) in (1..).zip(kinds.into_iter().chain(late.into_iter().flatten())) {
        let event = Event { seq, at: 1000, kind };
        state.apply(&event);
        evidence.apply(&event);
    }
    diagnose_run(&evidence, &state)
}

#[test]
fn postmortem_explains_silent_rank_death() {
    let rules =
        |found: Vec<DiagnosisFinding>| found.iter().map(|finding| format!("{} {:?}", finding.rule, finding.ranks)).collect::<Vec<_>>();
    let well = "docker: status=running exit=0 oom-killed=false error=";
    assert_eq!(rules(findings_for_dead_rank(Exit::Signal(9), "step 7\n", &[well])), ["killed [1]"]);
    for (line, rule) in [
        ("docker: status=running exit=0 oom-killed=true error=", "container-oom"),
        ("cgroup: oom_kill 1", "container-oom"),
        ("kernel: Memory cgroup out of memory: Killed process 42 (python) total-vm:7kB", "cgroup-limit"),
        ("kernel: Out of memory: Killed process 42 (python) total-vm:7kB", "host-oom"),
        ("docker: Error: No such container: orch-a-gpu02", "container-gone"),
        ("docker: status=exited exit=137 oom-killed=false error=", "container-ended"),
        ("disk: /tmp is full: 0 KiB of 65536 are free", "host-disk-full"),
    ] {
        assert_eq!(rules(findings_for_dead_rank(Exit::Signal(9), "step 7\n", &[line])), [format!("{rule} [1]")], "{line}");
        // Its own words come first, and a full disk alone is no second cause.
        let own = rules(findings_for_dead_rank(Exit::Code(1), "ModuleNotFoundError: No module named 'einops'\n", &[line]));
        assert_eq!(own[0], "py-module [1]", "{line}");
    }
}

#[test]
fn xid_error_precedes_cuda_error() {
    let log = "RuntimeError: CUDA error: an illegal memory access was encountered\n";
    let found =
        findings_for_dead_rank(Exit::Code(1), log, &["kernel: NVRM: Xid (PCI:0000:3b:00): 79, pid=1234, GPU has fallen off the bus."]);
    let rules: Vec<&str> = found.iter().map(|finding| finding.rule.as_str()).collect();
    assert_eq!(rules, ["xid", "cuda-illegal"]);
    assert_eq!((found[0].ranks.as_slice(), found[0].values.matched["xid"].as_str()), ([1].as_slice(), "79"));
    // An Xid that a program causes comes after the program's error.
    let found = findings_for_dead_rank(Exit::Code(1), log, &["kernel: NVRM: Xid (PCI:0000:3b:00): 31, pid=1234, MMU fault"]);
    let rules: Vec<&str> = found.iter().map(|finding| finding.rule.as_str()).collect();
    assert_eq!(rules, ["cuda-illegal"]);
    // Alone it says something.
    let found = findings_for_dead_rank(Exit::Code(1), "step 7\n", &["kernel: NVRM: Xid (PCI:0000:3b:00): 43, pid=1234, name=python3"]);
    assert_eq!(found[0].rule, "xid-program");
}

#[test]
fn exception_of_late_rank_precedes_lost_peer() {
    let lost = "[rank1]: RuntimeError: [./gloo/transport/tcp/pair.cc:534] Connection closed by peer [10.0.0.1]:45739\n";
    let raised = "[rank0]: ValueError: expected 4 channels, got 3\n";
    // Rank 1 lost rank 0 and exited first; rank 0 had raised its exception before, and ended only while it was stopped.
    for (exit, own) in [(Exit::Code(1), raised), (Exit::Signal(15), raised), (Exit::Code(1), "RuntimeError: CUDA out of memory\n")] {
        let rule = if own == raised { "python-exception" } else { "cuda-oom" };
        let found = findings_for_ranks(Exit::Code(1), lost, &[], Some((exit, own)));
        let rules: Vec<_> = found.iter().map(|finding| (finding.rule.as_str(), finding.ranks.as_slice())).collect();
        assert_eq!(rules, [(rule, [0].as_slice())], "{exit:?}");
        assert_eq!(found[0].affected, [1]);
    }
    // What the stop itself may cause explains nothing, nor does an exception after which the rank went on, or ended well.
    let handled = format!("{raised}{}", "step 7\n".repeat(30));
    for (exit, log) in [
        (Exit::Signal(2), "[rank0]: KeyboardInterrupt\n"),
        (Exit::Signal(15), "step 7\n"),
        (Exit::Code(1), "RuntimeError: DataLoader worker (pid(s) 4711, 4712) exited unexpectedly\n"),
        (Exit::Code(1), &handled),
        (Exit::Code(0), raised),
    ] {
        let found = findings_for_ranks(Exit::Code(1), lost, &[], Some((exit, log)));
        assert_eq!((found[0].rule.as_str(), found[0].ranks.as_slice()), ("gloo-closed", [1].as_slice()), "{exit:?} {log}");
    }
    let waited = "RuntimeError: [./gloo/transport/tcp/unbound_buffer.cc:81] Timed out waiting 10000ms for recv operation to complete\n";
    let found = findings_for_ranks(Exit::Code(1), waited, &[], Some((Exit::Signal(15), raised)));
    assert_eq!(found[0].rule, "rank-missing", "a rank that waited in vain lost no peer");
    // Its own cause comes first.
    let own = "ModuleNotFoundError: No module named 'einops'\n";
    let found = findings_for_ranks(Exit::Code(1), own, &[], Some((Exit::Code(1), raised)));
    let rules: Vec<_> = found.iter().map(|finding| (finding.rule.as_str(), finding.ranks.as_slice())).collect();
    assert_eq!(rules, [("py-module", [1].as_slice())]);
}
