//! Journal: round trips, limits, damage, masking.

use std::os::unix::fs::PermissionsExt;

use super::*;
use crate::event::{
    Exit, GpuProcess, GpuSample, Hang, HangSymptom, LayerCounts, Level, Outcome, Phase, RankInfo, RunInfo, RunOutcome, StepInfo,
};

fn event(seq: u64, at: UnixMillis, kind: EventKind) -> Event {
    Event { seq, at, kind }
}

fn rank_log(seq: u64, at: UnixMillis, offset: u64, len: u64) -> Event {
    let file = LogFile::Rank { rank: 1, restart: 0 };
    event(seq, at, EventKind::Log { host: 0, file, offset, bytes: bytes::Bytes::from_static(b"secret bytes"), len })
}

fn read_journal(dir: &Path) -> Vec<Event> {
    let mut reader = JournalReader::open(&dir.join(JOURNAL_FILE)).expect("a journal");
    let events = reader.read_all().expect("readable");
    assert_eq!((reader.unknown_records, reader.damaged_lines), (0, 0));
    events
}

/// One of each kind that the journal keeps whole, beside those of `gpus.jsonl`.
fn all_event_kinds() -> Vec<EventKind> {
    let info = RunInfo {
        format: JOURNAL_FORMAT.to_owned(),
        hosts: vec!["a".to_owned()],
        ranks: vec![RankInfo { rank: 0, host: 0, local_rank: 0 }],
        steps: vec![StepInfo { id: 1, host: 0, phase: Phase::Pull, title: "pull".to_owned() }],
        ..RunInfo::default()
    };
    let text = || "é\n\"quoted\"".to_owned();
    vec![
        EventKind::RunStarted(info),
        EventKind::HostConnecting { host: 0 },
        EventKind::HostConnected { host: 0, clock_offset: -7, uncertainty: 3 },
        EventKind::HostLost { host: 0, error: text(), hint: String::new(), will_retry: true },
        EventKind::PhaseStarted { phase: Phase::Verify },
        EventKind::StepStarted { step: 1 },
        EventKind::StepSatisfied { step: 1, note: text() },
        EventKind::StepDone { step: 1, note: text() },
        EventKind::StepRetrying { step: 1, error: text() },
        EventKind::StepFailed { step: 1, error: text(), hint: text(), unreachable: true },
        EventKind::StepSkipped { step: 1, note: text() },
        EventKind::PullProgress { step: 1, counts: LayerCounts { layers: 12, downloaded: 9, complete: 5 } },
        EventKind::CheckFinished { check: "disk".to_owned(), level: Level::Warn, hosts: vec![0], message: text(), hint: text() },
        EventKind::LauncherStarted { host: 0 },
        EventKind::LauncherExited { host: 0, exit: Exit::Code(-3), ended_at: 5, stopped: Some(false) },
        EventKind::RankStarted { host: 0, rank: 0, restart: 2, started_at: 0 },
        EventKind::RankExited { host: 0, rank: 0, restart: 2, exit: Exit::Signal(9), ended_at: 7, uncertainty: 1, stopped: Some(false) },
        EventKind::Ready,
        EventKind::Culprit { ranks: vec![0], hosts: vec![0] },
        EventKind::Hang(Hang { symptom: HangSymptom::Silent, hosts: vec![0], ranks: vec![0], since: 8, evidence: vec![text()] }),
        EventKind::HangEnded,
        EventKind::RunEndReported { end: RunOutcome::Running, ended_at: 9 },
        EventKind::RanksSignaled { host: 0, signal: "TERM".to_owned() },
        EventKind::LogCurrent { host: 0, file: LogFile::Launcher },
        EventKind::LogTruncated { host: 0, file: LogFile::Rank { rank: 0, restart: 2 }, size: 3 },
        EventKind::GpusUnavailable { host: 0, error: text() },
        EventKind::Postmortem { host: 0, lines: vec![text()] },
        EventKind::DiskSpace { host: 0, free: u64::MAX, total: 2 },
        EventKind::Notice { host: None, text: text(), warn: true },
        EventKind::GoalChanged { goal: crate::event::RunGoal::Down, reason: text() },
        EventKind::Leftover { host: 0, text: text(), unchecked: true },
        EventKind::RunFinished { outcome: Outcome::Signal(2), reason: text() },
        EventKind::RunFinished { outcome: Outcome::Leftovers, reason: text() },
    ]
}

