//! The reports in Chinese, as they look on a terminal of 80 columns; `BLESS=1` writes the pictures in `tests/data/zh`.

use std::time::Duration;

use unicode_width::UnicodeWidthStr as _;

use super::host_rows::HostRows;
use super::log_lines::LogSelection;
use super::plain::{PlainSettings, PlainSink};
use super::preflight_report::{PreflightReportContext, list_checks, render_text};
use super::recap::{RecapContext, render_recap};
use super::style::TextStyle;
use super::test_support::{SinkHarness, rank_exited, recap_context, run_started};
use crate::diagnose::{Evidence, diagnose_run};
use crate::event::{EventKind, Exit, Hang, HangSymptom, Outcome, Phase, RunGoal};
use crate::model::level::Level;
use crate::preflight::{ALL_CHECKS, CheckReport, CheckResult};
use crate::text::golden::assert_golden;
use crate::text::sanitize::Sanitizer;
use crate::text::translation::Lang;

fn assert_picture(name: &str, now: &str) {
    assert_golden(&format!("tests/data/zh/{name}"), now);
    // A command is never broken, so that it can be pasted.
    let long = now.lines().filter(|line| !line.contains("orchestrate ")).find(|line| line.width() > 80);
    assert_eq!(long, None, "{name}");
}

fn plain_harness() -> SinkHarness<PlainSink<Vec<String>>> {
    let sink = PlainSink::new(Vec::new(), PlainSettings { logs: LogSelection::None, lang: Lang::Zh, ..PlainSettings::default() });
    SinkHarness::new(sink)
}

fn context() -> RecapContext {
    RecapContext { lang: Lang::Zh, ..recap_context() }
}

#[test]
fn report_of_a_failed_run() {
    let mut harness = plain_harness();
    harness.emit_failing_run();
    let recap = render_recap(&harness.state, &context()).join("\n");
    let lines = harness.sink.output().join("\n");
    assert_picture("failed-run.txt", &format!("{lines}\n{recap}\n"));
}

/// A diagnosed failure with a lost host, and a failed step with its advice.
#[test]
fn report_with_diagnosis_and_lost_host() {
    let mut harness = plain_harness();
    let mut evidence = Evidence::with_built_in_rules();
    harness.emit(0, run_started(3, 1, &[(Phase::Pull, "pull the image"), (Phase::Environment, "check the ranks' environment")]));
    let error = "no directory /data in the container".to_owned();
    let hint = "correct `workdir`, or mount the directory".to_owned();
    harness.emit(0, EventKind::StepFailed { step: 4, error, hint, unreachable: false });
    for rank in 0..3 {
        harness.emit(0, EventKind::RankStarted { host: rank, rank, restart: 0, started_at: 0 });
    }
    let log = super::test_support::rank_log(1, 1, 0, "ModuleNotFoundError: No module named 'flash_attn'\n");
    evidence.apply(&crate::event::Event { seq: 1, at: 1, kind: log.clone() });
    harness.emit(2000, log);
    harness.emit(0, rank_exited(1, 1, Exit::Code(1), 1_002_000));
    harness.emit(0, EventKind::Culprit { ranks: vec![1], hosts: vec![1] });
    harness.emit(0, EventKind::HostLost { host: 2, error: "no answer".to_owned(), hint: String::new(), will_retry: false });
    harness.emit(0, EventKind::GoalChanged { goal: RunGoal::Stop, reason: "rank 1 on gpu02 failed: exit 1".to_owned() });
    let reason = "rank 1 on gpu02 failed: exit 1".to_owned();
    harness.emit(0, EventKind::RunFinished { outcome: Outcome::Failed, reason });
    harness.finish();
    let findings = diagnose_run(&evidence, &harness.state);
    assert_eq!(findings.len(), 1);
    let recap = render_recap(&harness.state, &RecapContext { findings, ..context() }).join("\n");
    let lines = harness.sink.output().join("\n");
    assert_picture("diagnosed-run.txt", &format!("{lines}\n{recap}\n"));
}

