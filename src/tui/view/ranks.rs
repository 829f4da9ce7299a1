//! One row per rank: location, status, duration, age of its last output, and its last line.
//!
//! Only visible rows are built.

use std::cmp::Reverse;

use ratatui::Frame;
use ratatui::layout::Rect;
use ratatui::text::{Line, Span};
use unicode_width::UnicodeWidthStr as _;

use crate::event::LogFile;
use crate::report::style;
use crate::state::{RankState, training_metrics};
use crate::tui::keymap::UiCommand;
use crate::tui::model::Model;
use crate::tui::pane_action::PaneAction;
use crate::tui::theme::DisplayStatus;

use super::lines::{render_lines, rows_area, selected_row};
use super::pane_frame::{PaneFrame, draw_frame, has_frame_room};
use super::selectable_list::SelectableList;
use super::training::{self, TrainingColumns};
use super::{formatting, host_status};

#[derive(Debug, Clone, Copy, PartialEq, Eq, Default)]
enum RankOrder {
    /// The rank that failed first, then other failed ranks, then by number.
    #[default]
    WorstFirst,
    ByRank,
    LongestSilent,
}

impl RankOrder {
    fn label(self) -> &'static str {
        match self {
            RankOrder::WorstFirst => "worst first",
            RankOrder::ByRank => "by rank",
            RankOrder::LongestSilent => "longest silent first",
        }
    }
}

/// From this width on the log of the rank under the cursor is beside the table.
const WIDE: u16 = 140;
/// The fewest rows of the log below the table.
const MIN_LOG_ROWS: u16 = 6;
/// Below this width the last line says too little about a failure: it replaces the training columns.
const MIN_LAST_LINE_WIDTH: usize = 24;

#[derive(Debug, Clone, Default, PartialEq, Eq)]
pub struct RanksPane {
    list: SelectableList<u32>,
    order: RankOrder,
}

/// Handles a click in this row of the terminal; `false` if nothing was hit.
pub(super) fn handle_click(view: &mut RanksPane, y: u16) -> bool {
    view.list.select_at(y)
}

/// The rank under the cursor, after its host.
pub(crate) fn rank_at_cursor(view: &RanksPane, model: &Model) -> Option<(u32, u32)> {
    view.list.selected().and_then(|rank| model.state.ranks.get(&rank)).map(|rank| (rank.host, rank.rank))
}

pub(crate) fn update(view: &mut RanksPane, model: &Model, cmd: UiCommand) -> Option<PaneAction> {
    if view.list.move_cursor(cmd, model.page_rows) {
        return None;
    }
    match cmd {
        UiCommand::Sort => {
            view.order = match view.order {
                RankOrder::WorstFirst => RankOrder::ByRank,
                RankOrder::ByRank => RankOrder::LongestSilent,
                RankOrder::LongestSilent => RankOrder::WorstFirst,
            };
            None
        }
        UiCommand::Open | UiCommand::Output => {
            let rank = model.state.ranks.get(&view.list.selected()?)?;
            Some(PaneAction::ShowLog((rank.host, LogFile::Rank { rank: rank.rank, restart: rank.restart })))
        }
        _ => None,
    }
}

fn last_output_at(model: &Model, rank: &RankState) -> i64 {
    model.log_times.last_output((rank.host, LogFile::Rank { rank: rank.rank, restart: rank.restart })).unwrap_or(0)
}

fn sorted_ranks(model: &Model, order: RankOrder) -> Vec<u32> {
    let mut all: Vec<&RankState> = model.state.ranks.values().collect();
    match order {
        RankOrder::WorstFirst => {
            let culprits = model.state.culprit.as_ref().map_or(&[][..], |culprit| &culprit.ranks);
            all.sort_by_key(|rank| (!culprits.contains(&rank.rank), Reverse(host_status::rank_status(&model.state, rank).0), rank.rank));
        }
        RankOrder::ByRank => {}
        RankOrder::LongestSilent => all.sort_by_key(|rank| (rank.exit.is_some(), last_output_at(model, rank), rank.rank)),
    }
    all.into_iter().map(|rank| rank.rank).collect()
}

