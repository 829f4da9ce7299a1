//! Go's templates as docker's `--format` uses them, over JSON: fields, `json`, `index`, `range`, `if`, `len`, `join`, `println`, comparisons.
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
    let depth = scope.len();
    for node in nodes {
        match node {
            TemplateNode::Text(text) => out.push_str(text),
            TemplateNode::Print(words) => out.push_str(&format_value(&evaluate(words, scope)?)),
            TemplateNode::Set(name, words) => {
                let value = evaluate(words, scope)?;
                scope.push((name.clone(), value));
            }
            TemplateNode::If(condition, then, otherwise) => {
                let chosen = if is_truthy(&evaluate(condition, scope)?) { then } else { otherwise };
                render_nodes(chosen, scope, out)?;
            }
            TemplateNode::Range { key, value, over, body, otherwise } => {
                let items = range_items(evaluate(over, scope)?)?;
                if items.is_empty() {
                    render_nodes(otherwise, scope, out)?;
                }
                for (index, item) in items {
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
    scope.truncate(depth);
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
    let mut piped: Option<Value> = None;
    for command in words.split(|word| *word == TemplateWord::Pipe) {
        let (head, rest) = command.split_first().ok_or("missing value for command")?;
        let mut arguments = rest.iter().map(|word| evaluate_word(word, scope)).collect::<Result<Vec<_>, _>>()?;
        arguments.extend(piped.take());
        piped = Some(match head {
            TemplateWord::Name(name) => call_function(name, &arguments)?,
            TemplateWord::FieldPath(None, fields) if fields.len() == 1 && !arguments.is_empty() => call_method(fields, &arguments, scope)?,
            other if arguments.is_empty() => evaluate_word(other, scope)?,
            _ => return Err("can't give argument to non-function".to_owned()),
        });
    }
    piped.ok_or_else(|| "missing value for command".to_owned())
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
        TemplateWord::Literal(value) => Ok(value.clone()),
        TemplateWord::Parenthesized(words) => evaluate(words, scope),
        TemplateWord::Name(name) => call_function(name, &[]),
        TemplateWord::Pipe => Err("unexpected |".to_owned()),
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
    let text = |at: usize| arguments.get(at).map(format_value).unwrap_or_default();
    Ok(match (name, arguments) {
        ("json", [value]) => Value::String(serde_json::to_string(&without_methods(value)).map_err(|e| e.to_string())?),
        ("index", [value, keys @ ..]) => keys.iter().try_fold(value.clone(), index_value)?,
        ("len", [value]) => value_length(value).into(),
        ("not", [value]) => Value::Bool(!is_truthy(value)),
        ("eq", [first, rest @ ..]) => Value::Bool(rest.contains(first)),
        ("ne", [first, second]) => Value::Bool(first != second),
        ("and", [.., last]) => arguments.iter().find(|v| !is_truthy(v)).unwrap_or(last).clone(),
        ("or", [.., last]) => arguments.iter().find(|v| is_truthy(v)).unwrap_or(last).clone(),
        ("upper", [_]) => text(0).to_uppercase().into(),
        ("lower", [_]) => text(0).to_lowercase().into(),
        ("title" | "print", [..]) => arguments.iter().map(format_value).collect::<Vec<_>>().join("").into(),
        ("println", [..]) => format!("{}\n", arguments.iter().map(format_value).collect::<Vec<_>>().join(" ")).into(),
        ("join", [Value::Array(items), separator]) => {
            items.iter().map(format_value).collect::<Vec<_>>().join(&format_value(separator)).into()
        }
        ("printf", [format, rest @ ..]) => format_printf(&format_value(format), rest).into(),
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
        (Value::Array(items), Value::Number(at)) => {
            let at = at.as_u64().and_then(|at| usize::try_from(at).ok()).unwrap_or(usize::MAX);
            items.get(at).cloned().ok_or_else(|| format!("error calling index: index out of range: {at}"))
        }
        _ => Err(format!("error calling index: can't index item of type {}", format_value(&value))),
    }
}

fn value_length(value: &Value) -> usize {
    match value {
        Value::Array(items) => items.len(),
        Value::Object(map) => map.len(),
        Value::String(text) => text.len(),
        _ => 0,
    }
}

fn format_printf(format: &str, arguments: &[Value]) -> String {
    let mut arguments = arguments.iter();
    let mut out = String::new();
    let mut chars = format.chars();
    while let Some(c) = chars.next() {
        match (c, if c == '%' { chars.next() } else { None }) {
            ('%', Some('%')) => out.push('%'),
            ('%', Some('q')) => out.push_str(&arguments.next().map(|v| format!("{:?}", format_value(v))).unwrap_or_default()),
            ('%', Some(_)) => out.push_str(&arguments.next().map(format_value).unwrap_or_default()),
            (c, _) => out.push(c),
        }
    }
    out
}

fn is_truthy(value: &Value) -> bool {
    match value {
        Value::Null => false,
        Value::Bool(value) => *value,
        Value::Number(number) => number.as_f64() != Some(0.0),
        other => value_length(other) > 0,
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
            ("{{ index .Config.Env 1 }}", "B=2"),
            ("{{range .Config.Env}}{{.}};{{end}}", "A=1;B=2;"),
            ("{{range $k, $v := .Config.Labels}}{{$k}}={{$v}} {{end}}", "a.b=c q=\"< "),
            ("{{range .Config.Env}}{{println .}}{{end}}", "A=1\nB=2\n"),
            ("{{if .State.Pid}}up{{else}}down{{end}}", "down"),
            ("{{if eq .State.ExitCode 137}}{{len .Config.Env}}{{end}}", "2"),
            ("{{.Config.Env}} {{.Config.Cmd}}", "[A=1 B=2] <no value>"),
            ("{{join .Config.Env \",\"}} {{.Name | upper}}", "A=1,B=2 /X"),
            ("{{with_}}", "!function \"with_\" not defined"),
            ("{{.Nope}}", "!map has no entry for key \"Nope\""),
            ("{{.Name", "!unclosed action"),
            ("{{.Label \"k\"}}{{.Label \"z\"}}", "v"),
            ("{{printf \"%s-%d\" .Name 3}}", "/x-3"),
            ("plain", "plain"),
        ] {
            let got = GoTemplate::parse(template).and_then(|t| t.render(&value)).unwrap_or_else(|e| format!("!{e}"));
            assert_eq!(got, expected, "{template}");
        }
    }
}
