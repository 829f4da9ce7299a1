//! Which rule a line means, at the speed of a log stream: one search for the words that rules need, then the patterns of those alone.

use std::collections::BTreeMap;
use std::sync::LazyLock;

use aho_corasick::{AhoCorasick, AhoCorasickKind, MatchKind};
use regex::bytes::{Regex, RegexSet, RegexSetBuilder};

use crate::event::Exit;
use crate::inventory::diagnosis_rules::{self, DiagnosisRule, RuleMatcher};
use crate::inventory::{InventoryProblem, InventorySource};

use super::prefilter;

/// The most bytes of a line that rules see.
pub(super) const MAX_LINE_BYTES: usize = 4 << 10;

/// The program's own table.
const BUILT_IN_RULES_YAML: &str = include_str!("../../assets/diagnosis.yaml");

/// A table of rules, ready to be used.
#[derive(Debug)]
pub struct RuleSet {
    rules: Vec<DiagnosisRule>,
    /// Every pattern with its rule, in order.
    patterns: Vec<(usize, Regex)>,
    literal_search: AhoCorasick,
    /// Which patterns a word is needed by.
    patterns_by_literal: Vec<Vec<usize>>,
    /// Patterns without such words, looked for in every line.
    unfiltered_patterns: Vec<usize>,
    unfiltered_set: RegexSet,
}

static BUILT_IN_RULES: LazyLock<Option<RuleSet>> = LazyLock::new(|| RuleSet::with_user_rules(Vec::new()).ok());

