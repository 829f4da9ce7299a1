//! The Logs screen in use: merge, fold, filter, mark, copy and save; and hostile log content.

use std::io;
use std::sync::{Arc, Mutex};

use proptest::prelude::*;

use crate::event::{Event, EventKind, LogFile, RunInfo};
use crate::text::sanitize::Sanitizer;

use super::app::App;
use super::feed::{Clipboard, DashboardRole, FeedMessage, StoredLogs};
use super::fixtures;
use super::headless::LocalFold;
use super::keymap::UiCommand;
use super::log_source::MemoryLog;
use super::tests::{cell_text, draw, press_keys};
use super::ui::Screen;

/// Texts given to the clipboard or saved.
type CapturedTexts = Arc<Mutex<Vec<(String, String)>>>;

struct FakeClipboard(CapturedTexts, bool);

impl Clipboard for FakeClipboard {
    fn copy_to_multiplexer(&self, text: &str) -> Option<io::Result<()>> {
        self.1.then(|| {
            self.0.lock().expect("no panic").push(("tmux".to_owned(), text.to_owned()));
            Ok(())
        })
    }
    fn save_to_file(&self, name: &str, text: &str) -> io::Result<String> {
        self.0.lock().expect("no panic").push((name.to_owned(), text.to_owned()));
        Ok(format!("/saved/{name}.log"))
    }
}

fn screen_text(app: &mut App) -> String {
    super::tests::screen_text(app, 80, 24)
}

fn fixture_with_log(text: &str) -> fixtures::DashboardFixture {
    let mut scene = fixtures::healthy();
    scene.app.handle_message(FeedMessage::StoredLogs(Box::new(MemoryLog(text.to_owned().into_bytes()))));
    scene.app.ui.screen = Screen::Logs;
    scene
}

fn install_fake_clipboard(app: &mut App, tmux: bool) -> CapturedTexts {
    let given = CapturedTexts::default();
    app.handle_message(FeedMessage::Clipboard(Box::new(FakeClipboard(Arc::clone(&given), tmux))));
    given
}

#[test]
fn equal_lines_fold_across_ranks() {
    let mut scene = fixtures::healthy();
    press_keys(&mut scene.app, "4 o");
    let text = screen_text(&mut scene.app);
    assert!(text.contains("LOG all, folded"), "{text}");
    assert!(text.contains("r[0-15] 16 step 20/400 loss ["), "{text}");
    press_keys(&mut scene.app, "u");
    let text = screen_text(&mut scene.app);
    assert!(text.contains("LOG all, unfolded") && text.contains(" r15 "), "{text}");
    press_keys(&mut scene.app, "& r a n k : 2 - 3 enter");
    let text = screen_text(&mut scene.app);
    assert!(text.contains(" r3 ") && !text.contains(" r4 ") && text.contains("&rank:2-3"), "{text}");
    press_keys(&mut scene.app, "o");
    assert!(screen_text(&mut scene.app).contains("LOG all on gpu00"));
    press_keys(&mut scene.app, "enter");
    let text = screen_text(&mut scene.app);
    assert!(text.contains("LOG r3 gpu00:g3"), "from a line to its own log: {text}");
}

/// The new run writes files of the same names from their beginning.
#[test]
fn restart_shows_the_lines_of_the_new_run() {
    let mut scene = fixtures::healthy();
    press_keys(&mut scene.app, "4 o");
    assert!(screen_text(&mut scene.app).contains("step 20/400"));
    let old = scene.app.model.state.info.as_ref().clone();
    scene.emit(1, EventKind::RunStarted(RunInfo { steps: Vec::new(), command: "attach".to_owned(), ..old.clone() }));
    assert!(screen_text(&mut scene.app).contains("step 20/400"), "the same run goes on");
    scene.emit(1, EventKind::RunStarted(RunInfo { run_id: "20261122-100000-new1".to_owned(), ..old }));
    scene.emit_rank_log(3, "first, r3\n");
    let text = screen_text(&mut scene.app);
    assert!(text.contains("first, r3") && !text.contains("step 20/400"), "{text}");
}

#[test]
fn empty_lines_are_not_folded() {
    let mut scene = fixtures::healthy();
    scene.emit_rank_log(3, "\n \t\n\x1b[0m\n3.14\n");
    press_keys(&mut scene.app, "4 o");
    let text = screen_text(&mut scene.app);
    let rows: Vec<&str> = text.lines().take(23).filter(|row| row.starts_with(" r3 ")).collect();
    assert!(rows.len() == 1 && rows[0].contains("3.14"), "{text}");
}

