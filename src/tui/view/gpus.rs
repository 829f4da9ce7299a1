//! Every GPU of the run in the largest layout that fits: a heat map over time for a few hosts, a row per host with totals, two digits per GPU, or one character per GPU with
//! several hosts per row; 128 hosts of 8 GPUs fit in 80 columns and 24 rows.
//!
//! The digit is the tenth of the metric, so that it is readable without color. Matching GPUs keep their place
//! and the rest is dimmed.

use ratatui::Frame;
use ratatui::layout::Rect;
use ratatui::text::{Line, Span};
use unicode_width::UnicodeWidthStr;

use crate::event::LogFile;
use crate::report::style;
use crate::state::RankState;
use crate::tui::keymap::UiCommand;
use crate::tui::model::Model;
use crate::tui::pane_action::PaneAction;

use super::gpu_heat_map::{HeatMapShape, HeatRows};
use super::gpu_matrix::{GpuFilter, GpuMatrix, MatrixSelection};
use super::gpu_matrix_rows::{GpuLayout, MatrixShape, choose_layout, header_line, host_row, matrix_row, max_gpus, signs_text, widest_name};
use super::lines::{render_lines, rows_area};
use super::pane_frame::{PaneFrame, draw_frame, has_frame_room};
use super::{figure_age, formatting, gpu_text, host_status, ranks};

/// The fewest rows of a rank's log.
const MIN_LOG_ROWS: u16 = 5;

#[derive(Debug, Clone, Default, PartialEq)]
pub struct GpusPane {
    pub(crate) selection: MatrixSelection,
    /// The person chose the GPU under the cursor; until then it is that of the rank that failed first.
    was_moved: bool,
    /// Hosts per row.
    hosts_per_row: usize,
    /// First visible row of hosts.
    first_row: usize,
    /// Position of the first GPU, width of a host, and width of a GPU.
    cell_layout: (u16, u16, usize, usize),
    /// Where each GPU of the heat map is drawn; empty: the matrix is shown.
    heat_rows: HeatRows,
}

/// Handles a click; `false` if nothing was hit.
pub(super) fn handle_click(view: &mut GpusPane, model: &Model, x: u16, y: u16) -> bool {
    if let Some((host, gpu, _)) = view.heat_rows.iter().find(|(_, _, area)| area.contains((x, y).into())) {
        (view.selection.host, view.selection.gpu, view.was_moved) = (*host, *gpu, true);
        return true;
    }
    let (left, upper, block, cell) = view.cell_layout;
    let (Some(x), Some(y)) = (x.checked_sub(left), y.checked_sub(upper)) else { return false };
    let (across, gpu) = (usize::from(x) / block.max(1), usize::from(x) % block.max(1) / cell.max(1));
    let host = (view.first_row + usize::from(y)) * view.hosts_per_row + across;
    let inside = across < view.hosts_per_row && gpu < max_gpus(model) && usize::from(y) < model.page_rows && host < model.state.hosts.len();
    if inside {
        (view.selection.host, view.selection.gpu, view.was_moved) = (host, gpu, true);
    }
    inside
}

impl GpusPane {
    /// Shows all GPUs again; `false` if none was filtered out.
    pub(crate) fn clear_filter(&mut self) -> bool {
        let was_filtered = !self.selection.filter.is_empty() || self.selection.only_faults;
        (self.selection.filter, self.selection.only_faults) = (GpuFilter::default(), false);
        was_filtered
    }
}

/// Sets the filter.
pub(crate) fn set_filter(view: &mut GpusPane, words: &str) -> Option<PaneAction> {
    GpuFilter::parse(words).map(|filter| view.selection.filter = filter).err().map(PaneAction::ShowToast)
}

pub(crate) fn host_at_cursor(view: &GpusPane) -> u32 {
    u32::try_from(view.selection.host).unwrap_or(0)
}

pub(crate) fn update(view: &mut GpusPane, model: &Model, cmd: UiCommand) -> Option<PaneAction> {
    let before = (view.selection.host, view.selection.gpu);
    let action = handle_command(view, model, cmd);
    view.was_moved |= before != (view.selection.host, view.selection.gpu);
    action
}

