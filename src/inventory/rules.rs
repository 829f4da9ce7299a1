//! A table of rules that explain log lines and ends: the program's own in `assets/diagnosis.yaml`, and a user's beside it.
//!
//! Uses the YAML door and the checks. Every pattern is compiled once here, so that a broken one is told with its place; what a match
//! means is `diagnose`'s.

use std::collections::BTreeMap;

use regex::bytes::{Regex, RegexBuilder};

use super::check::Check;
use super::schema::{Block, Status};
use super::tree::{Kind, Node};
use super::{Inventory, Problem, Source, raw};

/// What a match says of who is to blame.
#[derive(Debug, Clone, Copy, PartialEq, Eq, PartialOrd, Ord)]
pub enum Role {
    /// This is what went wrong.
    Cause,
    /// Somebody else is missing, and this one waited in vain.
    Wait,
    /// Somebody else failed, and this one felt it.
    Effect,
    /// A cause where nothing better is known; often told by programs that go on.
    Hint,
    /// Nothing: it looks like trouble and is none.
    Harmless,
}

/// A text in both languages; `{name}` stands for what a group of that name matched.
#[derive(Debug, Clone, PartialEq, Eq, Default)]
pub struct Words {
    /// English.
    pub en: String,
    /// Chinese.
    pub zh: String,
}

/// What a rule looks at.
#[derive(Debug, Clone)]
pub enum Looks {
    /// Lines of logs and of errors.
    Lines(Vec<Regex>),
    /// How a process ended by itself.
    Exits {
        /// Exit codes.
        codes: Vec<i32>,
        /// Signals.
        signals: Vec<i32>,
    },
    /// Nothing: it is found by comparing ranks, and the table has its words only.
    Found,
}

/// One rule.
#[derive(Debug, Clone)]
pub struct Rule {
    /// Its stable name.
    pub id: String,
    /// Who is to blame.
    pub role: Role,
    /// What it looks at.
    pub looks: Looks,
    /// What happened.
    pub what: Words,
    /// Why that happens.
    pub why: Words,
    /// What to do next: a command where there is one.
    pub next: Words,
    /// Lines that it must match.
    pub examples: Vec<String>,
}

/// `diagnosis`: a user's rules.
#[derive(Debug, Clone)]
pub enum Diagnosis {
    /// In a file of the laptop, relative to the inventory's folder.
    File(String),
    /// In the inventory.
    Rules(Vec<Rule>),
}

const RULE: Block = Block {
    path: "",
    keys: &[
        ("id", Status::Now),
        ("role", Status::Now),
        ("re", Status::Now),
        ("exit", Status::Now),
        ("signal", Status::Now),
        ("found", Status::Now),
        ("what", Status::Now),
        ("why", Status::Now),
        ("next", Status::Now),
        ("eg", Status::Now),
        ("src", Status::Now),
    ],
};
const WORDS: Block = Block { path: "", keys: &[("en", Status::Now), ("zh", Status::Now)] };

/// How large a compiled pattern may be, bytes.
const PATTERN: usize = 1 << 20;
/// How many rules a table may have.
const RULES: usize = 2_000;

/// Reads a table: a list of rules, in the order in which they are tried.
///
/// # Errors
/// Everything that is wrong with it, each with its place.
pub fn read(source: &Source) -> Result<Vec<Rule>, Vec<Problem>> {
    let (node, problems) = raw::parse(&source.name, &source.text);
    let mut check = Check { problems };
    let rules = node.map(|node| list(&node, &mut check));
    check.done(rules)
}

/// What stands under `diagnosis`.
pub(super) fn key(tree: &Node, check: &mut Check) -> Option<Diagnosis> {
    let node = tree.get("diagnosis")?;
    match &node.kind {
        Kind::Scalar { text, .. } if !text.trim().is_empty() => Some(Diagnosis::File(text.clone())),
        Kind::List(_) => Some(Diagnosis::Rules(list(node, check))),
        _ => {
            check.wrong(&node.place, format!("{} where rules are expected", node.what()), "name a file, or list the rules: - id: …");
            None
        }
    }
}

