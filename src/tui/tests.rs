#![expect(clippy::disallowed_methods, reason = "reads the pictures that the screens are compared with")]
//! Appearance: every screen against its snapshot, and every size without a panic.

use std::fmt::Write as _;
use std::path::Path;

use crossterm::event::{KeyCode, KeyEvent, KeyModifiers};
use ratatui::Terminal;
use ratatui::backend::TestBackend;
use ratatui::buffer::Buffer;
use ratatui::style::{Color, Modifier};

use crate::event::LogFile;

use super::app::App;
use super::dialog::Dialog;
use super::fixtures::{self, BuildFixture, DashboardFixture};
use super::keymap::{DEFAULT_BINDINGS, UiCommand};
use super::model::Model;
use super::ui::{Overlay, Screen};
use super::view;

pub(super) fn draw(app: &mut App, width: u16, height: u16) -> Buffer {
    let mut terminal = Terminal::new(TestBackend::new(width, height)).expect("a terminal of memory");
    terminal.draw(|frame| app.draw(frame)).expect("drawn");
    terminal.backend().buffer().clone()
}

/// The text of a screen followed by the styles of its columns.
pub(super) fn snapshot_text(buffer: &Buffer) -> String {
    let (mut text, mut looks) = (String::new(), String::new());
    for y in 0..buffer.area.height {
        let mut row = String::new();
        let mut runs: Vec<(u16, u16, String)> = Vec::new();
        let mut skip = 0;
        for x in 0..buffer.area.width {
            let cell = &buffer[(x, y)];
            if skip == 0 {
                row.push_str(cell.symbol());
                skip = unicode_width::UnicodeWidthStr::width(cell.symbol());
            }
            skip = skip.saturating_sub(1);
            let view = style_text(cell.fg, cell.modifier);
            match runs.last_mut() {
                Some((_, end, known)) if *known == view => *end = x,
                _ => runs.push((x, x, view)),
            }
        }
        writeln!(text, "{}", row.trim_end()).expect("a String takes all");
        for (from, to, view) in runs.into_iter().filter(|run| !run.2.is_empty()) {
            writeln!(looks, "{y}:{from}-{to} {view}").expect("a String takes all");
        }
    }
    format!("{text}---\n{looks}")
}

fn style_text(color: Color, modifier: Modifier) -> String {
    let color = match color {
        Color::Reset => String::new(),
        Color::Indexed(index) => format!("{index}"),
        other => format!("{other:?}"),
    };
    let modifier = if modifier.is_empty() { String::new() } else { format!("{modifier:?}") };
    [color, modifier].into_iter().filter(|part| !part.is_empty()).collect::<Vec<_>>().join(" ")
}

/// Compares with the snapshot in `pictures/`; with BLESS=1 in the environment it is rewritten.
fn assert_snapshot(name: &str, buffer: &Buffer) {
    let path = Path::new(env!("CARGO_MANIFEST_DIR")).join("src/tui/pictures").join(format!("{name}.txt"));
    let now = snapshot_text(buffer);
    if std::env::var_os("BLESS").is_some() {
        std::fs::write(&path, &now).expect("painted");
    }
    let known = std::fs::read_to_string(&path).unwrap_or_default();
    assert!(known == now, "{name} looks different; BLESS=1 rewrites it. It is now:\n{now}");
}

const FIXTURES: [(&str, BuildFixture); 6] = [
    ("healthy", fixtures::healthy),
    ("bad-day", fixtures::bad_day),
    ("launch", fixtures::launching_six_hosts),
    ("many", fixtures::many_hosts),
    ("ended", fixtures::finished_run),
    ("empty", fixtures::empty),
];

#[test]
fn screens_match_snapshots() {
    for (name, make) in FIXTURES {
        let mut scene = make();
        for (width, height) in [(80, 24), (120, 40)] {
            for screen in Screen::ALL {
                scene.app.ui.screen = screen;
                let title = screen.title().1.to_lowercase();
                assert_snapshot(&format!("{title}-{name}-{width}x{height}"), &draw(&mut scene.app, width, height));
            }
        }
        scene.app.ui.screen = Screen::Overview;
        assert_snapshot(&format!("overview-{name}-200x60"), &draw(&mut scene.app, 200, 60));
    }
    for (name, make) in &FIXTURES[..2] {
        let mut scene = make();
        scene.app.ui.screen = Screen::Logs;
        scene.app.update(UiCommand::Merge);
        scene.app.update(UiCommand::Times);
        assert_snapshot(&format!("logs-merged-{name}-80x24"), &draw(&mut scene.app, 80, 24));
        assert_snapshot(&format!("logs-merged-{name}-120x40"), &draw(&mut scene.app, 120, 40));
        scene.app.update(UiCommand::Fold);
        assert_snapshot(&format!("logs-unfolded-{name}-120x40"), &draw(&mut scene.app, 120, 40));
    }
}

