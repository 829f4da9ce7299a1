//! The last words: how it ended, by host and by rank, who failed first, what is left, and what to type next.
//!
//! Uses `state` and `words`. Fits its terminal and stays short for 128 hosts: equal rows are one row.

use std::collections::BTreeMap;

use crate::diagnose::advice::Advice;
use crate::diagnose::{Finding, Lang};
use crate::event::{Exit, Level, Outcome, RunEnd};
use crate::state::{HostState, Liveness, RankState, RunState, Tally};

use super::finding;
use super::fold;
use super::sanitize::Cleaner;
use super::words::{self, Role, Style, cut};

/// What the recap cannot know from the run.
#[derive(Debug, Clone, Default)]
pub struct Context {
    /// Colours.
    pub style: Style,
    /// What must not be shown.
    pub cleaner: Cleaner,
    /// Where the logs are on this laptop.
    pub logs: Option<String>,
    /// What makes an advised command complete.
    pub advice: Advice,
    /// How many of the culprit's last lines are shown.
    pub lines: usize,
    /// What went wrong, the first cause first.
    pub findings: Vec<Finding>,
    /// The language of findings.
    pub lang: Lang,
    /// The columns of the terminal that it is printed on; none: a file or a pipe.
    pub columns: Option<u16>,
}

impl Context {
    /// The width that everything but log lines and commands keeps to.
    fn width(&self) -> usize {
        self.columns.map_or(MAX_WIDTH, |columns| usize::from(columns).clamp(MIN_WIDTH, MAX_WIDTH))
    }
}

const MIN_WIDTH: usize = 80;
/// Longer lines are hard to read.
const MAX_WIDTH: usize = 120;
/// How many rows of one sort are shown.
const ROWS: usize = 20;

/// The recap as lines.
pub fn recap(state: &RunState, context: &Context) -> Vec<String> {
    let page = Page { state, context, style: context.style };
    let mut lines = page.head();
    lines.extend(page.hosts());
    lines.extend(page.failures());
    lines.extend(page.culprit());
    lines.extend(page.findings());
    lines.extend(page.leftovers());
    lines.extend(page.tail());
    lines
}

/// The closing line alone: `up wan22: OK after 4m05s`.
pub fn closing(state: &RunState, context: &Context) -> String {
    let (word, role, why) = verdict(state, &context.cleaner);
    let title = words::title(&state.info, &context.cleaner);
    let why = if why.is_empty() { String::new() } else { format!(": {why}") };
    let head = format!("{title}: ");
    let rest = format!(" after {}{why}", words::span(state.elapsed()));
    let room = context.width().saturating_sub(head.len() + word.len());
    format!("{}{}{}", cut(&head, context.width() / 2), context.style.paint(role, word), cut(&rest, room))
}

fn verdict(state: &RunState, cleaner: &Cleaner) -> (&'static str, Role, String) {
    match (words::ending(state), &state.outcome) {
        (Some((word, role)), Some((_, why))) => (word, role, cleaner.line(why)),
        _ => ("UNFINISHED", Role::Warn, String::new()),
    }
}

/// A label, what happened, and the hint.
type Trouble = (&'static str, String, String);

struct Page<'a> {
    state: &'a RunState,
    context: &'a Context,
    style: Style,
}

