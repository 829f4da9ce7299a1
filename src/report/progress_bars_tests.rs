//! Golden rows, and the bytes that reach the terminal.

use std::sync::{Arc, Mutex};

use indicatif::TermLike;

use super::*;
use crate::event::{GpuSample, LayerCounts, Outcome, Phase};
use crate::model::exit::Exit;
use crate::report::host_rows::GPU_STALE_MS;
use crate::report::style::TextStyle;
use crate::report::test_support::{SinkHarness, rank_exited, rank_log, run_started};
use crate::text::translation::Lang;

/// Records everything that is written to it.
#[derive(Debug, Clone, Default)]
struct FakeTerminal(Arc<Mutex<String>>);

impl FakeTerminal {
    fn append(&self, text: &str) -> io::Result<()> {
        self.0.lock().expect("not poisoned").push_str(text);
        Ok(())
    }
}

impl TermLike for FakeTerminal {
    fn width(&self) -> u16 {
        80
    }
    fn height(&self) -> u16 {
        24
    }
    fn move_cursor_up(&self, _n: usize) -> io::Result<()> {
        Ok(())
    }
    fn move_cursor_down(&self, _n: usize) -> io::Result<()> {
        Ok(())
    }
    fn move_cursor_right(&self, _n: usize) -> io::Result<()> {
        Ok(())
    }
    fn move_cursor_left(&self, _n: usize) -> io::Result<()> {
        Ok(())
    }
    fn write_line(&self, text: &str) -> io::Result<()> {
        self.append(text).and_then(|()| self.append("\n"))
    }
    fn write_str(&self, text: &str) -> io::Result<()> {
        self.append(text)
    }
    fn clear_line(&self) -> io::Result<()> {
        Ok(())
    }
    fn flush(&self) -> io::Result<()> {
        Ok(())
    }
}

fn bars_on(screen: &FakeTerminal, size: TerminalSizeFn) -> ProgressBars<BarTerminal> {
    let terminal = BarTerminal::new(ProgressDrawTarget::term_like(Box::new(screen.clone())), Sanitizer::default());
    ProgressBars::new(terminal, size, PlainSettings::default())
}

fn harness(screen: &FakeTerminal) -> SinkHarness<ProgressBars<BarTerminal>> {
    SinkHarness::new(bars_on(screen, Box::new(|| (24, 80))))
}

fn render_rows(state: &RunState, room: usize, width: usize) -> Vec<String> {
    HostRows { state, sanitizer: &Sanitizer::default(), style: TextStyle::default(), width, now: state.last_event_at, lang: Lang::En }
        .format(room)
}

#[test]
fn rows_show_each_host_activity() {
    let mut harness = harness(&FakeTerminal::default());
    harness.emit(0, run_started(5, 1, &[(Phase::Facts, "look around"), (Phase::Container, "start the container")]));
    assert_eq!(header_text(&harness.state, &Sanitizer::default(), Lang::En), "up wan22  connect");
    harness.emit(1, EventKind::HostConnecting { host: 4 });
    harness.emit(1, EventKind::PhaseStarted { phase: Phase::Container });
    for (step, note) in [(0, "x"), (5, "x")] {
        harness.emit(1, EventKind::StepSatisfied { step, note: note.to_owned() });
    }
    harness.emit(1, EventKind::RankStarted { host: 0, rank: 0, restart: 0, started_at: 0 });
    let gpu = GpuSample { index: 0, utilization: Some(87.4), ..GpuSample::default() };
    harness.emit(1, EventKind::Gpus { host: 0, gpus: vec![gpu].into() });
    harness.emit(1, EventKind::StepStarted { step: 6 });
    harness.emit(1, EventKind::StepRetrying { step: 6, error: "busy".to_owned() });
    harness.emit(1, EventKind::StepFailed { step: 7, error: "no \u{1b}[1mspace".to_owned(), hint: String::new(), unreachable: false });
    harness.emit(1, EventKind::HostLost { host: 3, error: "no route".to_owned(), hint: String::new(), will_retry: true });
    let expected = [
        "  gpu01 [############] ● 1 rank running  GPUs 87%",
        "  gpu02 [------------] ● start the container (attempt 2)",
        "  gpu03 [######------] ✗ container: no space",
        "  gpu04 [------------] ? no connection, retrying: no route",
        "  gpu05 [------------] ● connecting",
    ];
    assert_eq!(render_rows(&harness.state, 20, 80), expected);
    assert_eq!(header_text(&harness.state, &Sanitizer::default(), Lang::En), "up wan22  1 rank of 5 running");
    let capped = render_rows(&harness.state, 4, 80);
    let [second, third, fourth, more] = &capped[..] else { panic!("{capped:?}") };
    assert_eq!([second, third, fourth].map(|row| row[..8].trim_start().to_owned()), ["gpu02 ", "gpu03 ", "gpu04 "]);
    assert_eq!(more, "  … 2 more hosts: 1 done");
    harness.emit(GPU_STALE_MS + 1, EventKind::Ready);
    assert_eq!(render_rows(&harness.state, 20, 80)[0], "  gpu01 [############] ● 1 rank running", "old values are not shown");
}

