//! The tree that a file becomes: every value with its place, so that whatever is found wrong later can be shown where it stands.
//!
//! Uses [`Problem`]. Knows nothing of YAML's syntax and nothing of what the keys mean.

use std::fmt;
use std::sync::Arc;

use super::Problem;

/// Longest part of a key that a path shows.
const SHOWN: usize = 60;

/// Longest way that is shown whole.
const SHOWN_STEPS: usize = 12;

/// The way from a file to a value: `hosts[2].gpus`. Shared between values, so that it costs little however deep it goes.
#[derive(Clone)]
pub(super) struct Path(Arc<Step>);

struct Step {
    up: Option<Path>,
    label: Label,
}

enum Label {
    File(String),
    Key(String),
    Index(usize),
}

impl Path {
    pub(super) fn file(name: &str) -> Self {
        Path(Arc::new(Step { up: None, label: Label::File(name.to_owned()) }))
    }

    pub(super) fn key(&self, key: &str) -> Self {
        Path(Arc::new(Step { up: Some(self.clone()), label: Label::Key(key.chars().take(SHOWN).collect()) }))
    }

    pub(super) fn index(&self, index: usize) -> Self {
        Path(Arc::new(Step { up: Some(self.clone()), label: Label::Index(index) }))
    }

    pub(super) fn depth(&self) -> usize {
        self.steps().len()
    }

    fn steps(&self) -> Vec<&Step> {
        let mut steps = Vec::new();
        let mut at = Some(self);
        while let Some(Path(step)) = at {
            steps.push(step.as_ref());
            at = step.up.as_ref();
        }
        steps.reverse();
        steps
    }

    fn file_name(&self) -> String {
        match self.steps().first().map(|step| &step.label) {
            Some(Label::File(name)) => name.clone(),
            _ => String::new(),
        }
    }
}

impl fmt::Display for Path {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        let mut first = true;
        let steps = self.steps();
        let cut = if steps.len() > SHOWN_STEPS { SHOWN_STEPS / 2..steps.len() - SHOWN_STEPS / 2 } else { 0..0 };
        for (at, step) in steps.into_iter().enumerate() {
            if cut.contains(&at) {
                if at == cut.start {
                    f.write_str("…")?;
                }
                continue;
            }
            match &step.label {
                Label::File(_) => continue,
                Label::Key(key) if first => f.write_str(key)?,
                Label::Key(key) => write!(f, ".{key}")?,
                Label::Index(index) => write!(f, "[{index}]")?,
            }
            first = false;
        }
        Ok(())
    }
}

impl fmt::Debug for Path {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        write!(f, "{self}")
    }
}

/// Where a value stands.
#[derive(Debug, Clone)]
pub(super) struct Place {
    pub(super) line: usize,
    pub(super) column: usize,
    pub(super) path: Path,
}

impl Place {
    /// A whole file, or something that stands in none.
    pub(super) fn whole(file: &str) -> Self {
        Place { line: 0, column: 0, path: Path::file(file) }
    }

    pub(super) fn problem(&self, says: impl Into<String>, hint: impl Into<String>) -> Problem {
        Problem {
            file: self.path.file_name(),
            line: self.line,
            column: self.column,
            path: self.path.to_string(),
            says: says.into(),
            hint: hint.into(),
        }
    }

    /// The place of something inside the value that stands here, which has no line of its own.
    pub(super) fn inside(&self, key: &str) -> Self {
        Place { path: self.path.key(key), ..self.clone() }
    }
}

impl fmt::Display for Place {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.write_str(&self.path.file_name())?;
        if self.line > 0 { write!(f, ":{}:{}", self.line, self.column) } else { Ok(()) }
    }
}

/// One value.
#[derive(Debug, Clone)]
pub(super) struct Node {
    pub(super) place: Place,
    pub(super) kind: Kind,
}

/// What a value is.
#[derive(Debug, Clone)]
pub(super) enum Kind {
    /// A single word; `plain`: it stood without quotes, so that it may be a number, a truth value or nothing.
    Scalar {
        text: String,
        plain: bool,
    },
    /// Not known yet; the text stands for it wherever it is shown.
    Unknown(String),
    List(Vec<Node>),
    Map(Vec<Entry>),
}

/// One key of a mapping with its value.
#[derive(Debug, Clone)]
pub(super) struct Entry {
    pub(super) key: String,
    /// Where the key stands.
    pub(super) place: Place,
    pub(super) value: Node,
}

impl Node {
    pub(super) fn scalar(place: Place, text: impl Into<String>, plain: bool) -> Self {
        Node { place, kind: Kind::Scalar { text: text.into(), plain } }
    }

    pub(super) fn map(place: Place, entries: Vec<Entry>) -> Self {
        Node { place, kind: Kind::Map(entries) }
    }

    /// The entries of a mapping; none of anything else.
    pub(super) fn entries(&self) -> &[Entry] {
        match &self.kind {
            Kind::Map(entries) => entries,
            Kind::Scalar { .. } | Kind::Unknown(_) | Kind::List(_) => &[],
        }
    }

    pub(super) fn items(&self) -> &[Node] {
        match &self.kind {
            Kind::List(items) => items,
            Kind::Scalar { .. } | Kind::Unknown(_) | Kind::Map(_) => &[],
        }
    }

    /// The value of a key; a key whose value is nothing counts as absent.
    pub(super) fn get(&self, key: &str) -> Option<&Node> {
        self.entries().iter().find(|entry| entry.key == key).map(|entry| &entry.value).filter(|node| !node.is_null())
    }

    /// The value at the end of several keys.
    pub(super) fn find(&self, keys: &[&str]) -> Option<&Node> {
        keys.iter().try_fold(self, |node, key| node.get(key))
    }

    pub(super) fn is_null(&self) -> bool {
        matches!(&self.kind, Kind::Scalar { text, plain: true } if matches!(text.as_str(), "" | "~" | "null" | "Null" | "NULL"))
    }

    pub(super) fn is_unknown(&self) -> bool {
        matches!(self.kind, Kind::Unknown(_))
    }

    /// What it is, for a message.
    pub(super) fn what(&self) -> String {
        match &self.kind {
            Kind::Scalar { .. } if self.is_null() => "nothing".to_owned(),
            Kind::Scalar { text, .. } => format!("`{}`", shorten(text)),
            Kind::Unknown(text) => text.clone(),
            Kind::List(_) => "a list".to_owned(),
            Kind::Map(_) => "a mapping".to_owned(),
        }
    }

    pub(super) fn problem(&self, says: impl Into<String>, hint: impl Into<String>) -> Problem {
        self.place.problem(says, hint)
    }

    /// Lays `over` over this value: mappings key by key, anything else as a whole.
    pub(super) fn merge(self, over: Node) -> Node {
        match (self.kind, over.kind) {
            (Kind::Map(mut base), Kind::Map(entries)) => {
                for entry in entries {
                    match base.iter().position(|known| known.key == entry.key) {
                        Some(at) => {
                            let known = base.remove(at);
                            base.insert(at, Entry { value: known.value.merge(entry.value), ..entry });
                        }
                        None => base.push(entry),
                    }
                }
                Node { place: self.place, kind: Kind::Map(base) }
            }
            (_, kind) => Node { place: over.place, kind },
        }
    }
}

/// Cuts a text that would fill a message.
pub(super) fn shorten(text: &str) -> String {
    if text.chars().count() <= SHOWN { text.to_owned() } else { format!("{}…", text.chars().take(SHOWN).collect::<String>()) }
}
