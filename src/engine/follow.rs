//! Follows a run until it ends: reads every host, stops the gang when a rank fails, obeys controls.

mod stopping;

use std::sync::Arc;
use std::time::Duration;

use futures_util::future::join_all;
use regex::bytes::Regex;
use tokio::sync::mpsc;
use tokio::task::JoinSet;
use tokio_util::sync::CancellationToken;

use crate::engine::Engine;
use crate::engine::gang::Gang;
use crate::engine::host_connection::HostConnection;
use crate::engine::host_metrics_stream;
use crate::engine::log_follower::LogFollower;
use crate::engine::log_stream::LogOffsets;
use crate::engine::log_stream_event::LogStreamEvent;
use crate::engine::log_stream_reporting::emit_stream_event;
use crate::engine::postmortem::PostmortemRequests;
use crate::event::{EventKind, RunControl, RunGoal, RunOutcome};
use crate::plan;
use crate::plan::action::launch::StopRanks;
use crate::plan::host_context::HostContext;
use crate::plan::protocol::log_frames::LogStreamPurpose;

/// A run to follow.
#[derive(Default)]
pub(crate) struct FollowSpec {
    /// Its place on every host.
    pub hosts: Vec<HostContext>,
    /// How many workers it has.
    pub rank_count: usize,
    /// The regex that marks it as training.
    pub ready_when: Option<Regex>,
    /// From TERM to KILL.
    pub stop_grace: Duration,
    /// Return as soon as every rank runs.
    pub return_when_running: bool,
    /// Whether its launchers restart workers, or continue with fewer hosts.
    pub launcher_restarts_ranks: bool,
    /// How many of the hosts it needs; 0: all.
    pub min_hosts: usize,
    /// Only look: a failed rank stops nothing.
    pub read_only: bool,
    /// How many of the hosts report GPU samples, from the first one.
    pub sampled_hosts: usize,
}

#[derive(Debug, Clone, PartialEq, Eq)]
pub(crate) enum FollowOutcome {
    Ended {
        /// Whether all went well.
        ok: bool,
        /// What stopped it, if something did.
        stop_reason: Option<String>,
        /// Whether a host was given up: how its ranks ended is not known.
        is_host_lost: bool,
    },
    /// It was stopped from elsewhere.
    StoppedElsewhere,
    /// Every rank is running, and the caller asked for no more.
    Running,
    /// The run continues without this command.
    Detached,
    /// A teardown was asked for while it ran.
    Teardown,
    /// It is to be stopped and launched again.
    Restart,
}

/// How long reports of the same moment are awaited before a failed gang is stopped.
const FAILURE_SETTLE_TIME: Duration = Duration::from_millis(150);

/// Why a run ends that another command has stopped.
const STOPPED_ELSEWHERE_REASON: &str = "stopped from elsewhere";

/// How long they may take to answer: while the other ranks wait for their end, and when all have ended.
const QUERY_TIMEOUT_BEFORE_STOP: Duration = Duration::from_secs(1);
const QUERY_TIMEOUT_AT_END: Duration = Duration::from_secs(5);

/// Reports that may wait, each with 256 KiB of a log at most: the watchers wait then, and with them their hosts.
const EVENT_QUEUE_CAPACITY: usize = 128;

/// How long every rank must have lived before a detached launch reports the run as running: longer than a host takes to report an end.
const MIN_RUNNING_TIME: Duration = Duration::from_millis(600);

struct Follower<'a> {
    engine: &'a Engine,
    run: &'a FollowSpec,
    gang: Gang,
    goal: RunGoal,
    goal_reason: Option<String>,
    ready: bool,
    partial_lines: std::collections::HashMap<(usize, crate::event::LogFile), Vec<u8>>,
    stop_tasks: JoinSet<usize>,
    /// When a failed gang is stopped: the reports of one moment are awaited, so that the right one is named.
    stop_deadline: Option<tokio::time::Instant>,
    /// When it may be detached: shortly after every rank was started.
    running_deadline: Option<tokio::time::Instant>,
    /// Whether it was stopped for a failure of its own.
    stopped_for_failure: bool,
    /// Whether what looked like a failure was an order from elsewhere; `None`: the hosts were not asked.
    stopped_elsewhere: Option<bool>,
    postmortem: PostmortemRequests,
}

