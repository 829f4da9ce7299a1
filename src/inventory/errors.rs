//! Reads values of the types that keys have, and notes everything that is wrong on the way instead of stopping.

use std::collections::BTreeMap;
use std::time::Duration;

use super::problem::{InventoryProblem, Verdict, drop_misspelled_as_missing};
use super::schema::{KeySchema, nearest_word, suggest};
use super::yaml_parser;
use super::yaml_tree::{SourceLocation, YamlKind, YamlNode, shorten};
use crate::text::shell_quote;

/// Collects what is wrong.
#[derive(Debug, Default)]
pub(super) struct InventoryErrors {
    pub(super) problems: Vec<InventoryProblem>,
}

impl InventoryErrors {
    pub(super) fn report(&mut self, location: &SourceLocation, message: impl Into<String>, hint: impl Into<String>) {
        self.problems.push(location.problem(message, hint));
    }

    /// The value; if there is none, reports what is wrong.
    pub(super) fn accept<T>(&mut self, location: &SourceLocation, found: Result<T, (String, String)>) -> Option<T> {
        found.map_err(|(message, hint)| self.report(location, message, hint)).ok()
    }

    /// All problems in the order of the files, or the value.
    pub(super) fn into_result<T>(mut self, value: Option<T>) -> Result<T, Vec<InventoryProblem>> {
        drop_misspelled_as_missing(&mut self.problems);
        self.problems.sort();
        self.problems.dedup();
        match value {
            Some(value) if self.problems.is_empty() => Ok(value),
            _ => Err(self.problems),
        }
    }

    /// Whether `node` is a mapping; its keys are compared with the known ones.
    pub(super) fn check_keys(&mut self, node: &YamlNode, block: &KeySchema) -> bool {
        let YamlKind::Map(entries) = &node.kind else {
            if !node.is_unknown() {
                let hint = format!("the keys are {}", block.keys().collect::<Vec<_>>().join(", "));
                self.report(&node.location, format!("expected a mapping, found {}", node.describe()), hint);
            }
            return false;
        };
        for entry in entries {
            if block.planned().any(|key| key == entry.key) {
                self.report(&entry.location, "not supported yet", "remove it: this version does not support it");
            } else if !block.keys().any(|key| key == entry.key) {
                let hint = unknown_key_hint(&entry.key, block);
                self.report(&entry.location, format!("unknown key `{}`", shorten(&entry.key)), hint);
            }
        }
        true
    }

    /// A single word as text. Numbers and truth values are taken as they are written.
    pub(super) fn read_text(&mut self, node: &YamlNode) -> Option<String> {
        match &node.kind {
            YamlKind::Scalar { .. } if node.is_null() => {
                self.report(&node.location, "expected text, found nothing", "write '' for an empty text");
                None
            }
            YamlKind::Scalar { text, .. } | YamlKind::Unknown(text) => Some(text.clone()),
            YamlKind::List(_) | YamlKind::Map(_) => {
                self.report(&node.location, format!("expected text, found {}", node.describe()), "put quotes around it if it is text");
                None
            }
        }
    }

    /// A text that passes `valid`; a value that is not known yet passes.
    pub(super) fn validated_text(&mut self, node: &YamlNode, valid: impl Fn(&str) -> Verdict) -> Option<String> {
        let text = self.read_text(node)?;
        if !node.is_unknown() {
            self.accept(&node.location, valid(&text))?;
        }
        Some(text)
    }

    /// A whole number between two bounds; `None` also where it is not known yet.
    pub(super) fn read_number(&mut self, node: &YamlNode, min: u32, max: u32) -> Option<u32> {
        if node.is_unknown() {
            return None;
        }
        let number = match &node.kind {
            YamlKind::Scalar { text, plain: true } => yaml_parser::parse_plain_scalar::<i64>(text),
            YamlKind::Scalar { .. } | YamlKind::Unknown(_) | YamlKind::List(_) | YamlKind::Map(_) => None,
        };
        let Some(number) = number else {
            let hint = match &node.kind {
                YamlKind::Scalar { text, plain: false } if text.parse::<i64>().is_ok() => "remove the quotes".to_owned(),
                YamlKind::Scalar { text, plain: true } if text.parse::<f64>().is_ok() => {
                    "write it without a fraction; in a template use `//` for integer division".to_owned()
                }
                _ => format!("write a number from {min} to {max}"),
            };
            self.report(&node.location, format!("expected a whole number, found {}", node.describe()), hint);
            return None;
        };
        match u32::try_from(number) {
            Ok(number) if (min..=max).contains(&number) => Some(number),
            _ => {
                self.report(&node.location, format!("{number} is out of range"), format!("write a number from {min} to {max}"));
                None
            }
        }
    }

