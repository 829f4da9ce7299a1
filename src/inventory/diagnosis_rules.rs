//! A table of rules that explain log lines and ends: the program's own in `assets/diagnosis.yaml`, and a user's beside it.
//!
//! Every pattern is compiled once here, so that an invalid one is reported with its place; `diagnose` interprets the matches.

use regex::bytes::{Regex, RegexBuilder};

use super::errors::InventoryErrors;
use super::localized_template::LocalizedTemplate;
use super::schema::KeySchema;
use super::yaml_tree::{YamlKind, YamlNode};
use super::{Inventory, InventoryProblem, InventorySource, yaml_parser};

/// The role of a match in a failure: cause or effect.
#[derive(Debug, Clone, Copy, PartialEq, Eq, PartialOrd, Ord)]
pub enum Blame {
    /// This is what went wrong.
    Cause,
    /// Another rank is missing, and this one waited in vain.
    PeerTimeout,
    /// Another rank failed, and this is a consequence.
    Effect,
    /// A cause if nothing better is known; often printed by programs that continue.
    PossibleCause,
    /// Nothing: it looks like trouble and is none.
    Harmless,
}

/// What a rule looks at.
#[derive(Debug, Clone)]
pub enum RuleMatcher {
    /// Lines of logs and of errors.
    Lines(Vec<Regex>),
    /// How a process ended by itself.
    Exits { codes: Vec<i32>, signals: Vec<i32> },
    /// Nothing: it is found by comparing ranks, and the table has its words only.
    RankComparison,
}

#[derive(Debug, Clone)]
pub struct DiagnosisRule {
    pub id: String,
    /// Whether a match is a cause or an effect.
    pub blame: Blame,
    /// What it looks at.
    pub matcher: RuleMatcher,
    pub summary: LocalizedTemplate,
    pub explanation: LocalizedTemplate,
    /// What to do next: a command where there is one.
    pub next_step: LocalizedTemplate,
    /// Lines that it must match.
    pub examples: Vec<String>,
}

/// `diagnosis`: a user's rules.
#[derive(Debug, Clone)]
pub enum DiagnosisRuleSource {
    /// In a file of the laptop, relative to the inventory's folder.
    File(String),
    Inline(Vec<DiagnosisRule>),
}

const RULE_SCHEMA: KeySchema = KeySchema::new("", "id,role,re,exit,signal,found,what,why,next,eg,src");
const LOCALIZED_SCHEMA: KeySchema = KeySchema::new("", "en,zh");

/// How large a compiled pattern may be, bytes.
const MAX_PATTERN_BYTES: usize = 1 << 20;
/// How many rules a table may have.
const MAX_RULES: usize = 2_000;

/// Reads a table: a list of rules, in the order in which they are tried.
///
/// # Errors
/// Everything that is wrong with it, each with its place.
pub fn read_rules(source: &InventorySource) -> Result<Vec<DiagnosisRule>, Vec<InventoryProblem>> {
    let (node, problems) = yaml_parser::parse_document(&source.name, &source.text);
    let mut errors = InventoryErrors { problems };
    let rules = node.map(|node| parse_rules(&node, &mut errors));
    errors.into_result(rules)
}

/// The value of `diagnosis`.
pub(super) fn parse_diagnosis_rule_source(tree: &YamlNode, errors: &mut InventoryErrors) -> Option<DiagnosisRuleSource> {
    let node = tree.get("diagnosis")?;
    match &node.kind {
        YamlKind::Scalar { text, .. } if !text.trim().is_empty() => Some(DiagnosisRuleSource::File(text.clone())),
        YamlKind::List(_) => Some(DiagnosisRuleSource::Inline(parse_rules(node, errors))),
        _ => {
            errors.report(
                &node.location,
                format!("expected rules, found {}", node.describe()),
                "write a file name, or a list of rules: - id: …",
            );
            None
        }
    }
}

