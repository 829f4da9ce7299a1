//! Carries a plan out: one task a step, under its deadline, tried again where the connection and not the host was at fault.

use std::sync::Arc;
use std::time::Duration;

use tokio::task::{AbortHandle, JoinSet};
use tokio_util::sync::CancellationToken;

use crate::engine::Engine;
use crate::engine::decide::{Standing, Temper, next};
use crate::engine::link::Link;
use crate::engine::watch::{self, Offsets};
use crate::event::EventKind;
use crate::plan::action::{Action, Do, Seen, Trouble, Verdict};
use crate::plan::facts::HostFacts;
use crate::plan::words::Phase;
use crate::plan::{Plan, Step};
use crate::remote::{Reached, RemoteError};

/// How often a step is tried on a new connection.
const TRIES: u32 = 4;

/// A step that failed.
#[derive(Debug, Clone)]
pub struct Failed {
    /// Its host.
    pub host: usize,
    /// Its phase.
    pub phase: Phase,
    /// What is wrong.
    pub trouble: Trouble,
    /// Whether the host could not be reached.
    pub unreachable: bool,
}

/// How a plan was carried out.
#[derive(Debug, Default)]
pub struct Carried {
    /// What failed.
    pub failed: Vec<Failed>,
    /// Steps that changed something.
    pub changed: u32,
    /// Another operator took the lock.
    pub lock_lost: bool,
    /// It was broken off from outside.
    pub interrupted: bool,
    /// Hosts on which a launcher was started.
    pub launched: Vec<usize>,
    /// Whether a step was begun, well or not, that may have left something on its host.
    pub touched: bool,
}

impl Carried {
    /// Whether everything was done.
    pub fn ok(&self) -> bool {
        self.failed.is_empty() && !self.lock_lost && !self.interrupted
    }
}

enum Ended {
    Satisfied(String),
    Verdict(Verdict),
    Impossible(Vec<Trouble>),
    Unreachable(RemoteError),
}

impl Engine {
    /// Carries out every step of a plan. `facts`: one a host, what the steps observe. `breaking` ends it before the next step begins; what is
    /// under way is let end within its deadline.
    pub async fn carry_out(
        &self,
        plan: &Arc<Plan>,
        facts: &[Option<HostFacts>],
        offsets: &Offsets,
        temper: Temper,
        breaking: &CancellationToken,
    ) -> Carried {
        let mut ledger = vec![Standing::Waiting; plan.steps.len()];
        let mut carried = Carried::default();
        let mut tasks: JoinSet<(u32, Ended)> = JoinSet::new();
        let mut phase = None;
        let mut looking: Vec<AbortHandle> = Vec::new();
        let mut broken = false;
        loop {
            if !breaking.is_cancelled() && !carried.lock_lost {
                for id in next(plan, &ledger, temper) {
                    let Some(step) = plan.steps.get(id as usize) else { continue };
                    if phase != Some(step.phase) {
                        phase = Some(step.phase);
                        self.emitter().send(EventKind::PhaseStarted { phase: step.phase });
                    }
                    if let Some(standing) = ledger.get_mut(id as usize) {
                        *standing = Standing::Running;
                    }
                    let begun = self.begin(&mut tasks, step.clone(), facts.get(step.host).cloned().flatten(), offsets, plan.sites.len());
                    looking.extend(begun.filter(|_| step.action.only_looks()));
                }
            }
            let done = tokio::select! {
                done = tasks.join_next() => done,
                () = breaking.cancelled(), if !broken => {
                    broken = true;
                    looking.iter().for_each(AbortHandle::abort);
                    continue;
                }
            };
            let Some(done) = done else { break };
            let Ok((id, ended)) = done else { continue };
            let standing = self.record(plan, id, ended, &mut carried);
            if let Some(place) = ledger.get_mut(id as usize) {
                *place = standing;
            }
        }
        for (step, _) in plan.steps.iter().zip(&ledger).filter(|(_, s)| **s == Standing::Running) {
            self.emit.send(EventKind::StepFailed { step: step.id, error: "broken off".to_owned(), hint: String::new() });
            carried.touched |= step.action.may_leave();
        }
        carried.interrupted = breaking.is_cancelled() && ledger.iter().any(|s| matches!(s, Standing::Waiting | Standing::Running));
        carried
    }

    fn begin(
        &self,
        tasks: &mut JoinSet<(u32, Ended)>,
        step: Step,
        facts: Option<HostFacts>,
        offsets: &Offsets,
        hosts: usize,
    ) -> Option<AbortHandle> {
        let link = self.links.get(step.host).cloned()?;
        let (emit, forks, offsets) = (self.emit.clone(), self.forks.clone(), offsets.clone());
        Some(tasks.spawn(async move {
            let id = step.id;
            if let Some(facts) = &facts {
                match step.action.observe(facts) {
                    Seen::Satisfied(note) => return (id, Ended::Satisfied(note)),
                    Seen::Impossible(troubles) => return (id, Ended::Impossible(troubles)),
                    Seen::Needed(_) => {}
                }
            }
            let _turn = forks.acquire_owned().await;
            emit.send(EventKind::StepStarted { step: id });
            (id, carry(&link, &step, &offsets, hosts).await)
        }))
    }

