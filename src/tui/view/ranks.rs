//! Every rank in a row: where it runs, how it stands, for how long, when it last said something and what.
//!
//! Uses `sum` and `list`. Only the rows that are seen are made.

use std::cmp::Reverse;

use ratatui::Frame;
use ratatui::layout::Rect;
use ratatui::text::{Line, Span};

use crate::event::LogFile;
use crate::report::style;
use crate::state::{RankState, training_metrics};
use crate::tui::app::{App, Screen};
use crate::tui::keymap::UiCommand;
use crate::tui::theme::DisplayStatus;

use super::lines::render_lines;
use super::selectable_list::SelectableList;
use super::training::{self, TrainingColumns};
use super::{formatting, host_status};

/// In which order.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Default)]
enum RankOrder {
    /// What is wrong, then by number.
    #[default]
    WorstFirst,
    /// By number.
    ByRank,
    /// Who has said nothing for the longest time.
    LongestSilent,
}

impl RankOrder {
    fn label(self) -> &'static str {
        match self {
            RankOrder::WorstFirst => "the worst first",
            RankOrder::ByRank => "by rank",
            RankOrder::LongestSilent => "the longest silent first",
        }
    }
}

/// A last line with fewer columns than this says too little of a failure: it takes the place of the training's values.
const MIN_LAST_LINE_WIDTH: usize = 24;

/// What the ranks' pane remembers.
#[derive(Debug, Clone, Default, PartialEq, Eq)]
pub struct RanksPane {
    list: SelectableList<u32>,
    order: RankOrder,
}

/// A click in this row of the terminal; `false`: nothing is there.
pub(super) fn handle_click(app: &mut App, y: u16) -> bool {
    app.ranks_pane.list.select_at(y)
}

/// The rank under the cursor, behind its host.
pub(crate) fn rank_at_cursor(app: &App) -> Option<(u32, u32)> {
    app.ranks_pane.list.selected().and_then(|rank| app.model.state.ranks.get(&rank)).map(|rank| (rank.host, rank.rank))
}

/// Obeys a command.
pub(crate) fn update(app: &mut App, cmd: UiCommand) {
    if app.ranks_pane.list.move_cursor(cmd, app.model.page_rows) {
        return;
    }
    match cmd {
        UiCommand::Sort => {
            app.ranks_pane.order = match app.ranks_pane.order {
                RankOrder::WorstFirst => RankOrder::ByRank,
                RankOrder::ByRank => RankOrder::LongestSilent,
                RankOrder::LongestSilent => RankOrder::WorstFirst,
            }
        }
        UiCommand::Open | UiCommand::Output => {
            if let Some(rank) = app.ranks_pane.list.selected().and_then(|rank| app.model.state.ranks.get(&rank)) {
                let log = (rank.host, LogFile::Rank { rank: rank.rank, restart: rank.restart });
                app.logs_pane.show_log(log);
                app.screen = Screen::Logs;
            }
        }
        _ => {}
    }
}

fn last_output_at(app: &App, rank: &RankState) -> i64 {
    app.model.log_times.last_output((rank.host, LogFile::Rank { rank: rank.rank, restart: rank.restart })).unwrap_or(0)
}

fn sorted_ranks(app: &App) -> Vec<u32> {
    let mut all: Vec<&RankState> = app.model.state.ranks.values().collect();
    match app.ranks_pane.order {
        RankOrder::WorstFirst => all.sort_by_key(|rank| (Reverse(host_status::rank_status(&app.model.state, rank).0), rank.rank)),
        RankOrder::ByRank => {}
        RankOrder::LongestSilent => all.sort_by_key(|rank| (rank.exit.is_some(), last_output_at(app, rank), rank.rank)),
    }
    all.into_iter().map(|rank| rank.rank).collect()
}

