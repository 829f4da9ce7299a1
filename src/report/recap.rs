//! The recap: the outcome, results by host and by rank, the first failure, leftovers, and the next command.
//!
//! It fits the terminal and stays short for 128 hosts: equal rows are merged.

mod failure_rows;
mod next_command;
mod notes;

use std::collections::{BTreeMap, BTreeSet};

use unicode_width::UnicodeWidthStr;

use crate::diagnose::DiagnosisFinding;
use crate::diagnose::advice_formatter::AdviceFormatter;
use crate::event::{Exit, Phase};
use crate::inventory::diagnosis_rules::Blame;
use crate::model::step_status::StepStatus;
use crate::state::{ConnectionStatus, HostState, PhaseCounts, RankState, RunState};
use crate::text::translation::Lang;

use self::next_command::{further_commands, suggest_next_command};
use super::style::{self, TextStyle, Tone, truncate_text};
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
    /// The first cause comes first.
    pub findings: Vec<DiagnosisFinding>,
    pub lang: Lang,
    /// Of a replay: the commands that a recap suggests do not apply to it.
    pub hide_suggestions: bool,
    /// The terminal's columns; `None` for a file or a pipe.
    pub columns: Option<u16>,
}

impl RecapContext {
    /// The ranks whose lines say why the run failed, if any do.
    fn cause_ranks(&self) -> &[u32] {
        self.findings.first().filter(|finding| finding.blame == Blame::Cause).map_or(&[], |finding| &finding.ranks)
    }

    /// The maximum width of every line except log lines and commands.
    fn width(&self) -> usize {
        style::page_width(self.columns)
    }
}

/// What a label takes.
const LABEL_COLUMNS: usize = 12;
/// The maximum number of rows in one section.
const MAX_ROWS: usize = 20;
/// How many of the last lines of the first failed rank are shown.
const TAIL_LINES: usize = 20;
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
    lines.extend(renderer.launcher_error_note());
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

struct RecapRenderer<'a> {
    state: &'a RunState,
    context: &'a RecapContext,
    style: TextStyle,
    lang: Lang,
}

