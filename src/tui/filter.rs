//! Which lines of logs are shown: `rank:0-7 host:gpu0* level>=warn step:1000..1100 text`, all of which a line must meet; `!` before it turns it round.
//!
//! Uses nothing of the house but the event's words. Works on the bytes as the host wrote them; what is shown is cleaned elsewhere.

use std::sync::LazyLock;

use regex::bytes::{Regex, RegexBuilder};

/// The largest program of one pattern, in bytes.
const SIZE: usize = 1 << 20;
/// The most bytes of a line that are looked at.
const LOOK: usize = 16 << 10;
/// The most terms.
const TERMS: usize = 32;

/// How bad a line says it is.
#[derive(Debug, Clone, Copy, PartialEq, Eq, PartialOrd, Ord)]
pub enum Level {
    /// For those who develop it.
    Debug,
    /// Nothing special, and what says nothing of it.
    Info,
    /// Worth a look.
    Warn,
    /// Wrong.
    Error,
}

/// What marks a line as wrong, as worth a look, or as chatter.
struct Marks {
    any: Option<Regex>,
    error: Option<Regex>,
    warn: Option<Regex>,
}

static MARKS: LazyLock<Marks> = LazyLock::new(|| {
    // ASCII word boundaries: those of Unicode are slow.
    let build = |text: &str| RegexBuilder::new(text).unicode(false).build().ok();
    let error = r"\b(?:ERROR|FATAL|CRITICAL|Error|Traceback|panicked|PANIC|Segmentation fault|NCCL WARN|Xid|[A-Z][A-Za-z]*(?:Error|Exception))\b|\berror:|(?:^|[ \[])E[0-9]{4} ";
    let warn = r"\b(?:WARN|WARNING|Warning|[A-Z][A-Za-z]*Warning)\b|\bwarning:|(?:^|[ \[])W[0-9]{4} ";
    Marks { any: build(&format!("{error}|{warn}|\\b(?:DEBUG|TRACE)\\b")), error: build(error), warn: build(warn) }
});

/// How bad a line is by its own words.
pub fn level(line: &[u8]) -> Level {
    let line = &line[..line.len().min(LOOK)];
    let has = |regex: &Option<Regex>| regex.as_ref().is_some_and(|regex| regex.is_match(line));
    if !has(&MARKS.any) {
        Level::Info
    } else if has(&MARKS.error) {
        Level::Error
    } else if has(&MARKS.warn) {
        Level::Warn
    } else {
        Level::Debug
    }
}

/// Who wrote a line, for terms about it.
#[derive(Debug, Clone, Copy)]
pub struct Writer<'a> {
    /// Its rank; none: a launcher.
    pub rank: Option<u32>,
    /// Its host's name.
    pub host: &'a str,
}

/// What a line must be.
#[derive(Debug, Clone)]
pub struct Filter {
    /// As it was typed.
    pub text: String,
    inverse: bool,
    terms: Vec<Term>,
}

#[derive(Debug, Clone)]
enum Term {
    Rank(Vec<(u32, u32)>),
    Host(String),
    Level(Test, Level),
    Step(u64, u64),
    Text(Box<Regex>),
}

#[derive(Debug, Clone, Copy)]
enum Test {
    Least,
    Most,
    Is,
}

