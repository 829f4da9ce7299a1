//! The table of hosts: the worst first, equal healthy ones as one row where they do not fit, unfolded in place on request. The wider the
//! screen, the more columns.
//!
//! Uses `sum`. What is wrong never folds. Numbers of hosts whose values are old are left out of every sum.

use std::collections::BTreeMap;

use ratatui::Frame;
use ratatui::layout::Rect;
use ratatui::text::{Line, Span};

use crate::event::Millis;
use crate::report::words;
use crate::state::HostState;
use crate::tui::app::App;
use crate::tui::theme::Status;

use super::sum::{self, Ranks};
use super::{graph, put, text};

/// The columns of the GPUs together, and of the machine besides.
const NUMBERS: usize = 29;
const MACHINE: usize = 31;
/// The most and the fewest columns of the history: two values each.
const HISTORY: usize = 30;
const BRIEF: usize = 10;
/// What is kept for the reason.
const WHY: usize = 14;

/// A row.
struct Row {
    hosts: Vec<u32>,
    status: Status,
    why: String,
    ranks: Ranks,
    heard: Millis,
    /// One of the hosts of an unfolded row above.
    inside: bool,
}

/// The rows of one frame.
pub(super) struct Table {
    rows: Vec<Row>,
    groups: BTreeMap<u32, (String, u32)>,
}

impl Table {
    /// As many rows as there are hosts, or fewer where they have not so much room.
    pub(super) fn of(app: &App, room: usize) -> Table {
        let mut all: Vec<Row> = (0_u32..)
            .zip(&app.standings)
            .map(|(at, host)| Row {
                hosts: vec![at],
                status: host.status,
                why: host.why.clone(),
                ranks: host.ranks.clone(),
                heard: host.heard,
                inside: false,
            })
            .collect();
        all.sort_by_key(|row| (std::cmp::Reverse(row.status), row.hosts[0]));
        if all.len() <= room {
            return Table { rows: all, groups: BTreeMap::new() };
        }
        let mut rows: Vec<Row> = Vec::new();
        let mut members: BTreeMap<u32, Vec<Row>> = BTreeMap::new();
        for row in all {
            let alike = |known: &Row| known.status == row.status && known.why == row.why && row.status < Status::Warn;
            match rows.iter_mut().find(|known| alike(known)) {
                Some(known) => {
                    known.hosts.extend(&row.hosts);
                    known.ranks.all += row.ranks.all;
                    known.ranks.running += row.ranks.running;
                    known.ranks.ok += row.ranks.ok;
                    known.heard = known.heard.max(row.heard);
                    members.entry(known.hosts[0]).or_default().push(Row { inside: true, ..row });
                }
                None => rows.push(row),
            }
        }
        let mut table = Table { rows: Vec::new(), groups: BTreeMap::new() };
        for row in rows {
            let Some(others) = members.remove(&row.hosts[0]) else {
                table.rows.push(row);
                continue;
            };
            let (first, group) = (row.hosts[0], format!("{:?} {}", row.status, row.why));
            table.groups.extend(row.hosts.iter().map(|host| (*host, (group.clone(), first))));
            let open = app.overview.open.contains(&group);
            table.rows.push(row);
            if open {
                let standing = app.standings.get(first as usize).cloned().unwrap_or_default();
                let sum::Standing { ranks, status, why, heard } = standing;
                table.rows.push(Row { hosts: vec![first], status, why, ranks, heard, inside: true });
                table.rows.extend(others);
            }
        }
        table
    }

    /// How many rows.
    pub(super) fn len(&self) -> usize {
        self.rows.len()
    }