/// Overlays on top of a screen.
#[test]
fn overlays_match_snapshots() {
    for (width, height) in [(80, 24), (120, 40)] {
        let mut scene = fixtures::healthy();
        let shot = |scene: &mut DashboardFixture, name: &str| {
            assert_snapshot(&format!("{name}-{width}x{height}"), &draw(&mut scene.app, width, height))
        };
        scene.app.ui.overlay = Some(Overlay::Help(0));
        shot(&mut scene, "help");
        scene.app.ui.overlay = Some(Overlay::Palette(super::command_palette::CommandPalette::default()));
        shot(&mut scene, "palette");
        for (name, build) in [
            ("leave", Dialog::choose_exit as fn(&Model) -> Dialog),
            ("stop", Dialog::confirm_stop),
            ("kill", Dialog::confirm_kill),
            ("restart", Dialog::confirm_restart),
            ("tear-down", Dialog::confirm_teardown),
        ] {
            scene.app.ui.overlay = Some(Overlay::Dialog(build(&scene.app.model)));
            shot(&mut scene, name);
        }
        scene.app.ui.overlay = Some(Overlay::Dialog(Dialog::confirm_start(&scene.app.model, "no run exists")));
        shot(&mut scene, "start");
        let mut scene = fixtures::tearing_down();
        shot(&mut scene, "overview-tearing-down");
        scene.app.ui.overlay = Some(Overlay::Dialog(Dialog::choose_exit(&scene.app.model)));
        shot(&mut scene, "leave-tearing-down");
    }
}

/// Name, title, what is shown, the screen, and its size.
type ReadmeImage = (&'static str, &'static str, BuildFixture, Screen, (u16, u16));

/// The images in the README match the screens.
#[test]
fn readme_images_are_current() {
    let shown: [ReadmeImage; 6] = [
        ("overview", "The first screen: 4 hosts with 8 GPUs each in training", || fixtures::training_hosts(4), Screen::Overview, (120, 36)),
        ("failure", "The first screen after a rank failed on one of 16 hosts", fixtures::bad_day, Screen::Overview, (120, 40)),
        ("many", "The first screen with 128 hosts", fixtures::many_hosts, Screen::Overview, (120, 36)),
        ("launch", "The overview during a launch: hosts and phases", fixtures::launching_six_hosts, Screen::Overview, (100, 24)),
        ("host", "One host with its GPUs, ranks and processes", fixtures::healthy, Screen::Host, (120, 40)),
        ("gpus", "1024 GPUs on one screen", fixtures::many_hosts, Screen::Gpus, (100, 24)),
    ];
    for (name, title, make, screen, (width, height)) in shown {
        let mut scene = make();
        scene.app.ui.screen = screen;
        let now = super::svg::render_svg(&draw(&mut scene.app, width, height), title);
        let path = Path::new(env!("CARGO_MANIFEST_DIR")).join("assets/screens").join(format!("{name}.svg"));
        if std::env::var_os("BLESS").is_some() {
            std::fs::create_dir_all(path.parent().expect("a folder")).expect("made");
            std::fs::write(&path, &now).expect("painted");
        }
        assert!(std::fs::read_to_string(&path).unwrap_or_default() == now, "{name}.svg looks different; BLESS=1 rewrites it");
    }
}

/// The stored journals match their builders.
#[test]
fn journals_match_their_builders() {
    for (name, make) in fixtures::JOURNALS {
        let fresh = tempfile::tempdir().expect("a folder");
        make().write_journal(fresh.path());
        let kept = fixtures::journal_dir(name);
        for part in ["", "logs"].into_iter().filter(|_| std::env::var_os("BLESS").is_some()) {
            std::fs::create_dir_all(kept.join(part)).expect("a folder");
            for (file, text) in read_files(&fresh.path().join(part)) {
                std::fs::write(kept.join(part).join(file), text).expect("written");
            }
        }
        for part in ["", "logs"] {
            let (made, known) = (read_files(&fresh.path().join(part)), read_files(&kept.join(part)));
            assert!(made == known, "{name}/{part} differs; BLESS=1 rewrites it");
            assert!(made.len() >= 2, "{name}/{part}");
        }
    }
}

