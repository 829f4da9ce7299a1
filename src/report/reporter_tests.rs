//! What the reporter must hold to.

use std::sync::{Arc, Mutex};

use super::*;
use crate::event::{Exit, LogFile, Outcome, RunInfo, RunOutcome};
use crate::report::test_support::rank_exited;
use crate::report::{RunSnapshot, journal};

/// A sink that records, and can fail.
#[derive(Clone, Default)]
struct RecordingSink {
    recorded: Arc<Mutex<Vec<String>>>,
    fails: Option<fn(&EventKind) -> bool>,
}

impl ReportSink for RecordingSink {
    fn on_event(&mut self, event: &Event, state: &RunState) -> io::Result<()> {
        if self.fails.is_some_and(|fails| fails(&event.kind)) {
            return Err(io::ErrorKind::BrokenPipe.into());
        }
        assert_eq!(state.last_seq, event.seq, "the state has the event before any sink");
        let text = match &event.kind {
            EventKind::Notice { text, .. } => text.clone(),
            _ => "event".to_owned(),
        };
        self.recorded.lock().expect("not poisoned").push(text);
        Ok(())
    }

    fn finish(&mut self, _state: &RunState) -> io::Result<()> {
        self.recorded.lock().expect("not poisoned").push("finished".to_owned());
        Ok(())
    }
}

fn event(seq: u64, kind: EventKind) -> Event {
    Event { seq, at: 1000 * seq as i64, kind }
}

fn rank_log(seq: u64, offset: u64, text: &'static str) -> Event {
    let file = LogFile::Rank { rank: 0, restart: 0 };
    event(seq, EventKind::log(0, file, offset, text))
}

fn run_started() -> Event {
    event(1, EventKind::RunStarted(RunInfo { run_id: "r1".to_owned(), hosts: vec!["a".to_owned()], ..RunInfo::default() }))
}

/// A run on host `a` that is kept in this directory, and what its sink got.
fn kept_run() -> (tempfile::TempDir, RecordingSink, Reporter) {
    let state_dir = tempfile::tempdir().expect("a folder");
    let sink = RecordingSink::default();
    let mut reporter = Reporter::new(Sanitizer::default(), vec![Box::new(sink.clone())]);
    reporter.set_run_dir(RunDir::open(state_dir.path(), "r1").expect("a folder"), &[]).expect("kept");
    reporter.handle_event(&run_started()).expect("taken");
    (state_dir, sink, reporter)
}

#[test]
fn failing_sink_is_removed_with_a_warning() {
    let good = RecordingSink::default();
    let bad = RecordingSink { fails: Some(|_| true), ..RecordingSink::default() };
    let fails_at_warning = RecordingSink { fails: Some(|kind| matches!(kind, EventKind::Notice { .. })), ..RecordingSink::default() };
    let mut reporter = Reporter::new(Sanitizer::default(), vec![Box::new(bad), Box::new(fails_at_warning), Box::new(good.clone())]);
    reporter.handle_event(&run_started()).expect("taken");
    reporter.handle_event(&event(2, EventKind::Ready)).expect("taken");
    assert_eq!(reporter.finish(), Vec::<String>::new());
    let seen = good.recorded.lock().expect("not poisoned").clone();
    let [first, sent, second, again, last] = &seen[..] else { panic!("{seen:?}") };
    assert_eq!((first.as_str(), second.as_str(), last.as_str()), ("event", "event", "finished"));
    assert!([sent, again].iter().all(|text| text.starts_with("an output was closed")), "{seen:?}");
}

#[test]
fn early_events_reach_the_journal() {
    let state_dir = tempfile::tempdir().expect("a folder");
    let mut reporter = Reporter::new(Sanitizer::default(), Vec::new());
    reporter.handle_event(&run_started()).expect("taken");
    reporter.set_run_dir(RunDir::open(state_dir.path(), "r1").expect("a folder"), &[]).expect("kept");
    reporter.handle_event(&rank_log(2, 0, "hello\n")).expect("stored");
    reporter.handle_event(&event(3, EventKind::RunFinished { outcome: Outcome::Ok, reason: String::new() })).expect("taken");
    assert_eq!(reporter.finish(), Vec::<String>::new());
    let path = reporter.run_dir().expect("kept").path().to_owned();
    let seqs: Vec<u64> = journal::JournalReader::open(&path.join(journal::JOURNAL_FILE))
        .expect("a journal")
        .read_all()
        .expect("readable")
        .iter()
        .map(|e| e.seq)
        .collect();
    assert_eq!(seqs, [1, 2, 3]);
    assert_eq!(std::fs::read(path.join("logs/rank-0.log")).expect("there"), b"hello\n");
    let runs = past_runs::list_runs(state_dir.path()).expect("listed");
    assert_eq!((runs.len(), runs[0].run.as_str(), &runs[0].outcome, &runs[0].damaged), (1, "r1", &Some(Outcome::Ok), &None));
}