/// Draws the screen, with the log of the rank under the cursor beside the table, or below it where the table leaves room; returns
/// the page size in rows.
pub(crate) fn draw(frame: &mut Frame<'_>, area: Rect, model: &Model, view: &mut RanksPane) -> usize {
    let is_wide = area.width >= WIDE && !model.state.ranks.is_empty();
    let table_width = if is_wide { area.width * 11 / 20 } else { area.width };
    let needed = u16::try_from(model.state.ranks.len().max(1) + 3).unwrap_or(u16::MAX);
    let has_frame = has_frame_room(area);
    let is_low = has_frame && !is_wide && needed.saturating_add(MIN_LOG_ROWS) <= area.height;
    let table = Rect { width: table_width, height: if is_low { needed } else { area.height }, ..area };
    let page = if has_frame { draw_framed_table(frame, table, model, view) } else { draw_table(frame, table, model, view) };
    let log = match () {
        () if is_wide => Rect { x: area.x + table_width, width: area.width - table_width, ..area },
        () if is_low => rows_area(area, needed, area.height - needed),
        () => return page,
    };
    if let Some(rank) = view.list.selected().and_then(|rank| model.state.ranks.get(&rank)) {
        draw_log(frame, log, model, rank);
    }
    page
}

fn draw_framed_table(frame: &mut Frame<'_>, area: Rect, model: &Model, view: &mut RanksPane) -> usize {
    let counts = model.state.rank_counts();
    let failed = (counts.failed > 0).then(|| {
        let text = model.lang.tr_fill("{} failed", &[&counts.failed.to_string()]);
        Span::styled(text, model.theme.status_style(DisplayStatus::Error))
    });
    let title = PaneFrame {
        left: vec![Span::styled(model.count(model.state.ranks.len(), "rank"), model.theme.header())],
        right: failed.into_iter().collect(),
        ..PaneFrame::default()
    };
    let inner = draw_frame(frame, area, model.theme, &title);
    draw_table(frame, inner, model, view)
}

/// The newest lines of a rank.
pub(super) fn draw_log(frame: &mut Frame<'_>, area: Rect, model: &Model, rank: &RankState) {
    let (status, word) = host_status::rank_status(&model.state, rank);
    let word = model.lang.message(&word).into_owned();
    let names = [rank.rank.to_string(), model.sanitize(model.state.host_name(rank.host))];
    let location = format!(" {}", model.lang.tr_fill("r{} on {}", &[&names[0], &names[1]]));
    let title = PaneFrame {
        left: vec![
            Span::styled(model.theme.symbol(status), model.theme.status_style(status)),
            Span::styled(location, model.theme.header()),
            Span::styled(format!(" {word}"), model.theme.dim()),
        ],
        right: vec![Span::styled(model.lang.tr("o opens the log"), model.theme.dim())],
        selected: false,
        status,
    };
    let inner = draw_frame(frame, area, model.theme, &title);
    let width = usize::from(inner.width).saturating_sub(1);
    let lines = rank.recent_lines.last_lines(usize::from(inner.height));
    let row = |line: &String| Line::raw(format!(" {}", style::truncate_text(&model.sanitize(line), width)));
    render_lines(
        frame,
        inner,
        if lines.is_empty() {
            vec![Line::styled(model.lang.tr(" no output yet"), model.theme.dim())]
        } else {
            lines.iter().map(row).collect()
        },
    );
}

