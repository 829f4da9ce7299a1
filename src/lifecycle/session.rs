//! What every command that reaches hosts begins with: the inventory read, the engine made, the reporter at its desk.

use std::path::PathBuf;
use std::sync::Arc;
use std::time::Duration;

use crate::engine::Engine;
use crate::engine::emitter::Emitter;
use crate::engine::lock::{HeldLock, LockError, LockIdentity};
use crate::engine::log_stream::LogOffsets;
use crate::event::{EventKind, JOURNAL_FORMAT, Outcome, RunInfo, StepInfo};
use crate::inventory::{Inventory, InventoryHost, Job};
use crate::lifecycle::error::{WorkflowError, worse_outcome};
use crate::lifecycle::operator::Console;
use crate::lifecycle::random::random_hex;
use crate::lifecycle::reporter_task::{ReporterHandle, ReporterOutcome, ReporterSetup, stored_log_offsets};
use crate::lifecycle::stop_controller::StopController;
use crate::plan::Plan;
use crate::plan::action::Issue;
use crate::plan::build::facts_request;
use crate::plan::existing_run::run_outcome;
use crate::plan::facts::{self, FactsRequest, HostFacts};
use crate::plan::host_context::HostContext;
use crate::plan::protocol::run_record::RunRecord;
use crate::remote::{HostConnector, RemoteError, SshFleet, SshSettings};
use crate::report::past_runs::RunDir;
use crate::state::RunState;

/// What a session needs of this laptop.
#[derive(Clone)]
pub(crate) struct LocalContext {
    pub(crate) identity: LockIdentity,
    pub(crate) ssh: SshSettings,
    /// Where runs are kept.
    pub(crate) state_dir: PathBuf,
    /// How many remote commands run at once.
    pub(crate) forks: usize,
    /// Every question is answered with yes.
    pub(crate) assume_yes: bool,
    pub(crate) console: Arc<dyn Console>,
}

impl LocalContext {
    fn build_engine(&self, inventory: &Inventory, emitter: Emitter) -> Engine {
        let fleet: Arc<dyn HostConnector> = Arc::new(SshFleet::new(inventory.hosts.clone(), self.ssh.clone()));
        Engine::new(&fleet, inventory.hosts.len(), self.forks, emitter)
    }
}

/// One operation on the hosts of an inventory.
pub(crate) struct Session {
    /// Who the hosts are.
    pub(crate) inventory: Inventory,
    pub(crate) local: LocalContext,
    pub(crate) engine: Engine,
    pub(crate) reporter: ReporterHandle,
    /// The run's folder, once there is one.
    pub(crate) run_dir: Option<RunDir>,
    /// Counts the launches of this operation from 1.
    pub(crate) attempt: u32,
    command: &'static str,
    /// Held by a shell on a host while it has the screen.
    pub(crate) screen_lock: Arc<tokio::sync::Mutex<()>>,
    /// The run that is followed, launched or cleared away; empty: none yet.
    pub(crate) run_id: String,
}

impl Session {
    /// Opens it; nothing is connected yet.
    pub(crate) fn open(command: &'static str, inventory: Inventory, local: LocalContext, reporter: ReporterSetup) -> Session {
        let (emitter, events) = Emitter::new();
        Session {
            engine: local.build_engine(&inventory, emitter),
            reporter: ReporterHandle::spawn(reporter, events),
            inventory,
            local,
            run_dir: None,
            attempt: 1,
            command,
            screen_lock: Arc::default(),
            run_id: String::new(),
        }
    }

    /// A session within this one for other hosts, which shows nothing and takes locks of its own.
    pub(crate) fn open_silent(&self, command: &'static str, inventory: Inventory) -> Session {
        let identity = LockIdentity { token: random_hex(8), ..self.local.identity.clone() };
        let local = LocalContext { identity, ..self.local.clone() };
        Session::open(command, inventory, local, self.reporter.silent_setup())
    }

    /// Makes these hosts part of this operation.
    pub(crate) fn add_hosts(&mut self, hosts: Vec<InventoryHost>) {
        self.inventory.hosts.extend(hosts);
        let emitter = self.engine.emitter().clone();
        self.engine = self.local.build_engine(&self.inventory, emitter);
    }