/// While the ranks train, the line above the bars says how far they are: the rank that is furthest behind counts.
#[test]
fn header_shows_the_step() {
    let mut harness = harness(&FakeTerminal::default());
    harness.emit(0, run_started(2, 1, &[]));
    for rank in 0..2 {
        harness.emit(1, EventKind::RankStarted { host: rank, rank, restart: 0, started_at: 0 });
        harness.emit(1, rank_log(rank, rank, 0, &format!("step {}/40 loss 2.1\n", 7 + rank)));
    }
    assert_eq!(header_text(&harness.state, &Sanitizer::default(), Lang::En), "up wan22  2 ranks of 2 running, step 7/40");
}

/// A task that sends files has a bar of its own, with bytes and rate.
#[test]
fn rows_show_how_far_files_are() {
    let mut harness = harness(&FakeTerminal::default());
    harness.emit(0, run_started(2, 1, &[(Phase::Task(1), "code")]));
    for step in 0..2 {
        harness.emit(1, EventKind::StepStarted { step });
    }
    for (after, done) in [(1000, 1 << 20), (2000, 5 << 20)] {
        harness.emit(after, EventKind::StepProgress { host: 0, step: 0, done, total: 10 << 20 });
    }
    harness.emit(0, EventKind::StepProgress { host: 1, step: 1, done: 0, total: u64::MAX });
    let expected = [
        "  gpu01 [------------] ● [#####-----] 5.0 MiB of 10.0 MiB, 2.0 MiB/s  code",
        "  gpu02 [------------] ● [----------] 0 B of 16777216.0 TiB  code",
    ];
    assert_eq!(render_rows(&harness.state, 20, 80), expected);
    harness.emit(1, EventKind::StepDone { step: 0, note: String::new() });
    harness.emit(1, EventKind::StepProgress { host: 0, step: 0, done: 1, total: 2 });
    assert!(!render_rows(&harness.state, 20, 80)[0].contains("MiB"), "it has ended");
}

#[test]
fn rows_show_layers_of_a_pull() {
    let counts = |layers, downloaded, complete| LayerCounts { layers, downloaded, complete };
    let mut harness = harness(&FakeTerminal::default());
    harness.emit(0, run_started(3, 1, &[(Phase::Pull, "pull the image"), (Phase::Container, "start the container")]));
    (0..3).for_each(|step| harness.emit(1, EventKind::StepStarted { step }));
    harness.emit(1, EventKind::PullProgress { step: 0, counts: counts(12, 9, 5) });
    harness.emit(1, EventKind::PullProgress { step: 1, counts: counts(1, 1, 1) });
    // No image has these.
    harness.emit(1, EventKind::PullProgress { step: 2, counts: counts(1, 2, 3) });
    let expected = [
        "  gpu01 [##----------] ● pull the image  5/12 layers, 9 downloaded",
        "  gpu02 [######------] ● pull the image  1/1 layer",
        "  gpu03 [------------] ● pull the image",
    ];
    assert_eq!(render_rows(&harness.state, 20, 80), expected);
    harness.emit(1, EventKind::StepRetrying { step: 0, error: "reset".to_owned() });
    assert_eq!(render_rows(&harness.state, 20, 80)[0], "  gpu01 [------------] ● pull the image (attempt 2)");
}

