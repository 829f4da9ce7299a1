//! Follows a run to its end: watchers on every host, the gang stopped when one of it fails, controls obeyed.

use std::time::Duration;

use regex::bytes::Regex;
use tokio::sync::mpsc;
use tokio::task::JoinSet;
use tokio_util::sync::CancellationToken;

use crate::engine::Engine;
use crate::engine::aftermath::Aftermath;
use crate::engine::gang::{Failure, Gang};
use crate::engine::log_event::Report;
use crate::engine::log_words::emit;
use crate::engine::vitals;
use crate::engine::watch::{self, Offsets};
use crate::event::{Control, EventKind, Goal, RunEnd};
use crate::plan;
use crate::plan::action::{Action, Do, Verdict, launch::Stop};
use crate::plan::follow::Purpose;
use crate::plan::site::Site;

/// A run to follow.
pub struct Run {
    /// Its place on every host.
    pub sites: Vec<Site>,
    /// How many workers it has.
    pub workers: usize,
    /// The regex that marks it as training.
    pub ready_when: Option<Regex>,
    /// From TERM to KILL.
    pub grace: Duration,
    /// Return as soon as every rank runs.
    pub until_running: bool,
    /// Whether its launchers start workers again, or go on with fewer hosts.
    pub restarts: bool,
    /// How many of the hosts it needs; 0: all.
    pub least: usize,
    /// Only look: a failed rank stops nothing.
    pub only_look: bool,
}

/// How following ended.
#[derive(Debug, Clone, PartialEq, Eq)]
pub enum Finish {
    /// Every launcher ended.
    Ended {
        /// Whether all went well.
        ok: bool,
        /// What stopped it, if something did.
        stopped: Option<String>,
    },
    /// It was stopped from elsewhere.
    Stopped,
    /// Every rank runs and that was all that was wanted.
    Running,
    /// The run goes on without us.
    Detached,
    /// A teardown was asked for while it ran.
    Teardown,
    /// It is to be stopped and launched again.
    Restart,
}

/// How long reports of the same moment are awaited before a failed gang is stopped.
const SETTLE: Duration = Duration::from_millis(150);

/// Why a run ends that another command has stopped.
const ELSEWHERE: &str = "stopped from elsewhere";

/// How long they may take to answer: while the other ranks wait for their end, and when all have ended.
const BEFORE_STOPPING: Duration = Duration::from_secs(1);
const AT_THE_END: Duration = Duration::from_secs(5);

/// Reports that may wait, each with 256 KiB of a log at most: the watchers wait then, and with them their hosts.
const REPORTS: usize = 128;

/// How many hosts of those who failed first are asked whether an order has stopped them.
const ASKED: usize = 4;

/// How long every rank has to have lived before a run that is to be left alone is said to run: longer than a host takes to tell of an end.
const STEADY: Duration = Duration::from_millis(600);

struct Follower<'a> {
    engine: &'a Engine,
    run: &'a Run,
    gang: Gang,
    goal: Goal,
    why: Option<String>,
    ready: bool,
    tails: std::collections::HashMap<(usize, crate::event::LogFile), Vec<u8>>,
    stops: JoinSet<(usize, bool)>,
    /// When a failed gang is stopped: the reports of one moment are awaited, so that the right one is named.
    alarm: Option<tokio::time::Instant>,
    /// When it may be left alone: every rank was started a moment before.
    steady: Option<tokio::time::Instant>,
    /// Whether it was stopped for a failure of its own.
    by_itself: bool,
    /// Whether what looked like a failure was an order from elsewhere; `None`: the hosts were not asked.
    elsewhere: Option<bool>,
    aftermath: Aftermath,
}