fn read_files(dir: &Path) -> std::collections::BTreeMap<String, Vec<u8>> {
    let entries = std::fs::read_dir(dir).unwrap_or_else(|error| panic!("{}: {error}; BLESS=1 makes it", dir.display()));
    let entries = entries.map(|entry| entry.expect("listed")).filter(|entry| entry.path().is_file() && entry.file_name() != ".lock");
    entries.map(|entry| (entry.file_name().to_string_lossy().into_owned(), std::fs::read(entry.path()).expect("read"))).collect()
}

/// Every size up to 220 columns and 70 rows, including zero, each with one fixture, screen and overlay in turn, so that each of
/// these is drawn at every width and every height.
#[test]
fn every_size_draws_without_panic() {
    std::thread::scope(|scope| {
        for part in 0..4 {
            scope.spawn(move || draw_all_sizes((part..=220).step_by(4)));
        }
    });
}

fn draw_all_sizes(widths: impl Iterator<Item = u16>) {
    let mut all: Vec<DashboardFixture> = FIXTURES.iter().map(|(_, make)| make()).collect();
    let cases = all.len() * Screen::ALL.len();
    for (width, height) in widths.flat_map(|width| (0..=70_u16).map(move |height| (width, height))) {
        // Neither 13 nor 17 divides the number of cases: every step right or down visits all of them.
        let case = (usize::from(width) * 13 + usize::from(height) * 17) % cases;
        // A thousand ranks are slow: one size in eight.
        let scene = case / Screen::ALL.len();
        let scene = if FIXTURES[scene].0 == "many" && (width + height) % 8 > 0 { 0 } else { scene };
        let app = &mut all[scene].app;
        app.ui.screen = Screen::ALL[case % Screen::ALL.len()];
        app.ui.host.show_smi = height % 2 == 0;
        app.ui.gpus.selection.only_faults = width % 3 == 0;
        app.ui.logs = view::logs::LogsPane::default();
        app.ui.overlay = match (width + height) % 13 {
            0 => Some(Overlay::Help(usize::from(height))),
            1 => Some(Overlay::Dialog(Dialog::choose_exit(&app.model))),
            2 => Some(Overlay::Dialog(Dialog::confirm_start(&app.model, "no run exists"))),
            _ => None,
        };
        if width % 5 == 0 {
            app.update(UiCommand::Wrap);
        }
        draw(app, width, height);
    }
}

/// No cell contains a control character, even if the feed contains some.
#[test]
fn cells_hold_no_control_characters() {
    let mut scene = fixtures::bad_day();
    scene.app.ui.logs.show_log((5, LogFile::Rank { rank: 40, restart: 0 }));
    for screen in Screen::ALL {
        scene.app.ui.screen = screen;
        let buffer = draw(&mut scene.app, 120, 40);
        for cell in buffer.content() {
            assert!(cell.symbol().chars().all(|c| !c.is_control() && !('\u{202a}'..='\u{202e}').contains(&c)), "{:?}", cell.symbol());
        }
    }
}

/// An ASCII or monochrome theme uses nothing else.
#[test]
fn ascii_mono_theme_is_respected() {
    for (name, make) in FIXTURES {
        let mut scene = make();
        scene.app.model.theme = super::theme::Theme::new(super::theme::ColorScheme::Mono, true);
        scene.app.ui.overlay = Some(Overlay::Dialog(Dialog::choose_exit(&scene.app.model)));
        for screen in Screen::ALL {
            scene.app.ui.screen = screen;
            for cell in draw(&mut scene.app, 120, 40).content() {
                assert!(cell.symbol().is_ascii() && cell.fg == Color::Reset && cell.bg == Color::Reset, "{name}: {cell:?}");
            }
        }
    }
}