impl Inventory {
    /// The user's rules, or where they stand.
    ///
    /// # Errors
    /// All problems of the rules in the inventory.
    pub fn diagnosis_rule_source(&self) -> Result<Option<DiagnosisRuleSource>, Vec<InventoryProblem>> {
        let mut errors = InventoryErrors::default();
        let found = parse_diagnosis_rule_source(&self.merged.tree, &mut errors);
        errors.into_result(Some(found))
    }
}

/// The rules of a list in a file.
fn parse_rules(node: &YamlNode, errors: &mut InventoryErrors) -> Vec<DiagnosisRule> {
    let YamlKind::List(items) = &node.kind else {
        errors.report(&node.location, format!("expected a list of rules, found {}", node.describe()), "begin each rule with `- id: …`");
        return Vec::new();
    };
    if items.len() > MAX_RULES {
        errors.report(&node.location, format!("{} rules", items.len()), format!("at most {MAX_RULES} rules are allowed"));
    }
    let mut rules: Vec<DiagnosisRule> = Vec::new();
    for item in items.iter().take(MAX_RULES) {
        let Some(rule) = parse_rule(item, errors) else { continue };
        if rules.iter().any(|known| known.id == rule.id) {
            errors.report(&item.location, format!("duplicate rule `{}`", rule.id), "give each rule a unique id");
        }
        rules.push(rule);
    }
    rules
}

fn parse_rule(node: &YamlNode, errors: &mut InventoryErrors) -> Option<DiagnosisRule> {
    if !errors.check_keys(node, &RULE_SCHEMA) {
        return None;
    }
    let id = parse_text(node.get("id"), errors).unwrap_or_default();
    if id.is_empty() || !id.bytes().all(|b| b.is_ascii_lowercase() || b.is_ascii_digit() || b == b'-') {
        let location = node.get("id").map_or(&node.location, |id| &id.location);
        errors.report(location, "a rule needs an id of a-z, 0-9 and -", "for example id: dataset-missing");
    }
    let role = node.get("role").map_or(Some(Blame::Cause), |node| match parse_text(Some(node), errors).as_deref() {
        Some("cause") => Some(Blame::Cause),
        Some("wait") => Some(Blame::PeerTimeout),
        Some("effect") => Some(Blame::Effect),
        Some("hint") => Some(Blame::PossibleCause),
        Some("harmless") => Some(Blame::Harmless),
        _ => {
            errors.report(&node.location, format!("{} is not a role", node.describe()), "use cause, wait, effect, hint or harmless");
            None
        }
    });
    let looks = parse_matcher(node, errors);
    let what = parse_localized(node, "what", errors);
    if what.is_none() && role.is_some_and(|role| role != Blame::Harmless) {
        errors.report(&node.location, "the rule has no summary", "add what: <one line>");
    }
    let (why, next) = (parse_localized(node, "why", errors), parse_localized(node, "next", errors));
    let examples = parse_texts(node.get("eg"), errors).into_iter().map(|(text, _)| text).collect();
    Some(DiagnosisRule {
        id,
        blame: role?,
        matcher: looks?,
        summary: what.unwrap_or_default(),
        explanation: why.unwrap_or_default(),
        next_step: next.unwrap_or_default(),
        examples,
    })
}

