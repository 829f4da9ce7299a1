//! The first two rows of every screen: the run, its state and the counts of problems; the screens, and why the run ends.

use ratatui::style::Style;
use ratatui::text::{Line, Span};
use unicode_width::UnicodeWidthStr as _;

use crate::event::{Outcome, RunGoal};
use crate::report::style;
use crate::state::ConnectionStatus;
use crate::text::translation::Lang;
use crate::tui::feed::DashboardRole;
use crate::tui::keymap::UiCommand;
use crate::tui::model::Model;
use crate::tui::theme::DisplayStatus;
use crate::tui::ui::Screen;

use super::formatting;

/// A longer name may be cut to so many columns.
const MIN_NAME_WIDTH: usize = 12;
/// From this width on the header counts hosts and ranks in words.
const WIDE_HEADER: usize = 90;
/// `  live 12:03:02`: what is followed and the time of day, with the gap before them.
const CLOCK_COLUMNS: usize = 15;
/// A reason that needs more columns is cut rather than the names of the tabs.
const MAX_SHORTENING_REASON: usize = 30;

/// The key of each screen.
fn tab_keys(model: &Model) -> [String; Screen::ALL.len()] {
    Screen::ALL.map(|screen| model.key(screen.command()))
}

/// The texts of the tabs: the first `named` with their names, of the others only the keys. The current one is in brackets and keeps its name; so
/// does the one that explains why the tabs are short.
fn tab_texts(lang: Lang, keys: &[String], shown: Screen, named: usize) -> impl Iterator<Item = (Screen, String)> {
    Screen::ALL.into_iter().zip(keys).enumerate().map(move |(at, (screen, key))| {
        let name = lang.term(screen.name());
        let text = match screen == shown {
            true => format!("{key}-[{name}] "),
            false if at >= named && screen != Screen::Problems => format!("{key} "),
            false => format!("{key}-{name} "),
        };
        (screen, text)
    })
}

/// The screen whose tab covers this column of the second row.
pub(super) fn tab_at(model: &Model, shown: Screen, named: usize, x: usize) -> Option<Screen> {
    let mut left = 1;
    let mut covers = |text: &str| {
        left += text.width();
        (left - text.width()..left).contains(&x)
    };
    tab_texts(model.lang, &tab_keys(model), shown, named).find(|(_, text)| covers(text)).map(|(screen, _)| screen)
}

/// Status of the run as a label.
pub(super) fn run_status(model: &Model) -> (&'static str, DisplayStatus) {
    let state = &model.state;
    if let Some((word, role)) = style::operation_outcome_label(state) {
        let status = match role {
            style::Tone::Ok => DisplayStatus::Done,
            style::Tone::Bad => DisplayStatus::Error,
            style::Tone::Warn | style::Tone::Dim | style::Tone::Plain => DisplayStatus::Warn,
        };
        return (word, status);
    }
    if model.capabilities.start_summary.is_some() {
        return ("PLAN", DisplayStatus::Pending);
    }
    match state.goal.0 {
        _ if model.is_tearing_down() => return ("TEARING DOWN", DisplayStatus::Warn),
        RunGoal::Stop => return ("STOPPING", DisplayStatus::Warn),
        RunGoal::Kill => return ("KILLING", DisplayStatus::Error),
        RunGoal::Down => return ("TEARING DOWN", DisplayStatus::Warn),
        RunGoal::Up => {}
    }
    let counts = model.rank_counts();
    if model.has_open_steps() {
        return ("LAUNCHING", DisplayStatus::Busy);
    }
    if counts.failed > 0 {
        return ("FAILING", DisplayStatus::Error);
    }
    if counts.running > 0 {
        // An observer cannot know whether readiness was reported before it attached.
        let launched = state.phases.iter().any(|(phase, _)| *phase == crate::event::Phase::Master);
        return if state.ready_at.is_some() || !launched { ("RUNNING", DisplayStatus::Ok) } else { ("STARTED", DisplayStatus::Busy) };
    }
    if counts.ok > 0 && counts.waiting == 0 {
        return ("ENDED", DisplayStatus::Done);
    }
    match state.hosts.iter().any(|host| host.connection_status != ConnectionStatus::Connected) {
        true => ("CONNECTING", DisplayStatus::Busy),
        // A job on SLURM has its hosts when it starts.
        false if state.hosts.is_empty() => ("WAITING", DisplayStatus::Pending),
        false => ("PROBING", DisplayStatus::Busy),
    }
}

