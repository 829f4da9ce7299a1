//! Order of rooms, forbidden pairs, entries of foreign crates, rooms that only compute, files that may write to the terminal.

use std::collections::BTreeSet;

use crate::name_resolution::{Crate, NamedPath, ResolvedTarget};
use crate::syntax::ReferenceKind;

/// From the lowest to the highest: a room may use earlier ones.
pub(crate) const ROOM_ORDER: [&str; 17] = [
    "text",
    "model",
    "inventory",
    "plan",
    "preflight",
    "event",
    "state",
    "diagnose",
    "ssh_config",
    "remote",
    "transfer",
    "sandbox",
    "engine",
    "report",
    "tui",
    "lifecycle",
    "cli",
];
/// Forbidden pairs despite the order.
const FORBIDDEN_USES: [(&str, &str); 8] = [
    ("tui", "engine"),
    ("tui", "remote"),
    ("tui", "sandbox"),
    ("report", "engine"),
    ("report", "remote"),
    ("engine", "diagnose"),
    ("sandbox", "plan"),
    ("lifecycle", "tui"),
];
/// Foreign crates, and the files that may name them by the start of their path.
const CRATE_OWNERS: [(&str, &[&str]); 11] = [
    ("russh", &["remote/", "sandbox/server"]),
    ("ratatui", &["tui/"]),
    ("crossterm", &["tui/"]),
    ("indicatif", &["report/progress_bars"]),
    ("serde_yaml", &["inventory/yaml_parser", "sandbox/scenario"]),
    ("saphyr_parser", &["inventory/yaml_parser"]),
    ("minijinja", &["inventory/"]),
    ("toml", &["cli/dashboard_config"]),
    ("ignore", &["transfer/local_tree"]),
    ("clap", &["cli/"]),
    ("rpassword", &["cli/", "remote/auth"]),
];
/// The files that may write to the terminal. Each sanitizes its output, draws sanitized text, or carries an interactive shell.
/// The simulated hosts have no user's terminal.
const TERMINAL_WRITERS: [&str; 10] = [
    "report/safe_output.rs",
    "report/line_writer.rs",
    "report/progress_bars.rs",
    "tui/terminal.rs",
    "tui/event_loop.rs",
    "tui/frame_writer.rs",
    "cli/interactive.rs",
    "cli/passthrough.rs",
    "cli/local_env.rs",
    "sandbox/",
];
const STD_STREAMS: [&str; 2] = ["std::io::stdout", "std::io::stderr"];
/// The rooms that only compute, and the names they must not use. The last one is a silenced lint about an effect.
const PURE_ROOM_COUNT: usize = 8;
const FORBIDDEN_EFFECTS: [&str; 15] = [
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

/// `report` of `src/report/plain.rs`.
fn file_room(file: &str) -> &str {
    let first = strip_src_prefix(file).split('/').next().unwrap_or("");
    first.strip_suffix(".rs").unwrap_or(first)
}

fn strip_src_prefix(file: &str) -> &str {
    file.strip_prefix("src/").unwrap_or(file)
}

pub(crate) fn room_problems(krate: &Crate) -> Vec<String> {
    let unknown = krate.files.keys().filter(|file| file.starts_with("src/"));
    let unknown = unknown.filter(|file| !ROOM_ORDER.contains(&file_room(file)) && !matches!(file.as_str(), "src/lib.rs" | "src/main.rs"));
    let mut found: BTreeSet<String> = unknown.map(|file| format!("{file}: {} is no room of the house", file_room(file))).collect();
    for named in krate.named_paths() {
        let judged = [check_room_order(&named), check_crate_owner(&named), check_pure_room(&named), check_terminal_use(&named)];
        found.extend(judged.into_iter().flatten().map(|problem| format!("{}:{}: {problem}", named.file, named.line)));
    }
    found.into_iter().collect()
}

fn check_room_order(named: &NamedPath<'_>) -> Option<String> {
    let own = file_room(named.file);
    let floor = ROOM_ORDER.iter().position(|name| *name == own)?;
    let target = match &named.target {
        Some(ResolvedTarget::Item { file, .. } | ResolvedTarget::Module(file)) => Some(file_room(file)),
        Some(ResolvedTarget::ForeignPath(_)) | None => None,
    };
    let used = [target, named.via_room.as_deref()].into_iter().flatten().find(|used| {
        let upward = ROOM_ORDER.iter().position(|name| name == used).is_some_and(|other| other > floor);
        upward || FORBIDDEN_USES.contains(&(own, used))
    })?;
    Some(format!("{own} may not use {used}"))
}

fn foreign_path(named: &NamedPath<'_>) -> Option<String> {
    match &named.target {
        Some(ResolvedTarget::ForeignPath(path)) => Some(path.join("::")),
        _ => None,
    }
}

fn has_path_prefix(path: &str, with: &str) -> bool {
    path.strip_prefix(with).is_some_and(|rest| rest.is_empty() || rest.starts_with("::"))
}

fn check_crate_owner(named: &NamedPath<'_>) -> Option<String> {
    let path = foreign_path(named)?;
    let (name, files) = CRATE_OWNERS.iter().find(|(name, _)| has_path_prefix(&path, name))?;
    let closed = !files.iter().any(|start| strip_src_prefix(named.file).starts_with(start));
    closed.then(|| format!("{name} has its door in {}", files.join(" and ")))
}

fn check_pure_room(named: &NamedPath<'_>) -> Option<String> {
    if named.in_test || !ROOM_ORDER[..PURE_ROOM_COUNT].contains(&file_room(named.file)) {
        return None;
    }
    let path = foreign_path(named)?;
    let effect = FORBIDDEN_EFFECTS.iter().find(|effect| has_path_prefix(&path, effect))?;
    Some(format!("the ground floor only computes, this names {effect}"))
}

fn check_terminal_use(named: &NamedPath<'_>) -> Option<String> {
    let open = TERMINAL_WRITERS.iter().any(|start| strip_src_prefix(named.file).starts_with(start));
    if named.in_test || named.kind == ReferenceKind::StreamQuery || open {
        return None;
    }
    let path = foreign_path(named)?;
    let stream = STD_STREAMS.iter().find(|stream| has_path_prefix(&path, stream))?;
    Some(format!("writes to the terminal outside the listed files: {stream}"))
}
