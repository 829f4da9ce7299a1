//! Every GPU of the run, as large as all of them fit: a row a host with totals, two digits a GPU, or one glyph a GPU with the hosts in rows as
//! a dump of memory is printed: 128 hosts of 8 on 80 columns and 24 rows.
//!
//! Uses `sum` and `cells`. The digit is the tenth of the metric, so that it can be read without colours. What is looked for stays where it is
//! and the rest is dimmed.

use ratatui::Frame;
use ratatui::layout::Rect;
use ratatui::text::{Line, Span};

use crate::report::words;
use crate::tui::app::{App, Screen};
use crate::tui::keymap::Cmd;

use super::cells::{Filter, Matrix, Metric};
use super::{put, rows, sum, text};

/// What the matrix remembers.
#[derive(Debug, Clone, Default, PartialEq)]
pub struct View {
    pub(super) metric: Metric,
    /// The host and the place of the GPU under the cursor.
    pub(super) host: usize,
    pub(super) gpu: usize,
    /// How many hosts stood in a row.
    across: usize,
    /// The first row of hosts that is shown.
    top: usize,
    /// What is looked for; empty: nothing.
    pub(super) filter: Filter,
    /// Only what is wrong.
    pub(crate) faults: bool,
    /// Where the first GPU is drawn, the columns of a host, and those of a GPU.
    place: (u16, u16, usize, usize),
}

/// A click; `false`: nothing is there.
pub(super) fn touch(app: &mut App, x: u16, y: u16) -> bool {
    let (left, upper, block, cell) = app.gpus.place;
    let (Some(x), Some(y)) = (x.checked_sub(left), y.checked_sub(upper)) else { return false };
    let (across, gpu) = (usize::from(x) / block.max(1), usize::from(x) % block.max(1) / cell.max(1));
    let host = (app.gpus.top + usize::from(y)) * app.gpus.across + across;
    if across >= app.gpus.across || gpu >= most(app) || usize::from(y) >= app.page || host >= app.state.hosts.len() {
        return false;
    }
    (app.gpus.host, app.gpus.gpu) = (host, gpu);
    true
}

/// How large a GPU is drawn.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
enum Form {
    /// A row a host: three digits a GPU, and totals.
    Rows,
    /// Two digits.
    Digits,
    /// A glyph.
    Glyphs,
}

impl Form {
    /// The columns of a GPU.
    fn cell(self) -> usize {
        match self {
            Form::Rows => 4,
            Form::Digits => 3,
            Form::Glyphs => 1,
        }
    }
}

/// The columns of a host's totals.
const TOTALS: usize = 25;

fn most(app: &App) -> usize {
    app.state.hosts.iter().map(|host| host.gpus.len()).max().unwrap_or(0).max(1)
}

/// Takes what is looked for.
pub(crate) fn look_for(app: &mut App, words: &str) {
    match Filter::parse(words) {
        Ok(filter) => app.gpus.filter = filter,
        Err(why) => app.say(&why),
    }
}

/// The host under the cursor.
pub(crate) fn under(app: &App) -> u32 {
    u32::try_from(app.gpus.host).unwrap_or(0)
}

/// Obeys a command.
pub(crate) fn update(app: &mut App, cmd: Cmd) {
    let hosts = app.state.hosts.len().max(1);
    let wide = most(app);
    let across = app.gpus.across.max(1);
    let view = &mut app.gpus;
    let last = hosts - 1;
    match cmd {
        Cmd::Metric => view.metric = view.metric.next(),
        Cmd::Faults => view.faults = !view.faults,
        Cmd::Left if view.gpu > 0 => view.gpu -= 1,
        Cmd::Left if view.host > 0 => (view.host, view.gpu) = (view.host - 1, wide - 1),
        Cmd::Right if view.gpu + 1 < wide => view.gpu += 1,
        Cmd::Right if view.host < last => (view.host, view.gpu) = (view.host + 1, 0),
        Cmd::Up => view.host = view.host.checked_sub(across).unwrap_or(view.host),
        Cmd::Down if view.host + across <= last => view.host += across,
        Cmd::PageUp | Cmd::HalfUp => view.host = view.host.saturating_sub(across * 8),
        Cmd::PageDown | Cmd::HalfDown => view.host = (view.host + across * 8).min(last),
        Cmd::PrevHost => view.host = view.host.saturating_sub(1),
        Cmd::NextHost => view.host = (view.host + 1).min(last),
        Cmd::FindNext | Cmd::FindPrev => next(app, cmd == Cmd::FindPrev),
        Cmd::Top => (view.host, view.gpu) = (0, 0),
        Cmd::Bottom => view.host = last,
        Cmd::Open => {
            app.host = super::host::View::of(u32::try_from(view.host).unwrap_or(0));
            app.screen = Screen::Host;
        }
        Cmd::Output => {
            let log = super::overview::worst_log(app, u32::try_from(app.gpus.host).unwrap_or(0));
            app.logs.show(log);
            app.screen = Screen::Logs;
        }
        _ => {}
    }
}