#[test]
fn rows_and_header_say_how_ranks_ended() {
    let mut harness = harness(&FakeTerminal::default());
    harness.emit(0, run_started(2, 2, &[]));
    for rank in 0..4 {
        harness.emit(1, EventKind::RankStarted { host: rank / 2, rank, restart: 0, started_at: 1 });
    }
    harness.emit(2, rank_exited(2, 1, Exit::Code(1), 2));
    assert_eq!(render_rows(&harness.state, 4, 80)[1], "  gpu02 [------------] ✗ 1 rank failed, 1 running");
    for rank in [0, 1, 3] {
        harness.emit(3, rank_exited(rank, rank / 2, Exit::Code(0), 3));
    }
    assert_eq!(render_rows(&harness.state, 4, 80)[1], "  gpu02 [------------] ✗ 1 rank failed");
    assert_eq!(header_text(&harness.state, &Sanitizer::default(), Lang::En), "up wan22  ranks ended");
}

#[test]
fn rows_fit_any_terminal_size() {
    let mut harness = harness(&FakeTerminal::default());
    harness.emit(0, run_started(128, 8, &[(Phase::Facts, "look around with a very long title that goes on and on and on and on")]));
    for step in 0..128 {
        harness.emit(0, EventKind::StepStarted { step });
    }
    for width in [0, 1, 20, 40, 80, 200] {
        for room in 0..30 {
            let rows = render_rows(&harness.state, room, width);
            assert!(rows.len() <= room);
            assert!(width < 40 || rows.iter().all(|row| row.chars().count() < width), "{width}: {rows:?}");
        }
    }
}

/// The header and the rows never have more lines than the terminal, at any height.
#[test]
fn bars_never_exceed_the_terminal() {
    for height in 1..40_usize {
        let mut harness = SinkHarness::new(bars_on(&FakeTerminal::default(), Box::new(move || (height, 80))));
        harness.emit(0, run_started(64, 8, &[(Phase::Facts, "look around")]));
        for step in 0..64 {
            harness.emit(10, EventKind::StepStarted { step });
        }
        harness.emit(200, EventKind::HostLost { host: 3, error: "no route".to_owned(), hint: String::new(), will_retry: true });
        let rows = harness.sink.plain_sink.output().rows.len();
        assert!(rows < height, "{rows} rows and a header in {height} lines");
        assert!(height < 10 || rows >= height - RESERVED_LINES, "the space is used");
    }
}

#[test]
fn log_lines_print_above_cleared_bars() {
    let screen = FakeTerminal::default();
    let mut harness = harness(&screen);
    harness.emit(0, run_started(2, 1, &[(Phase::Facts, "look around")]));
    harness.emit(1, rank_log(0, 0, 0, "hello\nworld\n"));
    harness.emit(200, EventKind::StepStarted { step: 1 });
    harness.emit(200, EventKind::RunFinished { outcome: Outcome::Ok, reason: String::new() });
    harness.finish();
    let terminal = harness.sink.plain_sink.output();
    terminal.finish().expect("cleared");
    assert!(terminal.rows.is_empty() && terminal.header.is_finished());
    let text = screen.0.lock().expect("not poisoned").clone();
    for part in ["up wan22: 2 hosts, 2 ranks", "[rank 0 gpu01] hello", "[rank 0 gpu01] world"] {
        assert!(text.contains(part), "{part} in {text:?}");
    }
}
