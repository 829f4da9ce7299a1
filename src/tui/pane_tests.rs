//! What panes show, and how they react to keys.

use ratatui::style::Color;

use super::app::App;
use super::fixtures::{self, DashboardFixture};
use super::keymap::UiCommand;
use super::log_source::MemoryLog;
use super::tests::{cell_text, draw, press_keys, screen_text};
use super::text_input::TextInput;
use super::ui::{Overlay, Screen};
use super::view::figure_age::has_old_figures;
use crate::event::{EventKind, Outcome};

/// The log of the first screen stays the merged one: a line of it opens on the screen of logs.
#[test]
fn line_of_overview_log_opens_on_logs_screen() {
    let mut scene = fixtures::healthy();
    draw(&mut scene.app, 120, 40);
    scene.app.update(UiCommand::NextPane);
    scene.app.update(UiCommand::Open);
    assert_eq!(scene.app.ui.screen, Screen::Logs);
    scene.app.ui.screen = Screen::Overview;
    let text = screen_text(&mut scene.app, 120, 40);
    assert!(text.contains("all ranks, folded") && text.contains("r[0-15] 16 step 20/400"), "{text}");
}

/// The end of a long text is what is being typed, also where its characters are wide.
#[test]
fn prompt_shows_the_end_of_its_text() {
    let mut scene = fixtures::healthy();
    scene.app.ui.overlay = Some(Overlay::Find(TextInput { text: "显存".repeat(40) + "末" }));
    let text = screen_text(&mut scene.app, 80, 24);
    assert!(text.lines().last().is_some_and(|row| row.ends_with('末')), "{text}");
}

/// Where no log is drawn, no key leads to it.
#[test]
fn focus_goes_to_log_only_where_it_is_drawn() {
    let mut scene = fixtures::launching_six_hosts();
    assert!(!screen_text(&mut scene.app, 120, 36).contains("tab pane"));
    scene.app.update(UiCommand::NextPane);
    scene.app.update(UiCommand::Open);
    assert_eq!(scene.app.ui.screen, Screen::Host);
    let mut scene = fixtures::training_hosts(2);
    assert!(screen_text(&mut scene.app, 120, 36).contains("tab pane"));
}

/// If a run uses only some of a host's GPUs, it is unknown which: no rank is shown beside one, and none counts as idle.
#[test]
fn ranks_stand_beside_gpus_only_where_all_are_used() {
    let mut scene = fixtures::training_hosts(2);
    assert!(screen_text(&mut scene.app, 120, 36).contains("r15   ●"));
    (0..6).for_each(|_| scene.emit_gpus(0, 16, 0.0));
    let text = screen_text(&mut scene.app, 120, 50);
    let pane: Vec<&str> = text.lines().skip_while(|row| !row.contains("╭ gpu00 ·")).skip(1).take(8).collect();
    assert!(pane.len() == 8 && pane.iter().all(|row| !row.chars().take(60).any(|c| c == 'r')), "{text}");
}

/// Failed hosts come before healthy ones, and the cause before its effects.
#[test]
fn worst_hosts_and_cause_come_first() {
    let mut scene = fixtures::bad_day();
    let text = screen_text(&mut scene.app, 80, 24);
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
    let row = |app: &mut App, at: usize| screen_text(app, 80, 24).lines().nth(at).unwrap_or_default().to_owned();
    assert!(row(&mut scene.app, 7).contains("gpu90 ") && row(&mut scene.app, 8).contains("127 hosts"));
    press_keys(&mut scene.app, "j l");
    assert!(row(&mut scene.app, 8).starts_with(" - gpu[00-89,91-") && row(&mut scene.app, 9).starts_with("     gpu00 "));
    press_keys(&mut scene.app, "G");
    assert!(screen_text(&mut scene.app, 80, 24).contains(" gpu127 "));
    press_keys(&mut scene.app, "h");
    assert!(row(&mut scene.app, 8).starts_with(" + gpu[00-89,91-"), "folded from within");
    press_keys(&mut scene.app, "enter");
    assert!(screen_text(&mut scene.app, 80, 24).contains(" gpu00  "), "the cursor stands on the folded row");
}

