//! Holds the house together: floors, forbidden pairs, one door a crate, pure ground floor, files of a size that can be read.
//!
//! Reads the sources as text, without comments and strings, so that it needs no tool beside the compiler.
#![expect(clippy::disallowed_methods, reason = "reads the sources")]

use std::collections::BTreeSet;
use std::fs;
use std::io;
use std::path::{Path, PathBuf};

/// Ground to roof: a room may use those before it.
const FLOORS: [&str; 13] =
    ["shell", "inventory", "gpu", "plan", "event", "state", "diagnose", "remote", "sandbox", "engine", "report", "tui", "cli"];
/// Forbidden although earlier.
const FORBIDDEN: [(&str, &str); 7] = [
    ("tui", "engine"),
    ("tui", "remote"),
    ("tui", "sandbox"),
    ("report", "engine"),
    ("report", "remote"),
    ("engine", "diagnose"),
    ("sandbox", "plan"),
];
/// Foreign crates and the files that may name them, by the beginning of their path.
const DOORS: [(&str, &[&str]); 11] = [
    ("russh", &["remote/", "sandbox/server"]),
    ("ratatui", &["tui/"]),
    ("crossterm", &["tui/"]),
    ("indicatif", &["report/bar"]),
    ("serde_yaml", &["inventory/raw", "sandbox/scenario"]),
    ("saphyr_parser", &["inventory/raw", "sandbox/scenario"]),
    ("minijinja", &["inventory/"]),
    ("toml", &["cli/config"]),
    ("clap", &["cli/"]),
    ("clap_complete", &["cli/"]),
    ("rpassword", &["cli/", "remote/auth"]),
];
/// The files that may write to the terminal. Each cleans what it writes, or draws from cleaned text, or carries an interactive shell;
/// the last one is a test.
const TERMINAL: [&str; 9] = [
    "report/terminal.rs",
    "report/outlet.rs",
    "report/bar.rs",
    "tui/screen.rs",
    "tui/run.rs",
    "cli/talk.rs",
    "cli/relay.rs",
    "cli/laptop.rs",
    "remote/ssh_config/against_ssh.rs",
];
/// What merely asks about a stream.
const ASKS: [&str; 3] = ["io::stdout().is_terminal()", "io::stderr().is_terminal()", "tcgetwinsize(io::stdout())"];
/// The rooms that only compute, and what they may therefore not name.
const GROUND: usize = 7;
const EFFECTS: [&str; 13] = [
    "tokio",
    "std::fs",
    "TcpStream",
    "TcpListener",
    "UdpSocket",
    "ToSocketAddrs",
    "std::process",
    "std::env::var",
    "std::io::stdout",
    "std::io::stderr",
    "Instant::now",
    "SystemTime::now",
    "std::thread",
];
const MAX_LINES: usize = 600;

struct Source {
    /// `report/line.rs`, beneath `src`.
    path: String,
    /// As it is.
    raw: String,
    /// Without comments and strings.
    code: String,
}

impl Source {
    fn new(path: &str, raw: &str) -> Self {
        Source { path: path.to_owned(), raw: raw.to_owned(), code: bare(raw) }
    }

    fn room(&self) -> &str {
        let first = self.path.split('/').next().unwrap_or("");
        first.strip_suffix(".rs").unwrap_or(first)
    }

    /// The code that is not test code, as far as a text can tell.
    fn living(&self) -> &str {
        let tests = ["tests.rs", "scene.rs"].iter().any(|end| self.path.ends_with(end));
        if tests { "" } else { self.code.split("#[cfg(test)]").next().unwrap_or("") }
    }
}

/// Blanks comments, strings and characters; lines stay.
fn bare(raw: &str) -> String {
    let chars: Vec<char> = raw.chars().collect();
    let at = |i: usize| chars.get(i).copied().unwrap_or('\0');
    let mut out = String::with_capacity(raw.len());
    let mut i = 0;
    while i < chars.len() {
        let word_before = i > 0 && (at(i - 1).is_alphanumeric() || at(i - 1) == '_');
        let end = match (at(i), at(i + 1)) {
            ('/', '/') => (i..chars.len()).find(|j| at(*j) == '\n').unwrap_or(chars.len()),
            ('/', '*') => block_comment(&chars, i),
            ('r', '"' | '#') if !word_before => raw_string(&chars, i + 1).unwrap_or(i),
            ('b', 'r') if !word_before && matches!(at(i + 2), '"' | '#') => raw_string(&chars, i + 2).unwrap_or(i),
            ('"', _) => string(&chars, i),
            ('\'', '\\') => (i + 3..chars.len()).find(|j| at(*j) == '\'').map_or(chars.len(), |j| j + 1),
            ('\'', _) if at(i + 2) == '\'' => i + 3,
            _ => i,
        };
        if end == i {
            out.push(at(i));
            i += 1;
        } else {
            out.extend(chars[i..end].iter().map(|c| if *c == '\n' { '\n' } else { ' ' }));
            i = end;
        }
    }
    out
}

