//! The tree that a file becomes: every value with its location, so that a later error can show it.

use std::fmt;
use std::sync::Arc;

use super::InventoryProblem;
use crate::text::width::shorten_to_chars;

/// Longest part of a key that a path shows.
const MAX_KEY_CHARS: usize = 60;

/// Longest way that is shown whole.
const MAX_PATH_SEGMENTS: usize = 12;

/// The way from a file to a value: `hosts[2].gpus`. Shared between values, so that it costs little however deep it goes.
#[derive(Clone)]
pub(super) struct YamlPath(Arc<PathSegment>);

struct PathSegment {
    parent: Option<YamlPath>,
    label: SegmentLabel,
}

enum SegmentLabel {
    File(String),
    Key(String),
    Index(usize),
}

impl YamlPath {
    pub(super) fn from_file(name: &str) -> Self {
        YamlPath(Arc::new(PathSegment { parent: None, label: SegmentLabel::File(name.to_owned()) }))
    }

    pub(super) fn child_key(&self, key: &str) -> Self {
        YamlPath(Arc::new(PathSegment { parent: Some(self.clone()), label: SegmentLabel::Key(key.chars().take(MAX_KEY_CHARS).collect()) }))
    }

    pub(super) fn child_index(&self, index: usize) -> Self {
        YamlPath(Arc::new(PathSegment { parent: Some(self.clone()), label: SegmentLabel::Index(index) }))
    }

    pub(super) fn depth(&self) -> usize {
        self.segments().len()
    }

    fn segments(&self) -> Vec<&PathSegment> {
        let mut steps = Vec::new();
        let mut at = Some(self);
        while let Some(YamlPath(step)) = at {
            steps.push(step.as_ref());
            at = step.parent.as_ref();
        }
        steps.reverse();
        steps
    }

    fn file_name(&self) -> String {
        match self.segments().first().map(|step| &step.label) {
            Some(SegmentLabel::File(name)) => name.clone(),
            _ => String::new(),
        }
    }
}

impl fmt::Display for YamlPath {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        let mut first = true;
        let steps = self.segments();
        let cut = if steps.len() > MAX_PATH_SEGMENTS { MAX_PATH_SEGMENTS / 2..steps.len() - MAX_PATH_SEGMENTS / 2 } else { 0..0 };
        for (at, step) in steps.into_iter().enumerate() {
            if cut.contains(&at) {
                if at == cut.start {
                    f.write_str("…")?;
                }
                continue;
            }
            match &step.label {
                SegmentLabel::File(_) => continue,
                SegmentLabel::Key(key) if first => f.write_str(key)?,
                SegmentLabel::Key(key) => write!(f, ".{key}")?,
                SegmentLabel::Index(index) => write!(f, "[{index}]")?,
            }
            first = false;
        }
        Ok(())
    }
}

impl fmt::Debug for YamlPath {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        write!(f, "{self}")
    }
}

/// Where a value stands.
#[derive(Debug, Clone)]
pub(super) struct SourceLocation {
    pub(super) line: usize,
    pub(super) column: usize,
    pub(super) path: YamlPath,
}

impl SourceLocation {
    /// A whole file, or something outside of any file.
    pub(super) fn whole_file(file: &str) -> Self {
        SourceLocation { line: 0, column: 0, path: YamlPath::from_file(file) }
    }

    pub(super) fn problem(&self, message: impl Into<String>, hint: impl Into<String>) -> InventoryProblem {
        InventoryProblem {
            file: self.path.file_name(),
            line: self.line,
            column: self.column,
            key_path: self.path.to_string(),
            message: message.into(),
            hint: hint.into(),
        }
    }

    /// The location of something inside this value, which has no line of its own.
    pub(super) fn child(&self, key: &str) -> Self {
        SourceLocation { path: self.path.child_key(key), ..self.clone() }
    }
}

impl fmt::Display for SourceLocation {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.write_str(&self.path.file_name())?;
        if self.line > 0 { write!(f, ":{}:{}", self.line, self.column) } else { Ok(()) }
    }
}

#[derive(Debug, Clone)]
pub(super) struct YamlNode {
    pub(super) location: SourceLocation,
    pub(super) kind: YamlKind,
}

/// What a value is.
#[derive(Debug, Clone)]
pub(super) enum YamlKind {
    /// A single word; `plain`: it stood without quotes, so that it may be a number, a truth value or nothing.
    Scalar {
        text: String,
        plain: bool,
    },
    /// Not known yet; the text stands for it wherever it is shown. Without a text: wrong, and reported already.
    Unknown(String),
    List(Vec<YamlNode>),
    Map(Vec<YamlEntry>),
}