fn parse_matcher(node: &YamlNode, errors: &mut InventoryErrors) -> Option<RuleMatcher> {
    if node.get("found").is_some() {
        return Some(RuleMatcher::RankComparison);
    }
    let patterns = parse_texts(node.get("re"), errors);
    let numbers = |key: &str, errors: &mut InventoryErrors| -> Vec<i32> {
        let mut numbers = Vec::new();
        for (text, at) in parse_texts(node.get(key), errors) {
            match text.parse() {
                Ok(number) => numbers.push(number),
                Err(_) => errors.report(&at.location, format!("{} is not a number", at.describe()), "for example 137"),
            }
        }
        numbers
    };
    let (codes, signals) = (numbers("exit", errors), numbers("signal", errors));
    match (patterns.is_empty(), codes.is_empty() && signals.is_empty()) {
        (true, true) => {
            errors.report(
                &node.location,
                "the rule has no condition",
                "add re: <a regular expression>, exit: <a code> or signal: <a number>",
            );
            None
        }
        (false, false) => {
            errors.report(&node.location, "the rule matches both lines and exits", "split it into two rules");
            None
        }
        (true, false) => Some(RuleMatcher::Exits { codes, signals }),
        (false, true) => {
            let before = errors.problems.len();
            let compiled: Vec<Regex> =
                patterns.iter().filter_map(|(text, at)| errors.accept(&at.location, compile_pattern(text))).collect();
            (errors.problems.len() == before).then_some(RuleMatcher::Lines(compiled))
        }
    }
}

/// Compiles a pattern for bytes, with ASCII classes: Unicode's word boundaries would leave the fast engines.
///
/// # Errors
/// What is wrong with it, and what would be right.
pub fn compile_pattern(text: &str) -> Result<Regex, (String, String)> {
    let regex = RegexBuilder::new(text).unicode(false).size_limit(MAX_PATTERN_BYTES).dfa_size_limit(MAX_PATTERN_BYTES).build();
    let regex = regex.map_err(|error| {
        let message = error.to_string();
        let last = message.lines().rev().find_map(|line| line.strip_prefix("error: ")).unwrap_or(&message).to_owned();
        let hint = match &error {
            regex::Error::CompiledTooBig(_) => "use smaller repetitions",
            _ if last.contains("Unicode not allowed") => "character classes are ASCII only: write (甲|乙) instead of [甲乙]",
            _ => "the syntax is https://docs.rs/regex#syntax: look-around and back-references are not supported",
        };
        (last, hint.to_owned())
    })?;
    if regex.is_match(b"") {
        return Err(("the pattern matches an empty line, and so every line".to_owned(), "add a word that must occur".to_owned()));
    }
    let wide = regex_syntax::ParserBuilder::new().unicode(false).utf8(false).build().parse(text);
    if wide.is_ok_and(|hir| hir.properties().look_set().contains_word_unicode()) {
        return Err(("a Unicode word boundary is a thousand times slower".to_owned(), "remove (?u)".to_owned()));
    }
    Ok(regex)
}

/// A value that is one text.
fn parse_text(node: Option<&YamlNode>, errors: &mut InventoryErrors) -> Option<String> {
    let node = node?;
    let text = node.as_text();
    if text.is_none() {
        errors.report(&node.location, format!("expected text, found {}", node.describe()), "write it on one line");
    }
    text.map(str::to_owned)
}

/// A value that is one text or several.
fn parse_texts<'a>(node: Option<&'a YamlNode>, errors: &mut InventoryErrors) -> Vec<(String, &'a YamlNode)> {
    let Some(node) = node else { return Vec::new() };
    node.items_or_self().iter().filter_map(|node| parse_text(Some(node), errors).map(|text| (text, node))).collect()
}

/// A text in one language or both; one alone serves for both.
fn parse_localized(node: &YamlNode, key: &str, errors: &mut InventoryErrors) -> Option<LocalizedTemplate> {
    let node = node.get(key)?;
    if let YamlKind::Map(_) = node.kind {
        errors.check_keys(node, &LOCALIZED_SCHEMA);
        let (en, zh) = (parse_text(node.get("en"), errors), parse_text(node.get("zh"), errors));
        let en = en.or_else(|| zh.clone())?;
        return Some(LocalizedTemplate { zh: zh.unwrap_or_else(|| en.clone()), en });
    }
    parse_text(Some(node), errors).map(|text| LocalizedTemplate { en: text.clone(), zh: text })
}

#[cfg(test)]
#[path = "diagnosis_rules_tests.rs"]
mod tests;
