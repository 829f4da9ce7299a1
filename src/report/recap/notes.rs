//! Rows that answer a question which a good or an early end leaves open.

use super::super::log_lines::error_pattern;
use super::super::style::Tone;
use super::RecapRenderer;
use crate::event::{Exit, Outcome};

impl RecapRenderer<'_> {
    /// A run that was refused before its ranks were known has no other row about them.
    pub(super) fn refused_row(&self) -> Option<String> {
        let is_refused = matches!(self.state.outcome, Some((Outcome::Refused, _))) && self.state.info.command == "up";
        (is_refused && self.state.ranks.is_empty()).then(|| self.whole_row(self.lang.tr("ranks"), self.lang.tr("none was started")))
    }

    /// Launchers whose last lines look like errors although every rank ended with exit 0: the lines were shown, so the recap must
    /// say that they ended nothing.
    pub(super) fn launcher_error_note(&self) -> Option<String> {
        let all_ok = !self.state.ranks.is_empty() && self.state.ranks.values().all(|rank| rank.exit == Some(Exit::Code(0)));
        if !all_ok || !matches!(self.state.outcome, Some((Outcome::Ok, _))) {
            return None;
        }
        let pattern = error_pattern()?;
        let hosts = (0_u32..)
            .zip(&self.state.hosts)
            .filter(|(_, host)| host.launcher_recent_lines.last_lines(usize::MAX).iter().any(|line| pattern.is_match(line.as_bytes())));
        let hosts: Vec<u32> = hosts.map(|(at, _)| at).collect();
        if hosts.is_empty() {
            return None;
        }
        let text = self.lang.tr_fill("the launcher on {} logged errors; every rank ended with exit 0", &[&self.host_names(&hosts)]);
        Some(self.labeled_row(Tone::Dim, self.lang.tr("note"), &text))
    }
}
