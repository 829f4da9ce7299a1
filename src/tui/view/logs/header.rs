//! The header of the Logs screen: whose log it is, and the settings of the view.

use ratatui::text::{Line, Span};

use crate::event::LogFile;
use crate::report::style;
use crate::text::byte_size::format_bytes;
use crate::tui::feed::DashboardRole;
use crate::tui::model::Model;
use crate::tui::view::{formatting, host_status};

use super::pane::{LogScope, LogsPane, TimeColumn};
use super::rows::{count_lines, with_shown_log};

/// Whether the newest line is shown, or how many have come since.
pub(crate) fn position_text(pane: &LogsPane, model: &Model) -> String {
    let new = count_lines(pane, model).saturating_sub(pane.lines_when_left);
    if pane.top.is_none() { model.lang.tr("follow").to_owned() } else { model.lang.tr_fill("v {} new", &[&new.to_string()]) }
}

pub(super) fn header_line(pane: &LogsPane, model: &Model, width: usize, size: u64) -> Line<'static> {
    let mut spans = vec![Span::styled(model.lang.tr(" LOG "), model.theme.header())];
    spans.extend(subject_spans(pane, model));
    spans.push(Span::raw("  "));
    let used = formatting::spans_width(&spans);
    let right = status_facts(pane, model, size).join(" | ");
    // The left end, which is the least important, is cut.
    let room = width.saturating_sub(used);
    let right = formatting::keep_end(&right, room.saturating_sub(1));
    spans.push(Span::styled(formatting::pad_left(&format!("{right} "), room), model.theme.dim()));
    Line::from(spans)
}

fn subject_spans(pane: &LogsPane, model: &Model) -> Vec<Span<'static>> {
    let state = &model.state;
    let Some((host, file)) = pane.shown_log(&model.state) else { return Vec::new() };
    let name = model.sanitize(state.host_name(host));
    let lang = model.lang;
    let text = match (pane.scope, file) {
        (LogScope::All, _) if !pane.is_unfolded => lang.tr("all, folded").to_owned(),
        (LogScope::All, _) => lang.tr("all, unfolded").to_owned(),
        (LogScope::Host, _) if !pane.is_unfolded => lang.tr_fill("all on {}, folded", &[&name]),
        (LogScope::Host, _) => lang.tr_fill("all on {}, unfolded", &[&name]),
        (LogScope::Single, LogFile::Launcher) => lang.tr_fill("launcher on {}", &[&name]),
        (LogScope::Single, LogFile::Task { number }) => lang.tr_fill("task {} on {}", &[&number.to_string(), &name]),
        (LogScope::Single, LogFile::Rank { rank, restart }) => {
            let known = state.ranks.get(&rank);
            let gpu = known.and_then(|rank| rank.local_rank).map_or_else(String::new, |local| format!(":g{local}"));
            let again = if restart > 0 { lang.tr_fill(" restart {}", &[&restart.to_string()]) } else { String::new() };
            let mut spans = vec![Span::raw(format!("r{rank} {name}{gpu}{again}  "))];
            if let Some((status, word)) = known.map(|rank| host_status::rank_status(&model.state, rank)) {
                spans.push(Span::styled(
                    format!("{} {}", model.theme.symbol(status), lang.message(&word)),
                    model.theme.status_style(status),
                ));
            }
            return spans;
        }
    };
    vec![Span::raw(text)]
}

/// View settings for the header, least important first.
fn status_facts(pane: &LogsPane, model: &Model, size: u64) -> Vec<String> {
    let lang = model.lang;
    let mut facts = Vec::new();
    if pane.scope == LogScope::Single {
        let last_output = pane.shown_log(&model.state).and_then(|owner| model.log_times.last_output(owner)).unwrap_or(0);
        if last_output > 0 {
            facts.push(lang.tr_fill("last {} ago", &[&formatting::format_age(last_output, model.now)]));
        }
    } else {
        facts.extend(skipped_facts(model));
    }
    facts.extend(time_fact(pane, model).map(str::to_owned));
    let modes = [(pane.show_bytes, lang.tr("bytes")), (pane.show_all_redraws, lang.tr("all redraws")), (pane.wrap, lang.tr("wrap"))];
    facts.extend(modes.iter().filter(|(on, _)| *on).map(|(_, name)| (*name).to_owned()));
    if pane.first_column > 0 && !pane.wrap {
        facts.push(lang.tr_fill("column {}", &[&pane.first_column.to_string()]));
    }
    if pane.scope == LogScope::Single {
        facts.push(format_bytes(size));
        let number = pane.cached_rows.as_ref().and_then(|(_, rows)| rows.first()).filter(|_| pane.top.is_some());
        let number = number
            .and_then(|row| with_shown_log(pane, model, |source| pane.index.line_number(source, row.position)).ok().flatten().flatten());
        facts.extend(number.map(|number| lang.tr_fill("line {}", &[&number.to_string()])));
    } else {
        facts.push(model.count(pane.merged.seqs.len(), "line"));
    }
    if let Some(filter) = &pane.filter {
        let part = pane.index.percent_scanned(size);
        let is_partial = pane.scope == LogScope::Single && !pane.index.is_complete();
        let part = if is_partial { lang.tr_fill(" ({}% scanned)", &[&part.to_string()]) } else { String::new() };
        facts.push(format!("&{}{part}", style::truncate_text(&model.sanitize(&filter.text), 24)));
    }
    if let Some(wanted) = &pane.search {
        let hits = &pane.index.matches;
        let all = if hits.truncated || !pane.index.is_complete() {
            format!("{}+", hits.offsets().len())
        } else {
            hits.offsets().len().to_string()
        };
        let count = match pane.found_position {
            _ if pane.scope != LogScope::Single => String::new(),
            Some(at) if hits.offsets().contains(&at) => format!(" {}/{all}", hits.count_before(at) + 1),
            _ => format!(" {all}"),
        };
        facts.push(format!("/{}{count}", style::truncate_text(&model.sanitize(wanted.as_str()), 20)));
    }
    let new = count_lines(pane, model).saturating_sub(pane.lines_when_left);
    facts.push(match (pane.top.is_none(), new) {
        (true, _) => lang.tr("FOLLOW").to_owned(),
        (false, 0) => lang.tr("scrolled back").to_owned(),
        (false, new) => lang.tr_fill("v {} new", &[&new.to_string()]),
    });
    facts
}

/// What the column of times means. Lines carry no timestamp: it is when their bytes arrived, live or in the journal.
fn time_fact(pane: &LogsPane, model: &Model) -> Option<&'static str> {
    let lang = model.lang;
    match (pane.time_column, model.capabilities.role == DashboardRole::Replay) {
        (TimeColumn::Off, _) => None,
        (TimeColumn::Relative, false) => Some(lang.tr("age by arrival")),
        (TimeColumn::Relative, true) => Some(lang.tr("age by journal")),
        (TimeColumn::TimeOfDay, false) => Some(lang.tr("time of arrival")),
        (TimeColumn::TimeOfDay, true) => Some(lang.tr("time of journal")),
    }
}

/// Lines and bytes missing from merged logs; the log of one rank is read from its file and has them.
fn skipped_facts(model: &Model) -> impl Iterator<Item = String> {
    let lines = usize::try_from(model.log_ring.skipped_lines).unwrap_or(usize::MAX);
    let lines = (lines > 0).then(|| model.lang.tr_fill("{} not shown", &[&model.count(lines, "line")]));
    let bytes = (model.skipped_log_bytes > 0).then(|| model.lang.tr_fill("{} not shown", &[&format_bytes(model.skipped_log_bytes)]));
    lines.into_iter().chain(bytes)
}