/// Every bound key is harmless in every fixture, and the screen can be drawn afterwards.
#[test]
fn every_key_is_safe_on_every_screen() {
    for (name, make) in FIXTURES {
        let mut scene = make();
        for screen in Screen::ALL {
            for row in DEFAULT_BINDINGS {
                scene.app.ui.screen = screen;
                scene.app.ui.overlay = None;
                scene.app.update(row.command);
                draw(&mut scene.app, 80, 24);
            }
        }
        assert!(
            !scene.app.pending_actions.iter().any(|action| matches!(action, super::feed::UserAction::Stop | super::feed::UserAction::Kill)),
            "{name}"
        );
    }
}

/// The log of the first screen stays the merged one: a line of it opens on the screen of logs.
#[test]
fn line_of_overview_log_opens_on_logs_screen() {
    let mut scene = fixtures::healthy();
    draw(&mut scene.app, 120, 40);
    scene.app.update(UiCommand::NextPane);
    scene.app.update(UiCommand::Open);
    assert_eq!(scene.app.ui.screen, Screen::Logs);
    scene.app.ui.screen = Screen::Overview;
    let text = snapshot_text(&draw(&mut scene.app, 120, 40));
    assert!(text.contains("all ranks, folded") && text.contains("r[0-15]                   16 step 20/400"), "{text}");
}

/// If a run uses only some of a host's GPUs, it is unknown which: no rank is shown beside one, and none counts as idle.
#[test]
fn ranks_stand_beside_gpus_only_where_all_are_used() {
    let mut scene = fixtures::training_hosts(2);
    assert!(snapshot_text(&draw(&mut scene.app, 120, 36)).contains("r15   ●"));
    (0..6).for_each(|_| scene.emit_gpus(0, 16, 0.0));
    let text = snapshot_text(&draw(&mut scene.app, 120, 50));
    let pane: Vec<&str> = text.lines().skip_while(|row| !row.contains("╭ gpu00 ·")).skip(1).take(8).collect();
    assert!(pane.len() == 8 && pane.iter().all(|row| !row.chars().take(60).any(|c| c == 'r')), "{text}");
}

/// The space of the first screen goes to what is there: with 2 to 16 hosts and a log no more than a quarter of the rows in a row is blank.
#[test]
fn overview_leaves_no_large_blank_area() {
    let is_blank = |row: &str| row.chars().all(|c| c == ' ' || c == '│');
    for hosts in [2, 3, 4, 7, 8, 16] {
        let mut scene = fixtures::training_hosts(hosts);
        for (width, height) in [(120, 36), (160, 40), (200, 50), (250, 80)] {
            let text = snapshot_text(&draw(&mut scene.app, width, height));
            let rows: Vec<&str> = text.lines().take(usize::from(height)).collect();
            let longest =
                rows.chunk_by(|a, b| is_blank(a) == is_blank(b)).filter(|run| is_blank(run[0])).map(<[_]>::len).max().unwrap_or(0);
            assert!(longest <= usize::from(height) / 4, "{hosts} hosts, {width}x{height}: {longest} blank rows\n{}", rows.join("\n"));
            assert!(rows.iter().any(|row| row.contains("╭ gpu00 ")), "{hosts} hosts, {width}x{height}: no panes");
        }
    }
}

/// Failed hosts come before healthy ones, and the cause before its effects.
#[test]
fn worst_hosts_and_cause_come_first() {
    let mut scene = fixtures::bad_day();
    let text = snapshot_text(&draw(&mut scene.app, 80, 24));
    let rows: Vec<&str> = text.lines().collect();
    let at = |host: &str, symbol: char| rows.iter().position(|row| row.starts_with(&format!("   {host} ")) && row.contains(symbol));
    assert!(at("gpu04", '✗').expect("a row") < at("gpu09", '?').expect("a row"), "{text}");
    assert!(at("gpu09", '?') < rows.iter().position(|row| row.starts_with(" + gpu")), "{text}");
    let cause = rows.iter().position(|row| row.contains("exit 1, failed first")).expect("the cause is shown");
    assert!(rows[..cause].iter().all(|row| !row.contains("clock is")), "{text}");
}