#[test]
fn every_event_kind_round_trips() {
    let dir = tempfile::tempdir().expect("a folder");
    let events: Vec<Event> = (1_u64..).zip(all_event_kinds()).map(|(seq, kind)| event(seq, 1_000_000 + seq as i64, kind)).collect();
    let mut journal = Journal::open(dir.path(), Sanitizer::default()).expect("opened");
    events.iter().for_each(|event| journal.record_event(event).expect("written"));
    assert_eq!(read_journal(dir.path()), events);
    let mode = |name| std::fs::metadata(dir.path().join(name)).expect("there").permissions().mode() & 0o777;
    assert_eq!((mode(JOURNAL_FILE), mode(SAMPLES_FILE)), (0o600, 0o600));
}

#[test]
fn log_ranges_merge_without_bytes() {
    let dir = tempfile::tempdir().expect("a folder");
    let mut journal = Journal::open(dir.path(), Sanitizer::default()).expect("opened");
    for e in [rank_log(1, 0, 0, 10), rank_log(2, 5, 10, 20), rank_log(3, 6, 40, 1), rank_log(4, 20_000, 41, 1)] {
        journal.record_event(&e).expect("written");
    }
    journal.record_event(&event(5, 20_001, EventKind::Ready)).expect("written");
    let ranges: Vec<(u64, u64, u64)> = read_journal(dir.path())
        .iter()
        .filter_map(|e| match &e.kind {
            EventKind::Log { offset, len, bytes, .. } => {
                assert!(bytes.is_empty());
                Some((e.seq, *offset, *len))
            }
            _ => None,
        })
        .collect();
    assert_eq!(ranges, [(2, 0, 30), (3, 40, 1), (4, 41, 1)]);
    let text = std::fs::read_to_string(dir.path().join(JOURNAL_FILE)).expect("there");
    assert!(!text.contains("secret bytes") && text.ends_with("\"kind\":\"ready\"}\n"));
}

#[test]
fn gpu_samples_are_thinned_into_own_file() {
    let dir = tempfile::tempdir().expect("a folder");
    let mut journal = Journal::open(dir.path(), Sanitizer::default()).expect("opened");
    let gpu = GpuSample { index: 0, utilization: Some(99.5), ..GpuSample::default() };
    for n in 0..60_u64 {
        let kind = EventKind::Gpus { host: (n % 2) as u32, gpus: vec![gpu.clone()].into() };
        journal.record_event(&event(n + 1, n as i64 * 1000, kind)).expect("written");
    }
    let sent = event(61, 60_000, EventKind::StepProgress { host: 1, step: 3, done: 7, total: 9 });
    journal.record_event(&sent).expect("written");
    assert!(read_journal(dir.path()).is_empty());
    let mut reader = JournalReader::open(&dir.path().join(SAMPLES_FILE)).expect("a journal");
    let samples = reader.read_all().expect("readable");
    assert_eq!((samples.len(), samples.last()), (13, Some(&sent)));
}

