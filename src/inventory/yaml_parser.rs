//! The only user of the YAML crates here: text becomes a [`YamlNode`] tree in which every value knows its line and column.
//!
//! `saphyr-parser` walks the text and says where everything stands; `serde_yaml` says what a plain word means (a number, a truth value, text).
//! Knows nothing of the inventory's keys. Bounded: text, depth and the number of values after aliases were filled in.

use std::collections::HashMap;

use saphyr_parser::{Event, Parser, ScalarStyle, Span, StrInput, Tag};
use serde::de::DeserializeOwned;

use super::InventoryProblem;
use super::yaml_tree::{SourceLocation, YamlEntry, YamlKind, YamlNode, YamlPath};

/// The longest text that is read.
pub(super) const TEXT_LIMIT: usize = 1 << 20;
pub(super) const DEPTH_LIMIT: usize = 64;
/// The most values, each alias counted as often as it is used.
pub(super) const NODE_LIMIT: usize = 50_000;

/// Reads one document: what could be read of it, and everything that is wrong with it.
pub(super) fn parse_document(file: &str, text: &str) -> (Option<YamlNode>, Vec<InventoryProblem>) {
    let whole = SourceLocation::whole_file(file);
    if text.len() > TEXT_LIMIT {
        let message = format!("{} bytes, but an inventory may have at most {TEXT_LIMIT}", text.len());
        return (None, vec![whole.problem(message, "is this the right file?")]);
    }
    let text = text.strip_prefix('\u{feff}').unwrap_or(text);
    let mut walk =
        DocumentParser { parser: Parser::new_from_str(text), anchors: HashMap::new(), node_count: 0, depth: 0, problems: Vec::new() };
    match walk.parse_root(&whole) {
        Ok(node) => (Some(node), walk.problems),
        Err(stop) => {
            walk.problems.push(*stop);
            (None, walk.problems)
        }
    }
}

/// Reads a single word's meaning by YAML's rules.
pub(super) fn parse_plain_scalar<T: DeserializeOwned>(text: &str) -> Option<T> {
    // A word that could begin a structure is text for certain; the parser need not see it.
    let word = text.bytes().all(|b| b.is_ascii_alphanumeric() || b".+-_".contains(&b)) && !text.starts_with("---") && text.len() <= 64;
    if !word {
        return None;
    }
    serde_yaml::from_str(text).ok()
}

type ParseFailure = Box<InventoryProblem>;

struct DocumentParser<'a> {
    parser: Parser<'a, StrInput<'a>>,
    anchors: HashMap<usize, YamlNode>,
    node_count: usize,
    /// Levels of values that are being read; merge keys open a level that no path shows.
    depth: usize,
    problems: Vec<InventoryProblem>,
}

impl<'a> DocumentParser<'a> {
    fn next_event(&mut self, path: &YamlPath) -> Result<(Event<'a>, Span), ParseFailure> {
        match self.parser.next_event() {
            Some(Ok(next)) => Ok(next),
            Some(Err(error)) => {
                let at = SourceLocation { line: error.marker().line(), column: error.marker().col() + 1, path: path.clone() };
                Err(Box::new(at.problem(format!("not YAML: {}", error.info()), syntax_hint(error.info()))))
            }
            None => Err(Box::new(SourceLocation { line: 0, column: 0, path: path.clone() }.problem("the text ends unexpectedly", ""))),
        }
    }

    fn parse_root(&mut self, whole: &SourceLocation) -> Result<YamlNode, ParseFailure> {
        let path = &whole.path;
        let empty = || Box::new(whole.problem("the file is empty", "the smallest inventory has `name`, `hosts` and `launch`"));
        loop {
            match self.next_event(path)? {
                (Event::StreamStart | Event::DocumentStart(_) | Event::Nothing, _) => {}
                (Event::StreamEnd | Event::DocumentEnd, _) => return Err(empty()),
                (event, span) => {
                    let node = self.parse_node(event, span, path)?;
                    self.expect_document_end(path)?;
                    return if node.is_null() { Err(empty()) } else { Ok(node) };
                }
            }
        }
    }

    fn expect_document_end(&mut self, path: &YamlPath) -> Result<(), ParseFailure> {
        loop {
            match self.next_event(path)? {
                (Event::StreamEnd, _) => return Ok(()),
                (Event::DocumentEnd | Event::Nothing, _) => {}
                (_, span) => {
                    let hint = "put further documents into separate files";
                    return Err(Box::new(location(span, path).problem("a second document begins here", hint)));
                }
            }
        }
    }

