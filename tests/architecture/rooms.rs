//! Floors, forbidden pairs, doors of foreign crates, the ground floor that only computes, the files that may write to the terminal.

use std::collections::BTreeSet;

use crate::names::{Crate, Named, Target};
use crate::syntax::Kind;

/// Ground to roof: a room may use those before it.
pub(crate) const FLOORS: [&str; 13] =
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
/// The files that may write to the terminal. Each cleans what it writes, or draws from cleaned text, or carries an interactive shell.
/// The simulated hosts have no terminal of a person.
const TERMINAL: [&str; 9] = [
    "report/terminal.rs",
    "report/outlet.rs",
    "report/bar.rs",
    "tui/screen.rs",
    "tui/run.rs",
    "cli/talk.rs",
    "cli/relay.rs",
    "cli/laptop.rs",
    "sandbox/",
];
const STREAMS: [&str; 2] = ["std::io::stdout", "std::io::stderr"];
/// The rooms that only compute, and what they may therefore not name. The last one is a silenced lint about an effect.
const GROUND: usize = 7;
const EFFECTS: [&str; 15] = [
    "tokio",
    "std::fs",
    "std::net::TcpStream",
    "std::net::TcpListener",
    "std::net::UdpSocket",
    "std::net::ToSocketAddrs",
    "std::process",
    "std::env::var",
    "std::env::var_os",
    "std::io::stdout",
    "std::io::stderr",
    "std::time::Instant::now",
    "std::time::SystemTime::now",
    "std::thread",
    "clippy::disallowed_methods",
];

/// `report` of `src/report/line.rs`.
fn room(file: &str) -> &str {
    let first = beneath(file).split('/').next().unwrap_or("");
    first.strip_suffix(".rs").unwrap_or(first)
}

fn beneath(file: &str) -> &str {
    file.strip_prefix("src/").unwrap_or(file)
}

pub(crate) fn problems(krate: &Crate) -> Vec<String> {
    let unknown = krate.files.keys().filter(|file| file.starts_with("src/"));
    let unknown = unknown.filter(|file| !FLOORS.contains(&room(file)) && !matches!(file.as_str(), "src/lib.rs" | "src/main.rs"));
    let mut found: BTreeSet<String> = unknown.map(|file| format!("{file}: {} is no room of the house", room(file))).collect();
    for named in krate.named() {
        let judged = [floor(&named), door(&named), effect(&named), terminal(&named)];
        found.extend(judged.into_iter().flatten().map(|problem| format!("{}:{}: {problem}", named.file, named.line)));
    }
    found.into_iter().collect()
}

fn floor(named: &Named<'_>) -> Option<String> {
    let own = room(named.file);
    let floor = FLOORS.iter().position(|name| *name == own)?;
    let target = match &named.target {
        Some(Target::Item { file, .. } | Target::Module(file)) => Some(room(file)),
        Some(Target::Foreign(_)) | None => None,
    };
    let used = [target, named.through.as_deref()].into_iter().flatten().find(|used| {
        let upward = FLOORS.iter().position(|name| name == used).is_some_and(|other| other > floor);
        upward || FORBIDDEN.contains(&(own, used))
    })?;
    Some(format!("{own} may not use {used}"))
}

fn foreign(named: &Named<'_>) -> Option<String> {
    match &named.target {
        Some(Target::Foreign(path)) => Some(path.join("::")),
        _ => None,
    }
}

fn begins(path: &str, with: &str) -> bool {
    path.strip_prefix(with).is_some_and(|rest| rest.is_empty() || rest.starts_with("::"))
}

fn door(named: &Named<'_>) -> Option<String> {
    let path = foreign(named)?;
    let (name, files) = DOORS.iter().find(|(name, _)| begins(&path, name))?;
    let closed = !files.iter().any(|start| beneath(named.file).starts_with(start));
    closed.then(|| format!("{name} has its door in {}", files.join(" and ")))
}

fn effect(named: &Named<'_>) -> Option<String> {
    if named.test || !FLOORS[..GROUND].contains(&room(named.file)) {
        return None;
    }
    let path = foreign(named)?;
    let effect = EFFECTS.iter().find(|effect| begins(&path, effect))?;
    Some(format!("the ground floor only computes, this names {effect}"))
}

fn terminal(named: &Named<'_>) -> Option<String> {
    let open = TERMINAL.iter().any(|start| beneath(named.file).starts_with(start));
    if named.test || named.kind == Kind::Question || open {
        return None;
    }
    let path = foreign(named)?;
    let stream = STREAMS.iter().find(|stream| begins(&path, stream))?;
    Some(format!("writes past the doors to the terminal: {stream}"))
}
