//! Templates: `{{ … }}` in a value becomes what it says, once, for the whole run. Nothing else in a text is special.
//!
//! Values are minijinja expressions over the names of the evaluator.

use std::collections::BTreeMap;

use minijinja::value::ValueKind;
use minijinja::{Environment, Error, ErrorKind, UndefinedBehavior, Value};

use super::yaml_parser;
use super::yaml_tree::{SourceLocation, YamlEntry, YamlKind, YamlNode};
use crate::text::shell_template;

pub(super) const EXPRESSION_LIMIT: usize = 2000;
/// The longest text and the most values that one template may become.
const TEXT_LIMIT: usize = 1 << 20;
const ITEM_LIMIT: usize = 10_000;

/// What an expression comes to.
#[derive(Debug, Clone)]
pub(super) enum TemplateValue {
    Known(Value),
    /// Something in it is not known yet; the text is its placeholder.
    Unknown(String),
    /// It is wrong, and that was reported.
    Invalid,
}

/// A part of a text.
#[derive(Debug, Clone, PartialEq, Eq)]
pub(super) enum TemplatePiece {
    Text(String),
    /// The text between the braces.
    Expression(String),
}

/// An environment for expressions, with strict names and bounded loops.
pub(super) fn new_environment() -> Environment<'static> {
    let mut environment = Environment::new();
    environment.set_undefined_behavior(UndefinedBehavior::Strict);
    environment.set_fuel(Some(100_000));
    environment.set_recursion_limit(50);
    environment.add_filter("join", join_filter);
    environment.add_filter("replace", replace_filter);
    // These make texts of any length from a small number.
    for filter in ["indent", "format", "pprint"] {
        environment.remove_filter(filter);
    }
    environment.remove_global("debug");
    environment.remove_global("lipsum");
    environment
}

fn too_long_error() -> Error {
    Error::new(ErrorKind::InvalidOperation, format!("its result exceeds {TEXT_LIMIT} bytes"))
}

/// `list | join(",")`, bounded.
fn join_filter(items: Vec<Value>, between: Option<String>) -> Result<String, Error> {
    let between = between.unwrap_or_default();
    let mut joined = String::new();
    for (index, item) in items.iter().enumerate() {
        if index > 0 {
            joined.push_str(&between);
        }
        joined.push_str(&value_to_text(item).map_err(|why| Error::new(ErrorKind::InvalidOperation, why))?);
        if joined.len() > TEXT_LIMIT {
            return Err(too_long_error());
        }
    }
    Ok(joined)
}

/// `text | replace("a", "b")`, bounded.
fn replace_filter(text: &str, from: &str, to: &str) -> Result<String, Error> {
    if text.matches(from).count().saturating_mul(to.len()).saturating_add(text.len()) > TEXT_LIMIT {
        return Err(too_long_error());
    }
    Ok(text.replace(from, to))
}

/// Cuts a text at its expressions; `None`: it has none. The error says what is missing.
pub(super) fn split_pieces(text: &str) -> Result<Option<Vec<TemplatePiece>>, &'static str> {
    if !text.contains("{{") {
        return Ok(None);
    }
    let mut pieces = Vec::new();
    let mut rest = text;
    while let Some((before, tail)) = rest.split_once("{{") {
        let Some(end) = find_expression_end(tail) else { return Err("`{{` without its `}}`") };
        if !before.is_empty() {
            pieces.push(TemplatePiece::Text(before.to_owned()));
        }
        pieces.push(TemplatePiece::Expression(tail.get(..end).unwrap_or_default().trim().to_owned()));
        rest = tail.get(end + 2..).unwrap_or_default();
    }
    if !rest.is_empty() {
        pieces.push(TemplatePiece::Text(rest.to_owned()));
    }
    Ok(Some(pieces))
}

/// The position of the `}}` that ends an expression: outside its quotes and its own braces.
fn find_expression_end(text: &str) -> Option<usize> {
    let mut quote = None;
    let mut depth = 0_usize;
    let mut escaped = false;
    let bytes = text.as_bytes();
    for (at, byte) in bytes.iter().enumerate() {
        match (quote, byte) {
            (Some(_), _) if escaped => escaped = false,
            (Some(_), b'\\') => escaped = true,
            (Some(open), byte) if open == *byte => quote = None,
            (Some(_), _) => {}
            (None, b'\'' | b'"') => quote = Some(*byte),
            (None, b'{') => depth += 1,
            (None, b'}') if depth > 0 => depth -= 1,
            (None, b'}') if bytes.get(at + 1) == Some(&b'}') => return Some(at),
            (None, _) => {}
        }
    }
    None
}

