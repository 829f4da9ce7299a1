//! Texts for people in Chinese. The English text stays in the code and is the key; `assets/zh.po` holds the pairs, in gettext's format.
//!
//! `{}` in an English text is a hole, `{#}` one that takes digits only. The Chinese text names holes by number: `{0}` as it is, `{0:tr}`
//! translated itself, `{0:#}` a number or several (`0-3,7`), without which the text is not recognized in a message. What names the inventory after `orchestrate VERB` is a hole of its own, in both languages.
//! `tests/architecture/translation.rs` fails for a text without its pair.

use std::borrow::Cow;
use std::collections::HashMap;
use std::sync::LazyLock;

use unicode_width::UnicodeWidthChar as _;

/// The language of texts for people. JSON, journals and log files are English always.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Default)]
pub enum Lang {
    #[default]
    En,
    Zh,
}

/// What a message begins its remedy with.
pub(crate) const HELP_SEPARATOR: &str = "; help: ";
/// How deep a hole's text may have holes that are translated.
const MAX_DEPTH: usize = 4;
/// A text with fewer letters outside of its holes is not looked for in messages: it would match too much.
const MIN_LETTERS: usize = 2;
/// In a text with fewer letters a hole takes one word, or what is translated itself; one that begins with a label (`leftover: {}`) takes all.
const FEW_LETTERS: usize = 9;
/// Longer texts are no messages of this program.
const MAX_TEXT_BYTES: usize = 4 << 10;
/// What a command of this program begins with, in every message.
const COMMAND_PREFIX: &str = "`orchestrate ";

static CHINESE: LazyLock<Table> = LazyLock::new(|| Table::parse(include_str!("../../assets/zh.po")));

/// A message and what to do about it, which may be empty.
pub(crate) fn with_help(message: &str, hint: &str) -> String {
    if hint.is_empty() { message.to_owned() } else { [message, HELP_SEPARATOR, hint].concat() }
}

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
        if self == Lang::Zh
            && let Some(pattern) = CHINESE.pattern(english)
        {
            return pattern.fill(values, 0).0;
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
    if let Some((what, help)) = english.split_once(HELP_SEPARATOR) {
        let parts = [what, help].map(|part| translate(part, depth + 1));
        let has_translation = parts.iter().any(Option::is_some);
        let words = [what, help].into_iter().zip(parts).map(|(part, chinese)| chinese.unwrap_or_else(|| part.to_owned()));
        return has_translation.then(|| words.collect::<Vec<_>>().join("；建议："));
    }
    if let Some(chinese) = CHINESE.exact.get(english) {
        return Some((*chinese).to_owned());
    }
    if english.contains("{{") {
        // A template in a text: the table writes its braces once.
        let chinese = CHINESE.exact.get(english.replace("{{", "{").replace("}}", "}").as_str());
        if let Some(chinese) = chinese {
            return Some(chinese.replace('{', "{{").replace('}', "}}"));
        }
    }
    let patterns = CHINESE.patterns.iter().filter(|pattern| pattern.literal_letters >= MIN_LETTERS);
    let whole = patterns.into_iter().find_map(|pattern| {
        let values = pattern.matches(english)?;
        // `shm: 64 MiB of shared memory` is a label and a message.
        let takes_label =
            pattern.literals.first().is_some_and(|text| text.is_empty()) && values.first().is_some_and(|value| has_label(value));
        // `torch 2.6 instead of 2.5; numpy 2.2 instead of 2.1` is two messages.
        let takes_next = values.iter().any(|value| value.contains("; ")) && !pattern.english.contains("; ");
        let both = || english.split_once("; ").and_then(|halves| translate_both(halves, depth));
        match () {
            () if takes_label => None,
            () if takes_next => both().or_else(|| pattern.translate(&values, depth)),
            () => pattern.translate(&values, depth),
        }
    });
    whole.or_else(|| translate_parts(english, depth))
}

/// Whether a text begins with the name of a check, or with hosts: `gpu-model: `, `gpu[01-02]: `.
fn has_label(text: &str) -> bool {
    let is_name = |byte: u8| byte.is_ascii_lowercase() || byte.is_ascii_digit() || b"-.,[]".contains(&byte);
    text.split_once(": ").is_some_and(|(label, _)| !label.is_empty() && label.bytes().all(is_name))
}

fn translate_both((first, second): (&str, &str), depth: usize) -> Option<String> {
    Some(format!("{}；{}", translate(first, depth + 1)?, translate(second, depth + 1)?))
}

/// Two messages, or a place and a message.
fn translate_parts(english: &str, depth: usize) -> Option<String> {
    english.split_once("; ").and_then(|halves| translate_both(halves, depth)).or_else(|| {
        let (place, message) = english.split_once(": ")?;
        let message = translate(message, depth + 1)?;
        Some(format!("{}：{message}", translate(place, depth + 1).unwrap_or_else(|| place.to_owned())))
    })
}

