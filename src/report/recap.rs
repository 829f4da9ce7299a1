//! The last words: how it ended, by host and by rank, who failed first, what is left, and what to type next.
//!
//! Uses `state` and `words`. Fits its terminal and stays short for 128 hosts: equal rows are one row.

use std::collections::BTreeMap;

use crate::diagnose::command_formatter::CommandFormatter;
use crate::diagnose::{DiagnosisFinding, Lang};
use crate::event::{Exit, Level, Outcome, RunOutcome};
use crate::state::{ConnectionStatus, HostState, RankState, RunState, StepCounts};

use super::finding;
use super::style::{self, TextStyle, Tone, truncate_text};
use crate::text::hostlist;
use crate::text::sanitize::Sanitizer;

/// What the recap cannot know from the run.
#[derive(Debug, Clone, Default)]
pub(crate) struct RecapContext {
    pub style: TextStyle,
    /// What must not be shown.
    pub sanitizer: Sanitizer,
    /// Where the logs are on this laptop.
    pub log_dir: Option<String>,
    /// What makes an advised command complete.
    pub advice: CommandFormatter,
    /// How many of the culprit's last lines are shown.
    pub tail_lines: usize,
    /// What went wrong, the first cause first.
    pub findings: Vec<DiagnosisFinding>,
    /// The language of findings.
    pub lang: Lang,
    /// The columns of the terminal that it is printed on; none: a file or a pipe.
    pub columns: Option<u16>,
}

impl RecapContext {
    /// The width that everything but log lines and commands keeps to.
    fn width(&self) -> usize {
        self.columns.map_or(MAX_WIDTH, |columns| usize::from(columns).clamp(MIN_WIDTH, MAX_WIDTH))
    }
}

const MIN_WIDTH: usize = 80;
/// Longer lines are hard to read.
const MAX_WIDTH: usize = 120;
/// How many rows of one sort are shown.
const MAX_ROWS: usize = 20;

/// The recap as lines.
pub(crate) fn render_recap(state: &RunState, context: &RecapContext) -> Vec<String> {
    let page = RecapRenderer { state, context, style: context.style };
    let mut lines = page.header_rows();
    lines.extend(page.host_rows());
    lines.extend(page.failure_rows());
    lines.extend(page.first_failure_rows());
    lines.extend(page.finding_rows());
    lines.extend(page.leftover_rows());
    lines.extend(page.footer_rows());
    lines
}

fn outcome_text(state: &RunState, sanitizer: &Sanitizer) -> (&'static str, Tone, String) {
    match (style::operation_outcome_label(state), &state.outcome) {
        (Some((word, role)), Some((_, why))) => (word, role, sanitizer.sanitize_line(why)),
        _ => ("UNFINISHED", Tone::Warn, String::new()),
    }
}

/// A label, what happened, and the hint.
type FailureRow = (&'static str, String, String);

struct RecapRenderer<'a> {
    state: &'a RunState,
    context: &'a RecapContext,
    style: TextStyle,
}