/// Draws it.
pub(crate) fn draw(frame: &mut Frame<'_>, area: Rect, app: &mut App) {
    let width = usize::from(area.width);
    let room = usize::from(area.height).saturating_sub(1);
    app.model.page_rows = room;
    let keys = sorted_ranks(app);
    let (at, top) = app.ranks_pane.list.set_rows(keys.clone(), room);
    app.ranks_pane.list.set_screen_rows(area.y + 1, room);
    let name = app.model.state.hosts.iter().map(|host| host.name.len()).max().unwrap_or(4).clamp(4, 20);
    // Number, host, GPU, symbol, word, time and age with what stands between them.
    let fixed = 7 + name + 1 + 5 + 1 + 30;
    let columns = TrainingColumns::fit(&app.model, width.saturating_sub(fixed));
    let rest = width.saturating_sub(fixed + columns.as_ref().map_or(0, TrainingColumns::width));
    let last = format!("LAST LINE ({})", app.ranks_pane.order.label());
    let last = [last.as_str(), "LAST LINE", "LAST"].into_iter().find(|head| head.len() <= rest).unwrap_or_default();
    let head = format!(
        " {:>5} {} {:<4} ST {} {:>8} {:>5}  {}{last}",
        "RANK",
        formatting::pad("HOST", name),
        "GPU",
        formatting::pad("", 11),
        "RUNS",
        "SAID",
        columns.as_ref().map(TrainingColumns::header_text).unwrap_or_default(),
    );
    let mut lines = vec![Line::styled(style::truncate_text(&head, width), app.model.theme.header())];
    for (n, rank) in keys.iter().enumerate().skip(top).take(room) {
        let Some(rank) = app.model.state.ranks.get(rank) else { continue };
        let line = rank_row(app, rank, name, rest, columns.as_ref());
        lines.push(if n == at { line.style(app.model.theme.selected()) } else { line });
    }
    if keys.is_empty() {
        lines.push(Line::styled(" no rank is known yet", app.model.theme.dim()));
    }
    render_lines(frame, area, lines);
}

fn rank_row(app: &App, rank: &RankState, name: usize, rest: usize, columns: Option<&TrainingColumns>) -> Line<'static> {
    let (status, word) = host_status::rank_status(&app.model.state, rank);
    let (columns, rest) = match columns {
        Some(columns) if status == DisplayStatus::Error && rest < MIN_LAST_LINE_WIDTH => (None, rest + columns.width()),
        columns => (columns, rest),
    };
    let runs = match (rank.duration(), rank.started_at) {
        (Some(took), _) => formatting::format_hms(took),
        (None, Some(since)) if rank.exit.is_none() => formatting::format_hms(app.model.now - since),
        _ => "-".to_owned(),
    };
    let gpu = rank.local_rank.map_or_else(|| "-".to_owned(), |local| format!("g{local}"));
    let again = if rank.restart > 0 { format!("(restart {}) ", rank.restart) } else { String::new() };
    let last = rank.recent_lines.last_lines(1).pop().map(|line| app.model.sanitize(&line)).unwrap_or_default();
    let bar = rank.progress.filter(|_| rank.exit.is_none() && training_metrics::parse_progress(last.as_bytes(), 0).is_some());
    let last = bar.and_then(|bar| training::progress_gauge(&bar, app.model.now, rest, app.model.theme)).unwrap_or(last);
    let mut spans = vec![
        Span::raw(format!(
            " {:>5} {} {gpu:<4} ",
            rank.rank,
            formatting::pad(&app.model.sanitize(app.model.state.host_name(rank.host)), name)
        )),
        Span::styled(app.model.theme.symbol(status), app.model.theme.status_style(status)),
        Span::raw(format!(
            " {} {runs:>8} {:>5}  ",
            formatting::pad(&word, 12),
            formatting::format_age(last_output_at(app, rank), app.model.now)
        )),
    ];
    spans.extend(columns.map(|columns| columns.rank_spans(app.model.theme, &rank.metrics)).unwrap_or_default());
    spans.push(Span::raw(style::truncate_text(&format!("{again}{last}"), rest)));
    Line::from(spans)
}
