//! Ends the ranks of a run: stops or kills them, waits for the hosts, learns whether another command did it.

use std::time::Duration;

use tokio::sync::mpsc;
use tokio::task::JoinSet;

use super::Follower;
use crate::engine::log_stream_event::LogStreamEvent;
use crate::event::{EventKind, RunGoal, RunOutcome};
use crate::plan;
use crate::plan::action::{Action, ActionResult, Execution, launch::StopRanks};

/// How many of the hosts that failed first are asked whether a command has stopped them.
const MAX_QUERIED_HOSTS: usize = 4;

impl Follower<'_> {
    /// Stops the ranks on every host. Each host's script completes the stop alone; a second order can only turn TERM into KILL.
    pub(super) fn set_goal(&mut self, goal: RunGoal, why: String) {
        self.engine.emitter.send(EventKind::GoalChanged { goal, reason: why.clone() });
        self.goal = goal;
        self.gang.record_stop_order(crate::engine::emitter::now_unix_millis());
        self.goal_reason.get_or_insert(why);
        if goal == RunGoal::Stop && !self.stop_tasks.is_empty() {
            return;
        }
        let grace = if goal == RunGoal::Kill { None } else { Some(self.run.stop_grace) };
        let ordered = !self.stopped_for_failure;
        for (link, host_context) in self.engine.connections.iter().cloned().zip(self.run.hosts.iter().cloned()) {
            let emit = self.engine.emitter.clone();
            // Where launcher and ranks have ended, the command is a precaution and no news.
            let runs_ranks = !self.gang.has_host_ended(link.host_index());
            self.stop_tasks.spawn(async move {
                let action = Action::StopRanks(StopRanks { context: host_context, grace, by_request: ordered, restore_scripts: false });
                let Execution::Script(command) = action.execution() else { return (link.host_index(), false) };
                if runs_ranks {
                    let signal = if grace.is_some() { "TERM" } else { "KILL" }.to_owned();
                    emit.send(EventKind::RanksSignaled { host: link.event_host_index(), signal });
                }
                let ended = match link.exec_priority(&command).await {
                    Ok(output) => match action.judge(&output) {
                        ActionResult::Done { .. } => true,
                        ActionResult::Failed(trouble) => {
                            emit.send_notice(Some(link.host_index()), trouble.message, true);
                            false
                        }
                        ActionResult::LockLost | ActionResult::Skipped(_) => false,
                    },
                    Err(error) => {
                        emit.send_notice(Some(link.host_index()), format!("its ranks could not be stopped: {error}"), true);
                        false
                    }
                };
                (link.host_index(), ended)
            });
        }
    }

    /// A host's ranks are dead: after a short wait for its last output it counts as ended, whatever its status file says.
    pub(super) async fn handle_host_stopped(
        &mut self,
        stopped: Result<(usize, bool), tokio::task::JoinError>,
        events: &mut mpsc::Receiver<LogStreamEvent>,
    ) {
        let Ok((host, _)) = stopped else { return };
        let finish_timeout = tokio::time::sleep(Duration::from_secs(3));
        tokio::pin!(finish_timeout);
        while !self.gang.has_launcher_ended(host) {
            tokio::select! {
                () = &mut finish_timeout => { self.gang.mark_launcher_killed(host); }
                report = events.recv() => match report {
                    Some(report) => self.handle_log_event(&report),
                    None => self.gang.mark_launcher_killed(host),
                }
            }
        }
    }

    /// Asks the hosts of the failed ranks, within this time, whether another command stopped them.
    pub(super) async fn query_stopped_elsewhere(&mut self, finish_timeout: Duration) -> bool {
        if let Some(known) = self.stopped_elsewhere {
            return known;
        }
        // A read-only follower does not need it, except for a job that SLURM stops: its ranks have not failed by themselves.
        let is_asked = !self.run.read_only || self.run.hosts.iter().any(|context| context.cluster_job.is_some());
        if self.goal != RunGoal::Up || !is_asked || self.gang.first_reported_failure().is_none() {
            return false;
        }
        let mut asked = JoinSet::new();
        for host in self.gang.culprits().iter().map(|failure| failure.host).take(MAX_QUERIED_HOSTS) {
            let (Some(link), Some(context)) = (self.engine.connections.get(host).cloned(), self.run.hosts.get(host)) else { continue };
            let command = plan::protocol::log_frames::stop_check_command(context);
            asked.spawn(async move {
                let answer = tokio::time::timeout(finish_timeout, link.exec_priority(&command)).await;
                answer.ok().map(|answer| answer.is_ok_and(|output| output.stdout_text().trim() == "stopped"))
            });
        }
        let (mut found, mut all) = (false, true);
        while let Some(answer) = asked.join_next().await {
            match answer.ok().flatten() {
                Some(stopped) => found |= stopped,
                None => all = false,
            }
        }
        if found {
            self.engine
                .emitter
                .send(EventKind::RunEndReported { end: RunOutcome::Stopped, ended_at: crate::engine::emitter::now_unix_millis() });
        }
        // A host that did not answer in time is asked again at the end.
        self.stopped_elsewhere = (found || all).then_some(found);
        found
    }
}