impl RuleSet {
    /// The program's own rules; none only where the table in the program is broken, which a test rules out.
    pub fn built_in() -> Option<&'static RuleSet> {
        BUILT_IN_RULES.as_ref()
    }

    /// A user's rules, tried before the program's own. One with the name of an own rule replaces it.
    ///
    /// # Errors
    /// What keeps the whole from being built.
    pub fn with_user_rules(first: Vec<DiagnosisRule>) -> Result<RuleSet, Vec<InventoryProblem>> {
        let own = diagnosis_rules::read_rules(&InventorySource {
            name: "assets/diagnosis.yaml".to_owned(),
            text: BUILT_IN_RULES_YAML.to_owned(),
        })?;
        let mut all = first;
        for rule in own {
            if all.iter().all(|known| known.id != rule.id) {
                all.push(rule);
            }
        }
        RuleSet::new(all).map_err(|says| {
            let file = "diagnosis".to_owned();
            vec![InventoryProblem {
                file,
                line: 0,
                column: 0,
                key_path: String::new(),
                message: says,
                hint: "leave out the largest patterns".to_owned(),
            }]
        })
    }

    fn new(rules: Vec<DiagnosisRule>) -> Result<RuleSet, String> {
        let mut patterns: Vec<(usize, Regex)> = Vec::new();
        for (at, rule) in rules.iter().enumerate() {
            if let RuleMatcher::Lines(all) = &rule.matcher {
                patterns.extend(all.iter().map(|regex| (at, regex.clone())));
            }
        }
        let mut needed: BTreeMap<Vec<u8>, Vec<usize>> = BTreeMap::new();
        let mut unfiltered_patterns = Vec::new();
        for (at, (_, regex)) in patterns.iter().enumerate() {
            match prefilter::required_literals(regex.as_str()) {
                Some(words) => words.into_iter().for_each(|word| needed.entry(word).or_default().push(at)),
                None => unfiltered_patterns.push(at),
            }
        }
        let (words, patterns_by_literal): (Vec<_>, Vec<_>) = needed.into_iter().unzip();
        let literal_search = AhoCorasick::builder()
            .ascii_case_insensitive(true)
            .match_kind(MatchKind::Standard)
            .kind(Some(AhoCorasickKind::DFA))
            .build(words)
            .map_err(|error| error.to_string())?;
        let texts = unfiltered_patterns.iter().map(|at| patterns[*at].1.as_str());
        let unfiltered_set = RegexSetBuilder::new(texts).unicode(false).build().map_err(|error| error.to_string())?;
        Ok(RuleSet { rules, patterns, literal_search, patterns_by_literal, unfiltered_patterns, unfiltered_set })
    }

    /// All rules, in the order in which they are tried.
    pub fn rules(&self) -> &[DiagnosisRule] {
        &self.rules
    }

    /// Names of the rules that are looked for in every line, since no word must be there for them.
    pub fn unfiltered_rule_ids(&self) -> Vec<&str> {
        self.unfiltered_patterns.iter().map(|at| self.rules[self.patterns[*at].0].id.as_str()).collect()
    }

    /// The first rule that a line means, and what its groups matched.
    pub fn match_line(&self, line: &[u8]) -> Option<(usize, BTreeMap<String, String>)> {
        let line = &line[..line.len().min(MAX_LINE_BYTES)];
        let mut wanted: Vec<usize> = Vec::new();
        for found in self.literal_search.find_overlapping_iter(line) {
            wanted.extend(&self.patterns_by_literal[found.pattern().as_usize()]);
        }
        if !self.unfiltered_patterns.is_empty() {
            wanted.extend(self.unfiltered_set.matches(line).into_iter().map(|at| self.unfiltered_patterns[at]));
        }
        wanted.sort_unstable();
        wanted.dedup();
        wanted.into_iter().find_map(|at| {
            let (rule, regex) = &self.patterns[at];
            // Most words mean nothing: the groups are looked for where the pattern is met.
            if !regex.is_match(line) {
                return None;
            }
            let found = regex.captures(line)?;
            let group =
                |name: &str| found.name(name).map_or_else(String::new, |text| String::from_utf8_lossy(text.as_bytes()).into_owned());
            Some((*rule, self.group_names(*rule).map(|name| (name.to_owned(), group(name))).collect()))
        })
    }

    /// The names of all groups of a rule: its texts may name one that this pattern has not.
    fn group_names(&self, rule: usize) -> impl Iterator<Item = &str> {
        let from = self.patterns.partition_point(|(of, _)| *of < rule);
        let own = self.patterns[from..].iter().take_while(move |(of, _)| *of == rule);
        own.flat_map(|(_, regex)| regex.capture_names().flatten())
    }

    /// The lines of a text that may mean something, as `(where it begins, where it ends)`: all of them where a rule needs no word.
    pub(super) fn for_each_candidate_line(&self, text: &[u8], mut line: impl FnMut(usize, usize)) {
        let end = |from: usize| memchr::memchr2(b'\n', b'\r', &text[from..]).map_or(text.len(), |at| from + at);
        if !self.unfiltered_patterns.is_empty() {
            let mut from = 0;
            while from < text.len() {
                let to = end(from);
                if to > from {
                    line(from, to);
                }
                from = to + 1;
            }
            return;
        }
        let mut from = 0;
        while let Some(found) = self.literal_search.find(&text[from..]) {
            let at = from + found.start();
            let begin = memchr::memrchr2(b'\n', b'\r', &text[..at]).map_or(0, |before| before + 1);
            let to = end(at);
            line(begin, to);
            from = (to + 1).min(text.len());
        }
    }

    /// The first rule that knows this end of a process.
    pub(super) fn match_exit(&self, exit: Exit) -> Option<usize> {
        self.rules.iter().position(|rule| match &rule.matcher {
            RuleMatcher::Exits { codes, signals } => match exit {
                Exit::Code(code) => codes.contains(&code),
                Exit::Signal(signal) => signals.contains(&signal),
                Exit::Killed => signals.contains(&9),
            },
            RuleMatcher::Lines(_) | RuleMatcher::RankComparison => false,
        })
    }

    /// A rule by its name.
    pub(super) fn find_rule(&self, id: &str) -> Option<usize> {
        self.rules.iter().position(|rule| rule.id == id)
    }
}
