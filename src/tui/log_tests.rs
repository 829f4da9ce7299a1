//! The logs as a person uses them: merged, folded, filtered, marked, copied and saved; and what a host may write into them.

use std::io;
use std::sync::{Arc, Mutex};

use proptest::prelude::*;

use crate::event::{Event, EventKind, LogFile, RunInfo};
use crate::report::sanitize::Cleaner;

use super::app::{App, Screen};
use super::feed::{Hand, Note, Role, Stored};
use super::keymap::Cmd;
use super::scenes;
use super::tests::{File, draw, picture, press};
use super::theme::Theme;

/// What was given away.
type Given = Arc<Mutex<Vec<(String, String)>>>;

struct Pocket(Given, bool);

impl Hand for Pocket {
    fn multiplexer(&self, text: &str) -> Option<io::Result<()>> {
        self.1.then(|| {
            self.0.lock().expect("no panic").push(("tmux".to_owned(), text.to_owned()));
            Ok(())
        })
    }
    fn save(&self, name: &str, text: &str) -> io::Result<String> {
        self.0.lock().expect("no panic").push((name.to_owned(), text.to_owned()));
        Ok(format!("/saved/{name}.log"))
    }
}

fn shown(app: &mut App) -> String {
    picture(&draw(app, 80, 24))
}

fn with_file(text: &str) -> scenes::Scene {
    let mut scene = scenes::healthy();
    scene.app.hear(Note::Stored(Box::new(File(text.to_owned()))));
    scene.app.screen = Screen::Logs;
    scene
}

fn pocket(app: &mut App, tmux: bool) -> Given {
    let given = Given::default();
    app.hear(Note::Hand(Box::new(Pocket(Arc::clone(&given), tmux))));
    given
}

#[test]
fn all_ranks_are_one_line_with_the_range_of_what_differs() {
    let mut scene = scenes::healthy();
    press(&mut scene.app, "4 o");
    let text = shown(&mut scene.app);
    assert!(text.contains("LOG of all, folded"), "{text}");
    assert!(text.contains("r[0-15]          16 step 20/400 loss ["), "{text}");
    press(&mut scene.app, "u");
    let text = shown(&mut scene.app);
    assert!(text.contains("LOG of all, each line") && text.contains(" r15 "), "{text}");
    press(&mut scene.app, "& r a n k : 2 - 3 enter");
    let text = shown(&mut scene.app);
    assert!(text.contains(" r3 ") && !text.contains(" r4 ") && text.contains("&rank:2-3"), "{text}");
    press(&mut scene.app, "o");
    assert!(shown(&mut scene.app).contains("LOG of all on gpu00"));
    press(&mut scene.app, "enter");
    let text = shown(&mut scene.app);
    assert!(text.contains("LOG r3 gpu00:g3"), "from a line to its own log: {text}");
}

#[test]
fn empty_lines_are_not_folded() {
    let mut scene = scenes::healthy();
    let offset = scene.app.state.ranks[&3].tail.next;
    let bytes = bytes::Bytes::from_static(b"\n \t\n\x1b[0m\n3.14\n");
    scene.tell(1, EventKind::Log { host: 0, file: LogFile::Rank { rank: 3, restart: 0 }, offset, len: bytes.len() as u64, bytes });
    press(&mut scene.app, "4 o");
    let text = shown(&mut scene.app);
    let rows: Vec<&str> = text.lines().take(23).filter(|row| row.starts_with(" r3 ")).collect();
    assert!(rows.len() == 1 && rows[0].contains("3.14"), "{text}");
}

