//! Which other runs may hold a port of the master that is in use.

use std::time::Duration;

use crate::lifecycle::session::Session;
use crate::plan::existing_run::{HostRunState, host_run_state};
use crate::plan::facts::HostFacts;
use crate::plan::host_context::HostContext;
use crate::plan::protocol::all_runs::{NamedRun, all_runs_command, parse_all_runs};
use crate::text::width::truncate_text;

/// So many are named.
const MAX_RUNS: usize = 3;
/// The longest name of an owner, columns: the host says it.
const MAX_OWNER_WIDTH: usize = 40;
/// The answer only explains: nothing waits for it longer.
const DEADLINE: Duration = Duration::from_secs(10);

/// Adds the live runs of other names to the facts of a master whose port is in use, unless this job's own run uses it. Without an answer nothing
/// is added: it only explains.
pub(super) async fn add_other_runs(session: &Session, master_port: Option<u16>, master: &mut HostFacts) {
    let is_in_use = master_port.is_some_and(|port| master.busy_ports.contains(&port));
    let Some(host) = session.inventory.hosts.first().filter(|_| is_in_use && host_run_state(master) != HostRunState::Running) else {
        return;
    };
    let context = HostContext::from_inventory(&session.inventory, host, &session.inventory.run_dir);
    let is_other = |run: &NamedRun| run.state == "running" && run.name != session.inventory.name;
    let asked = session.engine.fan_out(vec![(0, all_runs_command(&context))]);
    match tokio::time::timeout(DEADLINE, asked).await.map(|mut answers| answers.pop()) {
        Ok(Some((_, Ok(output)))) => {
            let runs = parse_all_runs(&output.stdout_text()).map(|all| all.runs).unwrap_or_default();
            master.orphans.other_live_runs = runs.iter().filter(|run| is_other(run)).take(MAX_RUNS).map(describe).collect();
        }
        Ok(Some((_, Err(error)))) => tracing::debug!(%error, "the other runs of the master are not known"),
        Ok(None) | Err(_) => tracing::debug!("the other runs of the master are not known: no answer"),
    }
}

/// `frl (20261128-230714-5b81, dev@laptop)`.
fn describe(run: &NamedRun) -> String {
    let owner = truncate_text(&run.owner, MAX_OWNER_WIDTH);
    match &run.run_id {
        Some(run_id) => format!("{} ({run_id}, {owner})", run.name),
        None => format!("{} ({owner})", run.name),
    }
}