impl Page<'_> {
    /// The columns beside a label.
    fn room(&self) -> usize {
        self.context.width() - 12
    }

    fn clean(&self, text: &str) -> String {
        self.context.cleaner.line(text)
    }

    fn names<'a>(&self, hosts: impl IntoIterator<Item = &'a u32>) -> String {
        words::hosts(self.state, &self.context.cleaner, hosts)
    }

    /// `  label    text`, the text cut to the page.
    fn row(&self, role: Role, label: &str, text: &str) -> String {
        format!("  {} {}", self.style.paint(role, &format!("{label:<9}")), cut(text, self.room()))
    }

    fn head(&self) -> Vec<String> {
        let (word, role, why) = verdict(self.state, &self.context.cleaner);
        let title = cut(&words::title(&self.state.info, &self.context.cleaner), 40);
        let after = words::span(self.state.elapsed());
        let mut lines = vec![format!("RECAP  {title}  {}  after {after}", self.style.paint(role, word))];
        if !why.is_empty() {
            // A command in it is to be pasted: it is not cut.
            lines.push(if why.contains("orchestrate ") {
                format!("  {:<9} {why}", "because")
            } else {
                self.row(Role::Plain, "because", &why)
            });
        }
        // What the command did is not how the run ended: `down` went well, the run was stopped.
        if let Some((end, role)) = self.state.run_end().map(words::run_end).filter(|(end, _)| *end != word) {
            lines.push(format!("  {:<9} {}", "run", self.style.paint(role, end)));
        }
        if !self.state.checks.is_empty() {
            let of = |level| self.state.checks.values().filter(|l| **l == level).count();
            let parts = [
                (of(Level::Pass), "passed", Role::Ok),
                (of(Level::Warn), "to look at", Role::Warn),
                (of(Level::Fail), "failed", Role::Bad),
                (of(Level::Skipped), "skipped", Role::Dim),
            ];
            let parts = parts.iter().filter(|(n, ..)| *n > 0).map(|(n, word, role)| self.style.paint(*role, &format!("{n} {word}")));
            lines.push(format!("  {:<9} {}", "checks", parts.collect::<Vec<_>>().join("  ")));
        }
        if !self.state.ranks.is_empty() {
            let counts = self.state.rank_counts();
            let parts = [
                (counts.ok, "ok", Role::Ok),
                (counts.failed, "failed", Role::Bad),
                (counts.stopped, "stopped", Role::Warn),
                (counts.running, "running", Role::Warn),
                (counts.waiting, "not started", Role::Warn),
            ];
            let texts: Vec<String> = parts
                .iter()
                .filter(|(n, word, _)| *n > 0 || matches!(*word, "ok" | "failed"))
                .map(|(n, word, role)| self.style.paint(if *n > 0 { *role } else { Role::Dim }, &format!("{n} {word}")))
                .collect();
            lines.push(format!("  {:<9} {} of {}", "ranks", texts.join("  "), self.state.ranks.len()));
        }
        lines
    }

    /// A row for each sort of host.
    fn hosts(&self) -> Vec<String> {
        let mut sorts: BTreeMap<(bool, Tally, String), Vec<u32>> = BTreeMap::new();
        for (at, host) in (0_u32..).zip(&self.state.hosts) {
            let key = (host.liveness != Liveness::Unreachable, self.state.tally(at as usize), self.ranks_of(at, host));
            sorts.entry(key).or_default().push(at);
        }
        if sorts.is_empty() {
            return Vec::new();
        }
        let mut rows: Vec<((bool, Tally, String), Vec<u32>)> = sorts.into_iter().collect();
        // What is wrong comes last, next to the reasons.
        rows.sort_by_key(|((reachable, tally, _), hosts)| (!reachable, tally.failed > 0, hosts[0]));
        let mut lines =
            vec![self.style.paint(Role::Dim, &format!("  {:<30} {:>4} {:>8} {:>7}  {}", "host", "ok", "changed", "failed", "ranks"))];
        let more = rows.len().saturating_sub(ROWS);
        for ((reachable, tally, ranks), hosts) in rows.into_iter().skip(more) {
            let failed = format!("{:>7}", tally.failed);
            let failed = self.style.paint(if tally.failed > 0 { Role::Bad } else { Role::Dim }, &failed);
            let name = cut(&self.names(&hosts), 30);
            let pad = " ".repeat(30_usize.saturating_sub(unicode_width::UnicodeWidthStr::width(name.as_str())));
            let ranks = if reachable { cut(&ranks, 25) } else { self.style.paint(Role::Bad, "UNREACHABLE") };
            lines.push(format!("  {name}{pad} {:>4} {:>8} {failed}  {ranks}", tally.ok, tally.changed).trim_end().to_owned());
        }
        if more > 0 {
            lines.push(format!("  … and {more} more sorts of host, see report.json"));
        }
        lines
    }

    /// `8 ok`, `7 ok, 1 exit 1`.
    fn ranks_of(&self, at: u32, host: &HostState) -> String {
        let mut ends: BTreeMap<String, usize> = BTreeMap::new();
        for rank in self.state.ranks.values().filter(|rank| rank.host == at) {
            let end = if self.state.was_stopped(rank) { "stopped".to_owned() } else { fate(rank) };
            *ends.entry(end).or_default() += 1;
        }
        let mut texts: Vec<String> = ends.into_iter().map(|(end, n)| format!("{n} {end}")).collect();
        texts.sort_by_key(|text| !text.ends_with(" ok"));
        if let (true, Some((exit, _))) = (texts.is_empty(), host.node_exit) {
            texts.push(format!("launcher: {}", if exit.ok() { "ok".to_owned() } else { words::exit(exit) }));
        }
        texts.join(", ")
    }

    /// Failed steps and unreachable hosts, equal ones as one.
    fn failures(&self) -> Vec<String> {
        let mut sorts: Vec<(Trouble, Vec<u32>)> = Vec::new();
        let mut add = |sort: Trouble, host: u32| match sorts.iter_mut().find(|known| known.0 == sort) {
            Some(known) => known.1.push(host),
            None => sorts.push((sort, vec![host])),
        };
        for step in self.state.failed_steps() {
            let text = format!("{}: {}: {}", step.info.phase.name(), self.clean(&step.info.title), self.clean(&step.note));
            add(("FAILED", text, self.clean(&step.hint)), step.info.host);
        }
        for (at, host) in (0_u32..).zip(&self.state.hosts).filter(|(_, host)| host.liveness == Liveness::Unreachable) {
            add(("UNREACHED", self.clean(&host.error), String::new()), at);
        }
        let more = sorts.len().saturating_sub(ROWS);
        let mut lines = Vec::new();
        for ((label, text, hint), mut hosts) in sorts.into_iter().take(ROWS) {
            hosts.dedup();
            lines.push(self.row(Role::Bad, label, &self.names(&hosts)));
            lines.extend(self.paragraph(&text));
            if !hint.is_empty() {
                lines.extend(remedy(&format!("hint: {hint}"), self.room()).into_iter().map(|line| format!("{:12}{line}", "")));
            }
        }
        if more > 0 {
            lines.push(self.row(Role::Bad, "FAILED", &format!("… and {more} more, see report.json")));
        }
        lines
    }

    fn paragraph(&self, text: &str) -> Vec<String> {
        wrap(text, self.room(), 4).into_iter().map(|line| format!("{:12}{line}", "")).collect()
    }

    /// Who failed first, with the last lines; the others beneath.
    fn culprit(&self) -> Vec<String> {
        let Some(culprit) = &self.state.culprit else { return self.others(&[]) };
        let mut lines = Vec::new();
        let close = culprit.ranks.len() > 1;
        for rank in culprit.ranks.iter().filter_map(|rank| self.state.ranks.get(rank)).take(3) {
            let after = rank.duration().map_or_else(String::new, |ms| format!(" after {}", words::span(ms)));
            let text = format!("rank {} on {}: {}{after}", rank.rank, self.names([&rank.host]), fate(rank));
            lines.push(self.row(Role::Bad, if close { "FIRST ?" } else { "FIRST" }, &text));
            lines.extend(self.last_lines(&rank.tail.last(self.context.lines)));
        }
        if close {
            lines.push(self.row(Role::Dim, "", "they failed closer together than the clocks can tell"));
        }
        if culprit.ranks.is_empty() {
            for host in culprit.hosts.iter().take(3) {
                let Some(known) = self.state.hosts.get(*host as usize) else { continue };
                let exit = known.node_exit.map_or_else(|| "failed".to_owned(), |(exit, _)| words::exit(exit));
                lines.push(self.row(Role::Bad, "FIRST", &format!("the launcher on {}: {exit}", self.names([host]))));
                lines.extend(self.last_lines(&known.tail.last(self.context.lines)));
            }
        }
        lines.extend(self.others(&culprit.ranks));
        lines
    }

    /// What went wrong: what happened and where, why, what to do next; at most three of them.
    fn findings(&self) -> Vec<String> {
        let mut lines = Vec::new();
        for (at, found) in self.context.findings.iter().take(3).enumerate() {
            let cleaner = &self.context.cleaner;
            let [what, why, next] = finding::texts(found, self.context.lang, cleaner);
            let place = finding::place(found, self.state, cleaner);
            let label = if at == 0 { "CAUSE" } else { "also" };
            let mut told = wrap(&format!("{place}: {what}"), self.room(), 4).into_iter();
            lines.push(self.row(Role::Bad, label, &told.next().unwrap_or_default()));
            lines.extend(told.map(|line| format!("{:12}{line}", "")));
            // What a step or a host said stands above, and so do the last lines of who failed first.
            let above = self.state.culprit.as_ref().is_some_and(|culprit| found.ranks.iter().any(|rank| culprit.ranks.contains(rank)));
            if !above && !found.ranks.is_empty() {
                lines.extend(self.last_lines(&found.evidence));
            }
            for (label, text) in [("why", why), ("do", next)] {
                for (n, line) in remedy(&text, self.room()).into_iter().enumerate().filter(|_| !text.is_empty()) {
                    lines.push(format!("  {:<9} {line}", if n == 0 { label } else { "" }));
                }
            }
            if !found.felt.is_empty() {
                lines.push(self.row(Role::Dim, "felt by", &words::ranks(&found.felt)));
            }
        }
        lines
    }

    fn last_lines(&self, tail: &[String]) -> Vec<String> {
        let bar = self.style.paint(Role::Dim, "|");
        tail.iter().map(|line| format!("    {bar} {}", self.clean(line))).collect()
    }

    /// The other ranks that did not end well, folded by how.
    fn others(&self, but: &[u32]) -> Vec<String> {
        let mut ends: BTreeMap<(bool, String), Vec<u32>> = BTreeMap::new();
        for rank in self.state.ranks.values().filter(|rank| rank.failed() && !but.contains(&rank.rank)) {
            ends.entry((self.state.was_stopped(rank), fate(rank))).or_default().push(rank.rank);
        }
        let more = ends.len().saturating_sub(ROWS);
        let told = ends.into_iter().take(ROWS).map(|((stopped, end), ranks)| {
            let stopped = if stopped { "stopped by us, " } else { "" };
            format!("{}: {stopped}{end}", words::ranks(&ranks))
        });
        let told = told.chain((more > 0).then(|| format!("… and {more} more sorts, see report.json")));
        (0..).zip(told).map(|(n, text)| self.row(Role::Plain, if n == 0 { "others" } else { "" }, &text)).collect()
    }

    fn leftovers(&self) -> Vec<String> {
        let mut sorts: BTreeMap<String, Vec<u32>> = BTreeMap::new();
        for left in &self.state.leftovers {
            sorts.entry(self.clean(&left.text)).or_default().push(left.host);
        }
        let more = sorts.len().saturating_sub(ROWS);
        let mut lines: Vec<String> =
            sorts.iter().take(ROWS).map(|(text, hosts)| self.row(Role::Bad, "LEFT", &format!("{}: {text}", self.names(hosts)))).collect();
        if more > 0 {
            lines.push(self.row(Role::Bad, "LEFT", &format!("… and {more} more, see report.json")));
        }
        lines
    }

    /// Where the logs are, and the next command; neither is ever cut.
    fn tail(&self) -> Vec<String> {
        let mut lines = Vec::new();
        if let Some(logs) = &self.context.logs {
            lines.push(format!("  {:<9} {logs}", "logs"));
        }
        if let Some(next) = next(self.state, &self.context.advice) {
            lines.push(format!("  {:<9} {next}", "next"));
            if goes_on(self.state) {
                lines.push(format!("  {:<9} {}", "end it", self.context.advice.command("down", "")));
            }
        }
        lines
    }
}

