//! What stands behind `Host` and `Match`: patterns, and criteria of which all must hold.
//!
//! Uses `known_hosts` for patterns. Knows no files and asks nobody.

use crate::text::glob::glob_match;

/// One pattern of a `Host` line.
#[derive(Debug, Clone, PartialEq, Eq)]
pub(crate) struct Pattern {
    negated: bool,
    text: String,
}

impl Pattern {
    pub(crate) fn parse(word: &str) -> Self {
        let text = word.strip_prefix('!');
        Pattern { negated: text.is_some(), text: text.unwrap_or(word).to_owned() }
    }
}

/// Whether a `Host` line speaks of a host: one pattern matches, and none with `!` does.
pub(crate) fn patterns_match(patterns: &[Pattern], host: &str) -> bool {
    let matches = |p: &&Pattern| glob_match(&p.text, host);
    // OpenSSH stops at the first negated pattern that matches; whatever stands behind it changes nothing.
    !patterns.iter().filter(|p| p.negated).any(|p| matches(&p)) && patterns.iter().filter(|p| !p.negated).any(|p| matches(&p))
}

/// Reads a list `a,b*,!c`. `lower`: the patterns lose their case.
pub(crate) fn parse_pattern_list(text: &str, lower: bool) -> Vec<Pattern> {
    let text = if lower { text.to_ascii_lowercase() } else { text.to_owned() };
    text.split(',').filter(|p| !p.is_empty()).map(Pattern::parse).collect()
}

/// What a criterion looks at. Names of hosts have no case here, unlike behind `Host`.
#[derive(Debug, Clone, PartialEq, Eq)]
enum Criterion {
    All,
    /// Within the second reading; there is one where a line says `final`.
    FinalPass,
    Host(Vec<Pattern>),
    OriginalHost(Vec<Pattern>),
    User(Vec<Pattern>),
    LocalUser(Vec<Pattern>),
    /// What only the ssh program can tell: its name.
    NeedsSsh(&'static str),
}

/// The criteria of a `Match` line.
#[derive(Debug, Clone, PartialEq, Eq)]
pub(crate) struct MatchCondition {
    criteria: Vec<(bool, Criterion)>,
    /// Whether it calls for a second reading of the files.
    pub(crate) needs_final_pass: bool,
}

/// What holds at the moment a `Match` line is read.
pub(crate) struct MatchContext<'a> {
    /// HostName so far, or the name asked for.
    pub(crate) host: &'a str,
    pub(crate) original_host: &'a str,
    pub(crate) user: &'a str,
    pub(crate) local_user: &'a str,
    pub(crate) is_final_pass: bool,
}

/// Whether a `Match` line holds.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(crate) enum ConditionResult {
    Yes,
    No,
    /// Only the ssh program can tell, because of this criterion.
    NeedsSsh(&'static str),
}

const SSH_ONLY_CRITERIA: [&str; 6] = ["exec", "localnetwork", "tagged", "sessiontype", "version", "command"];