fn draw_table(frame: &mut Frame<'_>, area: Rect, model: &Model, view: &mut RanksPane) -> usize {
    let width = usize::from(area.width);
    let room = usize::from(area.height).saturating_sub(1);
    let keys = sorted_ranks(model, view.order);
    let (at, top) = view.list.set_rows(keys.clone(), room);
    view.list.set_screen_rows(area.y + 1, room);
    let name = model.state.hosts.iter().map(|host| host.name.len()).max().unwrap_or(4).clamp(4, 20);
    // Number, host, GPU, symbol, status, time and age with the gaps between them.
    let fixed = 7 + name + 1 + 5 + 1 + 30;
    let columns = TrainingColumns::fit(model, width.saturating_sub(fixed));
    let rest = width.saturating_sub(fixed + columns.as_ref().map_or(0, TrainingColumns::width));
    let lang = model.lang;
    let order = lang.term(view.order.label());
    let shown = format!("{}-{}", top + 1, keys.len().min(top + room));
    let shown = (keys.len() > room).then(|| lang.tr_fill("{} of {}", &[&shown, &keys.len().to_string()]));
    let with_rows = shown.map(|shown| lang.tr_fill("LAST LINE ({})", &[&format!("{order}, {shown}")]));
    let last = lang.tr_fill("LAST LINE ({})", &[order]);
    let heads = with_rows.as_deref().into_iter().chain([last.as_str(), lang.tr("LAST LINE"), lang.tr("LAST")]);
    let last = heads.into_iter().find(|head| head.width() <= rest).unwrap_or_default();
    let head = format!(
        " {:>5} {} {:<4} {} {} {}  {}{last}",
        "RANK",
        formatting::pad(lang.tr("HOST"), name),
        "GPU",
        formatting::pad(lang.tr("ST"), 14),
        formatting::pad_left(lang.tr("TIME"), 8),
        formatting::pad_left(lang.tr("QUIET"), 5),
        columns.as_ref().map(|columns| columns.header_text(lang)).unwrap_or_default(),
    );
    let mut lines = vec![Line::styled(style::truncate_text(&head, width), model.theme.header())];
    for (n, rank) in keys.iter().enumerate().skip(top).take(room) {
        let Some(rank) = model.state.ranks.get(rank) else { continue };
        let line = rank_row(model, rank, name, rest, columns.as_ref());
        lines.push(if n == at { selected_row(&line, model.theme, width) } else { line });
    }
    if keys.is_empty() {
        lines.push(Line::styled(model.lang.tr(" no ranks yet"), model.theme.dim()));
    }
    render_lines(frame, area, lines);
    room
}

fn rank_row(model: &Model, rank: &RankState, name: usize, rest: usize, columns: Option<&TrainingColumns>) -> Line<'static> {
    let (status, word) = host_status::rank_status(&model.state, rank);
    let word = model.lang.message(&word).into_owned();
    let (columns, rest) = match columns {
        Some(columns) if status == DisplayStatus::Error && rest < MIN_LAST_LINE_WIDTH => (None, rest + columns.width()),
        columns => (columns, rest),
    };
    let runs = match (rank.duration(), rank.started_at) {
        (Some(took), _) => formatting::format_hms(took),
        (None, Some(since)) if status == DisplayStatus::Ok => formatting::format_hms(model.now - since),
        _ => "-".to_owned(),
    };
    let gpu = rank.local_rank.map_or_else(|| "-".to_owned(), |local| format!("g{local}"));
    let again = if rank.restart > 0 { model.lang.tr_fill("(restart {}) ", &[&rank.restart.to_string()]) } else { String::new() };
    let last = rank.recent_lines.last_lines(1).pop().map(|line| model.sanitize(&line)).unwrap_or_default();
    let bar = rank.progress.filter(|_| rank.exit.is_none() && training_metrics::parse_progress(last.as_bytes(), 0).is_some());
    let last = bar.and_then(|bar| training::progress_gauge(&bar, model, rest)).unwrap_or(last);
    let mut spans = vec![
        Span::raw(format!(" {:>5} {} {gpu:<4} ", rank.rank, formatting::pad(&model.sanitize(model.state.host_name(rank.host)), name))),
        Span::styled(model.theme.symbol(status), model.theme.status_style(status)),
        Span::raw(format!(
            " {} {runs:>8} {:>5}  ",
            formatting::pad(&word, 12),
            formatting::format_age(last_output_at(model, rank), model.now)
        )),
    ];
    spans.extend(columns.map(|columns| columns.rank_spans(model.theme, &rank.metrics)).unwrap_or_default());
    spans.push(Span::raw(style::truncate_text(&format!("{again}{last}"), rest)));
    Line::from(spans)
}
