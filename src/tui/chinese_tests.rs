//! The dashboard in Chinese at 80x24; `BLESS=1` writes the pictures in `tests/data/zh`.

use super::fixtures::{self, DashboardFixture};
use super::tests::{DIALOGS, screen_text};
use super::ui::{Overlay, Screen};
use crate::text::golden::assert_golden;
use crate::text::translation::Lang;

fn assert_picture(name: &str, scene: &mut DashboardFixture) {
    scene.app.model.lang = Lang::Zh;
    assert_golden(&format!("tests/data/zh/{name}.txt"), &screen_text(&mut scene.app, 80, 24));
}

#[test]
fn first_screen() {
    assert_picture("overview-healthy", &mut fixtures::healthy());
    assert_picture("overview-bad-day", &mut fixtures::bad_day());
    assert_picture("overview-launch", &mut fixtures::launching_six_hosts());
    assert_picture("overview-ended", &mut fixtures::finished_run());
}

#[test]
fn other_screens() {
    let mut scene = fixtures::bad_day();
    for (name, screen) in [("ranks", Screen::Ranks), ("events", Screen::Events), ("problems", Screen::Problems)] {
        scene.app.ui.screen = screen;
        assert_picture(name, &mut scene);
    }
}

#[test]
fn help_and_dialogs() {
    let mut scene = fixtures::healthy();
    scene.app.model.lang = Lang::Zh;
    scene.app.ui.overlay = Some(Overlay::Help(0));
    assert_picture("help", &mut scene);
    for (name, build) in DIALOGS.into_iter().filter(|(name, _)| ["leave", "tear-down"].contains(name)) {
        scene.app.ui.overlay = Some(Overlay::Dialog(build(&scene.app.model)));
        assert_picture(name, &mut scene);
    }
}
