//! `ps`: what runs where, read from the hosts.

use std::fmt::Write as _;

use crate::cli::args::{HostArgs, Progress};
use crate::cli::desk::Faces;
use crate::cli::exit::Failure;
use crate::cli::laptop::{known_secrets, print, print_json};
use crate::cli::session::{Need, Session, inventory};
use crate::event::{Exit, Outcome};
use crate::plan::facts::HostFacts;
use crate::plan::situation::{Part, is_hidden, part};
use crate::report::loglines::Logs;

/// Runs it.
///
/// # Errors
/// What must be said to the person.
pub async fn run(args: &HostArgs) -> Result<Outcome, Failure> {
    let (inventory, base) = inventory(args, Need::Connection)?;
    let secrets = known_secrets(&inventory);
    let faces = Faces { progress: Progress::Quiet, logs: Logs::None, data: false };
    let session = Session::open("ps", args, inventory, base, faces, &secrets)?;
    let answers = session.gather(None).await;
    let mut rows = vec![["HOST", "RUN", "LAUNCHER", "RANKS", "CONTAINER", "OWNER"].map(str::to_owned)];
    let mut outcome = Outcome::Ok;
    for (host, answer) in session.names().into_iter().zip(answers) {
        match answer {
            Ok(facts) => rows.push(row(host, &facts, session.desk.cleaner())),
            Err(error) => {
                outcome = Outcome::Unreachable;
                let dash = || "-".to_owned();
                let why = session.desk.cleaner().line(&format!("unreachable: {error}"));
                rows.push([host, why, dash(), dash(), dash(), dash()]);
            }
        }
    }
    if args.progress == Progress::Json {
        let lines = rows.iter().skip(1).map(|r| {
            serde_json::json!({ "host": r[0], "run": r[1], "launcher": r[2], "ranks": r[3], "container": r[4], "owner": r[5] }).to_string()
        });
        print_json(&lines.fold(String::new(), |text, line| text + &line + "\n"));
    } else {
        print(&table(&rows));
    }
    session.engine.close().await;
    Ok(outcome)
}

fn row(host: String, facts: &HostFacts, cleaner: &crate::report::sanitize::Cleaner) -> [String; 6] {
    let run = facts.current.clone().unwrap_or_else(|| "-".to_owned());
    let launcher = match part(facts) {
        Part::None => "-".to_owned(),
        Part::Written => "not started".to_owned(),
        Part::Running if facts.contained(true) && is_hidden(facts) => "unknown: docker does not answer".to_owned(),
        Part::Running => "running".to_owned(),
        Part::Ended(exit) => format!("ended: {exit}"),
    };
    let running = facts.ranks.iter().filter(|(_, _, exit)| exit.is_none()).count();
    let failed = facts.ranks.iter().filter(|(_, _, exit)| exit.is_some_and(|(e, _): (Exit, f64)| !e.ok())).count();
    let ended = facts.ranks.len() - running - failed;
    let parts = [(running, "running"), (ended, "ok"), (failed, "failed")];
    let ranks: Vec<String> = parts.iter().filter(|(n, _)| *n > 0).map(|(n, word)| format!("{n} {word}")).collect();
    let container = facts.container().map_or_else(
        || if facts.keeper.is_some() { "keeper".to_owned() } else { "-".to_owned() },
        |c| if c.oom { format!("{} (out of memory)", c.status) } else { c.status.clone() },
    );
    let owner = facts.run_file().map_or_else(|| "-".to_owned(), |f| f.owner.clone());
    let ranks = if ranks.is_empty() { "-".to_owned() } else { ranks.join(", ") };
    [host, run, launcher, ranks, container, owner].map(|cell| cleaner.line(&cell))
}

/// Columns as wide as their widest cell, the last one open.
pub fn table<const N: usize>(rows: &[[String; N]]) -> String {
    let widths: Vec<usize> =
        (0..N).map(|i| rows.iter().map(|r| unicode_width::UnicodeWidthStr::width(r[i].as_str())).max().unwrap_or(0)).collect();
    let mut text = String::new();
    for row in rows {
        let mut line = String::new();
        for (cell, width) in row.iter().zip(&widths) {
            let pad = width.saturating_sub(unicode_width::UnicodeWidthStr::width(cell.as_str()));
            // Writing to a String cannot fail.
            if write!(line, "{cell}{}  ", " ".repeat(pad)).is_err() {
                return text;
            }
        }
        text.push_str(line.trim_end());
        text.push('\n');
    }
    text
}
