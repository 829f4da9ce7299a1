//! Follows a run to its end, as the one that launched it or as one that looks.

use std::time::Duration;

use crate::diagnose::hang_detector::HangSettings;
use crate::engine::emitter::now_unix_millis;
use crate::engine::follow::{FollowOutcome, FollowSpec};
use crate::engine::log_stream::LogOffsets;
use crate::event::controls::DashboardCapabilities;
use crate::inventory::Job;
use crate::lifecycle::error::WorkflowError;
use crate::lifecycle::hang_watchdog::{HangWatchdog, hang_config};
use crate::lifecycle::reporter_task::read_log_tails;
use crate::lifecycle::session::{Session, find_run_record};
use crate::lifecycle::stop_controller::StopController;
use crate::plan::Plan;
use crate::plan::facts::HostFacts;
use crate::plan::protocol::run_record::RunRecord;

/// What one who follows may do.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(crate) enum FollowMode {
    /// Look, and nothing else.
    ReadOnly,
    MayStop,
    /// End it, and launch it again.
    MayRestart,
}

/// How many lines of each log that this laptop has from before are shown.
const TAIL_LINES: usize = 20;

/// Follows a run that this operation has launched.
pub(crate) async fn follow_launched_run(
    session: &Session,
    run: &FollowSpec,
    plan: &Plan,
    offsets: &LogOffsets,
    signals: &mut StopController,
) -> FollowOutcome {
    session.reporter.set_capabilities(DashboardCapabilities {
        can_control: true,
        can_restart: true,
        ..DashboardCapabilities::view_only(signals.dashboard_role())
    });
    let hang = plan.run_record.as_ref().map(hang_config).unwrap_or_default();
    let finish = follow_with_watchdog(session, run, offsets, signals, hang).await;
    session.reporter.set_capabilities(DashboardCapabilities::view_only(signals.dashboard_role()));
    finish
}

/// How a planned run is followed.
pub(crate) fn follow_spec(plan: &Plan, job: &Job, detach: bool) -> FollowSpec {
    FollowSpec {
        hosts: plan.hosts.clone(),
        // An elastic gang may begin with fewer hosts.
        rank_count: job.launch.min_nodes.map_or(plan.world_size, |least| least * job.nproc_per_node.unwrap_or(1)) as usize,
        // The inventory has proved it.
        ready_when: job.launch.ready_pattern.as_ref().and_then(|r| regex::bytes::Regex::new(r).ok()),
        stop_grace: job.launch.stop_grace,
        return_when_running: detach,
        launcher_restarts_ranks: job.is_elastic(),
        min_hosts: job.min_hosts(),
        read_only: false,
    }
}

/// Follows a run that others launched, from the hosts' own account of it.
pub(crate) async fn follow_existing_run(
    session: &mut Session,
    facts: &[HostFacts],
    run: &str,
    signals: &mut StopController,
    mode: FollowMode,
) -> Result<(FollowOutcome, RunRecord), WorkflowError> {
    let file = facts.iter().find_map(HostFacts::run_record).cloned().unwrap_or_default();
    let offsets = session.open_run_dir(run, find_run_record(facts.iter(), run)).await?;
    let known: Vec<Option<HostFacts>> = facts.iter().cloned().map(|f| Some(f).filter(|f| !f.run_dir.is_empty())).collect();
    let sites = session.host_contexts(&known, None);
    let mut plan = Plan::empty(sites.clone());
    plan.run_record = Some(file.clone());
    session.emit_run_started(run, Some(&plan));
    session.emit_run_found(&known).await;
    if let Some(dir) = session.run_dir.as_ref().filter(|_| mode != FollowMode::ReadOnly) {
        session.reporter.show_log_tails(read_log_tails(dir, &session.host_names(), TAIL_LINES));
    }
    let followed = FollowSpec {
        hosts: sites,
        rank_count: file.world_size as usize,
        ready_when: file.ready_when.as_ref().and_then(|r| regex::bytes::Regex::new(r).ok()),
        stop_grace: Duration::from_secs(file.stop_grace_secs),
        return_when_running: false,
        launcher_restarts_ranks: file.tolerates_rank_loss,
        min_hosts: file.min_hosts,
        read_only: mode == FollowMode::ReadOnly,
    };
    let act = mode != FollowMode::ReadOnly;
    session.reporter.set_capabilities(DashboardCapabilities {
        can_control: act,
        can_restart: mode == FollowMode::MayRestart,
        ..DashboardCapabilities::view_only(signals.dashboard_role())
    });
    let (mut terms, stop) = hang_config(&file);
    // The line that marks it may have been read before: nobody looks for it in what is here already.
    terms.has_ready_line = false;
    let finish = follow_with_watchdog(session, &followed, &offsets, signals, (terms, stop)).await;
    session.reporter.set_capabilities(DashboardCapabilities::view_only(signals.dashboard_role()));
    Ok((finish, file))
}

/// Follows a run to its end and looks out meanwhile.
async fn follow_with_watchdog(
    session: &Session,
    run: &FollowSpec,
    offsets: &LogOffsets,
    signals: &mut StopController,
    (terms, stop): (HangSettings, bool),
) -> FollowOutcome {
    let stop_sender = Some(signals.control_sender.clone()).filter(|_| stop && !run.read_only);
    let watch = HangWatchdog::new(terms, session.engine.emitter().clone(), stop_sender, now_unix_millis());
    // Who only reads logs sees no GPU, and could not judge.
    session.reporter.set_watchdog(Some(watch).filter(|_| !run.return_when_running && !run.read_only));
    let finish = session.engine.follow_run(run, offsets, &mut signals.controls).await;
    session.reporter.set_watchdog(None);
    finish
}