    /// Draws it.
    pub(super) fn draw(self, frame: &mut Frame<'_>, area: Rect, app: &mut App) {
        let room = usize::from(area.height).saturating_sub(1);
        let drawn = self.rows.iter().map(|row| (row.hosts.len() > 1, row.hosts[0])).collect();
        let (at, top) = app.overview.list.rows(drawn, room);
        app.overview.list.lies(area.y + 1, room);
        app.overview.groups = self.groups;
        let columns = Columns::of(usize::from(area.width), app, &self.rows, &app.overview.groups);
        let mut lines = vec![columns.head(app)];
        for (n, row) in self.rows.iter().enumerate().skip(top).take(room) {
            let line = columns.row(app, row);
            lines.push(if n == at { line.style(app.theme.chosen()) } else { line });
        }
        if self.rows.is_empty() {
            lines.push(Line::styled(" no host is known yet", app.theme.dim()));
        }
        put(frame, area, lines);
    }
}

/// How wide each column is; 0: it is left out.
struct Columns {
    name: usize,
    gpus: usize,
    numbers: bool,
    machine: bool,
    history: usize,
    why: usize,
    folded: bool,
}

impl Columns {
    fn of(width: usize, app: &App, rows: &[Row], groups: &BTreeMap<u32, (String, u32)>) -> Columns {
        let most = app.state.hosts.iter().map(|host| host.gpus.len()).max().unwrap_or(0).clamp(3, 16);
        // " name ST RANKS GPU" and, where there is room, the rest.
        let fixed = 1 + 1 + 3 + 10 + most + 1;
        let numbers = width >= fixed + 12 + NUMBERS;
        let machine = width >= fixed + 12 + NUMBERS + MACHINE + 10;
        let taken = fixed + if numbers { NUMBERS } else { 0 } + if machine { MACHINE } else { 0 };
        let folded = !groups.is_empty();
        let longest = rows.iter().map(|row| label(app, row, folded).len() + tag(&row.hosts).len()).max().unwrap_or(4).clamp(4, 60);
        let rest = width.saturating_sub(taken);
        let name = if rest > longest + 14 { longest.max(12) } else { rest.min(longest.max(rest.saturating_sub(9))) };
        let after = rest.saturating_sub(name + 1);
        let history = if machine && after > BRIEF + WHY { (after - WHY - 1).min(HISTORY) } else { 0 };
        let why = if history > 0 { after - history - 1 } else { after };
        Columns { name, gpus: most, numbers, machine, history, why, folded }
    }

    fn head(&self, app: &App) -> Line<'static> {
        let mut head = format!(" {} ST {} {} ", text::pad("HOST", self.name), text::pad("RANKS", 9), text::pad("GPU", self.gpus));
        if self.numbers {
            head += &format!("{:>4} {:>4} {:>4} {:>7} {:>5} ", "AVG", "MEM", "MAXT", "POWER", "LAST");
        }
        if self.machine {
            head += &format!("{:>4} {:>4} {:>9} {:>4} {:>5} ", "CPU", "RAM", "NET/s", "SLOW", "AGE");
        }
        if self.history > 0 {
            head += &text::pad("LAST MINUTES", self.history + 1);
        }
        if self.why > 0 {
            head += "STATE";
        }
        Line::styled(head, app.theme.head())
    }

    fn row(&self, app: &App, row: &Row) -> Line<'static> {
        let style = app.theme.status(row.status);
        let tag = tag(&row.hosts);
        let name = words::cut(&label(app, row, self.folded), self.name.saturating_sub(tag.len())) + &tag;
        let ranks = match (row.ranks.all, row.ranks.running + row.ranks.ok) {
            (0, _) => "-".to_owned(),
            (all, good) => format!("{good}/{all}"),
        };
        let mut spans = vec![
            Span::raw(format!(" {} ", text::pad(&name, self.name))),
            Span::styled(app.theme.symbol(row.status), style),
            Span::raw(format!("  {} ", text::pad(&ranks, 9))),
        ];
        spans.extend(self.glyphs(app, row));
        if self.numbers {
            spans.push(Span::raw(numbers(app, row)));
        }
        if self.machine {
            spans.push(Span::raw(machine(app, row)));
        }
        if self.history > 0 {
            let values = sum::history(hosts(app, row), |look| look.utilization, self.history * 2);
            let drawn = graph::graph(&values, self.history, 1, app.theme.graphs()).pop().unwrap_or_default();
            spans.push(Span::styled(drawn + " ", app.theme.status(Status::Ok)));
        }
        if self.why > 0 {
            spans.push(Span::raw(words::cut(&row.why, self.why)));
        }
        Line::from(spans)
    }

    fn glyphs(&self, app: &App, row: &Row) -> Vec<Span<'static>> {
        let [host] = row.hosts[..] else { return vec![Span::raw(" ".repeat(self.gpus + 1))] };
        let Some(host) = app.state.hosts.get(host as usize) else { return Vec::new() };
        let old = app.stale(host.gpus_at);
        let mut spans: Vec<Span<'static>> = host
            .gpus
            .iter()
            .take(self.gpus)
            .map(|gpu| {
                let (glyph, status) = sum::glyph(gpu, old);
                let style = match (status, gpu.utilization) {
                    (Status::Ok, Some(percent)) => app.theme.heat(percent),
                    _ => app.theme.status(status),
                };
                Span::styled(glyph.to_string(), style)
            })
            .collect();
        spans.push(Span::raw(" ".repeat(self.gpus + 1 - spans.len())));
        spans
    }
}

