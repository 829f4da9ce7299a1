//! A host's answer to the checks' probes: lines of `key value`, of bounded size.

use std::collections::BTreeMap;

use super::connection::{ConnectionAttempt, ConnectionTarget};
use super::probe::Probe;
use crate::model::tcp_reachability::TcpReachability;
use crate::plan::protocol::nvidia_smi::split_fields;
use crate::text::width::first_bytes;

/// How many lines of one host are kept.
const MAX_LINES: usize = 8192;
/// The longest line that is kept, in bytes.
const MAX_LINE_BYTES: usize = 2000;

/// The answers of one host.
#[derive(Debug, Clone, Default, PartialEq, Eq)]
pub(crate) struct ProbeOutput {
    values_by_key: BTreeMap<String, Vec<String>>,
    line_count: usize,
    missing_reasons: BTreeMap<Probe, String>,
    connections: Vec<ConnectionAttempt>,
}

impl ProbeOutput {
    /// Adds the lines of an answer. Unknown keys do no harm.
    pub(crate) fn push_text(&mut self, text: &str) {
        for line in text.lines() {
            if self.line_count >= MAX_LINES {
                return;
            }
            let line = first_bytes(line, MAX_LINE_BYTES);
            let (key, value) = line.split_once(' ').unwrap_or((line, ""));
            self.line_count += 1;
            match key {
                "way" => self.connections.extend(ConnectionAttempt::parse(value.trim_end())),
                _ => self.values_by_key.entry(key.to_owned()).or_default().push(value.trim_end().to_owned()),
            }
        }
    }

    /// Takes in what came of a connection; a reason is the host's text, and as bounded as a line.
    pub(crate) fn push_connection(&mut self, mut attempt: ConnectionAttempt) {
        if self.line_count >= MAX_LINES {
            return;
        }
        if let TcpReachability::Blocked(why) | TcpReachability::Unknown(why) = &mut attempt.found {
            let line = why.lines().next().unwrap_or_default();
            *why = first_bytes(line, MAX_LINE_BYTES).trim_end().to_owned();
        }
        self.line_count += 1;
        self.connections.push(attempt);
    }

    /// What came of the first connection to there; `None`: not tried.
    pub(crate) fn connection(&self, target: ConnectionTarget) -> Option<&ConnectionAttempt> {
        self.connections.iter().find(|attempt| attempt.target == target)
    }

    /// Takes all that another answer has.
    pub(crate) fn merge(&mut self, other: ProbeOutput) {
        for (key, values) in other.values_by_key {
            self.line_count += values.len();
            self.values_by_key.entry(key).or_default().extend(values);
        }
        for (probe, why) in other.missing_reasons {
            self.missing_reasons.entry(probe).or_insert(why);
        }
        self.line_count += other.connections.len();
        self.connections.extend(other.connections);
    }

    /// Notes why a question has no answer.
    pub(crate) fn set_missing_reason(&mut self, probe: Probe, reason: impl Into<String>) {
        self.missing_reasons.entry(probe).or_insert_with(|| reason.into());
    }

    /// Whether a question was answered to its end.
    pub(crate) fn is_complete(&self, probe: Probe) -> bool {
        self.values("did").iter().any(|word| word == probe.as_str())
    }

    /// Why it was not, where that is known.
    pub(crate) fn known_missing_reason(&self, probe: Probe) -> Option<&str> {
        self.missing_reasons.get(&probe).map(String::as_str)
    }

    /// Why it was not.
    pub(crate) fn missing_reason(&self, probe: Probe) -> String {
        self.known_missing_reason(probe).unwrap_or("the probe returned no answer").to_owned()
    }

    /// The values of a key, in their order.
    pub(crate) fn values(&self, key: &str) -> &[String] {
        self.values_by_key.get(key).map_or(&[], Vec::as_slice)
    }

    /// The last value of a key, if it says something.
    pub(crate) fn last_value(&self, key: &str) -> Option<&str> {
        self.values(key).last().map(String::as_str).filter(|value| !value.trim().is_empty())
    }

    /// The last value of a key as a number.
    pub(crate) fn last_number(&self, key: &str) -> Option<u64> {
        self.last_value(key)?.trim().parse().ok()
    }

    /// The values of a key whose first word is this, without it.
    pub(crate) fn values_starting_with<'a>(&'a self, key: &str, word: &'a str) -> impl Iterator<Item = &'a str> {
        self.values(key).iter().filter_map(move |value| {
            let (first, rest) = value.split_once(' ').unwrap_or((value.as_str(), ""));
            (first == word).then_some(rest)
        })
    }

    /// The rows of the GPU query: the value of each field by its name; `[N/A]` and the like are left out.
    pub(crate) fn gpu_rows(&self) -> Vec<BTreeMap<&str, &str>> {
        let fields: Vec<&str> = self.last_value("gpu_fields").unwrap_or_default().split(',').collect();
        let odd = |value: &str| value.is_empty() || value.starts_with('[') || matches!(value, "N/A" | "ERR!");
        let lines = self.values("gpu").iter().filter_map(|line| split_fields(&fields, line));
        lines.map(|values| fields.iter().copied().zip(values).filter(|(_, value)| !odd(value)).collect()).collect()
    }
}