    /// Tells a line; `warn`: it is a warning.
    pub(crate) fn notice(&self, text: impl Into<String>, warn: bool) {
        self.engine.emitter().send_notice(None, text.into(), warn);
    }

    /// The operation: `up`, `down`.
    pub(crate) fn command(&self) -> &'static str {
        self.command
    }

    /// The names of the hosts, in node-rank order.
    pub(crate) fn host_names(&self) -> Vec<String> {
        self.inventory.hosts.iter().map(|h| h.name.clone()).collect()
    }

    /// A command of this inventory, to be pasted.
    pub(crate) fn suggest_command(&self, verb: &str, rest: &str) -> String {
        self.reporter.advice().format_command(verb, rest)
    }

    /// Tells what is about to be done; with a plan, its steps and ranks.
    pub(crate) fn emit_run_started(&mut self, run: &str, plan: Option<&Plan>) {
        run.clone_into(&mut self.run_id);
        let steps = plan.map_or(Vec::new(), |p| {
            let info = |s: &crate::plan::PlanStep| StepInfo {
                id: s.id,
                host: u32::try_from(s.host).unwrap_or(u32::MAX),
                phase: s.phase,
                title: s.action.title().to_owned(),
            };
            p.steps.iter().map(info).collect()
        });
        let ranks = plan.map_or(Vec::new(), |p| match (&p.run_record, p.ranks.is_empty()) {
            (Some(run), true) => run.ranks.clone(),
            _ => p.ranks.clone(),
        });
        self.engine.emitter().send(EventKind::RunStarted(RunInfo {
            format: JOURNAL_FORMAT.to_owned(),
            name: self.inventory.name.clone(),
            run_id: run.to_owned(),
            command: self.command.to_owned(),
            attempt: self.attempt,
            hosts: self.host_names(),
            ranks,
            steps,
            metrics: self.inventory.metrics.clone(),
        }));
    }

    /// Tells how the current run of these hosts ended, or that it runs, as their record, statuses and marks say.
    pub(crate) async fn emit_run_found(&self, facts: &[Option<HostFacts>]) {
        let known: Vec<&HostFacts> = facts.iter().flatten().collect();
        let Some((end, at)) = run_outcome(&known) else { return };
        // The host's second on our clock: of the host whose clock is known best it does not matter which.
        let offset = self.reporter.state().await.hosts.iter().find_map(|host| host.clock_offset).map_or(0, |(offset, _)| offset);
        let when = if at > 0.0 { (at * 1000.0) as i64 - offset } else { 0 };
        self.engine.emitter().send(EventKind::RunEndReported { end, ended_at: when });
    }

    /// Asks every host what it is and what of this name is on it.
    pub(crate) async fn gather_facts(&self, job: Option<&Job>) -> Vec<Result<HostFacts, RemoteError>> {
        self.engine.gather_facts(self.fact_commands(job).collect()).await
    }

    /// Asks again those who answered before; who does not answer now is told.
    pub(crate) async fn gather_facts_again(&self, seen: &[Option<HostFacts>]) -> Vec<Option<HostFacts>> {
        let questions = self.fact_commands(None).filter(|(host, _)| seen.get(*host).is_some_and(Option::is_some));
        collect_facts(self, self.engine.gather_facts(questions.collect()).await).0
    }

    fn fact_commands(&self, job: Option<&Job>) -> impl Iterator<Item = (usize, crate::model::remote_command::RemoteCommand)> {
        self.inventory.hosts.iter().enumerate().map(move |(i, host)| {
            let site = HostContext::from_inventory(&self.inventory, host, &self.inventory.run_dir);
            let left = self.command == "down";
            let wanted = if job.is_some() {
                facts_request(&self.inventory, job, i)
            } else {
                FactsRequest { docker: site.in_container, orphans: left, ..FactsRequest::default() }
            };
            (i, facts::facts_command(&site, &wanted))
        })
    }

    /// Looks at hosts that are no part of this operation, in silence; those that do not answer are left out.
    pub(crate) async fn gather_facts_of_others(&self, others: &Inventory) -> Vec<(String, HostFacts)> {
        let (emit, _silence) = Emitter::new();
        let aside = self.local.build_engine(others, emit);
        let look = |host: &InventoryHost| {
            let site = HostContext::from_inventory(others, host, &others.run_dir);
            facts::facts_command(&site, &FactsRequest { docker: site.in_container, ..FactsRequest::default() })
        };
        let answers = aside.gather_facts(others.hosts.iter().map(look).enumerate().collect()).await;
        aside.close().await;
        let names = others.hosts.iter().map(|h| h.name.clone());
        names.zip(answers).filter_map(|(name, answer)| answer.ok().map(|facts| (name, facts))).collect()
    }

    /// The sites of all hosts with the run directory that each host told; a host without facts keeps the inventory's text.
    pub(crate) fn host_contexts(&self, facts: &[Option<HostFacts>], token: Option<&str>) -> Vec<HostContext> {
        self.inventory
            .hosts
            .iter()
            .zip(facts)
            .map(|(host, facts)| {
                let base = facts.as_ref().map_or(self.inventory.run_dir.as_str(), |f| f.run_dir.as_str());
                let run = facts.as_ref().and_then(|f| f.current_run.clone()).unwrap_or_default();
                let mut site = HostContext::from_inventory(&self.inventory, host, base);
                (site.run_id, site.lock_token) = (run, token.map(str::to_owned));
                if let Some(facts) = facts {
                    site.legacy_layout = facts.legacy_layout;
                    site.max_log_bytes = facts.run_record().map_or(0, |file| file.max_log_bytes);
                    site.world_size = facts.run_record().map_or(0, |file| file.world_size);
                    site.in_container = facts.runs_in_container(site.in_container);
                }
                site
            })
            .collect()
    }

    /// Keeps a run in its folder on this laptop from now on, its logs named by the hosts of its record; where that is not known, by ours.
    ///
    /// # Errors
    /// When the folder cannot be made.
    pub(crate) async fn open_run_dir(&mut self, run: &str, record: Option<&RunRecord>) -> Result<LogOffsets, WorkflowError> {
        let dir = RunDir::open(&self.local.state_dir, run)
            .map_err(|e| WorkflowError::Usage(format!("{}: the run cannot be kept here: {e}", self.local.state_dir.display())))?;
        let record = record.filter(|file| file.run_id == run && !file.hosts.is_empty());
        let record = record.map_or_else(|| self.host_names(), |file| file.hosts.iter().map(|host| host.name.clone()).collect());
        self.run_dir = Some(dir.clone());
        self.reporter.open_run_dir(dir.clone(), record).await.map_err(WorkflowError::Usage)?;
        Ok(stored_log_offsets(dir, self.host_names()))
    }

    /// Locks the name on the hosts that answered, on all of them or on none.
    ///
    /// # Errors
    /// The outcome, told to the person.
    pub(crate) async fn lock_hosts(&self, facts: &[Option<HostFacts>], wait: Duration, force: bool) -> Result<HeldLock, Outcome> {
        self.engine
            .lock_hosts(self.lockable_hosts(facts), &self.local.identity, wait, force)
            .await
            .map_err(|error| self.report_lock_error(&error))
    }

    /// Locks the name on those of the hosts that answered where that can be done, and tells where it cannot.
    ///
    /// # Errors
    /// The outcome, told to the person: another operator holds it.
    pub(crate) async fn lock_available_hosts(
        &self,
        facts: &[Option<HostFacts>],
        wait: Duration,
        force: bool,
    ) -> Result<(HeldLock, Vec<(usize, LockError)>), Outcome> {
        let locked = self.engine.lock_available_hosts(self.lockable_hosts(facts), &self.local.identity, wait, force).await;
        locked.map_err(|error| self.report_lock_error(&error))
    }

    fn lockable_hosts(&self, facts: &[Option<HostFacts>]) -> Vec<(usize, HostContext)> {
        let sites = self.host_contexts(facts, Some(&self.local.identity.token));
        sites.into_iter().enumerate().filter(|(i, _)| facts.get(*i).is_some_and(Option::is_some)).collect()
    }

    fn report_lock_error(&self, error: &LockError) -> Outcome {
        let outcome = match error {
            LockError::Held { .. } => Outcome::Locked,
            LockError::Remote { .. } => Outcome::Unreachable,
            LockError::AcquireFailed { .. } => Outcome::Refused,
        };
        let hint = if outcome == Outcome::Locked { "; wait for it, or take it over: `orchestrate down --yes`" } else { "" };
        self.engine.emitter().send_notice(None, format!("{error}{hint}"), true);
        outcome
    }

    /// Closes the connections, unless the user leaves without waiting for the hosts.
    pub(crate) async fn disconnect(&self, signals: &StopController, outcome: Outcome) -> Outcome {
        signals.run_until_leaving(self.engine.close()).await.err().unwrap_or(outcome)
    }

    /// Sends the final event, then closes the session.
    pub(crate) async fn finish(self, outcome: Outcome, why: &str, recap: bool) -> (Outcome, RunState) {
        self.emit_run_finished(&outcome, why);
        self.close(outcome, recap).await
    }

    pub(crate) fn emit_run_finished(&self, outcome: &Outcome, why: &str) {
        self.engine.emitter().send(EventKind::RunFinished { outcome: outcome.clone(), reason: why.to_owned() });
    }

    /// What follows the final event.
    pub(crate) async fn close(self, outcome: Outcome, recap: bool) -> (Outcome, RunState) {
        let screen = self.reporter.has_dashboard();
        // A person in a shell on a host is not thrown out of it by the end of the run.
        drop(self.screen_lock.lock().await);
        let logs = self.run_dir.as_ref().map(|d| d.logs_dir().display().to_string());
        let mut context = self.reporter.recap_context(logs, self.local.console.columns());
        let ReporterOutcome { state, findings, output_errors: lost } = self.reporter.finish().await;
        context.findings = findings;
        self.engine.close().await;
        for text in lost {
            self.local.console.print_stderr(&format!("warning: {text}"));
        }
        // What a face of lines would have said is not on the normal screen yet.
        for note in state.notices.iter().filter(|note| screen && note.warn) {
            let place = note.host.map_or_else(String::new, |host| format!("{}: ", state.host_name(host)));
            self.local.console.print_stderr(&format!("warning: {}", context.sanitizer.sanitize_line(&format!("{place}{}", note.text))));
        }
        if recap {
            for line in crate::report::recap::render_recap(&state, &context) {
                self.local.console.print_stderr(&line);
            }
        }
        (outcome, *state)
    }
}

