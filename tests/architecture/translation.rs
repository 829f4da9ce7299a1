//! Every text that has a Chinese version has an entry in `assets/zh.po`, and every entry has its text in the code.
//!
//! A text is the literal of `lang.tr("…")` and `lang.tr_fill("…", …)`, the noun of `count_noun`, and every literal of the listed functions
//! and constants that compose messages; `lang.message(…)` translates those at output.

use std::collections::{BTreeMap, BTreeSet};

use proc_macro2::{Delimiter, Group, TokenStream, TokenTree};

use crate::untranslated::NO_TEXTS;

const TABLE_FILE: &str = "assets/zh.po";
/// Defines `tr` itself.
const MECHANISM_FILE: &str = "src/text/translation.rs";

/// Files with messages for users, with the functions and constants that compose them; empty: the whole file.
const MESSAGE_SOURCES: &[(&str, &[&str])] = &[
    ("src/engine/", &[]),
    ("src/inventory/", &[]),
    ("src/cli/", &[]),
    ("src/lifecycle/", &[]),
    ("src/plan/overview/", &[]),
    ("src/plan/slurm/job_report.rs", &[]),
    ("src/plan/slurm/job_state.rs", &[]),
    ("src/plan/slurm/job_notes.rs", &[]),
    ("src/diagnose/hang_detector.rs", &[]),
    ("src/model/gpu.rs", &["throttle_reason_names"]),
    ("src/model/exit.rs", &["fmt"]),
    ("src/plan/action/container.rs", &["judge"]),
    ("src/plan/action/environment.rs", &["judge", "judge_files", "judge_gpus"]),
    ("src/plan/action/launch.rs", &["judge"]),
    ("src/plan/action/mod.rs", &["title"]),
    ("src/plan/action/pull.rs", &["judge", "missing_image_issue", "no_memory_dir_result", "login_failed_result"]),
    ("src/plan/action/reach_master.rs", &["judge", "master_port_hint"]),
    ("src/plan/action/run_files.rs", &["judge"]),
    ("src/plan/action/task.rs", &["describe_failure", "judge_success"]),
    ("src/plan/action/verify_facts.rs", &["check_gpus", "check_disk"]),
    ("src/plan/fact_rules.rs", &[]),
    ("src/preflight/", &[]),
    ("src/remote/ssh/auth.rs", &["timeout_error", "disconnect_error"]),
    ("src/remote/ssh/client_handler.rs", &["describe_error"]),
    ("src/remote/ssh/dial.rs", &["connect_once", "describe_failures"]),
    ("src/report/", &[]),
    ("src/transfer/", &[]),
    ("src/tui/", &[]),
];

/// Compiled for tests alone.
const TEST_FILES: [&str; 4] = ["src/report/test_support.rs", "src/text/golden.rs", "src/tui/fixtures", "src/tui/svg.rs"];
/// `tracing::debug!(…)` after its first word.
const MAX_MACRO_PATH: usize = 5;
/// Functions where a single word may be a label.
const LABEL_ROOMS: [&str; 2] = ["src/report/", "src/tui/"];

/// The location of a literal.
struct FoundLiteral {
    /// The functions and constants around it.
    enclosing: Vec<String>,
    value: String,
    use_kind: LiteralUse,
}

#[derive(Clone, Copy, PartialEq, Eq)]
enum LiteralUse {
    Translated,
    Noun,
    Other,
}

/// The problems of the table, one line each.
pub(crate) fn translation_problems(sources: &BTreeMap<String, String>, table: &str) -> Vec<String> {
    compare(sources, table, MESSAGE_SOURCES)
}