fn handle_command(view: &mut GpusPane, model: &Model, cmd: UiCommand) -> Option<PaneAction> {
    let hosts = model.state.hosts.len().max(1);
    let gpus = max_gpus(model);
    let across = view.hosts_per_row.max(1);
    let under = host_at_cursor(view);
    let cursor = &mut view.selection;
    let last = hosts - 1;
    // A row of the heat map is a GPU.
    let cmd = match cmd {
        UiCommand::Up if !view.heat_rows.is_empty() => UiCommand::Left,
        UiCommand::Down if !view.heat_rows.is_empty() => UiCommand::Right,
        UiCommand::Left if !view.heat_rows.is_empty() => UiCommand::PrevHost,
        UiCommand::Right if !view.heat_rows.is_empty() => UiCommand::NextHost,
        cmd => cmd,
    };
    match cmd {
        UiCommand::Metric => cursor.metric = cursor.metric.next(),
        UiCommand::Faults => cursor.only_faults = !cursor.only_faults,
        UiCommand::Left if cursor.gpu > 0 => cursor.gpu -= 1,
        UiCommand::Left if cursor.host > 0 => (cursor.host, cursor.gpu) = (cursor.host - 1, gpus - 1),
        UiCommand::Right if cursor.gpu + 1 < gpus => cursor.gpu += 1,
        UiCommand::Right if cursor.host < last => (cursor.host, cursor.gpu) = (cursor.host + 1, 0),
        UiCommand::Up => cursor.host = cursor.host.checked_sub(across).unwrap_or(cursor.host),
        UiCommand::Down if cursor.host + across <= last => cursor.host += across,
        UiCommand::PageUp | UiCommand::HalfUp => cursor.host = cursor.host.saturating_sub(across * 8),
        UiCommand::PageDown | UiCommand::HalfDown => cursor.host = (cursor.host + across * 8).min(last),
        UiCommand::PrevHost => cursor.host = cursor.host.saturating_sub(1),
        UiCommand::NextHost => cursor.host = (cursor.host + 1).min(last),
        UiCommand::FindNext | UiCommand::FindPrev => return select_next_match(cursor, model, cmd == UiCommand::FindPrev),
        UiCommand::Top => (cursor.host, cursor.gpu) = (0, 0),
        UiCommand::Bottom => cursor.host = last,
        UiCommand::Open => return Some(PaneAction::ShowHost(under)),
        UiCommand::Output => return Some(PaneAction::ShowLog(log_at_cursor(cursor, model))),
        _ => {}
    }
    None
}

/// The log of the rank on the GPU under the cursor, as it is shown below; else the one that says most about the host.
fn log_at_cursor(cursor: &MatrixSelection, model: &Model) -> (u32, LogFile) {
    let host = u32::try_from(cursor.host).unwrap_or(0);
    let rank = rank_at_cursor(&GpuMatrix::new(model, cursor));
    rank.map_or_else(|| super::overview::most_relevant_log(model, host), RankState::log)
}

/// The rank on the GPU under the cursor.
fn rank_at_cursor<'a>(matrix: &GpuMatrix<'a>) -> Option<&'a RankState> {
    let GpuMatrix { model, selection, .. } = matrix;
    let gpu = model.state.hosts.get(selection.host)?.gpus.get(selection.gpu)?;
    matrix.rank_of_gpu(selection.host, gpu.index)
}

/// Moves to the next matching GPU, with wrap-around.
fn select_next_match(cursor: &mut MatrixSelection, model: &Model, back: bool) -> Option<PaneAction> {
    let matrix = GpuMatrix::new(model, cursor);
    let gpus = max_gpus(model);
    let count = model.state.hosts.len() * gpus;
    let at = cursor.host * gpus + cursor.gpu;
    let found = (1..=count).map(|step| if back { at + count - step } else { at + step } % count).find(|at| {
        let (host, gpu) = (at / gpus, at % gpus);
        model.state.hosts.get(host).is_some_and(|host| gpu < host.gpus.len()) && matrix.is_match(host, gpu)
    });
    let Some(at) = found else { return Some(PaneAction::ShowToast("no GPU matches".to_owned())) };
    (cursor.host, cursor.gpu) = (at / gpus, at % gpus);
    None
}

/// Draws the screen; returns the page size in rows.
pub(crate) fn draw(frame: &mut Frame<'_>, area: Rect, model: &Model, view: &mut GpusPane) -> usize {
    let width = usize::from(area.width);
    let hosts = model.state.hosts.len();
    let name_width = widest_name(model);
    view.selection.host = view.selection.host.min(hosts.saturating_sub(1));
    view.heat_rows.clear();
    if !view.was_moved {
        select_failed_rank(&mut view.selection, model);
    }
    let body = rows_area(area, 2, area.height.saturating_sub(5));
    let has_frame = has_frame_room(area);
    let inside = if has_frame { Rect { x: area.x + 1, y: area.y + 1, width: area.width - 2, ..body } } else { body };
    if let Some(shape) = HeatMapShape::fit(model, inside, name_width) {
        let matrix = GpuMatrix::new(model, &view.selection);
        let (rows, bottom) = shape.draw(frame, inside, &matrix);
        let used = bottom.saturating_sub(area.y) + 1;
        draw_title(frame, rows_area(area, 0, used), &matrix, has_frame, &shape.legends(model));
        render_lines(frame, rows_area(area, area.height.saturating_sub(3), 3), detail_lines(&matrix, GpuLayout::Rows, width));
        draw_rank_log(frame, rows_area(area, used, area.height.saturating_sub(used + 3)), &matrix);
        view.heat_rows = rows;
        return usize::from(body.height);
    }
    draw_matrix(frame, area, model, view)
}