/// What a run says of itself on the first host that has it.
pub(crate) fn find_run_record<'a>(mut facts: impl Iterator<Item = &'a HostFacts>, run: &str) -> Option<&'a RunRecord> {
    facts.find_map(|facts| facts.run_record().filter(|file| file.run_id == run))
}

/// The facts of those who answered; the others are told, and how it ends for them.
pub(crate) fn collect_facts(session: &Session, answers: Vec<Result<HostFacts, RemoteError>>) -> (Vec<Option<HostFacts>>, Outcome) {
    let mut outcome = Outcome::Ok;
    let facts = answers.into_iter().enumerate().map(|(i, answer)| match answer {
        Ok(facts) => Some(facts),
        Err(error) => {
            outcome = worse_outcome(Outcome::Unreachable, outcome.clone());
            let hint = error.hint();
            if !hint.is_empty() {
                session.engine.emitter().send_notice(Some(i), format!("help: {hint}"), true);
            }
            None
        }
    });
    let facts = facts.collect();
    (facts, outcome)
}

/// Tells what is in the way of a plan.
pub(crate) fn report_issues(session: &Session, issues: &[(usize, Issue)]) -> Outcome {
    for (host, trouble) in issues {
        session.engine.emitter().send_notice(Some(*host), format!("{}; help: {}", trouble.message, trouble.hint), true);
    }
    Outcome::Refused
}
