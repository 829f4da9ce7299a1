//! The reason of the end, and rows that answer a question which a good or an early end leaves open.

use super::super::log_lines::has_error;
use super::super::style::{self, Tone};
use super::{LABEL_COLUMNS, RecapRenderer};
use crate::event::{Exit, Outcome};
use crate::text::width::wrap_message;

/// Below the text of a row with a label.
pub(super) fn indent(line: String) -> String {
    " ".repeat(LABEL_COLUMNS) + &line
}

impl RecapRenderer<'_> {
    /// Up to four lines below each other.
    pub(super) fn wrapped_rows(&self, tone: Tone, label: &str, text: &str) -> Vec<String> {
        let mut lines = style::wrap_bounded(text, self.text_width(), 4).into_iter();
        let first = self.labeled_row(tone, label, &lines.next().unwrap_or_default());
        std::iter::once(first).chain(lines.map(indent)).collect()
    }

    /// A command stays whole, so that it can be pasted.
    pub(super) fn reason_rows(&self, reason: &str) -> Vec<String> {
        let width = self.context.width();
        let went_well = matches!(self.state.outcome, Some((Outcome::Ok, _)));
        let label = if went_well { self.lang.tr("result") } else { self.lang.tr("reason") };
        if !reason.contains("orchestrate ") {
            return self.wrapped_rows(Tone::Plain, label, reason);
        }
        wrap_message(reason, &self.whole_row(label, ""), &" ".repeat(LABEL_COLUMNS), width)
    }

    /// A run that was refused before its ranks were known has no other row about them.
    pub(super) fn refused_row(&self) -> Option<String> {
        let is_refused = matches!(self.state.outcome, Some((Outcome::Refused, _))) && self.state.info.command == "up";
        (is_refused && self.state.ranks.is_empty())
            .then(|| self.whole_row(self.lang.tr("ranks"), self.lang.tr("this command started none")))
    }

    /// Launchers whose last lines look like errors although every rank ended with exit 0: the lines were shown, so the recap must
    /// say that they ended nothing.
    pub(super) fn launcher_error_note(&self) -> Vec<String> {
        let all_ok = !self.state.ranks.is_empty() && self.state.ranks.values().all(|rank| rank.exit == Some(Exit::Code(0)));
        if !all_ok || !matches!(self.state.outcome, Some((Outcome::Ok, _))) {
            return Vec::new();
        }
        let hosts = (0_u32..)
            .zip(&self.state.hosts)
            .filter(|(_, host)| host.launcher_recent_lines.last_lines(usize::MAX).iter().any(|line| has_error(line.as_bytes())));
        let hosts: Vec<u32> = hosts.map(|(at, _)| at).collect();
        if hosts.is_empty() {
            return Vec::new();
        }
        let text = self
            .lang
            .tr_fill("every rank ended with exit 0; the launcher's log on {} has lines that look like errors", &[&self.host_names(&hosts)]);
        self.wrapped_rows(Tone::Plain, self.lang.tr("note"), &text)
    }
}
