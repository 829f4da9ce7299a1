//! What went wrong, in plain words: rules find lines and ends that mean something, and the first cause is named before its effects.

pub mod advice_formatter;
mod diagnoser;
mod evidence;
pub(crate) mod hang_detector;
mod prefilter;
mod ranks_behind;
mod rule_set;

pub use diagnoser::diagnose_run;
pub use evidence::Evidence;
pub use rule_set::RuleSet;

pub(crate) use crate::inventory::diagnosis_rules::Blame;
pub(crate) use crate::inventory::localized_template::{LocalizedTemplate, TemplateValues};
use crate::text::translation::Lang;

/// One thing that went wrong.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct DiagnosisFinding {
    /// The rule's stable name.
    pub rule: String,
    /// Whether it is to blame.
    pub blame: Blame,
    /// The ranks it was seen at, the first first; empty: it is about hosts.
    pub ranks: Vec<u32>,
    /// The hosts it was seen on.
    pub hosts: Vec<u32>,
    /// The lines that prove it, as the hosts wrote them.
    pub evidence: Vec<String>,
    /// What its texts name.
    pub values: TemplateValues,
    pub summary: LocalizedTemplate,
    /// Why that happens; may be empty.
    pub explanation: LocalizedTemplate,
    /// What to do next; may be empty.
    pub next_step: LocalizedTemplate,
    /// Ranks that were only affected.
    pub affected: Vec<u32>,
}

impl DiagnosisFinding {
    pub fn summary(&self, lang: Lang) -> String {
        self.summary.fill(lang == Lang::Zh, &self.values)
    }

    /// Why that happens; may be empty.
    pub fn explanation(&self, lang: Lang) -> String {
        self.explanation.fill(lang == Lang::Zh, &self.values)
    }

    /// What to do next, often a command; may be empty. What a host wrote is quoted in it.
    pub fn next_step(&self, lang: Lang) -> String {
        self.next_step.fill_commands(lang == Lang::Zh, &self.values)
    }
}

#[cfg(test)]
mod tests;