impl Engine {
    /// Follows a run until it ends, or a control says otherwise.
    pub async fn follow(&self, run: &Run, offsets: &Offsets, controls: &mut mpsc::Receiver<Control>) -> Finish {
        let (up, mut reports) = mpsc::channel(REPORTS);
        let end = CancellationToken::new();
        let mut watchers = JoinSet::new();
        let terms = (run.sites.len(), if run.only_look { Purpose::Look } else { Purpose::Guard });
        for (link, site) in self.links.iter().zip(&run.sites) {
            watchers.spawn(watch::watch(link.clone(), site.clone(), offsets.clone(), terms, up.clone(), end.clone()));
        }
        drop(up);
        for (link, site) in self.links.iter().zip(&run.sites).filter(|_| !run.until_running && !run.only_look) {
            watchers.spawn(vitals::watch(link.clone(), site.clone(), run.sites.len(), end.clone()));
        }
        let mut follower = Follower {
            engine: self,
            run,
            gang: Gang::new(run.sites.len(), run.restarts).needing(run.least),
            goal: Goal::Up,
            why: None,
            ready: false,
            tails: std::collections::HashMap::new(),
            stops: JoinSet::new(),
            alarm: None,
            steady: None,
            by_itself: false,
            elsewhere: None,
            aftermath: Aftermath::default(),
        };
        let finish = follower.until_finished(&mut reports, controls).await;
        end.cancel();
        while watchers.join_next().await.is_some() {}
        follower.tell_culprits();
        follower.ask_culprits();
        follower.aftermath.answered().await;
        if matches!(finish, Finish::Detached | Finish::Running) && !run.only_look {
            self.emit.send(EventKind::RunFound { end: RunEnd::Running, when: 0 });
            self.leave(&run.sites).await;
        }
        finish
    }

    /// Tells the hosts that they guard their ranks alone from now on. Where that fails they notice it by themselves within 30 s.
    async fn leave(&self, sites: &[Site]) {
        let mut tasks = JoinSet::new();
        for (link, site) in self.links.iter().cloned().zip(sites) {
            let command = plan::follow::gone(site);
            tasks.spawn(async move {
                match tokio::time::timeout(command.timeout, link.urgent(&command)).await {
                    Ok(Ok(_)) => {}
                    Ok(Err(error)) => tracing::debug!(%error, host = link.host(), "it was not told that we leave"),
                    Err(_) => tracing::debug!(host = link.host(), "it was not told in time that we leave"),
                }
            });
        }
        while tasks.join_next().await.is_some() {}
    }
}

impl Engine {
    /// Kills every process of a run on all its hosts, in the session that is kept free for it.
    pub async fn kill(&self, sites: &[Site]) {
        let mut tasks = JoinSet::new();
        for (link, site) in self.links.iter().cloned().zip(sites.iter().cloned()) {
            tasks.spawn(async move {
                let Do::Script(command) = Action::Stop(Stop { site, grace: None, ordered: true, lost: false }).command() else { return };
                if let Err(error) = link.urgent(&command).await {
                    link.emitter().notice(Some(link.host()), format!("its ranks could not be killed: {error}"), true);
                }
            });
        }
        while tasks.join_next().await.is_some() {}
    }
}

