//! Go's templates, over JSON, as far as docker's `--format` needs them here: fields, `json`, `index`, `range`, `println`.
//!
//! Pure. Knows nothing of docker; the caller brings the values and, for `ps`, a lookup for `.Label "k"`.

use super::go_template_parser::{TemplateNode, TemplateWord, parse_block, tokenize};
use serde_json::Value;

#[derive(Debug, Clone, PartialEq)]
pub(super) struct GoTemplate(Vec<TemplateNode>);

/// Names in scope: `.` is the first.
type TemplateScope = Vec<(String, Value)>;

impl GoTemplate {
    /// Reads a template; docker turns `\t` and `\n` written as two characters into the real ones.
    pub(super) fn parse(text: &str) -> Result<Self, String> {
        let text = text.replace("\\t", "\t").replace("\\n", "\n");
        let mut parts = tokenize(&text)?.into_iter();
        let (nodes, end) = parse_block(&mut parts)?;
        match end {
            None => Ok(GoTemplate(nodes)),
            Some(word) => Err(format!("unexpected {{{{{word}}}}}")),
        }
    }

    pub(super) fn render(&self, value: &Value) -> Result<String, String> {
        let mut scope = vec![(".".to_owned(), value.clone()), ("$".to_owned(), value.clone())];
        let mut out = String::new();
        render_nodes(&self.0, &mut scope, &mut out)?;
        Ok(out)
    }
}

fn render_nodes(nodes: &[TemplateNode], scope: &mut TemplateScope, out: &mut String) -> Result<(), String> {
    for node in nodes {
        match node {
            TemplateNode::Text(text) => out.push_str(text),
            TemplateNode::Print(words) => out.push_str(&format_value(&evaluate(words, scope)?)),
            TemplateNode::Range { key, value, over, body } => {
                for (index, item) in range_items(evaluate(over, scope)?)? {
                    let before = scope.len();
                    scope.push((".".to_owned(), item.clone()));
                    scope.extend(key.iter().map(|name| (name.clone(), index.clone())));
                    scope.extend(value.iter().map(|name| (name.clone(), item.clone())));
                    render_nodes(body, scope, out)?;
                    scope.truncate(before);
                }
            }
        }
    }
    Ok(())
}

fn range_items(value: Value) -> Result<Vec<(Value, Value)>, String> {
    Ok(match value {
        Value::Null => Vec::new(),
        Value::Array(items) => items.into_iter().enumerate().map(|(i, v)| (i.into(), v)).collect(),
        Value::Object(map) => map.into_iter().map(|(k, v)| (k.into(), v)).collect(),
        other => return Err(format!("range can't iterate over {}", format_value(&other))),
    })
}

fn evaluate(words: &[TemplateWord], scope: &TemplateScope) -> Result<Value, String> {
    let (head, rest) = words.split_first().ok_or("missing value for command")?;
    let arguments = rest.iter().map(|word| evaluate_word(word, scope)).collect::<Result<Vec<_>, _>>()?;
    match head {
        TemplateWord::Name(name) => call_function(name, &arguments),
        TemplateWord::FieldPath(None, fields) if fields.len() == 1 && !arguments.is_empty() => call_method(fields, &arguments, scope),
        other if arguments.is_empty() => evaluate_word(other, scope),
        _ => Err("can't give argument to non-function".to_owned()),
    }
}

/// `.Label "k"` of `docker ps`.
fn call_method(fields: &[String], arguments: &[Value], scope: &TemplateScope) -> Result<Value, String> {
    let name = fields.first().map(String::as_str).unwrap_or_default();
    let hidden = lookup_variable(scope, ".")
        .and_then(|dot| dot.get(format!("{name}()")))
        .ok_or(format!("{name} has arguments but cannot be invoked"))?;
    let key = arguments.first().and_then(Value::as_str).unwrap_or_default();
    Ok(hidden.get(key).cloned().unwrap_or_else(|| "".into()))
}

fn lookup_variable<'a>(scope: &'a TemplateScope, name: &str) -> Option<&'a Value> {
    scope.iter().rev().find(|(n, _)| n == name).map(|(_, v)| v)
}

