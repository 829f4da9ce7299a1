//! Ends the ranks of a run: stops or kills them, waits for the hosts, learns whether another command did it.

use std::time::Duration;

use tokio::sync::mpsc;
use tokio::task::JoinSet;

use super::Follower;
use crate::engine::log_stream_event::LogStreamEvent;
use crate::event::{EventKind, RunGoal, RunOutcome};
use crate::plan;
use crate::plan::action::{Action, ActionResult, launch::StopRanks};

/// How many of the hosts that failed first are asked whether a command has stopped them.
const MAX_QUERIED_HOSTS: usize = 4;
/// How long a host's last output may take after its stop.
const LAST_OUTPUT_TIMEOUT: Duration = Duration::from_secs(3);

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
                let stop = StopRanks { context: host_context, grace, by_request: ordered, restore_scripts: false };
                if runs_ranks {
                    let signal = if grace.is_some() { "TERM" } else { "KILL" }.to_owned();
                    emit.send(EventKind::RanksSignaled { host: link.event_host_index(), signal });
                }
                let trouble = match link.exec_priority(&stop.command()).await {
                    Ok(output) => match Action::StopRanks(stop).judge(&output) {
                        ActionResult::Failed(trouble) => Some(trouble.message),
                        ActionResult::Done { .. } | ActionResult::LockLost | ActionResult::Skipped(_) => None,
                    },
                    Err(error) => Some(format!("its ranks could not be stopped: {error}")),
                };
                if let Some(trouble) = trouble {
                    emit.send_notice(Some(link.host_index()), trouble, true);
                }
                link.host_index()
            });
        }
    }

    /// A host's stop is over: after a short wait for its last output it counts as ended, whatever its status file says, and also if its ranks
    /// could not be stopped, which was reported: a teardown finds them.
    pub(super) async fn handle_host_stopped(
        &mut self,
        stopped: Result<usize, tokio::task::JoinError>,
        events: &mut mpsc::Receiver<LogStreamEvent>,
    ) {
        let Ok(host) = stopped else { return };
        let last_output = async {
            while !self.gang.has_launcher_ended(host)
                && let Some(report) = events.recv().await
            {
                self.handle_log_event(&report);
            }
        };
        if tokio::time::timeout(LAST_OUTPUT_TIMEOUT, last_output).await.is_err() {
            tracing::debug!(host, "its launcher did not report its end");
        }
        self.gang.mark_launcher_killed(host);
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
