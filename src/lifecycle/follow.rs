//! Follows a run until it ends: a run that this command launched, or an existing one.

use std::time::Duration;

use regex::bytes::Regex;

use crate::diagnose::hang_detector::HangSettings;
use crate::engine::emitter::now_unix_millis;
use crate::engine::follow::{FollowOutcome, FollowSpec};
use crate::engine::log_stream::LogOffsets;
use crate::event::controls::DashboardCapabilities;
use crate::inventory::Job;
use crate::lifecycle::error::WorkflowError;
use crate::lifecycle::hang_watchdog::{HangWatchdog, hang_config};
use crate::lifecycle::session::{Session, find_run_record};
use crate::lifecycle::stop_controller::StopController;
use crate::plan::Plan;
use crate::plan::facts::HostFacts;
use crate::plan::protocol::run_record::RunRecord;

#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(crate) enum FollowMode {
    ReadOnly,
    MayStop,
    /// Stop it, and launch it again.
    MayRestart,
}

pub(crate) async fn follow_launched_run(
    session: &Session,
    run: &FollowSpec,
    plan: &Plan,
    offsets: &LogOffsets,
    signals: &mut StopController,
) -> FollowOutcome {
    let hang = plan.run_record.as_ref().map(hang_config).unwrap_or_default();
    follow_with_watchdog(session, (run, offsets), signals, FollowMode::MayRestart, hang).await
}

pub(crate) fn follow_spec(plan: &Plan, job: &Job, detach: bool) -> FollowSpec {
    FollowSpec {
        hosts: plan.hosts.clone(),
        rank_count: least_rank_count(plan.world_size, plan.hosts.len(), job.min_hosts()),
        ready_when: ready_regex(job.launch.ready_pattern.as_ref()),
        stop_grace: job.launch.stop_grace,
        return_when_running: detach,
        launcher_restarts_ranks: job.is_elastic(),
        min_hosts: job.min_hosts(),
        read_only: false,
        sampled_hosts: usize::MAX,
    }
}

/// The inventory has validated the pattern.
fn ready_regex(pattern: Option<&String>) -> Option<Regex> {
    pattern.and_then(|pattern| Regex::new(pattern).ok())
}

/// How many ranks run at least: an elastic gang may start with fewer hosts. `least`: how many it needs; 0: all.
fn least_rank_count(world_size: u32, hosts: usize, least: usize) -> usize {
    let all = world_size as usize;
    if least == 0 || least >= hosts { all } else { all / hosts * least }
}

/// Follows a run that another command launched, from its record on the hosts.
pub(crate) async fn follow_existing_run(
    session: &mut Session,
    facts: &[Option<HostFacts>],
    run: &str,
    signals: &mut StopController,
    mode: FollowMode,
) -> Result<(FollowOutcome, RunRecord), WorkflowError> {
    let record = facts.iter().flatten().find_map(HostFacts::run_record).cloned().unwrap_or_default();
    let offsets = session.open_run_dir(run, find_run_record(facts.iter().flatten(), run)).await?;
    let contexts = session.host_contexts(facts, None);
    let mut plan = Plan::empty(contexts.clone());
    plan.run_record = Some(record.clone());
    session.emit_run_started(run, Some(&plan));
    session.emit_run_found(facts);
    session.show_stored_logs(mode == FollowMode::ReadOnly);
    let spec = FollowSpec {
        hosts: contexts,
        rank_count: least_rank_count(record.world_size, record.hosts.len(), record.min_hosts),
        ready_when: ready_regex(record.ready_when.as_ref()),
        stop_grace: Duration::from_secs(record.stop_grace_secs),
        return_when_running: false,
        launcher_restarts_ranks: record.tolerates_rank_loss,
        min_hosts: record.min_hosts,
        read_only: mode == FollowMode::ReadOnly,
        sampled_hosts: if mode == FollowMode::ReadOnly { 0 } else { usize::MAX },
    };
    let (mut hang, stop_hung) = hang_config(&record);
    // The ready line may be in the part of the log that was read earlier, so its absence now means nothing.
    hang.has_ready_line = false;
    let outcome = follow_with_watchdog(session, (&spec, &offsets), signals, mode, (hang, stop_hung)).await;
    Ok((outcome, record))
}

/// The dashboard has the keys of `mode` meanwhile.
async fn follow_with_watchdog(
    session: &Session,
    (run, offsets): (&FollowSpec, &LogOffsets),
    signals: &mut StopController,
    mode: FollowMode,
    (hang, stop_hung): (HangSettings, bool),
) -> FollowOutcome {
    session.reporter.set_capabilities(DashboardCapabilities {
        can_control: mode != FollowMode::ReadOnly,
        can_restart: mode == FollowMode::MayRestart,
        ..DashboardCapabilities::view_only(signals.dashboard_role())
    });
    let stop_sender = Some(signals.control_sender.clone()).filter(|_| stop_hung && !run.read_only);
    let watchdog = HangWatchdog::new(hang, session.engine.emitter().clone(), stop_sender, now_unix_millis());
    // A read-only follower gets no GPU data, so it cannot detect a hang.
    session.reporter.set_watchdog(Some(watchdog).filter(|_| !run.return_when_running && !run.read_only));
    let outcome = session.engine.follow_run(run, offsets, &mut signals.controls).await;
    session.reporter.set_watchdog(None);
    session.reporter.set_capabilities(DashboardCapabilities::view_only(signals.dashboard_role()));
    outcome
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn elastic_gang_is_ready_with_its_least_hosts() {
        assert_eq!(least_rank_count(24, 3, 2), 16);
        assert_eq!([0, 3, 4].map(|least| least_rank_count(24, 3, least)), [24; 3]);
        assert_eq!(least_rank_count(0, 0, 1), 0);
    }
}