/// The GPUs as rows of figures or signs, and below them the log of the rank under the cursor. Gives the rows of a page.
fn draw_matrix(frame: &mut Frame<'_>, area: Rect, model: &Model, view: &mut GpusPane) -> usize {
    let (hosts, gpus, name_width) = (model.state.hosts.len(), max_gpus(model), widest_name(model));
    let edge = u16::from(has_frame_room(area));
    let inside = Rect { x: area.x + edge, y: area.y + 1, width: area.width - 2 * edge, height: area.height.saturating_sub(1) };
    let (width, room) = (usize::from(inside.width), usize::from(area.height.saturating_sub(5 + edge)));
    let (form, across) = choose_layout(width, room, name_width, gpus, hosts);
    let shape = MatrixShape { form, across, name_width, gpus, history: 0 }.with_history(width, hosts);
    view.hosts_per_row = across;
    let count = hosts.div_ceil(across);
    let at = view.selection.host / across;
    let top = view.first_row.min(at).max((at + 1).saturating_sub(room));
    view.first_row = top;
    view.cell_layout = (inside.x + u16::try_from(name_width).unwrap_or(0) + 2, inside.y + 1, shape.host_width(), form.cell_width());
    let matrix = GpuMatrix::new(model, &view.selection);
    let mut lines = vec![header_line(model, &shape, width)];
    for row in (top..count).take(room) {
        let hosts = row * across..((row + 1) * across).min(hosts);
        lines.push(match form {
            GpuLayout::Rows => Line::from(hosts.flat_map(|host| host_row(&matrix, host, &shape)).collect::<Vec<_>>()),
            GpuLayout::Digits | GpuLayout::Glyphs => matrix_row(&matrix, hosts, &shape),
        });
    }
    if hosts == 0 {
        lines.push(Line::styled(model.lang.tr(" no hosts yet"), model.theme.dim()));
    }
    // The title, the lines, and an edge or an empty row.
    let used = u16::try_from(lines.len() + 2).unwrap_or(u16::MAX).min(area.height.saturating_sub(3));
    draw_title(frame, rows_area(area, 0, used), &matrix, edge > 0, &[Vec::new()]);
    render_lines(frame, inside, lines);
    draw_rank_log(frame, rows_area(area, used, area.height.saturating_sub(used + 3)), &matrix);
    render_lines(frame, rows_area(area, area.height.saturating_sub(3), 3), detail_lines(&matrix, form, usize::from(area.width)));
    room
}

/// The metric, and what the cells mean, in the first of these ways that fits: in the frame around them, or in rows above them.
fn draw_title(frame: &mut Frame<'_>, area: Rect, matrix: &GpuMatrix<'_>, has_frame: bool, legends: &[Vec<Span<'static>>]) {
    let (model, width) = (matrix.model, usize::from(area.width));
    let title = title_line(matrix, width);
    let with_key = |legend: &Vec<Span<'static>>| {
        legend.iter().cloned().chain([Span::styled(model.lang.tr(" m metric"), model.theme.dim())]).collect::<Vec<_>>()
    };
    let legends = legends.iter().filter(|legend| has_frame || !legend.is_empty()).map(with_key);
    if !has_frame {
        let all: Vec<_> = legends.collect();
        // Where none fits the last one is cut.
        let legend = all.iter().find(|legend| formatting::spans_width(legend) <= width).or(all.last()).cloned().map(Line::from);
        return render_lines(frame, area, std::iter::once(title).chain(legend).collect());
    }
    let left = trim_start(title.spans);
    // What is shown matters more than how it is drawn.
    let room = width.saturating_sub(formatting::spans_width(&left) + 9);
    let right = legends.map(trim_start).find(|legend| formatting::spans_width(legend) <= room).unwrap_or_default();
    draw_frame(frame, area, model.theme, &PaneFrame { left, right, ..PaneFrame::default() });
}