/// To the next cell that is not dimmed, round the end.
fn next(app: &mut App, back: bool) {
    let matrix = Matrix::of(app);
    let wide = most(app);
    let count = app.state.hosts.len() * wide;
    let at = app.gpus.host * wide + app.gpus.gpu;
    let found = (1..=count).map(|step| if back { at + count - step } else { at + step } % count).find(|place| {
        let (host, gpu) = (place / wide, place % wide);
        app.state.hosts.get(host).is_some_and(|host| gpu < host.gpus.len()) && matrix.meant(app, host, gpu)
    });
    match found {
        Some(place) => (app.gpus.host, app.gpus.gpu) = (place / wide, place % wide),
        None => app.say("no GPU is meant by it"),
    }
}

/// The largest form in which all hosts fit, and how many stand in a row.
fn form(width: usize, room: usize, name: usize, wide: usize, hosts: usize) -> (Form, usize) {
    for form in [Form::Rows, Form::Digits, Form::Glyphs] {
        let across = match form {
            Form::Rows => width / (name + 3 + wide * form.cell() + TOTALS),
            Form::Digits | Form::Glyphs => width.saturating_sub(name + 2) / (wide * form.cell() + 1),
        };
        if across > 0 && hosts <= across * room || form == Form::Glyphs {
            let across = match form {
                // Even numbers are easier to count.
                Form::Glyphs if across >= 8 => across / 4 * 4,
                Form::Glyphs => across,
                Form::Rows | Form::Digits => hosts.div_ceil(room.max(1)),
            };
            return (form, across.clamp(1, hosts.max(1)));
        }
    }
    (Form::Glyphs, 1)
}

/// Draws it.
pub(crate) fn draw(frame: &mut Frame<'_>, area: Rect, app: &mut App) {
    let width = usize::from(area.width);
    let wide = most(app);
    let name = app.state.hosts.iter().map(|host| host.name.len()).max().unwrap_or(4).clamp(4, 16);
    let room = usize::from(area.height).saturating_sub(5);
    let (form, across) = form(width, room, name, wide, app.state.hosts.len());
    app.gpus.across = across;
    app.gpus.host = app.gpus.host.min(app.state.hosts.len().saturating_sub(1));
    let count = app.state.hosts.len().div_ceil(across);
    let at = app.gpus.host / across;
    let top = app.gpus.top.min(at).max((at + 1).saturating_sub(room));
    app.gpus.top = top;
    app.page = room;
    let block = match form {
        Form::Rows => name + 2 + wide * form.cell() + TOTALS,
        Form::Digits | Form::Glyphs => wide * form.cell() + 1,
    };
    app.gpus.place = (area.x + u16::try_from(name).unwrap_or(0) + 2, area.y + 2, block, form.cell());
    let matrix = Matrix::of(app);
    let mut lines = vec![title(app, &matrix, width), head(app, form, across, name, wide, width)];
    for row in (top..count).take(room) {
        let hosts = row * across..((row + 1) * across).min(app.state.hosts.len());
        lines.push(match form {
            Form::Rows => Line::from(hosts.flat_map(|host| whole_row(app, &matrix, host, name, wide)).collect::<Vec<_>>()),
            Form::Digits | Form::Glyphs => matrix_row(app, &matrix, hosts, form, name, wide),
        });
    }
    if app.state.hosts.is_empty() {
        lines.push(Line::styled(" no host is known yet", app.theme.dim()));
    }
    put(frame, area, lines);
    let detail = detail(app, &matrix, form, width);
    put(frame, rows(area, area.height.saturating_sub(3), 3), detail);
}

fn title(app: &App, matrix: &Matrix<'_>, width: usize) -> Line<'static> {
    let view = &app.gpus;
    let mut spans = vec![Span::styled(format!(" {}", view.metric.name()), app.theme.accent())];
    let mut more = Vec::new();
    if view.faults {
        more.push("only faults (!)".to_owned());
    }
    if !view.filter.is_empty() {
        more.push(format!("/{}", app.clean(view.filter.text())));
    }
    if !more.is_empty() {
        let (meant, all) = matrix.count(app);
        spans.push(Span::raw(words::cut(&format!("  {}: {meant} of {all} GPUs", more.join("  ")), width.saturating_sub(40))));
    }
    Line::from(spans)
}

fn head(app: &App, form: Form, across: usize, name: usize, wide: usize, width: usize) -> Line<'static> {
    let text = match form {
        Form::Rows => {
            let numbers: String = (0..wide).map(|gpu| format!("{gpu:>4}")).collect();
            let one = format!(" {} {numbers}  {:>4} {:>4} {:>5} {:>6}  ", text::pad("HOST", name), "AVG", "MEM", "MAXT", "POWER");
            one.repeat(across)
        }
        Form::Digits | Form::Glyphs => {
            let marks: String = (0..across).map(|n| text::pad(&format!("+{n}"), wide * form.cell() + 1)).collect();
            format!(" {} {marks}", text::pad("", name))
        }
    };
    Line::styled(words::cut(text.trim_end(), width), app.theme.head())
}