#[test]
fn a_filter_keeps_lines_and_an_empty_one_all() {
    let text: String = (0..20_000).map(|n| if n % 1000 == 0 { format!("WARNING at {n}\n") } else { format!("line {n}\n") }).collect();
    let mut scene = with_file(&text);
    press(&mut scene.app, "& l e v e l > = w a r n enter");
    let seen = shown(&mut scene.app);
    assert!(seen.contains("WARNING at 19000") && seen.contains("WARNING at 0") && !seen.contains(" line 19999"), "{seen}");
    press(&mut scene.app, "& ctrl-u ! a t enter");
    let seen = shown(&mut scene.app);
    assert!(seen.contains(" line 19999") && seen.contains("&!at"), "{seen}");
    press(&mut scene.app, "& ctrl-u l e v e l : b a d enter");
    assert!(shown(&mut scene.app).contains("the levels are debug, info, warn, error"));
    press(&mut scene.app, "& ctrl-u enter");
    assert!(!shown(&mut scene.app).contains("&!at"));
}

#[test]
fn errors_marks_and_lines_have_places() {
    let text: String = (0..5_000).map(|n| if n % 2000 == 500 { format!("ValueError: {n}\n") } else { format!("line {n}\n") }).collect();
    let mut scene = with_file(&text);
    press(&mut scene.app, "e");
    let seen = shown(&mut scene.app);
    assert!(seen.contains(">ValueError: 4500") && seen.contains("line 4497") && seen.contains('!'), "{seen}");
    press(&mut scene.app, "m e");
    assert!(shown(&mut scene.app).contains(">ValueError: 2500"));
    press(&mut scene.app, "E E");
    assert!(shown(&mut scene.app).contains("no further line says that something is wrong"));
    press(&mut scene.app, "e e e '");
    assert!(shown(&mut scene.app).contains(">ValueError: 4500"), "the mark");
    assert!(scene.app.timeline.items().back().is_some_and(|item| item.text == "mark: ValueError: 4500"));
    let before = scene.app.timeline.items().len();
    press(&mut scene.app, "m '");
    assert!(shown(&mut scene.app).contains("no line is marked") && scene.app.timeline.items().len() == before);
}

#[test]
fn text_goes_where_it_is_said_to_go() {
    let mut scene = with_file(&format!("{}evil\u{1b}]52;c;eA==\u{7} \u{202e}end\n", "x\n".repeat(50)));
    press(&mut scene.app, "G y");
    assert_eq!(scene.app.clip.take().as_deref(), Some("evil ‹U+202E›end"));
    assert!(shown(&mut scene.app).contains("1 line sent to the terminal's clipboard (OSC 52)"));
    let given = pocket(&mut scene.app, true);
    press(&mut scene.app, "Y");
    assert!(shown(&mut scene.app).contains("lines copied: tmux has it"));
    assert!(scene.app.clip.is_none());
    scene.app.update(Cmd::Save);
    assert!(shown(&mut scene.app).contains("51 lines saved in /saved/rank-0.log"));
    {
        let given = given.lock().expect("no panic");
        assert_eq!(given[0].1.lines().last(), Some("evil ‹U+202E›end"));
        assert_eq!((given[1].0.as_str(), given[1].1.lines().count()), ("rank-0", 51));
    }
    let mut scene = with_file(&format!("{}\n", "y".repeat(16_000)).repeat(30));
    let given = pocket(&mut scene.app, true);
    press(&mut scene.app, "G Y");
    assert!(shown(&mut scene.app).contains("too long for a clipboard: saved in /saved/rank-0.log"));
    assert_eq!(given.lock().expect("no panic").len(), 1);
}

#[test]
fn bars_are_one_row_and_all_of_them_can_be_seen() {
    let bar: String = (0..300).map(|n| format!("\r{n:3}%|##  | {n}/300")).collect();
    let mut scene = with_file(&format!("begin\n{bar}\nend\n"));
    let seen = shown(&mut scene.app);
    assert!(seen.contains(" 299%|##  | 299/300 (x300)") && seen.contains(" begin"), "{seen}");
    press(&mut scene.app, "c");
    assert!(shown(&mut scene.app).contains(" 298%|##  | 298/300"));
    press(&mut scene.app, "c a");
    assert!(shown(&mut scene.app).contains("\\r  0%|##  | 0/300\\r  1%|"));
}