fn block_comment(chars: &[char], start: usize) -> usize {
    let mut depth = 0;
    let mut i = start;
    while i + 1 < chars.len() {
        match (chars[i], chars[i + 1]) {
            ('/', '*') => (depth, i) = (depth + 1, i + 2),
            ('*', '/') => (depth, i) = (depth - 1, i + 2),
            _ => i += 1,
        }
        if depth == 0 {
            return i;
        }
    }
    chars.len()
}

fn string(chars: &[char], start: usize) -> usize {
    let mut i = start + 1;
    while i < chars.len() {
        match chars[i] {
            '\\' => i += 2,
            '"' => return i + 1,
            _ => i += 1,
        }
    }
    chars.len()
}

fn raw_string(chars: &[char], hashes_at: usize) -> Option<usize> {
    let hashes = chars[hashes_at..].iter().take_while(|c| **c == '#').count();
    if chars.get(hashes_at + hashes) != Some(&'"') {
        return None;
    }
    let mut close = vec!['"'];
    close.extend(std::iter::repeat_n('#', hashes));
    let body = hashes_at + hashes + 1;
    (body..chars.len()).find(|j| chars[*j..].starts_with(&close)).map(|j| j + close.len())
}

/// Every path in the code: its segments, and for a group the first segment of each member.
fn mentions<'a>(code: &'a str, root: &str) -> Vec<&'a str> {
    let mut found = Vec::new();
    for (at, _) in code.match_indices(root) {
        let before = code[..at].chars().next_back();
        if before.is_some_and(|c| c.is_alphanumeric() || c == '_' || c == ':') {
            continue;
        }
        let Some(rest) = code[at + root.len()..].trim_start().strip_prefix("::") else { continue };
        let rest = rest.trim_start();
        match rest.strip_prefix('{') {
            Some(group) => found.extend(members(group)),
            None => found.push(word(rest)),
        }
    }
    found
}

/// The first segments of `a::b, c::{d, e}, f}`.
fn members(group: &str) -> Vec<&str> {
    let mut found = Vec::new();
    let mut depth = 0;
    let mut fresh = true;
    for (at, c) in group.char_indices() {
        match c {
            '{' => depth += 1,
            '}' if depth == 0 => break,
            '}' => depth -= 1,
            ',' if depth == 0 => fresh = true,
            c if fresh && depth == 0 && !c.is_whitespace() => {
                found.push(word(&group[at..]));
                fresh = false;
            }
            _ => {}
        }
    }
    found
}

fn word(text: &str) -> &str {
    let text = text.strip_prefix("r#").unwrap_or(text);
    &text[..text.find(|c: char| !c.is_alphanumeric() && c != '_').unwrap_or(text.len())]
}

/// Rooms that a file uses, by `crate::`, `orchestrate::` or enough `super::`.
fn rooms_used(source: &Source) -> BTreeSet<&str> {
    let mut used: BTreeSet<&str> = mentions(&source.code, "crate").into_iter().collect();
    used.extend(mentions(&source.code, "orchestrate"));
    let depth = source.path.matches('/').count() + usize::from(!source.path.ends_with("mod.rs"));
    let climb = vec!["super"; depth].join("::");
    used.extend(mentions(&source.code, &climb));
    used.extend(mentions(&source.code, &format!("super::{climb}")));
    used.retain(|room| FLOORS.contains(room) && *room != source.room());
    used
}

fn floor_problems(source: &Source) -> Vec<String> {
    let room = source.room();
    let Some(floor) = FLOORS.iter().position(|name| *name == room) else {
        let fine = matches!(source.path.as_str(), "lib.rs" | "main.rs");
        return if fine { Vec::new() } else { vec![format!("{}: {room} is no room of the house", source.path)] };
    };
    let tell = |used: &str| {
        let upward = FLOORS.iter().position(|name| *name == used).is_some_and(|other| other > floor);
        let forbidden = FORBIDDEN.contains(&(room, used));
        (upward || forbidden).then(|| format!("{}: {room} may not use {used}", source.path))
    };
    rooms_used(source).into_iter().filter_map(tell).collect()
}