#[test]
fn evidence_of_a_hang_is_translated() {
    let mut harness = plain_harness();
    harness.emit(0, run_started(1, 4, &[]));
    let evidence = vec!["4 ranks live and write nothing".to_owned()];
    harness.emit(0, EventKind::Hang(Hang { symptom: HangSymptom::RankExited, hosts: vec![0], ranks: vec![0], since: 0, evidence }));
    harness.finish();
    assert!(harness.sink.output().iter().any(|line| line == "  | 4 个 rank 存活但没有输出"), "{:?}", harness.sink.output());
}

/// In another wording it would not be found.
#[test]
fn secret_is_masked_before_it_is_translated() {
    let secret = "535.129 instead of 550.54";
    let sanitizer = Sanitizer::new(&[secret.to_owned()]);
    let hosts = ["gpu01".to_owned()];
    let context = PreflightReportContext {
        name: "wan22",
        hosts: &hosts,
        unreachable: &[],
        style: TextStyle::default(),
        sanitizer: sanitizer.clone(),
        elapsed: Duration::ZERO,
        lang: Lang::Zh,
        columns: None,
    };
    let checks = render_text(&context, &[report("driver", &[(Level::Fail, secret, "", 0)])]);
    let mut harness = plain_harness();
    harness.emit(0, run_started(1, 1, &[]));
    harness.emit(0, EventKind::HostLost { host: 0, error: secret.to_owned(), hint: String::new(), will_retry: false });
    let style = TextStyle::default();
    let rows = HostRows { state: &harness.state, sanitizer: &sanitizer, style, width: 80, now: 0, lang: Lang::Zh };
    for text in [checks, rows.format(3).join("\n")] {
        assert!(text.contains("***") && !text.contains("550.54"), "{text}");
    }
}

fn report(name: &str, results: &[(Level, &str, &str, usize)]) -> CheckReport {
    let check = *ALL_CHECKS.iter().find(|check| check.name == name).expect("a check");
    let result = |(level, message, hint, majority_size): &(Level, &str, &str, usize)| CheckResult {
        level: *level,
        message: (*message).to_owned(),
        hint: (*hint).to_owned(),
        evidence: Vec::new(),
        majority_size: *majority_size,
    };
    CheckReport { check, results: results.iter().map(result).enumerate().collect() }
}

#[test]
fn report_of_checks() {
    let fine = (Level::Pass, "", "", 0);
    let reports = [
        report(
            "driver",
            &[
                fine,
                fine,
                (Level::Warn, "535.129 instead of 550.54", "install the same driver everywhere: NCCL and CUDA may behave differently", 2),
            ],
        ),
        report(
            "disk",
            &[
                fine,
                (
                    Level::Fail,
                    "200 MiB free under /var/tmp, 1 GiB needed: a rank whose log cannot grow dies",
                    "free space on that host, or choose another disk",
                    0,
                ),
                fine,
            ],
        ),
        report(
            "leftovers",
            &[fine, fine, (Level::Warn, "of an earlier run: orch-wan22-gpu03", "`orchestrate down wan22.yaml` removes it", 0)],
        ),
        report("clock", &[fine; 3]),
        report("infiniband", &[(Level::Skipped, "no InfiniBand", "", 0); 3]),
        report("mig", &[(Level::Skipped, "nvidia-smi lists no GPU", "", 0), fine, fine]),
    ];
    let hosts = ["gpu01", "gpu02", "gpu03", "gpu04"].map(str::to_owned);
    let hint = "run `sudo systemctl start docker` on that host".to_owned();
    let context = PreflightReportContext {
        name: "wan22",
        hosts: &hosts,
        unreachable: &[("gpu04".to_owned(), "connection refused".to_owned(), hint)],
        style: TextStyle::default(),
        sanitizer: Sanitizer::default(),
        elapsed: Duration::from_millis(2300),
        lang: Lang::Zh,
        columns: Some(80),
    };
    assert_picture("check.txt", &render_text(&context, &reports));
    assert_picture("check-list.txt", &list_checks(&ALL_CHECKS, Lang::Zh, Some(80)));
}