fn compare(sources: &BTreeMap<String, String>, table: &str, message_sources: &[(&str, &[&str])]) -> Vec<String> {
    let (pairs, mut problems) = parse_table(table);
    let mut needed: BTreeMap<String, String> = BTreeMap::new();
    let mut all: BTreeSet<String> = BTreeSet::new();
    for (file, text) in sources.iter().filter(|(file, _)| file.starts_with("src/") && !is_test_file(file)) {
        let Ok(tokens) = text.parse::<TokenStream>() else { continue };
        let mut reader = LiteralReader { found: Vec::new(), not_literal: 0 };
        reader.walk(tokens, &[]);
        if reader.not_literal > 0 && file != MECHANISM_FILE {
            problems.push(format!("{file}: `tr` and `tr_fill` take a literal, so that this test finds it"));
        }
        let names = message_sources.iter().filter(|(path, _)| file.starts_with(path)).map(|(_, names)| *names).collect::<Vec<_>>();
        let has_labels = LABEL_ROOMS.iter().any(|room| file.starts_with(room));
        for literal in reader.found {
            let listed = |names: &&[&str]| names.is_empty() || literal.enclosing.iter().any(|name| names.contains(&name.as_str()));
            let texts = match literal.use_kind {
                LiteralUse::Translated => vec![literal.value.clone()],
                LiteralUse::Noun => vec![format!("{{#}} {}", literal.value), format!("{{#}} {}", plural(&literal.value))],
                LiteralUse::Other if names.iter().any(listed) => {
                    let texts = messages(&literal.value).map(|text| match pairs.contains_key(&text) {
                        true => text,
                        false => without_label(&text).to_owned(),
                    });
                    texts.filter(|text| is_message(text) || has_labels && is_label(text)).collect()
                }
                LiteralUse::Other => Vec::new(),
            };
            all.extend(messages(&literal.value).flat_map(|text| [without_label(&text).to_owned(), text]));
            all.extend(texts.iter().cloned());
            needed.extend(texts.into_iter().filter(|text| !NO_TEXTS.contains(&text.as_str())).map(|text| (text, file.clone())));
        }
    }
    problems
        .extend(needed.iter().filter(|(text, _)| !pairs.contains_key(*text)).map(|(text, file)| format!("{file}: no pair for {text:?}")));
    problems.extend(pairs.keys().filter(|text| !all.contains(*text)).map(|text| format!("{TABLE_FILE}: no code has the text {text:?}")));
    problems
}

fn is_test_file(file: &str) -> bool {
    file.ends_with("tests.rs") || file.contains("/tests/") || TEST_FILES.iter().any(|start| file.starts_with(start))
}

/// The form that `count_noun` uses.
fn plural(noun: &str) -> String {
    let end = if ["s", "x", "ch", "sh"].iter().any(|end| noun.ends_with(end)) { "es" } else { "s" };
    format!("{noun}{end}")
}

/// A message and its remedy are translated separately, also where the remedy is on a line of its own.
fn messages(literal: &str) -> impl Iterator<Item = String> {
    let text = without_names(literal);
    let lines = text.split("\n    ").flat_map(|line| line.split("; help: "));
    lines.map(str::to_owned).collect::<Vec<_>>().into_iter()
}

/// Without the indentation and the label that `Lang::lines` translates by themselves.
fn without_label(line: &str) -> &str {
    let text = if line.starts_with("  ") { line.trim_start() } else { line };
    ["help: ", "warning: ", "error: "].iter().find_map(|label| text.strip_prefix(label)).unwrap_or(text)
}

fn word_count(text: &str) -> usize {
    text.split(|c: char| !c.is_ascii_alphabetic()).filter(|word| word.len() > 1).count()
}

/// Several words, or a word with a placeholder: neither a key nor a format.
fn is_message(text: &str) -> bool {
    let is_pattern = ["\\\\", "\\b", "[-_]", "[= ]", "[\"']"].iter().any(|part| text.contains(part)) && !text.starts_with("write");
    !is_pattern && text.contains(' ') && !text.contains('\n') && (word_count(text) > 1 || word_count(text) == 1 && text.contains("{}"))
}

/// A single word with a capital first letter: `FAILED`, `Overview`.
fn is_label(text: &str) -> bool {
    word_count(text) == 1 && text.starts_with(|c: char| c.is_ascii_uppercase()) && text.bytes().all(|b| b.is_ascii_alphabetic())
}

