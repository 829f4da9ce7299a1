//! One row per rank: location, status, duration, age of its last output, and its last line.
//!
//! Only visible rows are built.

use std::cmp::Reverse;

use ratatui::Frame;
use ratatui::layout::{Margin, Rect};
use ratatui::text::{Line, Span};
use unicode_width::UnicodeWidthStr as _;

use crate::report::style;
use crate::state::{RankState, training_metrics};
use crate::tui::keymap::UiCommand;
use crate::tui::model::Model;
use crate::tui::pane_action::PaneAction;
use crate::tui::theme::DisplayStatus;

use super::lines::{render_lines, rows_area, selected_row};
use super::pane_frame::{PaneFrame, draw_frame, has_frame_room};
use super::rank_filter::RanksFilter;
use super::selectable_list::SelectableList;
use super::training::{self, TrainingColumns};
use super::{formatting, host_status, logs};

#[derive(Debug, Clone, Copy, PartialEq, Eq, Default)]
enum RankOrder {
    /// The rank that failed first, then other failed ranks, then those that are behind, then the others: unknown, stopped, running.
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

#[derive(Debug, Clone, Default, PartialEq)]
pub struct RanksPane {
    list: SelectableList<u32>,
    order: RankOrder,
    filter: RanksFilter,
}

impl RanksPane {
    /// Shows all ranks again; `false` if none was left out.
    pub(crate) fn clear_filter(&mut self) -> bool {
        std::mem::take(&mut self.filter) != RanksFilter::default()
    }
}

/// Sets the filter; an empty text shows all ranks.
pub(crate) fn set_filter(view: &mut RanksPane, text: &str) -> Option<PaneAction> {
    RanksFilter::parse(text).map(|filter| view.filter = filter).err().map(PaneAction::ShowToast)
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
            Some(PaneAction::ShowLog(rank.log()))
        }
        _ => None,
    }
}

fn last_output_at(model: &Model, rank: &RankState) -> i64 {
    model.log_times.last_output(rank.log()).unwrap_or(0)
}