#[test]
fn unstored_log_bytes_reach_no_sink() {
    let (_state_dir, sink, mut reporter) = kept_run();
    assert!(matches!(reporter.handle_event(&rank_log(2, 5, "late")), Err(LogStoreError::Gap { len: 0, offset: 5, .. })));
    assert_eq!((reporter.state().last_seq, sink.recorded.lock().expect("not poisoned").len()), (1, 1));
}

#[test]
fn full_disk_warns_once_and_pauses_copying() {
    let (state_dir, sink, mut reporter) = kept_run();
    // A folder in the file's place: it takes no bytes, even from root.
    let place = state_dir.path().join("runs/r1/logs/node-0.log");
    std::fs::create_dir(&place).expect("made");
    for _ in 0..3 {
        assert!(reporter.handle_event(&launcher_log(2, 0, "x")).is_err());
    }
    std::fs::remove_dir(&place).expect("removed");
    reporter.handle_event(&launcher_log(2, 0, "x")).expect("stored");
    let seen = sink.recorded.lock().expect("not poisoned").clone();
    let [_, first, again, log] = &seen[..] else { panic!("{seen:?}") };
    assert!(first.contains("node-0.log") && first.contains("the run goes on"), "{first}");
    assert_eq!((again.as_str(), log.as_str()), ("logs are copied again", "event"));
}

#[test]
fn damaged_runs_listed_and_old_runs_pruned() {
    let state_dir = tempfile::tempdir().expect("a folder");
    assert_eq!(past_runs::list_runs(state_dir.path()).expect("no folder is no error"), Vec::new());
    for (run, at) in [("old", 10), ("new", 20), ("newest", 30)] {
        let mut reporter = Reporter::new(Sanitizer::default(), Vec::new());
        reporter.set_run_dir(RunDir::open(state_dir.path(), run).expect("a folder"), &[]).expect("kept");
        let info = RunInfo { run_id: run.to_owned(), name: "job".to_owned(), hosts: vec!["a".to_owned()], ..RunInfo::default() };
        reporter.handle_event(&Event { seq: 1, at, kind: EventKind::RunStarted(info) }).expect("taken");
        if run != "new" {
            let kind = EventKind::RunFinished { outcome: Outcome::Ok, reason: String::new() };
            reporter.handle_event(&Event { seq: 2, at, kind }).expect("taken");
            reporter.finish();
        }
    }
    let broken = RunDir::open(state_dir.path(), "broken").expect("a folder");
    std::fs::write(broken.path().join("report.json"), "{").expect("written");
    let runs = past_runs::list_runs(state_dir.path()).expect("listed");
    let sent: Vec<(&str, bool, bool)> = runs.iter().map(|run| (run.run.as_str(), run.damaged.is_some(), run.outcome.is_some())).collect();
    assert_eq!(sent, [("broken", true, false), ("old", false, true), ("new", false, false), ("newest", false, true)]);
    assert_eq!(past_runs::prune_runs(state_dir.path(), 25, 1).expect("pruned"), ["broken", "old"], "an unfinished run may be live");
    assert_eq!(past_runs::list_runs(state_dir.path()).expect("listed").len(), 2);
    for bad in ["", "..", "a/b", ".hidden", "a\nb"] {
        assert!(RunDir::open(state_dir.path(), bad).is_err(), "{bad:?}");
    }
}

#[test]
fn later_command_keeps_earlier_report() {
    let state_dir = tempfile::tempdir().expect("a folder");
    let dir = RunDir::open(state_dir.path(), "r1").expect("a folder");
    let mut up = RunState::new();
    let info = |command: &str| RunInfo {
        run_id: "r1".to_owned(),
        command: command.to_owned(),
        hosts: vec!["a".to_owned()],
        attempt: 1,
        ..RunInfo::default()
    };
    up.apply(&event(1, EventKind::RunStarted(info("up"))));
    up.apply(&event(1, EventKind::RankStarted { host: 0, rank: 0, restart: 0, started_at: 1500 }));
    up.apply(&event(2, rank_exited(0, 0, Exit::Code(1), 2000)));
    up.apply(&event(3, EventKind::RunFinished { outcome: Outcome::Failed, reason: "rank 0 failed".to_owned() }));
    past_runs::write_report(&dir, &up, &[], &Sanitizer::default()).expect("written");
    let mut down = RunState::new();
    down.apply(&event(9, EventKind::RunStarted(info("down"))));
    down.apply(&event(10, EventKind::RunFinished { outcome: Outcome::Ok, reason: String::new() }));
    past_runs::write_report(&dir, &down, &[], &Sanitizer::default()).expect("written");
    let text = std::fs::read_to_string(dir.path().join("report.json")).expect("there");
    let report: crate::report::run_report::RunReport = serde_json::from_str(&text).expect("a report");
    assert_eq!((report.outcome, report.ranks.len(), report.began, report.ended), (Some(Outcome::Failed), 1, Some(1000), 10_000));
    assert_eq!((report.run_end, report.run_ended), (Some(RunOutcome::Failed), Some(2000)), "the end of the run, not of the last command");
}