fn door_problems(source: &Source) -> Vec<String> {
    let named = |name: &str| {
        let import = format!("use {name}");
        let imported = source.code.match_indices(&import).any(|(at, _)| word(&source.code[at + 4..]) == name);
        imported || !mentions(&source.code, name).is_empty()
    };
    // A module of ours may bear a crate's name; a path into a crate does not follow `crate::` or `super::`.
    let closed = |files: &&[&str]| !files.iter().any(|start| source.path.starts_with(start));
    DOORS
        .iter()
        .filter(|(name, files)| closed(files) && named(name))
        .map(|(name, files)| format!("{}: {name} has its door in {}", source.path, files.join(" and ")))
        .collect()
}

fn purity_problems(source: &Source) -> Vec<String> {
    if !FLOORS[..GROUND].contains(&source.room()) {
        return Vec::new();
    }
    let code = source.living();
    let fence = code.contains("clippy::disallowed_methods").then_some("an effect");
    let named = EFFECTS.iter().copied().filter(|effect| {
        code.match_indices(effect).any(|(at, _)| !code[..at].ends_with(|c: char| c.is_alphanumeric() || c == '_' || c == ':'))
    });
    named.chain(fence).map(|effect| format!("{}: the ground floor only computes, this names {effect}", source.path)).collect()
}

fn shape_problems(source: &Source) -> Vec<String> {
    let mut problems = Vec::new();
    let lines = source.raw.lines().count();
    if lines > MAX_LINES {
        problems.push(format!("{}: {lines} lines, at most {MAX_LINES}", source.path));
    }
    let opening = source.raw.lines().find(|line| !line.starts_with("#![")).unwrap_or("");
    if !opening.starts_with("//!") && source.path != "main.rs" {
        problems.push(format!("{}: does not open with what it is for (//!)", source.path));
    }
    if source.code.contains("#[allow") || source.code.contains("#![allow") {
        problems.push(format!("{}: say #[expect(…, reason = …)] instead of allow", source.path));
    }
    problems
}

/// The simulated hosts have no terminal of a person.
fn terminal_problems(source: &Source) -> Vec<String> {
    if TERMINAL.contains(&source.path.as_str()) || source.room() == "sandbox" {
        return Vec::new();
    }
    let code = ASKS.iter().fold(source.living().to_owned(), |code, asks| code.replace(asks, ""));
    let named = ["io::stdout", "io::stderr"].into_iter().find(|name| code.contains(name));
    named.map(|name| format!("{}: writes past the doors to the terminal: {name}", source.path)).into_iter().collect()
}

fn problems(source: &Source) -> Vec<String> {
    [floor_problems, door_problems, purity_problems, terminal_problems, shape_problems].iter().flat_map(|check| check(source)).collect()
}

fn sources() -> io::Result<Vec<Source>> {
    let root = Path::new(env!("CARGO_MANIFEST_DIR")).join("src");
    let mut waiting: Vec<PathBuf> = vec![root.clone()];
    let mut found = Vec::new();
    while let Some(dir) = waiting.pop() {
        for entry in fs::read_dir(&dir)? {
            let path = entry?.path();
            if path.is_dir() {
                waiting.push(path);
            } else if path.extension().is_some_and(|end| end == "rs") {
                let name = path.strip_prefix(&root).unwrap_or(&path).to_string_lossy().into_owned();
                found.push(Source::new(&name, &fs::read_to_string(&path)?));
            }
        }
    }
    found.sort_by(|a, b| a.path.cmp(&b.path));
    Ok(found)
}

#[test]
fn the_house_stands() {
    let sources = sources().expect("readable sources");
    assert!(sources.len() > FLOORS.len(), "the sources were found");
    let problems: Vec<String> = sources.iter().flat_map(problems).collect();
    assert!(problems.is_empty(), "\n{}\n", problems.join("\n"));
}