    fn record(&self, plan: &Plan, id: u32, ended: Ended, carried: &mut Carried) -> Standing {
        let Some(step) = plan.steps.get(id as usize) else { return Standing::Failed };
        carried.touched |= matches!(ended, Ended::Verdict(_) | Ended::Unreachable(_)) && step.action.may_leave();
        match ended {
            Ended::Satisfied(note) => {
                self.emit.send(EventKind::StepSatisfied { step: id, note });
                Standing::Done
            }
            Ended::Verdict(Verdict::Done { note, changed, warning }) => {
                if !warning.is_empty() {
                    self.emit.notice(Some(step.host), warning, true);
                }
                carried.changed += u32::from(changed);
                if let Action::Launch(_) = step.action {
                    carried.launched.push(step.host);
                    self.emit.send(EventKind::NodeStarted { host: u32::try_from(step.host).unwrap_or(u32::MAX) });
                }
                let kind = if changed { EventKind::StepDone { step: id, note } } else { EventKind::StepSatisfied { step: id, note } };
                self.emit.send(kind);
                Standing::Done
            }
            Ended::Verdict(Verdict::Failed(trouble)) => self.fail(step, vec![trouble], false, carried),
            Ended::Impossible(troubles) => self.fail(step, troubles, false, carried),
            Ended::Verdict(Verdict::LockLost) => {
                carried.lock_lost = true;
                self.fail(step, vec![Trouble::new("another operator took the lock", "")], false, carried)
            }
            Ended::Unreachable(error) => self.fail(step, vec![Trouble::new(error.to_string(), error.hint())], true, carried),
        }
    }

    fn fail(&self, step: &Step, troubles: Vec<Trouble>, unreachable: bool, carried: &mut Carried) -> Standing {
        let error = troubles.iter().map(|t| t.what.as_str()).collect::<Vec<_>>().join("; ");
        let mut hints: Vec<&str> = troubles.iter().map(|t| t.hint.as_str()).filter(|h| !h.is_empty()).collect();
        hints.dedup();
        self.emit.send(EventKind::StepFailed { step: step.id, error, hint: hints.join("; ") });
        carried.failed.extend(troubles.into_iter().map(|trouble| Failed { host: step.host, phase: step.phase, trouble, unreachable }));
        Standing::Failed
    }
}

async fn carry(link: &Arc<Link>, step: &Step, offsets: &Offsets, hosts: usize) -> Ended {
    let mut tries = 1;
    loop {
        let ended = attempt(link, step, offsets, hosts).await;
        let Ended::Unreachable(error) = &ended else { return ended };
        if !error.may_retry() || tries >= TRIES || matches!(error, RemoteError::Timeout { .. }) {
            return ended;
        }
        link.retrying(step.id, error);
        tokio::time::sleep(Duration::from_millis(500 << tries)).await;
        tries += 1;
    }
}

async fn attempt(link: &Arc<Link>, step: &Step, offsets: &Offsets, hosts: usize) -> Ended {
    match step.action.command() {
        Do::Nothing => Ended::Satisfied(String::new()),
        Do::Script(command) => match link.exec(&command).await {
            Ok(output) => Ended::Verdict(step.action.judge(&output)),
            Err(error) => Ended::Unreachable(error),
        },
        Do::Reach { address, port, within } => match link.reach(&address, port, within).await {
            Ok(Reached::Open | Reached::Refused) => Ended::Verdict(Verdict::fine(format!("{address}:{port} can be reached"))),
            Ok(Reached::Untold(why)) => Ended::Satisfied(format!("not known: {why}")),
            Ok(Reached::Blocked(why)) => Ended::Verdict(Verdict::failed(
                format!("{address}:{port} cannot be reached: {why}"),
                format!(
                    "let TCP port {port} through the master's firewall, or set the master's fabric_address to one that the workers reach"
                ),
            )),
            Err(error) => Ended::Unreachable(error),
        },
        Do::Fetch { run: _ } => {
            let Action::Fetch(fetch) = &step.action else { return Ended::Satisfied(String::new()) };
            match watch::fetch_for_good(link, &fetch.site, offsets, hosts).await {
                Ok(fetched) => Ended::Verdict(Verdict::fine(brought(&fetched))),
                Err(watch::Trouble::Remote(error)) => Ended::Unreachable(error),
                Err(watch::Trouble::NotStored) => Ended::Verdict(Verdict::failed(
                    "the logs could not be written on this laptop",
                    "free space here then `orchestrate down`: the host keeps them",
                )),
                Err(watch::Trouble::NotSynced(why)) => Ended::Verdict(Verdict::failed(
                    format!("this laptop's disk did not take the logs: {why}"),
                    "look at the disk then `orchestrate down`: the host keeps them",
                )),
            }
        }
    }
}

/// What a fetch brought, in words; a log that shrank is not complete.
fn brought(fetched: &watch::Fetched) -> String {
    let names: Vec<String> = fetched.shrunk.iter().map(ToString::to_string).collect();
    if names.is_empty() {
        return format!("{} bytes", fetched.bytes);
    }
    format!("{} bytes; not complete, since shorter on the host than before: {}", fetched.bytes, names.join(" "))
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::event::LogFile;

    #[test]
    fn what_shrank_is_never_called_complete() {
        let whole = watch::Fetched { bytes: 7, ..watch::Fetched::default() };
        assert_eq!(brought(&whole), "7 bytes");
        let shrunk = watch::Fetched { shrunk: [LogFile::Node, LogFile::Rank { rank: 3, restart: 0 }].into(), ..whole };
        assert_eq!(brought(&shrunk), "7 bytes; not complete, since shorter on the host than before: node rank-3.0");
    }
}
