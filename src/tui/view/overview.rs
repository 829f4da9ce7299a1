//! The first screen: what is wrong, the training, the hosts as nvidia-smi panes, and the merged log of all ranks. While steps of a plan are
//! under way the hosts are the matrix of hosts and phases. Hosts that have no room for panes are a table.
//!
//! The cursor stays on its host while rows move.

use ratatui::Frame;
use ratatui::layout::Rect;
use unicode_width::UnicodeWidthStr as _;

use crate::event::LogFile;
use crate::tui::keymap::UiCommand;
use crate::tui::model::Model;
use crate::tui::pane_action::PaneAction;
use crate::tui::theme::DisplayStatus;

use super::charts_fit::charts_fit;
use super::gpu_panes::PaneGrid;
use super::host_list::HostList;
use super::host_table::HostTable;
use super::lines::{render_lines, rows_area};
use super::merged_log::MergedLog;
use super::{
    events, extremes, failure, gpu_matrix_rows, host_status, launch_matrix, logs, plan_pane, run_problems, training, training_charts,
};

/// Below this height the log gets what a failure and the hosts in trouble leave.
const TALL: u16 = 30;
/// The fewest rows of a log with a frame.
const MIN_LOG_ROWS: u16 = 5;

/// The zones that can have the focus.
#[derive(Debug, Clone, Copy, Default, PartialEq, Eq)]
enum Zone {
    #[default]
    Hosts,
    Log,
}

/// What the bars or signs of the hosts mean.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
enum HostsLegend {
    Panes(&'static str),
    Table,
}

/// What the overview remembers.
#[derive(Debug, Clone, Default)]
pub struct OverviewPane {
    hosts: HostList,
    /// Where the pane of each host was drawn; empty: the hosts are a table.
    host_panes: Vec<(u32, Rect)>,
    /// Panes side by side, as of the last frame; 1 for a table.
    columns: usize,
    log: MergedLog,
    focus: Zone,
    /// The log was drawn in the last frame.
    shows_log: bool,
    legend: Option<HostsLegend>,
    /// The zone with the focus has the whole screen.
    pub(crate) zoomed: bool,
}

impl OverviewPane {
    /// Where panes with frames were drawn: of hosts, and of the log.
    #[cfg(test)]
    pub(crate) fn framed_areas(&self) -> Vec<Rect> {
        self.host_panes.iter().map(|(_, area)| *area).chain(Some(self.log.area).filter(|area| area.height > 0)).collect()
    }

    /// The hosts that were drawn, in their order; a folded row is its first host.
    #[cfg(test)]
    pub(crate) fn shown_hosts(&self) -> Vec<u32> {
        self.hosts.rows.keys().iter().map(|(_, host)| *host).collect()
    }

    #[cfg(test)]
    pub(crate) fn set_host_filter(&mut self, text: &str) {
        self.hosts.selection.set_filter(text).expect("a filter");
    }

    /// One step back: the zoom, then the filter. `false`: there is neither.
    pub(crate) fn undo_last_view(&mut self) -> bool {
        std::mem::take(&mut self.zoomed) || self.hosts.selection.clear()
    }