#[test]
fn every_room_is_in_the_map() {
    let lib = sources().expect("readable sources").into_iter().find(|source| source.path == "lib.rs").expect("a lib.rs");
    let named: BTreeSet<&str> = lib.code.lines().filter_map(|line| line.trim().strip_prefix("pub mod ")).map(word).collect();
    let built: BTreeSet<String> = sources().expect("readable sources").iter().map(|source| source.room().to_owned()).collect();
    let built: BTreeSet<&str> =
        built.iter().map(String::as_str).filter(|room| !matches!(*room, "lib" | "main" | "lib.rs" | "main.rs")).collect();
    assert_eq!(named, built);
    assert!(named.iter().all(|room| FLOORS.contains(room)), "{named:?}");
}

#[test]
fn tests_are_of_a_size_too() {
    let dir = Path::new(env!("CARGO_MANIFEST_DIR")).join("tests");
    for entry in fs::read_dir(dir).expect("a folder") {
        let path = entry.expect("an entry").path();
        if path.extension().is_some_and(|end| end == "rs") {
            let lines = fs::read_to_string(&path).expect("UTF-8").lines().count();
            assert!(lines <= MAX_LINES, "{}: {lines} lines", path.display());
        }
    }
}

/// The rules catch what they are for: each of these is one problem.
#[test]
fn deliberate_violations_are_caught() {
    let long = "//! Long.\n".repeat(MAX_LINES + 1);
    for (path, code, expected) in [
        ("state/mod.rs", "use crate::report::line;", "state may not use report"),
        ("state/a.rs", "use crate::{event, remote::{ssh, x}};", "state may not use remote"),
        ("shell.rs", "fn f() { crate::cli::run() }", "shell may not use cli"),
        ("report/bar.rs", "use crate::\n    engine::run;", "report may not use engine"),
        ("tui/mod.rs", "use super::engine::run;", "tui may not use engine"),
        ("tui/view/a.rs", "use super::super::super::remote::x;", "tui may not use remote"),
        ("sandbox/docker.rs", "use crate::plan;", "sandbox may not use plan"),
        ("engine/mod.rs", "use crate::{shell, diagnose};", "engine may not use diagnose"),
        ("cellar/mod.rs", "", "no room of the house"),
        ("engine/mod.rs", "use russh::client;", "russh has its door"),
        ("cli/mod.rs", "let x = indicatif::ProgressBar::new(1);", "indicatif has its door"),
        ("inventory/check.rs", "use serde_yaml as y;", "serde_yaml has its door"),
        ("plan/build.rs", "use std::fs;", "only computes, this names std::fs"),
        ("state/mod.rs", "let now = Instant::now();", "only computes, this names Instant::now"),
        ("engine/a.rs", "#[allow(dead_code)] fn f() {}", "instead of allow"),
        ("cli/ps.rs", "fn f() { std::io::stdout().write_all(x) }", "past the doors"),
        ("tui/a.rs", "use std::io::stderr;", "past the doors"),
    ] {
        let found = problems(&Source::new(path, &format!("//! A room.\n{code}\n")));
        assert_eq!(found.len(), 1, "{path}: {code}: {found:?}");
        assert!(found[0].contains(expected), "{found:?}");
    }
    assert!(problems(&Source::new("cli/mod.rs", &long))[0].contains("lines, at most"));
    assert!(problems(&Source::new("cli/mod.rs", "use std::io;\n"))[0].contains("does not open"));
}

#[test]
fn what_is_allowed_is_not_caught() {
    for (path, code) in [
        (
            "state/mod.rs",
            "// use crate::report;\n/* crate::cli /* nested */ crate::tui */ let s = \"crate::engine\"; let r = r#\"crate::\"cli\"#;",
        ),
        ("report/line.rs", "use crate::{event::Event, state::RunState}; use super::words; let c = '\"'; fn f<'a>(x: &'a str) {}"),
        ("report/mod.rs", "use crate::report::line; pub mod line;"),
        ("remote/ssh/client.rs", "use russh::client; use crate::shell::Command;"),
        ("sandbox/server.rs", "use russh::server;"),
        ("main.rs", "fn main() { orchestrate::cli::main() }"),
        ("plan/mod.rs", "fn f() {}\n#[cfg(test)]\nmod tests { use std::fs; }"),
        ("cli/mod.rs", "#![expect(clippy::disallowed_methods, reason = \"x\")]\nuse crate::engine; use clap::Parser;"),
    ] {
        assert_eq!(problems(&Source::new(path, &format!("//! A room.\n{code}\n"))), Vec::<String>::new(), "{path}");
    }
}