/// The command that a person needs now.
fn next(state: &RunState, advice: &Advice) -> Option<String> {
    let command = |verb: &str, rest: &str| advice.command(verb, rest);
    match &state.outcome.as_ref()?.0 {
        Outcome::Signal(_) if goes_on(state) => Some(command("attach", "")),
        Outcome::Ok | Outcome::Refused | Outcome::Signal(_) | Outcome::Stopped => None,
        Outcome::Detached => Some(command("attach", "")),
        Outcome::Failed => {
            let rank = state.culprit.as_ref().and_then(|culprit| culprit.ranks.first().copied());
            let rank = rank.or_else(|| state.failed_ranks().first().map(|rank| rank.rank))?;
            Some(command("logs", &format!("--rank {rank}")))
        }
        Outcome::Leftovers => Some(command("down", "")),
        Outcome::Unreachable => Some(command(if state.info.command.is_empty() { "up" } else { &state.info.command }, "")),
        Outcome::Locked => Some(command("ps", "")),
    }
}

/// Whether we left a run that goes on.
fn goes_on(state: &RunState) -> bool {
    matches!(state.outcome, Some((Outcome::Detached | Outcome::Signal(_), _))) && state.run_end() == Some(RunEnd::Running)
}

fn fate(rank: &RankState) -> String {
    match (rank.exit, rank.started) {
        (Some(Exit::Code(0)), _) => "ok".to_owned(),
        (Some(exit), _) => words::exit(exit),
        (None, Some(_)) => "running".to_owned(),
        (None, None) => "not started".to_owned(),
    }
}

