//! Parses Go's templates into nodes.

use serde_json::Value;

#[derive(Debug, Clone, PartialEq)]
pub(super) enum TemplateNode {
    Text(String),
    Print(Vec<TemplateWord>),
    If(Vec<TemplateWord>, Vec<TemplateNode>, Vec<TemplateNode>),
    Range { key: Option<String>, value: Option<String>, over: Vec<TemplateWord>, body: Vec<TemplateNode>, otherwise: Vec<TemplateNode> },
    Set(String, Vec<TemplateWord>),
}

#[derive(Debug, Clone, PartialEq)]
pub(super) enum TemplateWord {
    FieldPath(Option<String>, Vec<String>),
    Literal(Value),
    Name(String),
    Parenthesized(Vec<TemplateWord>),
    Pipe,
}

pub(super) enum TemplateToken {
    Text(String),
    Action(String),
}

pub(super) fn tokenize(text: &str) -> Result<Vec<TemplateToken>, String> {
    let mut parts = Vec::new();
    let mut rest = text;
    while let Some((before, after)) = rest.split_once("{{") {
        let (action, after) = after.split_once("}}").ok_or("unclosed action")?;
        let before = if action.starts_with("- ") { before.trim_end() } else { before };
        parts.push(TemplateToken::Text(before.to_owned()));
        parts.push(TemplateToken::Action(action.trim_start_matches("- ").trim_end_matches(" -").trim().to_owned()));
        rest = if action.ends_with(" -") { after.trim_start() } else { after };
    }
    parts.push(TemplateToken::Text(rest.to_owned()));
    Ok(parts)
}

pub(super) fn parse_block(parts: &mut impl Iterator<Item = TemplateToken>) -> Result<(Vec<TemplateNode>, Option<String>), String> {
    let mut nodes = Vec::new();
    while let Some(part) = parts.next() {
        let action = match part {
            TemplateToken::Text(text) => {
                nodes.push(TemplateNode::Text(text));
                continue;
            }
            TemplateToken::Action(action) => action,
        };
        let (head, tail) = action.split_once(char::is_whitespace).unwrap_or((action.as_str(), ""));
        match head {
            "end" | "else" => return Ok((nodes, Some(action))),
            "if" => {
                let (then, otherwise) = parse_branches(parts)?;
                nodes.push(TemplateNode::If(parse_words(tail)?, then, otherwise));
            }
            "range" => {
                let (body, otherwise) = parse_branches(parts)?;
                let (names, over) = tail.split_once(":=").map_or(("", tail), |(names, over)| (names, over));
                let mut names = names.split(',').map(str::trim).filter(|n| !n.is_empty()).map(str::to_owned);
                let (first, second) = (names.next(), names.next());
                let (key, value) = if second.is_some() { (first, second) } else { (None, first) };
                nodes.push(TemplateNode::Range { key, value, over: parse_words(over)?, body, otherwise });
            }
            "/*" => {}
            _ => nodes.push(match action.split_once(":=") {
                Some((name, expression)) if name.trim().starts_with('$') => {
                    TemplateNode::Set(name.trim().to_owned(), parse_words(expression)?)
                }
                _ => TemplateNode::Print(parse_words(&action)?),
            }),
        }
    }
    Ok((nodes, None))
}

fn parse_branches(parts: &mut impl Iterator<Item = TemplateToken>) -> Result<(Vec<TemplateNode>, Vec<TemplateNode>), String> {
    let (then, end) = parse_block(parts)?;
    match end.as_deref() {
        Some("end") => Ok((then, Vec::new())),
        Some("else") => match parse_block(parts)? {
            (otherwise, Some(end)) if end == "end" => Ok((then, otherwise)),
            _ => Err("unexpected EOF".to_owned()),
        },
        Some(other) => Err(format!("unexpected {other}")),
        None => Err("unexpected EOF".to_owned()),
    }
}

fn parse_words(text: &str) -> Result<Vec<TemplateWord>, String> {
    let chars: Vec<char> = text.chars().collect();
    let mut at = 0;
    let words = parse_word_sequence(&chars, &mut at)?;
    if at < chars.len() { Err("unexpected right paren".to_owned()) } else { Ok(words) }
}

fn parse_word_sequence(chars: &[char], at: &mut usize) -> Result<Vec<TemplateWord>, String> {
    let mut words = Vec::new();
    while let Some(c) = chars.get(*at) {
        match c {
            ' ' | '\t' | '\n' => *at += 1,
            '|' => {
                *at += 1;
                words.push(TemplateWord::Pipe);
            }
            '(' => {
                *at += 1;
                words.push(TemplateWord::Parenthesized(parse_word_sequence(chars, at)?));
                if chars.get(*at) != Some(&')') {
                    return Err("unclosed left paren".to_owned());
                }
                *at += 1;
            }
            ')' => break,
            '"' | '`' => words.push(parse_string(chars, at)?),
            _ => words.push(parse_bare_word(chars, at)?),
        }
    }
    Ok(words)
}

fn parse_string(chars: &[char], at: &mut usize) -> Result<TemplateWord, String> {
    let quote = chars.get(*at).copied().unwrap_or('"');
    let mut text = String::new();
    loop {
        *at += 1;
        match chars.get(*at) {
            None => return Err("unterminated quoted string".to_owned()),
            Some(c) if *c == quote => break,
            Some('\\') if quote == '"' => {
                *at += 1;
                text.extend(chars.get(*at));
            }
            Some(c) => text.push(*c),
        }
    }
    *at += 1;
    Ok(TemplateWord::Literal(Value::String(text)))
}

fn parse_bare_word(chars: &[char], at: &mut usize) -> Result<TemplateWord, String> {
    let start = *at;
    while chars.get(*at).is_some_and(|c| !c.is_whitespace() && !"()|\"`".contains(*c)) {
        *at += 1;
    }
    let word: String = chars.get(start..*at).unwrap_or_default().iter().collect();
    if let Ok(number) = word.parse::<i64>() {
        return Ok(TemplateWord::Literal(number.into()));
    }
    let fields = |text: &str| text.split('.').filter(|f| !f.is_empty()).map(str::to_owned).collect();
    Ok(match word.as_str() {
        "true" | "false" => TemplateWord::Literal(Value::Bool(word == "true")),
        "nil" => TemplateWord::Literal(Value::Null),
        _ if word.starts_with('.') => TemplateWord::FieldPath(None, fields(&word)),
        _ if word.starts_with('$') => {
            let (name, rest) = word.split_once('.').unwrap_or((&word, ""));
            TemplateWord::FieldPath(Some(name.to_owned()), fields(rest))
        }
        _ if word.chars().all(|c| c.is_alphanumeric() || c == '_') => TemplateWord::Name(word),
        _ => return Err(format!("unexpected {word:?} in command")),
    })
}