    fn count_node(&mut self, at: &SourceLocation) -> Result<(), ParseFailure> {
        self.node_count += 1;
        if self.node_count > NODE_LIMIT {
            let message = format!("more than {NODE_LIMIT} values, aliases counted as often as they are used");
            return Err(Box::new(at.problem(message, "write fewer values, or use fewer nested aliases")));
        }
        if self.depth.max(at.path.depth()) > DEPTH_LIMIT {
            return Err(Box::new(at.problem(format!("nested deeper than {DEPTH_LIMIT} levels"), "")));
        }
        Ok(())
    }

    fn parse_node(&mut self, event: Event<'a>, span: Span, path: &YamlPath) -> Result<YamlNode, ParseFailure> {
        let at = location(span, path);
        self.depth += 1;
        self.count_node(&at)?;
        let (node, anchor) = match event {
            Event::Scalar(text, style, anchor, tag) => {
                let known = self.check_tag(tag.as_deref(), &["str", "int", "float", "bool", "null"], &at);
                let plain = known && tag.map_or(style == ScalarStyle::Plain, |tag| tag.suffix != "str");
                self.reject_nul(&text, &at);
                (YamlNode::scalar(at, text, plain), anchor)
            }
            Event::SequenceStart(anchor, tag) => {
                self.check_tag(tag.as_deref(), &["seq"], &at);
                (YamlNode { kind: self.parse_list(path)?, location: at }, anchor)
            }
            Event::MappingStart(anchor, tag) => {
                self.check_tag(tag.as_deref(), &["map"], &at);
                (YamlNode { kind: self.parse_mapping(path)?, location: at }, anchor)
            }
            Event::Alias(id) => (self.resolve_alias(id, &at)?, 0),
            Event::Nothing
            | Event::StreamStart
            | Event::StreamEnd
            | Event::DocumentStart(_)
            | Event::DocumentEnd
            | Event::SequenceEnd
            | Event::MappingEnd => return Err(Box::new(at.problem("not YAML: a value was expected", ""))),
        };
        if anchor > 0 {
            self.anchors.insert(anchor, node.clone());
        }
        self.depth -= 1;
        Ok(node)
    }

    fn parse_list(&mut self, path: &YamlPath) -> Result<YamlKind, ParseFailure> {
        let mut items = Vec::new();
        loop {
            let here = path.child_index(items.len());
            match self.next_event(&here)? {
                (Event::SequenceEnd, _) => return Ok(YamlKind::List(items)),
                (event, span) => items.push(self.parse_node(event, span, &here)?),
            }
        }
    }

    fn parse_mapping(&mut self, path: &YamlPath) -> Result<YamlKind, ParseFailure> {
        let mut entries: Vec<YamlEntry> = Vec::new();
        let mut seen: HashMap<String, usize> = HashMap::new();
        let mut merged = Vec::new();
        loop {
            let (event, span) = self.next_event(path)?;
            if event == Event::MappingEnd {
                break;
            }
            let (key, is_merge) = self.parse_key(event, span, path)?;
            let here = if is_merge { path.clone() } else { path.child_key(&key) };
            let at = location(span, &here);
            let (event, span) = self.next_event(&here)?;
            let value = self.parse_node(event, span, &here)?;
            if is_merge {
                merged.push(value);
                continue;
            }
            if let Some(first) = seen.get(&key).and_then(|index| entries.get(*index)) {
                let first = format!("{}:{}", first.location.line, first.location.column);
                self.problems.push(at.problem(format!("duplicate key, first defined at {first}"), "keep one of them"));
                continue;
            }
            if !key.is_empty() {
                seen.insert(key.clone(), entries.len());
                entries.push(YamlEntry { key, location: at, value });
            }
        }
        for value in merged {
            self.apply_merge_key(value, &mut entries, &mut seen);
        }
        Ok(YamlKind::Map(entries))
    }

    /// Fills in what `<<` points to; keys that are written out win.
    fn apply_merge_key(&mut self, value: YamlNode, entries: &mut Vec<YamlEntry>, seen: &mut HashMap<String, usize>) {
        let sources = match value.kind {
            YamlKind::List(items) => items,
            YamlKind::Map(_) | YamlKind::Scalar { .. } | YamlKind::Unknown(_) => vec![value],
        };
        for source in sources {
            let YamlKind::Map(from) = source.kind else {
                self.problems
                    .push(source.location.problem("`<<` needs a mapping or a list of mappings", "point it at an anchor: `<<: *common`"));
                continue;
            };
            for entry in from {
                if !seen.contains_key(&entry.key) {
                    seen.insert(entry.key.clone(), entries.len());
                    entries.push(entry);
                }
            }
        }
    }