impl Inventory {
    /// The user's rules, or where they stand.
    ///
    /// # Errors
    /// Everything that is wrong with rules that stand in the inventory.
    pub fn diagnosis(&self) -> Result<Option<Diagnosis>, Vec<Problem>> {
        let mut check = Check::default();
        let found = key(&self.read.tree, &mut check);
        check.done(Some(found))
    }
}

/// The rules of a list that stands in a file.
fn list(node: &Node, check: &mut Check) -> Vec<Rule> {
    let Kind::List(items) = &node.kind else {
        check.wrong(&node.place, format!("{} where a list of rules is expected", node.what()), "begin each rule with `- id: …`");
        return Vec::new();
    };
    if items.len() > RULES {
        check.wrong(&node.place, format!("{} rules", items.len()), format!("at most {RULES} are read"));
    }
    let mut rules: Vec<Rule> = Vec::new();
    for item in items.iter().take(RULES) {
        let Some(rule) = rule(item, check) else { continue };
        if rules.iter().any(|known| known.id == rule.id) {
            check.wrong(&item.place, format!("a second rule `{}`", rule.id), "every rule has a name of its own");
        }
        rules.push(rule);
    }
    rules
}

fn rule(node: &Node, check: &mut Check) -> Option<Rule> {
    if !check.block(node, &RULE) {
        return None;
    }
    let id = text(node.get("id"), check).unwrap_or_default();
    if id.is_empty() || !id.bytes().all(|b| b.is_ascii_lowercase() || b.is_ascii_digit() || b == b'-') {
        let place = node.get("id").map_or(&node.place, |id| &id.place);
        check.wrong(place, "a rule needs a name of a-z, 0-9 and -", "write it like id: dataset-missing");
    }
    let role = node.get("role").map_or(Some(Role::Cause), |node| match text(Some(node), check).as_deref() {
        Some("cause") => Some(Role::Cause),
        Some("wait") => Some(Role::Wait),
        Some("effect") => Some(Role::Effect),
        Some("hint") => Some(Role::Hint),
        Some("harmless" | "info") => Some(Role::Harmless),
        _ => {
            check.wrong(&node.place, format!("{} is no role", node.what()), "cause, wait, effect, hint or harmless");
            None
        }
    });
    let looks = looks(node, check);
    let what = words(node, "what", check);
    if what.is_none() && role.is_some_and(|role| role != Role::Harmless) {
        check.wrong(&node.place, "it does not say what happened", "add what: <one line>");
    }
    let (why, next) = (words(node, "why", check), words(node, "next", check));
    let examples = many(node.get("eg"), check).into_iter().map(|(text, _)| text).collect();
    Some(Rule {
        id,
        role: role?,
        looks: looks?,
        what: what.unwrap_or_default(),
        why: why.unwrap_or_default(),
        next: next.unwrap_or_default(),
        examples,
    })
}

fn looks(node: &Node, check: &mut Check) -> Option<Looks> {
    if node.get("found").is_some() {
        return Some(Looks::Found);
    }
    let patterns = many(node.get("re"), check);
    let numbers = |key: &str, check: &mut Check| -> Vec<i32> {
        let mut numbers = Vec::new();
        for (text, at) in many(node.get(key), check) {
            match text.parse() {
                Ok(number) => numbers.push(number),
                Err(_) => check.wrong(&at.place, format!("{} is no number", at.what()), "write it like 137"),
            }
        }
        numbers
    };
    let (codes, signals) = (numbers("exit", check), numbers("signal", check));
    match (patterns.is_empty(), codes.is_empty() && signals.is_empty()) {
        (true, true) => {
            check.wrong(&node.place, "it looks at nothing", "add re: <a regular expression>, exit: <a code> or signal: <a number>");
            None
        }
        (false, false) => {
            check.wrong(&node.place, "it looks at lines and at ends", "make two rules of it");
            None
        }
        (true, false) => Some(Looks::Exits { codes, signals }),
        (false, true) => {
            let before = check.problems.len();
            let mut compiled = Vec::new();
            for (text, at) in patterns {
                match pattern(&text) {
                    Ok(regex) => compiled.push(regex),
                    Err((says, hint)) => check.wrong(&at.place, says, hint),
                }
            }
            (check.problems.len() == before).then_some(Looks::Lines(compiled))
        }
    }
}

