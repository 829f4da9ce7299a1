//! The panes: each draws the model into its area. The frame around them is drawn here.
//!
//! The layout depends only on the size of the terminal; every size can be drawn, down to one cell.

mod charts_fit;
pub(crate) mod command_palette;
pub(crate) mod dialog;
mod event_rows;
pub(crate) mod events;
mod extremes;
mod failure;
pub(crate) mod figure_age;
mod followed_log;
pub(crate) mod formatting;
mod gpu_heat_map;
mod gpu_matrix;
mod gpu_matrix_rows;
mod gpu_outliers;
mod gpu_pane_rows;
mod gpu_panes;
mod gpu_ranks;
mod gpu_status;
mod gpu_table;
mod gpu_text;
pub(crate) mod gpus;
mod graph;
mod header;
pub(crate) mod help;
pub(crate) mod host;
mod host_list;
mod host_machine;
mod host_processes;
mod host_selection;
pub(crate) mod host_status;
mod host_table;
mod host_totals;
mod last_lines;
mod launch_columns;
pub(crate) mod launch_matrix;
mod lines;
mod live_bars;
pub(crate) mod logs;
mod merged_log;
pub(crate) mod overview;
mod pane_frame;
mod phase_bars;
mod plan_pane;
pub(crate) mod problems;
mod rank_filter;
pub(crate) mod ranks;
pub(crate) mod run_problems;
mod section;
mod selectable_list;
pub(crate) mod training;
mod training_charts;

use ratatui::Frame;
use ratatui::layout::Rect;
use ratatui::text::{Line, Span};
use unicode_width::UnicodeWidthStr as _;

use header::{run_status, tab_at, tab_line, title_line};
pub(crate) use lines::clear_area;
use lines::{render_lines, rows_area};

use super::keymap::UiCommand;
use super::model::Model;
use super::ui::{Overlay, Screen, Ui};

/// Below this size only problems are shown.
const MIN_FULL_SIZE: (u16, u16) = (40, 10);
/// Below this size only "too small" is shown.
const MIN_SIZE: (u16, u16) = (20, 3);

/// Draws everything; returns the page size of the current screen in rows.
pub(super) fn draw(frame: &mut Frame<'_>, model: &Model, ui: &mut Ui) -> usize {
    let area = frame.area();
    let mut page_rows = model.page_rows;
    if area.width < MIN_SIZE.0 || area.height < MIN_SIZE.1 {
        draw_tiny(frame, area, model);
    } else if area.width < MIN_FULL_SIZE.0 || area.height < MIN_FULL_SIZE.1 {
        draw_small(frame, area, model);
    } else {
        page_rows = draw_full(frame, area, model, ui);
    }
    let contexts = ui.key_contexts(model);
    match &mut ui.overlay {
        Some(Overlay::Help(top)) if area.width >= MIN_SIZE.0 && area.height >= MIN_SIZE.1 => {
            page_rows = help::draw(frame, area, model, help::lines(model, &model.bindings, &contexts), top);
        }
        Some(Overlay::Dialog(dialog)) => dialog::draw(frame, area, model, dialog),
        Some(Overlay::Palette(palette)) => {
            command_palette::draw(frame, area, model, palette, &palette.matching_entries(&model.bindings, &contexts))
        }
        Some(Overlay::Help(_) | Overlay::Find(_) | Overlay::Filter(_)) | None => {}
    }
    if model.theme.ascii {
        replace_non_ascii(frame.buffer_mut());
    }
    page_rows
}

/// Replaces everything that is not ASCII.
fn replace_non_ascii(buffer: &mut ratatui::buffer::Buffer) {
    for cell in &mut buffer.content {
        if !cell.symbol().is_ascii() {
            cell.set_symbol(if cell.symbol() == "…" { ">" } else { "?" });
        }
    }
}

fn draw_tiny(frame: &mut Frame<'_>, area: Rect, model: &Model) {
    let (word, status) = run_status(model);
    render_lines(
        frame,
        area,
        vec![Line::styled(model.lang.term(word), model.theme.status_style(status)), Line::raw(model.lang.tr("too small"))],
    );
}

/// One status line and the problems, or how far the training is.
fn draw_small(frame: &mut Frame<'_>, area: Rect, model: &Model) {
    let width = usize::from(area.width);
    render_lines(frame, rows_area(area, 0, 1), vec![title_line(model, width)]);
    let rest = rows_area(area, 1, area.height - 1);
    let found = run_problems::collect_problems(model);
    let rest = failure::draw(frame, rest, model, &found);
    let rest = training::draw_header(frame, rest, model);
    if found.is_empty() && rest.height > 0 {
        render_lines(frame, rest, vec![Line::styled(model.lang.tr(" no problems; enlarge the window for more"), model.theme.dim())]);
    }
}

