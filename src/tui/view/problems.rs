//! What is wrong, the worst first: as a strip on the overview, and as a screen of its own with the evidence and what to do next.
//!
//! Uses `state` and `diagnose`. A cause is told before its consequences; the same of many hosts is one line.

use std::cmp::Reverse;

use ratatui::Frame;
use ratatui::layout::Rect;
use ratatui::text::{Line, Span};

use crate::diagnose::{self, Finding};
use crate::event::LogFile;
use crate::report::{finding, words};
use crate::state::{Liveness, RankState};
use crate::tui::app::{App, Screen};
use crate::tui::keymap::Cmd;
use crate::tui::theme::Status;

use super::list::List;
use super::{put, rows, sum, text};

/// How long a warning is news.
const FRESH: i64 = 60_000;
/// How many of a log's last lines are evidence.
const EVIDENCE: usize = 12;

/// One thing that is wrong.
#[derive(Debug, Clone, PartialEq, Eq)]
pub(crate) struct Problem {
    /// How bad.
    pub status: Status,
    /// Where and what, clean.
    pub text: String,
    /// Which hosts; none: it is about the run.
    pub hosts: Vec<u32>,
    /// The log that tells more.
    pub log: Option<(u32, LogFile)>,
    /// What to do, clean; may be empty.
    pub next: String,
}

/// What the screen remembers.
#[derive(Debug, Clone, Default, PartialEq, Eq)]
pub struct View {
    list: List<(Status, String)>,
}

#[derive(Default)]
struct Found(Vec<Problem>);

impl Found {
    /// The same of another host joins.
    fn add(&mut self, status: Status, host: u32, text: String, next: String, log: Option<(u32, LogFile)>) {
        match self.0.iter_mut().find(|known| known.status == status && known.text == text) {
            Some(known) => known.hosts.push(host),
            None => self.0.push(Problem { status, text, hosts: vec![host], log, next }),
        }
    }
}

fn log_of(rank: &RankState) -> (u32, LogFile) {
    (rank.host, LogFile::Rank { rank: rank.rank, restart: rank.restart })
}

/// All of them.
pub(crate) fn problems(app: &App) -> Vec<Problem> {
    let mut found = Found::default();
    let mut causes = causes(app);
    ranks(app, &mut found);
    steps(app, &mut found);
    hosts(app, &mut found);
    let fresh = app.state.notices.iter().rev().filter(|note| note.warn && (app.now - note.at < FRESH || app.state.outcome.is_some()));
    for note in fresh.take(20) {
        let text = app.clean(&note.text);
        match note.host {
            Some(host) => found.add(Status::Warn, host, text, String::new(), None),
            None if found.0.iter().any(|known| known.text == text) => {}
            None => found.0.push(Problem { status: Status::Warn, text, hosts: Vec::new(), log: None, next: String::new() }),
        }
    }
    let mut all = found.0;
    for problem in all.iter_mut().filter(|problem| !problem.hosts.is_empty()) {
        problem.hosts.sort_unstable();
        problem.hosts.dedup();
        problem.text = format!("{}  {}", words::hosts(&app.state, &app.cleaner, &problem.hosts), problem.text);
    }
    all.sort_by_key(|problem| Reverse(problem.status));
    causes.extend(all);
    causes
}

/// What explains the failures, the first cause first.
fn causes(app: &App) -> Vec<Problem> {
    let told = |found: &Finding| {
        let [what, why, next] = finding::texts(found, app.lang, &app.cleaner);
        let felt = if found.felt.is_empty() { String::new() } else { format!("; felt by {}", words::ranks(&found.felt)) };
        let why = if why.is_empty() { String::new() } else { format!(" ({why})") };
        let log = found.ranks.first().and_then(|rank| app.state.ranks.get(rank)).map(log_of);
        Problem {
            status: Status::Bad,
            text: format!("{}  {what}{why}{felt}", finding::place(found, &app.state, &app.cleaner)),
            hosts: found.hosts.clone(),
            log: log.or_else(|| found.hosts.first().map(|host| (*host, LogFile::Node))),
            next,
        }
    };
    diagnose::findings(&app.evidence, &app.state).iter().map(told).collect()
}