impl MatchCondition {
    /// Reads the words behind `Match`; an error is a fragment.
    pub(crate) fn parse(words: &[String]) -> Result<Self, String> {
        let mut tests = Vec::new();
        let mut wants_second = false;
        let mut words = words.iter().map(String::as_str).peekable();
        while let Some(word) = words.next() {
            let (negated, word) = word.strip_prefix('!').map_or((false, word), |w| (true, w));
            let (name, value) = word.split_once('=').map_or((word, None), |(name, value)| (name, Some(value)));
            let name = name.to_ascii_lowercase();
            match name.as_str() {
                "all" if tests.len() > 1 || words.peek().is_some() => return Err("Match: `all` must stand alone".to_owned()),
                "all" => tests.push((negated, Criterion::All)),
                "canonical" => tests.push((negated, Criterion::FinalPass)),
                "final" => {
                    wants_second |= !negated;
                    tests.push((negated, Criterion::FinalPass));
                }
                other => {
                    let value = value.or_else(|| words.next());
                    // An empty value is one that OpenSSH takes for tags and commands alone.
                    let full = |v: &&str| !v.is_empty() || matches!(other, "tagged" | "command");
                    let value = value.filter(full).ok_or_else(|| format!("Match: `{name}` wants a value"))?;
                    let test = match other {
                        "host" => Criterion::Host(parse_pattern_list(value, true)),
                        "originalhost" => Criterion::OriginalHost(parse_pattern_list(value, true)),
                        "user" => Criterion::User(parse_pattern_list(value, false)),
                        "localuser" => Criterion::LocalUser(parse_pattern_list(value, false)),
                        other => match SSH_ONLY_CRITERIA.into_iter().find(|n| *n == other) {
                            Some(name) => Criterion::NeedsSsh(name),
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
            Ok(MatchCondition { criteria: tests, needs_final_pass: wants_second })
        }
    }

    /// Judges it. What only ssh can tell matters only where all else holds.
    pub(crate) fn evaluate(&self, now: &MatchContext<'_>) -> ConditionResult {
        let mut ask = None;
        for (negated, test) in &self.criteria {
            let yes = match test {
                Criterion::All => true,
                Criterion::FinalPass => now.is_final_pass,
                Criterion::Host(list) => patterns_match(list, &now.host.to_ascii_lowercase()),
                Criterion::OriginalHost(list) => patterns_match(list, &now.original_host.to_ascii_lowercase()),
                Criterion::User(list) => patterns_match(list, now.user),
                Criterion::LocalUser(list) => patterns_match(list, now.local_user),
                Criterion::NeedsSsh(name) => {
                    ask = ask.or(Some(*name));
                    continue;
                }
            };
            if yes == *negated {
                return ConditionResult::No;
            }
        }
        ask.map_or(ConditionResult::Yes, ConditionResult::NeedsSsh)
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    fn parse_condition(text: &str) -> Result<MatchCondition, String> {
        MatchCondition::parse(&text.split(' ').filter(|w| !w.is_empty()).map(str::to_owned).collect::<Vec<_>>())
    }

    fn evaluate_text(text: &str) -> ConditionResult {
        let now = MatchContext { host: "gpu01.corp", original_host: "Gpu01", user: "root", local_user: "li", is_final_pass: false };
        parse_condition(text).expect(text).evaluate(&now)
    }

    #[test]
    fn host_lines_match_like_openssh() {
        let speaks = |line: &str, host: &str| patterns_match(&line.split(' ').map(Pattern::parse).collect::<Vec<_>>(), host);
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
    fn all_match_criteria_must_hold() {
        for (text, result) in [
            ("all", ConditionResult::Yes),
            ("!all", ConditionResult::No),
            ("host gpu*.corp,x", ConditionResult::Yes),
            ("Host GPU01.CORP", ConditionResult::Yes),
            ("host gpu01", ConditionResult::No),
            ("!host gpu01", ConditionResult::Yes),
            ("originalhost=gpu01 user root,!li", ConditionResult::Yes),
            ("originalhost gpu01 user !root", ConditionResult::No),
            ("localuser li !user eve", ConditionResult::Yes),
            ("canonical", ConditionResult::No),
            ("!canonical host gpu*", ConditionResult::Yes),
            ("final all", ConditionResult::No),
            ("exec true", ConditionResult::NeedsSsh("exec")),
            ("exec true host nowhere", ConditionResult::No),
            ("host gpu* !exec true localnetwork 10.0.0.0/8", ConditionResult::NeedsSsh("exec")),
        ] {
            assert_eq!(evaluate_text(text), result, "{text}");
        }
        assert!(
            parse_condition("final host x").expect("fine").needs_final_pass
                && !parse_condition("!final host x").expect("fine").needs_final_pass
        );
    }

    #[test]
    fn invalid_criteria_are_reported() {
        for (text, says) in [
            ("", "Match wants a criterion, such as `host` or `all`"),
            ("host", "Match: `host` wants a value"),
            ("address 10.0.0.1", "Match: `address` is no criterion"),
            ("host a user b all", "Match: `all` must stand alone"),
            ("all host a", "Match: `all` must stand alone"),
        ] {
            assert_eq!(parse_condition(text), Err(says.to_owned()), "{text}");
        }
    }
}
