//! Every GPU of the run, as large as all of them fit: a row a host with totals, two digits a GPU, or one glyph a GPU with the hosts in rows as
//! a dump of memory is printed: 128 hosts of 8 on 80 columns and 24 rows.
//!
//! Uses `sum` and `cells`. The digit is the tenth of the metric, so that it can be read without colours. What is looked for stays where it is
//! and the rest is dimmed.

use ratatui::Frame;
use ratatui::layout::Rect;
use ratatui::text::{Line, Span};

use crate::report::style;
use crate::tui::app::{App, Screen};
use crate::tui::keymap::UiCommand;

use super::gpu_matrix::{GpuFilter, GpuMatrix, GpuMetric};
use super::lines::{render_lines, row_range};
use super::{formatting, host_status};

/// What the matrix remembers.
#[derive(Debug, Clone, Default, PartialEq)]
pub struct GpusPane {
    pub(super) metric: GpuMetric,
    /// The host and the place of the GPU under the cursor.
    pub(super) host: usize,
    pub(super) gpu: usize,
    /// How many hosts stood in a row.
    hosts_per_row: usize,
    /// The first row of hosts that is shown.
    first_row: usize,
    /// What is looked for; empty: nothing.
    pub(super) filter: GpuFilter,
    /// Only what is wrong.
    pub(crate) only_faults: bool,
    /// Where the first GPU is drawn, the columns of a host, and those of a GPU.
    cell_layout: (u16, u16, usize, usize),
}

/// A click; `false`: nothing is there.
pub(super) fn handle_click(app: &mut App, x: u16, y: u16) -> bool {
    let (left, upper, block, cell) = app.gpus_pane.cell_layout;
    let (Some(x), Some(y)) = (x.checked_sub(left), y.checked_sub(upper)) else { return false };
    let (across, gpu) = (usize::from(x) / block.max(1), usize::from(x) % block.max(1) / cell.max(1));
    let host = (app.gpus_pane.first_row + usize::from(y)) * app.gpus_pane.hosts_per_row + across;
    if across >= app.gpus_pane.hosts_per_row
        || gpu >= max_gpus(app)
        || usize::from(y) >= app.model.page_rows
        || host >= app.model.state.hosts.len()
    {
        return false;
    }
    (app.gpus_pane.host, app.gpus_pane.gpu) = (host, gpu);
    true
}

/// How large a GPU is drawn.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
enum GpuLayout {
    /// A row a host: three digits a GPU, and totals.
    Rows,
    /// Two digits.
    Digits,
    /// A glyph.
    Glyphs,
}

impl GpuLayout {
    /// The columns of a GPU.
    fn cell_width(self) -> usize {
        match self {
            GpuLayout::Rows => 4,
            GpuLayout::Digits => 3,
            GpuLayout::Glyphs => 1,
        }
    }
}

/// The columns of a host's totals.
const TOTALS_WIDTH: usize = 25;

fn max_gpus(app: &App) -> usize {
    app.model.state.hosts.iter().map(|host| host.gpus.len()).max().unwrap_or(0).max(1)
}

/// Takes what is looked for.
pub(crate) fn set_filter(app: &mut App, words: &str) {
    match GpuFilter::parse(words) {
        Ok(filter) => app.gpus_pane.filter = filter,
        Err(why) => app.show_toast(&why),
    }
}

/// The host under the cursor.
pub(crate) fn host_at_cursor(app: &App) -> u32 {
    u32::try_from(app.gpus_pane.host).unwrap_or(0)
}

