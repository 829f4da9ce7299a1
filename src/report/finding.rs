//! What went wrong, as the recap and as programs are told it.
//!
//! Uses `diagnose`. The texts are cleaned here: a finding quotes what hosts wrote.

use serde::{Deserialize, Serialize};

use crate::diagnose::{self, Finding, Lang, Words};
use crate::event::{Hang, Millis, Sign};
use crate::state::RunState;

use super::sanitize::Cleaner;
use super::words;

/// A text in both languages.
#[derive(Debug, Clone, PartialEq, Eq, Default, Serialize, Deserialize)]
pub struct Texts {
    /// English.
    pub en: String,
    /// Chinese.
    pub zh: String,
}

/// A finding in `report.json` and in the stream of `--progress json`.
#[derive(Debug, Clone, PartialEq, Eq, Serialize, Deserialize)]
pub struct FindingReport {
    /// The rule's stable name.
    pub rule: String,
    /// Ranks, ascending; empty: it is about hosts.
    pub ranks: Vec<u32>,
    /// Names of hosts.
    pub hosts: Vec<String>,
    /// What happened.
    pub what: Texts,
    /// Why that happens.
    pub why: Texts,
    /// What to do next.
    pub next: Texts,
    /// The lines that say so.
    pub evidence: Vec<String>,
    /// Ranks that only felt it.
    pub felt: Vec<u32>,
}

impl FindingReport {
    /// As programs are told it.
    pub fn new(finding: &Finding, state: &RunState) -> Self {
        let texts = |words: &Words| Texts { en: words.fill(false, &finding.groups), zh: words.fill(true, &finding.groups) };
        FindingReport {
            rule: finding.rule.clone(),
            ranks: finding.ranks.clone(),
            hosts: finding.hosts.iter().map(|host| state.host_name(*host).to_owned()).collect(),
            what: texts(&finding.what),
            why: texts(&finding.why),
            next: texts(&finding.next),
            evidence: finding.evidence.clone(),
            felt: finding.felt.clone(),
        }
    }
}

/// `rank 2 on gpu02`, `ranks 0-3`, `gpu[01-02]`: where it was, clean.
pub fn place(finding: &Finding, state: &RunState, cleaner: &Cleaner) -> String {
    let hosts = words::hosts(state, cleaner, &finding.hosts);
    match finding.ranks.len() {
        0 => hosts,
        _ => format!("{} on {hosts}", words::ranks(&finding.ranks)),
    }
}

/// How a run seems to hang, on one line, clean: `waiting for: gpu03 (2 min)`.
pub fn hang(hang: &Hang, at: Millis, state: &RunState, cleaner: &Cleaner) -> String {
    let hosts = words::hosts(state, cleaner, &hang.hosts);
    // All ranks of its hosts: then the hosts say it.
    let whole = state.ranks.values().filter(|rank| hang.hosts.contains(&rank.host)).all(|rank| hang.ranks.contains(&rank.rank));
    let who = if whole || hang.ranks.is_empty() { hosts } else { format!("{} on {hosts}", words::ranks(&hang.ranks)) };
    let span = diagnose::hang::span(at - hang.since);
    match hang.sign {
        Sign::Missing => format!("waiting for: {who} (for {span})"),
        Sign::Gone => format!("{who} ended, the others have been silent for {span}"),
        Sign::Spinning => format!("no rank has written for {span}, and the GPUs are busy without drawing the power of work"),
        Sign::Silent => format!("no rank has written for {span} (silence alone is a weak sign)"),
        Sign::Late => format!("the run is not ready after {span}"),
    }
}

/// What happened, why, and what to do next, clean; the last two may be empty.
pub fn texts(finding: &Finding, lang: Lang, cleaner: &Cleaner) -> [String; 3] {
    [finding.what(lang), finding.why(lang), finding.next(lang)].map(|text| cleaner.line(&text).trim().to_owned())
}