/// A format string with `{}` for every placeholder, and unescaped braces.
fn without_names(literal: &str) -> String {
    let (mut out, mut rest) = (String::new(), literal);
    while let Some(c) = rest.chars().next() {
        let pair = ["{{", "}}"].iter().find(|pair| rest.starts_with(**pair));
        let hole = rest.strip_prefix('{').and_then(|inside| inside.split_once('}')).filter(|(inside, _)| {
            let name = inside.split(':').next().unwrap_or_default();
            name.bytes().all(|b| b.is_ascii_alphanumeric() || b"_.".contains(&b))
        });
        if let Some(pair) = pair {
            out.push_str(&pair[1..]);
            rest = &rest[pair.len()..];
        } else if let Some((_, tail)) = hole {
            out.push_str("{}");
            rest = tail;
        } else {
            out.push(c);
            rest = &rest[c.len_utf8()..];
        }
    }
    out
}

/// The entries, and the problems of their lines.
fn parse_table(table: &str) -> (BTreeMap<String, String>, Vec<String>) {
    let (mut pairs, mut problems, mut open) = (BTreeMap::new(), Vec::new(), None::<String>);
    let text = |line: &str, keyword: &str| {
        let literal = line.strip_prefix(keyword)?;
        syn::parse_str::<syn::LitStr>(literal).ok().map(|literal| literal.value())
    };
    for (number, line) in (1..).zip(table.lines()) {
        let mut problem = |what: &str| problems.push(format!("{TABLE_FILE}:{number}: {what}"));
        match (open.take(), text(line, "msgid "), text(line, "msgstr ")) {
            (None, Some(english), None) => open = Some(english),
            (Some(english), None, Some(chinese)) if english.is_empty() => drop(chinese),
            (Some(english), None, Some(chinese)) => {
                if chinese.is_empty() || chinese == english {
                    problem("the translation is missing");
                }
                if pairs.insert(english, chinese).is_some() {
                    problem("this text has a pair already");
                }
            }
            (None, None, None) if line.is_empty() || line.starts_with(['#', '"']) => {}
            _ => problem("write msgid \"…\" and msgstr \"…\", each on one line"),
        }
    }
    (pairs, problems)
}

struct LiteralReader {
    found: Vec<FoundLiteral>,
    /// Calls of `tr` without a literal.
    not_literal: usize,
}

impl LiteralReader {
    fn walk(&mut self, tokens: TokenStream, enclosing: &[String]) {
        let tokens: Vec<TokenTree> = tokens.into_iter().collect();
        let mut names = enclosing.to_vec();
        let mut at = 0;
        while let Some(token) = tokens.get(at) {
            at += 1;
            match token {
                TokenTree::Punct(punct) if punct.as_char() == '#' => at = self.skip_attribute(&tokens, at, &names),
                TokenTree::Punct(punct) if punct.as_char() == ';' => names.truncate(enclosing.len()),
                // Logs of the program itself are English.
                TokenTree::Ident(ident) if ident == "tracing" => {
                    let group = tokens[at..].iter().take(MAX_MACRO_PATH).position(|token| matches!(token, TokenTree::Group(_)));
                    at += group.map_or(0, |group| group + 1);
                }
                TokenTree::Ident(ident) => {
                    let name = ident.to_string();
                    if let ("fn" | "const" | "static", Some(TokenTree::Ident(defined))) = (name.as_str(), tokens.get(at)) {
                        names.truncate(enclosing.len());
                        names.push(defined.to_string());
                    } else if let Some(TokenTree::Group(group)) = tokens.get(at).filter(|next| is_call(next)) {
                        self.read_call(&name, group, &names);
                        at += 1;
                    }
                }
                TokenTree::Group(group) => {
                    self.walk(group.stream(), &names);
                    if group.delimiter() == Delimiter::Brace {
                        names.truncate(enclosing.len());
                    }
                }
                TokenTree::Literal(_) => self.add(token, &names, LiteralUse::Other),
                TokenTree::Punct(_) => {}
            }
        }
    }