/// The same for the launch matrix, where hosts with equal progress share a row.
#[test]
fn launch_rows_fold_and_unfold() {
    let mut scene = fixtures::launching_hosts(40);
    // The row of a host, counted from the heading of the matrix.
    let row = |app: &mut App, at: usize| {
        let text = screen_text(app, 80, 24);
        text.lines().skip_while(|row| !row.contains(" HOST ")).nth(at).unwrap_or_default().to_owned()
    };
    assert!(screen_text(&mut scene.app, 80, 24).contains("▲ gpu02  pull: registry: connection reset"), "a problem");
    // A host that tries again shares no row with one that does not.
    assert!(row(&mut scene.app, 1).starts_with(" gpu02 ") && row(&mut scene.app, 1).contains("▲ "), "{}", row(&mut scene.app, 1));
    assert!(row(&mut scene.app, 2).starts_with(" gpu04 ") && !row(&mut scene.app, 2).contains('▲'), "{}", row(&mut scene.app, 2));
    let folded = row(&mut scene.app, 3);
    assert!(folded.starts_with(" + 38 hosts ") && folded.contains(" 2m32s"), "the time of the slowest: {folded}");
    assert!(row(&mut scene.app, 4).starts_with('╭'), "what folds leaves its rows to others");
    press_keys(&mut scene.app, "G l");
    assert!(row(&mut scene.app, 3).starts_with(" - 38 hosts "), "{}", row(&mut scene.app, 3));
    let first = row(&mut scene.app, 4);
    assert!(first.contains("    gpu00 ") && !first.contains(" 2m32s"), "each host has its own time: {first}");
    press_keys(&mut scene.app, "j h");
    assert!(row(&mut scene.app, 3).starts_with(" + 38 hosts "), "folded from within");
    press_keys(&mut scene.app, "G l G");
    let bottom = screen_text(&mut scene.app, 80, 24);
    assert!(bottom.contains("     gpu39 ") && bottom.contains(" 2m32s"), "{bottom}");
}

/// Matching GPUs keep their place, the rest is dimmed; n goes to the next match.
#[test]
fn gpu_matrix_dims_nonmatching_cells() {
    let mut scene = fixtures::bad_day();
    press_keys(&mut scene.app, "5 !");
    let buffer = draw(&mut scene.app, 80, 24);
    let text = cell_text(&buffer);
    // Eight of the lost host and of the one whose nvidia-smi fails, the dead rank's, and four odd ones.
    assert!(text.contains("only faults (!): 21 of 128 GPUs"), "{text}");
    let dimmed = |x: u16, y: u16| buffer[(x, y)].fg == Color::Indexed(244);
    assert!(dimmed(9 + 4, 5) && !dimmed(9 + 20, 8), "gpu01 is well, the dead rank's GPU is not");
    assert!(text.contains("rank 37 exit 1 | RuntimeError"), "the cursor is on the GPU of the rank that failed first: {text}");
    press_keys(&mut scene.app, "n");
    let next = screen_text(&mut scene.app, 80, 24);
    assert!(next.contains("\n gpu07 g1 ") && !next.contains("rank 37 exit"), "from one to the next: {next}");
    press_keys(&mut scene.app, "! / t e m p > 8 0 space g p u 0 7 enter");
    assert!(screen_text(&mut scene.app, 80, 24).contains("/temp>80 gpu07: 7 of 128 GPUs"));
    press_keys(&mut scene.app, "/ h o t > 1 enter");
    assert!(screen_text(&mut scene.app, 80, 24).contains("unknown metric `hot`: use util, power, mem or temp"));
}