pub(super) fn title_line(model: &Model, width: usize) -> Line<'static> {
    let is_wide = width >= WIDE_HEADER;
    let (line, gap) = title_with_clock(model, width, is_wide);
    if !is_wide && gap > CLOCK_COLUMNS { title_with_clock(model, width, true).0 } else { line }
}

/// The title with or without the time of day, and the columns that are free in it.
fn title_with_clock(model: &Model, width: usize, shows_clock: bool) -> (Line<'static>, usize) {
    let state = &model.state;
    let (word, status) = run_status(model);
    let word = model.lang.term(word);
    let name = match (state.info.run_id.as_str(), state.info.name.as_str()) {
        ("", name) => model.sanitize(name),
        (run, name) => format!("{} {}", model.sanitize(name), model.sanitize(run)),
    };
    // The clock of a finished run stops.
    let until = if state.outcome.is_some() { state.run_ended_at().unwrap_or(state.last_event_at) } else { model.now };
    // An observer also counts from the launch.
    let elapsed = state.run_started_at().or(state.first_event_at).map_or_else(String::new, |began| formatting::format_hms(until - began));
    let mut counts = Vec::new();
    for status in [DisplayStatus::Error, DisplayStatus::Warn, DisplayStatus::Lost] {
        let n = model.host_statuses.iter().filter(|host| host.status == status).count();
        if n > 0 {
            counts.push(Span::raw(" "));
            counts.push(Span::styled(format!("{}{n}", model.theme.symbol(status)), model.theme.status_style(status)));
        }
    }
    let host_symbols = counts.len();
    if model.readonly {
        counts.push(Span::styled(model.lang.tr(" READ-ONLY"), model.theme.status_style(DisplayStatus::Warn)));
    }
    let is_wide = width >= WIDE_HEADER;
    counts.push(Span::styled(format!("{}{} ", if is_wide { "  " } else { " " }, mode_text(model, shows_clock)), model.theme.dim()));
    let program = if width >= 60 { " orchestrate  " } else { " " };
    let fixed = program.len() + word.width() + elapsed.len() + 4;
    let (hosts, ranks) = (Span::raw(model.count(state.hosts.len(), "host")), rank_total(model));
    let room = width.saturating_sub(fixed + formatting::spans_width(&counts) + hosts.width() + ranks.width() + 2);
    // Both totals where the name has room beside them, at least without the run.
    let name = if room < name.width() { model.sanitize(&state.info.name) } else { name };
    if room >= name.width().min(MIN_NAME_WIDTH) {
        // The symbols count hosts.
        counts.splice(host_symbols..host_symbols, [Span::raw("  "), ranks]);
        counts.insert(0, hosts);
    } else {
        counts.splice(..host_symbols, [ranks]);
    }
    let left_room = width.saturating_sub(formatting::spans_width(&counts));
    let mut left = vec![
        Span::styled(program, model.theme.accent()),
        Span::raw(if left_room > fixed { style::truncate_text(&name, left_room - fixed) } else { String::new() }),
        Span::raw(" "),
        Span::styled(word, model.theme.status_style(status)),
        Span::raw(format!(" {elapsed} ")),
    ];
    let gap = left_room.saturating_sub(formatting::spans_width(&left));
    left.push(Span::raw(" ".repeat(gap)));
    left.extend(counts);
    (Line::from(left), gap)
}

/// How many ranks there are, and once they run how many of them do or have ended well.
fn rank_total(model: &Model) -> Span<'static> {
    let (counts, lost) = (model.rank_counts(), model.unknown_ranks());
    let total = model.count(model.state.ranks.len(), "rank");
    match (counts.failed, lost + counts.stopped) {
        (0, 0) if counts.running + counts.ok == 0 => Span::raw(total),
        (0, 0) => Span::raw(format!("{}/{total}", counts.running + counts.ok)),
        (failed, _) => {
            let status = if failed > 0 { DisplayStatus::Error } else { DisplayStatus::Warn };
            Span::styled(format!("{}/{total}", (counts.running + counts.ok).saturating_sub(lost)), model.theme.status_style(status))
        }
    }
}