#[test]
fn empty_filter_shows_all_lines() {
    let text: String = (0..20_000).map(|n| if n % 1000 == 0 { format!("WARNING at {n}\n") } else { format!("line {n}\n") }).collect();
    let mut scene = fixture_with_log(&text);
    press_keys(&mut scene.app, "& l e v e l > = w a r n enter");
    let seen = screen_text(&mut scene.app);
    assert!(seen.contains("WARNING at 19000") && seen.contains("WARNING at 0") && !seen.contains(" line 19999"), "{seen}");
    press_keys(&mut scene.app, "& ctrl-u ! a t enter");
    let seen = screen_text(&mut scene.app);
    assert!(seen.contains(" line 19999") && seen.contains("&!at"), "{seen}");
    press_keys(&mut scene.app, "& ctrl-u l e v e l : b a d enter");
    assert!(screen_text(&mut scene.app).contains("the levels are debug, info, warn, error"));
    press_keys(&mut scene.app, "& ctrl-u enter");
    assert!(!screen_text(&mut scene.app).contains("&!at"));
}

#[test]
fn errors_and_marks_can_be_visited() {
    let text: String = (0..5_000).map(|n| if n % 2000 == 500 { format!("ValueError: {n}\n") } else { format!("line {n}\n") }).collect();
    let mut scene = fixture_with_log(&text);
    press_keys(&mut scene.app, "e");
    let seen = screen_text(&mut scene.app);
    assert!(seen.contains(">ValueError: 4500") && seen.contains("line 4497") && seen.contains('!'), "{seen}");
    press_keys(&mut scene.app, "m e");
    assert!(screen_text(&mut scene.app).contains(">ValueError: 2500"));
    scene.app.update(UiCommand::NextError);
    assert!(screen_text(&mut scene.app).contains(">ValueError: 4500"), "as its name says");
    press_keys(&mut scene.app, "E");
    assert!(screen_text(&mut scene.app).contains("no later line has an error"));
    press_keys(&mut scene.app, "e e e '");
    assert!(screen_text(&mut scene.app).contains(">ValueError: 4500"), "the mark");
    assert!(scene.app.model.timeline.items().back().is_some_and(|item| item.text == "mark: ValueError: 4500"));
    let before = scene.app.model.timeline.items().len();
    press_keys(&mut scene.app, "m '");
    assert!(screen_text(&mut scene.app).contains("no marked lines") && scene.app.model.timeline.items().len() == before);
}

#[test]
fn copies_go_to_the_named_target() {
    let mut scene = fixture_with_log(&format!("{}evil\u{1b}]52;c;eA==\u{7} \u{202e}end\n", "x\n".repeat(50)));
    press_keys(&mut scene.app, "G y");
    assert_eq!(scene.app.pending_clipboard.take().as_deref(), Some("evil ‹U+202E›end"));
    assert!(screen_text(&mut scene.app).contains("1 line sent to the terminal (OSC 52)"));
    let given = install_fake_clipboard(&mut scene.app, true);
    press_keys(&mut scene.app, "Y");
    assert!(screen_text(&mut scene.app).contains("lines copied to tmux"));
    assert!(scene.app.pending_clipboard.is_none());
    scene.app.update(UiCommand::Save);
    assert!(screen_text(&mut scene.app).contains("51 lines saved to /saved/rank-0.log"));
    {
        let given = given.lock().expect("no panic");
        assert_eq!(given[0].1.lines().last(), Some("evil ‹U+202E›end"));
        assert_eq!((given[1].0.as_str(), given[1].1.lines().count()), ("rank-0", 51));
    }
    let mut scene = fixture_with_log(&format!("{}\n", "y".repeat(16_000)).repeat(30));
    let given = install_fake_clipboard(&mut scene.app, true);
    press_keys(&mut scene.app, "G Y");
    assert!(screen_text(&mut scene.app).contains("too large for the clipboard, saved to /saved/rank-0.log"));
    assert_eq!(given.lock().expect("no panic").len(), 1);
}

#[test]
fn progress_bars_collapse_and_expand() {
    let bar: String = (0..300).map(|n| format!("\r{n:3}%|##  | {n}/300")).collect();
    let mut scene = fixture_with_log(&format!("begin\n{bar}\nend\n"));
    let seen = screen_text(&mut scene.app);
    assert!(seen.contains(" 299%|##  | 299/300 (300 updates)") && seen.contains(" begin"), "{seen}");
    press_keys(&mut scene.app, "c");
    assert!(screen_text(&mut scene.app).contains(" 298%|##  | 298/300"));
    press_keys(&mut scene.app, "c a");
    assert!(screen_text(&mut scene.app).contains("\\r  0%|##  | 0/300\\r  1%|"));
}

