//! `stacks`: where every rank stands, ranks at the same place folded. Reads the hosts and changes nothing; sends no signal.

use crate::cli::args::{Progress, StacksArgs};
use crate::cli::desk::Faces;
use crate::cli::exec::tell_unreached;
use crate::cli::exit::{Failure, worse};
use crate::cli::laptop::{known_secrets, print, print_json, say};
use crate::cli::session::{Need, Session, inventory};
use crate::event::Outcome;
use crate::plan::facts::HostFacts;
use crate::plan::stacks::{self, Group, Stand};
use crate::report::fold::{fold, numbers};
use crate::report::loglines::Logs;
use crate::report::words::{Role, count};

/// How many frames of a place are shown; all of them are in the JSON.
const FRAMES: usize = 24;

/// Runs it.
///
/// # Errors
/// What must be said to the person.
pub async fn run(args: &StacksArgs) -> Result<Outcome, Failure> {
    let (inventory, base) = inventory(&args.host, Need::Connection)?;
    let secrets = known_secrets(&inventory);
    let faces = Faces { progress: Progress::Quiet, logs: Logs::None, data: false };
    let session = Session::open("stacks", &args.host, inventory, base, faces, &secrets)?;
    let (mut outcome, mut lost, mut facts) = (Outcome::Ok, Vec::new(), Vec::new());
    for (name, answer) in session.names().into_iter().zip(session.gather(None).await) {
        facts.push(match answer {
            Ok(facts) => Some(facts),
            Err(error) => {
                outcome = Outcome::Unreachable;
                lost.push((name, error.to_string(), error.hint().to_owned()));
                None
            }
        });
    }
    let runs = |facts: &Option<HostFacts>| facts.as_ref().is_some_and(|facts| facts.current.is_some() && !facts.ranks.is_empty());
    let commands: Vec<_> = session
        .sites(&facts, None)
        .iter()
        .enumerate()
        .filter(|(at, _)| facts.get(*at).is_some_and(runs))
        .map(|(at, site)| (at, stacks::command(site)))
        .collect();
    let names = session.names();
    let (asked, mut found) = (commands.len(), Vec::new());
    let fan_out = session.engine.fan_out(commands, |at, answer| {
        let name = names.get(at).cloned().unwrap_or_default();
        match answer.map_err(|e| (e.to_string(), e.hint().to_owned(), Outcome::Unreachable)).and_then(|output| {
            let hint = format!("`{}` says whether its ranks still run", session.advise("ps", ""));
            stacks::read(&output).map_err(|said| (format!("its ranks could not be looked at: {said}"), hint, Outcome::Failed))
        }) {
            Ok(stands) => found.extend(stands.into_iter().map(|stand| (at, stand))),
            Err((what, hint, how)) => {
                outcome = worse(how, outcome.clone());
                lost.push((name, what, hint));
            }
        }
    });
    tokio::select! {
        () = fan_out => {}
        result = tokio::signal::ctrl_c() => {
            result.map_err(|e| Failure::Bug(e.into()))?;
            return Ok(Outcome::Signal(2));
        }
    }
    if args.json {
        print_json(&json(&session, &found));
    } else {
        print(&text(&session, &stacks::fold(found)));
    }
    if asked == 0 && lost.is_empty() {
        say(&format!("no rank of this name is on any host; `{}` shows what is there", session.advise("ps", "")));
    }
    tell_unreached(session.desk.cleaner(), session.desk.style(), lost);
    session.engine.close().await;
    Ok(outcome)
}

/// A line a rank, by rank.
fn json(session: &Session, found: &[(usize, Stand)]) -> String {
    let names = session.names();
    let mut all: Vec<&(usize, Stand)> = found.iter().collect();
    all.sort_by_key(|(_, stand)| stand.rank);
    let lines = all.into_iter().map(|(host, stand)| {
        let line = serde_json::json!({
            "rank": stand.rank, "host": names.get(*host), "restart": stand.restart, "pid": stand.pid, "how": stand.how,
            "command": stand.command, "state": stand.state, "threads": stand.threads, "stack": stand.place(), "lines": stand.lines,
            "handles_usr1": stand.handles_usr1, "note": stand.note,
        });
        session.desk.cleaner().json(line.to_string()) + "\n"
    });
    lines.collect()
}

fn text(session: &Session, groups: &[Group]) -> String {
    let (names, style, cleaner) = (session.names(), session.desk.style(), session.desk.cleaner());
    let mut lines = Vec::new();
    for group in groups {
        let ranks: Vec<u32> = group.members.iter().map(|(_, stand)| stand.rank).collect();
        let mut hosts: Vec<String> = group.members.iter().filter_map(|(host, _)| names.get(*host).cloned()).collect();
        hosts.sort();
        hosts.dedup();
        let word = if ranks.len() == 1 { "rank" } else { "ranks" };
        let title = format!("---- {word} {} on {} ({})", numbers(&ranks), cleaner.line(&fold(&hosts)), group.how);
        lines.push(style.paint(Role::Plain, &title));
        let Some((_, first)) = group.members.first() else { continue };
        lines.extend(group.place.iter().take(FRAMES).map(|frame| format!("    {}", cleaner.line(frame))));
        if group.place.len() > FRAMES {
            lines.push(format!("    … {} more", count(group.place.len() - FRAMES, "frame")));
        }
        let dim = |text: String| style.paint(Role::Dim, &format!("    {}", cleaner.line(&text)));
        if group.how == "kernel" {
            lines.push(dim(format!("it runs: {}", first.command)));
            lines.push(dim(format!("state {}; threads: {}", first.state, first.threads.join(", "))));
            lines.push(dim(format!("only the kernel's view: {}", first.note)));
        }
        if group.how == "kernel" && group.members.iter().any(|(_, stand)| stand.handles_usr1) {
            let text = "it handles SIGUSR1; if that is faulthandler.register(signal.SIGUSR1), its stacks go to its log after";
            lines.push(dim(text.to_owned()));
            let who = group.members.iter().map(|(_, stand)| stand).find(|stand| stand.handles_usr1).unwrap_or(first);
            // The number is of where it runs: only a shell there may use it.
            lines.push(dim(format!("  {}", session.advise("shell", &format!("{} -- 'kill -USR1 {}'", who.rank, who.pid)))));
        }
    }
    lines.into_iter().fold(String::new(), |all, line| all + &line + "\n")
}