/// The ranks that are shown, in their order.
fn shown_ranks(model: &Model, view: &RanksPane) -> Vec<u32> {
    let mut all: Vec<&RankState> = model.state.ranks.values().filter(|rank| view.filter.shows(model, rank)).collect();
    match view.order {
        RankOrder::WorstFirst => {
            let culprits = model.state.culprit_ranks();
            all.sort_by_key(|rank| {
                let status = host_status::rank_status(&model.state, rank).0;
                let is_slow = model.slow_ranks.is_slow(rank.rank, model.now);
                (!culprits.contains(&rank.rank), status != DisplayStatus::Error, !is_slow, Reverse(status), rank.rank)
            });
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
    let has_frame = has_frame_room(area);
    let has_filter = !view.filter.text().is_empty();
    let edges = if has_frame { 3 } else { 1 + usize::from(has_filter) };
    let keys = shown_ranks(model, view);
    let needed = u16::try_from(keys.len().max(1) + edges).unwrap_or(u16::MAX);
    let is_low = !is_wide && needed.saturating_add(MIN_LOG_ROWS) <= area.height;
    let table = Rect { width: table_width, height: if is_low { needed } else { area.height }, ..area };
    let page =
        if has_frame { draw_framed_table(frame, table, model, (view, keys)) } else { draw_bare_table(frame, table, model, (view, keys)) };
    let log = if is_wide {
        Rect { x: area.x + table_width, width: area.width - table_width, ..area }
    } else if is_low {
        rows_area(area, needed, area.height - needed)
    } else {
        return page;
    };
    if let Some(rank) = view.list.selected().and_then(|rank| model.state.ranks.get(&rank)) {
        draw_log(frame, log, model, rank);
    }
    page
}

/// `view`: with the ranks that are shown.
fn draw_framed_table(frame: &mut Frame<'_>, area: Rect, model: &Model, (view, keys): (&mut RanksPane, Vec<u32>)) -> usize {
    // The title says which rows the table shows: the frame comes after it.
    let inner = area.inner(Margin::new(1, 1));
    let shown = draw_table(frame, inner, model, (view, keys), false);
    let failed = model.rank_counts().failed;
    let unknown = model.unknown_ranks();
    let mut right = Vec::new();
    if failed > 0 {
        let text = model.lang.tr_fill("{} failed", &[&failed.to_string()]);
        right.push(Span::styled(text, model.theme.status_style(DisplayStatus::Error)));
    }
    if unknown > 0 {
        let gap = if failed > 0 { "  " } else { "" };
        right.push(Span::styled(format!("{gap}{}", model.lang.tr_fill("{} unknown", &[&unknown.to_string()])), model.theme.dim()));
    }
    let filter = filter_text(model, view, shown.total);
    let mut left = vec![Span::styled(filter.unwrap_or_else(|| model.count(shown.total, "rank")), model.theme.header())];
    left.push(Span::styled(format!("  {}", model.lang.term(view.order.label())), model.theme.dim()));
    left.extend(shown.range_text(model).map(|range| Span::styled(format!("  {range}"), model.theme.dim())));
    draw_frame(frame, area, model.theme, &PaneFrame { left, right, ..PaneFrame::default() });
    usize::from(inner.height).saturating_sub(1)
}

/// The table without a frame; where there are more ranks than rows, the last row says which are shown.
fn draw_bare_table(frame: &mut Frame<'_>, area: Rect, model: &Model, (view, keys): (&mut RanksPane, Vec<u32>)) -> usize {
    let filter = filter_text(model, view, keys.len());
    let is_cut = filter.is_some() || keys.len() + 1 > usize::from(area.height);
    let rows = if is_cut { area.height.saturating_sub(1) } else { area.height };
    let shown = draw_table(frame, rows_area(area, 0, rows), model, (view, keys), true);
    let parts: Vec<String> = shown.range_text(model).into_iter().chain(filter).collect();
    if is_cut {
        let text = format!(" {} {}", model.theme.ellipsis(), parts.join("  "));
        render_lines(frame, rows_area(area, rows, 1), vec![Line::styled(text, model.theme.dim())]);
    }
    usize::from(rows).saturating_sub(1)
}

/// `8 of 32 ranks  /gpu03  esc shows all`; none where no rank is left out.
fn filter_text(model: &Model, view: &RanksPane, shown: usize) -> Option<String> {
    let filter = Some(view.filter.text()).filter(|text| !text.is_empty())?;
    let count = model.lang.tr_fill("{} of {}", &[&shown.to_string(), &model.count(model.state.ranks.len(), "rank")]);
    Some(format!("{count}  /{}  {}", model.sanitize(filter), model.lang.tr("esc shows all ").trim_end()))
}

/// The rows of a table that are on the screen.
struct ShownRows {
    first: usize,
    count: usize,
    total: usize,
}

impl ShownRows {
    /// `1-44 of 128`, where there are more.
    fn range_text(&self, model: &Model) -> Option<String> {
        let range = format!("{}-{}", self.first + 1, self.first + self.count);
        (self.count < self.total).then(|| model.lang.tr_fill("{} of {}", &[&range, &self.total.to_string()]))
    }
}

/// The newest lines of a rank.
pub(super) fn draw_log(frame: &mut Frame<'_>, area: Rect, model: &Model, rank: &RankState) {
    let (status, word) = host_status::rank_status(&model.state, rank);
    let word = model.lang.message(&word).into_owned();
    let names = [rank.rank.to_string(), model.sanitize(model.state.host_name(rank.host))];
    let owner = format!(" {}", model.lang.tr_fill("r{} on {}", &[&names[0], &names[1]]));
    let title = PaneFrame {
        left: vec![
            model.theme.symbol_span(status),
            Span::styled(owner, model.theme.header()),
            Span::styled(format!(" {word}"), model.theme.dim()),
        ],
        right: vec![Span::styled(model.lang.tr("o opens the log"), model.theme.dim())],
        selected: false,
        status,
    };
    let inner = draw_frame(frame, area, model.theme, &title);
    let width = usize::from(inner.width).saturating_sub(1);
    let lines = rank.recent_lines.last_lines(usize::from(inner.height));
    let row = |line: &String| {
        let look = logs::style_of_level(model, line.as_bytes()).unwrap_or_default();
        Line::styled(format!(" {}", style::truncate_text(&model.sanitize(line), width)), look)
    };
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

/// `names_order`: the heading says in which order the ranks are.
fn draw_table(frame: &mut Frame<'_>, area: Rect, model: &Model, (view, keys): (&mut RanksPane, Vec<u32>), names_order: bool) -> ShownRows {
    let width = usize::from(area.width);
    let room = usize::from(area.height).saturating_sub(1);
    let (at, top) = view.list.set_rows(keys.clone(), room);
    view.list.set_screen_rows(area.y + 1, room);
    let name = model.state.hosts.iter().map(|host| host.name.len()).max().unwrap_or(4).clamp(4, 20);
    // Number, host, GPU, symbol, status, time and age with the gaps between them.
    let fixed = 7 + name + 1 + 5 + 1 + 30;
    let columns = TrainingColumns::fit(model, width.saturating_sub(fixed));
    let rest = width.saturating_sub(fixed + columns.as_ref().map_or(0, TrainingColumns::width));
    let lang = model.lang;
    let with_order = names_order.then(|| lang.tr_fill("LAST LINE ({})", &[lang.term(view.order.label())]));
    let heads = with_order.as_deref().into_iter().chain([lang.tr("LAST LINE"), lang.tr("LAST")]);
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
        let text = if model.state.ranks.is_empty() { model.lang.tr(" no ranks yet") } else { model.lang.tr(" no rank matches") };
        lines.push(Line::styled(text, model.theme.dim()));
    }
    render_lines(frame, area, lines);
    ShownRows { first: top, count: keys.len().saturating_sub(top).min(room), total: keys.len() }
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
    let last = model.last_line(rank);
    let bar = rank.progress.filter(|_| rank.exit.is_none() && training_metrics::parse_progress(last.as_bytes(), 0).is_some());
    let last = bar.and_then(|bar| training::gauge_text(&bar, model.now, rest, (model.theme, model.lang))).unwrap_or(last);
    let mut spans = vec![
        Span::raw(format!(" {:>5} {} {gpu:<4} ", rank.rank, formatting::pad(&model.sanitize(model.state.host_name(rank.host)), name))),
        model.theme.symbol_span(status),
        Span::raw(format!(
            " {} {runs:>8} {:>5}  ",
            formatting::pad(&word, 12),
            formatting::format_age(last_output_at(model, rank), model.now)
        )),
    ];
    spans.extend(
        columns
            .map(|columns| columns.rank_spans(model.theme, &rank.metrics, model.slow_ranks.is_slow(rank.rank, model.now)))
            .unwrap_or_default(),
    );
    spans.push(Span::raw(style::truncate_text(&format!("{again}{last}"), rest)));
    if status == DisplayStatus::Lost {
        // What it did last says nothing about now.
        spans.iter_mut().skip(2).for_each(|span| span.style = model.theme.dim());
    }
    Line::from(spans)
}