/// What is followed, and the time of day where there is room.
fn mode_text(model: &Model, shows_clock: bool) -> String {
    let lang = model.lang;
    let clock = if shows_clock && model.now > 0 { format!(" {}", model.format_time(model.now)) } else { String::new() };
    match (model.capabilities.role, model.replay_clock) {
        (DashboardRole::Replay, Some(clock)) => {
            let whole = (clock.end - clock.start).max(1);
            let percent = ((model.now - clock.start) * 100 / whole).clamp(0, 100);
            let speed = if clock.paused { lang.tr("paused").to_owned() } else { format!("x{}", clock.speed) };
            lang.tr_fill("replay {}% {}", &[&percent.to_string(), &speed])
        }
        (DashboardRole::Replay, None) => lang.tr("replay").to_owned(),
        (DashboardRole::Owner | DashboardRole::Observer, _) if model.state.outcome.is_some() => lang.tr("ended").to_owned(),
        // Nothing runs yet.
        (DashboardRole::Owner, _) if model.capabilities.start_summary.is_some() => clock.trim_start().to_owned(),
        // Beside a count of ranks the word alone would be taken for theirs.
        (DashboardRole::Owner | DashboardRole::Observer, _) if clock.is_empty() => String::new(),
        (DashboardRole::Owner | DashboardRole::Observer, _) => format!("{}{clock}", lang.tr("live")),
    }
}

/// The tabs, and why the run ends. Also how many of the tabs have names beside that.
pub(super) fn tab_line(model: &Model, shown: Screen, width: usize) -> (Line<'static>, usize) {
    let why = end_reason(model);
    let (keys, help) = (tab_keys(model), model.key(UiCommand::Help));
    let spans_of = |named: usize| {
        let mut spans = vec![Span::raw(" ")];
        spans.extend(tab_texts(model.lang, &keys, shown, named).map(|(screen, text)| {
            let style = if screen == shown { model.theme.accent() } else { model.theme.dim() };
            Span::styled(text, style)
        }));
        let help = if named < Screen::ALL.len() { help.clone() } else { model.lang.tr_fill("{}-help", &[&help]) };
        spans.push(Span::styled(help, model.theme.dim()));
        spans
    };
    // These two have the failure in a pane.
    let has_pane = matches!(shown, Screen::Overview | Screen::Problems);
    let reason_width = if has_pane || why.is_empty() { 0 } else { why.width().min(MAX_SHORTENING_REASON) + 4 };
    let all = Screen::ALL.len();
    let fits = |named: &usize| formatting::spans_width(&spans_of(*named)) + reason_width <= width;
    let named = if reason_width == 0 { all } else { (0..=all).rev().find(fits).unwrap_or(0) };
    let mut spans = spans_of(named);
    let used = formatting::spans_width(&spans);
    if !why.is_empty() && width > used + 12 {
        let has_failed = match &model.state.outcome {
            Some((outcome, _)) => *outcome == Outcome::Failed,
            None => !model.state.culprit_ranks().is_empty(),
        };
        let look = if has_failed { model.theme.status_style(DisplayStatus::Error) } else { Style::new() };
        let text = style::truncate_text(&why, width - used - 3);
        spans.push(Span::raw(" ".repeat(width - used - 1 - text.width())));
        spans.push(Span::styled(text, look));
    }
    (Line::from(spans), named)
}

/// Why the run ends or has ended; empty while it does not.
fn end_reason(model: &Model) -> String {
    let goal = &model.state.goal.1;
    match &model.state.outcome {
        Some((_, why)) => model.lang.message(&model.sanitize(why)).into_owned(),
        // The first failure becomes known after the reason of the stop was set.
        None if !model.state.culprit_ranks().is_empty() => {
            model.lang.tr_fill("{} failed first", &[&style::format_ranks(model.state.culprit_ranks())])
        }
        None if !goal.is_empty() => model.lang.message(&model.sanitize(goal)).into_owned(),
        None => String::new(),
    }
}
