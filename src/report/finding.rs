//! What went wrong, as the recap and as programs are told it.
//!
//! Uses `diagnose`. The texts are cleaned here: a finding quotes what hosts wrote.

use serde::{Deserialize, Serialize};

use crate::diagnose::{self, DiagnosisFinding, Lang, LocalizedTemplate};
use crate::event::{Hang, HangSymptom, UnixMillis};
use crate::state::RunState;

use super::style;
use crate::text::sanitize::Sanitizer;

/// A text in both languages.
#[derive(Debug, Clone, PartialEq, Eq, Default, Serialize, Deserialize)]
pub struct BilingualText {
    pub en: String,
    pub zh: String,
}

/// A finding in `report.json` and in the stream of `--progress json`.
#[derive(Debug, Clone, PartialEq, Eq, Serialize, Deserialize)]
pub struct FindingReport {
    /// The rule's stable name.
    pub rule: String,
    /// Ranks, ascending; empty: it is about hosts.
    pub ranks: Vec<u32>,
    pub hosts: Vec<String>,
    pub what: BilingualText,
    pub why: BilingualText,
    /// What to do next.
    pub next: BilingualText,
    /// The lines that say so.
    pub evidence: Vec<String>,
    /// Ranks that only felt it.
    #[serde(alias = "felt")]
    pub affected: Vec<u32>,
}

impl FindingReport {
    /// As programs are told it.
    pub fn new(finding: &DiagnosisFinding, state: &RunState) -> Self {
        let texts =
            |words: &LocalizedTemplate| BilingualText { en: words.fill(false, &finding.groups), zh: words.fill(true, &finding.groups) };
        FindingReport {
            rule: finding.rule.clone(),
            ranks: finding.ranks.clone(),
            hosts: finding.hosts.iter().map(|host| state.host_name(*host).to_owned()).collect(),
            what: texts(&finding.summary),
            why: texts(&finding.explanation),
            next: texts(&finding.next_step),
            evidence: finding.evidence.clone(),
            affected: finding.affected.clone(),
        }
    }
}

/// `rank 2 on gpu02`, `ranks 0-3`, `gpu[01-02]`: where it was, clean.
pub(crate) fn format_location(finding: &DiagnosisFinding, state: &RunState, sanitizer: &Sanitizer) -> String {
    let hosts = style::format_hosts(state, sanitizer, &finding.hosts);
    match finding.ranks.len() {
        0 => hosts,
        _ => format!("{} on {hosts}", style::format_ranks(&finding.ranks)),
    }
}

/// How a run seems to hang, on one line, clean: `waiting for: gpu03 (2 min)`.
pub(crate) fn describe_hang(hang: &Hang, at: UnixMillis, state: &RunState, sanitizer: &Sanitizer) -> String {
    let hosts = style::format_hosts(state, sanitizer, &hang.hosts);
    // All ranks of its hosts: then the hosts say it.
    let whole = state.ranks.values().filter(|rank| hang.hosts.contains(&rank.host)).all(|rank| hang.ranks.contains(&rank.rank));
    let who = if whole || hang.ranks.is_empty() { hosts } else { format!("{} on {hosts}", style::format_ranks(&hang.ranks)) };
    let span = diagnose::hang_detector::format_duration(at - hang.since);
    match hang.symptom {
        HangSymptom::RankMissing => format!("waiting for: {who} (for {span})"),
        HangSymptom::RankExited => format!("{who} ended, the others have been silent for {span}"),
        HangSymptom::Spinning => format!("no rank has written for {span}, and the GPUs are busy without drawing the power of work"),
        HangSymptom::Silent => format!("no rank has written for {span} (silence alone is a weak sign)"),
        HangSymptom::NotReady => format!("the run is not ready after {span}"),
    }
}

/// What happened, why, and what to do next, clean; the last two may be empty.
pub(crate) fn finding_texts(finding: &DiagnosisFinding, lang: Lang, sanitizer: &Sanitizer) -> [String; 3] {
    [finding.summary(lang), finding.explanation(lang), finding.next_step(lang)].map(|text| sanitizer.sanitize_line(&text).trim().to_owned())
}
