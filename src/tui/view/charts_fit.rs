//! Whether the first screen has room for charts.

use ratatui::layout::Rect;

use crate::tui::model::Model;

use super::gpu_panes::PaneGrid;
use super::host_selection::HostSelection;
use super::{gpu_matrix_rows, training_charts};

/// The height from which on narrow panes and tables may have charts above them.
const MIN_AREA: u16 = 30 + training_charts::HEIGHT;
/// What the charts leave a table whose hosts fold, and the least that it takes, with its heading.
const FOLDED_TABLE_ROWS: u16 = 9;
const LEAST_TABLE_ROWS: u16 = 2;

/// Whether the charts take room from neither the hosts nor the log, which keeps `log_rows`.
pub(super) fn charts_fit(selection: &HostSelection, model: &Model, area: Rect, log_rows: u16) -> bool {
    let room = area.height.saturating_sub(log_rows);
    let hosts = selection.hosts(model);
    let fit = |room: u16| PaneGrid::fit(model, hosts.clone(), (area.width, room));
    let grid = fit(room);
    let is_tall = area.height >= MIN_AREA;
    // The extremes may take a row below the charts.
    let title = u16::from(selection.title_line(model, usize::from(area.width)).is_some());
    let rest = room.saturating_sub(training_charts::HEIGHT + 1 + title);
    training_charts::has_charts(model)
        && match grid {
            // Narrow panes are less useful than the lines of the log.
            Some(grid) => (grid.is_full() || is_tall) && Some(grid) == fit(rest),
            None => is_tall && table_fits(selection, model, hosts.len(), (area.width, room, rest)),
        }
}

/// Whether the table of so many hosts has what it needs in `rest` rows beside the charts, of `room` without them: each host its row, or where
/// hosts fold in any case, some rows and the signs of all GPUs. Which of the hosts are well does not matter.
fn table_fits(selection: &HostSelection, model: &Model, hosts: usize, (width, room, rest): (u16, u16, u16)) -> bool {
    let unfolded = u16::try_from(hosts + 1).unwrap_or(u16::MAX);
    if unfolded <= room || selection.is_ordered_by_value() {
        return unfolded <= rest;
    }
    let signs = if selection.is_narrowed() { 0 } else { gpu_matrix_rows::glyphs_height(model, width) };
    // Signs that have no room even below equal hosts take none.
    let signs = if LEAST_TABLE_ROWS.saturating_add(signs) <= room { signs } else { 0 };
    FOLDED_TABLE_ROWS.saturating_add(signs) <= rest
}
