//! The GPUs of one host: a row each, what holds them back, and their last minutes as graphs.
//!
//! Uses `graph`. What the driver does not tell is `-`, and never zero. The axes are fixed: percent of what is possible, of the limit, degrees.

use ratatui::text::{Line, Span};

use crate::event::GpuSample;
use crate::gpu::throttled;
use crate::report::words;
use crate::state::{HostState, Trace};
use crate::tui::app::App;
use crate::tui::theme::Status;

use super::host::{aged, title};
use super::{graph, sum, text};

/// The longest row of bars.
const BARS: usize = 60;

/// A row a GPU.
pub(super) fn gpus(app: &App, host: &HostState, width: usize) -> Vec<Line<'static>> {
    let name = host.gpus.first().map_or_else(String::new, |gpu| app.clean(&gpu.name));
    let age = if host.gpus.is_empty() { String::new() } else { aged(app, host.gpus_at) };
    let mut lines = vec![title(app, &format!("GPUs  {name}  {age}"), width)];
    if let Some((error, at)) = &host.gpus_unread {
        let text = format!(" nvidia-smi gives no values since {}: {}", text::age(*at, app.now), app.clean(error));
        lines.push(Line::styled(words::cut(&text, width), app.theme.status(Status::Warn)));
    }
    if host.gpus.is_empty() {
        lines.push(Line::styled(" no values were told", app.theme.dim()));
        return lines;
    }
    lines.push(Line::styled(words::cut("   #  UTIL      MEM GiB      POWER   TEMP    CLOCK  LAST MINUTES", width), app.theme.dim()));
    let stale = app.stale(host.gpus_at) || host.gpus_unread.is_some();
    lines.extend(host.gpus.iter().map(|gpu| row(app, host, gpu, stale, width)));
    lines
}

fn row(app: &App, host: &HostState, gpu: &GpuSample, stale: bool, width: usize) -> Line<'static> {
    let dash = || "-".to_owned();
    let (glyph, status) = sum::glyph(gpu, stale);
    let util = gpu.utilization.map_or_else(dash, |v| format!("{v:.0}%"));
    let memory = match (gpu.memory_used, gpu.memory_total) {
        (Some(used), Some(total)) => format!("{:.1}/{:.1}", used / 1024.0, total / 1024.0),
        (Some(used), None) => format!("{:.1}", used / 1024.0),
        _ => dash(),
    };
    let power = match (gpu.power, gpu.power_limit) {
        (Some(power), Some(limit)) => format!("{power:.0}/{limit:.0}W"),
        (Some(power), None) => format!("{power:.0}W"),
        _ => dash(),
    };
    let temperature = gpu.temperature.map_or_else(dash, |v| format!("{v:.0}C"));
    let clock = gpu.clock.map_or_else(dash, |v| format!("{v:.0}"));
    let values = format!(" {:>2}  {util:>4} {memory:>12} {power:>10} {temperature:>6} {clock:>8}  ", gpu.index);
    let look = if stale { app.theme.dim() } else { ratatui::style::Style::new() };
    let mut spans = vec![Span::styled(format!(" {glyph}"), app.theme.status(status)), Span::styled(values, look)];
    let mut why: Vec<String> = gpu.reasons.map(throttled).unwrap_or_default().iter().map(|why| (*why).to_owned()).collect();
    why.extend(gpu.ecc_errors.filter(|errors| *errors > 0.0).map(|errors| format!("{errors:.0} ECC errors")));
    why.extend(gpu.mig.filter(|mig| *mig).map(|_| "MIG".to_owned()));
    let rest = width.saturating_sub(text::width(&spans));
    let why = why.join(", ");
    let room = rest.saturating_sub(if why.is_empty() { 0 } else { why.len() + 1 }).min(BARS);
    let bars = graph::spark(&values_of(host, gpu.index, |look| look.utilization), room, app.theme.plain_graphs());
    spans.push(Span::styled(bars, app.theme.status(if stale { Status::Pending } else { Status::Ok })));
    if !why.is_empty() {
        spans.push(Span::styled(words::cut(&format!(" {why}"), rest), app.theme.status(Status::Warn)));
    }
    Line::from(spans)
}

fn values_of(host: &HostState, gpu: u32, get: fn(&Trace) -> Option<f32>) -> Vec<Option<f32>> {
    host.traces.get(&gpu).map(|trace| trace.iter().map(get).collect()).unwrap_or_default()
}

/// The means over the host's GPUs, utilisation and power side by side.
pub(super) fn means(app: &App, host: &HostState, width: usize) -> Vec<Line<'static>> {
    if host.traces.is_empty() {
        return Vec::new();
    }
    let half = width.saturating_sub(3) / 2;
    let of = |get: fn(&Trace) -> Option<f32>| sum::history(std::iter::once(host), get, half * 2);
    pair(app, ("utilisation, mean", of(|look| look.utilization)), ("power, of the limit, mean", of(|look| look.power)), half, 3)
}

/// Two graphs a GPU: utilisation and power, as large as there is room for all of them.
pub(super) fn graphs(app: &App, host: &HostState, width: usize) -> Vec<Line<'static>> {
    let mut lines = vec![title(app, "Last minutes  v: what nvidia-smi prints", width)];
    if host.traces.is_empty() {
        lines.push(Line::styled(" no values were told", app.theme.dim()));
    }
    let half = width.saturating_sub(3) / 2;
    let height = if host.traces.len() <= 8 { 3 } else { 1 };
    for gpu in host.traces.keys() {
        let names = [format!("g{gpu} utilisation"), format!("g{gpu} power, of the limit")];
        let utilization = (names[0].as_str(), values_of(host, *gpu, |look| look.utilization));
        lines.extend(pair(app, utilization, (names[1].as_str(), values_of(host, *gpu, |look| look.power)), half, height));
    }
    lines
}

/// Two graphs with their names and last values above them.
fn pair(
    app: &App,
    (left, left_values): (&str, Vec<Option<f32>>),
    (right, right_values): (&str, Vec<Option<f32>>),
    half: usize,
    height: usize,
) -> Vec<Line<'static>> {
    let last = |values: &[Option<f32>]| values.last().copied().flatten().map_or_else(|| "-".to_owned(), |v| format!("{v:.0}%"));
    let head = |name: &str, values: &[Option<f32>]| text::pad(&format!(" {name} {}", last(values)), half + 1);
    let names = head(left, &left_values) + &head(right, &right_values);
    let mut lines = vec![Line::styled(names.trim_end().to_owned(), app.theme.dim())];
    let drawn = |values: &[Option<f32>]| graph::graph(values, half, height, app.theme.graphs());
    for (left, right) in drawn(&left_values).into_iter().zip(drawn(&right_values)) {
        let look = app.theme.status(Status::Ok);
        lines.push(Line::from(vec![Span::raw(" "), Span::styled(left, look), Span::raw(" "), Span::styled(right, look)]));
    }
    lines
}