    pub(super) fn read_port(&mut self, node: &YamlNode) -> Option<u16> {
        self.read_number(node, 1, u32::from(u16::MAX)).and_then(|port| u16::try_from(port).ok())
    }

    pub(super) fn read_bool(&mut self, node: &YamlNode) -> Option<bool> {
        let truth = match &node.kind {
            YamlKind::Scalar { text, plain: true } => yaml_parser::parse_plain_scalar::<bool>(text),
            YamlKind::Scalar { .. } | YamlKind::Unknown(_) | YamlKind::List(_) | YamlKind::Map(_) => None,
        };
        if truth.is_none() && !node.is_unknown() {
            self.report(&node.location, format!("expected true or false, found {}", node.describe()), "write true or false");
        }
        truth
    }

    /// One of several words. A misspelt one is reported, and read as the word that was probably meant: what else is wrong is then true of it.
    pub(super) fn read_choice<T: Copy>(&mut self, node: &YamlNode, words: &[(&str, T)]) -> Option<T> {
        if node.is_unknown() {
            return None;
        }
        let text = self.read_text(node)?;
        let value_of = |text: &str| words.iter().find(|(word, _)| *word == text).map(|(_, value)| *value);
        if let Some(value) = value_of(&text) {
            return Some(value);
        }
        let all = words.iter().map(|(word, _)| *word).collect::<Vec<_>>();
        let nearest = nearest_word(&text, all.iter().copied());
        let hint = match nearest {
            Some(near) => format!("did you mean `{near}`? possible values: {}", all.join(", ")),
            None => format!("possible values: {}", all.join(", ")),
        };
        self.report(&node.location, format!("unknown value {}", node.describe()), hint);
        nearest.and_then(value_of)
    }

    /// One of several words, or what its absence means.
    pub(super) fn choose<T: Copy>(&mut self, node: Option<&YamlNode>, words: &[(&str, T)], default: T) -> T {
        node.and_then(|node| self.read_choice(node, words)).unwrap_or(default)
    }

    pub(super) fn read_duration(&mut self, node: &YamlNode) -> Option<Duration> {
        if node.is_unknown() {
            return None;
        }
        let text = self.read_text(node)?;
        let duration = parse_duration(&text);
        if duration.is_none() {
            let hint = if !text.is_empty() && text.bytes().all(|b| b.is_ascii_digit()) {
                format!("write a unit, for example {text}s")
            } else {
                "for example 500ms, 30s, 5m or 1h30m".to_owned()
            };
            self.report(&node.location, format!("{} is not a duration", node.describe()), hint);
        }
        duration
    }

    /// A list of texts, or a single one.
    pub(super) fn read_text_list(&mut self, node: &YamlNode) -> Vec<String> {
        node.items_or_self().iter().filter_map(|item| self.read_text(item)).collect()
    }

    /// A list; anything else is wrong.
    pub(super) fn read_list<'a>(&mut self, node: &'a YamlNode, hint: &str) -> &'a [YamlNode] {
        if !matches!(node.kind, YamlKind::List(_) | YamlKind::Unknown(_)) {
            self.report(&node.location, format!("expected a list, found {}", node.describe()), hint);
        }
        node.items()
    }

    /// Variables for the ranks.
    pub(super) fn read_env(&mut self, node: &YamlNode) -> BTreeMap<String, String> {
        let mut env = BTreeMap::new();
        let YamlKind::Map(entries) = &node.kind else {
            if !node.is_unknown() {
                self.report(&node.location, format!("expected variables, found {}", node.describe()), "for example { NCCL_DEBUG: INFO }");
            }
            return env;
        };
        for entry in entries {
            if let Err((message, hint)) = validate_variable_name(&entry.key) {
                self.report(&entry.location, message, hint);
            }
            if let Some(value) = self.read_text(&entry.value) {
                env.insert(entry.key.clone(), value);
            }
        }
        env
    }
}

