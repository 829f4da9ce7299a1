//! The recap: the outcome, results by host and by rank, the first failure, leftovers, and the next command.
//!
//! It fits the terminal and stays short for 128 hosts: equal rows are merged.

use std::collections::BTreeMap;

use unicode_width::UnicodeWidthStr;

use crate::diagnose::advice_formatter::AdviceFormatter;
use crate::diagnose::{DiagnosisFinding, Lang};
use crate::event::{Exit, Level, Outcome, Phase, RunOutcome};
use crate::model::step_status::StepStatus;
use crate::state::{ConnectionStatus, HostState, RankState, RunState, StepCounts};

use super::finding;
use super::style::{self, TextStyle, Tone, truncate_text};
use crate::text::hostlist;
use crate::text::sanitize::Sanitizer;

/// Everything that the recap needs besides the run's state.
#[derive(Debug, Clone, Default)]
pub(crate) struct RecapContext {
    pub style: TextStyle,
    pub sanitizer: Sanitizer,
    /// The log directory on this laptop.
    pub log_dir: Option<String>,
    /// Completes suggested commands with the inventory and its flags.
    pub advice: AdviceFormatter,
    /// How many of the last lines of the first failed rank are shown.
    pub tail_lines: usize,
    /// The first cause comes first.
    pub findings: Vec<DiagnosisFinding>,
    /// The language of findings.
    pub lang: Lang,
    /// The terminal's columns; `None` for a file or a pipe.
    pub columns: Option<u16>,
}

impl RecapContext {
    /// The maximum width of every line except log lines and commands.
    fn width(&self) -> usize {
        self.columns.map_or(MAX_WIDTH, |columns| usize::from(columns).clamp(MIN_WIDTH, MAX_WIDTH))
    }
}

const MIN_WIDTH: usize = 80;
/// Longer lines are hard to read.
const MAX_WIDTH: usize = 120;
/// The maximum number of rows in one section.
const MAX_ROWS: usize = 20;
/// The widest the column of host names may be.
const MAX_HOST_COLUMNS: usize = 30;

pub(crate) fn render_recap(state: &RunState, context: &RecapContext) -> Vec<String> {
    let renderer = RecapRenderer { state, context, style: context.style };
    let mut lines = renderer.header_rows();
    lines.extend(renderer.host_rows());
    lines.extend(renderer.task_rows());
    lines.extend(renderer.failure_rows());
    lines.extend(renderer.first_failure_rows());
    lines.extend(renderer.finding_rows());
    lines.extend(renderer.leftover_rows());
    lines.extend(renderer.footer_rows());
    lines
}

fn outcome_text(state: &RunState, sanitizer: &Sanitizer) -> (&'static str, Tone, String) {
    match (style::operation_outcome_label(state), &state.outcome) {
        (Some((label, tone)), Some((_, reason))) => (label, tone, sanitizer.sanitize_line(reason)),
        _ => ("UNFINISHED", Tone::Warn, String::new()),
    }
}

/// Label, description, hint.
type FailureRow = (&'static str, String, String);

struct RecapRenderer<'a> {
    state: &'a RunState,
    context: &'a RecapContext,
    style: TextStyle,
}

