//! What keys do that people press first: Esc, a wrong name, a key of a read-only dashboard, the end of a replay.

use ratatui::buffer::Buffer;
use ratatui::style::Color;

use super::dialog::CONFIRM_DELAY_MS;
use super::feed::{DashboardCapabilities, DashboardRole, FeedMessage, ReplayClock, UserAction};
use super::fixtures;
use super::keymap::UiCommand;
use super::tests::{cell_text, draw, press_keys, screen_text};
use super::ui::{Overlay, Screen};
use crate::event::{EventKind, Outcome};

#[test]
fn esc_goes_back_step_by_step() {
    let mut scene = fixtures::healthy();
    press_keys(&mut scene.app, "4 o z / l o s s enter");
    draw(&mut scene.app, 120, 40);
    let screens: Vec<Screen> = (0..3)
        .map(|_| {
            scene.app.update(UiCommand::Back);
            scene.app.ui.screen
        })
        .collect();
    assert_eq!(screens, [Screen::Logs, Screen::Logs, Screen::Overview], "the search, the zoom, then the screen");
    press_keys(&mut scene.app, "z esc");
    assert_eq!((scene.app.ui.screen, scene.app.ui.overview.zoomed), (Screen::Overview, false), "the zoom has ended");
    press_keys(&mut scene.app, "5 ! esc");
    assert_eq!(scene.app.ui.screen, Screen::Gpus);
    press_keys(&mut scene.app, "esc");
    assert_eq!(scene.app.ui.screen, Screen::Overview);
}

#[test]
fn dialogs_answer() {
    let mut scene = fixtures::healthy();
    scene.app.update(UiCommand::TearDown);
    scene.advance(CONFIRM_DELAY_MS);
    for key in ["w", "a", "n", "enter"] {
        scene.app.handle_overlay_key(key);
    }
    let text = screen_text(&mut scene.app, 120, 40);
    assert!(text.contains("That is not the run's name. Type wan22, or press Esc"), "{text}");
    for key in ["2", "2", "enter"] {
        scene.app.handle_overlay_key(key);
    }
    assert_eq!(scene.app.pending_actions, [UserAction::TearDown]);
    scene.app.update(UiCommand::Kill);
    scene.app.handle_overlay_key("n");
    assert!(screen_text(&mut scene.app, 120, 40).contains("nothing was changed"));
}

#[test]
fn readonly_is_shown_and_explained() {
    let mut scene = fixtures::healthy();
    assert!(!screen_text(&mut scene.app, 120, 40).contains("READ-ONLY"));
    scene.app.set_readonly();
    scene.app.explain_readonly("X");
    let text = screen_text(&mut scene.app, 120, 40);
    assert!(text.contains("READ-ONLY") && text.contains("read-only: `tear-down` needs a dashboard without --readonly"), "{text}");
    scene.app.explain_readonly("H");
    assert!(screen_text(&mut scene.app, 120, 40).contains("read-only: `stop` needs"), "as the palette and the help call it");
    assert!(scene.app.pending_actions.is_empty() && scene.app.ui.overlay != Some(Overlay::Help(0)));
}

#[test]
fn hints_name_the_keys_that_the_user_has_bound() {
    let mut scene = fixtures::bad_day();
    assert!(screen_text(&mut scene.app, 160, 50).contains("press 7 for more"));
    scene.app.model.bindings.rebind(UiCommand::Problems, &["f7".to_owned()]);
    assert!(screen_text(&mut scene.app, 160, 50).contains("press f7 for more"));
    scene.app.model.bindings.rebind(UiCommand::Mark, &[]);
    press_keys(&mut scene.app, "4 '");
    let text = screen_text(&mut scene.app, 160, 50);
    assert!(text.contains("no marked lines: press :mark to mark one"), "{text}");
}

#[test]
fn replay_goes_to_its_end_and_to_the_first_failure() {
    let mut scene = fixtures::bad_day();
    scene.app.handle_message(FeedMessage::Capabilities(DashboardCapabilities::view_only(DashboardRole::Replay)));
    scene.app.handle_message(FeedMessage::ReplayClock(ReplayClock { paused: true, speed: 1.0, start: 1_000, end: 61_000 }));
    press_keys(&mut scene.app, "G");
    assert_eq!(scene.app.pending_actions, [UserAction::Seek(60_000)]);
    press_keys(&mut scene.app, "4 G");
    assert_eq!(scene.app.pending_actions.len(), 1, "in a log it is the newest line");
    press_keys(&mut scene.app, "x");
    assert_eq!(scene.app.pending_actions[1], UserAction::SeekFirstFailure);
}

/// What was is not what is; but a failed rank's GPU keeps its mark.
#[test]
fn matrix_of_an_ended_run_is_grey_with_its_age() {
    let mut scene = fixtures::bad_day();
    press_keys(&mut scene.app, "5");
    let is_dim = |buffer: &Buffer, x: u16, y: u16| buffer[(x, y)].fg == Color::Indexed(244);
    let buffer = draw(&mut scene.app, 80, 24);
    assert!(!is_dim(&buffer, 9 + 4, 5) && !cell_text(&buffer).contains(" old\""), "{}", cell_text(&buffer));
    scene.emit(500, EventKind::RunFinished { outcome: Outcome::Failed, reason: String::new() });
    scene.advance(60_000);
    let buffer = draw(&mut scene.app, 80, 24);
    let text = cell_text(&buffer);
    assert!(text.contains("values 1m old"), "{text}");
    assert!(is_dim(&buffer, 9 + 4, 5), "{text}");
    assert!(buffer[(9 + 21, 8)].symbol() == "✗" && !is_dim(&buffer, 9 + 21, 8), "{text}");
}

/// The same of the GPUs of one host.
#[test]
fn host_of_an_ended_run_is_grey() {
    let mut scene = fixtures::finished_run();
    press_keys(&mut scene.app, "2");
    let is_dim = |scene: &mut fixtures::DashboardFixture| {
        let buffer = draw(&mut scene.app, 80, 24);
        let text = cell_text(&buffer);
        let (y, row) = (0..).zip(text.lines()).find(|(_, row)| row.contains(" 96% ")).expect("a GPU");
        let x = row.split(" 96% ").next().map_or(0, |before| before.chars().count()) + 1;
        buffer[(u16::try_from(x).expect("small"), y)].fg == Color::Indexed(244)
    };
    assert!(!is_dim(&mut scene));
    scene.advance(60_000);
    assert!(is_dim(&mut scene));
}