fn ranks(app: &App, found: &mut Found) {
    let first: Vec<u32> = app.state.culprit.as_ref().map(|culprit| culprit.ranks.clone()).unwrap_or_default();
    for rank in app.state.failed_ranks() {
        let exit = rank.exit.map(words::exit).unwrap_or_default();
        if !first.is_empty() && !first.contains(&rank.rank) {
            // Its own launcher or a broken connection to the first one ended it.
            let text = format!("ranks that ended after the first failure: {exit}");
            found.add(Status::Warn, rank.host, text, String::new(), Some(log_of(rank)));
            continue;
        }
        let mark = if first.contains(&rank.rank) { ", failed first" } else { "" };
        let last = rank.tail.last(1).pop().map_or_else(String::new, |line| format!(": {}", app.clean(&line)));
        let next = app.evidence.advice().command("logs", &format!("--rank {}", rank.rank));
        found.add(Status::Bad, rank.host, format!("rank {} {exit}{mark}{last}", rank.rank), next, Some(log_of(rank)));
    }
}

fn steps(app: &App, found: &mut Found) {
    for step in app.state.failed_steps() {
        let text = format!("{}: {}", step.info.phase.name(), app.clean(&step.note));
        found.add(Status::Bad, step.info.host, text, app.clean(&step.hint), Some((step.info.host, LogFile::Node)));
    }
    for left in &app.state.leftovers {
        found.add(Status::Bad, left.host, format!("left: {}", app.clean(&left.text)), app.evidence.advice().command("down", ""), None);
    }
}

fn hosts(app: &App, found: &mut Found) {
    for ((at, host), standing) in (0_u32..).zip(&app.state.hosts).zip(&app.standings) {
        let failing = !standing.ranks.failed.is_empty() || standing.ranks.stopped > 0;
        let node = Some((at, LogFile::Node));
        match (host.liveness, host.node_exit) {
            (Liveness::Unreachable, _) => {
                found.add(Status::Lost, at, format!("unreachable: {}", app.clean(&host.error)), String::new(), None);
            }
            (Liveness::Retrying, _) => {
                let next = "its ranks may go on; the connection is made again by itself".to_owned();
                found.add(Status::Lost, at, format!("no connection, trying again: {}", app.clean(&host.error)), next, None);
            }
            (_, Some((exit, _))) if !exit.ok() && !failing && app.state.stopping.is_none() => {
                found.add(Status::Bad, at, format!("the launcher ended: {}", words::exit(exit)), String::new(), node);
            }
            _ => {}
        }
        if let Some(why) = sum::gpu_trouble(host) {
            found.add(Status::Warn, at, app.clean(&why), String::new(), None);
        }
    }
}

/// A click in this row of the terminal; `false`: nothing is there.
pub(super) fn touch(app: &mut App, y: u16) -> bool {
    app.problems.list.touch(y)
}

/// The host of the problem under the cursor, and its rank where a rank's log tells of it.
pub(crate) fn under(app: &App) -> Option<(u32, Option<u32>)> {
    let problem = app.problems.list.at().and_then(|key| problems(app).into_iter().find(|p| (p.status, p.text.clone()) == key))?;
    match problem.log {
        Some((host, crate::event::LogFile::Rank { rank, .. })) => Some((host, Some(rank))),
        Some((host, _)) => Some((host, None)),
        None => problem.hosts.first().map(|host| (*host, None)),
    }
}

/// Obeys a command.
pub(crate) fn update(app: &mut App, cmd: Cmd) {
    if app.problems.list.go(cmd, app.page) {
        return;
    }
    let Some(problem) = app.problems.list.at().and_then(|key| problems(app).into_iter().find(|p| (p.status, p.text.clone()) == key)) else {
        return;
    };
    match (cmd, problem.log, problem.hosts.first()) {
        (Cmd::Open | Cmd::Output, Some(log), _) => {
            app.logs.show(log);
            app.screen = Screen::Logs;
        }
        (Cmd::Open | Cmd::Output, None, Some(host)) => {
            app.host = super::host::View::of(*host);
            app.screen = Screen::Host;
        }
        _ => {}
    }
}