fn label(app: &App, host: usize, name: usize) -> Span<'static> {
    let label = app.state.hosts.get(host).map_or_else(String::new, |host| app.clean(&host.name));
    Span::raw(format!(" {} ", text::pad(&label, name)))
}

fn matrix_row(app: &App, matrix: &Matrix<'_>, hosts: std::ops::Range<usize>, form: Form, name: usize, wide: usize) -> Line<'static> {
    let mut spans = vec![label(app, hosts.start, name)];
    for host in hosts {
        spans.extend((0..wide).map(|gpu| matrix.cell(app, host, gpu, form.cell())));
        spans.push(Span::raw(" "));
    }
    Line::from(spans)
}

/// A host with three digits a GPU and its totals.
fn whole_row(app: &App, matrix: &Matrix<'_>, host: usize, name: usize, wide: usize) -> Vec<Span<'static>> {
    let mut spans = vec![label(app, host, name)];
    spans.extend((0..wide).map(|gpu| matrix.cell(app, host, gpu, Form::Rows.cell())));
    let fresh = app.state.hosts.get(host).filter(|host| !app.stale(host.gpus_at));
    let all = fresh.map(|host| sum::gpus(host.gpus.iter())).unwrap_or_default();
    let or_dash = |value: Option<String>| value.unwrap_or_else(|| "-".to_owned());
    spans.push(Span::raw(format!(
        "  {:>4} {:>4} {:>5} {:>6}  ",
        or_dash(all.utilization.map(|v| format!("{v:.0}%"))),
        or_dash(all.memory.map(|v| format!("{v:.0}%"))),
        or_dash(all.hottest.map(|v| format!("{v:.0}C"))),
        or_dash(all.power.map(text::watts)),
    )));
    spans
}

/// The GPU under the cursor in words, and its rank's last line.
fn detail(app: &App, matrix: &Matrix<'_>, form: Form, width: usize) -> Vec<Line<'static>> {
    let digits = if form == Form::Glyphs { "0-9 tenths  " } else { "" };
    let legend = words::cut(&format!(" {digits}! fault  ? old  . idle  - not told   / find: gpu03 util<5 temp>80"), width);
    let mut lines = vec![Line::styled(legend, app.theme.dim())];
    let Some(host) = app.state.hosts.get(app.gpus.host) else { return lines };
    let Some(gpu) = host.gpus.get(app.gpus.gpu) else {
        lines.push(Line::raw(format!(" {}: no values", app.clean(&host.name))));
        return lines;
    };
    let part = |name: &str, value: Option<f32>, unit: &str| value.map(|v| format!("{name}{v:.0}{unit}"));
    let mut parts = vec![format!("{} g{}", app.clean(&host.name), gpu.index)];
    parts.extend(part("util ", gpu.utilization, "%"));
    parts.extend(gpu.memory_used.zip(gpu.memory_total).map(|(used, total)| format!("mem {:.0}/{:.0}G", used / 1024.0, total / 1024.0)));
    parts.extend(part("", gpu.temperature, "C"));
    parts.extend(part("", gpu.power, gpu.power_limit.map_or_else(|| "W".to_owned(), |limit| format!("/{limit:.0}W")).as_str()));
    parts.extend(part("", gpu.ecc_errors.filter(|errors| *errors > 0.0), " ECC errors"));
    parts.extend(gpu.reasons.map(crate::gpu::throttled).unwrap_or_default().iter().map(|why| (*why).to_owned()));
    parts.push(format!("{} ago", text::age(host.gpus_at, app.now)));
    lines.push(Line::raw(words::cut(&format!(" {}", parts.join("  ")), width)));
    if let Some(rank) = matrix.rank(app.gpus.host, gpu.index) {
        let (status, word) = sum::rank_status(&app.state, rank);
        let last = rank.tail.last(1).pop().map(|line| app.clean(&line)).unwrap_or_default();
        let who = format!(" rank {} {word}", rank.rank);
        let rest = width.saturating_sub(who.len() + 5);
        lines.push(Line::from(vec![
            Span::styled(format!(" {}", app.theme.symbol(status)), app.theme.status(status)),
            Span::raw(who),
            Span::styled(" | ", app.theme.dim()),
            Span::raw(words::cut(&last, rest)),
        ]));
    }
    lines
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn the_largest_form_that_fits() {
        // The body of a screen of 24 rows has 16 rows of hosts.
        assert_eq!(form(80, 16, 6, 8, 16), (Form::Rows, 1));
        assert_eq!(form(200, 52, 6, 8, 4), (Form::Rows, 1));
        assert_eq!(form(80, 16, 6, 8, 32), (Form::Digits, 2));
        assert_eq!(form(80, 16, 6, 8, 128), (Form::Glyphs, 8));
        assert_eq!(form(120, 32, 6, 8, 128), (Form::Digits, 4));
        assert_eq!(form(200, 52, 6, 8, 128), (Form::Rows, 3));
        assert_eq!(form(3, 0, 16, 8, 0), (Form::Glyphs, 1));
    }
}
