//! The extremes of the run by name, in one line: the hottest GPU, GPUs that work much less than the others, and the slowest rank.

use ratatui::Frame;
use ratatui::layout::Rect;
use ratatui::text::{Line, Span};
use unicode_width::UnicodeWidthStr as _;

use crate::event::GpuSample;
use crate::report::style;
use crate::state::metric_scanner::TOKENS_PER_SECOND_INDEX;
use crate::state::{HostState, RankState};
use crate::tui::keymap::UiCommand;
use crate::tui::model::Model;
use crate::tui::slow_ranks::running_ranks;
use crate::tui::theme::DisplayStatus;

use super::lines::{render_lines, rows_area};
use super::{figure_age, formatting, training};

/// Below this height the line has no room.
const MIN_ROWS: u16 = 10;
/// From this width on the line has room for how long the slow rank has been silent.
const WIDE: u16 = 100;
/// Ranks whose speeds are within this share of the mean are equally fast, in percent.
const EVEN_PERCENT: f64 = 3.0;
/// The last values of a rank's speed that are taken together.
const SPEED_POINTS: usize = 8;
/// A rank that has written nothing for this much longer than half of the ranks is named, in milliseconds.
const MIN_QUIET_MS: i64 = 10_000;

/// Draws the line at the top of an area, if it is not empty. Returns the rest of the area.
pub(super) fn draw(frame: &mut Frame<'_>, area: Rect, model: &Model) -> Rect {
    // The values of an ended run are of the past.
    if area.height < MIN_ROWS || model.state.outcome.is_some() {
        return area;
    }
    let parts: Vec<(&str, String, DisplayStatus)> =
        [slowest_rank(model, area.width), hottest_gpu(model), low_gpus(model)].into_iter().flatten().collect();
    let mut spans: Vec<Span<'static>> = Vec::new();
    for (name, text, status) in parts {
        let room = usize::from(area.width).saturating_sub(formatting::spans_width(&spans) + name.width() + 3);
        if room < text.width().min(16) {
            break;
        }
        let style = if status >= DisplayStatus::Warn { model.theme.status_style(status) } else { ratatui::style::Style::new() };
        spans.push(Span::styled(format!(" {name} "), model.theme.dim()));
        spans.push(Span::styled(style::truncate_text(&text, room), style));
        spans.push(Span::raw(" "));
    }
    if spans.is_empty() {
        return area;
    }
    render_lines(frame, rows_area(area, 0, 1), vec![Line::from(spans)]);
    rows_area(area, 1, area.height - 1)
}

/// The hottest GPU among those whose values are current.
fn hottest_gpu(model: &Model) -> Option<(&'static str, String, DisplayStatus)> {
    let lang = model.lang;
    let fresh = (0_u32..).zip(&model.state.hosts).filter(|(at, _)| !figure_age::has_old_figures(model, *at));
    let all = fresh.flat_map(|(_, host)| host.gpus.iter().filter_map(move |gpu| Some((gpu.temperature?, host, gpu))));
    // Of equally hot ones that which is slowed down.
    let rank = |(degrees, _, gpu): &(f32, &HostState, &GpuSample)| (*degrees, u8::from(gpu.slowdown_reason().is_some()));
    let is_hotter = |one: &(f32, &HostState, &GpuSample), most: &(f32, &HostState, &GpuSample)| rank(one) > rank(most);
    let (degrees, host, gpu) = all.reduce(|most, one| if is_hotter(&one, &most) { one } else { most })?;
    let unit = model.theme.degree();
    let status = if gpu.slowdown_reason().is_some() { DisplayStatus::Warn } else { DisplayStatus::Ok };
    let why = if status == DisplayStatus::Warn { lang.tr(", slowed down") } else { "" };
    Some((lang.tr("hottest"), format!("{} GPU {} {degrees:.0}{unit}{why}", model.sanitize(&host.name), gpu.index), status))
}