impl RecapRenderer<'_> {
    /// The columns beside a label.
    fn text_width(&self) -> usize {
        self.context.width() - 12
    }

    fn sanitize(&self, text: &str) -> String {
        self.context.sanitizer.sanitize_line(text)
    }

    fn host_names<'a>(&self, hosts: impl IntoIterator<Item = &'a u32>) -> String {
        style::format_hosts(self.state, &self.context.sanitizer, hosts)
    }

    /// `  label    text`, the text cut to the page.
    fn labeled_row(&self, tone: Tone, label: &str, text: &str) -> String {
        format!("  {} {}", self.style.paint(tone, &format!("{label:<9}")), truncate_text(text, self.text_width()))
    }

    fn header_rows(&self) -> Vec<String> {
        let (word, role, why) = outcome_text(self.state, &self.context.sanitizer);
        let title = truncate_text(&style::run_title(&self.state.info, &self.context.sanitizer), 40);
        let after = style::format_duration(self.state.elapsed());
        let mut lines = vec![format!("RECAP  {title}  {}  after {after}", self.style.paint(role, word))];
        if !why.is_empty() {
            // A command in it is to be pasted: it is not cut.
            lines.push(if why.contains("orchestrate ") {
                format!("  {:<9} {why}", "because")
            } else {
                self.labeled_row(Tone::Plain, "because", &why)
            });
        }
        // What the command did is not how the run ended: `down` went well, the run was stopped.
        if let Some((end, role)) = self.state.run_end().map(style::run_end_label).filter(|(end, _)| *end != word) {
            lines.push(format!("  {:<9} {}", "run", self.style.paint(role, end)));
        }
        if !self.state.check_levels.is_empty() {
            let of = |level| self.state.check_levels.values().filter(|l| **l == level).count();
            let parts = [
                (of(Level::Pass), "passed", Tone::Ok),
                (of(Level::Warn), "to look at", Tone::Warn),
                (of(Level::Fail), "failed", Tone::Bad),
                (of(Level::Skipped), "skipped", Tone::Dim),
            ];
            let parts = parts.iter().filter(|(n, ..)| *n > 0).map(|(n, word, role)| self.style.paint(*role, &format!("{n} {word}")));
            lines.push(format!("  {:<9} {}", "checks", parts.collect::<Vec<_>>().join("  ")));
        }
        if !self.state.ranks.is_empty() {
            let counts = self.state.rank_counts();
            let parts = [
                (counts.ok, "ok", Tone::Ok),
                (counts.failed, "failed", Tone::Bad),
                (counts.stopped, "stopped", Tone::Warn),
                (counts.running, "running", Tone::Warn),
                (counts.waiting, "not started", Tone::Warn),
            ];
            let texts: Vec<String> = parts
                .iter()
                .filter(|(n, word, _)| *n > 0 || matches!(*word, "ok" | "failed"))
                .map(|(n, word, role)| self.style.paint(if *n > 0 { *role } else { Tone::Dim }, &format!("{n} {word}")))
                .collect();
            lines.push(format!("  {:<9} {} of {}", "ranks", texts.join("  "), self.state.ranks.len()));
        }
        lines
    }

    /// A row for each sort of host.
    fn host_rows(&self) -> Vec<String> {
        let mut sorts: BTreeMap<(bool, StepCounts, String), Vec<u32>> = BTreeMap::new();
        for (at, host) in (0_u32..).zip(&self.state.hosts) {
            let key =
                (host.connection_status != ConnectionStatus::Unreachable, self.state.step_counts(at as usize), self.rank_exits(at, host));
            sorts.entry(key).or_default().push(at);
        }
        if sorts.is_empty() {
            return Vec::new();
        }
        let mut rows: Vec<((bool, StepCounts, String), Vec<u32>)> = sorts.into_iter().collect();
        // What is wrong comes last, next to the reasons.
        rows.sort_by_key(|((reachable, tally, _), hosts)| (!reachable, tally.failed > 0, hosts[0]));
        let mut lines =
            vec![self.style.paint(Tone::Dim, &format!("  {:<30} {:>4} {:>8} {:>7}  {}", "host", "ok", "changed", "failed", "ranks"))];
        let more = rows.len().saturating_sub(MAX_ROWS);
        for ((reachable, tally, ranks), hosts) in rows.into_iter().skip(more) {
            let failed = format!("{:>7}", tally.failed);
            let failed = self.style.paint(if tally.failed > 0 { Tone::Bad } else { Tone::Dim }, &failed);
            let name = truncate_text(&self.host_names(&hosts), 30);
            let pad = " ".repeat(30_usize.saturating_sub(unicode_width::UnicodeWidthStr::width(name.as_str())));
            let ranks = if reachable { truncate_text(&ranks, 25) } else { self.style.paint(Tone::Bad, "UNREACHABLE") };
            lines.push(format!("  {name}{pad} {:>4} {:>8} {failed}  {ranks}", tally.ok, tally.changed).trim_end().to_owned());
        }
        if more > 0 {
            lines.push(format!("  … and {more} more sorts of host, see report.json"));
        }
        lines
    }

    /// `8 ok`, `7 ok, 1 exit 1`.
    fn rank_exits(&self, at: u32, host: &HostState) -> String {
        let mut ends: BTreeMap<String, usize> = BTreeMap::new();
        for rank in self.state.ranks.values().filter(|rank| rank.host == at) {
            let end = if rank.was_stopped { "stopped".to_owned() } else { rank_outcome(rank) };
            *ends.entry(end).or_default() += 1;
        }
        let mut texts: Vec<String> = ends.into_iter().map(|(end, n)| format!("{n} {end}")).collect();
        texts.sort_by_key(|text| !text.ends_with(" ok"));
        if let (true, Some((exit, _))) = (texts.is_empty(), host.launcher_exit) {
            texts.push(format!("launcher: {}", if exit.is_success() { "ok".to_owned() } else { style::format_exit(exit) }));
        }
        texts.join(", ")
    }

    /// Failed steps and unreachable hosts, equal ones as one.
    fn failure_rows(&self) -> Vec<String> {
        let mut sorts: Vec<(FailureRow, Vec<u32>)> = Vec::new();
        let mut add = |sort: FailureRow, host: u32| match sorts.iter_mut().find(|known| known.0 == sort) {
            Some(known) => known.1.push(host),
            None => sorts.push((sort, vec![host])),
        };
        for step in self.state.failed_steps() {
            let text = format!("{}: {}: {}", step.info.phase.name(), self.sanitize(&step.info.title), self.sanitize(&step.note));
            add(("FAILED", text, self.sanitize(&step.hint)), step.info.host);
        }
        for (at, host) in (0_u32..).zip(&self.state.hosts).filter(|(_, host)| host.connection_status == ConnectionStatus::Unreachable) {
            add(("UNREACHED", self.sanitize(&host.connection_error), String::new()), at);
        }
        let more = sorts.len().saturating_sub(MAX_ROWS);
        let mut lines = Vec::new();
        for ((label, text, hint), mut hosts) in sorts.into_iter().take(MAX_ROWS) {
            hosts.dedup();
            lines.push(self.labeled_row(Tone::Bad, label, &self.host_names(&hosts)));
            lines.extend(self.indented_paragraph(&text));
            if !hint.is_empty() {
                lines.extend(wrap_remedy(&format!("hint: {hint}"), self.text_width()).into_iter().map(|line| format!("{:12}{line}", "")));
            }
        }
        if more > 0 {
            lines.push(self.labeled_row(Tone::Bad, "FAILED", &format!("… and {more} more, see report.json")));
        }
        lines
    }

    fn indented_paragraph(&self, text: &str) -> Vec<String> {
        wrap_bounded(text, self.text_width(), 4).into_iter().map(|line| format!("{:12}{line}", "")).collect()
    }

    /// Who failed first, with the last lines; the others beneath.
    fn first_failure_rows(&self) -> Vec<String> {
        let Some(culprit) = &self.state.culprit else { return self.other_failure_rows(&[]) };
        let mut lines = Vec::new();
        let close = culprit.ranks.len() > 1;
        for rank in culprit.ranks.iter().filter_map(|rank| self.state.ranks.get(rank)).take(3) {
            let after = rank.duration().map_or_else(String::new, |ms| format!(" after {}", style::format_duration(ms)));
            let text = format!("rank {} on {}: {}{after}", rank.rank, self.host_names([&rank.host]), rank_outcome(rank));
            lines.push(self.labeled_row(Tone::Bad, if close { "FIRST ?" } else { "FIRST" }, &text));
            lines.extend(self.quoted_lines(&rank.recent_lines.last_lines(self.context.tail_lines)));
        }
        if close {
            lines.push(self.labeled_row(Tone::Dim, "", "they failed closer together than the clocks can tell"));
        }
        if culprit.ranks.is_empty() {
            for host in culprit.hosts.iter().take(3) {
                let Some(known) = self.state.hosts.get(*host as usize) else { continue };
                let exit = known.launcher_exit.map_or_else(|| "failed".to_owned(), |(exit, _)| style::format_exit(exit));
                lines.push(self.labeled_row(Tone::Bad, "FIRST", &format!("the launcher on {}: {exit}", self.host_names([host]))));
                lines.extend(self.quoted_lines(&known.launcher_recent_lines.last_lines(self.context.tail_lines)));
            }
        }
        lines.extend(self.other_failure_rows(&culprit.ranks));
        lines
    }

    /// What went wrong: what happened and where, why, what to do next; at most three of them.
    fn finding_rows(&self) -> Vec<String> {
        let mut lines = Vec::new();
        for (at, found) in self.context.findings.iter().take(3).enumerate() {
            let cleaner = &self.context.sanitizer;
            let [what, why, next] = finding::finding_texts(found, self.context.lang, cleaner);
            let place = finding::format_location(found, self.state, cleaner);
            let label = if at == 0 { "CAUSE" } else { "also" };
            let mut told = wrap_bounded(&format!("{place}: {what}"), self.text_width(), 4).into_iter();
            lines.push(self.labeled_row(Tone::Bad, label, &told.next().unwrap_or_default()));
            lines.extend(told.map(|line| format!("{:12}{line}", "")));
            // What a step or a host said stands above, and so do the last lines of who failed first.
            let above = self.state.culprit.as_ref().is_some_and(|culprit| found.ranks.iter().any(|rank| culprit.ranks.contains(rank)));
            if !above && !found.ranks.is_empty() {
                lines.extend(self.quoted_lines(&found.evidence));
            }
            for (label, text) in [("why", why), ("do", next)] {
                for (n, line) in wrap_remedy(&text, self.text_width()).into_iter().enumerate().filter(|_| !text.is_empty()) {
                    lines.push(format!("  {:<9} {line}", if n == 0 { label } else { "" }));
                }
            }
            if !found.affected.is_empty() {
                lines.push(self.labeled_row(Tone::Dim, "felt by", &style::format_ranks(&found.affected)));
            }
        }
        lines
    }

    fn quoted_lines(&self, tail: &[String]) -> Vec<String> {
        let bar = self.style.paint(Tone::Dim, "|");
        tail.iter().map(|line| format!("    {bar} {}", self.sanitize(line))).collect()
    }

    /// The other ranks that did not end well, folded by how.
    fn other_failure_rows(&self, but: &[u32]) -> Vec<String> {
        let mut ends: BTreeMap<(bool, String), Vec<u32>> = BTreeMap::new();
        for rank in self.state.ranks.values().filter(|rank| rank.has_failed() && !but.contains(&rank.rank)) {
            ends.entry((rank.was_stopped, rank_outcome(rank))).or_default().push(rank.rank);
        }
        let more = ends.len().saturating_sub(MAX_ROWS);
        let told = ends.into_iter().take(MAX_ROWS).map(|((stopped, end), ranks)| {
            let stopped = if stopped { "stopped by us, " } else { "" };
            format!("{}: {stopped}{end}", style::format_ranks(&ranks))
        });
        let told = told.chain((more > 0).then(|| format!("… and {more} more sorts, see report.json")));
        (0..).zip(told).map(|(n, text)| self.labeled_row(Tone::Plain, if n == 0 { "others" } else { "" }, &text)).collect()
    }

    fn leftover_rows(&self) -> Vec<String> {
        let mut sorts: BTreeMap<String, Vec<u32>> = BTreeMap::new();
        for left in &self.state.leftovers {
            sorts.entry(self.sanitize(&left.text)).or_default().push(left.host);
        }
        let more = sorts.len().saturating_sub(MAX_ROWS);
        let mut lines: Vec<String> = sorts
            .iter()
            .take(MAX_ROWS)
            .map(|(text, hosts)| self.labeled_row(Tone::Bad, "LEFT", &format!("{}: {text}", self.host_names(hosts))))
            .collect();
        if more > 0 {
            lines.push(self.labeled_row(Tone::Bad, "LEFT", &format!("… and {more} more, see report.json")));
        }
        lines
    }

    /// Where the logs are, and the next command; neither is ever cut.
    fn footer_rows(&self) -> Vec<String> {
        let mut lines = Vec::new();
        if let Some(logs) = &self.context.log_dir {
            lines.push(format!("  {:<9} {logs}", "logs"));
        }
        if let Some(next) = suggest_next_command(self.state, &self.context.advice) {
            lines.push(format!("  {:<9} {next}", "next"));
            if is_still_running(self.state) {
                lines.push(format!("  {:<9} {}", "end it", self.context.advice.format_command("down", "")));
            }
        }
        lines
    }
}