    /// The arguments of a call; in some calls the first one, or the noun, is special.
    fn read_call(&mut self, name: &str, group: &Group, enclosing: &[String]) {
        let arguments: Vec<TokenTree> = group.stream().into_iter().collect();
        match name {
            "tr" | "tr_fill" => match arguments.first().filter(|first| string_value(first).is_some()) {
                Some(first) => self.add(first, enclosing, LiteralUse::Translated),
                None => self.not_literal += 1,
            },
            // Of an internal error.
            "context" | "with_context" => return,
            "count_noun" | "count" => arguments.iter().for_each(|argument| self.add(argument, enclosing, LiteralUse::Noun)),
            // Help and hint of a key binding, after its key names.
            "binding" => {
                let texts = arguments.iter().filter(|argument| string_value(argument).is_some_and(|text| !text.is_empty()));
                texts.for_each(|text| self.add(text, enclosing, LiteralUse::Translated));
            }
            _ => return self.walk(group.stream(), enclosing),
        }
        for nested in arguments.iter().skip(1) {
            if let TokenTree::Group(group) = nested {
                self.walk(group.stream(), enclosing);
            }
        }
    }

    fn add(&mut self, token: &TokenTree, enclosing: &[String], use_kind: LiteralUse) {
        if let Some(value) = string_value(token) {
            self.found.push(FoundLiteral { enclosing: enclosing.to_vec(), value, use_kind });
        }
    }

    /// The position to continue at after an attribute: after the item if it is for tests only.
    fn skip_attribute(&mut self, tokens: &[TokenTree], from: usize, enclosing: &[String]) -> usize {
        let bracket = (from..tokens.len().min(from + 2)).find(|at| matches!(&tokens[*at], TokenTree::Group(_)));
        let Some(at) = bracket else { return from };
        if let TokenTree::Group(group) = &tokens[at]
            && group.to_string().trim_start_matches(['[', ' ']).starts_with("error")
        {
            // The message of an error type.
            self.walk(group.stream(), enclosing);
        }
        let test_only = tokens[at].to_string().replace(' ', "") == "[cfg(test)]";
        let ends = |token: &TokenTree| match token {
            TokenTree::Group(group) => group.delimiter() == Delimiter::Brace,
            TokenTree::Punct(punct) => punct.as_char() == ';',
            TokenTree::Ident(_) | TokenTree::Literal(_) => false,
        };
        let end = tokens[at + 1..].iter().position(ends).filter(|_| test_only).map_or(0, |item| item + 1);
        at + 1 + end
    }
}

fn is_call(token: &TokenTree) -> bool {
    matches!(token, TokenTree::Group(group) if group.delimiter() == Delimiter::Parenthesis)
}

fn string_value(token: &TokenTree) -> Option<String> {
    let TokenTree::Literal(literal) = token else { return None };
    syn::parse_str::<syn::LitStr>(&literal.to_string()).ok().map(|text| text.value())
}

#[test]
fn deliberate_gaps_are_found() {
    let code = r#"
        //! no text at all
        fn shown(lang: Lang, n: usize) -> String {
            let text = lang.tr("has a pair");
            format!("{text} {}", lang.tr_fill("{} has none", &[&count_noun(n, "host")]))
        }
        fn composed(name: &str) -> String { format!("the host {name:<9} was {{lost}}") }
        fn other() -> &'static str { "not a message" }
        #[cfg(test)]
        mod tests { fn t() { lang.tr("of a test"); } }
    "#;
    let table = "# pairs\nmsgid \"has a pair\"\nmsgstr \"有\"\n\nmsgid \"of nothing\"\nmsgstr \"无\"\n";
    let sources = BTreeMap::from([("src/a.rs".to_owned(), code.to_owned())]);
    assert_eq!(
        compare(&sources, table, &[("src/a.rs", &["composed"])]),
        [
            "src/a.rs: no pair for \"the host {} was {lost}\"",
            "src/a.rs: no pair for \"{#} host\"",
            "src/a.rs: no pair for \"{#} hosts\"",
            "src/a.rs: no pair for \"{} has none\"",
            "assets/zh.po: no code has the text \"of nothing\"",
        ]
    );
    let variable = BTreeMap::from([("src/a.rs".to_owned(), "fn f() { lang.tr(label); }".to_owned())]);
    assert_eq!(compare(&variable, "", &[]), ["src/a.rs: `tr` and `tr_fill` take a literal, so that this test finds it"]);
    assert_eq!(parse_table("msgid \"a\"\nmsgid \"b\"\n").1.len(), 1);
    assert_eq!(parse_table("msgid \"a\"\nmsgstr \"\"\n").1, ["assets/zh.po:2: the translation is missing"]);
}
