//! Clears hosts that only an earlier run's record names, before a launch.

use crate::event::Outcome;
use crate::lifecycle::down::{DownRequest, tear_down_all};
use crate::lifecycle::error::{WorkflowEnd, WorkflowError};
use crate::lifecycle::recorded_hosts::{RecordedHost, describe_hosts};
use crate::lifecycle::session::Session;
use crate::lifecycle::teardown::DEFAULT_LOCK_WAIT;
use crate::plan::facts::HostFacts;

/// Returns the end of the launch if the user does not agree or the hosts could not be cleared. `cleared`: names of hosts that are clear already.
pub(crate) async fn confirm_and_clean_recorded_hosts(
    session: &Session,
    cleared: &mut Vec<String>,
    facts: &[HostFacts],
) -> Result<Option<WorkflowEnd>, WorkflowError> {
    let facts: Vec<Option<HostFacts>> = facts.iter().cloned().map(Some).collect();
    let mut recorded = session.recorded_hosts(&facts);
    recorded.retain(|recorded| !cleared.contains(&recorded.host.name));
    if recorded.is_empty() {
        return Ok(None);
    }
    if !session.confirm_reaching_hosts(&recorded) {
        session.notice(format!("the last run also used hosts that are not in the inventory: {}", describe_hosts(&recorded)), true);
        session.notice("help: `orchestrate up --yes` clears them too; `orchestrate down --yes` clears the whole run", false);
        return Ok(Some(WorkflowEnd::new(Outcome::Refused, "hosts of the last run are not in the inventory")));
    }
    cleared.extend(recorded.iter().map(|recorded| recorded.host.name.clone()));
    let outcome = tear_down_recorded_hosts(session, recorded).await?;
    Ok((outcome != Outcome::Ok).then(|| WorkflowEnd::new(outcome, "hosts of the last run could not be cleared")))
}

async fn tear_down_recorded_hosts(session: &Session, recorded: Vec<RecordedHost>) -> Result<Outcome, WorkflowError> {
    let mut inventory = session.inventory.clone();
    inventory.hosts.clear();
    let mut nested = session.open_silent("down", inventory);
    nested.add_recorded_hosts(recorded);
    nested.announce_hosts();
    let request = DownRequest {
        // The record names the inventory hosts too; they are not part of this teardown.
        limited: true,
        discard_logs: false,
        kill_at_once: false,
        lock_wait: DEFAULT_LOCK_WAIT,
        take_over_lock: session.local.assume_yes,
        dry_run: false,
        show_scripts: false,
    };
    let WorkflowEnd { outcome, reason } = tear_down_all(&mut nested, &request).await?.end;
    Ok(nested.finish(outcome, &reason, false).await)
}