/// Compiles a pattern for bytes, with ASCII classes: Unicode's word boundaries would leave the fast engines.
///
/// # Errors
/// What is wrong with it, and what would be right.
pub fn pattern(text: &str) -> Result<Regex, (String, String)> {
    let regex = RegexBuilder::new(text).unicode(false).size_limit(PATTERN).dfa_size_limit(PATTERN).build();
    let regex = regex.map_err(|error| {
        let says = error.to_string();
        let last = says.lines().rev().find_map(|line| line.strip_prefix("error: ")).unwrap_or(&says).to_owned();
        let hint = match &error {
            regex::Error::CompiledTooBig(_) => "make its repetitions smaller",
            _ if last.contains("Unicode not allowed") => "classes are ASCII here: write (甲|乙) instead of [甲乙]",
            _ => "the syntax is https://docs.rs/regex#syntax: no look-around, no back-references",
        };
        (last, hint.to_owned())
    })?;
    if regex.is_match(b"") {
        return Err(("it matches an empty line, so every line".to_owned(), "name a word that must be there".to_owned()));
    }
    let wide = regex_syntax::ParserBuilder::new().unicode(false).utf8(false).build().parse(text);
    if wide.is_ok_and(|hir| hir.properties().look_set().contains_word_unicode()) {
        return Err(("a word boundary of Unicode is a thousand times slower".to_owned(), "leave out (?u)".to_owned()));
    }
    Ok(regex)
}

/// A value that is one text.
fn text(node: Option<&Node>, check: &mut Check) -> Option<String> {
    let node = node?;
    match &node.kind {
        Kind::Scalar { text, .. } => Some(text.clone()),
        Kind::Unknown(_) | Kind::List(_) | Kind::Map(_) => {
            check.wrong(&node.place, format!("{} where a text is expected", node.what()), "write it on one line");
            None
        }
    }
}

/// A value that is one text or several.
fn many<'a>(node: Option<&'a Node>, check: &mut Check) -> Vec<(String, &'a Node)> {
    let Some(node) = node else { return Vec::new() };
    let nodes = match &node.kind {
        Kind::List(items) => items.iter().collect(),
        _ => vec![node],
    };
    nodes.into_iter().filter_map(|node| text(Some(node), check).map(|text| (text, node))).collect()
}

/// A text in one language or both; one alone stands for both.
fn words(node: &Node, key: &str, check: &mut Check) -> Option<Words> {
    let node = node.get(key)?;
    if let Kind::Map(_) = node.kind {
        check.block(node, &WORDS);
        let (en, zh) = (text(node.get("en"), check), text(node.get("zh"), check));
        let en = en.or_else(|| zh.clone())?;
        return Some(Words { zh: zh.unwrap_or_else(|| en.clone()), en });
    }
    text(Some(node), check).map(|text| Words { en: text.clone(), zh: text })
}

