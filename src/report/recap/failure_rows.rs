//! Rows about failures: steps and hosts, the ranks that failed first, findings, other ranks, leftovers.

use std::collections::{BTreeMap, BTreeSet};

use super::super::finding;
use super::super::style::{self, Tone};
use super::notes::indent;
use super::{MAX_ROWS, RecapRenderer};
use crate::diagnose::DiagnosisFinding;
use crate::event::Phase;
use crate::model::step_status::StepStatus;
use crate::state::StepState;
use crate::text::width::{wrap_message, wrap_with_indent};

/// How many findings are printed.
const MAX_FINDING_ROWS: usize = 3;
/// The most lines of one error.
const MAX_ERROR_LINES: usize = 8;
/// What the prefix of a quoted line takes.
const QUOTE_COLUMNS: usize = 6;

/// Label, description, hint.
type FailureRow = (&'static str, String, String);

/// Wraps the next step. If it contains commands, each remedy gets a line of its own; lines with commands are neither truncated nor wrapped.
fn wrap_remedy(text: &str, width: usize) -> Vec<String> {
    // Not in "the ssh user": a command begins the clause, or follows a colon. One in backticks stays whole anyway.
    let begins_command = |before: &str| before.is_empty() || before.trim_end().ends_with([':', '：']);
    let has_command =
        |text: &str| ["orchestrate ", "ssh "].iter().any(|program| text.match_indices(program).any(|(at, _)| begins_command(&text[..at])));
    if !has_command(text) {
        return wrap_message(text, "", "", width);
    }
    let clauses = text.split_inclusive("; ").flat_map(|clause| clause.split_inclusive('；'));
    clauses
        .map(str::trim_end)
        .flat_map(|clause| match clause {
            // What follows a command would be pasted with it.
            command if has_command(command) => vec![command.trim_end_matches([';', '；']).to_owned()],
            text => wrap_message(text, "", "", width),
        })
        .collect()
}

impl RecapRenderer<'_> {
    /// Failed steps and unreachable hosts; equal ones are merged.
    pub(super) fn failure_rows(&self) -> Vec<String> {
        let mut groups: Vec<(FailureRow, Vec<u32>)> = Vec::new();
        let mut add = |row: FailureRow, host: u32| match groups.iter_mut().find(|group| group.0 == row) {
            Some(group) => group.1.push(host),
            None => groups.push((row, vec![host])),
        };
        for step in self.state.failed_steps() {
            let text = style::step_failure(step.info.phase, &step.info.title, &step.note, |text| self.message(text));
            let hint = if self.has_remedy_below(step) { String::new() } else { self.message(&step.hint) };
            add((self.lang.tr("FAILED"), text, hint), step.info.host);
        }
        for (at, host) in self.state.unreachable_hosts() {
            add((self.lang.tr("UNREACHABLE"), self.message(&host.connection_error), self.message(&host.connection_hint)), at);
        }
        let more = groups.len().saturating_sub(MAX_ROWS);
        let mut lines = Vec::new();
        for ((label, text, hint), mut hosts) in groups.into_iter().take(MAX_ROWS) {
            hosts.dedup();
            lines.push(self.labeled_row(Tone::Bad, label, &self.host_names(&hosts)));
            lines.extend(self.indented_paragraph(&text));
            if !hint.is_empty() {
                let hint = self.lang.tr_fill("help: {}", &[&hint]);
                lines.extend(wrap_remedy(&hint, self.text_width()).into_iter().map(indent));
            }
        }
        if more > 0 {
            lines.push(self.labeled_row(Tone::Bad, self.lang.tr("FAILED"), &self.more_rows(more)));
        }
        lines
    }

    /// Whether a finding about this step's error is printed, with what to do.
    fn has_remedy_below(&self, step: &StepState) -> bool {
        let is_about_step = |finding: &&DiagnosisFinding| {
            let is_its_error = !finding.evidence.is_empty() && finding.evidence.iter().all(|line| step.note.contains(line.as_str()));
            finding.ranks.is_empty() && finding.hosts.contains(&step.info.host) && is_its_error
        };
        let shown = self.context.findings.iter().take(MAX_FINDING_ROWS);
        shown.filter(is_about_step).any(|finding| !finding.next_step(self.lang).is_empty())
    }

    fn indented_paragraph(&self, text: &str) -> Vec<String> {
        style::wrap_bounded(text, self.text_width(), MAX_ERROR_LINES).into_iter().map(indent).collect()
    }

    /// The ranks that failed first, with their last lines; the other failures below.
    pub(super) fn first_failure_rows(&self) -> Vec<String> {
        let Some(culprit) = &self.state.culprit else { return self.other_failure_rows(&[]) };
        let mut lines = Vec::new();
        let (several, lang) = (culprit.ranks.len() > 1, self.lang);
        for rank in culprit.ranks.iter().filter_map(|rank| self.state.ranks.get(rank)).take(3) {
            let duration = |ms| lang.tr_fill(" after {}", &[&style::format_duration(ms)]);
            let duration = rank.duration().map_or_else(String::new, duration);
            let location = lang.tr_fill("rank {} on {}", &[&rank.rank.to_string(), &self.host_names([&rank.host])]);
            let text = format!("{location}{}{}{duration}", lang.colon(), self.rank_outcome(rank));
            lines.push(self.labeled_row(Tone::Bad, if several { lang.tr("FIRST ?") } else { lang.tr("FIRST") }, &text));
            lines.extend(self.quoted_lines(&rank.recent_lines.last_lines(super::TAIL_LINES)));
        }
        if several {
            lines.push(self.labeled_row(Tone::Dim, "", lang.tr("they failed too close together for the clocks to order them")));
        }
        // A rank that loses its peer can end before the peer has.
        let cause = self.context.cause_ranks();
        if !cause.is_empty() && !culprit.ranks.is_empty() && !cause.iter().any(|rank| culprit.ranks.contains(rank)) {
            let text = lang.tr_fill("the cause is at {}, see CAUSE", &[&self.ranks(cause)]);
            lines.push(self.labeled_row(Tone::Dim, "", &text));
        }
        if culprit.ranks.is_empty() {
            for host in culprit.hosts.iter().take(3) {
                let Some(host_state) = self.state.hosts.get(*host as usize) else { continue };
                let exit = host_state.launcher_exit.map_or_else(|| lang.tr("failed").to_owned(), |(exit, _)| self.exit(exit));
                let text = lang.tr_fill("the launcher on {}: {}", &[&self.host_names([host]), &exit]);
                lines.push(self.labeled_row(Tone::Bad, lang.tr("FIRST"), &text));
                lines.extend(self.quoted_lines(&host_state.launcher_recent_lines.last_lines(super::TAIL_LINES)));
            }
        }
        lines.extend(self.other_failure_rows(&culprit.ranks));
        lines
    }

    /// Whether a finding that is printed advises this very command.
    pub(super) fn is_advised(&self, command: &str) -> bool {
        let shown = self.context.findings.iter().take(MAX_FINDING_ROWS);
        shown.map(|found| finding::finding_texts(found, self.lang, &self.context.sanitizer)).any(|[_, _, next]| next == command)
    }

    /// The first three findings: summary with location, explanation, next step.
    pub(super) fn finding_rows(&self) -> Vec<String> {
        let (mut lines, lang) = (Vec::new(), self.lang);
        for (at, finding) in self.context.findings.iter().take(MAX_FINDING_ROWS).enumerate() {
            let sanitizer = &self.context.sanitizer;
            let [what, why, next] = finding::finding_texts(finding, lang, sanitizer);
            let location = lang.message(&finding::format_location(finding, self.state, sanitizer)).into_owned();
            let label = if at == 0 { lang.tr("CAUSE") } else { lang.tr("also") };
            lines.extend(self.wrapped_rows(Tone::Bad, label, &format!("{location}{}{what}", lang.colon())));
            // The output of steps and of the ranks that failed first is already shown above.
            let shown = finding.ranks.iter().any(|rank| self.state.culprit_ranks().contains(rank));
            if !shown && !finding.ranks.is_empty() {
                lines.extend(self.quoted_lines(&finding.evidence));
            }
            for (label, text) in [(lang.tr("why"), why), (lang.tr("do"), next)] {
                for (n, line) in wrap_remedy(&text, self.text_width()).into_iter().enumerate().filter(|_| !text.is_empty()) {
                    lines.push(self.whole_row(if n == 0 { label } else { "" }, &line));
                }
            }
            if !finding.affected.is_empty() {
                let text = lang.tr_fill("{} logged errors that followed from it", &[&self.ranks(&finding.affected)]);
                lines.push(self.labeled_row(Tone::Dim, lang.tr("affected"), &text));
            }
        }
        lines
    }

    fn quoted_lines(&self, lines: &[String]) -> Vec<String> {
        let bar = self.style.paint(Tone::Dim, "|");
        let width = self.context.columns.map_or(usize::MAX, |_| self.context.width() - QUOTE_COLUMNS);
        let quote = |line: &String| wrap_with_indent(&self.sanitize(line), "", "  ", width);
        lines.iter().flat_map(quote).map(|line| format!("    {bar} {line}")).collect()
    }

    /// The other failed ranks, grouped by their exits.
    fn other_failure_rows(&self, except: &[u32]) -> Vec<String> {
        let mut ends: BTreeMap<(bool, String), Vec<u32>> = BTreeMap::new();
        for rank in self.state.ranks.values().filter(|rank| rank.has_failed() && !except.contains(&rank.rank)) {
            ends.entry((rank.was_ended(), self.rank_outcome(rank))).or_default().push(rank.rank);
        }
        let more = ends.len().saturating_sub(MAX_ROWS);
        let texts = ends.into_iter().take(MAX_ROWS).map(|((stopped, end), ranks)| {
            let stopped = if stopped { self.lang.tr("stopped, ") } else { "" };
            format!("{}{}{stopped}{end}", self.ranks(&ranks), self.lang.colon())
        });
        let texts = texts.chain((more > 0).then(|| self.more_rows(more)));
        let label = if self.state.culprit.is_some() { self.lang.tr("others") } else { self.lang.tr("ended") };
        (0..).zip(texts).map(|(n, text)| self.labeled_row(Tone::Plain, if n == 0 { label } else { "" }, &text)).collect()
    }

    /// What a teardown could not remove; or that every host was looked at and has nothing more.
    pub(super) fn leftover_rows(&self) -> Vec<String> {
        let mut verified = self.state.step_tracker.steps_in_phase(Phase::Verify).peekable();
        let is_verified = verified.peek().is_some() && verified.all(|step| matches!(step.status, StepStatus::Done | StepStatus::Satisfied));
        // `down` gives it as its result.
        if is_verified && self.state.leftovers.is_empty() && self.state.info.command != "down" {
            let hosts: BTreeSet<u32> = self.state.step_tracker.steps_in_phase(Phase::Verify).map(|step| step.info.host).collect();
            let hosts = self.host_names(&hosts);
            let text = if self.state.task_steps().next().is_some() {
                self.lang.tr_fill("nothing is left on {}, except files that tasks wrote", &[&hosts])
            } else {
                self.lang.tr_fill("nothing is left on {}", &[&hosts])
            };
            return vec![self.labeled_row(Tone::Plain, self.lang.tr("cleanup"), &text)];
        }
        let mut groups: BTreeMap<(bool, String), Vec<u32>> = BTreeMap::new();
        for leftover in &self.state.leftovers {
            let key = (leftover.unchecked, self.message(&leftover.text));
            groups.entry(key).or_default().push(leftover.host);
        }
        let more = groups.len().saturating_sub(MAX_ROWS);
        let mut lines: Vec<String> = groups
            .iter()
            .take(MAX_ROWS)
            .map(|((unchecked, text), hosts)| {
                let lang = self.lang;
                let (tone, label) = if *unchecked { (Tone::Warn, lang.tr("UNCHECKED")) } else { (Tone::Bad, lang.tr("LEFTOVER")) };
                self.labeled_row(tone, label, &format!("{}{}{text}", self.host_names(hosts), lang.colon()))
            })
            .collect();
        if more > 0 {
            lines.push(self.labeled_row(Tone::Bad, self.lang.tr("LEFTOVER"), &self.more_rows(more)));
        }
        lines
    }
}