/// nvidia-smi is requested once until it responds; its output is shown with its age and sanitized.
#[test]
fn nvidia_smi_output_is_requested_and_shown() {
    use super::feed::UserAction;
    let mut scene = fixtures::healthy();
    press_keys(&mut scene.app, "2 v r v v");
    assert_eq!(scene.app.pending_actions, [UserAction::QueryNvidiaSmi(0)], "it has not answered yet");
    assert!(screen_text(&mut scene.app, 80, 24).contains("waiting for nvidia-smi"));
    scene.advance(2_000);
    let text = "| 0  H200 \u{1b}[2J ERR! |\nthe end\n".to_owned();
    scene.emit(1, crate::event::EventKind::NvidiaSmi { host: 0, text, error: "it said 9".to_owned() });
    scene.advance(4_000);
    let shown = screen_text(&mut scene.app, 80, 24);
    assert!(shown.contains("nvidia-smi  4s ago") && shown.contains("ERR! |") && shown.contains("it said 9"), "{shown}");
    press_keys(&mut scene.app, "]");
    assert_eq!(scene.app.pending_actions, [UserAction::QueryNvidiaSmi(0), UserAction::QueryNvidiaSmi(1)], "the next host is asked too");
    scene.app.model.capabilities.role = super::feed::DashboardRole::Replay;
    press_keys(&mut scene.app, "[ r ]");
    assert_eq!(scene.app.pending_actions.len(), 2, "a replay requests nothing");
    assert!(screen_text(&mut scene.app, 80, 24).contains("no nvidia-smi output of this host in the journal"));
}

#[test]
fn log_search_works_both_ways() {
    let mut scene = fixtures::healthy();
    let mut text: String = (0..50_000).map(|n| format!("line {n}\n")).collect();
    text.insert_str(0, "Error one\n");
    text.push_str("an ERROR two\nthe end\n");
    scene.app.handle_message(super::feed::FeedMessage::StoredLogs(Box::new(MemoryLog(text.into_bytes()))));
    press_keys(&mut scene.app, "4 / e r r o r enter");
    let shown = |app: &mut App| screen_text(app, 80, 24);
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
    let text = screen_text(&mut scene.app, 80, 24);
    assert!(text.contains("LOG r37 gpu04:g5") && text.contains("RuntimeError: CUDA error"), "{text}");
    press_keys(&mut scene.app, "1 enter");
    assert!(screen_text(&mut scene.app, 80, 24).contains(" gpu04  host 5 of 16  ✗ rank 37: exit 1"));
}

/// `/` leaves only the ranks that match, and Esc shows all again.
#[test]
fn ranks_are_found_by_number_and_host() {
    let mut scene = fixtures::training_hosts(4);
    let text = |scene: &mut fixtures::DashboardFixture, width, height| screen_text(&mut scene.app, width, height);
    press_keys(&mut scene.app, "3 / g p u 0 2 space r 1 7 - r 1 9 enter");
    let framed = text(&mut scene, 120, 36);
    assert!(
        framed.contains("╭ 3 of 32 ranks  /gpu02 r17-r19  esc shows all  worst first ─") && framed.contains("    19 gpu02 "),
        "{framed}"
    );
    assert!(!framed.contains("    16 gpu02 ") && framed.contains("╭ ● r17 on gpu02 running"), "its log is below: {framed}");
    let bare = text(&mut scene, 80, 24);
    assert!(bare.contains(" … 3 of 32 ranks  /gpu02 r17-r19  esc shows all"), "{bare}");
    press_keys(&mut scene.app, "/ 9 9 enter");
    assert!(text(&mut scene, 80, 24).contains(" no rank matches"));
    press_keys(&mut scene.app, "esc");
    assert!(text(&mut scene, 120, 36).contains("╭ 32 ranks  worst first "));
}

/// However the screen is opened, the log is that of the rank that failed first; tabs without names are where they are drawn.
#[test]
fn tabs_make_room_for_the_reason_and_open_the_failed_log() {
    let open = |keys: &str, click: Option<(u16, u16)>| {
        let mut scene = fixtures::bad_day();
        press_keys(&mut scene.app, keys);
        draw(&mut scene.app, 80, 24);
        if let Some((x, y)) = click {
            assert!(scene.app.handle_click(x, y, false), "a tab at {x}");
        }
        screen_text(&mut scene.app, 80, 24)
    };
    for (keys, click) in [("4", None), ("3 tab", None), ("6", Some((27, 1)))] {
        let text = open(keys, click);
        assert!(
            text.contains("1-Overview 2-Host 3-Ranks 4-[Logs] 5 6 7-Problems ?") && text.contains("rank 37 failed first"),
            "{keys}: {text}"
        );
        assert!(text.contains("LOG r37 gpu04"), "{keys}: {text}");
    }
    assert!(open("1", None).contains("1-[Overview] 2-Host 3-Ranks"), "its pane has the failure");
}

