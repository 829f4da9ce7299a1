//! Every rank in a row: where it runs, how it stands, for how long, when it last said something and what.
//!
//! Uses `sum` and `list`. Only the rows that are seen are made.

use std::cmp::Reverse;

use ratatui::Frame;
use ratatui::layout::Rect;
use ratatui::text::{Line, Span};

use crate::event::LogFile;
use crate::report::words;
use crate::state::{RankState, metrics};
use crate::tui::app::{App, Screen};
use crate::tui::keymap::Cmd;
use crate::tui::theme::Status;

use super::list::List;
use super::training::{self, Columns};
use super::{put, sum, text};

/// In which order.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Default)]
enum Order {
    /// What is wrong, then by number.
    #[default]
    Worst,
    /// By number.
    Rank,
    /// Who has said nothing for the longest time.
    Silent,
}

impl Order {
    fn name(self) -> &'static str {
        match self {
            Order::Worst => "the worst first",
            Order::Rank => "by rank",
            Order::Silent => "the longest silent first",
        }
    }
}

/// A last line with fewer columns than this says too little of a failure: it takes the place of the training's values.
const TELLING: usize = 24;

/// What the ranks' pane remembers.
#[derive(Debug, Clone, Default, PartialEq, Eq)]
pub struct View {
    list: List<u32>,
    order: Order,
}

/// A click in this row of the terminal; `false`: nothing is there.
pub(super) fn touch(app: &mut App, y: u16) -> bool {
    app.ranks.list.touch(y)
}

/// The rank under the cursor, behind its host.
pub(crate) fn under(app: &App) -> Option<(u32, u32)> {
    app.ranks.list.at().and_then(|rank| app.state.ranks.get(&rank)).map(|rank| (rank.host, rank.rank))
}

/// Obeys a command.
pub(crate) fn update(app: &mut App, cmd: Cmd) {
    if app.ranks.list.go(cmd, app.page) {
        return;
    }
    match cmd {
        Cmd::Sort => {
            app.ranks.order = match app.ranks.order {
                Order::Worst => Order::Rank,
                Order::Rank => Order::Silent,
                Order::Silent => Order::Worst,
            }
        }
        Cmd::Open | Cmd::Output => {
            if let Some(rank) = app.ranks.list.at().and_then(|rank| app.state.ranks.get(&rank)) {
                let log = (rank.host, LogFile::Rank { rank: rank.rank, restart: rank.restart });
                app.logs.show(log);
                app.screen = Screen::Logs;
            }
        }
        _ => {}
    }
}

fn heard(app: &App, rank: &RankState) -> i64 {
    app.times.last((rank.host, LogFile::Rank { rank: rank.rank, restart: rank.restart })).unwrap_or(0)
}

fn order(app: &App) -> Vec<u32> {
    let mut all: Vec<&RankState> = app.state.ranks.values().collect();
    match app.ranks.order {
        Order::Worst => all.sort_by_key(|rank| (Reverse(sum::rank_status(&app.state, rank).0), rank.rank)),
        Order::Rank => {}
        Order::Silent => all.sort_by_key(|rank| (rank.exit.is_some(), heard(app, rank), rank.rank)),
    }
    all.into_iter().map(|rank| rank.rank).collect()
}

/// Draws it.
pub(crate) fn draw(frame: &mut Frame<'_>, area: Rect, app: &mut App) {
    let width = usize::from(area.width);
    let room = usize::from(area.height).saturating_sub(1);
    app.page = room;
    let keys = order(app);
    let (at, top) = app.ranks.list.rows(keys.clone(), room);
    app.ranks.list.lies(area.y + 1, room);
    let name = app.state.hosts.iter().map(|host| host.name.len()).max().unwrap_or(4).clamp(4, 20);
    // Number, host, GPU, symbol, word, time and age with what stands between them.
    let fixed = 7 + name + 1 + 5 + 1 + 30;
    let columns = Columns::of(app, width.saturating_sub(fixed));
    let rest = width.saturating_sub(fixed + columns.as_ref().map_or(0, Columns::width));
    let last = format!("LAST LINE ({})", app.ranks.order.name());
    let last = [last.as_str(), "LAST LINE", "LAST"].into_iter().find(|head| head.len() <= rest).unwrap_or_default();
    let head = format!(
        " {:>5} {} {:<4} ST {} {:>8} {:>5}  {}{last}",
        "RANK",
        text::pad("HOST", name),
        "GPU",
        text::pad("", 11),
        "RUNS",
        "SAID",
        columns.as_ref().map(Columns::head).unwrap_or_default(),
    );
    let mut lines = vec![Line::styled(words::cut(&head, width), app.theme.head())];
    for (n, rank) in keys.iter().enumerate().skip(top).take(room) {
        let Some(rank) = app.state.ranks.get(rank) else { continue };
        let line = row(app, rank, name, rest, columns.as_ref());
        lines.push(if n == at { line.style(app.theme.chosen()) } else { line });
    }
    if keys.is_empty() {
        lines.push(Line::styled(" no rank is known yet", app.theme.dim()));
    }
    put(frame, area, lines);
}

fn row(app: &App, rank: &RankState, name: usize, rest: usize, columns: Option<&Columns>) -> Line<'static> {
    let (status, word) = sum::rank_status(&app.state, rank);
    let (columns, rest) = match columns {
        Some(columns) if status == Status::Bad && rest < TELLING => (None, rest + columns.width()),
        columns => (columns, rest),
    };
    let runs = match (rank.duration(), rank.started) {
        (Some(took), _) => text::clock(took),
        (None, Some(since)) if rank.exit.is_none() => text::clock(app.now - since),
        _ => "-".to_owned(),
    };
    let gpu = rank.local_rank.map_or_else(|| "-".to_owned(), |local| format!("g{local}"));
    let again = if rank.restart > 0 { format!("(restart {}) ", rank.restart) } else { String::new() };
    let last = rank.tail.last(1).pop().map(|line| app.clean(&line)).unwrap_or_default();
    let bar = rank.progress.filter(|_| rank.exit.is_none() && metrics::progress(last.as_bytes(), 0).is_some());
    let last = bar.and_then(|bar| training::gauge(&bar, app.now, rest, app.theme)).unwrap_or(last);
    let mut spans = vec![
        Span::raw(format!(" {:>5} {} {gpu:<4} ", rank.rank, text::pad(&app.clean(app.state.host_name(rank.host)), name))),
        Span::styled(app.theme.symbol(status), app.theme.status(status)),
        Span::raw(format!(" {} {runs:>8} {:>5}  ", text::pad(&word, 12), text::age(heard(app, rank), app.now))),
    ];
    spans.extend(columns.map(|columns| columns.row(app.theme, &rank.metrics)).unwrap_or_default());
    spans.push(Span::raw(words::cut(&format!("{again}{last}"), rest)));
    Line::from(spans)
}
