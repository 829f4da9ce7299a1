//! What a host answered to the questions of the checks: lines of `key value`, bounded whatever comes.
//!
//! Uses nothing.

use std::collections::BTreeMap;

use super::probe::Probe;

/// How many lines of one host are kept.
const LINES: usize = 8192;
/// The longest line that is kept, in bytes.
const LONGEST: usize = 2000;

/// The answers of one host.
#[derive(Debug, Clone, Default, PartialEq, Eq)]
pub struct Told {
    lines: BTreeMap<String, Vec<String>>,
    count: usize,
    why: BTreeMap<Probe, String>,
}

impl Told {
    /// Takes the lines of an answer in. Keys that nobody asks for do no harm.
    pub fn add(&mut self, text: &str) {
        for line in text.lines() {
            if self.count >= LINES {
                return;
            }
            let end = (0..=LONGEST.min(line.len())).rev().find(|at| line.is_char_boundary(*at)).unwrap_or(0);
            let (key, value) = line[..end].split_once(' ').unwrap_or((&line[..end], ""));
            self.lines.entry(key.to_owned()).or_default().push(value.trim_end().to_owned());
            self.count += 1;
        }
    }

    /// Takes all that another answer has.
    pub fn merge(&mut self, other: Told) {
        for (key, values) in other.lines {
            self.count += values.len();
            self.lines.entry(key).or_default().extend(values);
        }
        for (probe, why) in other.why {
            self.why.entry(probe).or_insert(why);
        }
    }

    /// Notes why a question has no answer.
    pub fn no_answer(&mut self, probe: Probe, why: impl Into<String>) {
        self.why.entry(probe).or_insert_with(|| why.into());
    }

    /// Whether a question was answered to its end.
    pub fn answered(&self, probe: Probe) -> bool {
        self.all("did").iter().any(|word| word == probe.word())
    }

    /// Why it was not.
    pub fn why_not(&self, probe: Probe) -> String {
        self.why.get(&probe).cloned().unwrap_or_else(|| "the host did not answer this question".to_owned())
    }

    /// The values of a key, in their order.
    pub fn all(&self, key: &str) -> &[String] {
        self.lines.get(key).map_or(&[], Vec::as_slice)
    }

    /// The last value of a key, if it says something.
    pub fn one(&self, key: &str) -> Option<&str> {
        self.all(key).last().map(String::as_str).filter(|value| !value.trim().is_empty())
    }

    /// The last value of a key as a number.
    pub fn number(&self, key: &str) -> Option<u64> {
        self.one(key)?.trim().parse().ok()
    }

    /// The values of a key whose first word is this, without it.
    pub fn of<'a>(&'a self, key: &str, word: &'a str) -> impl Iterator<Item = &'a str> {
        self.all(key).iter().filter_map(move |value| {
            let (first, rest) = value.split_once(' ').unwrap_or((value.as_str(), ""));
            (first == word).then_some(rest)
        })
    }

    /// The rows of the GPU query: the value of each field by its name; `[N/A]` and the like are left out.
    pub fn gpus(&self) -> Vec<BTreeMap<&str, &str>> {
        let fields: Vec<&str> = self.one("gpu_fields").unwrap_or_default().split(',').collect();
        let odd = |value: &str| value.is_empty() || value.starts_with('[') || matches!(value, "N/A" | "ERR!");
        let name = fields.iter().position(|f| *f == "name").unwrap_or(fields.len());
        let mut rows = Vec::new();
        for line in self.all("gpu") {
            let values: Vec<&str> = line.split(',').map(str::trim).collect();
            // A name with a comma in it makes the line longer.
            let Some(spare) = values.len().checked_sub(fields.len()) else { continue };
            let at = |place: usize| values.get(if place > name { place + spare } else { place }).copied();
            rows.push(fields.iter().enumerate().filter_map(|(i, f)| Some((*f, at(i)?))).filter(|(_, v)| !odd(v)).collect());
        }
        rows
    }
}