impl RecapRenderer<'_> {
    /// The columns to the right of a label.
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
        let (label, tone, reason) = outcome_text(self.state, &self.context.sanitizer);
        let title = truncate_text(&style::run_title(&self.state.info, &self.context.sanitizer), 40);
        let elapsed = style::format_duration(self.state.elapsed());
        let mut lines = vec![format!("RECAP  {title}  {}  after {elapsed}", self.style.paint(tone, label))];
        if !reason.is_empty() {
            // A command is not truncated, so that it can be pasted.
            lines.push(if reason.contains("orchestrate ") {
                format!("  {:<9} {reason}", "reason")
            } else {
                self.labeled_row(Tone::Plain, "reason", &reason)
            });
        }
        // The command's outcome and the run's can differ: `down` is OK, the run was STOPPED.
        if let Some((end, tone)) = self.state.run_end().map(style::run_end_label).filter(|(end, _)| *end != label) {
            lines.push(format!("  {:<9} {}", "run", self.style.paint(tone, end)));
        }
        if !self.state.check_levels.is_empty() {
            let count = |level| self.state.check_levels.values().filter(|l| **l == level).count();
            let counts = [
                (count(Level::Pass), format!("{} passed", count(Level::Pass)), Tone::Ok),
                (count(Level::Warn), style::count_noun(count(Level::Warn), "warning"), Tone::Warn),
                (count(Level::Fail), format!("{} failed", count(Level::Fail)), Tone::Bad),
                (count(Level::Skipped), format!("{} skipped", count(Level::Skipped)), Tone::Dim),
            ];
            let texts = counts.iter().filter(|(n, ..)| *n > 0).map(|(_, text, tone)| self.style.paint(*tone, text));
            lines.push(format!("  {:<9} {}", "checks", texts.collect::<Vec<_>>().join("  ")));
        }
        if !self.state.ranks.is_empty() {
            let ranks = self.state.rank_counts();
            let counts = [
                (ranks.ok, "ok", Tone::Ok),
                (ranks.failed, "failed", Tone::Bad),
                (ranks.stopped, "stopped", Tone::Warn),
                (ranks.running, "running", Tone::Warn),
                (ranks.waiting, "not started", Tone::Warn),
            ];
            let texts: Vec<String> = counts
                .iter()
                .filter(|(n, label, _)| *n > 0 || matches!(*label, "ok" | "failed"))
                .map(|(n, label, tone)| self.style.paint(if *n > 0 { *tone } else { Tone::Dim }, &format!("{n} {label}")))
                .collect();
            lines.push(format!("  {:<9} {} of {}", "ranks", texts.join("  "), self.state.ranks.len()));
        }
        lines
    }

    /// One row per group of hosts with equal results.
    fn host_rows(&self) -> Vec<String> {
        let mut groups: BTreeMap<(bool, StepCounts, String), Vec<u32>> = BTreeMap::new();
        for (at, host) in (0_u32..).zip(&self.state.hosts) {
            let key =
                (host.connection_status != ConnectionStatus::Unreachable, self.state.step_counts(at as usize), self.rank_exits(at, host));
            groups.entry(key).or_default().push(at);
        }
        if groups.is_empty() {
            return Vec::new();
        }
        let mut rows: Vec<((bool, StepCounts, String), Vec<u32>)> = groups.into_iter().collect();
        // Failures come last, next to their reasons.
        rows.sort_by_key(|((reachable, counts, _), hosts)| (!reachable, counts.failed > 0, hosts[0]));
        let more = rows.len().saturating_sub(MAX_ROWS);
        let rows: Vec<_> =
            rows.into_iter().skip(more).map(|(row, hosts)| (truncate_text(&self.host_names(&hosts), MAX_HOST_COLUMNS), row)).collect();
        let host_width = rows.iter().map(|(name, _)| UnicodeWidthStr::width(name.as_str())).max().unwrap_or(0).max("host".len());
        let header = format!("  {:<host_width$} {:>4} {:>8} {:>7}  ranks", "host", "ok", "changed", "failed");
        let rank_width = self.context.width().saturating_sub(UnicodeWidthStr::width(header.as_str()) - "ranks".len());
        let mut lines = vec![self.style.paint(Tone::Dim, &header)];
        for (name, (reachable, counts, ranks)) in rows {
            let failed = format!("{:>7}", counts.failed);
            let failed = self.style.paint(if counts.failed > 0 { Tone::Bad } else { Tone::Dim }, &failed);
            let pad = " ".repeat(host_width.saturating_sub(UnicodeWidthStr::width(name.as_str())));
            let ranks = if reachable { truncate_text(&ranks, rank_width) } else { self.style.paint(Tone::Bad, "UNREACHABLE") };
            lines.push(format!("  {name}{pad} {:>4} {:>8} {failed}  {ranks}", counts.ok, counts.changed).trim_end().to_owned());
        }
        if more > 0 {
            lines.push(format!("  … and {more} more groups of hosts, see report.json"));
        }
        lines
    }

    /// One row per task of `prepare`: how many hosts had each result.
    fn task_rows(&self) -> Vec<String> {
        let mut tasks: Vec<(Phase, &str, [usize; 5])> = Vec::new();
        for step in self.state.task_steps() {
            let result = match step.status {
                StepStatus::Done => 0,
                StepStatus::Satisfied => 1,
                StepStatus::Skipped => 2,
                StepStatus::Failed => {
                    if step.unreachable {
                        4
                    } else {
                        3
                    }
                }
                StepStatus::Waiting | StepStatus::Running => continue,
            };
            let at = tasks.iter().position(|task| task.0 == step.info.phase).unwrap_or_else(|| {
                tasks.push((step.info.phase, &step.info.title, [0; 5]));
                tasks.len() - 1
            });
            tasks[at].2[result] += 1;
        }
        let total = tasks.iter().fold([0; 5], |sum, task| std::array::from_fn(|at| sum[at] + task.2[at]));
        let more = tasks.len().saturating_sub(MAX_ROWS);
        let rows: Vec<(String, [usize; 5])> = tasks.into_iter().skip(more).map(|task| (self.sanitize(task.1), task.2)).collect();
        let width = rows.iter().map(|(name, _)| UnicodeWidthStr::width(name.as_str())).max().unwrap_or(0).min(40);
        let mut lines = Vec::new();
        for (name, counts) in rows {
            let name = truncate_text(&name, width);
            let pad = " ".repeat(width.saturating_sub(UnicodeWidthStr::width(name.as_str())));
            lines.push(format!("  {:<9} {name}{pad}  {}", "task", self.task_counts(counts)));
        }
        if !lines.is_empty() {
            lines.push(format!("  {:<9} {}", "tasks", self.task_counts(total)));
        }
        lines
    }

    /// `changed 1  ok 3`; `changed` is always printed.
    fn task_counts(&self, counts: [usize; 5]) -> String {
        let labels = [("changed", Tone::Warn), ("ok", Tone::Ok), ("skipped", Tone::Dim), ("failed", Tone::Bad), ("unreachable", Tone::Bad)];
        let texts = labels.iter().zip(counts).filter(|((label, _), count)| *count > 0 || *label == "changed");
        let paint = |tone: Tone, count: usize, text: &str| self.style.paint(if count > 0 { tone } else { Tone::Plain }, text);
        texts.map(|((label, tone), count)| paint(*tone, count, &format!("{label} {count}"))).collect::<Vec<_>>().join("  ")
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

    /// Failed steps and unreachable hosts; equal ones are merged.
    fn failure_rows(&self) -> Vec<String> {
        let mut groups: Vec<(FailureRow, Vec<u32>)> = Vec::new();
        let mut add = |row: FailureRow, host: u32| match groups.iter_mut().find(|group| group.0 == row) {
            Some(group) => group.1.push(host),
            None => groups.push((row, vec![host])),
        };
        for step in self.state.failed_steps() {
            let text = format!("{}: {}: {}", step.info.phase.name(), self.sanitize(&step.info.title), self.sanitize(&step.note));
            add(("FAILED", text, self.sanitize(&step.hint)), step.info.host);
        }
        for (at, host) in (0_u32..).zip(&self.state.hosts).filter(|(_, host)| host.connection_status == ConnectionStatus::Unreachable) {
            add(("UNREACHED", self.sanitize(&host.connection_error), String::new()), at);
        }
        let more = groups.len().saturating_sub(MAX_ROWS);
        let mut lines = Vec::new();
        for ((label, text, hint), mut hosts) in groups.into_iter().take(MAX_ROWS) {
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

    /// The ranks that failed first, with their last lines; the other failures below.
    fn first_failure_rows(&self) -> Vec<String> {
        let Some(culprit) = &self.state.culprit else { return self.other_failure_rows(&[]) };
        let mut lines = Vec::new();
        let several = culprit.ranks.len() > 1;
        for rank in culprit.ranks.iter().filter_map(|rank| self.state.ranks.get(rank)).take(3) {
            let duration = rank.duration().map_or_else(String::new, |ms| format!(" after {}", style::format_duration(ms)));
            let text = format!("rank {} on {}: {}{duration}", rank.rank, self.host_names([&rank.host]), rank_outcome(rank));
            lines.push(self.labeled_row(Tone::Bad, if several { "FIRST ?" } else { "FIRST" }, &text));
            lines.extend(self.quoted_lines(&rank.recent_lines.last_lines(self.context.tail_lines)));
        }
        if several {
            lines.push(self.labeled_row(Tone::Dim, "", "they failed too close together for the clocks to order them"));
        }
        if culprit.ranks.is_empty() {
            for host in culprit.hosts.iter().take(3) {
                let Some(host_state) = self.state.hosts.get(*host as usize) else { continue };
                let exit = host_state.launcher_exit.map_or_else(|| "failed".to_owned(), |(exit, _)| style::format_exit(exit));
                lines.push(self.labeled_row(Tone::Bad, "FIRST", &format!("the launcher on {}: {exit}", self.host_names([host]))));
                lines.extend(self.quoted_lines(&host_state.launcher_recent_lines.last_lines(self.context.tail_lines)));
            }
        }
        lines.extend(self.other_failure_rows(&culprit.ranks));
        lines
    }

    /// The first three findings: summary with location, explanation, next step.
    fn finding_rows(&self) -> Vec<String> {
        let mut lines = Vec::new();
        for (at, finding) in self.context.findings.iter().take(3).enumerate() {
            let sanitizer = &self.context.sanitizer;
            let [what, why, next] = finding::finding_texts(finding, self.context.lang, sanitizer);
            let location = finding::format_location(finding, self.state, sanitizer);
            let label = if at == 0 { "CAUSE" } else { "also" };
            let mut summary = wrap_bounded(&format!("{location}: {what}"), self.text_width(), 4).into_iter();
            lines.push(self.labeled_row(Tone::Bad, label, &summary.next().unwrap_or_default()));
            lines.extend(summary.map(|line| format!("{:12}{line}", "")));
            // The output of steps and of the ranks that failed first is already shown above.
            let shown = self.state.culprit.as_ref().is_some_and(|culprit| finding.ranks.iter().any(|rank| culprit.ranks.contains(rank)));
            if !shown && !finding.ranks.is_empty() {
                lines.extend(self.quoted_lines(&finding.evidence));
            }
            for (label, text) in [("why", why), ("do", next)] {
                for (n, line) in wrap_remedy(&text, self.text_width()).into_iter().enumerate().filter(|_| !text.is_empty()) {
                    lines.push(format!("  {:<9} {line}", if n == 0 { label } else { "" }));
                }
            }
            if !finding.affected.is_empty() {
                lines.push(self.labeled_row(Tone::Dim, "affected", &style::format_ranks(&finding.affected)));
            }
        }
        lines
    }

    fn quoted_lines(&self, lines: &[String]) -> Vec<String> {
        let bar = self.style.paint(Tone::Dim, "|");
        lines.iter().map(|line| format!("    {bar} {}", self.sanitize(line))).collect()
    }

    /// The other failed ranks, grouped by their exits.
    fn other_failure_rows(&self, except: &[u32]) -> Vec<String> {
        let mut ends: BTreeMap<(bool, String), Vec<u32>> = BTreeMap::new();
        for rank in self.state.ranks.values().filter(|rank| rank.has_failed() && !except.contains(&rank.rank)) {
            ends.entry((rank.was_stopped, rank_outcome(rank))).or_default().push(rank.rank);
        }
        let more = ends.len().saturating_sub(MAX_ROWS);
        let texts = ends.into_iter().take(MAX_ROWS).map(|((stopped, end), ranks)| {
            let stopped = if stopped { "stopped by us, " } else { "" };
            format!("{}: {stopped}{end}", style::format_ranks(&ranks))
        });
        let texts = texts.chain((more > 0).then(|| format!("… and {more} more, see report.json")));
        (0..).zip(texts).map(|(n, text)| self.labeled_row(Tone::Plain, if n == 0 { "others" } else { "" }, &text)).collect()
    }

    fn leftover_rows(&self) -> Vec<String> {
        let mut groups: BTreeMap<String, Vec<u32>> = BTreeMap::new();
        for leftover in &self.state.leftovers {
            groups.entry(self.sanitize(&leftover.text)).or_default().push(leftover.host);
        }
        let more = groups.len().saturating_sub(MAX_ROWS);
        let mut lines: Vec<String> = groups
            .iter()
            .take(MAX_ROWS)
            .map(|(text, hosts)| self.labeled_row(Tone::Bad, "LEFTOVER", &format!("{}: {text}", self.host_names(hosts))))
            .collect();
        if more > 0 {
            lines.push(self.labeled_row(Tone::Bad, "LEFTOVER", &format!("… and {more} more, see report.json")));
        }
        lines
    }

    /// The log directory and the next command; neither is truncated.
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

/// The command to run next.
fn suggest_next_command(state: &RunState, advice: &AdviceFormatter) -> Option<String> {
    let command = |verb: &str, args: &str| advice.format_command(verb, args);
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

/// Whether this command ended while the run continues.
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

/// Wraps the next step. If it contains commands, each remedy gets a line of its own; lines with commands are neither truncated nor wrapped.
fn wrap_remedy(text: &str, width: usize) -> Vec<String> {
    let has_command = |text: &str| ["orchestrate ", "ssh "].iter().any(|program| text.contains(program));
    if !has_command(text) {
        return style::wrap_text(text, width, false);
    }
    let clauses = text.split_inclusive("; ").flat_map(|clause| clause.split_inclusive('；'));
    clauses
        .map(str::trim_end)
        .flat_map(|clause| if has_command(clause) { vec![clause.to_owned()] } else { style::wrap_text(clause, width, false) })
        .collect()
}

/// At most `max_lines` lines of at most `width` columns, broken at spaces.
fn wrap_bounded(text: &str, width: usize, max_lines: usize) -> Vec<String> {
    let mut lines = style::wrap_text(text, width, true);
    if lines.len() > max_lines {
        lines.truncate(max_lines);
        if let Some(last) = lines.last_mut() {
            *last = truncate_text(&format!("{last} …"), width);
        }
    }
    lines
}

/// Groups hosts with equal answers as `(folded names, answer)`, ordered by each group's first host.
pub(crate) fn fold_equal_answers(answers: &[(String, String)]) -> Vec<(String, String)> {
    let mut groups: Vec<(&str, Vec<String>)> = Vec::new();
    for (name, answer) in answers {
        match groups.iter_mut().find(|group| group.0 == answer) {
            Some(group) => group.1.push(name.clone()),
            None => groups.push((answer, vec![name.clone()])),
        }
    }
    groups.into_iter().map(|(answer, names)| (hostlist::fold_names(&names), answer.to_owned())).collect()
}

#[cfg(test)]
#[path = "recap_tests.rs"]
mod tests;
