//! The recap: the outcome, results by host and by rank, the first failure, leftovers, and the next command.
//!
//! It fits the terminal and stays short for 128 hosts: equal rows are merged.

use std::collections::BTreeMap;

use unicode_width::UnicodeWidthStr;

use crate::diagnose::DiagnosisFinding;
use crate::diagnose::advice_formatter::AdviceFormatter;
use crate::event::{Exit, Level, Outcome, Phase, RunOutcome};
use crate::model::step_status::StepStatus;
use crate::state::{ConnectionStatus, HostState, RankState, RunState, StepCounts};
use crate::text::translation::Lang;

use super::finding;
use super::style::{self, TextStyle, Tone, truncate_text};
use crate::text::hostlist;
use crate::text::sanitize::Sanitizer;
use crate::text::width::{pad_end, pad_start};

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
    pub lang: Lang,
    /// Of a replay: the commands that a recap suggests do not apply to it.
    pub hide_suggestions: bool,
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
    let renderer = RecapRenderer { state, context, style: context.style, lang: context.lang };
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
    lang: Lang,
}

impl RecapRenderer<'_> {
    /// The columns to the right of a label.
    fn text_width(&self) -> usize {
        self.context.width() - 12
    }

    fn sanitize(&self, text: &str) -> String {
        self.context.sanitizer.sanitize_line(text)
    }

    /// A message that another room composed. Masked before it is translated: in another wording a secret would not be found.
    fn message(&self, text: &str) -> String {
        self.lang.message(&self.sanitize(text)).into_owned()
    }

    fn ranks(&self, ranks: &[u32]) -> String {
        self.lang.message(&style::format_ranks(ranks)).into_owned()
    }

    /// What has no room in its section.
    fn more_rows(&self, more: usize) -> String {
        self.lang.tr_fill("… and {} more, see report.json", &[&more.to_string()])
    }

    fn host_names<'a>(&self, hosts: impl IntoIterator<Item = &'a u32>) -> String {
        style::format_hosts(self.state, &self.context.sanitizer, hosts)
    }

    /// `  label    text`, the text cut to the page.
    fn labeled_row(&self, tone: Tone, label: &str, text: &str) -> String {
        format!("  {} {}", self.style.paint(tone, &pad_end(label, 9)), truncate_text(text, self.text_width()))
    }

    /// `  label    text`, whole.
    fn whole_row(&self, label: &str, text: &str) -> String {
        format!("  {} {text}", pad_end(label, 9))
    }

    fn header_rows(&self) -> Vec<String> {
        let (label, tone, reason) = outcome_text(self.state, &self.context.sanitizer);
        let title = truncate_text(&style::run_title(&self.state.info, &self.context.sanitizer), 40);
        let lang = self.lang;
        let elapsed = style::format_duration(self.state.elapsed());
        let outcome = self.style.paint(tone, &lang.message(label));
        let mut lines = vec![lang.tr_fill("RECAP  {}  {}  after {}", &[&title, &outcome, &elapsed])];
        if !reason.is_empty() {
            let reason = lang.message(&reason);
            // A command is not truncated, so that it can be pasted.
            lines.push(if reason.contains("orchestrate ") {
                self.whole_row(lang.tr("reason"), &reason)
            } else {
                self.labeled_row(Tone::Plain, lang.tr("reason"), &reason)
            });
        }
        // The command's outcome and the run's can differ: `down` is OK, the run was STOPPED.
        if let Some((end, tone)) = self.state.run_end().map(style::run_end_label).filter(|(end, _)| *end != label) {
            lines.push(self.whole_row(lang.tr("run"), &self.style.paint(tone, &lang.message(end))));
        }
        if !self.state.check_levels.is_empty() {
            let count = |level| self.state.check_levels.values().filter(|l| **l == level).count();
            let counts = [Level::Pass, Level::Warn, Level::Fail, Level::Skipped].map(|level| (level, count(level)));
            let texts = counts.into_iter().filter(|(_, n)| *n > 0).map(|(level, n)| style::level_count(lang, self.style, level, n));
            lines.push(self.whole_row(lang.tr("checks"), &texts.collect::<Vec<_>>().join("  ")));
        }
        if !self.state.ranks.is_empty() {
            let ranks = self.state.rank_counts();
            let counts = [
                (ranks.ok, lang.tr("ok"), Tone::Ok),
                (ranks.failed, lang.tr("failed"), Tone::Bad),
                (ranks.stopped, lang.tr("stopped"), Tone::Warn),
                (ranks.running, lang.tr("running"), Tone::Warn),
                (ranks.waiting, lang.tr("not started"), Tone::Warn),
            ];
            let texts: Vec<String> = counts
                .iter()
                .enumerate()
                .filter(|(at, (n, ..))| *n > 0 || *at < 2)
                .map(|(_, (n, label, tone))| self.style.paint(if *n > 0 { *tone } else { Tone::Dim }, &format!("{n} {label}")))
                .collect();
            let all = self.state.ranks.len().to_string();
            lines.push(self.whole_row(lang.tr("ranks"), &lang.tr_fill("{} of {}", &[&texts.join("  "), &all])));
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
        let host_width = rows.iter().map(|(name, _)| UnicodeWidthStr::width(name.as_str())).max().unwrap_or(0);
        let lang = self.lang;
        let host_width = host_width.max(lang.tr("host").width());
        let columns = [(lang.tr("ok"), 4), (lang.tr("changed"), 8), (lang.tr("failed"), 7)].map(|(title, width)| pad_start(title, width));
        let header = format!("  {} {}  {}", pad_end(lang.tr("host"), host_width), columns.join(" "), lang.tr("ranks"));
        let rank_width = self.context.width().saturating_sub(header.width() - lang.tr("ranks").width());
        let mut lines = vec![self.style.paint(Tone::Dim, &header)];
        for (name, (reachable, counts, ranks)) in rows {
            let failed = format!("{:>7}", counts.failed);
            let failed = self.style.paint(if counts.failed > 0 { Tone::Bad } else { Tone::Dim }, &failed);
            let name = pad_end(&name, host_width);
            let ranks = if reachable { truncate_text(&ranks, rank_width) } else { self.style.paint(Tone::Bad, lang.tr("UNREACHABLE")) };
            lines.push(format!("  {name} {:>4} {:>8} {failed}  {ranks}", counts.ok, counts.changed).trim_end().to_owned());
        }
        if more > 0 {
            lines.push(format!("  {}", lang.tr_fill("… and {} more groups of hosts, see report.json", &[&more.to_string()])));
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
            let name = pad_end(&truncate_text(&name, width), width);
            lines.push(self.whole_row(self.lang.tr("task"), &format!("{name}  {}", self.task_counts(counts))));
        }
        if !lines.is_empty() {
            lines.push(self.whole_row(self.lang.tr("tasks"), &self.task_counts(total)));
        }
        lines
    }

    /// `changed 1  ok 3`; `changed` is always printed.
    fn task_counts(&self, counts: [usize; 5]) -> String {
        let lang = self.lang;
        let labels = [
            (lang.tr("changed"), Tone::Warn),
            (lang.tr("ok"), Tone::Ok),
            (lang.tr("skipped"), Tone::Dim),
            (lang.tr("failed"), Tone::Bad),
            (lang.tr("unreachable"), Tone::Bad),
        ];
        let texts = labels.iter().zip(counts).enumerate().filter(|(at, (_, count))| *count > 0 || *at == 0).map(|(_, shown)| shown);
        let paint = |tone: Tone, count: usize, text: &str| self.style.paint(if count > 0 { tone } else { Tone::Plain }, text);
        texts.map(|((label, tone), count)| paint(*tone, count, &format!("{label} {count}"))).collect::<Vec<_>>().join("  ")
    }

    /// `8 ok`, `7 ok, 1 exit 1`.
    fn rank_exits(&self, at: u32, host: &HostState) -> String {
        let mut ends: BTreeMap<String, usize> = BTreeMap::new();
        for rank in self.state.ranks.values().filter(|rank| rank.host == at) {
            let end = if rank.was_stopped { self.lang.tr("stopped").to_owned() } else { self.rank_outcome(rank) };
            *ends.entry(end).or_default() += 1;
        }
        let mut texts: Vec<String> = ends.into_iter().map(|(end, n)| format!("{n} {end}")).collect();
        texts.sort_by_key(|text| !text.ends_with(&format!(" {}", self.lang.tr("ok"))));
        if let (true, Some((exit, _))) = (texts.is_empty(), host.launcher_exit) {
            let exit = if exit.is_success() { self.lang.tr("ok").to_owned() } else { self.exit(exit) };
            texts.push(format!("launcher: {exit}"));
        }
        texts.join(", ")
    }

    fn exit(&self, exit: Exit) -> String {
        self.lang.message(&style::format_exit(exit)).into_owned()
    }

    fn rank_outcome(&self, rank: &RankState) -> String {
        match (rank.exit, rank.started_at) {
            (Some(Exit::Code(0)), _) => self.lang.tr("ok").to_owned(),
            (Some(exit), _) => self.exit(exit),
            (None, Some(_)) => self.lang.tr("running").to_owned(),
            (None, None) => self.lang.tr("not started").to_owned(),
        }
    }

    /// Failed steps and unreachable hosts; equal ones are merged.
    fn failure_rows(&self) -> Vec<String> {
        let mut groups: Vec<(FailureRow, Vec<u32>)> = Vec::new();
        let mut add = |row: FailureRow, host: u32| match groups.iter_mut().find(|group| group.0 == row) {
            Some(group) => group.1.push(host),
            None => groups.push((row, vec![host])),
        };
        for step in self.state.failed_steps() {
            let text = format!("{}: {}: {}", step.info.phase.name(), self.message(&step.info.title), self.message(&step.note));
            add((self.lang.tr("FAILED"), text, self.message(&step.hint)), step.info.host);
        }
        for (at, host) in (0_u32..).zip(&self.state.hosts).filter(|(_, host)| host.connection_status == ConnectionStatus::Unreachable) {
            add((self.lang.tr("UNREACHED"), self.message(&host.connection_error), String::new()), at);
        }
        let more = groups.len().saturating_sub(MAX_ROWS);
        let mut lines = Vec::new();
        for ((label, text, hint), mut hosts) in groups.into_iter().take(MAX_ROWS) {
            hosts.dedup();
            lines.push(self.labeled_row(Tone::Bad, label, &self.host_names(&hosts)));
            lines.extend(self.indented_paragraph(&text));
            if !hint.is_empty() {
                let hint = self.lang.tr_fill("hint: {}", &[&hint]);
                lines.extend(wrap_remedy(&hint, self.text_width()).into_iter().map(|line| format!("{:12}{line}", "")));
            }
        }
        if more > 0 {
            lines.push(self.labeled_row(Tone::Bad, self.lang.tr("FAILED"), &self.more_rows(more)));
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
        let (several, lang) = (culprit.ranks.len() > 1, self.lang);
        for rank in culprit.ranks.iter().filter_map(|rank| self.state.ranks.get(rank)).take(3) {
            let duration = |ms| lang.tr_fill(" after {}", &[&style::format_duration(ms)]);
            let duration = rank.duration().map_or_else(String::new, duration);
            let location = lang.tr_fill("rank {} on {}", &[&rank.rank.to_string(), &self.host_names([&rank.host])]);
            let text = format!("{location}{}{}{duration}", lang.colon(), self.rank_outcome(rank));
            lines.push(self.labeled_row(Tone::Bad, if several { lang.tr("FIRST ?") } else { lang.tr("FIRST") }, &text));
            lines.extend(self.quoted_lines(&rank.recent_lines.last_lines(self.context.tail_lines)));
        }
        if several {
            lines.push(self.labeled_row(Tone::Dim, "", lang.tr("they failed too close together for the clocks to order them")));
        }
        if culprit.ranks.is_empty() {
            for host in culprit.hosts.iter().take(3) {
                let Some(host_state) = self.state.hosts.get(*host as usize) else { continue };
                let exit = host_state.launcher_exit.map_or_else(|| lang.tr("failed").to_owned(), |(exit, _)| self.exit(exit));
                let text = lang.tr_fill("the launcher on {}: {}", &[&self.host_names([host]), &exit]);
                lines.push(self.labeled_row(Tone::Bad, lang.tr("FIRST"), &text));
                lines.extend(self.quoted_lines(&host_state.launcher_recent_lines.last_lines(self.context.tail_lines)));
            }
        }
        lines.extend(self.other_failure_rows(&culprit.ranks));
        lines
    }

    /// The first three findings: summary with location, explanation, next step.
    fn finding_rows(&self) -> Vec<String> {
        let (mut lines, lang) = (Vec::new(), self.lang);
        for (at, finding) in self.context.findings.iter().take(3).enumerate() {
            let sanitizer = &self.context.sanitizer;
            let [what, why, next] = finding::finding_texts(finding, lang, sanitizer);
            let location = lang.message(&finding::format_location(finding, self.state, sanitizer)).into_owned();
            let label = if at == 0 { lang.tr("CAUSE") } else { lang.tr("also") };
            let mut summary = wrap_bounded(&format!("{location}{}{what}", lang.colon()), self.text_width(), 4).into_iter();
            lines.push(self.labeled_row(Tone::Bad, label, &summary.next().unwrap_or_default()));
            lines.extend(summary.map(|line| format!("{:12}{line}", "")));
            // The output of steps and of the ranks that failed first is already shown above.
            let shown = self.state.culprit.as_ref().is_some_and(|culprit| finding.ranks.iter().any(|rank| culprit.ranks.contains(rank)));
            if !shown && !finding.ranks.is_empty() {
                lines.extend(self.quoted_lines(&finding.evidence));
            }
            for (label, text) in [(lang.tr("why"), why), (lang.tr("do"), next)] {
                for (n, line) in wrap_remedy(&text, self.text_width()).into_iter().enumerate().filter(|_| !text.is_empty()) {
                    lines.push(self.whole_row(if n == 0 { label } else { "" }, &line));
                }
            }
            if !finding.affected.is_empty() {
                lines.push(self.labeled_row(Tone::Dim, lang.tr("affected"), &self.ranks(&finding.affected)));
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
            ends.entry((rank.was_stopped, self.rank_outcome(rank))).or_default().push(rank.rank);
        }
        let more = ends.len().saturating_sub(MAX_ROWS);
        let texts = ends.into_iter().take(MAX_ROWS).map(|((stopped, end), ranks)| {
            let stopped = if stopped { self.lang.tr("stopped by us, ") } else { "" };
            format!("{}{}{stopped}{end}", self.ranks(&ranks), self.lang.colon())
        });
        let texts = texts.chain((more > 0).then(|| self.more_rows(more)));
        (0..).zip(texts).map(|(n, text)| self.labeled_row(Tone::Plain, if n == 0 { self.lang.tr("others") } else { "" }, &text)).collect()
    }

    fn leftover_rows(&self) -> Vec<String> {
        let mut groups: BTreeMap<String, Vec<u32>> = BTreeMap::new();
        for leftover in &self.state.leftovers {
            groups.entry(self.message(&leftover.text)).or_default().push(leftover.host);
        }
        let more = groups.len().saturating_sub(MAX_ROWS);
        let mut lines: Vec<String> = groups
            .iter()
            .take(MAX_ROWS)
            .map(|(text, hosts)| self.labeled_row(Tone::Bad, self.lang.tr("LEFTOVER"), &format!("{}: {text}", self.host_names(hosts))))
            .collect();
        if more > 0 {
            lines.push(self.labeled_row(Tone::Bad, self.lang.tr("LEFTOVER"), &self.more_rows(more)));
        }
        lines
    }

    /// The log directory and the next command; neither is truncated.
    fn footer_rows(&self) -> Vec<String> {
        let mut lines = Vec::new();
        if let Some(logs) = &self.context.log_dir {
            lines.push(self.whole_row(self.lang.tr("logs"), logs));
        }
        if let Some(next) = suggest_next_command(self.state, &self.context.advice).filter(|_| !self.context.hide_suggestions) {
            lines.push(self.whole_row(self.lang.tr("next"), &next));
            if is_still_running(self.state) {
                lines.push(self.whole_row(self.lang.tr("end it"), &self.context.advice.format_command("down", "")));
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
