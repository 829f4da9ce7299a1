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
        let took = run.took.map_or_else(|| "-".to_owned(), words::span);
        let ended = match (&run.damaged, run.run_end, &run.outcome) {
            (Some(damage), ..) => format!("damaged: {damage}"),
            (None, Some(end), _) => words::run_end(end).0.to_owned(),
            (None, None, Some(outcome)) => words::outcome(outcome).0.to_owned(),
            (None, None, None) => "end not seen from this laptop".to_owned(),
        };
        rows.push([run.run, run.name, run.hosts.to_string(), run.ranks.to_string(), took, ended]);
    }
    print(&table(&rows));
    Ok(Outcome::Ok)
}