/// A frame of a table comes and goes with the size alone, and a click hits the row that is under it.
#[test]
fn framed_tables_keep_their_clicks() {
    let mut scene = fixtures::healthy();
    press_keys(&mut scene.app, "3");
    draw(&mut scene.app, 120, 36);
    // The header of the screen, the frame, the header of the table.
    assert!(scene.app.handle_click(10, 2 + 1 + 1 + 5, false));
    let text = screen_text(&mut scene.app, 120, 36);
    assert!(text.contains("╭ 16 ranks  worst first ─") && text.contains("╭ ● r5 on gpu00 running "), "{text}");
    draw(&mut scene.app, 80, 24);
    assert!(scene.app.handle_click(10, 2 + 1 + 7, false));
    assert!(screen_text(&mut scene.app, 120, 36).contains("╭ ● r7 on gpu00 running "));
}

/// A host without GPU data has its row inside the frame of the others; the log below is the one that `o` opens.
#[test]
fn gpu_rows_name_every_host() {
    let mut scene = fixtures::launching_hosts(6);
    press_keys(&mut scene.app, "5");
    let text = screen_text(&mut scene.app, 120, 40);
    let rows: Vec<&str> = text.lines().collect();
    let bottom = rows.iter().position(|row| row.starts_with('╰')).expect("a frame");
    for host in 0..6 {
        let row = rows.iter().position(|row| row.contains(&format!("gpu0{host} ")) && row.contains("no GPU data yet"));
        assert!(row.is_some_and(|row| row < bottom), "gpu0{host}: {text}");
    }
    let mut scene = fixtures::healthy();
    press_keys(&mut scene.app, "5 j j j");
    assert!(screen_text(&mut scene.app, 120, 40).contains("╭ ● r3 on gpu00 "));
    press_keys(&mut scene.app, "o");
    assert!(screen_text(&mut scene.app, 120, 40).contains(" LOG r3 gpu00:g3"));
}

/// What is known of a lost host is old, also when the run has ended; a host whose rank has failed still has new values.
#[test]
fn figures_are_old_only_of_hosts_that_are_lost() {
    let mut scene = super::screen_matrix_tests::bad_day(4);
    let old = |scene: &DashboardFixture, at: u32| has_old_figures(&scene.app.model, at);
    draw(&mut scene.app, 120, 36);
    assert_eq!([0, 2, 3].map(|at| old(&scene, at)), [false, false, true]);
    scene.emit(10, EventKind::RunFinished { outcome: Outcome::Failed, reason: String::new() });
    scene.advance(1_000);
    draw(&mut scene.app, 120, 36);
    assert!(old(&scene, 3), "no new values come");
}

/// Where an event has no log of a rank, the log of the rank that failed first is beside the events, and the key opens the one that is shown.
#[test]
fn events_open_the_log_that_they_show() {
    let mut scene = super::screen_matrix_tests::bad_day(4);
    press_keys(&mut scene.app, "6");
    let text = screen_text(&mut scene.app, 120, 36);
    assert!(text.contains("╭ ✗ r3 on gpu00 ") || text.contains("┏ ✗ r3 on gpu00 "), "{text}");
    press_keys(&mut scene.app, "o");
    assert!(screen_text(&mut scene.app, 120, 36).contains("LOG r3 gpu00"));
    press_keys(&mut scene.app, "6");
    draw(&mut scene.app, 80, 24);
    press_keys(&mut scene.app, "o");
    let text = screen_text(&mut scene.app, 80, 24);
    assert!(text.contains("this event has no log"), "there is no room for a log here: {text}");
}