#[test]
fn new_lines_do_not_scroll_but_count() {
    let mut scene = fixtures::healthy();
    press_keys(&mut scene.app, "4 o u pgup");
    let before = screen_text(&mut scene.app);
    scene.emit_rank_log(3, "new one\nnew two\n");
    let after = screen_text(&mut scene.app);
    let rows = |text: &str| text.lines().skip(3).take(20).map(|row| row[..70.min(row.len())].to_owned()).collect::<Vec<_>>();
    assert_eq!(rows(&before), rows(&after));
    assert!(after.contains("v 2 new"), "{after}");
    press_keys(&mut scene.app, "F");
    assert!(screen_text(&mut scene.app).contains("new two"));
}

#[test]
fn merged_logs_show_skipped_bytes() {
    let mut scene = fixtures::healthy();
    press_keys(&mut scene.app, "4 o");
    assert!(!screen_text(&mut scene.app).contains("not shown"));
    scene.app.model.skipped_log_bytes = 3 << 20;
    assert!(screen_text(&mut scene.app).contains("3.0 MiB not shown"));
    press_keys(&mut scene.app, "enter");
    assert!(!screen_text(&mut scene.app).contains("not shown"), "the log of one rank is whole");
    scene.app.handle_message(FeedMessage::Reset);
    assert_eq!(scene.app.model.skipped_log_bytes, 0);
}

#[test]
fn merged_logs_point_to_older_lines() {
    const OLDER_LINES_NOTE: &str = "older lines are in each rank's log";
    let mut scene = fixtures::healthy();
    press_keys(&mut scene.app, "4 o u g");
    assert!(!screen_text(&mut scene.app).contains(OLDER_LINES_NOTE), "all lines are there");
    for part in 0..40 {
        scene.emit_rank_log(3, &(0..1_500).map(|n| format!("flood {part} {n}\n")).collect::<String>());
    }
    for keys in ["g", "u g", "u w g"] {
        press_keys(&mut scene.app, keys);
        let text = screen_text(&mut scene.app);
        assert!(text.lines().nth(3).is_some_and(|row| row.contains(OLDER_LINES_NOTE)), "{keys}: {text}");
        press_keys(&mut scene.app, "j");
        assert!(!screen_text(&mut scene.app).contains(OLDER_LINES_NOTE), "{keys}");
        press_keys(&mut scene.app, "F");
        assert!(!screen_text(&mut scene.app).contains(OLDER_LINES_NOTE), "{keys}");
    }
    press_keys(&mut scene.app, "g enter");
    let text = screen_text(&mut scene.app);
    assert!(text.contains("LOG r3 gpu00") && !text.contains(OLDER_LINES_NOTE), "{text}");
}

#[test]
fn zoom_shows_only_the_log() {
    let mut scene = fixture_with_log(&"line\n".repeat(100));
    press_keys(&mut scene.app, "z");
    assert!(screen_text(&mut scene.app).lines().take(24).all(|row| row == " line"));
    press_keys(&mut scene.app, "z");
    assert!(screen_text(&mut scene.app).contains("LOG r0"));
}

#[test]
fn times_show_arrival() {
    let mut scene = fixtures::healthy();
    press_keys(&mut scene.app, "4 t");
    let seen = screen_text(&mut scene.app);
    assert!(seen.contains("age by arrival") && seen.contains("-17s"), "{seen}");
    press_keys(&mut scene.app, "t");
    let seen = screen_text(&mut scene.app);
    assert!(seen.contains("time of arrival") && seen.contains(" 12:04:"), "{seen}");
}

#[test]
fn event_opens_log_at_its_time() {
    let mut scene = fixtures::bad_day();
    press_keys(&mut scene.app, "6");
    assert!(screen_text(&mut scene.app).contains("EVENTS  LIVE"));
    while !scene.app.model.timeline.items()[0].text.is_empty() && !screen_text(&mut scene.app).contains("LOG r37") {
        press_keys(&mut scene.app, ", enter");
        if scene.app.ui.screen == Screen::Logs && !screen_text(&mut scene.app).contains("LOG r37") {
            press_keys(&mut scene.app, "6");
        }
    }
    assert!(screen_text(&mut scene.app).contains("RuntimeError: CUDA error"));
    press_keys(&mut scene.app, "1 e");
    assert_eq!(scene.app.ui.screen, Screen::Problems, "outside of logs the next problem");
}

/// A virtual log of one GiB: numbered lines of a hundred bytes.
struct HugeLog(Arc<Mutex<u64>>);