#[test]
fn what_comes_moves_nothing_and_is_counted() {
    let mut scene = scenes::healthy();
    press(&mut scene.app, "4 o u pgup");
    let before = shown(&mut scene.app);
    let offset = scene.app.state.ranks[&3].tail.next;
    let bytes = bytes::Bytes::from_static(b"new one\nnew two\n");
    let log = EventKind::Log { host: 0, file: LogFile::Rank { rank: 3, restart: 0 }, offset, len: bytes.len() as u64, bytes };
    scene.tell(1, log);
    let after = shown(&mut scene.app);
    let rows = |text: &str| text.lines().skip(3).take(20).map(|row| row[..70.min(row.len())].to_owned()).collect::<Vec<_>>();
    assert_eq!(rows(&before), rows(&after));
    assert!(after.contains("v 2 new"), "{after}");
    press(&mut scene.app, "F");
    assert!(shown(&mut scene.app).contains("new two"));
}

#[test]
fn where_several_logs_end_it_is_said_where_the_rest_is() {
    const SAID: &str = "older lines are in each rank's own log";
    let mut scene = scenes::healthy();
    press(&mut scene.app, "4 o u g");
    assert!(!shown(&mut scene.app).contains(SAID), "all lines are there");
    let rank = LogFile::Rank { rank: 3, restart: 0 };
    for part in 0..40 {
        let text: String = (0..1_500).map(|n| format!("flood {part} {n}\n")).collect();
        let offset = scene.app.state.ranks[&3].tail.next;
        let bytes = bytes::Bytes::from(text.into_bytes());
        scene.tell(1, EventKind::Log { host: 0, file: rank, offset, len: bytes.len() as u64, bytes });
    }
    for keys in ["g", "u g", "u w g"] {
        press(&mut scene.app, keys);
        let text = shown(&mut scene.app);
        assert!(text.lines().nth(3).is_some_and(|row| row.contains(SAID)), "{keys}: {text}");
        press(&mut scene.app, "j");
        assert!(!shown(&mut scene.app).contains(SAID), "{keys}");
        press(&mut scene.app, "F");
        assert!(!shown(&mut scene.app).contains(SAID), "{keys}");
    }
    press(&mut scene.app, "g enter");
    let text = shown(&mut scene.app);
    assert!(text.contains("LOG r3 gpu00") && !text.contains(SAID), "{text}");
}

#[test]
fn zoom_is_nothing_but_the_log() {
    let mut scene = with_file(&"line\n".repeat(100));
    press(&mut scene.app, "z");
    assert!(shown(&mut scene.app).lines().take(24).all(|row| row == " line"));
    press(&mut scene.app, "z");
    assert!(shown(&mut scene.app).contains("LOG r0"));
}

#[test]
fn times_are_those_of_arrival() {
    let mut scene = scenes::healthy();
    press(&mut scene.app, "4 t");
    let seen = shown(&mut scene.app);
    assert!(seen.contains("ago by arrival") && seen.contains("-17s"), "{seen}");
    press(&mut scene.app, "t");
    let seen = shown(&mut scene.app);
    assert!(seen.contains("time of arrival") && seen.contains(" 12:04:"), "{seen}");
}

#[test]
fn from_what_happened_to_the_log_of_then() {
    let mut scene = scenes::bad_day();
    press(&mut scene.app, "6");
    assert!(shown(&mut scene.app).contains("EVENTS  LIVE"));
    while !scene.app.timeline.items()[0].text.is_empty() && !shown(&mut scene.app).contains("LOG r37") {
        press(&mut scene.app, ", enter");
        if scene.app.screen == Screen::Logs && !shown(&mut scene.app).contains("LOG r37") {
            press(&mut scene.app, "6");
        }
    }
    assert!(shown(&mut scene.app).contains("RuntimeError: CUDA error"));
    press(&mut scene.app, "1 e");
    assert_eq!(scene.app.screen, Screen::Problems, "outside of logs the next problem");
}