impl Words {
    /// With the groups' texts in their places.
    pub fn fill(&self, chinese: bool, groups: &BTreeMap<String, String>) -> String {
        let mut text = if chinese { self.zh.clone() } else { self.en.clone() };
        for (name, value) in groups {
            let place = format!("{{{name}}}");
            // A pattern may match without this group: then nothing is named, and no gap is left.
            if value.is_empty() {
                text = text.replace(&format!("{place} "), "");
            }
            text = text.replace(&place, value);
        }
        // Nothing was matched that would stand at the end: `a port is taken already: `.
        text.truncate(text.trim_end_matches([':', '：', ' ']).len());
        text
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    fn problems(text: &str) -> Vec<String> {
        let source = Source { name: "rules.yaml".to_owned(), text: text.to_owned() };
        read(&source).map_or_else(|all| all.iter().map(ToString::to_string).collect(), |_| Vec::new())
    }

    #[test]
    fn a_rule_is_read() {
        let text =
            "- id: quota\n  re: 'quota of (?P<user>\\w+) exceeded'\n  what: { en: 'no space for {user}', zh: '{user} 的配额已满' }\n";
        let source = Source { name: "rules.yaml".to_owned(), text: text.to_owned() };
        let rules = read(&source).expect("good");
        let groups = BTreeMap::from([("user".to_owned(), "li".to_owned())]);
        assert_eq!(rules[0].what.fill(false, &groups), "no space for li");
        assert_eq!(rules[0].what.fill(true, &groups), "li 的配额已满");
        assert_eq!(rules[0].role, Role::Cause);
    }

    #[test]
    fn an_inventory_names_a_file_or_has_rules() {
        let load = |diagnosis: &str| {
            let text = format!("name: a\nhosts: [gpu01]\nlaunch: {{ command: [train.py] }}\ndiagnosis: {diagnosis}\n");
            Inventory::load(&[Source { name: "a.yaml".to_owned(), text }], &[])
        };
        let found = load("./rules.yaml").expect("good").diagnosis().expect("good");
        assert!(matches!(found, Some(Diagnosis::File(file)) if file == "./rules.yaml"));
        let found = load("[{ id: x, re: quota, what: full }]").expect("good").diagnosis().expect("good");
        assert!(matches!(found, Some(Diagnosis::Rules(rules)) if rules[0].id == "x"));
        for (text, told) in
            [("[{ id: x, re: 'q(', what: full }]", "diagnosis[0].re: unclosed group"), ("{ a: b }", "where rules are expected")]
        {
            let problems = load(text).expect_err("broken");
            assert!(problems.iter().any(|problem| problem.to_string().contains(told)), "{problems:?}");
        }
    }

    #[test]
    fn a_broken_one_is_told_with_its_place() {
        for (text, told) in [
            ("- id: a\n  re: 'x('\n  what: y\n", "rules.yaml:2:7: [0].re: unclosed group"),
            ("- id: a\n  re: '[甲乙]'\n  what: y\n", "rules.yaml:2:7: [0].re: Unicode not allowed here"),
            ("- id: a\n  re: '(?u)\\bx\\b'\n  what: y\n", "rules.yaml:2:7: [0].re: a word boundary of Unicode"),
            ("- id: a\n  re: 'x*'\n  what: y\n", "rules.yaml:2:7: [0].re: it matches an empty line"),
            ("- id: a\n  rex: x\n  what: y\n", "rules.yaml:2:3: [0].rex: unknown key `rex`"),
            ("- id: A\n  re: x\n  what: y\n", "rules.yaml:1:7: [0].id: a rule needs a name"),
            ("- id: a\n  role: guilty\n  re: x\n  what: y\n", "rules.yaml:2:9: [0].role: `guilty` is no role"),
            ("- id: a\n  re: x\n", "rules.yaml:1:3: [0]: it does not say what happened"),
            ("- id: a\n  what: y\n", "rules.yaml:1:3: [0]: it looks at nothing"),
            ("- id: a\n  exit: many\n  what: y\n", "rules.yaml:2:9: [0].exit: `many` is no number"),
            ("id: a\n", "rules.yaml:1:1: a mapping where a list of rules is expected"),
            ("- { id: a, re: x, what: y }\n- { id: a, re: z, what: y }\n", "[1]: a second rule `a`"),
        ] {
            let all = problems(text);
            assert!(all.iter().any(|problem| problem.contains(told)), "{text}\n{all:#?}");
        }
    }
}
