//! `ps --all`: every run of every name and owner on the hosts.

use crate::cli::args::PsArgs;
use crate::cli::local_env::{print_json, print_stderr, print_stdout, user_lang};
use crate::cli::text_table::format_table;
use crate::cli::unreachable::print_unreachable;
use crate::event::Outcome;
use crate::lifecycle::session::Session;
use crate::model::remote_command::CommandOutput;
use crate::plan::host_context::HostContext;
use crate::plan::protocol::all_runs::{AllRuns, NamedRun, all_runs_command, parse_all_runs};
use crate::remote::RemoteError;
use crate::report::style::format_duration;
use crate::text::sanitize::Sanitizer;
use crate::text::translation::Lang;

/// What each host answered, or why it did not, with a remedy.
pub(super) type RunListings = Vec<Result<AllRuns, (String, String)>>;

pub(super) async fn collect(session: &Session) -> RunListings {
    let contexts =
        session.inventory.hosts.iter().map(|host| HostContext::from_inventory(&session.inventory, host, &session.inventory.run_dir));
    let commands = contexts.map(|context| all_runs_command(&context)).enumerate().collect();
    let parse = |(_, answer): (usize, Result<CommandOutput, RemoteError>)| match answer {
        Ok(output) => parse_all_runs(&output.stdout_text()).ok_or_else(|| ("the answer is not whole".to_owned(), String::new())),
        Err(error) => Err((error.to_string(), error.hint().to_owned())),
    };
    session.engine.fan_out(commands).await.into_iter().map(parse).collect()
}

/// A row per run and host; hosts that did not answer below.
pub(super) fn print_runs(session: &Session, answers: RunListings, args: &PsArgs) -> Outcome {
    let (now, lang, sanitizer) = (jiff::Timestamp::now(), user_lang(), session.reporter.sanitizer());
    let json = args.common.wants_json(args.json);
    let (mut rows, mut unreachable) = (Vec::new(), Vec::new());
    for (machine, answer) in session.host_names().into_iter().zip(answers) {
        match answer {
            Ok(found) => {
                if let Some(error) = &found.docker_error {
                    print_stderr(&format!("warning: {machine}: its containers are not listed: {}", sanitizer.sanitize_line(error)));
                }
                rows.extend(found.runs.into_iter().map(|run| (machine.clone(), run)));
            }
            Err((error, hint)) => unreachable.push((machine, error, hint)),
        }
    }
    if json {
        let listed = rows.iter().map(|(machine, run)| to_json(machine, run, now));
        let lines = listed.chain(unreachable.iter().map(|(machine, error, _)| error_to_json(machine, error)));
        print_json(&lines.map(|line| sanitizer.mask_json(line.to_string()) + "\n").collect::<String>());
    } else if rows.is_empty() {
        print_stderr(if unreachable.is_empty() {
            "no run of any name is on any host"
        } else {
            "no run of any name is on the hosts that answered"
        });
    } else {
        print_stdout(&format_rows(&rows, now, sanitizer, lang));
    }
    let outcome = if unreachable.is_empty() { Outcome::Ok } else { Outcome::Unreachable };
    print_unreachable(session, unreachable);
    outcome
}

fn age_millis(run: &NamedRun, now: jiff::Timestamp) -> Option<i64> {
    let started = run.started_at.parse::<jiff::Timestamp>().ok()?;
    Some(now.as_millisecond() - started.as_millisecond())
}

fn format_rows(rows: &[(String, NamedRun)], now: jiff::Timestamp, sanitizer: &Sanitizer, lang: Lang) -> String {
    let header =
        [lang.tr("HOST"), lang.tr("NAME"), lang.tr("RUN"), lang.tr("AGE"), lang.tr("STATE"), lang.tr("RANKS OF RUN"), lang.tr("OWNER")];
    let cells = rows.iter().map(|(machine, run)| {
        let dash = |text: Option<String>| text.unwrap_or_else(|| "-".to_owned());
        // An inventory may call the host something else.
        let name = if run.host == *machine { run.name.clone() } else { format!("{} ({})", run.name, run.host) };
        let cells = [
            machine.clone(),
            name,
            dash(run.run_id.clone()),
            dash(age_millis(run, now).map(format_duration)),
            lang.message(&run.state).into_owned(),
            dash(run.world_size.map(|size| size.to_string())),
            dash(Some(run.owner.clone()).filter(|owner| !owner.is_empty())),
        ];
        cells.map(|cell| sanitizer.sanitize_line(&cell))
    });
    format_table(&std::iter::once(header.map(str::to_owned)).chain(cells).collect::<Vec<_>>())
}

fn to_json(machine: &str, run: &NamedRun, now: jiff::Timestamp) -> serde_json::Value {
    serde_json::json!({
        "format": "ps all 1", "host": machine, "name": run.name, "host_in_run": run.host, "run": run.run_id, "started_at": run.started_at,
        "age_seconds": age_millis(run, now).map(|age| age / 1000), "state": run.state, "ranks": run.world_size, "owner": run.owner,
        "error": null,
    })
}

/// The line of a host that did not answer.
fn error_to_json(machine: &str, error: &str) -> serde_json::Value {
    let run = ["name", "host_in_run", "run", "started_at", "age_seconds", "state", "ranks", "owner"];
    let mut line: serde_json::Map<_, _> = run.iter().map(|key| ((*key).to_owned(), serde_json::Value::Null)).collect();
    line.extend([("format", "ps all 1"), ("host", machine), ("error", error)].map(|(key, text)| (key.to_owned(), text.into())));
    line.into()
}
