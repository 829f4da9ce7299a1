//! Line filters: `rank:0-7 host:gpu0* level>=warn step:1000..1100 text`; a line must match every term, `!` negates a term.
//!
//! Works on the bytes as the host wrote them; they are sanitized where they are displayed.

use std::ops::RangeInclusive;
use std::sync::LazyLock;

use regex::bytes::{Regex, RegexBuilder};

use crate::text::glob::glob_match;
use crate::text::host_patterns::{expand_pattern, split_commas};
use crate::text::rank_selection::parse_range;

/// Size limit of a compiled pattern, in bytes.
const REGEX_SIZE_LIMIT: usize = 1 << 20;
/// Maximum bytes of a line to examine.
const MAX_LINE_BYTES: usize = 16 << 10;
const MAX_TERMS: usize = 32;

/// Severity of a line.
#[derive(Debug, Clone, Copy, PartialEq, Eq, PartialOrd, Ord)]
pub(crate) enum LogLevel {
    Debug,
    /// Also the level of lines without any marker.
    Info,
    Warn,
    Error,
}

/// Patterns that mark a line as error, warning or debug output.
struct LevelPatterns {
    any: Option<Regex>,
    error: Option<Regex>,
    warn: Option<Regex>,
}

static LEVEL_PATTERNS: LazyLock<LevelPatterns> = LazyLock::new(|| {
    // ASCII word boundaries: Unicode ones are slow.
    let build = |text: &str| RegexBuilder::new(text).unicode(false).build().ok();
    let error = r"\b(?:ERROR|FATAL|CRITICAL|Error|Traceback|panicked|PANIC|Segmentation fault|NCCL WARN|Xid|[A-Z][A-Za-z]*(?:Error|Exception))\b|\berror:|(?:^|[ \[])E[0-9]{4} ";
    let warn = r"\b(?:WARN|WARNING|Warning|[A-Z][A-Za-z]*Warning)\b|\bwarning:|(?:^|[ \[])W[0-9]{4} ";
    LevelPatterns { any: build(&format!("{error}|{warn}|\\b(?:DEBUG|TRACE)\\b")), error: build(error), warn: build(warn) }
});

/// Severity of a line by its text.
pub(crate) fn detect_level(line: &[u8]) -> LogLevel {
    let line = &line[..line.len().min(MAX_LINE_BYTES)];
    let has = |regex: &Option<Regex>| regex.as_ref().is_some_and(|regex| regex.is_match(line));
    if !has(&LEVEL_PATTERNS.any) {
        LogLevel::Info
    } else if has(&LEVEL_PATTERNS.error) {
        LogLevel::Error
    } else if has(&LEVEL_PATTERNS.warn) {
        LogLevel::Warn
    } else {
        LogLevel::Debug
    }
}

/// The writer of a line.
#[derive(Debug, Clone, Copy)]
pub(crate) struct LineOrigin<'a> {
    /// Its rank; `None` for a launcher.
    pub rank: Option<u32>,
    pub host: &'a str,
}

#[derive(Debug, Clone)]
pub(crate) struct LineFilter {
    /// The filter as typed.
    pub text: String,
    inverted: bool,
    terms: Vec<LineFilterTerm>,
}

#[derive(Debug, Clone)]
enum LineFilterTerm {
    Rank(Vec<RangeInclusive<u32>>),
    /// Globs, any of which may match.
    Host(Vec<String>),
    Level(RangeInclusive<LogLevel>),
    Step(RangeInclusive<u64>),
    Text(Box<Regex>),
}