/// A value of a tree as an expression sees it.
pub(super) fn node_to_value(node: &YamlNode) -> Result<Value, String> {
    Ok(match &node.kind {
        YamlKind::Unknown(text) => return Err(text.clone()),
        YamlKind::Scalar { .. } if node.is_null() => Value::from(()),
        YamlKind::Scalar { text, plain: true } => scalar_to_value(text),
        YamlKind::Scalar { text, plain: false } => Value::from(text.as_str()),
        YamlKind::List(items) => Value::from(items.iter().map(node_to_value).collect::<Result<Vec<_>, _>>()?),
        YamlKind::Map(entries) => Value::from(
            entries
                .iter()
                .map(|entry| Ok((entry.key.clone(), node_to_value(&entry.value)?)))
                .collect::<Result<BTreeMap<_, _>, String>>()?,
        ),
    })
}

fn scalar_to_value(text: &str) -> Value {
    if let Some(truth) = yaml_parser::parse_plain_scalar::<bool>(text) {
        Value::from(truth)
    } else if let Some(number) = yaml_parser::parse_plain_scalar::<i64>(text) {
        Value::from(number)
    } else if let Some(number) = yaml_parser::parse_plain_scalar::<f64>(text) {
        Value::from(number)
    } else {
        Value::from(text)
    }
}

/// What an expression gave, as a value of the tree at the template's place.
pub(super) fn value_to_node(value: &Value, location: &SourceLocation) -> Result<YamlNode, String> {
    let mut budget = ITEM_LIMIT;
    build_node(value, location, &mut budget)
}

fn build_node(value: &Value, location: &SourceLocation, budget: &mut usize) -> Result<YamlNode, String> {
    *budget = budget.checked_sub(1).ok_or_else(|| format!("its result exceeds {ITEM_LIMIT} values"))?;
    Ok(match value.kind() {
        ValueKind::None => YamlNode::scalar(location.clone(), "", true),
        ValueKind::Bool | ValueKind::Number => YamlNode::scalar(location.clone(), value_to_text(value)?, true),
        ValueKind::String => YamlNode::scalar(location.clone(), value_to_text(value)?, false),
        ValueKind::Seq | ValueKind::Iterable => {
            let mut items = Vec::new();
            for item in value.try_iter().map_err(|error| describe_error(&error))? {
                items.push(build_node(&item, location, budget)?);
            }
            YamlNode { location: location.clone(), kind: YamlKind::List(items) }
        }
        ValueKind::Map => {
            let mut entries = Vec::new();
            for key in value.try_iter().map_err(|error| describe_error(&error))? {
                let inner = value.get_item(&key).map_err(|error| describe_error(&error))?;
                entries.push(YamlEntry { key: key.to_string(), location: location.clone(), value: build_node(&inner, location, budget)? });
            }
            YamlNode::map(location.clone(), entries)
        }
        other => return Err(format!("its result is {other}, which has no text form")),
    })
}

/// What an expression gave, as a part of a text.
pub(super) fn value_to_text(value: &Value) -> Result<String, String> {
    let text = match value.kind() {
        // As YAML writes them, not as Python does.
        ValueKind::Bool => if value.is_true() { "true" } else { "false" }.to_owned(),
        ValueKind::Number | ValueKind::String => value.to_string(),
        ValueKind::None => return Err("its result is none, not text".to_owned()),
        ValueKind::Undefined => return Err("it is not defined".to_owned()),
        other => return Err(format!("its result is a {other} inside a text")),
    };
    if text.len() > TEXT_LIMIT {
        return Err(format!("its result exceeds {TEXT_LIMIT} bytes"));
    }
    if shell_template::has_foreign_nul(&text) {
        return Err("its result contains a NUL character, which cannot be passed to a process".to_owned());
    }
    Ok(text)
}

/// minijinja's word for what went wrong, without its own place.
pub(super) fn describe_error(error: &minijinja::Error) -> String {
    error.detail().map_or_else(|| error.kind().to_string(), str::to_owned)
}

#[cfg(test)]
mod tests {
    use super::*;

    fn cut_pieces(text: &str) -> Vec<TemplatePiece> {
        split_pieces(text).unwrap().unwrap_or_default()
    }

    #[test]
    fn text_splits_at_expressions() {
        let e = |text: &str| TemplatePiece::Expression(text.to_owned());
        let t = |text: &str| TemplatePiece::Text(text.to_owned());
        assert_eq!(cut_pieces("{% if %}{# no #}${HOME}"), vec![]);
        assert_eq!(cut_pieces("a{{ b }}c"), vec![t("a"), e("b"), t("c")]);
        assert_eq!(cut_pieces("{{ '{{' }}x}}"), vec![e("'{{'"), t("x}}")]);
        assert_eq!(cut_pieces("{{ {'a': {'b': 1}}['a'] }}"), vec![e("{'a': {'b': 1}}['a']")]);
        assert_eq!(cut_pieces("{{ '}}' }}{{ \"\\\"}}\" }}"), vec![e("'}}'"), e("\"\\\"}}\"")]);
        for bad in ["{{", "{{ a }", "x {{ '}}'", "{{ {'a': 1}}"] {
            assert!(split_pieces(bad).is_err(), "{bad}");
        }
    }
}
