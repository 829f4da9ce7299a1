//! What stands behind `Host` and `Match`: patterns, and criteria of which all must hold.
//!
//! Uses `known_hosts` for patterns. Knows no files and asks nobody.

use crate::remote::known_hosts::glob;

/// One pattern of a `Host` line.
#[derive(Debug, Clone, PartialEq, Eq)]
pub(super) struct Pattern {
    negated: bool,
    text: String,
}

impl Pattern {
    pub(super) fn parse(word: &str) -> Self {
        let text = word.strip_prefix('!');
        Pattern { negated: text.is_some(), text: text.unwrap_or(word).to_owned() }
    }
}

/// Whether a `Host` line speaks of a host: one pattern matches, and none with `!` does.
pub(super) fn speaks_of(patterns: &[Pattern], host: &str) -> bool {
    let matches = |p: &&Pattern| glob(p.text.as_bytes(), host.as_bytes());
    // OpenSSH stops at the first negated pattern that matches; whatever stands behind it changes nothing.
    !patterns.iter().filter(|p| p.negated).any(|p| matches(&p)) && patterns.iter().filter(|p| !p.negated).any(|p| matches(&p))
}

/// Reads a list `a,b*,!c`. `lower`: the patterns lose their case.
pub(super) fn list(text: &str, lower: bool) -> Vec<Pattern> {
    let text = if lower { text.to_ascii_lowercase() } else { text.to_owned() };
    text.split(',').filter(|p| !p.is_empty()).map(Pattern::parse).collect()
}

/// What a criterion looks at. Names of hosts have no case here, unlike behind `Host`.
#[derive(Debug, Clone, PartialEq, Eq)]
enum Test {
    All,
    /// Within the second reading; there is one where a line says `final`.
    Second,
    Host(Vec<Pattern>),
    OriginalHost(Vec<Pattern>),
    User(Vec<Pattern>),
    LocalUser(Vec<Pattern>),
    /// What only the ssh program can tell: its name.
    Ssh(&'static str),
}

/// The criteria of a `Match` line.
#[derive(Debug, Clone, PartialEq, Eq)]
pub(super) struct Condition {
    tests: Vec<(bool, Test)>,
    /// Whether it calls for a second reading of the files.
    pub(super) wants_second: bool,
}

/// What holds at the moment a `Match` line is read.
pub(super) struct Now<'a> {
    /// HostName so far, or the name asked for.
    pub(super) host: &'a str,
    pub(super) original: &'a str,
    pub(super) user: &'a str,
    pub(super) local_user: &'a str,
    pub(super) second: bool,
}

/// Whether a `Match` line holds.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(super) enum Holds {
    Yes,
    No,
    /// Only the ssh program can tell, because of this criterion.
    Ask(&'static str),
}

const LEFT_TO_SSH: [&str; 6] = ["exec", "localnetwork", "tagged", "sessiontype", "version", "command"];

impl Condition {
    /// Reads the words behind `Match`; an error is a fragment.
    pub(super) fn parse(words: &[String]) -> Result<Self, String> {
        let mut tests = Vec::new();
        let mut wants_second = false;
        let mut words = words.iter().map(String::as_str).peekable();
        while let Some(word) = words.next() {
            let (negated, word) = word.strip_prefix('!').map_or((false, word), |w| (true, w));
            let (name, value) = word.split_once('=').map_or((word, None), |(name, value)| (name, Some(value)));
            let name = name.to_ascii_lowercase();
            match name.as_str() {
                "all" if tests.len() > 1 || words.peek().is_some() => return Err("Match: `all` must stand alone".to_owned()),
                "all" => tests.push((negated, Test::All)),
                "canonical" => tests.push((negated, Test::Second)),
                "final" => {
                    wants_second |= !negated;
                    tests.push((negated, Test::Second));
                }
                other => {
                    let value = value.or_else(|| words.next());
                    // An empty value is one that OpenSSH takes for tags and commands alone.
                    let full = |v: &&str| !v.is_empty() || matches!(other, "tagged" | "command");
                    let value = value.filter(full).ok_or_else(|| format!("Match: `{name}` wants a value"))?;
                    let test = match other {
                        "host" => Test::Host(list(value, true)),
                        "originalhost" => Test::OriginalHost(list(value, true)),
                        "user" => Test::User(list(value, false)),
                        "localuser" => Test::LocalUser(list(value, false)),
                        other => match LEFT_TO_SSH.into_iter().find(|n| *n == other) {
                            Some(name) => Test::Ssh(name),
                            None => return Err(format!("Match: `{name}` is no criterion")),
                        },
                    };
                    tests.push((negated, test));
                }
            }
        }
        if tests.is_empty() {
            Err("Match wants a criterion, such as `host` or `all`".to_owned())
        } else {
            Ok(Condition { tests, wants_second })
        }
    }