impl RecapRenderer<'_> {
    /// The columns to the right of a label.
    fn text_width(&self) -> usize {
        self.context.width() - LABEL_COLUMNS
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
        let label = pad_end(label, LABEL_COLUMNS - 3);
        let text_width = self.context.width().saturating_sub(label.width() + 3);
        format!("  {} {}", self.style.paint(tone, &label), truncate_text(text, text_width))
    }

    /// `  label    text`, whole.
    fn whole_row(&self, label: &str, text: &str) -> String {
        format!("  {} {text}", pad_end(label, LABEL_COLUMNS - 3))
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
            lines.extend(self.reason_rows(&self.context.advice.complete_commands(&reason)));
        }
        lines.extend(self.refused_row());
        // The command's outcome and the run's can differ: `down` is OK, the run was STOPPED.
        if let Some((end, tone)) = self.state.run_end().map(style::run_end_label).filter(|(end, _)| *end != label) {
            lines.push(self.whole_row(lang.tr("run"), &self.style.paint(tone, &lang.message(end))));
        }
        if !self.state.check_levels.is_empty() {
            let texts = style::level_counts(lang, self.style, self.state.check_levels.values().copied());
            lines.push(self.whole_row(lang.tr("checks"), &texts.join("  ")));
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
                .map(|(_, (n, label, tone))| {
                    self.style.paint(if *n > 0 { *tone } else { Tone::Dim }, &lang.tr_fill("{} {}", &[&n.to_string(), label]))
                })
                .collect();
            let all = self.state.ranks.len().to_string();
            lines.push(self.whole_row(lang.tr("ranks"), &lang.tr_fill("{} of {}", &[&texts.join("  "), &all])));
        }
        lines
    }

    /// One row per group of hosts with equal results.
    fn host_rows(&self) -> Vec<String> {
        let mut groups: BTreeMap<(bool, PhaseCounts, String), Vec<u32>> = BTreeMap::new();
        for (at, host) in (0_u32..).zip(&self.state.hosts) {
            // Skipped tasks have rows of their own.
            let counts = PhaseCounts { skipped: 0, ..self.state.phase_counts(at as usize) };
            let key = (host.connection_status != ConnectionStatus::Unreachable, counts, self.rank_exits(at, host));
            groups.entry(key).or_default().push(at);
        }
        let is_empty =
            |(reachable, counts, ranks): &(bool, PhaseCounts, String)| *reachable && *counts == PhaseCounts::default() && ranks.is_empty();
        if groups.keys().all(is_empty) {
            return Vec::new();
        }
        let mut rows: Vec<((bool, PhaseCounts, String), Vec<u32>)> = groups.into_iter().collect();
        // Failures come last, next to their reasons.
        rows.sort_by_key(|((reachable, counts, _), hosts)| (!reachable, counts.failed > 0, hosts[0]));
        let more = rows.len().saturating_sub(MAX_ROWS);
        let rows: Vec<_> = rows
            .into_iter()
            .skip(more)
            .map(|(row, hosts)| (truncate_text(&self.host_names(&hosts), MAX_HOST_COLUMNS), hosts.len(), row))
            .collect();
        let host_width = rows.iter().map(|(name, ..)| UnicodeWidthStr::width(name.as_str())).max().unwrap_or(0);
        let lang = self.lang;
        let host_width = host_width.max(lang.tr("host").width());
        let columns =
            [(lang.tr("phases ok"), 10), (lang.tr("changed"), 8), (lang.tr("failed"), 7)].map(|(title, width)| pad_start(title, width));
        let has_ranks = rows.iter().any(|(.., (reachable, _, ranks))| !reachable || !ranks.is_empty());
        let header = format!("  {} {}  ", pad_end(lang.tr("host"), host_width), columns.join(" "));
        let rank_width = self.context.width().saturating_sub(header.width());
        let mut lines = vec![self.style.paint(Tone::Dim, (header + if has_ranks { lang.tr("ranks") } else { "" }).trim_end())];
        for (name, host_count, (reachable, counts, ranks)) in rows {
            let failed = format!("{:>7}", counts.failed);
            let failed = self.style.paint(if counts.failed > 0 { Tone::Bad } else { Tone::Dim }, &failed);
            let name = pad_end(&name, host_width);
            let ranks = if host_count > 1 && !ranks.is_empty() { lang.tr_fill("{} each", &[&ranks]) } else { ranks };
            let ranks = if reachable { truncate_text(&ranks, rank_width) } else { self.style.paint(Tone::Bad, lang.tr("UNREACHABLE")) };
            lines.push(format!("  {name} {:>10} {:>8} {failed}  {ranks}", counts.ok, counts.changed).trim_end().to_owned());
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
                StepStatus::Failed if step.unreachable => 4,
                StepStatus::Failed => 3,
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
        let rows: Vec<(Phase, String, [usize; 5])> =
            tasks.into_iter().skip(more).map(|task| (task.0, self.sanitize(task.1), task.2)).collect();
        let width = rows.iter().map(|(_, name, _)| UnicodeWidthStr::width(name.as_str())).max().unwrap_or(0).min(40);
        let mut lines = Vec::new();
        for (phase, name, counts) in rows {
            let name = pad_end(&truncate_text(&name, width), width);
            let label = self.lang.message(&phase.label()).into_owned();
            lines.push(self.whole_row(&label, &format!("{name}  {}", self.task_counts(counts))));
        }
        if !lines.is_empty() {
            let hosts = self.state.task_steps().map(|step| step.info.host).collect::<BTreeSet<u32>>().len();
            let hosts = if hosts > 1 { self.lang.tr_fill("  on {}", &[&self.lang.count(hosts, "host")]) } else { String::new() };
            lines.push(self.whole_row(self.lang.tr("tasks"), &format!("{}{hosts}", self.task_counts(total))));
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

    /// `8 ok`, `7 ok, 1 failed: exit 1`.
    fn rank_exits(&self, at: u32, host: &HostState) -> String {
        // Failures before ranks that were stopped or still run.
        let mut ends: BTreeMap<(u8, String), usize> = BTreeMap::new();
        for rank in self.state.ranks.values().filter(|rank| rank.host == at) {
            let end = match rank.exit {
                Some(Exit::Code(0)) => (0, self.rank_outcome(rank)),
                _ if rank.was_ended() => (2, self.lang.tr("stopped").to_owned()),
                Some(exit) => (1, self.lang.tr_fill("failed: {}", &[&self.exit(exit)])),
                None => (3, self.rank_outcome(rank)),
            };
            *ends.entry(end).or_default() += 1;
        }
        let mut texts: Vec<String> = ends.into_iter().map(|((_, end), n)| self.lang.tr_fill("{} {}", &[&n.to_string(), &end])).collect();
        if let (true, Some((exit, _))) = (texts.is_empty(), host.launcher_exit) {
            let exit = if exit.is_success() { self.lang.tr("ok").to_owned() } else { self.exit(exit) };
            texts.push(format!("launcher{}{exit}", self.lang.colon()));
        }
        texts.join(self.lang.comma())
    }

    fn exit(&self, exit: Exit) -> String {
        self.lang.message(&exit.to_string()).into_owned()
    }

    fn rank_outcome(&self, rank: &RankState) -> String {
        match (rank.exit, rank.started_at) {
            (Some(Exit::Code(0)), _) => self.lang.tr("ok").to_owned(),
            (Some(exit), _) => self.exit(exit),
            (None, Some(_)) => self.lang.tr("running").to_owned(),
            (None, None) => self.lang.tr("not started").to_owned(),
        }
    }

    /// The log directory and the next command; neither is truncated.
    fn footer_rows(&self) -> Vec<String> {
        let mut lines = Vec::new();
        if let Some(logs) = &self.context.log_dir {
            lines.push(self.whole_row(self.lang.tr("logs"), logs));
        }
        let next = suggest_next_command(self.state, &self.context.advice, self.context.cause_ranks());
        if !self.context.hide_suggestions {
            let next = next.filter(|next| !self.is_advised(next));
            lines.extend(next.map(|next| self.whole_row(self.lang.tr("next"), &next)));
            let further = further_commands(self.state, &self.context.advice, self.lang);
            lines.extend(further.into_iter().map(|(label, command)| self.whole_row(label, &command)));
        }
        lines
    }
}

#[cfg(test)]
#[path = "recap_tests.rs"]
mod tests;