impl Follower<'_> {
    async fn until_finished(&mut self, reports: &mut mpsc::Receiver<Report>, controls: &mut mpsc::Receiver<Control>) -> Finish {
        let mut open = true;
        loop {
            if self.gang.all_ended() && self.stops.is_empty() {
                if self.stopped_elsewhere(AT_THE_END).await {
                    return Finish::Stopped;
                }
                let stopped = if self.by_itself || self.goal == Goal::Up { self.blame() } else { self.why.take() };
                return Finish::Ended { ok: self.gang.ok() && self.goal == Goal::Up, stopped };
            }
            let now = tokio::time::Instant::now();
            let well = self.goal == Goal::Up && self.gang.first().is_none();
            if self.run.until_running && well && self.gang.started() >= self.run.workers && now >= *self.steady.get_or_insert(now + STEADY)
            {
                return Finish::Running;
            }
            tokio::select! {
                report = reports.recv(), if open => match report {
                    Some(report) => self.take(&report),
                    None => open = false,
                },
                () = tokio::time::sleep_until(self.alarm.unwrap_or_else(tokio::time::Instant::now)), if self.alarm.is_some() => {
                    self.alarm = None;
                    if self.goal == Goal::Up && self.stopped_elsewhere(BEFORE_STOPPING).await {
                        self.turn(Goal::Stop, ELSEWHERE.to_owned());
                    }
                    if let Some(why) = self.blame().filter(|_| self.goal == Goal::Up) {
                        self.by_itself = true;
                        self.ask_culprits();
                        self.turn(Goal::Stop, why);
                    }
                }
                () = tokio::time::sleep_until(self.steady.unwrap_or(now)), if self.steady.is_some() && well => {}
                Some(stopped) = self.stops.join_next() => self.stopped(stopped, reports).await,
                control = controls.recv() => match control {
                    Some(Control::Stop { why }) => self.turn(Goal::Stop, why),
                    Some(Control::Kill { why }) => self.turn(Goal::Kill, why),
                    Some(Control::Detach) | None => return Finish::Detached,
                    Some(Control::Teardown) => return Finish::Teardown,
                    Some(Control::Restart) => return Finish::Restart,
                },
                // Every watcher has ended and no control can come: nothing more will be known.
                else => return Finish::Detached,
            }
        }
    }

    fn take(&mut self, report: &Report) {
        let before = self.gang.lost().len();
        self.gang.apply(report);
        if let Some(lost) = self.gang.lost().get(before) {
            let text = format!("{}: the other hosts are enough and go on", self.describe(lost));
            self.engine.emit.notice(Some(lost.host), text, true);
        }
        let host = match report {
            Report::Started(host, ..)
            | Report::Ended(host, ..)
            | Report::Nothing(host)
            | Report::Log(host, ..)
            | Report::GivenUp(host, _) => *host,
        };
        if let Some(link) = self.engine.links.get(host) {
            emit(link, report);
        }
        if let Report::Log(host, file, bytes) = report {
            self.look_for_ready(*host, *file, bytes);
        }
        if !self.ready && self.run.ready_when.is_none() && self.run.workers > 0 && self.gang.started() >= self.run.workers {
            self.say_ready();
        }
        if self.goal == Goal::Up && !self.run.only_look && !self.gang.all_ended() && self.gang.first().is_some() {
            self.alarm.get_or_insert_with(|| tokio::time::Instant::now() + SETTLE);
        }
    }

    /// What is said of a failed run: those who failed first.
    fn blame(&self) -> Option<String> {
        self.gang.culprits().first().map(|failure| self.describe(failure))
    }

    fn describe(&self, failure: &Failure) -> String {
        let host = self.run.sites.get(failure.host).map_or("?", |s| s.host.as_str());
        match failure.rank {
            None if let Some(why) = self.gang.given_up(failure.host) => format!("{host} was given up: {why}"),
            Some(rank) => format!("rank {rank} on {host} failed: {}", failure.exit),
            None => format!("the launcher on {host} failed: {}", failure.exit),
        }
    }

    fn say_ready(&mut self) {
        self.ready = true;
        self.tails.clear();
        self.engine.emit.send(EventKind::Ready);
    }

    /// Looks at whole lines as they come; of a line without an end at most 4 KiB are kept.
    fn look_for_ready(&mut self, host: usize, file: crate::event::LogFile, bytes: &[u8]) {
        let Some(regex) = self.run.ready_when.as_ref().filter(|_| !self.ready) else { return };
        let tail = self.tails.entry((host, file)).or_default();
        tail.extend_from_slice(bytes);
        let matched = tail.split(|b| *b == b'\n').any(|line| regex.is_match(line));
        let keep = tail.iter().rposition(|b| *b == b'\n').map_or(0, |at| at + 1).max(tail.len().saturating_sub(4096));
        tail.drain(..keep);
        if matched {
            self.say_ready();
        }
    }

    /// Ends the ranks on every host: each host's own script completes it, so a second order only makes it sharper.
    fn turn(&mut self, goal: Goal, why: String) {
        self.engine.emit.send(EventKind::GoalChanged { goal, why: why.clone() });
        self.goal = goal;
        self.gang.told_to_end(crate::engine::emit::now());
        self.why.get_or_insert(why);
        if goal == Goal::Stop && !self.stops.is_empty() {
            return;
        }
        let grace = if goal == Goal::Kill { None } else { Some(self.run.grace) };
        let ordered = !self.by_itself;
        for (link, site) in self.engine.links.iter().cloned().zip(self.run.sites.iter().cloned()) {
            let emit = self.engine.emit.clone();
            self.stops.spawn(async move {
                let action = Action::Stop(Stop { site, grace, ordered, lost: false });
                let Do::Script(command) = action.command() else { return (link.host(), false) };
                emit.send(EventKind::Signalled { host: link.id(), signal: if grace.is_some() { "TERM" } else { "KILL" }.to_owned() });
                let ended = match link.urgent(&command).await {
                    Ok(output) => match action.judge(&output) {
                        Verdict::Done { .. } => true,
                        Verdict::Failed(trouble) => {
                            emit.notice(Some(link.host()), trouble.what, true);
                            false
                        }
                        Verdict::LockLost => false,
                    },
                    Err(error) => {
                        emit.notice(Some(link.host()), format!("its ranks could not be stopped: {error}"), true);
                        false
                    }
                };
                (link.host(), ended)
            });
        }
    }

    /// A host's ranks are dead: its last words get a moment to arrive, then it counts as ended whatever its status file says.
    async fn stopped(&mut self, stopped: Result<(usize, bool), tokio::task::JoinError>, reports: &mut mpsc::Receiver<Report>) {
        let Ok((host, _)) = stopped else { return };
        let patience = tokio::time::sleep(Duration::from_secs(3));
        tokio::pin!(patience);
        while !self.gang.ended(host) {
            tokio::select! {
                () = &mut patience => { self.gang.give_up(host); }
                report = reports.recv() => match report {
                    Some(report) => self.take(&report),
                    None => self.gang.give_up(host),
                }
            }
        }
    }

    /// Whether it failed; a run that a person stopped has no culprit.
    fn failed(&self) -> bool {
        (self.goal == Goal::Up || self.by_itself) && self.elsewhere != Some(true) && self.gang.first().is_some()
    }

    /// Whether the ranks that failed did so because they were stopped from elsewhere: their hosts are asked, at most for so long.
    async fn stopped_elsewhere(&mut self, patience: Duration) -> bool {
        if let Some(known) = self.elsewhere {
            return known;
        }
        if self.goal != Goal::Up || self.run.only_look || self.gang.first().is_none() {
            return false;
        }
        let mut asked = JoinSet::new();
        for host in self.gang.culprits().iter().map(|failure| failure.host).take(ASKED) {
            let (Some(link), Some(site)) = (self.engine.links.get(host).cloned(), self.run.sites.get(host)) else { continue };
            let command = plan::follow::stopped(site);
            asked.spawn(async move {
                let answer = tokio::time::timeout(patience, link.urgent(&command)).await;
                answer.ok().map(|answer| answer.is_ok_and(|output| output.text().trim() == "stopped"))
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
            self.engine.emit.send(EventKind::RunFound { end: RunEnd::Stopped, when: crate::engine::emit::now() });
        }
        // Who did not answer in time is asked again when all has ended.
        self.elsewhere = (found || all).then_some(found);
        found
    }

    /// Asks the hosts of those who failed first what they know of it.
    fn ask_culprits(&mut self) {
        if !self.failed() || self.run.only_look {
            return;
        }
        for host in self.gang.culprits().iter().map(|failure| failure.host) {
            if let (Some(link), Some(site)) = (self.engine.links.get(host), self.run.sites.get(host)) {
                self.aftermath.ask(link, site);
            }
        }
    }

    fn tell_culprits(&mut self) {
        if !self.failed() {
            return;
        }
        let culprits = self.gang.culprits();
        let ranks = culprits.iter().filter_map(|f| f.rank).collect();
        let hosts = culprits.iter().map(|f| u32::try_from(f.host).unwrap_or(u32::MAX)).collect();
        self.engine.emit.send(EventKind::Culprit { ranks, hosts });
    }
}