/// A log of a GiB that is nowhere: every line has its number and a hundred bytes.
struct Long(Arc<Mutex<u64>>);

impl Stored for Long {
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
fn a_long_log_opens_at_its_end_and_scrolls_back() {
    let mut scene = scenes::healthy();
    let read = Arc::new(Mutex::new(0));
    scene.app.hear(Note::Stored(Box::new(Long(Arc::clone(&read)))));
    press(&mut scene.app, "4");
    assert!(shown(&mut scene.app).contains("line 10737417 "));
    assert!(*read.lock().expect("no panic") < 32 << 20, "{} bytes were read to open it", read.lock().expect("no panic"));
    press(&mut scene.app, "pgup pgup");
    assert!(shown(&mut scene.app).contains("line 10737360 "));
    let before = *read.lock().expect("no panic");
    press(&mut scene.app, "g");
    assert!(shown(&mut scene.app).contains(" line 0 "));
    assert!(*read.lock().expect("no panic") - before < 32 << 20);
}

proptest! {
    #![proptest_config(ProptestConfig::with_cases(40))]

    /// Whatever is written, in whichever way it is shown, copied or saved: nothing steers the terminal, and secrets are hidden.
    #[test]
    fn nothing_that_steers_leaves_the_logs(parts in proptest::collection::vec(proptest::sample::select(vec![
        "\u{1b}]52;c;eA==\u{7}", "\u{1b}[2J", "\u{1b}[1A", "\u{9b}31m", "\r", "\n", "\t", "\u{202e}", "\u{7f}", "\0", "step 1 ", "Error ", "hunter2-token", "hun\u{1b}[1mter2-token", "中\u{301}", "37%|", "\u{1b}P", "\u{2028}",
    ]), 1..40), clock in 0..3_usize) {
        let mut app = App::new(Role::Onlooker, Cleaner::new(&["hunter2-token".to_owned()]), Theme::new(crate::tui::theme::Skin::Dark, false));
        let info = RunInfo { hosts: vec!["a\u{1b}[31m".to_owned()], ..RunInfo::default() };
        app.hear(Note::Event(Event { seq: 1, at: 1, kind: EventKind::RunStarted(info) }));
        let text = parts.concat() + "\n";
        for rank in 0..3 {
            let bytes = bytes::Bytes::copy_from_slice(text.as_bytes());
            let kind = EventKind::Log { host: 0, file: LogFile::Rank { rank, restart: 0 }, offset: 0, len: bytes.len() as u64, bytes };
            app.hear(Note::Event(Event { seq: 2, at: 2, kind }));
        }
        app.hear(Note::Stored(Box::new(File(text))));
        let given = pocket(&mut app, true);
        app.screen = Screen::Logs;
        for _ in 0..clock {
            app.update(Cmd::Times);
        }
        let safe = |text: &str| text.chars().all(|c| c == '\n' || !c.is_control() && !('\u{202a}'..='\u{202e}').contains(&c));
        for cmd in [Cmd::Up, Cmd::Bytes, Cmd::Wrap, Cmd::Collapse, Cmd::Bytes, Cmd::Merge, Cmd::Fold, Cmd::Merge, Cmd::Fold, Cmd::Mark] {
            app.update(cmd);
            let buffer = draw(&mut app, 60, 12);
            prop_assert!(buffer.content().iter().all(|cell| safe(cell.symbol())));
            prop_assert!(!picture(&buffer).contains("hunter2-token"));
            for take in [Cmd::Copy, Cmd::CopyView, Cmd::Save] {
                app.update(take);
            }
        }
        app.screen = Screen::Events;
        prop_assert!(draw(&mut app, 60, 12).content().iter().all(|cell| safe(cell.symbol())));
        let given = given.lock().expect("no panic");
        prop_assert!(given.len() >= 20);
        for (_, text) in given.iter() {
            prop_assert!(safe(text) && !text.contains("hunter2-token"), "{:?}", text);
        }
    }
}
