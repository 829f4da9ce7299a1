//! `runs`: lists and prunes the past runs on this laptop.

use crate::cli::args::{RunsArgs, RunsVerb};
use crate::cli::exit::CliError;
use crate::cli::local_env::{LocalEnv, print_json, print_stderr, print_stdout, terminal_columns, user_lang};
use crate::cli::text_table::format_table;
use crate::event::Outcome;
use crate::report::past_runs::{list_runs, prune_runs};
use crate::report::style;
use crate::text::plural::count_noun;

pub(crate) fn run(args: &RunsArgs) -> Result<Outcome, CliError> {
    let (state, lang) = (LocalEnv::read()?.state_dir, user_lang());
    let state_error = |e: std::io::Error| CliError::Usage(format!("{}: {e}", state.display()));
    if let Some(RunsVerb::Prune { keep }) = &args.verb {
        print_pruned(&prune_runs(&state, i64::MAX, *keep).map_err(state_error)?);
        return Ok(Outcome::Ok);
    }
    let runs = list_runs(&state).map_err(state_error)?;
    if args.json {
        for run in runs {
            let mut line = serde_json::json!({ "format": "runs 1" });
            if let (Some(line), Ok(serde_json::Value::Object(run))) = (line.as_object_mut(), serde_json::to_value(&run)) {
                line.extend(run);
            }
            print_json(&format!("{line}\n"));
        }
        return Ok(Outcome::Ok);
    }
    if runs.is_empty() {
        print_stdout(&format!("{}\n", lang.tr_fill("no runs in {}", &[&state.join("runs").display().to_string()])));
        return Ok(Outcome::Ok);
    }
    let mut rows = vec![
        [
            lang.tr("RUN"),
            lang.tr("NAME"),
            lang.tr("LAST COMMAND"),
            lang.tr("HOSTS"),
            lang.tr("RANKS"),
            lang.tr("AGE"),
            lang.tr("RAN"),
            lang.tr("OUTCOME"),
        ]
        .map(str::to_owned),
    ];
    let now = jiff::Timestamp::now().as_millisecond();
    for run in runs {
        let took = run.took.map_or_else(|| "-".to_owned(), style::format_duration);
        let age = run.began.map_or_else(|| "-".to_owned(), |began| style::format_duration((now - began).max(0)));
        let ended = match (&run.damaged, run.run_end, &run.outcome) {
            (Some(damage), ..) => lang.tr_fill("damaged: {}", &[damage]),
            (None, Some(end), _) => lang.term(style::run_end_label(end).0).to_owned(),
            (None, None, Some(outcome)) => lang.term(style::outcome_label(outcome).0).to_owned(),
            (None, None, None) => match run.seen {
                Some(seen) => lang.tr_fill("not ended when last seen, {} ago", &[&style::format_duration((now - seen).max(0))]),
                None => "-".to_owned(),
            },
        };
        rows.push([run.run, run.name, run.command, run.hosts.to_string(), run.ranks.to_string(), age, took, ended]);
    }
    print_stdout(&format_table(&rows));
    if terminal_columns().is_some() {
        print_stderr("next: `orchestrate replay RUN` plays a run on the dashboard, `orchestrate logs INVENTORY --run RUN` prints its logs");
    }
    Ok(Outcome::Ok)
}

fn print_pruned(runs: &[String]) {
    let (lang, count) = (user_lang(), count_noun(runs.len(), "run"));
    print_stderr(&match runs {
        [] => lang.tr("no run was removed from this laptop").to_owned(),
        _ => lang.tr_fill("{} removed from this laptop, with the logs:", &[&lang.message(&count)]),
    });
    runs.iter().for_each(|run| print_stdout(&format!("{run}\n")));
}
