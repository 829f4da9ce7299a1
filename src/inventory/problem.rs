//! What is wrong in an inventory, and the texts it is read from.

use std::fmt;

use crate::text::translation::Lang;

/// The content of a file: its name as given, and its text.
#[derive(Debug, Clone)]
pub struct InventorySource {
    pub name: String,
    pub text: String,
}

/// One thing that is wrong, with its place and what would be right.
#[derive(Debug, Clone, PartialEq, Eq, PartialOrd, Ord)]
pub struct InventoryProblem {
    /// The file's name as given, or `--set`.
    pub file: String,
    /// From 1; 0: the whole file.
    pub line: usize,
    /// From 1; 0: the whole line.
    pub column: usize,
    /// `hosts[2].gpus`; empty: the whole file.
    pub key_path: String,
    /// What is wrong: a lower-case fragment.
    pub message: String,
    /// What would be right; may be empty.
    pub hint: String,
}

/// Whether a value is right; else what is wrong, and what would be right.
pub(super) type Verdict = Result<(), (String, String)>;

/// `Ok` if the value is right, else this message and hint.
pub(super) fn require(is_right: bool, message: impl Into<String>, hint: &str) -> Verdict {
    if is_right { Ok(()) } else { Err((message.into(), hint.to_owned())) }
}

impl InventoryProblem {
    /// As it is shown; the location is the same in every language.
    pub(crate) fn text(&self, lang: Lang) -> String {
        let mut text = self.file.clone();
        if self.line > 0 {
            text += &format!(":{}:{}", self.line, self.column);
        }
        if !self.key_path.is_empty() {
            text += &format!(": {}", self.key_path);
        }
        let (message, lint) = split_lint_name(&self.message);
        text += &format!(": {}{lint}", lang.message(message));
        if !self.hint.is_empty() {
            text += &format!("\n    {}{}", lang.tr("help: "), lang.message(&self.hint));
        }
        text
    }
}

/// A message, and the lint that found it, in brackets.
fn split_lint_name(message: &str) -> (&str, &str) {
    let is_name = |name: &str| name.bytes().all(|b| b.is_ascii_lowercase() || b.is_ascii_digit() || b == b'-');
    let bracket = message.rfind(" [").filter(|at| message[at + 2..].strip_suffix(']').is_some_and(is_name));
    message.split_at(bracket.unwrap_or(message.len()))
}

impl fmt::Display for InventoryProblem {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.write_str(&self.text(Lang::En))
    }
}

pub(super) const NO_HOSTS: &str = "no hosts";

/// A key that is there, misspelled, is one problem: not a missing key too.
pub(super) fn drop_misspelled_as_missing(problems: &mut Vec<InventoryProblem>) {
    let misspelled: Vec<(String, String)> = (problems.iter())
        .filter(|problem| problem.message.starts_with("unknown key "))
        .map(|problem| (problem.key_path.rsplit_once('.').map_or("", |(parent, _)| parent).to_owned(), problem.hint.clone()))
        .collect();
    // The missing one is noted at its mapping, or at its own place in it.
    let is_in =
        |key_path: &str, parent: &str| key_path.strip_prefix(parent).is_some_and(|rest| !rest.trim_start_matches('.').contains(['.', '[']));
    problems.retain(|problem| {
        let no_hosts = Some("`hosts`").filter(|_| problem.message == NO_HOSTS);
        let Some(key) = problem.message.strip_suffix(" is missing").or(no_hosts) else { return true };
        !misspelled.iter().any(|(parent, hint)| hint.contains(key) && is_in(&problem.key_path, parent))
    });
}