fn launcher_log(seq: u64, host: u32, text: &'static str) -> Event {
    event(seq, EventKind::log(host, LogFile::Launcher, 0, text))
}

fn run_started_on(seq: u64, hosts: &[&str]) -> Event {
    let hosts = hosts.iter().map(|host| (*host).to_owned()).collect();
    event(seq, EventKind::RunStarted(RunInfo { run_id: "r1".to_owned(), hosts, ..RunInfo::default() }))
}

#[test]
fn logs_are_named_by_recorded_host_order() {
    let state_dir = tempfile::tempdir().expect("a folder");
    let dir = || RunDir::open(state_dir.path(), "r1").expect("a folder");
    let record = ["a".to_owned(), "b".to_owned()];
    let mut reporter = Reporter::new(Sanitizer::default(), Vec::new());
    reporter.handle_event(&run_started_on(1, &["b", "a"])).expect("taken");
    reporter.set_run_dir(dir(), &record).expect("kept");
    reporter.handle_event(&launcher_log(2, 0, "of b")).expect("stored");
    assert!(matches!(reporter.handle_event(&launcher_log(3, 7, "of an unknown host")), Err(LogStoreError::UnknownHost(7))));
    let mut later = Reporter::new(Sanitizer::default(), Vec::new());
    later.handle_event(&run_started_on(1, &["a"])).expect("taken");
    later.set_run_dir(dir(), &[]).expect("kept");
    later.handle_event(&launcher_log(2, 0, "of a")).expect("stored");
    later.sync_logs().expect("on the disk");
    let text = |name: &str| std::fs::read_to_string(dir().logs_dir().join(name)).expect("there");
    assert_eq!((text("node-0.log"), text("node-1.log")), ("of a".to_owned(), "of b".to_owned()));
    assert!(matches!(Reporter::new(Sanitizer::default(), Vec::new()).sync_logs(), Err(LogStoreError::NoRunDir)));
}

#[test]
fn later_command_explains_by_what_earlier_ones_stored() {
    let state_dir = tempfile::tempdir().expect("a folder");
    let dir = || RunDir::open(state_dir.path(), "r1").expect("a folder");
    let mut reporter = Reporter::new(Sanitizer::default(), Vec::new());
    let hosts = vec!["a".to_owned(), "b".to_owned()];
    let info = RunInfo { run_id: "r1".to_owned(), command: "up".to_owned(), hosts, ..RunInfo::default() };
    reporter.handle_event(&event(1, EventKind::RunStarted(info))).expect("taken");
    reporter.set_run_dir(dir(), &[]).expect("kept");
    let lines = vec!["dmesg: NVRM: Xid (PCI:0000:3b:00): 79, GPU has fallen off the bus.".to_owned()];
    reporter.handle_event(&event(2, EventKind::Postmortem { host: 1, lines })).expect("taken");
    reporter.handle_event(&rank_log(3, 0, "torch.OutOfMemoryError: CUDA out of memory. Tried to allocate 2 GiB\n")).expect("stored");
    reporter.finish();

    let found = |hosts: &[&str], exited: u32| {
        let names: Vec<String> = hosts.iter().map(|host| (*host).to_owned()).collect();
        let mut later = Reporter::new(Sanitizer::default(), Vec::new());
        later.set_run_dir(dir(), &[]).expect("kept");
        later.load_stored_evidence(&names, 0);
        later.handle_event(&run_started_on(1, hosts)).expect("taken");
        later.handle_event(&event(2, rank_exited(0, exited, Exit::Code(1), 5))).expect("taken");
        later.findings().iter().map(|finding| finding.rule.clone()).collect::<Vec<_>>()
    };
    assert_eq!(found(&["b", "a"], 1), ["cuda-oom"], "the hosts have other numbers now");
    assert_eq!(found(&["b"], 0), ["xid"]);

    reporter.set_run_dir(RunDir::open(state_dir.path(), "r2").expect("a folder"), &[]).expect("kept");
    reporter.handle_event(&rank_log(4, 0, "ModuleNotFoundError: No module named 'flash_attn'\n")).expect("stored");
    reporter.handle_event(&event(5, rank_exited(0, 0, Exit::Code(1), 5))).expect("taken");
    let rules: Vec<String> = reporter.findings().iter().map(|finding| finding.rule.clone()).collect();
    assert_eq!(rules, ["py-module"], "the logs of another run have other lines");
}

