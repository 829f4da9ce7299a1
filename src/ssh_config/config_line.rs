//! One line of ssh_config: a keyword, an optional `=`, and words with quotes, backslashes and comments as OpenSSH splits them.

use std::sync::Arc;

use super::keywords::{self, SshKeyword};
use super::match_condition::{MatchCondition, SshPattern};

/// What a line says.
#[derive(Debug)]
pub(crate) enum SshConfigStatement {
    Host(Vec<SshPattern>),
    Match(MatchCondition),
    /// The files that were found for an Include, once `config_files` has looked.
    Include(Vec<Arc<SshConfigFile>>),
    /// An Include that is another one for each host: ssh fills its tokens in.
    IncludeWithTokens,
    Set(&'static SshKeyword, Vec<Arc<str>>),
    /// Unknown here, and refused unless IgnoreUnknown names it.
    Unknown(String),
}

/// A line with something in it.
#[derive(Debug)]
pub(crate) struct SshConfigLine {
    /// From 1.
    pub(crate) number: usize,
    /// An error is a fragment that says what is wrong with it.
    pub(crate) statement: Result<SshConfigStatement, String>,
}

/// A file that was read.
#[derive(Debug)]
pub(crate) struct SshConfigFile {
    /// As people write it, with `~`.
    pub(crate) name: Arc<str>,
    pub(crate) lines: Vec<SshConfigLine>,
}

const BLANKS: [char; 3] = [' ', '\t', '\r'];

/// Reads a file's text. `include` looks for the files of an Include.
pub(crate) fn parse_config_lines(
    text: &str,
    mut include: impl FnMut(&[String]) -> Result<SshConfigStatement, String>,
) -> Vec<SshConfigLine> {
    let lines = text.split('\n').enumerate();
    lines
        .filter_map(|(at, line)| parse_statement(line, &mut include).map(|message| SshConfigLine { number: at + 1, statement: message }))
        .collect()
}

fn parse_statement(
    line: &str,
    include: &mut dyn FnMut(&[String]) -> Result<SshConfigStatement, String>,
) -> Option<Result<SshConfigStatement, String>> {
    let line = line.trim_end_matches([' ', '\t', '\r', '\u{c}']).trim_start_matches(BLANKS);
    if line.is_empty() || line.starts_with('#') {
        return None;
    }
    Some(split_keyword(line).and_then(|(keyword, rest)| {
        let words = split_words(rest).ok_or_else(|| format!("unclosed quote after {keyword}"))?;
        let Some(known) = keywords::find_keyword(keyword) else { return Ok(SshConfigStatement::Unknown(keyword.to_ascii_lowercase())) };
        let full =
            |words: &[String]| if words.iter().any(String::is_empty) { Err(format!("{} needs a value", known.name)) } else { Ok(()) };
        match known.name {
            "Host" => full(&words).map(|()| SshConfigStatement::Host(words.iter().map(|w| SshPattern::parse(w)).collect())),
            "Match" => MatchCondition::parse(&words).map(SshConfigStatement::Match),
            "Include" => full(&words).and_then(|()| include(&words)),
            _ => Ok(SshConfigStatement::Set(known, known.normalize_values(words, rest)?.into_iter().map(Arc::from).collect())),
        }
    }))
}

/// The keyword, which may be quoted, and what follows it and one `=`.
fn split_keyword(line: &str) -> Result<(&str, &str), String> {
    let (keyword, after) = match line.strip_prefix('"') {
        Some(quoted) => quoted.split_once('"').ok_or_else(|| "a quote is not closed".to_owned())?,
        None => line.split_at(line.find([' ', '\t', '\r', '=']).unwrap_or(line.len())),
    };
    let after = after.trim_start_matches(BLANKS);
    let rest = after.strip_prefix('=').unwrap_or(after).trim_start_matches(BLANKS);
    if rest.is_empty() { Err(format!("{keyword} needs a value")) } else { Ok((keyword, rest)) }
}

/// Splits words as OpenSSH does: quotes of both kinds, within words too; a backslash before a quote, a backslash or, outside quotes, a blank;
/// `#` at the beginning of a word ends the line. Nothing where a quote is not closed.
pub(crate) fn split_words(text: &str) -> Option<Vec<String>> {
    let mut words = Vec::new();
    let mut chars = text.chars().peekable();
    loop {
        while chars.next_if(|c| matches!(c, ' ' | '\t')).is_some() {}
        if chars.peek().is_none_or(|c| *c == '#') {
            return Some(words);
        }
        let mut word = String::new();
        let mut quote = None;
        while let Some(c) = chars.next_if(|c| quote.is_some() || !matches!(c, ' ' | '\t')) {
            match c {
                '\\' => {
                    let escaped = |n: &char| matches!(n, '\'' | '"' | '\\') || (quote.is_none() && *n == ' ');
                    word.push(chars.next_if(escaped).unwrap_or(c));
                }
                '"' | '\'' if quote.is_none() => quote = Some(c),
                c if quote == Some(c) => quote = None,
                c => word.push(c),
            }
        }
        if quote.is_some() {
            return None;
        }
        words.push(word);
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    fn describe_line(line: &str) -> String {
        let mut include = |words: &[String]| Err(format!("include {words:?}"));
        match parse_statement(line, &mut include) {
            None => "-".to_owned(),
            Some(Ok(SshConfigStatement::Set(keyword, values))) => format!("{} {values:?}", keyword.name),
            Some(Ok(other)) => format!("{other:?}"),
            Some(Err(what)) => format!("! {what}"),
        }
    }

    #[test]
    fn keyword_and_value_split_in_every_spelling() {
        for line in [
            "User li",
            " \tuser\t li \r",
            "USER=li",
            "User = li",
            "User= li",
            "User =li",
            "\"User\" li",
            "User \"li\"",
            "User l'i' # me",
            "User li\u{c}",
        ] {
            assert_eq!(describe_line(line), "User [\"li\"]", "{line:?}");
        }
        for line in ["", "  \r", "# User li", "\t#"] {
            assert_eq!(describe_line(line), "-", "{line:?}");
        }
        assert_eq!(describe_line("User ==li"), "User [\"=li\"]");
        assert_eq!(describe_line("User a#b"), "User [\"a#b\"]");
        assert_eq!(describe_line("Nonsense x"), "Unknown(\"nonsense\")");
    }

    #[test]
    fn words_split_like_openssh() {
        let split = |text| split_words(text).map(|words| words.join("|"));
        assert_eq!(split(r#"a "b c" d\ e 'f "g' h"i j"k"#).as_deref(), Some(r#"a|b c|d e|f "g|hi jk"#));
        assert_eq!(split(r#"a\b "c\ d" \"e\" f\\g"#).as_deref(), Some(r#"a\b|c\ d|"e"|f\g"#));
        assert_eq!(split(r#"a "" #b c"#).as_deref(), Some("a|"));
        assert_eq!(split(r#"a "b"#), None);
        assert_eq!(split(r"a 'b"), None);
    }

    #[test]
    fn invalid_lines_report_the_problem() {
        for (line, expected) in [
            ("Port", "! Port needs a value"),
            ("Port =", "! Port needs a value"),
            ("Port # 22", "! Port needs a value"),
            ("IdentityFile \"a b", "! unclosed quote after IdentityFile"),
            ("\"User li", "! a quote is not closed"),
            ("Host a \"\"", "! Host needs a value"),
            ("Match", "! Match needs a value"),
            ("Match # all", "! Match needs a criterion, such as `host` or `all`"),
            ("Include \"\"", "! Include needs a value"),
        ] {
            assert_eq!(describe_line(line), expected);
        }
    }
}
