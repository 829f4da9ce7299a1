//! `stacks`: where every rank stands, ranks at the same place folded. Reads the hosts and changes nothing; sends no signal.

use crate::cli::args::{ProgressMode, StacksArgs};
use crate::cli::exit::CliError;
use crate::cli::local_env::{print_json, print_stderr, print_stdout};
use crate::cli::open_session::{LoadMode, load_inventory, open_session};
use crate::cli::output::OutputOptions;
use crate::cli::unreachable::print_unreachable;
use crate::event::Outcome;
use crate::lifecycle::error::worse_outcome;
use crate::lifecycle::session::Session;
use crate::plan::facts::HostFacts;
use crate::plan::protocol::stacks;
use crate::plan::protocol::stacks::{RankStack, StackGroup};
use crate::report::style::{Tone, count_noun};
use crate::text::hostlist::{fold_names, fold_numbers};

/// How many frames of a place are shown; all of them are in the JSON.
const MAX_FRAMES: usize = 24;

pub(crate) async fn run(args: &StacksArgs) -> Result<Outcome, CliError> {
    let (inventory, base) = load_inventory(&args.common, LoadMode::ConnectionOnly)?;
    let session = open_session("stacks", &args.common, (inventory, base), OutputOptions::progress_only(ProgressMode::Quiet))?;
    let (mut outcome, mut lost, mut facts) = (Outcome::Ok, Vec::new(), Vec::new());
    for (name, answer) in session.host_names().into_iter().zip(session.gather_facts(None).await) {
        facts.push(match answer {
            Ok(facts) => Some(facts),
            Err(error) => {
                outcome = Outcome::Unreachable;
                lost.push((name, error.to_string(), error.hint().to_owned()));
                None
            }
        });
    }
    let runs = |facts: &Option<HostFacts>| facts.as_ref().is_some_and(|facts| facts.current_run.is_some() && !facts.ranks.is_empty());
    let commands: Vec<_> = session
        .host_contexts(&facts, None)
        .iter()
        .enumerate()
        .filter(|(at, _)| facts.get(*at).is_some_and(runs))
        .map(|(at, site)| (at, stacks::stacks_command(site)))
        .collect();
    let names = session.host_names();
    let (asked, mut found) = (commands.len(), Vec::new());
    let fan_out = session.engine.fan_out(commands, |at, answer| {
        let name = names.get(at).cloned().unwrap_or_default();
        match answer.map_err(|e| (e.to_string(), e.hint().to_owned(), Outcome::Unreachable)).and_then(|output| {
            let hint = format!("`{}` says whether its ranks still run", session.suggest_command("ps", ""));
            stacks::parse_stacks(&output).map_err(|said| (format!("its ranks could not be looked at: {said}"), hint, Outcome::Failed))
        }) {
            Ok(stands) => found.extend(stands.into_iter().map(|stand| (at, stand))),
            Err((what, hint, how)) => {
                outcome = worse_outcome(how, outcome.clone());
                lost.push((name, what, hint));
            }
        }
    });
    tokio::select! {
        () = fan_out => {}
        result = tokio::signal::ctrl_c() => {
            result.map_err(|e| CliError::Bug(e.into()))?;
            return Ok(Outcome::Signal(2));
        }
    }
    if args.json {
        print_json(&to_json_lines(&session, &found));
    } else {
        print_stdout(&format_text(&session, &stacks::group_stacks(found)));
    }
    if asked == 0 && lost.is_empty() {
        print_stderr(&format!("no rank of this name is on any host; `{}` shows what is there", session.suggest_command("ps", "")));
    }
    print_unreachable(session.reporter.sanitizer(), session.reporter.style(), lost);
    session.engine.close().await;
    Ok(outcome)
}

/// A line a rank, by rank.
fn to_json_lines(session: &Session, found: &[(usize, RankStack)]) -> String {
    let names = session.host_names();
    let mut all: Vec<&(usize, RankStack)> = found.iter().collect();
    all.sort_by_key(|(_, stand)| stand.rank);
    let lines = all.into_iter().map(|(host, stand)| {
        let line = serde_json::json!({
            "rank": stand.rank, "host": names.get(*host), "restart": stand.restart, "pid": stand.pid, "how": stand.source,
            "command": stand.command_line, "state": stand.kernel_state, "threads": stand.threads, "stack": stand.main_frames(), "lines": stand.stack_lines,
            "handles_usr1": stand.handles_usr1, "note": stand.fallback_reason,
        });
        session.reporter.sanitizer().mask_json(line.to_string()) + "\n"
    });
    lines.collect()
}

fn format_text(session: &Session, groups: &[StackGroup]) -> String {
    let (names, style, cleaner) = (session.host_names(), session.reporter.style(), session.reporter.sanitizer());
    let mut lines = Vec::new();
    for group in groups {
        let ranks: Vec<u32> = group.members.iter().map(|(_, stand)| stand.rank).collect();
        let mut hosts: Vec<String> = group.members.iter().filter_map(|(host, _)| names.get(*host).cloned()).collect();
        hosts.sort();
        hosts.dedup();
        let word = if ranks.len() == 1 { "rank" } else { "ranks" };
        let title = format!("---- {word} {} on {} ({})", fold_numbers(&ranks), cleaner.sanitize_line(&fold_names(&hosts)), group.source);
        lines.push(style.paint(Tone::Plain, &title));
        let Some((_, first)) = group.members.first() else { continue };
        lines.extend(group.frames.iter().take(MAX_FRAMES).map(|frame| format!("    {}", cleaner.sanitize_line(frame))));
        if group.frames.len() > MAX_FRAMES {
            lines.push(format!("    … {} more", count_noun(group.frames.len() - MAX_FRAMES, "frame")));
        }
        let dim = |text: String| style.paint(Tone::Dim, &format!("    {}", cleaner.sanitize_line(&text)));
        if group.source == "kernel" {
            lines.push(dim(format!("it runs: {}", first.command_line)));
            lines.push(dim(format!("state {}; threads: {}", first.kernel_state, first.threads.join(", "))));
            lines.push(dim(format!("only the kernel's view: {}", first.fallback_reason)));
        }
        if group.source == "kernel" && group.members.iter().any(|(_, stand)| stand.handles_usr1) {
            let text = "it handles SIGUSR1; if that is faulthandler.register(signal.SIGUSR1), its stacks go to its log after";
            lines.push(dim(text.to_owned()));
            let who = group.members.iter().map(|(_, stand)| stand).find(|stand| stand.handles_usr1).unwrap_or(first);
            // The number is of where it runs: only a shell there may use it.
            lines.push(dim(format!("  {}", session.suggest_command("shell", &format!("{} -- 'kill -USR1 {}'", who.rank, who.pid)))));
        }
    }
    lines.into_iter().fold(String::new(), |all, line| all + &line + "\n")
}
