//! `runs`: what this laptop knows of past runs.

use crate::cli::args::{RunsArgs, RunsVerb};
use crate::cli::exit::Failure;
use crate::cli::laptop::{Laptop, print};
use crate::cli::ps::table;
use crate::event::Outcome;
use crate::report::runs::{list, prune};
use crate::report::words;

/// Runs it.
///
/// # Errors
/// What must be said to the person.
pub fn run(args: &RunsArgs) -> Result<Outcome, Failure> {
    let state = Laptop::read()?.state;
    let cannot = |e: std::io::Error| Failure::Usage(format!("{}: {e}", state.display()));
    if let Some(RunsVerb::Prune { keep }) = &args.verb {
        let gone = prune(&state, i64::MAX, *keep).map_err(cannot)?;
        print(&format!("{} removed\n", words::count(gone.len(), "run")));
        return Ok(Outcome::Ok);
    }
    let runs = list(&state).map_err(cannot)?;
    if runs.is_empty() {
        print(&format!("no runs in {}\n", state.join("runs").display()));
        return Ok(Outcome::Ok);
    }
    let mut rows = vec![["RUN", "NAME", "HOSTS", "RANKS", "TOOK", "ENDED"].map(str::to_owned)];
    for run in runs {
        let took = run.began.zip(run.ended).map_or_else(|| "-".to_owned(), |(from, to)| words::span(to - from));
        let ended = match (&run.damaged, &run.outcome) {
            (Some(damage), _) => format!("damaged: {damage}"),
            (None, Some(outcome)) => format!("{} ({})", words::outcome(outcome).0, run.command),
            (None, None) => "this laptop has not seen its end".to_owned(),
        };
        rows.push([run.run, run.name, run.hosts.to_string(), run.ranks.to_string(), took, ended]);
    }
    print(&table(&rows));
    Ok(Outcome::Ok)
}