impl StoredLogs for HugeLog {
    fn len(&self, _: &str, _: LogFile) -> io::Result<u64> {
        Ok(10_737_418 * 100)
    }
    fn read(&self, _: &str, _: LogFile, from: u64, most: usize) -> io::Result<Vec<u8>> {
        *self.0.lock().expect("no panic") += most as u64;
        let first = from / 100;
        let lines = (first..=first + most as u64 / 100 + 1).map(|n| format!("line {n:<94}\n")).collect::<String>();
        let skip = usize::try_from(from % 100).expect("small");
        Ok(lines.as_bytes()[skip..skip + most].to_vec())
    }
}

#[test]
fn huge_log_opens_at_end_and_scrolls() {
    let mut scene = fixtures::healthy();
    let read = Arc::new(Mutex::new(0));
    scene.app.handle_message(FeedMessage::StoredLogs(Box::new(HugeLog(Arc::clone(&read)))));
    press_keys(&mut scene.app, "4");
    assert!(screen_text(&mut scene.app).contains("line 10737417 "));
    assert!(*read.lock().expect("no panic") < 32 << 20, "{} bytes were read to open it", read.lock().expect("no panic"));
    press_keys(&mut scene.app, "pgup pgup");
    assert!(screen_text(&mut scene.app).contains("line 10737360 "));
    let before = *read.lock().expect("no panic");
    press_keys(&mut scene.app, "g");
    assert!(screen_text(&mut scene.app).contains(" line 0 "));
    assert!(*read.lock().expect("no panic") - before < 32 << 20);
}

proptest! {
    #![proptest_config(ProptestConfig::with_cases(40))]

    /// Log content never controls the terminal and secrets stay hidden, in every display mode, copy and export.
    #[test]
    fn logs_never_emit_control_sequences(parts in proptest::collection::vec(proptest::sample::select(vec![
        "\u{1b}]52;c;eA==\u{7}", "\u{1b}[2J", "\u{1b}[1A", "\u{9b}31m", "\r", "\n", "\t", "\u{202e}", "\u{7f}", "\0", "step 1 ", "Error ", "hunter2-token", "hun\u{1b}[1mter2-token", "中\u{301}", "37%|", "\u{1b}P", "\u{2028}",
    ]), 1..40), clock in 0..3_usize) {
        let mut app = App::new(DashboardRole::Observer, Sanitizer::new(&["hunter2-token".to_owned()]));
        let info = RunInfo { hosts: vec!["a\u{1b}[31m".to_owned()], ..RunInfo::default() };
        let mut fold = LocalFold::default();
        fold.handle_message(&mut app, FeedMessage::Event(Event { seq: 1, at: 1, kind: EventKind::RunStarted(info) }));
        let text = parts.concat() + "\n";
        for rank in 0..3 {
            let bytes = bytes::Bytes::copy_from_slice(text.as_bytes());
            let kind = EventKind::Log { host: 0, file: LogFile::Rank { rank, restart: 0 }, offset: 0, len: bytes.len() as u64, bytes };
            fold.handle_message(&mut app, FeedMessage::Event(Event { seq: 2, at: 2, kind }));
        }
        fold.update_snapshot(&mut app);
        app.handle_message(FeedMessage::StoredLogs(Box::new(MemoryLog(text.into_bytes()))));
        let given = install_fake_clipboard(&mut app, true);
        app.ui.screen = Screen::Logs;
        for _ in 0..clock {
            app.update(UiCommand::Times);
        }
        let safe = |text: &str| text.chars().all(|c| c == '\n' || !c.is_control() && !('\u{202a}'..='\u{202e}').contains(&c));
        for cmd in [UiCommand::Up, UiCommand::Bytes, UiCommand::Wrap, UiCommand::Collapse, UiCommand::Bytes, UiCommand::Merge, UiCommand::Fold, UiCommand::Merge, UiCommand::Fold, UiCommand::Mark] {
            app.update(cmd);
            let buffer = draw(&mut app, 60, 12);
            prop_assert!(buffer.content().iter().all(|cell| safe(cell.symbol())));
            prop_assert!(!cell_text(&buffer).contains("hunter2-token"));
            for take in [UiCommand::Copy, UiCommand::CopyView, UiCommand::Save] {
                app.update(take);
            }
        }
        app.ui.screen = Screen::Events;
        prop_assert!(draw(&mut app, 60, 12).content().iter().all(|cell| safe(cell.symbol())));
        let given = given.lock().expect("no panic");
        prop_assert!(given.len() >= 20);
        for (_, text) in given.iter() {
            prop_assert!(safe(text) && !text.contains("hunter2-token"), "{:?}", text);
        }
    }
}