/// The command that a person needs now.
fn suggest_next_command(state: &RunState, advice: &CommandFormatter) -> Option<String> {
    let command = |verb: &str, rest: &str| advice.format_command(verb, rest);
    match &state.outcome.as_ref()?.0 {
        Outcome::Signal(_) if is_still_running(state) => Some(command("attach", "")),
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
fn is_still_running(state: &RunState) -> bool {
    matches!(state.outcome, Some((Outcome::Detached | Outcome::Signal(_), _))) && state.run_end() == Some(RunOutcome::Running)
}

fn rank_outcome(rank: &RankState) -> String {
    match (rank.exit, rank.started_at) {
        (Some(Exit::Code(0)), _) => "ok".to_owned(),
        (Some(exit), _) => style::format_exit(exit),
        (None, Some(_)) => "running".to_owned(),
        (None, None) => "not started".to_owned(),
    }
}

/// What to do next: one remedy a line where a command is among them, which is neither cut nor broken, so that it can be pasted.
fn wrap_remedy(text: &str, width: usize) -> Vec<String> {
    let command = |text: &str| ["orchestrate ", "ssh "].iter().any(|program| text.contains(program));
    if !command(text) {
        return style::wrap_text(text, width, false);
    }
    let parts = text.split_inclusive("; ").flat_map(|part| part.split_inclusive('；'));
    parts
        .flat_map(|part| if command(part) { vec![part.trim_end().to_owned()] } else { style::wrap_text(part.trim_end(), width, false) })
        .collect()
}

/// Lines of at most `width` columns, broken at spaces, at most `most` of them.
fn wrap_bounded(text: &str, width: usize, most: usize) -> Vec<String> {
    let mut lines = style::wrap_text(text, width, true);
    if lines.len() > most {
        lines.truncate(most);
        if let Some(last) = lines.last_mut() {
            *last = truncate_text(&format!("{last} …"), width);
        }
    }
    lines
}

/// Folds equal answers of many hosts: `[(names, answer)]`, in the order of their first host.
pub(crate) fn fold_equal_answers(answers: &[(String, String)]) -> Vec<(String, String)> {
    let mut sorts: Vec<(&str, Vec<String>)> = Vec::new();
    for (name, answer) in answers {
        match sorts.iter_mut().find(|sort| sort.0 == answer) {
            Some(sort) => sort.1.push(name.clone()),
            None => sorts.push((answer, vec![name.clone()])),
        }
    }
    sorts.into_iter().map(|(answer, names)| (hostlist::fold_names(&names), answer.to_owned())).collect()
}

#[cfg(test)]
#[path = "recap_tests.rs"]
mod tests;
