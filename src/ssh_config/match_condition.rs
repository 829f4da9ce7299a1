//! The arguments of `Host` and `Match`: patterns, and criteria that must all hold.

use crate::text::glob::glob_match;

/// One pattern of a `Host` line.
#[derive(Debug, Clone, PartialEq, Eq)]
pub(crate) struct SshPattern {
    negated: bool,
    text: String,
}

impl SshPattern {
    pub(crate) fn parse(word: &str) -> Self {
        let text = word.strip_prefix('!');
        SshPattern { negated: text.is_some(), text: text.unwrap_or(word).to_owned() }
    }
}

/// Whether a `Host` line matches of a host: one pattern matches, and none with `!` does.
pub(crate) fn patterns_match(patterns: &[SshPattern], host: &str) -> bool {
    let matches = |p: &&SshPattern| glob_match(&p.text, host);
    // OpenSSH stops at the first negated pattern that matches; later patterns change nothing.
    !patterns.iter().filter(|p| p.negated).any(|p| matches(&p)) && patterns.iter().filter(|p| !p.negated).any(|p| matches(&p))
}

/// Reads a list `a,b*,!c`. `lower`: the patterns lose their case.
pub(crate) fn parse_pattern_list(text: &str, lower: bool) -> Vec<SshPattern> {
    let text = if lower { text.to_ascii_lowercase() } else { text.to_owned() };
    text.split(',').filter(|p| !p.is_empty()).map(SshPattern::parse).collect()
}

/// What a criterion looks at. Names of hosts have no case here, unlike behind `Host`.
#[derive(Debug, Clone, PartialEq, Eq)]
enum MatchCriterion {
    All,
    /// Within the second reading; there is one where a line says `final`.
    FinalPass,
    Host(Vec<SshPattern>),
    OriginalHost(Vec<SshPattern>),
    User(Vec<SshPattern>),
    LocalUser(Vec<SshPattern>),
    /// A criterion that only the ssh program can evaluate: its name.
    NeedsSsh(&'static str),
}

/// The criteria of a `Match` line.
#[derive(Debug, Clone, PartialEq, Eq)]
pub(crate) struct MatchCondition {
    criteria: Vec<(bool, MatchCriterion)>,
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
pub(crate) enum MatchConditionResult {
    Yes,
    No,
    /// Only the ssh program can decide, because of this criterion.
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
                "all" => tests.push((negated, MatchCriterion::All)),
                "canonical" => tests.push((negated, MatchCriterion::FinalPass)),
                "final" => {
                    wants_second |= !negated;
                    tests.push((negated, MatchCriterion::FinalPass));
                }
                other => {
                    let value = value.or_else(|| words.next());
                    // An empty value is one that OpenSSH takes for tags and commands alone.
                    let full = |v: &&str| !v.is_empty() || matches!(other, "tagged" | "command");
                    let value = value.filter(full).ok_or_else(|| format!("Match: `{name}` needs a value"))?;
                    let test = match other {
                        "host" => MatchCriterion::Host(parse_pattern_list(value, true)),
                        "originalhost" => MatchCriterion::OriginalHost(parse_pattern_list(value, true)),
                        "user" => MatchCriterion::User(parse_pattern_list(value, false)),
                        "localuser" => MatchCriterion::LocalUser(parse_pattern_list(value, false)),
                        other => match SSH_ONLY_CRITERIA.into_iter().find(|n| *n == other) {
                            Some(name) => MatchCriterion::NeedsSsh(name),
                            None => return Err(format!("Match: unknown criterion `{name}`")),
                        },
                    };
                    tests.push((negated, test));
                }
            }
        }
        if tests.is_empty() {
            Err("Match needs a criterion, such as `host` or `all`".to_owned())
        } else {
            Ok(MatchCondition { criteria: tests, needs_final_pass: wants_second })
        }
    }

    /// Evaluates it. A criterion that only ssh can evaluate matters only if all others hold.
    pub(crate) fn evaluate(&self, context: &MatchContext<'_>) -> MatchConditionResult {
        let mut ask = None;
        for (negated, test) in &self.criteria {
            let yes = match test {
                MatchCriterion::All => true,
                MatchCriterion::FinalPass => context.is_final_pass,
                MatchCriterion::Host(list) => patterns_match(list, &context.host.to_ascii_lowercase()),
                MatchCriterion::OriginalHost(list) => patterns_match(list, &context.original_host.to_ascii_lowercase()),
                MatchCriterion::User(list) => patterns_match(list, context.user),
                MatchCriterion::LocalUser(list) => patterns_match(list, context.local_user),
                MatchCriterion::NeedsSsh(name) => {
                    ask = ask.or(Some(*name));
                    continue;
                }
            };
            if yes == *negated {
                return MatchConditionResult::No;
            }
        }
        ask.map_or(MatchConditionResult::Yes, MatchConditionResult::NeedsSsh)
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    fn parse_condition(text: &str) -> Result<MatchCondition, String> {
        MatchCondition::parse(&text.split(' ').filter(|w| !w.is_empty()).map(str::to_owned).collect::<Vec<_>>())
    }

    fn evaluate_text(text: &str) -> MatchConditionResult {
        let now = MatchContext { host: "gpu01.corp", original_host: "Gpu01", user: "root", local_user: "li", is_final_pass: false };
        parse_condition(text).expect(text).evaluate(&now)
    }

    #[test]
    fn host_lines_match_like_openssh() {
        let matches = |line: &str, host: &str| patterns_match(&line.split(' ').map(SshPattern::parse).collect::<Vec<_>>(), host);
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
            assert_eq!(matches(line, host), yes, "{line} {host}");
        }
    }

    #[test]
    fn all_match_criteria_must_hold() {
        for (text, result) in [
            ("all", MatchConditionResult::Yes),
            ("!all", MatchConditionResult::No),
            ("host gpu*.corp,x", MatchConditionResult::Yes),
            ("Host GPU01.CORP", MatchConditionResult::Yes),
            ("host gpu01", MatchConditionResult::No),
            ("!host gpu01", MatchConditionResult::Yes),
            ("originalhost=gpu01 user root,!li", MatchConditionResult::Yes),
            ("originalhost gpu01 user !root", MatchConditionResult::No),
            ("localuser li !user eve", MatchConditionResult::Yes),
            ("canonical", MatchConditionResult::No),
            ("!canonical host gpu*", MatchConditionResult::Yes),
            ("final all", MatchConditionResult::No),
            ("exec true", MatchConditionResult::NeedsSsh("exec")),
            ("exec true host nowhere", MatchConditionResult::No),
            ("host gpu* !exec true localnetwork 10.0.0.0/8", MatchConditionResult::NeedsSsh("exec")),
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
        for (text, expected) in [
            ("", "Match needs a criterion, such as `host` or `all`"),
            ("host", "Match: `host` needs a value"),
            ("address 10.0.0.1", "Match: unknown criterion `address`"),
            ("host a user b all", "Match: `all` must stand alone"),
            ("all host a", "Match: `all` must stand alone"),
        ] {
            assert_eq!(parse_condition(text), Err(expected.to_owned()), "{text}");
        }
    }
}