/// One key of a mapping with its value.
#[derive(Debug, Clone)]
pub(super) struct YamlEntry {
    pub(super) key: String,
    /// Where the key stands.
    pub(super) location: SourceLocation,
    pub(super) value: YamlNode,
}

impl YamlEntry {
    pub(super) fn new(key: &str, location: SourceLocation, value: YamlNode) -> Self {
        YamlEntry { key: key.to_owned(), location, value }
    }
}

impl YamlNode {
    pub(super) fn scalar(location: SourceLocation, text: impl Into<String>, plain: bool) -> Self {
        YamlNode { location, kind: YamlKind::Scalar { text: text.into(), plain } }
    }

    pub(super) fn map(location: SourceLocation, entries: Vec<YamlEntry>) -> Self {
        YamlNode { location, kind: YamlKind::Map(entries) }
    }

    /// The entries of a mapping; none of anything else.
    pub(super) fn entries(&self) -> &[YamlEntry] {
        match &self.kind {
            YamlKind::Map(entries) => entries,
            YamlKind::Scalar { .. } | YamlKind::Unknown(_) | YamlKind::List(_) => &[],
        }
    }

    pub(super) fn items(&self) -> &[YamlNode] {
        match &self.kind {
            YamlKind::List(items) => items,
            YamlKind::Scalar { .. } | YamlKind::Unknown(_) | YamlKind::Map(_) => &[],
        }
    }

    /// The value of a key; a key whose value is nothing counts as absent.
    pub(super) fn get(&self, key: &str) -> Option<&YamlNode> {
        self.entries().iter().find(|entry| entry.key == key).map(|entry| &entry.value).filter(|node| !node.is_null())
    }

    /// The value at the end of several keys.
    pub(super) fn get_path(&self, keys: &[&str]) -> Option<&YamlNode> {
        keys.iter().try_fold(self, |node, key| node.get(key))
    }

    /// The value of a key, if it is a mapping.
    pub(super) fn get_map(&self, key: &str) -> Option<&YamlNode> {
        self.get(key).filter(|node| matches!(node.kind, YamlKind::Map(_)))
    }

    /// The text of a single word.
    pub(super) fn as_text(&self) -> Option<&str> {
        if let YamlKind::Scalar { text, .. } = &self.kind { Some(text) } else { None }
    }

    /// The items of a list, or the value alone.
    pub(super) fn items_or_self(&self) -> &[YamlNode] {
        if let YamlKind::List(items) = &self.kind { items } else { std::slice::from_ref(self) }
    }

    pub(super) fn is_null(&self) -> bool {
        matches!(&self.kind, YamlKind::Scalar { text, plain: true } if matches!(text.as_str(), "" | "~" | "null" | "Null" | "NULL"))
    }

    pub(super) fn is_unknown(&self) -> bool {
        matches!(self.kind, YamlKind::Unknown(_))
    }

    /// What it is, for a message.
    pub(super) fn describe(&self) -> String {
        match &self.kind {
            YamlKind::Scalar { .. } if self.is_null() => "nothing".to_owned(),
            YamlKind::Scalar { text, .. } => format!("`{}`", shorten(text)),
            YamlKind::Unknown(text) => text.clone(),
            YamlKind::List(_) => "a list".to_owned(),
            YamlKind::Map(_) => "a mapping".to_owned(),
        }
    }

    /// Lays `over` over this value: mappings key by key, anything else as a whole.
    pub(super) fn merge(self, over: YamlNode) -> YamlNode {
        match (self.kind, over.kind) {
            (YamlKind::Map(mut base), YamlKind::Map(entries)) => {
                for entry in entries {
                    match base.iter().position(|known| known.key == entry.key) {
                        Some(at) => {
                            let known = base.remove(at);
                            base.insert(at, YamlEntry { value: known.value.merge(entry.value), ..entry });
                        }
                        None => base.push(entry),
                    }
                }
                YamlNode { location: self.location, kind: YamlKind::Map(base) }
            }
            (_, kind) => YamlNode { location: over.location, kind },
        }
    }
}

/// Cuts a text that would fill a message.
pub(super) fn shorten(text: &str) -> String {
    shorten_to_chars(text, MAX_KEY_CHARS)
}
