//! The inventory's own metrics: names, and patterns whose one group is the value in a log line.
//!
//! Built-in metrics are in `state`; a pattern for one of their names replaces the built-in one.

use std::collections::BTreeMap;

use super::errors::InventoryErrors;
use super::problem::Verdict;
use super::yaml_tree::{YamlKind, YamlNode, shorten};

/// The most that may be named; the fold of the logs has room for as many.
const MAX_METRICS: usize = 16;

/// Reads and checks `metrics`.
pub(super) fn parse_metrics(node: &YamlNode, errors: &mut InventoryErrors) -> BTreeMap<String, String> {
    if !matches!(node.kind, YamlKind::Map(_)) {
        errors.report(
            &node.location,
            format!("expected a mapping, found {}", node.describe()),
            "for example { reward: 'reward[ =:]+([0-9.eE+-]+)' }",
        );
        return BTreeMap::new();
    }
    let mut found = BTreeMap::new();
    for entry in node.entries() {
        let named =
            entry.key.len() <= 20 && entry.key.bytes().all(|b| b.is_ascii_alphanumeric() || b"_/.-".contains(&b)) && !entry.key.is_empty();
        if !named {
            errors.report(
                &entry.location,
                format!("`{}` is not a metric name", shorten(&entry.key)),
                "use letters, digits and _ / . -, at most 20",
            );
            continue;
        }
        if let Some(pattern) = errors.validated_text(&entry.value, validate_metric_pattern) {
            found.insert(entry.key.clone(), pattern);
        }
    }
    if found.len() > MAX_METRICS {
        errors.report(&node.location, format!("{} metrics", found.len()), format!("at most {MAX_METRICS} are allowed"));
    }
    found
}

fn validate_metric_pattern(text: &str) -> Verdict {
    let example = "like 'reward[ =:]+([0-9.eE+-]+)'";
    let built = regex::bytes::RegexBuilder::new(text).unicode(false).size_limit(1 << 20).build();
    let regex = built.map_err(|error| {
        let message = error.to_string();
        let why = message.lines().last().unwrap_or_default().trim_start_matches("error: ");
        (format!("not a regular expression: {why}"), format!("write it {example}; \\( matches a literal parenthesis"))
    })?;
    match regex.captures_len() {
        2 => Ok(()),
        1 => Err(("the pattern has no capture group for the value".to_owned(), format!("put parentheses around the number, {example}"))),
        n => Err((format!("the pattern has {} capture groups", n - 1), "keep one, for the number; use (?:…) for the others".to_owned())),
    }
}