/// The host whose GPUs are furthest below the others.
fn low_gpus(model: &Model) -> Option<(&'static str, String, DisplayStatus)> {
    let low = model.host_statuses.iter().zip(&model.state.hosts).filter_map(|(standing, host)| Some((standing.low_gpus.as_ref()?, host)));
    let (worst, host) = low.min_by(|a, b| a.0.mean.total_cmp(&b.0.mean))?;
    let more = model.host_statuses.iter().filter(|standing| standing.low_gpus.is_some()).count() - 1;
    let more = if more > 0 { model.lang.tr_fill("; {}", &[&model.count(more, "more host")]) } else { String::new() };
    let text = format!("{} {}{more}", model.sanitize(&host.name), model.lang.message(&worst.text()));
    let status = if worst.is_warning { DisplayStatus::Warn } else { DisplayStatus::Ok };
    Some((model.lang.tr("least used"), text, status))
}

/// The rank that holds up the others: steps behind, fewest tokens a second, or silent for longest.
fn slowest_rank(model: &Model, width: u16) -> Option<(&'static str, String, DisplayStatus)> {
    let running: Vec<&RankState> = running_ranks(&model.state).collect();
    running.get(1)?;
    let owner =
        |rank: &RankState| model.lang.tr_fill("r{} on {}", &[&rank.rank.to_string(), &model.sanitize(model.state.host_name(rank.host))]);
    // One value says little about a rank: the last ones together do.
    let speed = |rank: &RankState| {
        let newest = rank.metrics.get(TOKENS_PER_SECOND_INDEX)?.points().rev().filter(|speed| speed.is_finite()).take(SPEED_POINTS);
        formatting::mean(newest)
    };
    if let Some((rank, step, behind)) = model.slow_ranks.slowest(&model.state, model.now) {
        let steps = [format!("{step:.0}"), format!("{behind:.0}")];
        let silent = output_age(model, rank);
        let key = model.key(UiCommand::Ranks);
        let text = match silent > MIN_QUIET_MS && width >= WIDE {
            // It may be stuck rather than slow.
            true => {
                let values = [&owner(rank), &steps[0], &steps[1], &style::format_duration(silent), &key];
                model.lang.tr_fill("{} step {}, {} behind, silent for {}: press {}", &values.map(String::as_str))
            }
            false => model.lang.tr_fill("{} step {}, {} behind: press {}", &[&owner(rank), &steps[0], &steps[1], &key]),
        };
        return Some((model.lang.tr("slowest"), text, DisplayStatus::Warn));
    }
    let written = running.iter().filter(|rank| rank.last_output_at > 0);
    let quiet: Vec<(i64, &RankState)> = written.map(|rank| (output_age(model, rank), *rank)).collect();
    // In many runs only the first rank prints.
    let mut ages: Vec<i64> = quiet.iter().map(|(age, _)| *age).collect();
    ages.sort_unstable();
    let usual = ages.get(ages.len() / 2).copied().unwrap_or(0);
    if let Some((age, rank)) = quiet.into_iter().max_by_key(|(age, _)| *age).filter(|(age, _)| age - usual > MIN_QUIET_MS) {
        let text = model.lang.tr_fill("{} {} without a line", &[&owner(rank), &style::format_duration(age)]);
        return Some((model.lang.tr("quietest"), text, DisplayStatus::Ok));
    }
    let speeds: Vec<(f32, &RankState)> = running.iter().filter_map(|rank| Some((speed(rank)?, *rank))).collect();
    speeds.get(1)?;
    let mean = f64::from(formatting::mean(speeds.iter().map(|(speed, _)| *speed))?);
    if mean <= 0.0 {
        return None;
    }
    let (speed, rank) = speeds.into_iter().min_by(|a, b| a.0.total_cmp(&b.0))?;
    let below = (1.0 - f64::from(speed) / mean).max(0.0) * 100.0;
    if below < EVEN_PERCENT {
        let text = model.lang.tr_fill("even, no rank more than {}% below the mean", &[&format!("{:.0}", below.ceil().max(1.0))]);
        return Some((model.lang.tr("speed"), text, DisplayStatus::Ok));
    }
    let values = [training::format_value(f64::from(speed).round()), format!("{below:.0}")];
    let text = model.lang.tr_fill("{} {} tokens/s, {}% below the mean", &[&owner(rank), &values[0], &values[1]]);
    Some((model.lang.tr("slowest"), text, DisplayStatus::Ok))
}

fn output_age(model: &Model, rank: &RankState) -> i64 {
    model.now - model.log_times.last_output(rank.log()).unwrap_or(rank.last_output_at)
}