#[test]
fn full_journal_still_records_run_end() {
    let dir = tempfile::tempdir().expect("a folder");
    let mut journal = Journal::with_limit(dir.path(), Sanitizer::default(), 4096).expect("opened");
    for n in 1..1000_u64 {
        let kind = EventKind::Notice { host: None, text: format!("note {n}"), warn: false };
        journal.record_event(&event(n, 0, kind)).expect("written");
    }
    let finished = EventKind::RunFinished { outcome: Outcome::Ok, reason: String::new() };
    journal.record_event(&event(1000, 0, finished.clone())).expect("written");
    let events = read_journal(dir.path());
    let [.., full, last] = &events[..] else { panic!("too few") };
    assert!(matches!(&full.kind, EventKind::Notice { text, .. } if text.contains("full")));
    assert_eq!(last.kind, finished);
    assert!(std::fs::metadata(dir.path().join(JOURNAL_FILE)).expect("there").len() < 4096 + FINAL_EVENT_RESERVE);
}

#[test]
fn truncated_last_line_is_tolerated() {
    let dir = tempfile::tempdir().expect("a folder");
    let path = dir.path().join(JOURNAL_FILE);
    let mut journal = Journal::open(dir.path(), Sanitizer::default()).expect("opened");
    journal.record_event(&event(1, 1, EventKind::Ready)).expect("written");
    let mut text = std::fs::read_to_string(&path).expect("there");
    text.push_str("{\"seq\":2,\"at\":2,\"kind\":\"rea");
    std::fs::write(&path, &text).expect("written");
    let mut reader = JournalReader::open(&path).expect("a journal");
    assert_eq!((reader.read_all().expect("readable").len(), reader.damaged_lines), (1, 1));
    let mut journal = Journal::open(dir.path(), Sanitizer::default()).expect("opened again");
    journal.record_event(&event(1, 3, EventKind::Ready)).expect("written");
    let mut reader = JournalReader::open(&path).expect("a journal");
    let seen: Vec<i64> = reader.read_all().expect("readable").iter().map(|event| event.at).collect();
    assert_eq!((seen, reader.damaged_lines, reader.unknown_records), (vec![1, 3], 1, 0));
}

#[test]
fn unknown_kinds_skip_and_unknown_formats_fail() {
    let header = "{\"format\":\"1.7\",\"orchestrate\":\"9\"}\n";
    let body = "{\"seq\":1,\"at\":1,\"kind\":\"teleported\",\"to\":3}\nrubbish\n{\"seq\":2,\"at\":1,\"kind\":\"ready\",\"new\":1}\n";
    let mut reader = JournalReader::new(format!("{header}{body}").into_bytes().leak() as &[u8], "x").expect("our major");
    assert_eq!((reader.read_all().expect("readable").len(), reader.unknown_records, reader.damaged_lines), (1, 1, 1));
    for (text, message) in [
        (
            "{\"format\":\"3.0\",\"orchestrate\":\"9\"}\n",
            "x has format 3.0; this version reads formats 1.0 to 2.1: install a newer orchestrate",
        ),
        (
            "{\"format\":\"0.9\",\"orchestrate\":\"0\"}\n",
            "x has format 0.9; this version reads formats 1.0 to 2.1: install a newer orchestrate",
        ),
        ("", "x is not a journal: it is empty"),
        ("hello\n", "x is not a journal: its first line has no format"),
    ] {
        assert_eq!(JournalReader::new(text.as_bytes(), "x").err().map(|e| e.to_string()).as_deref(), Some(message));
    }
}

#[test]
fn secrets_are_masked_in_journal() {
    let dir = tempfile::tempdir().expect("a folder");
    let mut journal = Journal::open(dir.path(), Sanitizer::new(&["p\"ss".to_owned()])).expect("opened");
    let kind = EventKind::StepFailed { step: 0, error: "login p\"ss refused".to_owned(), hint: String::new(), unreachable: false };
    journal.record_event(&event(1, 1, kind)).expect("written");
    let process = GpuProcess { name: "serve --key=p\"ss".to_owned(), ..GpuProcess::default() };
    journal.record_event(&event(2, 2, EventKind::GpuProcesses { host: 0, processes: vec![process] })).expect("written");
    let text = |name| std::fs::read_to_string(dir.path().join(name)).expect("there");
    assert!(text(JOURNAL_FILE).contains("login *** refused") && text(SAMPLES_FILE).contains("serve --key=***"));
    assert_eq!(read_journal(dir.path()).len(), 1);
}