/// `down` reads what `up` has stored, while `up` stores more.
#[test]
fn reading_stored_logs_does_not_fix_their_lengths() {
    let state_dir = tempfile::tempdir().expect("a folder");
    let dir = || RunDir::open(state_dir.path(), "r1").expect("a folder");
    let [mut first, mut second] = [(); 2].map(|()| {
        let mut reporter = Reporter::new(Sanitizer::default(), Vec::new());
        reporter.handle_event(&run_started()).expect("taken");
        reporter.set_run_dir(dir(), &[]).expect("kept");
        reporter
    });
    first.handle_event(&rank_log(2, 0, "one\n")).expect("stored");
    second.load_stored_evidence(&["a".to_owned()], 0);
    first.handle_event(&rank_log(3, 4, "two\n")).expect("stored");
    second.handle_event(&rank_log(2, 8, "three\n")).expect("stored");
    assert_eq!(std::fs::read_to_string(dir().logs_dir().join("rank-0.log")).expect("there"), "one\ntwo\nthree\n");
}

#[test]
fn old_log_dir_uses_first_command_order() {
    let state_dir = tempfile::tempdir().expect("a folder");
    let dir = RunDir::open(state_dir.path(), "r1").expect("a folder");
    let mut reporter = Reporter::new(Sanitizer::default(), Vec::new());
    reporter.handle_event(&run_started_on(1, &["b", "a"])).expect("taken");
    reporter.set_run_dir(dir.clone(), &[]).expect("kept");
    reporter.finish();
    std::fs::write(dir.logs_dir().join("node-0.log"), "of b").expect("written");
    let record = ["a".to_owned(), "b".to_owned()];
    let mut logs = dir.open_logs_for_writing(&record).expect("opened");
    assert_eq!((logs.log_len("a", LogFile::Launcher).expect("len"), logs.log_len("b", LogFile::Launcher).expect("len")), (0, 4));
}

#[test]
fn shrunk_log_warns_once_and_keeps_copy() {
    let (_state_dir, _sink, mut reporter) = kept_run();
    for (seq, text) in [(2, "first life\n"), (4, "second\n"), (6, "third\n")] {
        reporter.handle_event(&launcher_log(seq, 0, text)).expect("stored");
        if seq < 6 {
            reporter.handle_event(&event(seq + 1, EventKind::LogTruncated { host: 0, file: LogFile::Launcher, size: 2 })).expect("kept");
        }
    }
    let notes: Vec<String> = reporter.state().notices.iter().map(|note| format!("{:?} {}", note.host, note.text)).collect();
    let [note] = &notes[..] else { panic!("{notes:?}") };
    assert!(note.starts_with("Some(0) the launcher's log shrank to 2 bytes") && note.contains("node-0.log.1"), "{note}");
    assert_eq!(reporter.state().hosts[0].launcher_recent_lines.last_lines(9), ["first life", "second", "third"], "each life is seen");
    let logs = reporter.run_dir().expect("kept").logs_dir();
    let text = |name: &str| std::fs::read_to_string(logs.join(name)).expect("there");
    assert_eq!((text("node-0.log"), text("node-0.log.2")), ("third\n".to_owned(), "second\n".to_owned()));
}

/// A sink that always wants a snapshot.
struct SnapshotSink(Arc<Mutex<Vec<(u64, usize)>>>);

impl ReportSink for SnapshotSink {
    fn on_event(&mut self, _event: &Event, _state: &RunState) -> io::Result<()> {
        Ok(())
    }

    fn wants_snapshot(&self) -> bool {
        true
    }

    fn on_snapshot(&mut self, snapshot: RunSnapshot) {
        self.0.lock().expect("not poisoned").push((snapshot.state.last_seq, snapshot.findings.len()));
    }

    fn finish(&mut self, _state: &RunState) -> io::Result<()> {
        Ok(())
    }
}

#[test]
fn snapshot_holds_the_last_event_and_the_diagnosis() {
    let taken = Arc::default();
    let mut reporter = Reporter::new(Sanitizer::default(), vec![Box::new(SnapshotSink(Arc::clone(&taken)))]);
    reporter.handle_event(&run_started()).expect("taken");
    reporter.handle_event(&rank_log(2, 0, "torch.OutOfMemoryError: CUDA out of memory. Tried to allocate 2.00 GiB\n")).expect("taken");
    reporter.handle_event(&event(3, rank_exited(0, 0, Exit::Code(1), 5))).expect("taken");
    reporter.tick(1);
    assert_eq!(*taken.lock().expect("not poisoned"), [(1, 0), (2, 0), (3, 1), (3, 1)]);
}