/// Obeys a command.
pub(crate) fn update(app: &mut App, cmd: UiCommand) {
    let hosts = app.model.state.hosts.len().max(1);
    let wide = max_gpus(app);
    let across = app.gpus_pane.hosts_per_row.max(1);
    let view = &mut app.gpus_pane;
    let last = hosts - 1;
    match cmd {
        UiCommand::Metric => view.metric = view.metric.next(),
        UiCommand::Faults => view.only_faults = !view.only_faults,
        UiCommand::Left if view.gpu > 0 => view.gpu -= 1,
        UiCommand::Left if view.host > 0 => (view.host, view.gpu) = (view.host - 1, wide - 1),
        UiCommand::Right if view.gpu + 1 < wide => view.gpu += 1,
        UiCommand::Right if view.host < last => (view.host, view.gpu) = (view.host + 1, 0),
        UiCommand::Up => view.host = view.host.checked_sub(across).unwrap_or(view.host),
        UiCommand::Down if view.host + across <= last => view.host += across,
        UiCommand::PageUp | UiCommand::HalfUp => view.host = view.host.saturating_sub(across * 8),
        UiCommand::PageDown | UiCommand::HalfDown => view.host = (view.host + across * 8).min(last),
        UiCommand::PrevHost => view.host = view.host.saturating_sub(1),
        UiCommand::NextHost => view.host = (view.host + 1).min(last),
        UiCommand::FindNext | UiCommand::FindPrev => select_next_match(app, cmd == UiCommand::FindPrev),
        UiCommand::Top => (view.host, view.gpu) = (0, 0),
        UiCommand::Bottom => view.host = last,
        UiCommand::Open => {
            app.host_pane = super::host::HostPane::new(u32::try_from(view.host).unwrap_or(0));
            app.screen = Screen::Host;
        }
        UiCommand::Output => {
            let log = super::overview::most_relevant_log(app, u32::try_from(app.gpus_pane.host).unwrap_or(0));
            app.logs_pane.show_log(log);
            app.screen = Screen::Logs;
        }
        _ => {}
    }
}

/// To the next cell that is not dimmed, round the end.
fn select_next_match(app: &mut App, back: bool) {
    let matrix = GpuMatrix::new(app);
    let wide = max_gpus(app);
    let count = app.model.state.hosts.len() * wide;
    let at = app.gpus_pane.host * wide + app.gpus_pane.gpu;
    let found = (1..=count).map(|step| if back { at + count - step } else { at + step } % count).find(|place| {
        let (host, gpu) = (place / wide, place % wide);
        app.model.state.hosts.get(host).is_some_and(|host| gpu < host.gpus.len()) && matrix.is_match(app, host, gpu)
    });
    match found {
        Some(place) => (app.gpus_pane.host, app.gpus_pane.gpu) = (place / wide, place % wide),
        None => app.show_toast("no GPU is meant by it"),
    }
}

/// The largest form in which all hosts fit, and how many stand in a row.
fn choose_layout(width: usize, room: usize, name: usize, wide: usize, hosts: usize) -> (GpuLayout, usize) {
    for form in [GpuLayout::Rows, GpuLayout::Digits, GpuLayout::Glyphs] {
        let across = match form {
            GpuLayout::Rows => width / (name + 3 + wide * form.cell_width() + TOTALS_WIDTH),
            GpuLayout::Digits | GpuLayout::Glyphs => width.saturating_sub(name + 2) / (wide * form.cell_width() + 1),
        };
        if across > 0 && hosts <= across * room || form == GpuLayout::Glyphs {
            let across = match form {
                // Even numbers are easier to count.
                GpuLayout::Glyphs if across >= 8 => across / 4 * 4,
                GpuLayout::Glyphs => across,
                GpuLayout::Rows | GpuLayout::Digits => hosts.div_ceil(room.max(1)),
            };
            return (form, across.clamp(1, hosts.max(1)));
        }
    }
    (GpuLayout::Glyphs, 1)
}