    /// What was known of the logs is void.
    pub(crate) fn reset_log(&mut self) {
        self.log = MergedLog::default();
    }
}

/// Puts the focus on the zone at this cell of the terminal.
pub(super) fn focus_at(view: &mut OverviewPane, x: u16, y: u16) {
    view.focus = if view.log.is_at(x, y) { Zone::Log } else { Zone::Hosts };
}

/// What the bars or signs of the hosts mean, in at most `room` columns; empty where there is nothing to explain, or no room.
pub(super) fn legend(view: &OverviewPane, model: &Model, room: usize) -> String {
    let lang = model.lang;
    let texts = match view.legend {
        None => Vec::new(),
        Some(HostsLegend::Panes(text)) => vec![lang.term(text).to_owned()],
        Some(HostsLegend::Table) => {
            let tenths = lang.tr("GPU: tenths busy");
            let signs = [host_status::failed_rank_glyph(model.theme), model.theme.symbol(DisplayStatus::Warn)];
            let short = lang.tr_fill("{} failed  ! fault  {} low  ? old  . idle", &signs);
            vec![format!("{tenths}  {}", gpu_matrix_rows::signs_text(model)), format!("{tenths}  {short}"), short]
        }
    };
    texts.into_iter().find(|text| text.width() <= room).unwrap_or_default()
}

/// The zone that the keys go to: what cannot be seen gets none, and has them again when it is back.
fn focused(view: &OverviewPane) -> Zone {
    if has_log(view) { view.focus } else { Zone::Hosts }
}

/// Whether the log is on the screen or can be brought there.
pub(super) fn has_log(view: &OverviewPane) -> bool {
    view.zoomed || view.shows_log
}

/// Puts the cursor on the host, or the focus on the zone, at this cell of the terminal; `false`: there is neither.
pub(super) fn handle_click(view: &mut OverviewPane, x: u16, y: u16) -> bool {
    if view.log.is_at(x, y) {
        view.focus = Zone::Log;
        return true;
    }
    let hit = view.host_panes.iter().find(|(_, area)| area.contains((x, y).into()));
    if let Some((host, _)) = hit {
        view.hosts.rows.select((false, *host));
    } else if !view.host_panes.is_empty() || !view.hosts.rows.select_at(y) {
        return false;
    }
    view.focus = Zone::Hosts;
    true
}

pub(crate) fn host_at_cursor(view: &OverviewPane) -> Option<u32> {
    view.hosts.selected_host()
}

/// Filters the hosts, or searches the log where that has the focus.
pub(crate) fn set_filter(view: &mut OverviewPane, model: &Model, text: &str) -> Option<PaneAction> {
    match focused(view) {
        Zone::Log => logs::set_search(&mut view.log.pane, model, text),
        Zone::Hosts => {
            view.hosts.rows.pin_cursor();
            view.hosts.selection.set_filter(text).err().map(PaneAction::ShowToast)
        }
    }
}

pub(crate) fn update(view: &mut OverviewPane, model: &Model, cmd: UiCommand) -> Option<PaneAction> {
    match cmd {
        UiCommand::Sort => {
            view.hosts.rows.pin_cursor();
            return Some(PaneAction::ShowToast(format!("hosts: {}", view.hosts.selection.set_next_order().name())));
        }
        UiCommand::Faults => {
            view.hosts.rows.pin_cursor();
            view.hosts.selection.toggle_problems();
            return None;
        }
        UiCommand::NextPane => {
            if !has_log(view) {
                return Some(PaneAction::ShowToast(format!("no log is shown here; press {} for the logs", model.key(UiCommand::Logs))));
            }
            view.focus = if view.focus == Zone::Hosts { Zone::Log } else { Zone::Hosts };
            return None;
        }
        UiCommand::Zoom => {
            view.focus = focused(view);
            view.zoomed = !view.zoomed;
            return None;
        }
        // The log's own screen opens, so that this one stays the merged log.
        UiCommand::Open if focused(view) == Zone::Log => return logs::open_row(&view.log.pane),
        _ if focused(view) == Zone::Log && cmd != UiCommand::Output => return logs::update(&mut view.log.pane, model, cmd),
        UiCommand::Left | UiCommand::Right if !view.host_panes.is_empty() => {
            view.hosts.rows.move_cursor(if cmd == UiCommand::Left { UiCommand::Up } else { UiCommand::Down }, 1);
            return None;
        }
        UiCommand::Up | UiCommand::Down if view.columns > 1 => {
            view.hosts.rows.move_by_row(cmd, view.columns);
            return None;
        }
        _ if view.hosts.rows.move_cursor(cmd, model.page_rows) => return None,
        _ => {}
    }
    let host = view.hosts.selected_host()?;
    match cmd {
        UiCommand::Right | UiCommand::Left => {
            view.hosts.expand_or_collapse(host, cmd);
            None
        }
        UiCommand::Open => Some(PaneAction::ShowHost(host)),
        UiCommand::Output => Some(PaneAction::ShowLog(most_relevant_log(model, host))),
        _ => None,
    }
}

/// The most relevant log of a host: of a failed rank, of its first rank, or of its launcher.
pub(super) fn most_relevant_log(model: &Model, host: u32) -> (u32, LogFile) {
    let mut own: Vec<_> = model.state.ranks.values().filter(|rank| rank.host == host).collect();
    own.sort_by_key(|rank| (!rank.failed_by_itself(), rank.started_at.is_none(), rank.rank));
    let seen = own.first().filter(|rank| rank.started_at.is_some());
    seen.map_or((host, LogFile::Launcher), |rank| rank.log())
}

/// Draws the zones from top to bottom. Gives the rows of a page.
pub(crate) fn draw(frame: &mut Frame<'_>, area: Rect, model: &Model, view: &mut OverviewPane) -> usize {
    view.log.area = Rect::default();
    if view.zoomed {
        return match view.focus {
            Zone::Hosts => draw_hosts(frame, area, area.height, model, view).1,
            Zone::Log => view.log.draw(frame, area, model, true),
        };
    }
    let found = run_problems::collect_problems(model);
    let (is_short, has_pane) = (area.height < TALL, area.height >= failure::MIN_PANE_AREA);
    let area = failure::draw(frame, area, model, &found);
    let area = training::draw_header(frame, area, model);
    let has_failure = failure::has_failure(model, &found);
    let shows_charts = !has_failure && !model.has_open_steps() && charts_fit(&view.hosts.selection, model, area, log_share(area.height));
    let log_rows = log_share(area.height);
    let area = if shows_charts { training_charts::draw(frame, area, model) } else { area };
    let area = extremes::draw(frame, area, model);
    let reserved = if is_short && has_failure {
        // The pane of the failure has the lines that matter most.
        failure::spare_log_rows(model, if has_pane { area.height } else { 0 })
    } else if shows_charts {
        log_rows
    } else {
        log_share(area.height)
    };
    let (used, page_rows) = draw_hosts(frame, area, area.height - reserved, model, view);
    let mut rest = rows_area(area, used, area.height.saturating_sub(used));
    let has_glyph_room = rest.height > reserved && !(is_short && has_failure);
    if !view.hosts.groups.is_empty() && !view.hosts.selection.is_narrowed() && !model.has_open_steps() && has_glyph_room {
        // Folded hosts hide their GPUs; the title of this pane explains its signs.
        let used = gpu_matrix_rows::draw_glyphs(frame, rows_area(rest, 0, rest.height - reserved), model);
        rest = rows_area(rest, used, rest.height - used);
        view.legend = view.legend.filter(|_| used == 0);
    }
    let log_rows = draw_lower_zones(frame, rest, model, view);
    view.shows_log = view.log.area.height > 0;
    if focused(view) == Zone::Log { log_rows } else { page_rows }
}

/// The rows that the log keeps of an area: a third of the screen, which has three rows more.
fn log_share(height: u16) -> u16 {
    ((height + 3) / 3).max(MIN_LOG_ROWS).min(height / 2)
}

/// Draws the ranks' log, and below it the timeline if the log leaves room. Returns the rows of a page of the log.
fn draw_lower_zones(frame: &mut Frame<'_>, area: Rect, model: &Model, view: &mut OverviewPane) -> usize {
    let mut area = area;
    if model.has_open_steps() && area.height > 2 * MIN_LOG_ROWS {
        // Before a start nothing has happened that is worth a row.
        let kept = if model.capabilities.start_summary.is_some() { 0 } else { MIN_LOG_ROWS };
        let used = plan_pane::draw(frame, rows_area(area, 0, area.height - kept), model);
        area = rows_area(area, used, area.height - used);
    }
    if area.height < 3 {
        return 0;
    }
    let has_focus = view.focus == Zone::Log;
    let log_lines = view.log.count_rows(model, usize::from(area.height) - 2);
    let log_height = match log_lines {
        0 => 0,
        lines => u16::try_from(lines + 2).unwrap_or(u16::MAX).max(MIN_LOG_ROWS),
    };
    if log_height + MIN_LOG_ROWS > area.height {
        return view.log.draw(frame, area, model, has_focus);
    }
    let log_rows = if log_height > 0 { view.log.draw(frame, rows_area(area, 0, log_height), model, has_focus) } else { 0 };
    let rest = rows_area(area, log_height, area.height - log_height);
    events::draw_newest(frame, rest, model);
    log_rows
}

/// Draws the hosts in at most `room` rows, below the chosen filter and order, if any. Gives the rows that they took and those of a page.
fn draw_hosts(frame: &mut Frame<'_>, area: Rect, room: u16, model: &Model, view: &mut OverviewPane) -> (u16, usize) {
    view.host_panes.clear();
    view.columns = 1;
    let Some(title) = view.hosts.selection.title_line(model, usize::from(area.width)).filter(|_| room > 2) else {
        return draw_host_layout(frame, area, room, model, view);
    };
    render_lines(frame, rows_area(area, 0, 1), vec![title]);
    let (used, page_rows) = draw_host_layout(frame, rows_area(area, 1, area.height - 1), room - 1, model, view);
    (used + 1, page_rows)
}

/// The matrix of a plan that is carried out, panes, or the table.
fn draw_host_layout(frame: &mut Frame<'_>, area: Rect, room: u16, model: &Model, view: &mut OverviewPane) -> (u16, usize) {
    let needed = |rows: usize| u16::try_from(rows + 1).unwrap_or(u16::MAX).min(room);
    let hosts = view.hosts.selection.hosts(model);
    if model.has_open_steps() {
        let upper = rows_area(area, 0, needed(hosts.len() + 1));
        let used = launch_matrix::draw(frame, upper, model, &mut view.hosts);
        view.legend = None;
        return (used, usize::from(used.saturating_sub(1)));
    }
    if let Some(grid) = PaneGrid::fit(model, hosts, (area.width, room)) {
        view.hosts.set_rows(grid.hosts.iter().map(|host| (false, *host)).collect(), usize::from(room));
        view.hosts.groups.clear();
        let selected = view.hosts.selected_host().filter(|_| focused(view) == Zone::Hosts);
        view.columns = grid.columns;
        view.legend = Some(HostsLegend::Panes(grid.legend()));
        view.host_panes = grid.draw(frame, rows_area(area, 0, grid.height), model, selected);
        return (grid.height, grid.columns);
    }
    view.legend = Some(HostsLegend::Table);
    let table = HostTable::new(model, &view.hosts, usize::from(room).saturating_sub(1));
    let upper = rows_area(area, 0, needed(table.len().max(1)));
    table.draw(frame, upper, model, &mut view.hosts);
    (upper.height, usize::from(upper.height.saturating_sub(1)))
}