static STEP_PATTERN: LazyLock<Option<Regex>> = LazyLock::new(|| {
    RegexBuilder::new(r#"\b(?:global_step|step|iteration|iter)["']?[ \t]*[=:]?[ \t\["']*([0-9]{1,15})\b"#)
        .unicode(false)
        .case_insensitive(true)
        .build()
        .ok()
});

impl LineFilter {
    /// Parses a filter; `None` for an empty one.
    ///
    /// # Errors
    /// A sentence that says what is wrong.
    pub(crate) fn parse(text: &str) -> Result<Option<LineFilter>, String> {
        let text = text.trim();
        let (inverse, rest) = text.strip_prefix('!').map_or((false, text), |rest| (true, rest.trim_start()));
        let mut terms = Vec::new();
        for word in split_terms(rest) {
            terms.push(parse_term(&word)?);
        }
        if terms.len() > MAX_TERMS {
            return Err(format!("more than {MAX_TERMS} terms"));
        }
        Ok((!terms.is_empty()).then(|| LineFilter { text: text.to_owned(), inverted: inverse, terms }))
    }

    /// Whether a line matches.
    pub(crate) fn matches(&self, writer: LineOrigin<'_>, line: &[u8]) -> bool {
        let line = &line[..line.len().min(MAX_LINE_BYTES)];
        self.terms.iter().all(|term| term.matches(writer, line)) != self.inverted
    }
}

/// Splits at spaces; quotes keep spaces.
fn split_terms(text: &str) -> Vec<String> {
    let (mut words, mut word, mut quoted, mut any) = (Vec::new(), String::new(), false, false);
    for c in text.chars() {
        match c {
            '"' => (quoted, any) = (!quoted, true),
            c if c.is_whitespace() && !quoted => {
                if any {
                    words.push(std::mem::take(&mut word));
                }
                any = false;
            }
            c => {
                word.push(c);
                any = true;
            }
        }
    }
    if any {
        words.push(word);
    }
    words
}

fn parse_term(word: &str) -> Result<LineFilterTerm, String> {
    if let Some(list) = word.strip_prefix("rank:") {
        let ranges: Option<Vec<_>> = list.split(',').map(parse_range).collect();
        return ranges.map(LineFilterTerm::Rank).ok_or_else(|| format!("{word}: write ranks like rank:0-7,12 or rank:r3"));
    }
    if let Some(host) = word.strip_prefix("host:") {
        return if host.is_empty() {
            Err("host: needs a name, like host:gpu0*".to_owned())
        } else {
            split_commas(host)
                .into_iter()
                .map(expand_pattern)
                .collect::<Result<Vec<_>, _>>()
                .map(|globs| LineFilterTerm::Host(globs.concat()))
                .map_err(|why| format!("{word}: {why}"))
        };
    }
    let compared = |sign: &'static str| Some((sign, word.strip_prefix("level")?.strip_prefix(sign)?));
    if let Some((sign, name)) = [">=", "<=", ":", "="].into_iter().find_map(compared) {
        let level = parse_level(name).ok_or_else(|| format!("{word}: the levels are debug, info, warn, error"))?;
        return Ok(LineFilterTerm::Level(match sign {
            ">=" => level..=LogLevel::Error,
            "<=" => LogLevel::Debug..=level,
            _ => level..=level,
        }));
    }
    if let Some(steps) = word.strip_prefix("step:") {
        let wrong = || format!("{word}: write steps like step:1000..1100, step:1000.. or step:1000");
        let (from, to) = steps.split_once("..").unwrap_or((steps, steps));
        let number = |text: &str, empty: u64| if text.is_empty() { Some(empty) } else { text.parse().ok() };
        if steps.is_empty() {
            return Err(wrong());
        }
        return Ok(LineFilterTerm::Step(number(from, 0).ok_or_else(wrong)?..=number(to, u64::MAX).ok_or_else(wrong)?));
    }
    compile_pattern(word).map(|regex| LineFilterTerm::Text(Box::new(regex)))
}

/// Compiles a regular expression, or matches the text literally if it is not one; case-insensitive if it has no upper-case letter.
///
/// # Errors
/// The reason why it cannot be compiled.
pub(crate) fn compile_pattern(text: &str) -> Result<Regex, String> {
    let small = !text.chars().any(char::is_uppercase);
    let build = |pattern: &str| RegexBuilder::new(pattern).case_insensitive(small).size_limit(REGEX_SIZE_LIMIT).build();
    build(text).or_else(|_| build(&regex::escape(text))).map_err(|error| error.to_string())
}

fn parse_level(name: &str) -> Option<LogLevel> {
    Some(match name {
        "debug" => LogLevel::Debug,
        "info" => LogLevel::Info,
        "warn" | "warning" => LogLevel::Warn,
        "error" => LogLevel::Error,
        _ => return None,
    })
}

impl LineFilterTerm {
    fn matches(&self, writer: LineOrigin<'_>, line: &[u8]) -> bool {
        match self {
            LineFilterTerm::Rank(ranges) => writer.rank.is_some_and(|rank| ranges.iter().any(|range| range.contains(&rank))),
            LineFilterTerm::Host(globs) => globs.iter().any(|glob| glob_match(glob, writer.host)),
            LineFilterTerm::Level(levels) => levels.contains(&detect_level(line)),
            LineFilterTerm::Step(steps) => {
                let hit = STEP_PATTERN.as_ref().and_then(|regex| regex.captures(line)).and_then(|hit| hit.get(1));
                let step = hit.and_then(|hit| std::str::from_utf8(hit.as_bytes()).ok()).and_then(|text| text.parse::<u64>().ok());
                step.is_some_and(|step| steps.contains(&step))
            }
            LineFilterTerm::Text(regex) => regex.is_match(line),
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use proptest::prelude::*;

    fn filter_matches(filter: &str, rank: u32, host: &str, line: &str) -> bool {
        let filter = LineFilter::parse(filter).expect("it reads").expect("it has terms");
        let writer = LineOrigin { rank: Some(rank), host };
        filter.matches(writer, line.as_bytes())
    }

    #[test]
    fn all_terms_must_match_unless_inverted() {
        let line = "[WARNING] step 1050 loss 2.3";
        for (filter, kept) in [
            ("loss", true),
            ("Loss", false),
            ("rank:0-7,12", true),
            ("rank:4", false),
            ("host:gpu0*", true),
            ("host:gpu[01-02],gpu09", true),
            ("host:gpu[02-03]", false),
            ("rank:r0-r7", true),
            ("host:gpu?1", true),
            ("host:gpu", false),
            ("level>=warn", true),
            ("level>=error", false),
            ("level:warn", true),
            ("level<=info", false),
            ("step:1000..1100", true),
            ("step:1050", true),
            ("step:1051..", false),
            ("step:..1050 loss rank:5 host:*1", true),
            ("!loss", false),
            ("! rank:4", true),
            ("!rank:5 step:9", true),
            ("\"step 1050 loss\"", true),
            ("\"1050  loss\"", false),
            ("los{2", false),
            ("lo.s 2", true),
        ] {
            assert_eq!(filter_matches(filter, 5, "gpu01", line), kept, "{filter}");
        }
        assert!(LineFilter::parse("  ").expect("nothing").is_none() && LineFilter::parse("!").expect("nothing").is_none());
    }

    #[test]
    fn invalid_filters_are_explained() {
        for (filter, why) in [
            ("rank:a", "rank:a: write ranks like rank:0-7,12 or rank:r3"),
            ("host:", "host: needs a name, like host:gpu0*"),
            ("level>=bad", "level>=bad: the levels are debug, info, warn, error"),
            ("step:x..", "step:x..: write steps like step:1000..1100, step:1000.. or step:1000"),
        ] {
            assert_eq!(LineFilter::parse(filter).map(|_| ()), Err(why.to_owned()));
        }
    }

    #[test]
    fn level_is_detected_from_line() {
        for (line, level) in [
            ("RuntimeError: CUDA error", LogLevel::Error),
            ("Traceback (most recent call last):", LogLevel::Error),
            ("E1122 13:06:05.1 1234 torch/x.py:12] failed", LogLevel::Error),
            ("[W1122 13:06:05.1 x.cpp:4] W", LogLevel::Warn),
            ("W1122 13:06:05.1 1 x", LogLevel::Warn),
            ("UserWarning: x", LogLevel::Warn),
            ("DEBUG x", LogLevel::Debug),
            ("step 4 loss 2.3 terror errors: 0", LogLevel::Info),
        ] {
            assert_eq!(detect_level(line.as_bytes()), level, "{line}");
        }
    }

    proptest! {
        #[test]
        fn parse_accepts_arbitrary_text(text in ".{0,60}", line in proptest::collection::vec(any::<u8>(), 0..80)) {
            if let Ok(Some(filter)) = LineFilter::parse(&text) {
                filter.matches(LineOrigin { rank: None, host: "a" }, &line);
            }
        }
    }
}
