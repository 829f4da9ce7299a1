//! `ps`: lists what runs on each host.

use std::fmt::Write as _;

use crate::cli::args::{CommonArgs, ProgressMode};
use crate::cli::exit::CliError;
use crate::cli::local_env::{print_json, print_stderr, print_stdout};
use crate::cli::open_session::{LoadMode, load_inventory, open_session};
use crate::cli::output::OutputOptions;
use crate::event::{Exit, Outcome};
use crate::lifecycle::stop_controller::StopController;
use crate::lifecycle::stop_ladder::InterruptPolicy;
use crate::plan::existing_run::{HostRunState, host_run_state, is_docker_state_unknown};
use crate::plan::facts::HostFacts;

pub(crate) async fn run(args: &CommonArgs) -> Result<Outcome, CliError> {
    let (inventory, base) = load_inventory(args, LoadMode::ConnectionOnly)?;
    let session = open_session("ps", args, (inventory, base), OutputOptions::progress_only(ProgressMode::Quiet))?;
    let signals = StopController::listen(InterruptPolicy::Cancel, print_stderr).map_err(anyhow::Error::from)?;
    let answers = match signals.run_until_stopped(session.gather_facts(None)).await {
        Ok(answers) => answers,
        Err(outcome) => return Ok(session.disconnect(&signals, outcome).await),
    };
    let mut rows = vec![["HOST", "RUN", "LAUNCHER", "RANKS", "CONTAINER", "OWNER"].map(str::to_owned)];
    let mut outcome = Outcome::Ok;
    for (host, answer) in session.host_names().into_iter().zip(answers) {
        match answer {
            Ok(facts) => rows.push(host_row(host, &facts, session.reporter.sanitizer())),
            Err(error) => {
                outcome = Outcome::Unreachable;
                let dash = || "-".to_owned();
                let error = session.reporter.sanitizer().sanitize_line(&format!("unreachable: {error}"));
                rows.push([host, error, dash(), dash(), dash(), dash()]);
            }
        }
    }
    if args.progress == ProgressMode::Json {
        let lines = rows.iter().skip(1).map(|r| {
            serde_json::json!({ "host": r[0], "run": r[1], "launcher": r[2], "ranks": r[3], "container": r[4], "owner": r[5] }).to_string()
        });
        print_json(&lines.fold(String::new(), |text, line| text + &line + "\n"));
    } else {
        print_stdout(&format_table(&rows));
    }
    Ok(session.disconnect(&signals, outcome).await)
}

fn host_row(host: String, facts: &HostFacts, sanitizer: &crate::text::sanitize::Sanitizer) -> [String; 6] {
    let run = facts.current_run.clone().unwrap_or_else(|| "-".to_owned());
    let launcher = match host_run_state(facts) {
        HostRunState::None => "-".to_owned(),
        HostRunState::NotStarted => "not started".to_owned(),
        HostRunState::Running if facts.runs_in_container(true) && is_docker_state_unknown(facts) => {
            "unknown: docker does not answer".to_owned()
        }
        HostRunState::Running => "running".to_owned(),
        HostRunState::Ended(exit) => format!("ended: {exit}"),
    };
    let running = facts.ranks.iter().filter(|(_, _, exit)| exit.is_none()).count();
    let failed = facts.ranks.iter().filter(|(_, _, exit)| exit.is_some_and(|(e, _): (Exit, f64)| !e.is_success())).count();
    let ended = facts.ranks.len() - running - failed;
    let counts = [(running, "running"), (ended, "ok"), (failed, "failed")];
    let ranks: Vec<String> = counts.iter().filter(|(n, _)| *n > 0).map(|(n, state)| format!("{n} {state}")).collect();
    let container = facts.container().map_or_else(
        || if facts.keeper_pid.is_some() { "keeper".to_owned() } else { "-".to_owned() },
        |c| if c.oom_killed { format!("{} (out of memory)", c.status) } else { c.status.clone() },
    );
    let owner = facts.run_record().map_or_else(|| "-".to_owned(), |f| f.owner.clone());
    let ranks = if ranks.is_empty() { "-".to_owned() } else { ranks.join(", ") };
    [host, run, launcher, ranks, container, owner].map(|cell| sanitizer.sanitize_line(&cell))
}

pub(crate) fn format_table<const N: usize>(rows: &[[String; N]]) -> String {
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