/// Equal hosts fold into one row where space is short; the row expands in place and collapses again; failed hosts never fold.
#[test]
fn equal_hosts_fold_and_unfold() {
    let mut scene = fixtures::many_hosts();
    let row = |app: &mut App, at: usize| snapshot_text(&draw(app, 80, 24)).lines().nth(at).unwrap_or_default().to_owned();
    assert!(row(&mut scene.app, 7).contains("gpu90 ") && row(&mut scene.app, 8).contains("127 hosts"));
    press_keys(&mut scene.app, "j l");
    assert!(row(&mut scene.app, 8).starts_with(" - gpu[00-89,91-") && row(&mut scene.app, 9).starts_with("     gpu00 "));
    press_keys(&mut scene.app, "G");
    assert!(snapshot_text(&draw(&mut scene.app, 80, 24)).contains(" gpu127 "));
    press_keys(&mut scene.app, "h");
    assert!(row(&mut scene.app, 8).starts_with(" + gpu[00-89,91-"), "folded from within");
    press_keys(&mut scene.app, "enter");
    assert!(snapshot_text(&draw(&mut scene.app, 80, 24)).contains(" gpu00  "), "the cursor stands on the folded row");
}

/// The same for the launch matrix, where hosts with equal progress share a row.
#[test]
fn launch_rows_fold_and_unfold() {
    let mut scene = fixtures::launching_hosts(40);
    let row = |app: &mut App, at: usize| snapshot_text(&draw(app, 80, 24)).lines().nth(at).unwrap_or_default().to_owned();
    assert!(row(&mut scene.app, 4).starts_with(" + gpu[02,04] "), "{}", row(&mut scene.app, 4));
    assert!(row(&mut scene.app, 5).starts_with(" + gpu[00-01,03"), "{}", row(&mut scene.app, 5));
    assert!(row(&mut scene.app, 6).starts_with('╭'), "what folds leaves its rows to others");
    press_keys(&mut scene.app, "l");
    assert!(row(&mut scene.app, 4).starts_with(" - gpu[02,04] ") && row(&mut scene.app, 5).contains("    gpu02 "));
    assert!(row(&mut scene.app, 6).contains("    gpu04 "));
    assert!(row(&mut scene.app, 7).starts_with(" + gpu[00-01,03"));
    press_keys(&mut scene.app, "j h");
    assert!(row(&mut scene.app, 4).starts_with(" + gpu[02,04] "), "folded from within");
    press_keys(&mut scene.app, "G l G");
    assert!(snapshot_text(&draw(&mut scene.app, 80, 24)).contains("     gpu39 "));
}

/// Matching GPUs keep their place, the rest is dimmed; n goes to the next match.
#[test]
fn gpu_matrix_dims_nonmatching_cells() {
    let mut scene = fixtures::bad_day();
    press_keys(&mut scene.app, "5 !");
    let buffer = draw(&mut scene.app, 80, 24);
    let text = snapshot_text(&buffer);
    // Eight of the lost host and of the one whose nvidia-smi fails, the dead rank's, and four odd ones.
    assert!(text.contains("only faults (!): 21 of 128 GPUs"), "{text}");
    let dimmed = |x: u16, y: u16| buffer[(x, y)].fg == Color::Indexed(244);
    assert!(dimmed(9 + 4, 5) && !dimmed(9 + 20, 8), "gpu01 is well, the dead rank's GPU is not");
    press_keys(&mut scene.app, "n");
    assert!(snapshot_text(&draw(&mut scene.app, 80, 24)).contains("rank 37 exit 1 | RuntimeError"), "from one to the next");
    press_keys(&mut scene.app, "! / t e m p > 8 0 space g p u 0 7 enter");
    assert!(snapshot_text(&draw(&mut scene.app, 80, 24)).contains("/temp>80 gpu07: 7 of 128 GPUs"));
    press_keys(&mut scene.app, "/ h o t > 1 enter");
    assert!(snapshot_text(&draw(&mut scene.app, 80, 24)).contains("unknown metric `hot`: use util, power, mem or temp"));
}