    fn parse_key(&mut self, event: Event<'a>, span: Span, path: &YamlPath) -> Result<(String, bool), ParseFailure> {
        let at = location(span, path);
        self.count_node(&at)?;
        match event {
            Event::Scalar(text, style, anchor, _) => {
                self.reject_nul(&text, &at);
                if anchor > 0 {
                    self.anchors.insert(anchor, YamlNode::scalar(at.clone(), text.as_ref(), style == ScalarStyle::Plain));
                }
                if text.is_empty() {
                    self.problems.push(at.problem("a key is missing before the `:`", ""));
                }
                Ok((text.to_string(), text == "<<" && style == ScalarStyle::Plain))
            }
            Event::Alias(id) => match self.anchors.get(&id).map(|node| &node.kind) {
                Some(YamlKind::Scalar { text, .. }) => Ok((text.clone(), false)),
                _ => Err(Box::new(at.problem("a key must be a single word", ""))),
            },
            _ => Err(Box::new(at.problem("a key must be a single word", "text that begins with `{` or `[` needs quotes"))),
        }
    }

    fn resolve_alias(&mut self, id: usize, at: &SourceLocation) -> Result<YamlNode, ParseFailure> {
        let Some(node) = self.anchors.get(&id).cloned() else {
            return Err(Box::new(at.problem("the alias is inside the value that it refers to", "")));
        };
        self.copy_under_path(&node, &at.path)
    }

    /// A copy of an anchored value under its new path; its lines stay those where it is written.
    fn copy_under_path(&mut self, node: &YamlNode, path: &YamlPath) -> Result<YamlNode, ParseFailure> {
        let at = SourceLocation { path: path.clone(), ..node.location.clone() };
        self.count_node(&at)?;
        let kind = match &node.kind {
            YamlKind::List(items) => YamlKind::List(
                items.iter().enumerate().map(|(i, item)| self.copy_under_path(item, &path.child_index(i))).collect::<Result<_, _>>()?,
            ),
            YamlKind::Map(entries) => {
                let mut copies = Vec::with_capacity(entries.len());
                for entry in entries {
                    let here = path.child_key(&entry.key);
                    let value = self.copy_under_path(&entry.value, &here)?;
                    copies.push(YamlEntry::new(&entry.key, SourceLocation { path: here, ..entry.location.clone() }, value));
                }
                YamlKind::Map(copies)
            }
            YamlKind::Scalar { .. } | YamlKind::Unknown(_) => node.kind.clone(),
        };
        Ok(YamlNode { location: at, kind })
    }

    /// Whether a value has no tag, or one of YAML's own that fit it.
    fn check_tag(&mut self, tag: Option<&Tag>, fitting: &[&str], at: &SourceLocation) -> bool {
        let Some(tag) = tag.filter(|tag| !tag.is_yaml_core_schema() || !fitting.contains(&tag.suffix.as_str())) else { return true };
        let name = if tag.is_yaml_core_schema() { format!("!!{}", tag.suffix) } else { tag.to_string() };
        self.problems.push(at.problem(format!("unknown tag `{name}`"), "remove it"));
        false
    }

    fn reject_nul(&mut self, text: &str, at: &SourceLocation) {
        if text.contains('\0') {
            self.problems.push(at.problem("a NUL character cannot be passed to a process", "remove it"));
        }
    }
}

fn location(span: Span, path: &YamlPath) -> SourceLocation {
    SourceLocation { line: span.start.line(), column: span.start.col() + 1, path: path.clone() }
}

fn syntax_hint(info: &str) -> &'static str {
    if info.contains('\t') || info.contains("tab") {
        "indent with spaces"
    } else if info.contains("mapping values") || info.contains("simple key") {
        "check the indentation, and quote text that contains `: `"
    } else if info.contains("block mapping") || info.contains("block collection") {
        "indent the keys of a block equally"
    } else if info.contains("illegal placement") || info.contains("flow") || info.contains("quote") {
        "check above for an unclosed [, { or quote"
    } else {
        ""
    }
}

/// Writes a value as YAML, for tests that read it back.
#[cfg(test)]
pub(super) fn write_yaml(value: &serde_json::Value) -> String {
    serde_yaml::to_string(value).expect("plain values can be written")
}
