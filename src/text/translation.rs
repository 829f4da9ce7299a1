//! Texts for people in Chinese. The English text stays in the code and is the key; `assets/zh.po` holds the pairs, in gettext's format.
//!
//! `{}` in an English text is a hole, `{#}` one that takes digits only. The Chinese text names holes by number: `{0}` as it is, `{0:tr}`
//! translated itself. What names the inventory after `orchestrate VERB` is a hole of its own, in both languages.
//! `tests/architecture/translation.rs` fails for a text without its pair.

use std::borrow::Cow;
use std::collections::HashMap;
use std::sync::LazyLock;

/// The language of texts for people. JSON, journals and log files are English always.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Default)]
pub enum Lang {
    #[default]
    En,
    Zh,
}

/// What a message begins its remedy with.
const HELP_SEPARATOR: &str = "; help: ";
/// How deep a hole's text may have holes that are translated.
const MAX_DEPTH: usize = 4;
/// A text with fewer letters outside of its holes is not looked for in messages: it would match too much.
const MIN_LETTERS: usize = 4;
/// Longer texts are no messages of this program.
const MAX_TEXT_BYTES: usize = 16 << 10;
/// What a command of this program begins with, in every message.
const COMMAND_PREFIX: &str = "`orchestrate ";

static CHINESE: LazyLock<Table> = LazyLock::new(|| Table::parse(include_str!("../../assets/zh.po")));

impl Lang {
    /// A text of the code; a literal, so that the test finds it.
    pub(crate) fn tr(self, english: &'static str) -> &'static str {
        self.term(english)
    }

    /// A text that another place of the code names; that place is listed in the test.
    pub(crate) fn term(self, english: &'static str) -> &'static str {
        match self {
            Lang::En => english,
            Lang::Zh => CHINESE.exact.get(english).copied().unwrap_or(english),
        }
    }

    /// A text of the code with a value for each `{}`.
    pub(crate) fn tr_fill(self, english: &'static str, values: &[&str]) -> String {
        if let Some(pattern) = CHINESE.pattern(english).filter(|_| self == Lang::Zh) {
            return pattern.fill(values, 0);
        }
        let mut values = values.iter();
        let mut pieces = english.split("{}");
        let first = pieces.next().unwrap_or_default().to_owned();
        pieces.fold(first, |text, piece| text + values.next().copied().unwrap_or_default() + piece)
    }

    /// A message that was composed elsewhere; unchanged where it has no translation.
    pub(crate) fn message(self, english: &str) -> Cow<'_, str> {
        match self {
            Lang::Zh if english.len() <= MAX_TEXT_BYTES => translate(english, 0).map_or(Cow::Borrowed(english), Cow::Owned),
            _ => Cow::Borrowed(english),
        }
    }
}

fn translate(english: &str, depth: usize) -> Option<String> {
    if depth > MAX_DEPTH {
        return None;
    }
    if english.contains(HELP_SEPARATOR) {
        return translate_parts(english, HELP_SEPARATOR, "；建议：", depth);
    }
    if let Some(chinese) = CHINESE.exact.get(english) {
        return Some((*chinese).to_owned());
    }
    let patterns = CHINESE.patterns.iter().filter(|pattern| pattern.literal_letters >= MIN_LETTERS);
    let whole = patterns.into_iter().find_map(|pattern| Some(pattern.fill(&pattern.matches(english)?, depth)));
    whole.or_else(|| translate_parts(english, "; ", "；", depth)).or_else(|| translate_parts(english, ": ", "：", depth))
}

/// A text of two messages, or of a place and a message; `None` where neither part has a translation.
fn translate_parts(english: &str, separator: &str, chinese_separator: &str, depth: usize) -> Option<String> {
    let (first, second) = english.split_once(separator)?;
    let parts = [first, second].map(|part| (translate(part, depth + 1), part));
    let is_translated = parts.iter().any(|(chinese, _)| chinese.is_some());
    let [first, second] = parts.map(|(chinese, english)| chinese.unwrap_or_else(|| english.to_owned()));
    is_translated.then(|| format!("{first}{chinese_separator}{second}"))
}

/// The pairs: those without holes by their text, the others with most literal text first.
struct Table {
    exact: HashMap<&'static str, &'static str>,
    patterns: Vec<Pattern>,
}

impl Table {
    fn parse(po: &'static str) -> Table {
        let mut table = Table { exact: HashMap::new(), patterns: Vec::new() };
        let mut english: &'static str = "";
        for line in po.lines() {
            if let Some(text) = quoted(line, "msgid ") {
                english = text;
            } else if let Some(chinese) = quoted(line, "msgstr ").filter(|text| !english.is_empty() && !text.is_empty()) {
                let pattern = Pattern::new(english, chinese);
                if pattern.holes.is_empty() {
                    table.exact.insert(english, chinese);
                } else {
                    table.patterns.push(pattern);
                }
            }
        }
        table.patterns.sort_by_key(|pattern| std::cmp::Reverse(pattern.literals.iter().map(|text| text.len()).sum::<usize>()));
        table
    }

