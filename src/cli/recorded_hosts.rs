//! Hosts that only the record of an earlier run names: what `up` does about them.

use std::time::Duration;

use crate::cli::args::{CommonArgs, DownArgs, ProgressMode, UpArgs};
use crate::cli::exit::CliError;
use crate::cli::reporter_task::OutputOptions;
use crate::cli::session::{RecordedHost, Session};
use crate::event::Outcome;
use crate::plan::facts::HostFacts;
use crate::report::log_filter::LogSelection;

/// Clears the hosts that only an earlier run's record names, where the person lets them be reached; else how `up` ends. `cleared`: the names of
/// those that were cleared before.
///
/// # Errors
/// What must be said to the person.
pub(super) async fn clear_recorded_hosts(
    session: &Session,
    args: &UpArgs,
    cleared: &mut Vec<String>,
    facts: &[HostFacts],
) -> Result<Option<(Outcome, String)>, CliError> {
    let known: Vec<Option<HostFacts>> = facts.iter().cloned().map(Some).collect();
    let mut recorded = session.recorded_hosts(&known);
    recorded.retain(|recorded| !cleared.contains(&recorded.host.name));
    if recorded.is_empty() {
        return Ok(None);
    }
    if !session.confirm_reaching_hosts(&recorded) {
        let names = recorded.iter().map(RecordedHost::describe).collect::<Vec<_>>().join(", ");
        let text = format!("the last run was also on hosts that are not in the inventory: {names}");
        session.engine.emitter().send_notice(None, text, true);
        session.engine.emitter().send_notice(
            None,
            "help: `orchestrate up --yes` clears them too; `orchestrate down --yes` clears everything of this name",
            false,
        );
        return Ok(Some((Outcome::Refused, "hosts of the last run are not in the inventory".to_owned())));
    }
    cleared.extend(recorded.iter().map(|recorded| recorded.host.name.clone()));
    let outcome = tear_down_recorded_hosts(session, &args.common, recorded).await?;
    let why = "hosts of the last run could not be cleared".to_owned();
    Ok((outcome != Outcome::Ok).then_some((outcome, why)))
}

/// Clears hosts that only the record of a run names, within another operation.
///
/// # Errors
/// What must be said to the person.
async fn tear_down_recorded_hosts(session: &Session, host: &CommonArgs, recorded: Vec<RecordedHost>) -> Result<Outcome, CliError> {
    let mut inventory = session.inventory.clone();
    inventory.hosts.clear();
    // The limit keeps it from the hosts of the inventory, which the record names too.
    let names = recorded.iter().map(|recorded| recorded.host.name.as_str()).collect::<Vec<_>>().join(",");
    let host = CommonArgs { limit: Some(names), ..host.clone() };
    let lock_wait = Duration::from_secs(45);
    let args = DownArgs { common: host, discard_logs: false, kill: false, lock_wait, dry_run: false };
    let faces = OutputOptions { progress: ProgressMode::Quiet, logs: LogSelection::None, logs_to_stdout: false };
    let mut apart = Session::open("down", &args.common, inventory, session.base_dir().to_owned(), faces, &[])?;
    apart.add_hosts(recorded);
    apart.emit_run_started("", None);
    let (outcome, why) = super::down::tear_down_session(&mut apart, &args, &mut false).await?;
    Ok(apart.finish(outcome, &why, false).await.0)
}