/// What to do next: one remedy a line where a command is among them, which is neither cut nor broken, so that it can be pasted.
fn remedy(text: &str, width: usize) -> Vec<String> {
    let command = |text: &str| ["orchestrate ", "ssh "].iter().any(|program| text.contains(program));
    if !command(text) {
        return words::wrap(text, width, false);
    }
    let parts = text.split_inclusive("; ").flat_map(|part| part.split_inclusive('；'));
    parts
        .flat_map(|part| if command(part) { vec![part.trim_end().to_owned()] } else { words::wrap(part.trim_end(), width, false) })
        .collect()
}

/// Lines of at most `width` columns, broken at spaces, at most `most` of them.
fn wrap(text: &str, width: usize, most: usize) -> Vec<String> {
    let mut lines = words::wrap(text, width, true);
    if lines.len() > most {
        lines.truncate(most);
        if let Some(last) = lines.last_mut() {
            *last = cut(&format!("{last} …"), width);
        }
    }
    lines
}

/// Folds equal answers of many hosts: `[(names, answer)]`, in the order of their first host.
pub fn equal(answers: &[(String, String)]) -> Vec<(String, String)> {
    let mut sorts: Vec<(&str, Vec<String>)> = Vec::new();
    for (name, answer) in answers {
        match sorts.iter_mut().find(|sort| sort.0 == answer) {
            Some(sort) => sort.1.push(name.clone()),
            None => sorts.push((answer, vec![name.clone()])),
        }
    }
    sorts.into_iter().map(|(answer, names)| (fold::fold(&names), answer.to_owned())).collect()
}

#[cfg(test)]
#[path = "recap_tests.rs"]
mod tests;
