//! Findings of the diagnosis, for the recap and as JSON. The texts are sanitized here, since a finding quotes output of hosts.

use serde::{Deserialize, Serialize};

use crate::diagnose::DiagnosisFinding;
use crate::event::{Hang, HangSymptom, UnixMillis};
use crate::state::RunState;
use crate::text::duration::format_rounded;

use super::style;
use crate::text::hostlist;
use crate::text::sanitize::Sanitizer;
use crate::text::translation::Lang;

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
    /// Ascending; empty if the finding is about hosts.
    pub ranks: Vec<u32>,
    pub hosts: Vec<String>,
    pub what: BilingualText,
    pub why: BilingualText,
    pub next: BilingualText,
    /// Log lines that support the finding.
    pub evidence: Vec<String>,
    /// Ranks that failed as a consequence.
    #[serde(alias = "felt")]
    pub affected: Vec<u32>,
}

impl FindingReport {
    pub fn new(finding: &DiagnosisFinding, state: &RunState) -> Self {
        let texts =
            |text: fn(&DiagnosisFinding, Lang) -> String| BilingualText { en: text(finding, Lang::En), zh: text(finding, Lang::Zh) };
        FindingReport {
            rule: finding.rule.clone(),
            ranks: finding.ranks.clone(),
            hosts: finding.hosts.iter().map(|host| state.host_name(*host).to_owned()).collect(),
            what: texts(DiagnosisFinding::summary),
            why: texts(DiagnosisFinding::explanation),
            next: texts(DiagnosisFinding::next_step),
            evidence: finding.evidence.clone(),
            affected: finding.affected.clone(),
        }
    }
}

/// `rank 2 on gpu02`, `gpu[01-02]`; sanitized.
pub(crate) fn format_location(finding: &DiagnosisFinding, state: &RunState, sanitizer: &Sanitizer) -> String {
    let hosts = style::format_hosts(state, sanitizer, &finding.hosts);
    format_ranks_on(&finding.ranks, &hosts)
}

fn format_ranks_on(ranks: &[u32], hosts: &str) -> String {
    let numbers = hostlist::fold_numbers(ranks);
    match ranks {
        [] => hosts.to_owned(),
        [rank] => format!("rank {rank} on {hosts}"),
        _ => format!("ranks {numbers} on {hosts}"),
    }
}

/// The symptoms of a hang on one line, sanitized: `waiting for: gpu03 (for 2 min)`.
pub(crate) fn describe_hang(hang: &Hang, at: UnixMillis, state: &RunState, sanitizer: &Sanitizer) -> String {
    let hosts = style::format_hosts(state, sanitizer, &hang.hosts);
    // If every rank of the hosts is concerned, the hosts are named alone.
    let whole_hosts = state.ranks.values().filter(|rank| hang.hosts.contains(&rank.host)).all(|rank| hang.ranks.contains(&rank.rank));
    let subject = if whole_hosts { hosts } else { format_ranks_on(&hang.ranks, &hosts) };
    let span = format_rounded(at - hang.since);
    match hang.symptom {
        HangSymptom::RankMissing => format!("waiting for: {subject} (for {span})"),
        HangSymptom::RankExited => format!("{subject} ended, the others have written nothing for {span}"),
        HangSymptom::Spinning => format!("no rank has written for {span}; the GPUs report load but draw little power"),
        HangSymptom::Silent => format!("no rank has written for {span} (a weak sign by itself)"),
        HangSymptom::NotReady => format!("the run is not ready after {span}"),
    }
}

/// Summary, explanation and next step, sanitized; the last two may be empty.
pub(crate) fn finding_texts(finding: &DiagnosisFinding, lang: Lang, sanitizer: &Sanitizer) -> [String; 3] {
    [finding.summary(lang), finding.explanation(lang), finding.next_step(lang)].map(|text| sanitizer.sanitize_line(&text).trim().to_owned())
}
