//! Every screen in Chinese at two sizes: no character is cut in half, frames are whole, and the words that stay English are those in
//! `tests/data/zh/words.txt`; `BLESS=1` rewrites the file. With `SCREENS` in the environment the screens are printed.

use std::collections::BTreeSet;

use ratatui::buffer::Buffer;
use unicode_width::UnicodeWidthStr as _;

use super::command_palette::CommandPalette;
use super::fixtures::{self, DashboardFixture};
use super::model::Model;
use super::screen_matrix_tests::{bad_day, frames, healthy, planned, straggler};
use super::tests::{DIALOGS, cell_text, draw};
use super::text_input::TextInput;
use super::ui::{Overlay, Screen};
use crate::text::golden::assert_golden;
use crate::text::translation::Lang;

const SIZES: [(u16, u16); 2] = [(80, 24), (120, 36)];

/// # Panics
/// Where a wide character is cut by the edge or by what is drawn over it.
fn check_cells(buffer: &Buffer, what: &str) {
    let wide = |x: u16, y: u16| buffer[(x, y)].symbol().width() > 1;
    for y in 0..buffer.area.height {
        let last = buffer.area.width - 1;
        let cut = (0..last).find(|x| wide(*x, y) && ![" ", ""].contains(&buffer[(x + 1, y)].symbol()));
        let cut = cut.or(wide(last, y).then_some(last));
        assert_eq!(cut, None, "{what}: a character is cut in row {y}\n{}", cell_text(buffer));
    }
}

/// The words of Latin letters; those of names with digits are left out.
fn english_words(buffer: &Buffer) -> BTreeSet<String> {
    let text = cell_text(buffer);
    let tokens = text.split(|c: char| !c.is_ascii_alphanumeric() && !"-_.".contains(c));
    let is_word = |word: &&str| word.len() > 1 && word.bytes().all(|b| b.is_ascii_alphabetic());
    tokens.map(|token| token.trim_matches(['-', '_', '.'])).filter(is_word).map(str::to_owned).collect()
}

fn scenes() -> Vec<(&'static str, DashboardFixture)> {
    vec![
        ("healthy", healthy(4)),
        ("healthy-many", healthy(16)),
        ("bad", bad_day(4)),
        ("bad-many", fixtures::bad_day()),
        ("slow", straggler(4)),
        ("plan", planned(4)),
        ("launch", fixtures::launching_six_hosts()),
        ("prepare", fixtures::preparing_hosts(4)),
        ("ended", fixtures::finished_run()),
        ("down", fixtures::tearing_down()),
        ("empty", fixtures::empty()),
    ]
}

fn overlays(model: &Model) -> Vec<(&'static str, Overlay)> {
    let input = |text: &str| TextInput { text: text.to_owned() };
    let mut all: Vec<(&'static str, Overlay)> = DIALOGS.map(|(name, build)| (name, Overlay::Dialog(build(model)))).into();
    all.extend((0..60).step_by(15).map(|from| ("help", Overlay::Help(from))));
    all.push(("find", Overlay::Find(input(&"显存不足".repeat(30)))));
    all.push(("filter", Overlay::Filter(input("错误"))));
    for text in ["", "日志", "zz"] {
        all.push(("palette", Overlay::Palette(CommandPalette { prompt: input(text), selected: 0 })));
    }
    all
}

#[test]
fn screens_are_whole_and_chinese() {
    let mut words = BTreeSet::new();
    for (kind, mut scene) in scenes() {
        scene.app.model.lang = Lang::Zh;
        scene.app.model.update_totals();
        for (width, height) in SIZES {
            for screen in Screen::ALL {
                scene.app.ui.screen = screen;
                let name = format!("{kind}-{}-{width}x{height}", screen.name());
                let buffer = draw(&mut scene.app, width, height);
                if std::env::var_os("SCREENS").is_some() {
                    println!("== {name}\n{}", cell_text(&buffer));
                }
                check_cells(&buffer, &name);
                frames(&buffer, &name);
                words.extend(english_words(&buffer));
            }
            scene.app.ui.screen = Screen::Overview;
            for (name, overlay) in overlays(&scene.app.model).into_iter().filter(|_| ["healthy", "bad-many"].contains(&kind)) {
                scene.app.ui.overlay = Some(overlay);
                let buffer = draw(&mut scene.app, width, height);
                check_cells(&buffer, &format!("{kind}-{name}-{width}x{height}"));
                words.extend(english_words(&buffer));
            }
            scene.app.ui.overlay = None;
        }
    }
    let now: String = words.into_iter().map(|word| word + "\n").collect();
    assert_golden("tests/data/zh/words.txt", &now);
}