/// nvidia-smi is requested once until it responds; its output is shown with its age and sanitized.
#[test]
fn nvidia_smi_output_is_requested_and_shown() {
    use super::feed::UserAction;
    let mut scene = fixtures::healthy();
    press_keys(&mut scene.app, "2 v r v v");
    assert_eq!(scene.app.pending_actions, [UserAction::QueryNvidiaSmi(0)], "it has not answered yet");
    assert!(snapshot_text(&draw(&mut scene.app, 80, 24)).contains("waiting for nvidia-smi"));
    scene.advance(2_000);
    let text = "| 0  H200 \u{1b}[2J ERR! |\nthe end\n".to_owned();
    scene.emit(1, crate::event::EventKind::NvidiaSmi { host: 0, text, error: "it said 9".to_owned() });
    scene.advance(4_000);
    let shown = snapshot_text(&draw(&mut scene.app, 80, 24));
    assert!(shown.contains("nvidia-smi  4s ago") && shown.contains("ERR! |") && shown.contains("it said 9"), "{shown}");
    press_keys(&mut scene.app, "]");
    assert_eq!(scene.app.pending_actions, [UserAction::QueryNvidiaSmi(0), UserAction::QueryNvidiaSmi(1)], "the next host is asked too");
    scene.app.model.capabilities.role = super::feed::DashboardRole::Replay;
    press_keys(&mut scene.app, "[ r ]");
    assert_eq!(scene.app.pending_actions.len(), 2, "a replay requests nothing");
    assert!(snapshot_text(&draw(&mut scene.app, 80, 24)).contains("no nvidia-smi output of this host in the journal"));
}

pub(super) struct TextLog(pub(super) String);

impl super::feed::StoredLogs for TextLog {
    fn len(&self, _: &str, _: LogFile) -> std::io::Result<u64> {
        Ok(self.0.len() as u64)
    }
    fn read(&self, _: &str, _: LogFile, from: u64, most: usize) -> std::io::Result<Vec<u8>> {
        let from = usize::try_from(from).expect("small").min(self.0.len());
        Ok(self.0.as_bytes()[from..(from + most).min(self.0.len())].to_vec())
    }
}

pub(super) fn press_keys(app: &mut App, keys: &str) {
    for key in keys.split(' ') {
        if !app.handle_overlay_key(key) {
            let code = match key {
                "enter" => KeyCode::Enter,
                "esc" => KeyCode::Esc,
                "pgup" => KeyCode::PageUp,
                "tab" => KeyCode::Tab,
                "space" => KeyCode::Char(' '),
                key => KeyCode::Char(key.chars().next().expect("a key")),
            };
            let cmd = app
                .ui
                .bindings
                .command_for_key(KeyEvent::new(code, KeyModifiers::NONE), &app.ui.key_contexts(&app.model))
                .unwrap_or_else(|| panic!("{key} means nothing"));
            app.update(cmd);
        }
        draw(app, 80, 24);
    }
}

#[test]
fn log_search_works_both_ways() {
    let mut scene = fixtures::healthy();
    let mut text: String = (0..50_000).map(|n| format!("line {n}\n")).collect();
    text.insert_str(0, "Error one\n");
    text.push_str("an ERROR two\nthe end\n");
    scene.app.handle_message(super::feed::FeedMessage::StoredLogs(Box::new(TextLog(text))));
    press_keys(&mut scene.app, "4 / e r r o r enter");
    let shown = |app: &mut App| snapshot_text(&draw(app, 80, 24));
    assert!(shown(&mut scene.app).contains(">an ERROR two"), "the newest first, ignoring case");
    press_keys(&mut scene.app, "n");
    assert!(shown(&mut scene.app).contains(">Error one"));
    press_keys(&mut scene.app, "n");
    assert!(shown(&mut scene.app).contains("no earlier line matches"));
    scene.advance(9_000);
    press_keys(&mut scene.app, "N");
    assert!(shown(&mut scene.app).contains(">an ERROR two"));
    press_keys(&mut scene.app, "pgup");
    let before = shown(&mut scene.app);
    scene.advance(500);
    assert_eq!(body_rows(&before), body_rows(&shown(&mut scene.app)), "time moves nothing");
    press_keys(&mut scene.app, "/ ( enter");
    assert!(shown(&mut scene.app).contains("no earlier line matches"), "what is no regular expression is text");
}

/// The rows between header and footer.
fn body_rows(picture: &str) -> Vec<String> {
    picture.lines().skip(3).take(20).map(str::to_owned).collect()
}

#[test]
fn problem_opens_its_log() {
    let mut scene = fixtures::bad_day();
    press_keys(&mut scene.app, "7 enter");
    let text = snapshot_text(&draw(&mut scene.app, 80, 24));
    assert!(text.contains("LOG r37 gpu04:g5") && text.contains("RuntimeError: CUDA error"), "{text}");
    press_keys(&mut scene.app, "1 enter");
    assert!(snapshot_text(&draw(&mut scene.app, 80, 24)).contains(" gpu04  ✗ rank 37: exit 1"));
}