/// Goes to the next problem, or the one before, from wherever one is.
pub(crate) fn next(app: &mut App, next: bool) {
    let here = app.screen == Screen::Problems;
    app.screen = Screen::Problems;
    let keys = problems(app).iter().map(|p| (p.status, p.text.clone())).collect();
    app.problems.list.rows(keys, app.page.max(1));
    let cmd = if next { Cmd::Down } else { Cmd::Up };
    app.problems.list.go(if here { cmd } else { Cmd::Top }, 1);
}

/// Draws the screen: the list, and beneath it what is known of the one under the cursor.
pub(crate) fn draw(frame: &mut Frame<'_>, area: Rect, app: &mut App) {
    let width = usize::from(area.width);
    let height = usize::from(area.height);
    let all = problems(app);
    if all.is_empty() {
        put(frame, area, vec![Line::styled(" nothing is wrong", app.theme.dim())]);
        return;
    }
    let room = all.len().min((height / 2).max(1));
    app.page = room;
    let (at, top) = app.problems.list.rows(all.iter().map(|p| (p.status, p.text.clone())).collect(), room);
    app.problems.list.lies(area.y, room);
    let mut lines: Vec<Line<'static>> = Vec::new();
    for (n, problem) in all.iter().enumerate().skip(top).take(room) {
        let line = super::problem_line(app, problem, width);
        lines.push(if n == at { line.style(app.theme.chosen()) } else { line });
    }
    put(frame, rows(area, 0, area.height), lines);
    let Some(problem) = all.get(at) else { return };
    let below = u16::try_from(room).unwrap_or(u16::MAX);
    put(frame, rows(area, below, area.height.saturating_sub(below)), evidence(app, problem, width, height.saturating_sub(room)));
}

fn evidence(app: &App, problem: &Problem, width: usize, height: usize) -> Vec<Line<'static>> {
    let mut lines = vec![Line::styled(text::pad(" evidence", width), app.theme.head())];
    lines.extend(wrapped(&problem.text, width.saturating_sub(2)).into_iter().map(|row| Line::raw(format!(" {row}"))));
    let tail = problem.log.map(|(host, file)| match file {
        LogFile::Node => app.state.hosts.get(host as usize).map(|host| host.tail.last(EVIDENCE)).unwrap_or_default(),
        LogFile::Rank { rank, .. } => app.state.ranks.get(&rank).map(|rank| rank.tail.last(EVIDENCE)).unwrap_or_default(),
    });
    // The last lines are the ones that tell: they end where the room does.
    let next = if problem.next.is_empty() { Vec::new() } else { words::wrap(&problem.next, width.saturating_sub(8), true) };
    let fit = height.saturating_sub(lines.len() + next.len());
    let tail = tail.unwrap_or_default();
    for line in tail.iter().skip(tail.len().saturating_sub(fit)) {
        let text = words::cut(&app.clean(line), width.saturating_sub(4));
        lines.push(Line::from(vec![Span::styled("  | ", app.theme.dim()), Span::raw(text)]));
    }
    for (n, row) in next.into_iter().enumerate() {
        lines.push(Line::from(vec![Span::styled(if n == 0 { " next  " } else { "       " }, app.theme.accent()), Span::raw(row)]));
    }
    lines
}

/// A problem in as many rows as it needs, at most four, and what to do about it.
pub(super) fn told(app: &App, problem: &Problem, width: usize) -> Vec<Line<'static>> {
    let mut lines: Vec<Line<'static>> = Vec::new();
    for (n, row) in wrapped(&problem.text, width.saturating_sub(3)).into_iter().take(4).enumerate() {
        let mark = if n == 0 { app.theme.symbol(problem.status) } else { " " };
        lines.push(Line::from(vec![Span::styled(format!(" {mark} "), app.theme.status(problem.status)), Span::raw(row)]));
    }
    for row in words::wrap(&problem.next, width.saturating_sub(3), true).into_iter().filter(|row| !row.is_empty()) {
        lines.push(Line::styled(format!("   {row}"), app.theme.dim()));
    }
    lines
}

/// Rows of at most `width` columns, broken at spaces where there are any.
fn wrapped(text: &str, width: usize) -> Vec<String> {
    let mut rows: Vec<String> = Vec::new();
    for word in text.split(' ') {
        match rows.last_mut() {
            Some(row) if row.chars().count() + 1 + word.chars().count() <= width => {
                row.push(' ');
                row.push_str(word);
            }
            _ => rows.push(words::cut(word, width)),
        }
    }
    rows
}