impl Engine {
    /// Follows a run until it ends, or a control says otherwise.
    pub(crate) async fn follow_run(
        &self,
        run: &FollowSpec,
        offsets: &LogOffsets,
        controls: &mut mpsc::Receiver<RunControl>,
    ) -> FollowOutcome {
        let (up, mut reports) = mpsc::channel(EVENT_QUEUE_CAPACITY);
        let end = CancellationToken::new();
        let mut watchers = JoinSet::new();
        for (link, host_context) in self.connections.iter().zip(&run.hosts) {
            let follower = LogFollower {
                connection: link.clone(),
                context: host_context.clone(),
                offsets: offsets.clone(),
                host_count: run.hosts.len(),
                purpose: if run.read_only { LogStreamPurpose::Read } else { LogStreamPurpose::Supervise },
                events: up.clone(),
            };
            watchers.spawn(follower.run(end.clone()));
        }
        drop(up);
        let sampled = if run.return_when_running { 0 } else { run.sampled_hosts };
        for (link, host_context) in self.connections.iter().zip(&run.hosts).take(sampled) {
            watchers.spawn(host_metrics_stream::stream_host_metrics(link.clone(), host_context.clone(), run.hosts.len(), end.clone()));
        }
        let mut follower = Follower {
            engine: self,
            run,
            gang: Gang::new(run.hosts.len(), run.launcher_restarts_ranks, run.min_hosts),
            goal: RunGoal::Up,
            goal_reason: None,
            ready: false,
            partial_lines: std::collections::HashMap::new(),
            stop_tasks: JoinSet::new(),
            stop_deadline: None,
            running_deadline: None,
            stopped_for_failure: false,
            stopped_elsewhere: None,
            postmortem: PostmortemRequests::default(),
        };
        let finish = follower.run_until_finished(&mut reports, controls).await;
        end.cancel();
        while watchers.join_next().await.is_some() {}
        follower.emit_culprits();
        follower.request_postmortems();
        follower.postmortem.wait_for_answers().await;
        if matches!(finish, FollowOutcome::Detached | FollowOutcome::Running) && !run.read_only {
            self.emitter.send(EventKind::RunEndReported { end: RunOutcome::Running, ended_at: 0 });
            self.notify_detached(&run.hosts).await;
        }
        finish
    }

    /// Notifies the hosts that they guard their ranks alone from now on. If that fails they notice it by themselves within 30 s.
    async fn notify_detached(&self, contexts: &[HostContext]) {
        let notify = |(link, context): (&Arc<HostConnection>, &HostContext)| {
            let (link, command) = (link.clone(), plan::protocol::log_frames::detach_command(context));
            async move {
                match tokio::time::timeout(command.timeout, link.exec_priority(&command)).await {
                    Ok(Ok(_)) => {}
                    Ok(Err(error)) => tracing::debug!(%error, host = link.host_index(), "could not notify the host of the detach"),
                    Err(_) => tracing::debug!(host = link.host_index(), "could not notify the host of the detach in time"),
                }
            }
        };
        join_all(self.connections.iter().zip(contexts).map(notify)).await;
    }

    /// Kills every process of a run on all its hosts, in the session that is kept free for it.
    pub(crate) async fn kill_all_ranks(&self, contexts: &[HostContext]) {
        let kill = |(link, context): (&Arc<HostConnection>, &HostContext)| {
            let stop = StopRanks { context: context.clone(), grace: None, by_request: true, restore_scripts: false };
            let (link, command) = (link.clone(), stop.command());
            async move {
                if let Err(error) = link.exec_priority(&command).await {
                    link.emitter().send_notice(Some(link.host_index()), format!("its ranks could not be killed: {error}"), true);
                }
            }
        };
        join_all(self.connections.iter().zip(contexts).map(kill)).await;
    }
}