fn evaluate_word(word: &TemplateWord, scope: &TemplateScope) -> Result<Value, String> {
    match word {
        TemplateWord::Text(text) => Ok(text.clone().into()),
        TemplateWord::Name(name) => call_function(name, &[]),
        TemplateWord::FieldPath(root, fields) => {
            let name = root.as_deref().unwrap_or(".");
            let mut value = lookup_variable(scope, name).ok_or(format!("undefined variable {name:?}"))?;
            for field in fields {
                // A key of a map that is not there is its zero value; a field of a struct that is not there is an error.
                value = match value.get(field) {
                    Some(value) => value,
                    None if field.starts_with(char::is_uppercase) => return Err(format!("map has no entry for key \"{field}\"")),
                    None => return Ok(Value::String(String::new())),
                };
            }
            Ok(value.clone())
        }
    }
}

fn call_function(name: &str, arguments: &[Value]) -> Result<Value, String> {
    Ok(match (name, arguments) {
        ("json", [value]) => Value::String(serde_json::to_string(&without_methods(value)).map_err(|e| e.to_string())?),
        ("index", [value, keys @ ..]) => keys.iter().try_fold(value.clone(), index_value)?,
        ("println", [..]) => format!("{}\n", arguments.iter().map(format_value).collect::<Vec<_>>().join(" ")).into(),
        _ => return Err(format!("function {name:?} not defined")),
    })
}

/// What a person may see of a value: the lookups of [`call_method`] stay inside.
fn without_methods(value: &Value) -> Value {
    match value {
        Value::Object(map) => map.iter().filter(|(k, _)| !k.ends_with("()")).map(|(k, v)| (k.clone(), v.clone())).collect(),
        other => other.clone(),
    }
}

fn index_value(value: Value, key: &Value) -> Result<Value, String> {
    match (&value, key) {
        (Value::Object(map), Value::String(key)) => Ok(map.get(key).cloned().unwrap_or_else(|| "".into())),
        (Value::Null, Value::String(_)) => Ok("".into()),
        _ => Err(format!("error calling index: can't index item of type {}", format_value(&value))),
    }
}

/// As Go prints it.
fn format_value(value: &Value) -> String {
    match value {
        Value::Null => "<no value>".to_owned(),
        Value::String(text) => text.clone(),
        Value::Array(items) => format!("[{}]", items.iter().map(format_value).collect::<Vec<_>>().join(" ")),
        Value::Object(map) => {
            let pairs = map.iter().filter(|(k, _)| !k.ends_with("()")).map(|(k, v)| format!("{k}:{}", format_value(v)));
            format!("map[{}]", pairs.collect::<Vec<_>>().join(" "))
        }
        other => other.to_string(),
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use serde_json::json;

    #[test]
    fn templates_render_like_docker() {
        let value = json!({
            "Name": "/x", "State": {"Running": true, "ExitCode": 137, "Pid": 0},
            "Config": {"Labels": {"a.b": "c", "q": "\"<"}, "Env": ["A=1", "B=2"], "Cmd": null},
            "Label()": {"k": "v"},
        });
        for (template, expected) in [
            ("{{.Name}}", "/x"),
            ("{{.State.Running}} {{.State.ExitCode}}\\t|", "true 137\t|"),
            ("{{json .Config.Labels}}", "{\"a.b\":\"c\",\"q\":\"\\\"<\"}"),
            ("{{index .Config.Labels \"a.b\"}}/{{index .Config.Labels \"none\"}}", "c/"),
            ("{{ .Name -}} !", "/x!"),
            ("{{range .Config.Env}}{{.}};{{end}}", "A=1;B=2;"),
            ("{{range $k, $v := .Config.Labels}}{{$k}}={{$v}} {{end}}", "a.b=c q=\"< "),
            ("{{range .Config.Env}}{{println .}}{{end}}", "A=1\nB=2\n"),
            ("{{range .Config.Env}}", "!unexpected EOF"),
            ("{{.Config.Env}} {{.Config.Cmd}}", "[A=1 B=2] <no value>"),
            ("{{with_}}", "!function \"with_\" not defined"),
            ("{{.Nope}}", "!map has no entry for key \"Nope\""),
            ("{{.Name", "!unclosed action"),
            ("{{.Label \"k\"}}{{.Label \"z\"}}", "v"),
            ("plain", "plain"),
        ] {
            let got = GoTemplate::parse(template).and_then(|t| t.render(&value)).unwrap_or_else(|e| format!("!{e}"));
            assert_eq!(got, expected, "{template}");
        }
    }
}