    /// Judges it. What only ssh can tell matters only where all else holds.
    pub(super) fn holds(&self, now: &Now<'_>) -> Holds {
        let mut ask = None;
        for (negated, test) in &self.tests {
            let yes = match test {
                Test::All => true,
                Test::Second => now.second,
                Test::Host(list) => speaks_of(list, &now.host.to_ascii_lowercase()),
                Test::OriginalHost(list) => speaks_of(list, &now.original.to_ascii_lowercase()),
                Test::User(list) => speaks_of(list, now.user),
                Test::LocalUser(list) => speaks_of(list, now.local_user),
                Test::Ssh(name) => {
                    ask = ask.or(Some(*name));
                    continue;
                }
            };
            if yes == *negated {
                return Holds::No;
            }
        }
        ask.map_or(Holds::Yes, Holds::Ask)
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    fn condition(text: &str) -> Result<Condition, String> {
        Condition::parse(&text.split(' ').filter(|w| !w.is_empty()).map(str::to_owned).collect::<Vec<_>>())
    }

    fn holds(text: &str) -> Holds {
        let now = Now { host: "gpu01.corp", original: "Gpu01", user: "root", local_user: "li", second: false };
        condition(text).expect(text).holds(&now)
    }

    #[test]
    fn host_lines_match_as_openssh_matches_them() {
        let speaks = |line: &str, host: &str| speaks_of(&line.split(' ').map(Pattern::parse).collect::<Vec<_>>(), host);
        for (line, host, yes) in [
            ("gpu*", "gpu01", true),
            ("gpu0?", "gpu01", true),
            ("gpu* !gpu01", "gpu01", false),
            ("!gpu01 gpu*", "gpu01", false),
            ("!gpu01", "gpu02", false),
            ("* !*.corp", "a.corp", false),
            ("GPU01", "gpu01", false),
            ("a b", "b", true),
            ("**", "x", true),
        ] {
            assert_eq!(speaks(line, host), yes, "{line} {host}");
        }
    }

    #[test]
    fn criteria_are_joined_by_and() {
        for (text, result) in [
            ("all", Holds::Yes),
            ("!all", Holds::No),
            ("host gpu*.corp,x", Holds::Yes),
            ("Host GPU01.CORP", Holds::Yes),
            ("host gpu01", Holds::No),
            ("!host gpu01", Holds::Yes),
            ("originalhost=gpu01 user root,!li", Holds::Yes),
            ("originalhost gpu01 user !root", Holds::No),
            ("localuser li !user eve", Holds::Yes),
            ("canonical", Holds::No),
            ("!canonical host gpu*", Holds::Yes),
            ("final all", Holds::No),
            ("exec true", Holds::Ask("exec")),
            ("exec true host nowhere", Holds::No),
            ("host gpu* !exec true localnetwork 10.0.0.0/8", Holds::Ask("exec")),
        ] {
            assert_eq!(holds(text), result, "{text}");
        }
        assert!(condition("final host x").expect("fine").wants_second && !condition("!final host x").expect("fine").wants_second);
    }

    #[test]
    fn wrong_criteria_are_named() {
        for (text, says) in [
            ("", "Match wants a criterion, such as `host` or `all`"),
            ("host", "Match: `host` wants a value"),
            ("address 10.0.0.1", "Match: `address` is no criterion"),
            ("host a user b all", "Match: `all` must stand alone"),
            ("all host a", "Match: `all` must stand alone"),
        ] {
            assert_eq!(condition(text), Err(says.to_owned()), "{text}");
        }
    }
}
