//! What went wrong, in plain words: rules find lines and ends that mean something, and the first cause is named before its effects.
//!
//! Uses `state` and the rules of `inventory`. [`Evidence`] is the second fold of the events, beside `RunState`; [`findings`] reads both.
//! Knows no clock and no terminal: what it quotes is still the hosts' text, unsafe to show before `report/sanitize`.

pub mod advice;
mod evidence;
pub mod hang;
mod judge;
mod literal;
mod matcher;

pub use evidence::Evidence;
pub use judge::findings;
pub use matcher::Rules;

use std::collections::BTreeMap;

pub use crate::inventory::rules::{Role, Words};

/// The language of a finding.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Default)]
pub enum Lang {
    /// English.
    #[default]
    En,
    /// Chinese.
    Zh,
}

/// One thing that went wrong.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct Finding {
    /// The rule's stable name.
    pub rule: String,
    /// Whether it is to blame.
    pub role: Role,
    /// The ranks it was seen at, the first first; empty: it is about hosts.
    pub ranks: Vec<u32>,
    /// The hosts it was seen on.
    pub hosts: Vec<u32>,
    /// The lines that say so, as the hosts wrote them.
    pub evidence: Vec<String>,
    /// What its groups matched.
    pub groups: BTreeMap<String, String>,
    /// What happened.
    pub what: Words,
    /// Why that happens; may be empty.
    pub why: Words,
    /// What to do next; may be empty.
    pub next: Words,
    /// Ranks that only felt it.
    pub felt: Vec<u32>,
}

impl Finding {
    /// What happened.
    pub fn what(&self, lang: Lang) -> String {
        self.what.fill(lang == Lang::Zh, &self.groups)
    }

    /// Why that happens; may be empty.
    pub fn why(&self, lang: Lang) -> String {
        self.why.fill(lang == Lang::Zh, &self.groups)
    }

    /// What to do next; may be empty.
    pub fn next(&self, lang: Lang) -> String {
        self.next.fill(lang == Lang::Zh, &self.groups)
    }
}

#[cfg(test)]
mod tests;