/// Draws it.
pub(crate) fn draw(frame: &mut Frame<'_>, area: Rect, app: &mut App) {
    let width = usize::from(area.width);
    let wide = max_gpus(app);
    let name = app.model.state.hosts.iter().map(|host| host.name.len()).max().unwrap_or(4).clamp(4, 16);
    let room = usize::from(area.height).saturating_sub(5);
    let (form, across) = choose_layout(width, room, name, wide, app.model.state.hosts.len());
    app.gpus_pane.hosts_per_row = across;
    app.gpus_pane.host = app.gpus_pane.host.min(app.model.state.hosts.len().saturating_sub(1));
    let count = app.model.state.hosts.len().div_ceil(across);
    let at = app.gpus_pane.host / across;
    let top = app.gpus_pane.first_row.min(at).max((at + 1).saturating_sub(room));
    app.gpus_pane.first_row = top;
    app.model.page_rows = room;
    let block = match form {
        GpuLayout::Rows => name + 2 + wide * form.cell_width() + TOTALS_WIDTH,
        GpuLayout::Digits | GpuLayout::Glyphs => wide * form.cell_width() + 1,
    };
    app.gpus_pane.cell_layout = (area.x + u16::try_from(name).unwrap_or(0) + 2, area.y + 2, block, form.cell_width());
    let matrix = GpuMatrix::new(app);
    let mut lines = vec![title_line(app, &matrix, width), header_line(app, form, across, name, wide, width)];
    for row in (top..count).take(room) {
        let hosts = row * across..((row + 1) * across).min(app.model.state.hosts.len());
        lines.push(match form {
            GpuLayout::Rows => Line::from(hosts.flat_map(|host| host_row(app, &matrix, host, name, wide)).collect::<Vec<_>>()),
            GpuLayout::Digits | GpuLayout::Glyphs => matrix_row(app, &matrix, hosts, form, name, wide),
        });
    }
    if app.model.state.hosts.is_empty() {
        lines.push(Line::styled(" no host is known yet", app.model.theme.dim()));
    }
    render_lines(frame, area, lines);
    let detail = detail_lines(app, &matrix, form, width);
    render_lines(frame, row_range(area, area.height.saturating_sub(3), 3), detail);
}

fn title_line(app: &App, matrix: &GpuMatrix<'_>, width: usize) -> Line<'static> {
    let view = &app.gpus_pane;
    let mut spans = vec![Span::styled(format!(" {}", view.metric.name()), app.model.theme.accent())];
    let mut more = Vec::new();
    if view.only_faults {
        more.push("only faults (!)".to_owned());
    }
    if !view.filter.is_empty() {
        more.push(format!("/{}", app.model.sanitize(view.filter.text())));
    }
    if !more.is_empty() {
        let (meant, all) = matrix.count_matches(app);
        spans.push(Span::raw(style::truncate_text(&format!("  {}: {meant} of {all} GPUs", more.join("  ")), width.saturating_sub(40))));
    }
    Line::from(spans)
}

fn header_line(app: &App, form: GpuLayout, across: usize, name: usize, wide: usize, width: usize) -> Line<'static> {
    let text = match form {
        GpuLayout::Rows => {
            let numbers: String = (0..wide).map(|gpu| format!("{gpu:>4}")).collect();
            let one = format!(" {} {numbers}  {:>4} {:>4} {:>5} {:>6}  ", formatting::pad("HOST", name), "AVG", "MEM", "MAXT", "POWER");
            one.repeat(across)
        }
        GpuLayout::Digits | GpuLayout::Glyphs => {
            let marks: String = (0..across).map(|n| formatting::pad(&format!("+{n}"), wide * form.cell_width() + 1)).collect();
            format!(" {} {marks}", formatting::pad("", name))
        }
    };
    Line::styled(style::truncate_text(text.trim_end(), width), app.model.theme.header())
}

fn host_label(app: &App, host: usize, name: usize) -> Span<'static> {
    let label = app.model.state.hosts.get(host).map_or_else(String::new, |host| app.model.sanitize(&host.name));
    Span::raw(format!(" {} ", formatting::pad(&label, name)))
}

fn matrix_row(
    app: &App,
    matrix: &GpuMatrix<'_>,
    hosts: std::ops::Range<usize>,
    form: GpuLayout,
    name: usize,
    wide: usize,
) -> Line<'static> {
    let mut spans = vec![host_label(app, hosts.start, name)];
    for host in hosts {
        spans.extend((0..wide).map(|gpu| matrix.render_cell(app, host, gpu, form.cell_width())));
        spans.push(Span::raw(" "));
    }
    Line::from(spans)
}