/// `+ gpu[00-89]` can be unfolded, `- gpu[00-89]` folded again.
fn label(app: &App, row: &Row, folded: bool) -> String {
    let names = words::hosts(&app.state, &app.cleaner, &row.hosts);
    let mark = match (folded, row.hosts.len() > 1, row.inside) {
        (false, ..) => "",
        (_, true, _) if is_open(app, row) => "- ",
        (_, true, _) => "+ ",
        (_, _, true) => "    ",
        _ => "  ",
    };
    format!("{mark}{names}")
}

fn is_open(app: &App, row: &Row) -> bool {
    app.overview.open.contains(&format!("{:?} {}", row.status, row.why))
}

/// How many hosts a row stands for.
fn tag(hosts: &[u32]) -> String {
    if hosts.len() > 1 { format!("  {}", words::count(hosts.len(), "host")) } else { String::new() }
}

fn hosts<'a>(app: &'a App, row: &'a Row) -> impl Iterator<Item = &'a HostState> + Clone {
    row.hosts.iter().filter_map(|at| app.state.hosts.get(*at as usize))
}

fn or_dash(value: Option<String>) -> String {
    value.unwrap_or_else(|| "-".to_owned())
}

fn numbers(app: &App, row: &Row) -> String {
    let fresh = hosts(app, row).filter(|host| !app.stale(host.gpus_at));
    let all = sum::gpus(fresh.flat_map(|host| &host.gpus));
    format!(
        "{:>4} {:>4} {:>4} {:>7} {:>5} ",
        or_dash(all.utilization.map(|v| format!("{v:.0}%"))),
        or_dash(all.memory.map(|v| format!("{v:.0}%"))),
        or_dash(all.hottest.map(|v| format!("{v:.0}C"))),
        or_dash(all.power.map(text::watts)),
        text::age(row.heard, app.now),
    )
}

/// Processors, memory, networks (InfiniBand alone where there is any), GPUs that are slowed down, and the age of the oldest value.
fn machine(app: &App, row: &Row) -> String {
    let all = sum::machines(hosts(app, row).filter(|host| host.vitals_at > 0 && !app.stale(host.vitals_at)));
    let slow = hosts(app, row).filter(|host| !app.stale(host.gpus_at)).flat_map(|host| &host.gpus).filter(|gpu| sum::slowed(gpu)).count();
    let oldest = hosts(app, row).map(|host| host.gpus_at.max(host.vitals_at)).min().unwrap_or(0);
    format!(
        "{:>4} {:>4} {:>9} {:>4} {:>5} ",
        or_dash(all.cpu.map(|v| format!("{v:.0}%"))),
        or_dash(all.memory.map(|v| format!("{v:.0}%"))),
        or_dash(all.network.map(text::rate)),
        if slow == 0 { "-".to_owned() } else { slow.to_string() },
        text::age(oldest, app.now),
    )
}