impl Follower<'_> {
    fn outcome_at_end(&mut self) -> FollowOutcome {
        let is_up = self.goal == RunGoal::Up;
        let stop_reason = if self.stopped_for_failure || is_up { self.failure_reason() } else { self.goal_reason.take() };
        FollowOutcome::Ended { ok: self.gang.has_succeeded() && is_up, stop_reason, is_host_lost: self.gang.has_given_up_host() }
    }

    async fn run_until_finished(
        &mut self,
        events: &mut mpsc::Receiver<LogStreamEvent>,
        controls: &mut mpsc::Receiver<RunControl>,
    ) -> FollowOutcome {
        let mut open = true;
        loop {
            if self.gang.have_all_launchers_ended() && self.stop_tasks.is_empty() {
                if self.query_stopped_elsewhere(QUERY_TIMEOUT_AT_END).await {
                    return FollowOutcome::StoppedElsewhere;
                }
                return self.outcome_at_end();
            }
            let now = tokio::time::Instant::now();
            let well = self.goal == RunGoal::Up && self.gang.first_reported_failure().is_none();
            if self.run.return_when_running
                && well
                && self.gang.started_rank_count() >= self.run.rank_count
                && now >= *self.running_deadline.get_or_insert(now + MIN_RUNNING_TIME)
            {
                return FollowOutcome::Running;
            }
            tokio::select! {
                report = events.recv(), if open => match report {
                    Some(report) => self.handle_log_event(&report),
                    None => open = false,
                },
                () = tokio::time::sleep_until(self.stop_deadline.unwrap_or_else(tokio::time::Instant::now)), if self.stop_deadline.is_some() => {
                    self.stop_deadline = None;
                    if self.goal == RunGoal::Up && self.query_stopped_elsewhere(QUERY_TIMEOUT_BEFORE_STOP).await {
                        self.set_goal(RunGoal::Stop, STOPPED_ELSEWHERE_REASON.to_owned());
                    }
                    if let Some(why) = self.failure_reason().filter(|_| self.goal == RunGoal::Up) {
                        self.stopped_for_failure = true;
                        self.request_postmortems();
                        self.set_goal(RunGoal::Stop, why);
                    }
                }
                () = tokio::time::sleep_until(self.running_deadline.unwrap_or(now)), if self.running_deadline.is_some() && well => {}
                Some(stopped) = self.stop_tasks.join_next() => self.handle_host_stopped(stopped, events).await,
                control = controls.recv() => match control {
                    Some(RunControl::Stop { reason }) => self.set_goal(RunGoal::Stop, reason),
                    Some(RunControl::Kill { reason }) => self.set_goal(RunGoal::Kill, reason),
                    Some(RunControl::Detach) | None => {
                        // The end of a cluster's job comes so where the launcher of a lost node has no end: what SLURM stops has not failed.
                        if self.run.read_only {
                            self.query_stopped_elsewhere(QUERY_TIMEOUT_AT_END).await;
                        }
                        return FollowOutcome::Detached;
                    }
                    Some(RunControl::Teardown) => return FollowOutcome::Teardown,
                    Some(RunControl::Restart) => return FollowOutcome::Restart,
                },
                // Every watcher has ended and no control can come: nothing more will be known.
                else => return FollowOutcome::Detached,
            }
        }
    }

    fn handle_log_event(&mut self, event: &LogStreamEvent) {
        let before = self.gang.tolerated_launcher_failures().len();
        self.gang.apply_event(event);
        if let Some(lost) = self.gang.tolerated_launcher_failures().get(before) {
            let text = format!("{}: the other hosts are enough and go on", self.gang.describe_failure(lost, |host| self.host_name(host)));
            self.engine.emitter.send_notice(Some(lost.host), text, true);
        }
        let host = match event {
            LogStreamEvent::ProcessStarted(host, ..)
            | LogStreamEvent::ProcessEnded(host, ..)
            | LogStreamEvent::RunMissing(host)
            | LogStreamEvent::Log(host, ..)
            | LogStreamEvent::HostGivenUp(host, _) => *host,
        };
        if let Some(link) = self.engine.connections.get(host) {
            emit_stream_event(link, event);
        }
        if let LogStreamEvent::Log(host, file, bytes) = event {
            self.scan_for_ready_line(*host, *file, bytes);
        }
        if !self.ready && self.run.ready_when.is_none() && self.run.rank_count > 0 && self.gang.started_rank_count() >= self.run.rank_count
        {
            self.emit_ready();
        }
        if self.goal == RunGoal::Up
            && !self.run.read_only
            && !self.gang.have_all_launchers_ended()
            && self.gang.first_reported_failure().is_some()
        {
            self.stop_deadline.get_or_insert_with(|| tokio::time::Instant::now() + FAILURE_SETTLE_TIME);
        }
    }

    /// The reason of a failed run: the processes that failed first.
    fn failure_reason(&self) -> Option<String> {
        self.gang.failure_reason(|host| self.host_name(host))
    }

    fn host_name(&self, host: usize) -> String {
        self.run.hosts.get(host).map_or_else(|| "?".to_owned(), |context| context.host.clone())
    }

    fn emit_ready(&mut self) {
        self.ready = true;
        self.partial_lines.clear();
        self.engine.emitter.send(EventKind::Ready);
    }

    /// Looks at whole lines as they come; of a line without an end at most 4 KiB are kept.
    fn scan_for_ready_line(&mut self, host: usize, file: crate::event::LogFile, bytes: &[u8]) {
        let Some(regex) = self.run.ready_when.as_ref().filter(|_| !self.ready) else { return };
        let tail = self.partial_lines.entry((host, file)).or_default();
        tail.extend_from_slice(bytes);
        let matched = tail.split(|b| *b == b'\n').any(|line| regex.is_match(line));
        let keep = tail.iter().rposition(|b| *b == b'\n').map_or(0, |at| at + 1).max(tail.len().saturating_sub(4096));
        tail.drain(..keep);
        if matched {
            self.emit_ready();
        }
    }

    /// Whether it failed; a run that a person stopped has no culprit.
    fn has_failed(&self) -> bool {
        (self.goal == RunGoal::Up || self.stopped_for_failure)
            && self.stopped_elsewhere != Some(true)
            && self.gang.first_reported_failure().is_some()
    }

    /// Requests a post-mortem from the hosts of the processes that failed first.
    fn request_postmortems(&mut self) {
        if !self.has_failed() || self.run.read_only {
            return;
        }
        for host in self.gang.culprits().iter().map(|failure| failure.host) {
            if let (Some(link), Some(context)) = (self.engine.connections.get(host), self.run.hosts.get(host)) {
                self.postmortem.request(link, context);
            }
        }
    }

    fn emit_culprits(&mut self) {
        if !self.has_failed() {
            return;
        }
        let culprits = self.gang.culprits();
        let ranks = culprits.iter().filter_map(|f| f.rank).collect();
        let hosts = culprits.iter().map(|f| u32::try_from(f.host).unwrap_or(u32::MAX)).collect();
        self.engine.emitter.send(EventKind::Culprit { ranks, hosts });
    }
}
