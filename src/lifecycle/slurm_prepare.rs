//! What the tasks of `prepare` leave on the login node of a SLURM cluster: fetched, then removed.

use std::time::Duration;

use crate::event::Outcome;
use crate::inventory::InventoryHost;
use crate::lifecycle::error::WorkflowError;
use crate::lifecycle::session::Session;
use crate::lifecycle::teardown::{TeardownOptions, lock_and_tear_down};
use crate::plan::teardown::TeardownScope;

/// Stops the tasks that still run on the session's one host, fetches their logs, and removes their files. What they have made stays.
///
/// # Errors
/// This laptop's run directory.
pub(crate) async fn remove_task_files(session: &mut Session, lock_wait: Duration) -> Result<Outcome, WorkflowError> {
    let options = TeardownOptions { scope: TeardownScope::Everything, kill_at_once: false, fetch_logs: true, grace: None };
    Ok(lock_and_tear_down(session, options, lock_wait, false).await?.outcome)
}

/// As [`remove_task_files`], for what an earlier submission left.
///
/// # Errors
/// As [`remove_task_files`].
pub(crate) async fn remove_files_of_login_node(session: &Session, lock_wait: Duration) -> Result<Outcome, WorkflowError> {
    let Some(login) = session.local.login.clone() else { return Ok(Outcome::Ok) };
    let host = InventoryHost { fabric_address: Some("127.0.0.1".to_owned()), ..login };
    let mut inventory = session.inventory.clone();
    (inventory.hosts, inventory.engine) = (vec![host], None);
    let mut own = session.open_silent("slurm down", inventory);
    let outcome = remove_task_files(&mut own, lock_wait).await?;
    Ok(own.finish(outcome, "", false).await)
}
