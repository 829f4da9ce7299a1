//! The rows of the GPU matrix: a row per host with totals, two digits per GPU, or one character per GPU with several hosts per row.

use ratatui::Frame;
use ratatui::layout::Rect;
use ratatui::style::Style;
use ratatui::text::{Line, Span};

use crate::report::style;
use crate::tui::model::Model;
use crate::tui::theme::DisplayStatus;

use super::gpu_matrix::{GpuMatrix, MatrixSelection};
use super::lines::{render_lines, rows_area, samples_span};
use super::pane_frame::{PaneFrame, draw_frame};
use super::{figure_age, formatting, gpu_heat_map, host_status};

#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(super) enum GpuLayout {
    /// A row per host: three digits per GPU, and totals.
    Rows,
    Digits,
    Glyphs,
}

impl GpuLayout {
    /// Width of a GPU.
    pub(super) fn cell_width(self) -> usize {
        match self {
            GpuLayout::Rows => 4,
            GpuLayout::Digits => 3,
            GpuLayout::Glyphs => 1,
        }
    }
}

/// Width of a host's totals.
const TOTALS_WIDTH: usize = 25;

pub(super) fn max_gpus(model: &Model) -> usize {
    model.state.hosts.iter().map(|host| host.gpus.len()).max().unwrap_or(0).max(1)
}

/// The largest layout in which all hosts fit, and its hosts per row.
pub(super) fn choose_layout(width: usize, room: usize, name: usize, gpus: usize, hosts: usize) -> (GpuLayout, usize) {
    let most_across = |form: GpuLayout| match form {
        GpuLayout::Rows => width / (name + 3 + gpus * form.cell_width() + TOTALS_WIDTH),
        GpuLayout::Digits | GpuLayout::Glyphs => width.saturating_sub(name + 2) / (gpus * form.cell_width() + 1),
    };
    let fits = |form: &GpuLayout| most_across(*form) > 0 && hosts <= most_across(*form) * room;
    let (form, across) = match [GpuLayout::Rows, GpuLayout::Digits].into_iter().find(fits) {
        Some(form) => (form, hosts.div_ceil(room.max(1))),
        // Even numbers are easier to count.
        None => (GpuLayout::Glyphs, Some(most_across(GpuLayout::Glyphs)).map_or(1, |most| if most >= 8 { most / 4 * 4 } else { most })),
    };
    (form, across.clamp(1, hosts.max(1)))
}

/// Layout of the matrix in a frame.
pub(super) struct MatrixShape {
    pub(super) form: GpuLayout,
    /// Hosts per row.
    pub(super) across: usize,
    /// Width of a host name.
    pub(super) name_width: usize,
    /// Maximum number of GPUs of a host.
    pub(super) gpus: usize,
    /// Cells of the history behind the totals of a host; 0: none.
    pub(super) history: usize,
}

impl MatrixShape {
    /// The same with a history where one host a row leaves these columns free.
    pub(super) fn with_history(self, width: usize, hosts: usize) -> MatrixShape {
        let room = match self.form {
            GpuLayout::Rows if self.across == 1 => width.saturating_sub(self.host_width() + 3),
            GpuLayout::Rows | GpuLayout::Digits | GpuLayout::Glyphs => 0,
        };
        MatrixShape { history: gpu_heat_map::cells_of_rows(room, hosts), ..self }
    }

    /// Width of a host with its GPUs and the gap to the next one, without a history.
    pub(super) fn host_width(&self) -> usize {
        let cells = self.gpus * self.form.cell_width();
        match self.form {
            GpuLayout::Rows => self.name_width + 2 + cells + TOTALS_WIDTH,
            GpuLayout::Digits | GpuLayout::Glyphs => cells + 1,
        }
    }
}

pub(super) fn header_line(model: &Model, shape: &MatrixShape, width: usize) -> Line<'static> {
    let name = shape.name_width;
    let text = match shape.form {
        GpuLayout::Rows => {
            let numbers: String = (0..shape.gpus).map(|gpu| format!("{gpu:>4}")).collect();
            let lang = model.lang;
            let totals = [(lang.tr("AVG"), 4), (lang.tr("MEM"), 4), (lang.tr("MAXT"), 5), (lang.tr("POWER"), 6)];
            let totals = totals.map(|(head, width)| formatting::pad_left(head, width)).join(" ");
            let one = format!(" {} {numbers}  {totals}  ", formatting::pad(lang.tr("HOST"), name));
            let history = match samples_span(model, shape.history) {
                _ if shape.history == 0 => String::new(),
                span => format!("{} {span}", lang.tr("MEAN")),
            };
            one.repeat(shape.across) + history.trim_end()
        }
        GpuLayout::Digits | GpuLayout::Glyphs => {
            let marks: String = (0..shape.across).map(|n| formatting::pad(&format!("+{n}"), shape.host_width())).collect();
            format!(" {} {marks}", formatting::pad("", name))
        }
    };
    Line::styled(style::truncate_text(text.trim_end(), width), model.theme.header())
}

fn host_cells(matrix: &GpuMatrix<'_>, host: usize, shape: &MatrixShape) -> impl Iterator<Item = Span<'static>> {
    (0..shape.gpus).map(move |gpu| matrix.render_cell(host, gpu, shape.form.cell_width()))
}

fn host_label(model: &Model, host: usize, shape: &MatrixShape) -> Span<'static> {
    let label = model.state.hosts.get(host).map_or_else(String::new, |host| model.sanitize(&host.name));
    Span::raw(format!(" {} ", formatting::pad(&label, shape.name_width)))
}