/// Without the space that a row begins with.
fn trim_start(mut spans: Vec<Span<'static>>) -> Vec<Span<'static>> {
    if let Some(first) = spans.first_mut() {
        *first = Span::styled(first.content.trim_start().to_owned(), first.style);
    }
    spans
}

/// Puts the cursor on the GPU of the rank that failed first.
fn select_failed_rank(cursor: &mut MatrixSelection, model: &Model) {
    let first = model.state.culprit_ranks().first();
    let Some(rank) = first.and_then(|rank| model.state.ranks.get(rank)) else { return };
    let host = rank.host as usize;
    let matrix = GpuMatrix::new(model, cursor);
    let gpus = model.state.hosts.get(host).map_or(&[][..], |host| &host.gpus);
    let of_rank = |index: u32| matrix.rank_of_gpu(host, index).is_some_and(|other| other.rank == rank.rank);
    if let Some(gpu) = gpus.iter().position(|gpu| of_rank(gpu.index)) {
        (cursor.host, cursor.gpu) = (host, gpu);
    }
}

/// The newest lines of the rank on the GPU under the cursor, where there is room below the GPUs.
fn draw_rank_log(frame: &mut Frame<'_>, area: Rect, matrix: &GpuMatrix<'_>) {
    if let Some(rank) = rank_at_cursor(matrix).filter(|_| area.height >= MIN_LOG_ROWS) {
        ranks::draw_log(frame, area, matrix.model, rank);
    }
}

fn title_line(matrix: &GpuMatrix<'_>, width: usize) -> Line<'static> {
    let GpuMatrix { model, selection, .. } = matrix;
    let mut spans = vec![Span::styled(format!(" {}", model.lang.term(selection.metric.name())), model.theme.accent())];
    spans.extend(figure_age::past_age_text(model).map(|age| Span::styled(format!("  {age}"), model.theme.dim())));
    let mut more = Vec::new();
    if selection.only_faults {
        more.push(model.lang.tr("only faults (!)").to_owned());
    }
    if !selection.filter.is_empty() {
        more.push(format!("/{}", model.sanitize(selection.filter.text())));
    }
    if !more.is_empty() {
        let (meant, all) = matrix.count_matches();
        let text = model.lang.tr_fill("  {}: {} of {} GPUs", &[&more.join("  "), &meant.to_string(), &all.to_string()]);
        spans.push(Span::raw(style::truncate_text(&text, width.saturating_sub(40))));
    }
    Line::from(spans)
}

/// Values of the GPU under the cursor, and its rank's last line.
fn detail_lines(matrix: &GpuMatrix<'_>, layout: GpuLayout, width: usize) -> Vec<Line<'static>> {
    let GpuMatrix { model, selection, .. } = matrix;
    let lang = model.lang;
    let tenths = if layout == GpuLayout::Glyphs { lang.tr("0-9 tenths  ") } else { "" };
    let marks = tenths.to_owned() + &signs_text(model);
    let find = lang.tr("   / find, as in: gpu03 util<5 temp>80");
    let find = if marks.width() + find.width() < width { find } else { "" };
    let legend = style::truncate_text(&format!(" {marks}{find}"), width);
    let mut lines = vec![Line::styled(legend, model.theme.dim())];
    let Some(host) = model.state.hosts.get(selection.host) else { return lines };
    let Some(gpu) = host.gpus.get(selection.gpu) else {
        lines.push(Line::raw(lang.tr_fill(" {}: no GPU data", &[&model.sanitize(&host.name)])));
        return lines;
    };
    let part = |name: &str, value: Option<f32>, unit: &str| value.map(|v| format!("{name}{v:.0}{unit}"));
    let mut parts = vec![format!("{} g{}", model.sanitize(&host.name), gpu.index)];
    parts.extend(part(lang.tr("util "), gpu.utilization, "%"));
    parts.extend(gpu.memory_used.zip(gpu.memory_total).map(|_| lang.tr("mem ").to_owned() + &gpu_text::memory_text(gpu)));
    parts.extend(part("", gpu.temperature, model.theme.degree()));
    parts.extend(gpu.power.map(|_| gpu_text::power_text(gpu, true)));
    parts.extend(part("", gpu.memory_errors(), lang.tr(" ECC errors")));
    parts.extend(gpu.throttle_reason_names().map(|why| lang.term(why).to_owned()));
    parts.push(lang.tr_fill("{} ago", &[&formatting::format_age(host.gpus_at, model.now)]));
    lines.push(Line::raw(style::truncate_text(&format!(" {}", parts.join("  ")), width)));
    if let Some(rank) = matrix.rank_of_gpu(selection.host, gpu.index) {
        let (status, word) = host_status::rank_status(&model.state, rank);
        let word = model.lang.message(&word).into_owned();
        let last = model.last_line(rank);
        let owner = format!(" rank {} {word}", rank.rank);
        let rest = width.saturating_sub(UnicodeWidthStr::width(owner.as_str()) + 5);
        lines.push(Line::from(vec![
            Span::styled(format!(" {}", model.theme.symbol(status)), model.theme.status_style(status)),
            Span::raw(owner),
            Span::styled(" | ", model.theme.dim()),
            Span::raw(style::truncate_text(&last, rest)),
        ]));
    }
    lines
}