fn is_wide(c: char) -> bool {
    c.width().unwrap_or(0) > 1
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
            // The last hole takes what is left; of two without a text between, the first takes what is in both.
            let value = match middle.get(at..).and_then(|left| left.iter().find(|literal| !literal.is_empty())) {
                Some(literal) => &rest[..rest.find(*literal)?],
                None => rest,
            };
            rest = rest[value.len()..].strip_prefix(middle.get(at).copied().unwrap_or_default())?;
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

    /// The Chinese text of a message; `None` where it has few letters and its values are no words or translations.
    fn translate(&self, values: &[&str], depth: usize) -> Option<String> {
        // What is counted is a number: `network is unreachable` is no count of hosts.
        let is_count = ["{0} 台", "{0} 项", "{0} 个"].iter().any(|count| self.chinese.contains(count));
        let is_number = |value: &&str| value.bytes().all(|b| b.is_ascii_digit());
        if is_count && !values.first().is_some_and(is_number) {
            return None;
        }
        let is_numeric = |(at, value): (usize, &&str)| !self.chinese.contains(&format!("{{{at}:#}}")) || is_number_list(value);
        if !values.iter().take(self.own_holes()).enumerate().all(is_numeric) {
            return None;
        }
        let (text, translated) = self.fill(values, depth);
        let wanted = self.chinese.matches(":tr}").count();
        let is_word = |(at, value): (usize, &&str)| !value.contains(' ') || self.chinese.contains(&format!("{{{at}:tr}}"));
        let are_words = || values.iter().take(self.own_holes()).enumerate().all(is_word);
        let is_labeled = self
            .literals
            .first()
            .is_some_and(|first| first.len() > 2 && !first.starts_with(|c: char| c.is_alphabetic()) || first.ends_with(": "));
        let is_sure = match self.literal_letters {
            0..FEW_LETTERS if is_labeled => true,
            // `{} or {}`.
            0..4 => are_words() && translated == wanted,
            4..FEW_LETTERS => are_words() && (translated > 0 || wanted == 0),
            _ => true,
        };
        is_sure.then_some(text)
    }

    fn own_holes(&self) -> usize {
        self.holes.iter().filter(|hole| **hole != Hole::Inventory).count()
    }

    /// The Chinese text, and how many values in it were translated; `values` as [`Pattern::matches`] gives them.
    fn fill(&self, values: &[&str], depth: usize) -> (String, usize) {
        let mut inventories = values.iter().skip(self.own_holes());
        let (mut out, mut rest, mut count) = (String::new(), self.chinese, 0);
        while !rest.is_empty() {
            if let Some((number, translated, tail)) = numbered_hole(rest) {
                let value = values.get(number).copied().unwrap_or_default();
                let chinese = if translated { translate(value, depth + 1) } else { None };
                count += usize::from(chinese.is_some());
                rest = push_spaced(&mut out, chinese.as_deref().unwrap_or(value), tail);
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
        (out, count)
    }
}

/// Adds a value, without the space that separates it from Chinese text where it is Chinese itself. Gives the text after it.
fn push_spaced<'a>(out: &mut String, value: &str, tail: &'a str) -> &'a str {
    let mut before = out.chars().rev();
    if value.starts_with(is_wide) && before.next() == Some(' ') && before.next().is_some_and(is_wide) {
        out.pop();
    }
    out.push_str(value);
    tail.strip_prefix(' ').filter(|rest| value.ends_with(is_wide) && rest.starts_with(is_wide)).unwrap_or(tail)
}

/// Where the verb ends in a text that begins with a command of this program.
fn command_end(text: &str) -> Option<usize> {
    let verb = text.strip_prefix(COMMAND_PREFIX)?;
    let length = verb.bytes().take_while(u8::is_ascii_lowercase).count();
    (length > 0).then_some(COMMAND_PREFIX.len() + length)
}

/// `7`, `0-3,7`: what ranks, codes and signals are.
fn is_number_list(text: &str) -> bool {
    text.starts_with(|c: char| c.is_ascii_digit()) && text.bytes().all(|b| b.is_ascii_digit() || b"-,".contains(&b))
}

/// `{1}`, `{1:tr}` or `{1:#}` at the beginning: its number, whether it is translated, and the text after it.
fn numbered_hole(text: &str) -> Option<(usize, bool, &str)> {
    let (inside, tail) = text.strip_prefix('{')?.split_once('}')?;
    let (number, translated) = inside.strip_suffix(":tr").map_or((inside, false), |number| (number, true));
    Some((number.strip_suffix(":#").unwrap_or(number).parse().ok()?, translated, tail))
}

#[cfg(test)]
#[path = "translation_tests.rs"]
mod tests;