    fn pattern(&self, english: &str) -> Option<&Pattern> {
        self.patterns.iter().find(|pattern| pattern.english == english)
    }
}

/// The text between the quotes after a keyword; a pair is on one line each and has no escapes but `\"` and `\\`.
fn quoted(line: &'static str, keyword: &str) -> Option<&'static str> {
    let text = line.strip_prefix(keyword)?.strip_prefix('"')?.strip_suffix('"')?;
    if !text.contains('\\') {
        return Some(text);
    }
    // Once per program: the table lives as long as it.
    Some(Box::leak(text.replace("\\\"", "\"").replace("\\\\", "\\").into_boxed_str()))
}

#[derive(Debug, Clone, Copy, PartialEq, Eq)]
enum Hole {
    Text,
    Digits,
    /// Words after a command that name the inventory.
    Inventory,
}

/// An English text with holes, and its translation.
struct Pattern {
    english: &'static str,
    /// One more than holes.
    literals: Vec<&'static str>,
    holes: Vec<Hole>,
    literal_letters: usize,
    chinese: &'static str,
}

impl Pattern {
    fn new(english: &'static str, chinese: &'static str) -> Pattern {
        let (mut literals, mut holes, mut from, mut at) = (Vec::new(), Vec::new(), 0, 0);
        while at < english.len() {
            let rest = &english[at..];
            let (hole, length) = if rest.starts_with("{}") {
                (Hole::Text, "{}".len())
            } else if rest.starts_with("{#}") {
                (Hole::Digits, "{#}".len())
            } else if let Some(end) = command_end(rest) {
                at += end;
                (Hole::Inventory, 0)
            } else {
                at += rest.chars().next().map_or(1, char::len_utf8);
                continue;
            };
            literals.push(&english[from..at]);
            holes.push(hole);
            at += length;
            from = at;
        }
        literals.push(&english[from..]);
        let literal_letters = literals.iter().flat_map(|text| text.bytes()).filter(u8::is_ascii_alphabetic).count();
        Pattern { english, literals, holes, literal_letters, chinese }
    }

    /// The text in each hole that is no command's; commands' words follow.
    fn matches<'a>(&self, text: &'a str) -> Option<Vec<&'a str>> {
        let last = self.literals.last()?;
        let mut rest = text.strip_prefix(self.literals.first()?)?.strip_suffix(last)?;
        let (mut values, mut inventories) = (Vec::new(), Vec::new());
        let middle = &self.literals[1..self.literals.len() - 1];
        for (at, hole) in self.holes.iter().enumerate() {
            // The last hole takes what is left.
            let (value, tail) = match middle.get(at) {
                Some(literal) => rest.split_once(*literal)?,
                None => (rest, ""),
            };
            rest = tail;
            match hole {
                Hole::Inventory if value.is_empty() || value.starts_with(' ') => inventories.push(value),
                Hole::Text => values.push(value),
                Hole::Digits if !value.is_empty() && value.bytes().all(|b| b.is_ascii_digit()) => values.push(value),
                Hole::Inventory | Hole::Digits => return None,
            }
        }
        values.append(&mut inventories);
        Some(values)
    }

    /// The Chinese text; `values` as [`Pattern::matches`] gives them.
    fn fill(&self, values: &[&str], depth: usize) -> String {
        let own = self.holes.iter().filter(|hole| **hole != Hole::Inventory).count();
        let mut inventories = values.iter().skip(own);
        let (mut out, mut rest) = (String::new(), self.chinese);
        while !rest.is_empty() {
            if let Some((number, translated, tail)) = numbered_hole(rest) {
                let value = values.get(number).copied().unwrap_or_default();
                match translate(value, depth + 1).filter(|_| translated) {
                    Some(text) => out.push_str(&text),
                    None => out.push_str(value),
                }
                rest = tail;
                continue;
            }
            let end = command_end(rest);
            let (text, tail) = rest.split_at(end.unwrap_or_else(|| rest.chars().next().map_or(1, char::len_utf8)));
            out.push_str(text);
            if end.is_some() {
                out.push_str(inventories.next().copied().unwrap_or_default());
            }
            rest = tail;
        }
        out
    }
}