fn draw_full(frame: &mut Frame<'_>, area: Rect, model: &Model, ui: &mut Ui) -> usize {
    if ui.screen == Screen::Logs && ui.logs.zoomed {
        return logs::draw(frame, area, model, &mut ui.logs);
    }
    let width = usize::from(area.width);
    let (tabs, named_tabs) = tab_line(model, ui.screen, width);
    ui.named_tabs = named_tabs;
    render_lines(frame, rows_area(area, 0, 2), vec![title_line(model, width), tabs]);
    let body = rows_area(area, 2, area.height - 3);
    let page_rows = match ui.screen {
        Screen::Overview => overview::draw(frame, body, model, &mut ui.overview),
        Screen::Host => host::draw(frame, body, model, &mut ui.host),
        Screen::Ranks => ranks::draw(frame, body, model, &mut ui.ranks),
        Screen::Logs => logs::draw(frame, body, model, &mut ui.logs),
        Screen::Gpus => gpus::draw(frame, body, model, &mut ui.gpus),
        Screen::Events => events::draw(frame, body, model, &mut ui.events),
        Screen::Problems => problems::draw(frame, body, model, &mut ui.problems),
    };
    render_lines(frame, rows_area(area, area.height - 1, 1), vec![footer_line(model, ui, width)]);
    page_rows
}

/// Moves the cursor of a pane to a click; `false` if nothing was hit.
pub(super) fn handle_click(model: &Model, ui: &mut Ui, x: u16, y: u16) -> bool {
    if y == 1 {
        let Some(screen) = tab_at(model, ui.screen, ui.named_tabs, usize::from(x)) else { return false };
        ui.screen = screen;
        return true;
    }
    match ui.screen {
        Screen::Overview => overview::handle_click(&mut ui.overview, x, y),
        Screen::Ranks => ranks::handle_click(&mut ui.ranks, y),
        Screen::Gpus => gpus::handle_click(&mut ui.gpus, model, x, y),
        Screen::Problems => problems::handle_click(&mut ui.problems, y),
        Screen::Host | Screen::Logs | Screen::Events => false,
    }
}

/// The wheel at this cell scrolls the zone under it.
pub(super) fn focus_under_wheel(ui: &mut Ui, x: u16, y: u16) {
    if ui.screen == Screen::Overview {
        overview::focus_at(&mut ui.overview, x, y);
    }
}

/// The toast, or the keys of the current screen.
fn footer_line(model: &Model, ui: &Ui, width: usize) -> Line<'static> {
    if let Some(Overlay::Find(prompt) | Overlay::Filter(prompt)) = &ui.overlay {
        let sign = if matches!(ui.overlay, Some(Overlay::Filter(_))) { " &" } else { " /" };
        // The end of a long input is what is being typed.
        let seen = formatting::keep_end(&prompt.text, width.saturating_sub(4)).to_owned();
        return Line::from(vec![Span::styled(sign, model.theme.accent()), Span::raw(seen), Span::styled(" ", model.theme.selected())]);
    }
    if let Some((text, _)) = &ui.toast {
        return Line::styled(formatting::pad(&format!(" {text}"), width), model.theme.selected());
    }
    let contexts = ui.key_contexts(model);
    let has_log = ui.screen != Screen::Overview || overview::has_log(&ui.overview);
    let shown = contexts
        .iter()
        .flat_map(|context| model.bindings.bindings_in(*context).filter(|row| !row.default.hint.is_empty() && !row.keys.is_empty()))
        .filter(|row| has_log || row.default.command != UiCommand::NextPane)
        .map(|row| (row.join_keys("/"), model.lang.term(row.default.hint), row.default.command == UiCommand::Help));
    // How to learn the others and how to leave are said at every width.
    let (mut last, mut hints): (Vec<_>, Vec<_>) = shown.partition(|(_, _, is_help)| *is_help);
    if let Some(keys) = model.bindings.keys_for(UiCommand::Quit, &contexts) {
        last.push((keys, if ui.screen == Screen::Overview { model.lang.tr("leave") } else { model.lang.tr("back") }, false));
    }
    let hint_width = |(key, help, _): &(String, &'static str, bool)| key.len() + help.width() + 3;
    let mut room = width.saturating_sub(1 + last.iter().map(hint_width).sum::<usize>());
    let fitting = hints.iter().take_while(|hint| {
        let fits = hint_width(hint) <= room;
        room = room.saturating_sub(hint_width(hint));
        fits
    });
    hints.truncate(fitting.count());
    let mut spans = vec![Span::raw(" ")];
    for (key, help, _) in hints.into_iter().chain(last) {
        if formatting::spans_width(&spans) + key.len() + help.width() + 3 > width {
            break;
        }
        spans.push(Span::styled(key, model.theme.accent()));
        spans.push(Span::raw(format!(" {help}  ")));
    }
    let room = width.saturating_sub(formatting::spans_width(&spans) + 1);
    if ui.screen == Screen::Overview {
        spans.push(Span::styled(formatting::pad_left(&overview::legend(&ui.overview, model, room), room), model.theme.dim()));
    }
    Line::from(spans)
}
