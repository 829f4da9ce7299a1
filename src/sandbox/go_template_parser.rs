//! Parses Go's templates into nodes.

#[derive(Debug, Clone, PartialEq)]
pub(super) enum TemplateNode {
    Text(String),
    Print(Vec<TemplateWord>),
    Range { key: Option<String>, value: Option<String>, over: Vec<TemplateWord>, body: Vec<TemplateNode> },
}

#[derive(Debug, Clone, PartialEq)]
pub(super) enum TemplateWord {
    FieldPath(Option<String>, Vec<String>),
    Text(String),
    Name(String),
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
            "end" => return Ok((nodes, Some(action))),
            "range" => {
                let (body, Some(_)) = parse_block(parts)? else { return Err("unexpected EOF".to_owned()) };
                let (names, over) = tail.split_once(":=").map_or(("", tail), |(names, over)| (names, over));
                let mut names = names.split(',').map(str::trim).filter(|n| !n.is_empty()).map(str::to_owned);
                let (first, second) = (names.next(), names.next());
                let (key, value) = if second.is_some() { (first, second) } else { (None, first) };
                nodes.push(TemplateNode::Range { key, value, over: parse_words(over)?, body });
            }
            _ => nodes.push(TemplateNode::Print(parse_words(&action)?)),
        }
    }
    Ok((nodes, None))
}

fn parse_words(text: &str) -> Result<Vec<TemplateWord>, String> {
    let chars: Vec<char> = text.chars().collect();
    let mut at = 0;
    let mut words = Vec::new();
    while let Some(c) = chars.get(at) {
        match c {
            ' ' | '\t' | '\n' => at += 1,
            '"' | '`' => words.push(parse_string(&chars, &mut at)?),
            _ => words.push(parse_bare_word(&chars, &mut at)?),
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
    Ok(TemplateWord::Text(text))
}

fn parse_bare_word(chars: &[char], at: &mut usize) -> Result<TemplateWord, String> {
    let start = *at;
    while chars.get(*at).is_some_and(|c| !c.is_whitespace() && !"\"`".contains(*c)) {
        *at += 1;
    }
    let word: String = chars.get(start..*at).unwrap_or_default().iter().collect();
    let fields = |text: &str| text.split('.').filter(|f| !f.is_empty()).map(str::to_owned).collect();
    Ok(match word.as_str() {
        _ if word.starts_with('.') => TemplateWord::FieldPath(None, fields(&word)),
        _ if word.starts_with('$') => {
            let (name, rest) = word.split_once('.').unwrap_or((&word, ""));
            TemplateWord::FieldPath(Some(name.to_owned()), fields(rest))
        }
        _ if word.chars().all(|c| c.is_alphanumeric() || c == '_') => TemplateWord::Name(word),
        _ => return Err(format!("unexpected {word:?} in command")),
    })
}