/// Where the verb ends in a text that begins with a command of this program.
fn command_end(text: &str) -> Option<usize> {
    let verb = text.strip_prefix(COMMAND_PREFIX)?;
    let length = verb.bytes().take_while(u8::is_ascii_lowercase).count();
    (length > 0).then_some(COMMAND_PREFIX.len() + length)
}

/// `{1}` or `{1:tr}` at the beginning: its number, whether it is translated, and the text after it.
fn numbered_hole(text: &str) -> Option<(usize, bool, &str)> {
    let (inside, tail) = text.strip_prefix('{')?.split_once('}')?;
    let (number, translated) = inside.strip_suffix(":tr").map_or((inside, false), |number| (number, true));
    Some((number.parse().ok()?, translated, tail))
}

#[cfg(test)]
mod tests {
    use super::*;

    fn table(english: &'static str, chinese: &'static str) -> Pattern {
        Pattern::new(english, chinese)
    }

    #[test]
    fn holes_are_moved_and_foreign_text_stays() {
        let pattern = table("rank {} on {} failed", "{1} 上的 rank {0} 失败");
        let values = pattern.matches("rank 3 on {0} rank failed").expect("a match");
        assert_eq!((pattern.fill(&values, 0), pattern.matches("rank 3 ended")), ("{0} rank 上的 rank 3 失败".to_owned(), None));
        assert_eq!(pattern.matches("rank  on"), None, "the literals may not overlap");
    }

    #[test]
    fn digit_holes_take_only_digits() {
        let pattern = table("{#} hosts", "{0} 台主机");
        assert_eq!(pattern.matches("12 hosts").map(|values| pattern.fill(&values, 0)), Some("12 台主机".to_owned()));
        assert_eq!((pattern.matches("its hosts"), pattern.matches(" hosts")), (None, None));
    }

    #[test]
    fn completed_commands_stay_complete() {
        let pattern = table("{}: `orchestrate down` removes it", "{0}：用 `orchestrate down` 删除");
        for (given, wanted) in [
            ("a: `orchestrate down` removes it", "a：用 `orchestrate down` 删除"),
            ("a: `orchestrate down x.yaml -F c` removes it", "a：用 `orchestrate down x.yaml -F c` 删除"),
        ] {
            assert_eq!(pattern.matches(given).map(|values| pattern.fill(&values, 0)), Some(wanted.to_owned()));
        }
        assert_eq!(pattern.matches("a: `orchestrate downstream` removes it"), None);
    }

    #[test]
    fn english_and_unknown_texts_are_unchanged() {
        assert_eq!(Lang::En.tr_fill("{} of {}", &["1", "2"]), "1 of 2");
        assert_eq!(Lang::En.message("nothing was changed"), "nothing was changed");
        assert_eq!(Lang::Zh.message("no text: of this program; nor this"), "no text: of this program; nor this");
        assert_eq!(Lang::Zh.message(&"nothing was changed".repeat(10_000)).len(), 190_000);
    }

    /// Every pair fills its own holes, and only those.
    #[test]
    fn pairs_are_consistent() {
        for pattern in &CHINESE.patterns {
            let own = pattern.holes.iter().filter(|hole| **hole != Hole::Inventory).count();
            let commands = |text: &str| {
                let starts = text.match_indices(COMMAND_PREFIX).filter_map(|(at, _)| Some(&text[at..at + command_end(&text[at..])?]));
                starts.map(str::to_owned).collect::<Vec<_>>()
            };
            assert_eq!(commands(pattern.english), commands(pattern.chinese), "{}", pattern.english);
            let values: Vec<String> = (0..own).map(|n| format!("<{n}>")).collect();
            let values: Vec<&str> = values.iter().map(String::as_str).collect();
            let filled = pattern.fill(&values, 0);
            assert!(values.iter().all(|value| filled.contains(value)) && !filled.contains(":tr}"), "{} -> {filled}", pattern.english);
        }
    }
}