pub(super) fn matrix_row(matrix: &GpuMatrix<'_>, hosts: std::ops::Range<usize>, shape: &MatrixShape) -> Line<'static> {
    let mut spans = vec![host_label(matrix.model, hosts.start, shape)];
    for host in hosts {
        spans.extend(host_cells(matrix, host, shape));
        spans.push(Span::raw(" "));
    }
    Line::from(spans)
}

/// A host with three digits per GPU and its totals.
pub(super) fn host_row(matrix: &GpuMatrix<'_>, host: usize, shape: &MatrixShape) -> Vec<Span<'static>> {
    let model = matrix.model;
    let mut spans = vec![host_label(model, host, shape)];
    spans.extend(host_cells(matrix, host, shape));
    let fresh = model.state.hosts.get(host).filter(|host| !figure_age::has_lost_figures(model, host));
    let all = fresh.map(|host| host_status::sum_gpus(host.gpus.iter())).unwrap_or_default();
    let is_past = model.state.hosts.get(host).is_some_and(|host| figure_age::is_past(model, host));
    let style = if is_past { model.theme.dim() } else { Style::new() };
    let totals = format!(
        "  {:>4} {:>4} {:>5} {:>6}  ",
        formatting::whole(all.utilization, "%"),
        formatting::whole(all.memory, "%"),
        formatting::whole(all.hottest, model.theme.degree()),
        formatting::or_dash(all.power.map(formatting::format_watts)),
    );
    spans.push(Span::styled(totals, style));
    if let Some(of) = model.state.hosts.get(host).filter(|_| shape.history > 0) {
        spans.extend(gpu_heat_map::mean_cells(matrix, (host, of), shape.history));
    }
    spans
}

/// `✗ failed  ! fault  ▲ slow or unused  ? old  . idle  - no data`.
pub(super) fn signs_text(model: &Model) -> String {
    let failed = host_status::failed_rank_glyph(model.theme);
    let warning = model.theme.symbol(DisplayStatus::Warn);
    model.lang.tr_fill("{} failed  ! fault  {} slow or unused  ? old  . idle  - no data", &[failed, warning])
}

/// Every GPU as one character, in the width of a frame.
fn glyphs_shape(model: &Model, width: u16) -> Option<MatrixShape> {
    let (name_width, gpus, hosts) = (widest_name(model), max_gpus(model), model.state.hosts.len());
    let (form, across) = choose_layout(usize::from(width).saturating_sub(2), 0, name_width, gpus, hosts);
    (hosts > 0 && form == GpuLayout::Glyphs).then_some(MatrixShape { form, across, name_width, gpus, history: 0 })
}

/// The rows that [`draw_glyphs`] takes in this width.
pub(super) fn glyphs_height(model: &Model, width: u16) -> u16 {
    let rows = glyphs_shape(model, width).map_or(0, |shape| model.state.hosts.len().div_ceil(shape.across.max(1)) + 3);
    u16::try_from(rows).unwrap_or(u16::MAX)
}

/// Draws every GPU as one character in a frame at the top of an area. Gives the rows that it took; 0: there is no room.
pub(super) fn draw_glyphs(frame: &mut Frame<'_>, area: Rect, model: &Model) -> u16 {
    let height = glyphs_height(model, area.width);
    let Some(shape) = glyphs_shape(model, area.width).filter(|_| height <= area.height) else { return 0 };
    let lang = model.lang;
    let age = figure_age::past_age_text(model).map_or_else(String::new, |age| lang.comma().to_owned() + &age);
    let meaning = lang.tr_fill(" tenths of utilization{}", &[&age]);
    let left = vec![Span::styled(lang.tr("GPUs"), model.theme.header()), Span::styled(meaning, model.theme.dim())];
    let signs = Span::styled(signs_text(model), model.theme.dim());
    // The meaning of the digits comes first.
    let fits = formatting::spans_width(&left) + signs.width() + 10 <= usize::from(area.width);
    let title = PaneFrame { left, right: fits.then_some(signs).into_iter().collect(), ..PaneFrame::default() };
    let inner = draw_frame(frame, rows_area(area, 0, height), model.theme, &title);
    // No GPU is under a cursor here.
    let selection = MatrixSelection { host: usize::MAX, ..MatrixSelection::default() };
    let matrix = GpuMatrix::new(model, &selection);
    let (hosts, across) = (model.state.hosts.len(), shape.across.max(1));
    let rows = (0..hosts).step_by(across).map(|first| matrix_row(&matrix, first..(first + across).min(hosts), &shape));
    render_lines(frame, inner, std::iter::once(header_line(model, &shape, usize::from(inner.width))).chain(rows).collect());
    height
}

/// The width of a host's name.
pub(super) fn widest_name(model: &Model) -> usize {
    model.state.hosts.iter().map(|host| host.name.len()).max().unwrap_or(4).clamp(4, 16)
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn largest_fitting_layout_is_chosen() {
        // A screen of 24 rows has room for 16 rows of hosts.
        assert_eq!(choose_layout(80, 16, 6, 8, 16), (GpuLayout::Rows, 1));
        assert_eq!(choose_layout(200, 52, 6, 8, 4), (GpuLayout::Rows, 1));
        assert_eq!(choose_layout(80, 16, 6, 8, 32), (GpuLayout::Digits, 2));
        assert_eq!(choose_layout(80, 16, 6, 8, 128), (GpuLayout::Glyphs, 8));
        assert_eq!(choose_layout(120, 32, 6, 8, 128), (GpuLayout::Digits, 4));
        assert_eq!(choose_layout(200, 52, 6, 8, 128), (GpuLayout::Rows, 3));
        assert_eq!(choose_layout(3, 0, 16, 8, 0), (GpuLayout::Glyphs, 1));
    }
}