static STEP: LazyLock<Option<Regex>> = LazyLock::new(|| {
    RegexBuilder::new(r#"\b(?:global_step|step|iteration|iter)["']?[ \t]*[=:]?[ \t\["']*([0-9]{1,15})\b"#)
        .unicode(false)
        .case_insensitive(true)
        .build()
        .ok()
});

impl Filter {
    /// Reads what was typed; `None` for nothing.
    ///
    /// # Errors
    /// What is wrong with it, in a sentence.
    pub fn parse(text: &str) -> Result<Option<Filter>, String> {
        let text = text.trim();
        let (inverse, rest) = text.strip_prefix('!').map_or((false, text), |rest| (true, rest.trim_start()));
        let mut terms = Vec::new();
        for word in words(rest) {
            terms.push(term(&word)?);
        }
        if terms.len() > TERMS {
            return Err(format!("more than {TERMS} terms"));
        }
        Ok((!terms.is_empty()).then(|| Filter { text: text.to_owned(), inverse, terms }))
    }

    /// Whether the writer alone rules a line out, so that its text need not be read.
    pub fn excludes(&self, writer: Writer<'_>) -> bool {
        !self.inverse && self.terms.iter().any(|term| term.about(writer) == Some(false))
    }

    /// Whether a line is shown.
    pub fn keeps(&self, writer: Writer<'_>, line: &[u8]) -> bool {
        let line = &line[..line.len().min(LOOK)];
        self.terms.iter().all(|term| term.about(writer).unwrap_or_else(|| term.of(line))) != self.inverse
    }
}

/// Words as they stand between spaces; quotes hold one together.
fn words(text: &str) -> Vec<String> {
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

fn term(word: &str) -> Result<Term, String> {
    if let Some(list) = word.strip_prefix("rank:") {
        return ranges(list).map(Term::Rank).ok_or_else(|| format!("{word}: write ranks like rank:0-7,12"));
    }
    if let Some(host) = word.strip_prefix("host:") {
        return if host.is_empty() { Err("host: needs a name, like host:gpu0*".to_owned()) } else { Ok(Term::Host(host.to_owned())) };
    }
    if let Some(level) = word.strip_prefix("level") {
        for (sign, test) in [(">=", Test::Least), ("<=", Test::Most), (":", Test::Is), ("=", Test::Is)] {
            if let Some(name) = level.strip_prefix(sign) {
                return named(name)
                    .map(|level| Term::Level(test, level))
                    .ok_or_else(|| format!("{word}: the levels are debug, info, warn, error"));
            }
        }
    }
    if let Some(steps) = word.strip_prefix("step:") {
        let wrong = || format!("{word}: write steps like step:1000..1100, step:1000.. or step:1000");
        let (from, to) = steps.split_once("..").unwrap_or((steps, steps));
        let number = |text: &str, empty: u64| if text.is_empty() { Some(empty) } else { text.parse().ok() };
        if steps.is_empty() {
            return Err(wrong());
        }
        return Ok(Term::Step(number(from, 0).ok_or_else(wrong)?, number(to, u64::MAX).ok_or_else(wrong)?));
    }
    pattern(word).map(|regex| Term::Text(Box::new(regex)))
}

/// A regular expression where it is one, else the text itself; without regard to case where it has no capital.
///
/// # Errors
/// What is wrong with it.
pub fn pattern(text: &str) -> Result<Regex, String> {
    let small = !text.chars().any(char::is_uppercase);
    let build = |pattern: &str| RegexBuilder::new(pattern).case_insensitive(small).size_limit(SIZE).build();
    build(text).or_else(|_| build(&regex::escape(text))).map_err(|error| error.to_string())
}

fn named(name: &str) -> Option<Level> {
    Some(match name {
        "debug" => Level::Debug,
        "info" => Level::Info,
        "warn" | "warning" => Level::Warn,
        "error" => Level::Error,
        _ => return None,
    })
}

fn ranges(list: &str) -> Option<Vec<(u32, u32)>> {
    let one = |part: &str| {
        let (from, to) = part.split_once('-').unwrap_or((part, part));
        Some((from.parse().ok()?, to.parse().ok()?))
    };
    list.split(',').map(one).collect()
}

impl Term {
    /// What it says of the writer; `None`: it is about the text.
    fn about(&self, writer: Writer<'_>) -> Option<bool> {
        match self {
            Term::Rank(ranges) => Some(writer.rank.is_some_and(|rank| ranges.iter().any(|(from, to)| (*from..=*to).contains(&rank)))),
            Term::Host(pattern) => Some(fits(pattern.as_bytes(), writer.host.as_bytes())),
            Term::Level(..) | Term::Step(..) | Term::Text(_) => None,
        }
    }

    fn of(&self, line: &[u8]) -> bool {
        match self {
            Term::Rank(_) | Term::Host(_) => true,
            Term::Level(Test::Least, level) => self::level(line) >= *level,
            Term::Level(Test::Most, level) => self::level(line) <= *level,
            Term::Level(Test::Is, level) => self::level(line) == *level,
            Term::Step(from, to) => {
                let hit = STEP.as_ref().and_then(|regex| regex.captures(line)).and_then(|hit| hit.get(1));
                let step = hit.and_then(|hit| std::str::from_utf8(hit.as_bytes()).ok()).and_then(|text| text.parse::<u64>().ok());
                step.is_some_and(|step| (*from..=*to).contains(&step))
            }
            Term::Text(regex) => regex.is_match(line),
        }
    }
}

/// Whether a name fits a pattern in which `*` stands for any text and `?` for one byte.
fn fits(pattern: &[u8], name: &[u8]) -> bool {
    let (mut at, mut to, mut star) = (0, 0, None);
    while to < name.len() {
        match pattern.get(at) {
            Some(b'*') => {
                star = Some((at, to));
                at += 1;
            }
            Some(c) if *c == b'?' || *c == name[to] => (at, to) = (at + 1, to + 1),
            _ => match star {
                Some((before, from)) => {
                    (at, to) = (before + 1, from + 1);
                    star = Some((before, from + 1));
                }
                None => return false,
            },
        }
    }
    pattern[at..].iter().all(|c| *c == b'*')
}

#[cfg(test)]
mod tests {
    use super::*;
    use proptest::prelude::*;

    fn keeps(filter: &str, rank: u32, host: &str, line: &str) -> bool {
        let filter = Filter::parse(filter).expect("it reads").expect("it has terms");
        let writer = Writer { rank: Some(rank), host };
        assert!(!filter.excludes(writer) || !filter.keeps(writer, line.as_bytes()), "what excludes a writer keeps none of its lines");
        filter.keeps(writer, line.as_bytes())
    }

    #[test]
    fn all_terms_must_hold_and_a_mark_turns_it_round() {
        let line = "[WARNING] step 1050 loss 2.3";
        for (filter, kept) in [
            ("loss", true),
            ("Loss", false),
            ("rank:0-7,12", true),
            ("rank:4", false),
            ("host:gpu0*", true),
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
            assert_eq!(keeps(filter, 5, "gpu01", line), kept, "{filter}");
        }
        assert!(Filter::parse("  ").expect("nothing").is_none() && Filter::parse("!").expect("nothing").is_none());
    }

    #[test]
    fn what_is_wrong_is_said() {
        for (filter, why) in [
            ("rank:a", "rank:a: write ranks like rank:0-7,12"),
            ("host:", "host: needs a name, like host:gpu0*"),
            ("level>=bad", "level>=bad: the levels are debug, info, warn, error"),
            ("step:x..", "step:x..: write steps like step:1000..1100, step:1000.. or step:1000"),
        ] {
            assert_eq!(Filter::parse(filter).map(|_| ()), Err(why.to_owned()));
        }
    }

    #[test]
    fn levels_are_told_by_words() {
        for (line, told) in [
            ("RuntimeError: CUDA error", Level::Error),
            ("Traceback (most recent call last):", Level::Error),
            ("E1122 13:06:05.1 1234 torch/x.py:12] failed", Level::Error),
            ("[W1122 13:06:05.1 x.cpp:4] W", Level::Warn),
            ("W1122 13:06:05.1 1 x", Level::Warn),
            ("UserWarning: x", Level::Warn),
            ("DEBUG x", Level::Debug),
            ("step 4 loss 2.3 terror errors: 0", Level::Info),
        ] {
            assert_eq!(level(line.as_bytes()), told, "{line}");
        }
    }

    proptest! {
        #[test]
        fn anything_may_be_typed(text in ".{0,60}", line in proptest::collection::vec(any::<u8>(), 0..80)) {
            if let Ok(Some(filter)) = Filter::parse(&text) {
                let writer = Writer { rank: None, host: "a" };
                let kept = filter.keeps(writer, &line);
                prop_assert!(!filter.excludes(writer) || !kept);
            }
        }

        #[test]
        fn patterns_of_names_end(pattern in "[a*?]{0,12}", name in "[ab]{0,20}") {
            fits(pattern.as_bytes(), name.as_bytes());
            prop_assert!(fits(b"*", name.as_bytes()) && fits(name.as_bytes(), name.as_bytes()));
        }
    }
}