/// A host with three digits a GPU and its totals.
fn host_row(app: &App, matrix: &GpuMatrix<'_>, host: usize, name: usize, wide: usize) -> Vec<Span<'static>> {
    let mut spans = vec![host_label(app, host, name)];
    spans.extend((0..wide).map(|gpu| matrix.render_cell(app, host, gpu, GpuLayout::Rows.cell_width())));
    let fresh = app.model.state.hosts.get(host).filter(|host| !app.model.is_stale(host.gpus_at));
    let all = fresh.map(|host| host_status::sum_gpus(host.gpus.iter())).unwrap_or_default();
    let or_dash = |value: Option<String>| value.unwrap_or_else(|| "-".to_owned());
    spans.push(Span::raw(format!(
        "  {:>4} {:>4} {:>5} {:>6}  ",
        or_dash(all.utilization.map(|v| format!("{v:.0}%"))),
        or_dash(all.memory.map(|v| format!("{v:.0}%"))),
        or_dash(all.hottest.map(|v| format!("{v:.0}C"))),
        or_dash(all.power.map(formatting::format_watts)),
    )));
    spans
}

/// The GPU under the cursor in words, and its rank's last line.
fn detail_lines(app: &App, matrix: &GpuMatrix<'_>, form: GpuLayout, width: usize) -> Vec<Line<'static>> {
    let digits = if form == GpuLayout::Glyphs { "0-9 tenths  " } else { "" };
    let legend = style::truncate_text(&format!(" {digits}! fault  ? old  . idle  - not told   / find: gpu03 util<5 temp>80"), width);
    let mut lines = vec![Line::styled(legend, app.model.theme.dim())];
    let Some(host) = app.model.state.hosts.get(app.gpus_pane.host) else { return lines };
    let Some(gpu) = host.gpus.get(app.gpus_pane.gpu) else {
        lines.push(Line::raw(format!(" {}: no values", app.model.sanitize(&host.name))));
        return lines;
    };
    let part = |name: &str, value: Option<f32>, unit: &str| value.map(|v| format!("{name}{v:.0}{unit}"));
    let mut parts = vec![format!("{} g{}", app.model.sanitize(&host.name), gpu.index)];
    parts.extend(part("util ", gpu.utilization, "%"));
    parts.extend(gpu.memory_used.zip(gpu.memory_total).map(|(used, total)| format!("mem {:.0}/{:.0}G", used / 1024.0, total / 1024.0)));
    parts.extend(part("", gpu.temperature, "C"));
    parts.extend(part("", gpu.power, gpu.power_limit.map_or_else(|| "W".to_owned(), |limit| format!("/{limit:.0}W")).as_str()));
    parts.extend(part("", gpu.ecc_errors.filter(|errors| *errors > 0.0), " ECC errors"));
    parts
        .extend(gpu.throttle_reasons.map(crate::model::gpu::throttle_reason_names).unwrap_or_default().iter().map(|why| (*why).to_owned()));
    parts.push(format!("{} ago", formatting::format_age(host.gpus_at, app.model.now)));
    lines.push(Line::raw(style::truncate_text(&format!(" {}", parts.join("  ")), width)));
    if let Some(rank) = matrix.rank_of_gpu(app.gpus_pane.host, gpu.index) {
        let (status, word) = host_status::rank_status(&app.model.state, rank);
        let last = rank.recent_lines.last_lines(1).pop().map(|line| app.model.sanitize(&line)).unwrap_or_default();
        let who = format!(" rank {} {word}", rank.rank);
        let rest = width.saturating_sub(who.len() + 5);
        lines.push(Line::from(vec![
            Span::styled(format!(" {}", app.model.theme.symbol(status)), app.model.theme.status_style(status)),
            Span::raw(who),
            Span::styled(" | ", app.model.theme.dim()),
            Span::raw(style::truncate_text(&last, rest)),
        ]));
    }
    lines
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn largest_fitting_layout_is_chosen() {
        // The body of a screen of 24 rows has 16 rows of hosts.
        assert_eq!(choose_layout(80, 16, 6, 8, 16), (GpuLayout::Rows, 1));
        assert_eq!(choose_layout(200, 52, 6, 8, 4), (GpuLayout::Rows, 1));
        assert_eq!(choose_layout(80, 16, 6, 8, 32), (GpuLayout::Digits, 2));
        assert_eq!(choose_layout(80, 16, 6, 8, 128), (GpuLayout::Glyphs, 8));
        assert_eq!(choose_layout(120, 32, 6, 8, 128), (GpuLayout::Digits, 4));
        assert_eq!(choose_layout(200, 52, 6, 8, 128), (GpuLayout::Rows, 3));
        assert_eq!(choose_layout(3, 0, 16, 8, 0), (GpuLayout::Glyphs, 1));
    }
}