/// Whether the user may set this variable; else what is wrong and what would be right.
pub(super) fn validate_variable_name(name: &str) -> Verdict {
    const RESERVED_VARIABLES: [&str; 15] = [
        "RANK",
        "WORLD_SIZE",
        "LOCAL_RANK",
        "LOCAL_WORLD_SIZE",
        "NODE_RANK",
        "GROUP_RANK",
        "GROUP_WORLD_SIZE",
        "ROLE_RANK",
        "ROLE_WORLD_SIZE",
        "ROLE_NAME",
        "NNODES",
        "NPROC_PER_NODE",
        "GPUS_PER_NODE",
        "MASTER_ADDR",
        "MASTER_PORT",
    ];
    if !shell_quote::is_variable_name(name) {
        let message = format!("`{}` is not a variable name", shorten(name));
        return Err((message, "use letters, digits and _, not beginning with a digit".to_owned()));
    }
    // Wrappers on the hosts name their own variables orch_.
    let reserved_prefix = ["TORCHELASTIC_", "ORCH_", "PET_", "orch_"].iter().any(|prefix| name.starts_with(prefix));
    if RESERVED_VARIABLES.contains(&name) || reserved_prefix {
        let hint = match name {
            "MASTER_PORT" => "set launch.master_port",
            "MASTER_ADDR" => "set master, and fabric_address of that host",
            "NPROC_PER_NODE" | "GPUS_PER_NODE" => "set launch.nproc_per_node",
            _ if name.starts_with("orch_") => "rename it: names that begin with orch_ are for orchestrate's own scripts",
            _ => "remove it: every rank gets the right value",
        };
        let message = if name.starts_with("orch_") {
            format!("`{name}` is a reserved name")
        } else {
            format!("orchestrate sets `{name}` for each rank")
        };
        return Err((message, hint.to_owned()));
    }
    Ok(())
}

/// Whether a path of a host begins at its root or in the ssh user's home.
pub(super) fn is_absolute_or_home(path: &str) -> bool {
    path.starts_with('/') || path == "~" || path.starts_with("~/")
}

/// `500ms`, `30s`, `5m`, `1h30m`.
fn parse_duration(text: &str) -> Option<Duration> {
    let mut rest = text;
    let mut total = Duration::ZERO;
    let mut last = u64::MAX;
    while !rest.is_empty() {
        let digits = rest.bytes().take_while(u8::is_ascii_digit).count();
        let (number, tail) = rest.split_at_checked(digits)?;
        let letters = tail.bytes().take_while(u8::is_ascii_alphabetic).count();
        let (unit, tail) = tail.split_at_checked(letters)?;
        let unit: u64 = match unit {
            "ms" => 1,
            "s" => 1_000,
            "m" => 60_000,
            "h" => 3_600_000,
            "d" => 86_400_000,
            _ => return None,
        };
        if unit >= last {
            return None;
        }
        last = unit;
        total = total.checked_add(Duration::from_millis(number.parse::<u64>().ok()?.checked_mul(unit)?))?;
        rest = tail;
    }
    (last != u64::MAX && total <= Duration::from_secs(366 * 86_400)).then_some(total)
}

fn unknown_key_hint(key: &str, block: &KeySchema) -> String {
    const KEY_ALIASES: [(&str, &str); 14] = [
        ("volumes", "mounts"),
        ("environment", "env"),
        ("nproc", "nproc_per_node"),
        ("launcher", "with"),
        ("hostname", "name"),
        ("ip", "address"),
        ("identity_file", "identity"),
        ("proxy_jump", "jump"),
        ("bastion", "jump"),
        ("working_dir", "workdir"),
        ("shm", "shm_size"),
        ("variables", "vars"),
        ("nodes", "hosts"),
        ("timeout", "connect_timeout"),
    ];
    let known = |word: &str| block.keys().any(|key| key == word);
    let lower = key.to_lowercase();
    if let Some((_, word)) = KEY_ALIASES.iter().find(|(other, word)| *other == lower && known(word)) {
        return format!("did you mean `{word}`?");
    }
    let keys = block.keys().collect::<Vec<_>>().join(", ");
    let otherwise =
        if block.path.is_empty() { format!("the keys here are {keys}") } else { format!("the keys of {} are {keys}", block.path) };
    suggest(key, block.keys().chain(block.planned()), &otherwise)
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn durations_need_units() {
        for (text, ms) in [("500ms", 500), ("10s", 10_000), ("5m", 300_000), ("1h30m", 5_400_000), ("0s", 0), ("1m30s", 90_000)] {
            assert_eq!(parse_duration(text), Some(Duration::from_millis(ms)), "{text}");
        }
        for text in ["", "5", "s", "5 s", "-5s", "5s5s", "30m1h", "1.5h", "5min", "99999999999999999999s", "9999999d", "５s"] {
            assert_eq!(parse_duration(text), None, "{text}");
        }
    }

    #[test]
    fn reserved_variables_are_rejected() {
        for name in ["RANK", "MASTER_ADDR", "TORCHELASTIC_RUN_ID", "ORCH_RUN_ID", "orch_env", "1A", "A-B", "", "A=B", "Ä"] {
            assert!(validate_variable_name(name).is_err(), "{name}");
        }
        for name in ["NCCL_DEBUG", "_a", "RANKS", "ORCHESTRA"] {
            assert!(validate_variable_name(name).is_ok(), "{name}");
        }
    }
}