/// Format 1 had other names for some kinds, keys and values: the left of each pair.
#[test]
fn journals_of_format_1_are_read() {
    let pairs = [
        (r#""phase-started","phase":"prove""#, r#""phase-started","phase":"environment""#),
        (
            r#""checked","check":"clock","level":"pass","hosts":[0],"what":"2 ms","hint":"""#,
            r#""check-finished","check":"clock","level":"pass","hosts":[0],"message":"2 ms","hint":"""#,
        ),
        (r#""node-started","host":0"#, r#""launcher-started","host":0"#),
        (r#""node-exited","host":0,"exit":{"code":1},"when":5"#, r#""launcher-exited","host":0,"exit":{"code":1},"ended_at":5"#),
        (r#""rank-started","host":0,"rank":1,"restart":0,"when":4"#, r#""rank-started","host":0,"rank":1,"restart":0,"started_at":4"#),
        (
            r#""rank-exited","host":0,"rank":1,"restart":0,"exit":"killed","when":6,"uncertainty":1"#,
            r#""rank-exited","host":0,"rank":1,"restart":0,"exit":"killed","ended_at":6,"uncertainty":1"#,
        ),
        (
            r#""hang","sign":"gone","hosts":[],"ranks":[1],"since":3,"evidence":[]"#,
            r#""hang","symptom":"rank-exited","hosts":[],"ranks":[1],"since":3,"evidence":[]"#,
        ),
        (r#""hang-over""#, r#""hang-ended""#),
        (r#""run-found","end":"ok","when":8"#, r#""run-end-reported","end":"ok","ended_at":8"#),
        (r#""signalled","host":0,"signal":"TERM""#, r#""ranks-signaled","host":0,"signal":"TERM""#),
        (r#""log-shrunk","host":0,"file":"node","size":9"#, r#""log-truncated","host":0,"file":"launcher","size":9"#),
        (
            r#""gpus","host":0,"gpus":[{"index":0,"clock":1980.0,"clock_max":1985.0,"reasons":4,"mig":false}]"#,
            r#""gpus","host":0,"gpus":[{"index":0,"sm_clock":1980.0,"sm_clock_max":1985.0,"throttle_reasons":4,"mig_enabled":false}]"#,
        ),
        (r#""gpus-unread","host":0,"error":"no""#, r#""gpus-unavailable","host":0,"error":"no""#),
        (
            r#""vitals","host":0,"vitals":{"load":1.5,"cpu":40.0,"memory_total":2,"memory_available":1,"networks":[]}"#,
            r#""host-metrics","host":0,"metrics":{"load_average":1.5,"cpu_percent":40.0,"memory_total":2,"memory_available":1,"networks":[]}"#,
        ),
        (r#""disk","host":0,"free":1,"total":2"#, r#""disk-space","host":0,"free":1,"total":2"#),
        (r#""aftermath","host":0,"lines":["docker x"]"#, r#""postmortem","host":0,"lines":["docker x"]"#),
        (r#""goal-changed","goal":"stop","why":"Ctrl-C""#, r#""goal-changed","goal":"stop","reason":"Ctrl-C""#),
        (r#""run-finished","outcome":"ok","why":"""#, r#""run-finished","outcome":"ok","reason":"""#),
    ];
    let read = |format: &str, kind: &str| {
        let text = format!("{{\"format\":\"{format}\",\"orchestrate\":\"0.1.0\"}}\n{{\"seq\":1,\"at\":1,\"kind\":{kind}}}\n");
        let mut reader = JournalReader::new(text.as_bytes(), "x").expect("a journal");
        reader.next_event().expect("readable").unwrap_or_else(|| panic!("{kind} is no event of format {format}"))
    };
    for (old, new) in pairs {
        assert_eq!(read("1.5", old), read(JOURNAL_FORMAT, new));
    }
}
