//! Appearance: every screen against its snapshot, and every size without a panic.

use std::fmt::Write as _;
use std::path::Path;

use ratatui::Terminal;
use ratatui::backend::TestBackend;
use ratatui::buffer::Buffer;
use ratatui::style::{Color, Modifier};

use crate::event::LogFile;
use crate::text::golden::assert_golden;

use super::app::App;
use super::default_bindings::DEFAULT_BINDINGS;
use super::dialog::Dialog;
use super::fixtures::{self, BuildFixture, DashboardFixture};
use super::keymap::UiCommand;
use super::model::Model;
use super::ui::{Overlay, Screen};
use super::view;

pub(super) fn draw(app: &mut App, width: u16, height: u16) -> Buffer {
    let mut terminal = Terminal::new(TestBackend::new(width, height)).expect("a terminal of memory");
    terminal.draw(|frame| app.draw(frame)).expect("drawn");
    terminal.backend().buffer().clone()
}

/// The text of a screen, without the blanks at the ends of its rows.
pub(super) fn cell_text(buffer: &Buffer) -> String {
    let mut text = String::new();
    for y in 0..buffer.area.height {
        let mut row = String::new();
        let mut skip = 0;
        for x in 0..buffer.area.width {
            let symbol = buffer[(x, y)].symbol();
            if skip == 0 {
                row.push_str(symbol);
                skip = unicode_width::UnicodeWidthStr::width(symbol);
            }
            skip = skip.saturating_sub(1);
        }
        writeln!(text, "{}", row.trim_end()).expect("a String takes all");
    }
    text
}

pub(super) fn screen_text(app: &mut App, width: u16, height: u16) -> String {
    cell_text(&draw(app, width, height))
}

/// The text of a screen followed by the styles of its columns.
fn snapshot_text(buffer: &Buffer) -> String {
    let mut styles = String::new();
    for y in 0..buffer.area.height {
        let mut runs: Vec<(u16, u16, String)> = Vec::new();
        for x in 0..buffer.area.width {
            let cell = &buffer[(x, y)];
            let style = style_text(cell.fg, cell.modifier);
            match runs.last_mut() {
                Some((_, end, known)) if *known == style => *end = x,
                _ => runs.push((x, x, style)),
            }
        }
        for (from, to, style) in runs.into_iter().filter(|run| !run.2.is_empty()) {
            writeln!(styles, "{y}:{from}-{to} {style}").expect("a String takes all");
        }
    }
    format!("{}---\n{styles}", cell_text(buffer))
}

type NamedDialog = (&'static str, fn(&Model) -> Dialog);

/// The dialogs of a run.
pub(super) const DIALOGS: [NamedDialog; 5] = [
    ("leave", Dialog::choose_exit),
    ("stop", Dialog::confirm_stop),
    ("kill", Dialog::confirm_kill),
    ("restart", Dialog::confirm_restart),
    ("tear-down", Dialog::confirm_teardown),
];

fn style_text(color: Color, modifier: Modifier) -> String {
    let color = match color {
        Color::Reset => String::new(),
        Color::Indexed(index) => format!("{index}"),
        other => format!("{other:?}"),
    };
    let modifier = if modifier.is_empty() { String::new() } else { format!("{modifier:?}") };
    [color, modifier].into_iter().filter(|part| !part.is_empty()).collect::<Vec<_>>().join(" ")
}

/// Compares with the snapshot in `pictures/`.
fn assert_snapshot(name: &str, buffer: &Buffer) {
    assert_golden(&format!("src/tui/pictures/{name}.txt"), &snapshot_text(buffer));
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
                let title = screen.name().to_lowercase();
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
        for (name, build) in DIALOGS {
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
                // Other tests read these files at the same time.
                if std::fs::read(kept.join(part).join(&file)).ok().as_ref() != Some(&text) {
                    std::fs::write(kept.join(part).join(file), text).expect("written");
                }
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
            // The backend writes no other colors.
            assert!([cell.fg, cell.bg].iter().all(|color| matches!(color, Color::Reset | Color::Indexed(_))), "{cell:?}");
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

pub(super) fn press_keys(app: &mut App, keys: &str) {
    for key in keys.split(' ') {
        if !app.handle_overlay_key(key) {
            let cmd = app.model.bindings.command_for_key(key, &app.ui.key_contexts(&app.model));
            app.update(cmd.unwrap_or_else(|| panic!("{key} means nothing")));
        }
        draw(app, 80, 24);
    }
}
