//! `attach`: follows what runs, from any laptop that has the inventory.

use std::time::Duration;

use crate::cli::args::CommonArgs;
use crate::cli::dashboard_shell::spawn_action_handler;
use crate::cli::exit::CliError;
use crate::cli::hang_watchdog::{HangWatchdog, hang_config};
use crate::cli::local_env::hide_known_secrets;
use crate::cli::reporter_task::{OutputOptions, read_log_tails};
use crate::cli::session::{LoadMode, Session, collect_facts, find_run_record, load_inventory};
use crate::cli::signals::{InterruptPolicy, StopController};
use crate::cli::teardown::finish_run;
use crate::diagnose::hang_detector::HangSettings;
use crate::engine::emitter::now_unix_millis;
use crate::engine::follow::{FollowOutcome, FollowedRun};
use crate::engine::log_stream::LogOffsets;
use crate::event::Outcome;
use crate::inventory::Teardown;
use crate::plan::existing_run::{ExistingRun, classify_existing_run};
use crate::plan::facts::HostFacts;
use crate::plan::protocol::run_record::RunRecord;
use crate::report::log_filter::LogSelection;
use crate::tui::feed::Capabilities;

/// How long a tear-down waits for another operator's lock.
const LOCK_WAIT: Duration = Duration::from_secs(45);

/// What one who follows may do.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub enum FollowMode {
    /// Look, and nothing else.
    ReadOnly,
    /// End the run.
    MayStop,
    /// End it, and launch it again.
    MayRestart,
}

/// How many lines of each log that this laptop has from before are shown.
const TAIL_LINES: usize = 20;

/// Runs it.
///
/// # Errors
/// What must be said to the person.
pub async fn run(args: &CommonArgs) -> Result<Outcome, CliError> {
    let (inventory, base) = load_inventory(args, LoadMode::ConnectionOnly)?;
    let secrets = hide_known_secrets(&inventory);
    let faces = OutputOptions { progress: args.progress, logs: LogSelection::MainRank, logs_to_stdout: false };
    let mut session = Session::open("attach", args, inventory, base, faces, &secrets)?;
    let mut signals = StopController::listen(InterruptPolicy::Detach).map_err(anyhow::Error::from)?;
    let leave = signals.leave_token.clone();
    spawn_action_handler(&mut session, &signals);
    session.emit_run_started("", None);
    let ended = tokio::select! {
        ended = attach(&mut session, &mut signals) => ended,
        () = leave.cancelled() => return Ok(Outcome::Signal(signals.first_signal().unwrap_or(2))),
    };
    let (outcome, why) = ended?;
    Ok(session.finish(outcome, &why, true).await.0)
}

async fn attach(session: &mut Session, signals: &mut StopController) -> Result<(Outcome, String), CliError> {
    let (facts, outcome) = collect_facts(session, session.gather_facts(None).await);
    let known: Vec<HostFacts> = facts.iter().flatten().cloned().collect();
    let names = session.host_names();
    let reached: Vec<String> = names.iter().zip(&facts).filter(|(_, f)| f.is_some()).map(|(n, _)| n.clone()).collect();
    let run = match classify_existing_run(&known, &reached, &[]) {
        ExistingRun::NoRun if outcome == Outcome::Ok => return Ok((Outcome::Ok, "nothing of this name runs".to_owned())),
        ExistingRun::NoRun => return Ok((outcome, "nothing of this name runs on the hosts that answered".to_owned())),
        ExistingRun::Live { run_id: run, .. } | ExistingRun::Ended { run_id: run } => run,
        ExistingRun::Partial { reason: why } => {
            session.engine.emitter().send_notice(None, format!("not a whole gang: {why}; `orchestrate down` removes it"), true);
            known.iter().find_map(|f| f.current_run.clone()).unwrap_or_default()
        }
    };
    let facts: Vec<HostFacts> = facts.into_iter().map(Option::unwrap_or_default).collect();
    let (finish, file) = follow_existing_run(session, &facts, &run, signals, FollowMode::MayStop).await?;
    if finish == FollowOutcome::Teardown {
        return finish_run(session, LOCK_WAIT, finish, Teardown::Always, Duration::from_secs(file.stop_grace_secs), signals).await;
    }
    let ended = match (finish, signals.first_signal()) {
        (FollowOutcome::Detached, Some(number)) => (Outcome::Signal(number), "detached: the run goes on".to_owned()),
        (FollowOutcome::Detached | FollowOutcome::Running | FollowOutcome::Teardown | FollowOutcome::Restart, _) => {
            (Outcome::Detached, "the run goes on".to_owned())
        }
        (FollowOutcome::Stopped, _) => (Outcome::Stopped, "the run was stopped from elsewhere".to_owned()),
        (FollowOutcome::Ended { ok: true, .. }, _) => (Outcome::Ok, "the run has ended; `orchestrate down` removes it".to_owned()),
        (FollowOutcome::Ended { stop_reason: stopped, .. }, _) => {
            (Outcome::Failed, format!("{}; `orchestrate down` removes it", stopped.unwrap_or_else(|| "the run failed".to_owned())))
        }
    };
    tracing::debug!(teardown = file.teardown, "followed to its end");
    Ok(ended)
}

/// Follows a run that others launched, from the hosts' own account of it.
///
/// # Errors
/// What must be said to the person.
pub async fn follow_existing_run(
    session: &mut Session,
    facts: &[HostFacts],
    run: &str,
    signals: &mut StopController,
    manner: FollowMode,
) -> Result<(FollowOutcome, RunRecord), CliError> {
    let file = facts.iter().find_map(HostFacts::run_record).cloned().unwrap_or_default();
    let offsets = session.open_run_dir(run, find_run_record(facts.iter(), run)).await?;
    let known: Vec<Option<HostFacts>> = facts.iter().cloned().map(|f| Some(f).filter(|f| !f.run_dir.is_empty())).collect();
    let sites = session.host_contexts(&known, None);
    let mut plan = crate::plan::Plan::empty(sites.clone());
    plan.run_record = Some(file.clone());
    session.emit_run_started(run, Some(&plan));
    session.emit_run_found(&known).await;
    if let Some(dir) = session.run_dir.as_ref().filter(|_| manner != FollowMode::ReadOnly) {
        session.reporter.show_log_tails(read_log_tails(dir, &session.host_names(), TAIL_LINES));
    }
    let followed = FollowedRun {
        hosts: sites,
        rank_count: file.world_size as usize,
        ready_when: file.ready_when.as_ref().and_then(|r| regex::bytes::Regex::new(r).ok()),
        stop_grace: Duration::from_secs(file.stop_grace_secs),
        return_when_running: false,
        launcher_restarts_ranks: file.tolerates_rank_loss,
        min_hosts: file.min_hosts,
        read_only: manner == FollowMode::ReadOnly,
    };
    let act = manner != FollowMode::ReadOnly;
    session.reporter.set_capabilities(Capabilities {
        can_control: act,
        can_restart: manner == FollowMode::MayRestart,
        ..Capabilities::view_only(signals.dashboard_role())
    });
    let (mut terms, stop) = hang_config(&file);
    // The line that marks it may have been read before: nobody looks for it in what is here already.
    terms.has_ready_line = false;
    let finish = follow_with_watchdog(session, &followed, &offsets, signals, (terms, stop)).await;
    session.reporter.set_capabilities(Capabilities::view_only(signals.dashboard_role()));
    Ok((finish, file))
}

/// Follows a run to its end and looks out meanwhile.
pub async fn follow_with_watchdog(
    session: &Session,
    run: &FollowedRun,
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
