//! The session of a command that reaches hosts: inventory, engine and reporter.

use std::sync::Arc;

use crate::engine::Engine;
use crate::engine::emitter::{Emitter, now_unix_millis};
use crate::engine::lock::{HeldLock, LockError, LockIdentity, LockRequest};
use crate::engine::log_stream::LogOffsets;
use crate::event::{EventKind, JOURNAL_FORMAT, Outcome, RunInfo, RunOutcome, StepInfo};
use crate::inventory::{Inventory, InventoryHost, Job};
use crate::lifecycle::error::WorkflowError;
use crate::lifecycle::local_context::LocalContext;
use crate::lifecycle::log_copies::{LogEnd, read_log_tails, read_unprinted_logs, stored_log_offsets};
use crate::lifecycle::random::random_hex;
use crate::lifecycle::reporter_task::{ReporterHandle, ReporterOutcome, ReporterSetup};
use crate::lifecycle::stop_controller::StopController;
use crate::model::remote_command::RemoteCommand;
use crate::plan::Plan;
use crate::plan::action::Issue;
use crate::plan::existing_run::run_outcome;
use crate::plan::facts::HostFacts;
use crate::plan::facts_request::{FactsRequest, facts_command, facts_request};
use crate::plan::host_context::HostContext;
use crate::plan::protocol::run_record::RunRecord;
use crate::remote::RemoteError;
use crate::report::past_runs::RunDir;
use crate::state::RunState;

/// The dashboard always shows this many.
const MIN_HISTORY_LINES: usize = 20;

pub(crate) struct Session {
    pub(crate) inventory: Inventory,
    pub(crate) local: LocalContext,
    pub(crate) engine: Engine,
    pub(crate) reporter: ReporterHandle,
    /// `None` until the run is known.
    pub(crate) run_dir: Option<RunDir>,
    /// Counts the launches of this session from 1.
    pub(crate) attempt: u32,
    command: &'static str,
    /// Held by a shell that has the screen.
    pub(crate) screen_lock: Arc<tokio::sync::Mutex<()>>,
    /// The run that is launched, followed or cleared; empty until it is known.
    pub(crate) run_id: String,
    /// How many of the last lines of this laptop's log copies are shown when following starts.
    pub(crate) history_lines: usize,
    /// How far this laptop's log copies are printed before following starts.
    pub(crate) printed_logs: Vec<LogEnd>,
}

impl Session {
    /// Connects to no host yet.
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
            history_lines: 0,
            printed_logs: Vec::new(),
        }
    }

    /// A nested session for other hosts: no output, its own locks.
    pub(crate) fn open_silent(&self, command: &'static str, inventory: Inventory) -> Session {
        let identity = LockIdentity { token: random_hex(8), ..self.local.identity.clone() };
        let local = LocalContext { identity, ..self.local.clone() };
        Session::open(command, inventory, local, self.reporter.silent_setup())
    }

    pub(crate) fn add_hosts(&mut self, hosts: Vec<InventoryHost>) {
        self.inventory.hosts.extend(hosts);
        let emitter = self.engine.emitter().clone();
        self.engine = self.local.build_engine(&self.inventory, emitter);
    }

    /// Makes these the only hosts; the connections to others are closed.
    pub(crate) async fn replace_hosts(&mut self, hosts: Vec<InventoryHost>) {
        let emitter = self.engine.emitter().clone();
        self.inventory.hosts = hosts;
        let engine = self.local.build_engine(&self.inventory, emitter);
        std::mem::replace(&mut self.engine, engine).close().await;
    }

    /// Reports a line; `warn`: as a warning.
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

    /// A complete command line for this inventory.
    pub(crate) fn suggest_command(&self, verb: &str, rest: &str) -> String {
        self.reporter.advice().format_command(verb, rest)
    }

    /// Tells the outputs the hosts; no run is known yet, or no longer.
    pub(crate) fn announce_hosts(&mut self) {
        self.emit_run_started("", None);
    }

    /// Reports how the current run ended, now, or that it is live.
    pub(crate) fn emit_run_end(&self, end: RunOutcome) {
        let ended_at = if end == RunOutcome::Running { 0 } else { now_unix_millis() };
        self.engine.emitter().send(EventKind::RunEndReported { end, ended_at });
    }

    /// With a plan, the event has its steps and ranks.
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

    /// Sends how the current run of these hosts ended, or that it is live, by its record and exit files.
    pub(crate) fn emit_run_found(&self, facts: &[Option<HostFacts>]) {
        let known: Vec<&HostFacts> = facts.iter().flatten().collect();
        let Some((end, host_seconds)) = run_outcome(&known) else { return };
        // On the laptop's clock, by that of any host: the time has a resolution of one second.
        let reached = self.engine.connections().iter().zip(facts).find(|(_, facts)| facts.is_some());
        let ended_at = reached.map_or(0, |(connection, _)| connection.to_local_time(host_seconds).0);
        self.engine.emitter().send(EventKind::RunEndReported { end, ended_at });
    }

    pub(crate) async fn gather_facts(&self, job: Option<&Job>) -> Vec<Result<HostFacts, RemoteError>> {
        self.engine.gather_facts(self.fact_commands(job).collect()).await
    }

    /// As [`Session::gather_facts`], for a caller that retries.
    pub(crate) async fn poll_facts(&self) -> Vec<Result<HostFacts, RemoteError>> {
        self.engine.ask_for_facts(self.fact_commands(None).collect(), true).await
    }

    /// Re-gathers facts; reports hosts that stopped answering.
    pub(crate) async fn gather_facts_again(&self, earlier: &[Option<HostFacts>]) -> Vec<Option<HostFacts>> {
        let commands = self.fact_commands(None).filter(|(host, _)| earlier.get(*host).is_some_and(Option::is_some));
        collect_facts(self.engine.ask_for_facts(commands.collect(), false).await).0
    }

    fn fact_commands(&self, job: Option<&Job>) -> impl Iterator<Item = (usize, RemoteCommand)> {
        self.inventory.hosts.iter().enumerate().map(move |(i, host)| {
            let context = HostContext::from_inventory(&self.inventory, host, &self.inventory.run_dir);
            let request = FactsRequest { orphans: self.command == "down", ..facts_request(&self.inventory, job, i) };
            (i, facts_command(&context, &request))
        })
    }

    /// Gathers facts of hosts outside this session without output; hosts that do not answer are omitted.
    pub(crate) async fn gather_facts_of_others(&self, others: &Inventory) -> Vec<(String, HostFacts)> {
        let (emitter, _events) = Emitter::new();
        let engine = self.local.build_engine(others, emitter);
        let command = |(i, host): (usize, &InventoryHost)| {
            let context = HostContext::from_inventory(others, host, &others.run_dir);
            (i, facts_command(&context, &facts_request(others, None, i)))
        };
        let answers = engine.gather_facts(others.hosts.iter().enumerate().map(command).collect()).await;
        engine.close().await;
        let names = others.hosts.iter().map(|h| h.name.clone());
        names.zip(answers).filter_map(|(name, answer)| answer.ok().map(|facts| (name, facts))).collect()
    }

    /// Uses the run directory from each host's facts; without facts, the inventory's text.
    pub(crate) fn host_contexts(&self, facts: &[Option<HostFacts>], token: Option<&str>) -> Vec<HostContext> {
        self.inventory
            .hosts
            .iter()
            .zip(facts)
            .map(|(host, facts)| {
                let run_dir = facts.as_ref().map_or(self.inventory.run_dir.as_str(), |f| f.run_dir.as_str());
                let run_id = facts.as_ref().and_then(|f| f.current_run.clone()).unwrap_or_default();
                let mut context = HostContext::from_inventory(&self.inventory, host, run_dir);
                (context.run_id, context.lock_token) = (run_id, token.map(str::to_owned));
                context.follower = self.local.identity.follower_text();
                if let Some(facts) = facts {
                    context.max_log_bytes = facts.run_record().map_or(0, |record| record.max_log_bytes);
                    context.world_size = facts.run_record().map_or(0, |record| record.world_size);
                    context.in_container = facts.runs_in_container(context.in_container);
                    context.has_host_tasks = facts.has_host_tasks;
                }
                context
            })
            .collect()
    }

    /// Opens the run directory on this laptop. Logs are named by the hosts of the run's record, or of the inventory without a record.
    ///
    /// # Errors
    /// The directory cannot be created.
    pub(crate) async fn open_run_dir(&mut self, run: &str, record: Option<&RunRecord>) -> Result<LogOffsets, WorkflowError> {
        let dir = RunDir::open(&self.local.state_dir, run)
            .map_err(|e| WorkflowError::Usage(format!("{}: cannot create the run directory: {e}", self.local.state_dir.display())))?;
        let record = record.filter(|record| record.run_id == run && !record.hosts.is_empty());
        let log_hosts = record.map_or_else(|| self.host_names(), |record| record.hosts.iter().map(|host| host.name.clone()).collect());
        self.run_dir = Some(dir.clone());
        self.reporter.open_run_dir(dir.clone(), log_hosts, self.host_names()).await.map_err(WorkflowError::Usage)?;
        Ok(stored_log_offsets(dir, self.host_names()))
    }

    /// Shows what this laptop has of the logs: the last lines of each, or what was not printed yet.
    pub(crate) fn show_stored_logs(&self, unprinted: bool) {
        let (Some(dir), names) = (&self.run_dir, self.host_names()) else { return };
        self.reporter.show_stored_logs(match unprinted {
            true => read_unprinted_logs(dir, &names, &self.printed_logs),
            false => read_log_tails(dir, &names, self.history_lines.max(MIN_HISTORY_LINES)),
        });
    }

    /// Locks the hosts that answered; also returns the errors of those that were skipped.
    ///
    /// # Errors
    /// The outcome; the error is reported.
    pub(crate) async fn lock_hosts(
        &self,
        facts: &[Option<HostFacts>],
        request: LockRequest,
    ) -> Result<(HeldLock, Vec<(usize, LockError)>), Outcome> {
        let contexts = self.host_contexts(facts, Some(&self.local.identity.token)).into_iter().enumerate();
        let answered = contexts.filter(|(host, _)| facts.get(*host).is_some_and(Option::is_some)).collect();
        let locked = self.engine.lock_hosts(answered, &self.local.identity, request).await;
        locked.map_err(|error| self.report_lock_error(&error))
    }

    fn report_lock_error(&self, error: &LockError) -> Outcome {
        let outcome = match error {
            LockError::Cancelled => return Outcome::Locked,
            LockError::Held { .. } => Outcome::Locked,
            LockError::Remote { .. } => Outcome::Unreachable,
            LockError::AcquireFailed { .. } => Outcome::Refused,
        };
        let hint = if outcome == Outcome::Locked { "; wait until it is released, or take it over: `orchestrate down --yes`" } else { "" };
        self.engine.emitter().send_notice(None, format!("{error}{hint}"), true);
        outcome
    }

    /// Closes the connections, unless the user leaves without waiting for the hosts.
    pub(crate) async fn disconnect(&self, signals: &StopController, outcome: Outcome) -> Outcome {
        signals.run_until_leaving(self.engine.close()).await.err().unwrap_or(outcome)
    }

    /// Sends the final event, then closes the session.
    pub(crate) async fn finish(self, outcome: Outcome, reason: &str, recap: bool) -> Outcome {
        self.emit_run_finished(&outcome, reason);
        self.close(recap).await;
        outcome
    }

    pub(crate) fn emit_run_finished(&self, outcome: &Outcome, reason: &str) {
        self.engine.emitter().send(EventKind::RunFinished { outcome: outcome.clone(), reason: reason.to_owned() });
    }

    /// Ends the outputs, disconnects, prints the recap.
    pub(crate) async fn close(self, recap: bool) -> RunState {
        let had_dashboard = self.reporter.has_dashboard();
        // Wait until an open shell on a host has ended.
        drop(self.screen_lock.lock().await);
        let logs = self.run_dir.as_ref().filter(|dir| dir.has_logs()).map(|dir| dir.logs_dir().display().to_string());
        let mut context = self.reporter.recap_context(logs, self.local.console.columns());
        let ReporterOutcome { state, findings, output_errors } = self.reporter.finish().await;
        context.findings = findings.to_vec();
        self.engine.close().await;
        for text in output_errors {
            self.local.console.print_stderr(&format!("warning: {text}"));
        }
        // Warnings that only the dashboard has shown are printed again.
        for note in state.notices.iter().filter(|note| had_dashboard && note.warn) {
            let prefix = note.host.map_or_else(String::new, |host| format!("{}: ", state.host_name(host)));
            self.local.console.print_stderr(&format!("warning: {}", context.sanitizer.sanitize_line(&format!("{prefix}{}", note.text))));
        }
        if recap {
            for line in crate::report::recap::render_recap(&state, &context) {
                self.local.console.print_finished(&line);
            }
        }
        *state
    }
}

/// The record of the run, from the first host that has it.
pub(crate) fn find_run_record<'a>(mut facts: impl Iterator<Item = &'a HostFacts>, run: &str) -> Option<&'a RunRecord> {
    facts.find_map(|facts| facts.run_record().filter(|record| record.run_id == run))
}

/// Name, error and hint of hosts that gave no answer.
pub(crate) type UnreachableHosts = Vec<(String, String, String)>;

/// The facts of each host, and the hosts that gave none.
pub(crate) fn split_answers(
    names: Vec<String>,
    answers: Vec<Result<HostFacts, RemoteError>>,
) -> (Vec<Option<HostFacts>>, UnreachableHosts) {
    let mut unreachable = Vec::new();
    let mut note = |(name, answer): (String, Result<HostFacts, RemoteError>)| {
        answer.map_err(|error| unreachable.push((name, error.to_string(), error.hint().to_owned()))).ok()
    };
    let facts = names.into_iter().zip(answers).map(&mut note).collect();
    (facts, unreachable)
}

/// Splits answers into facts and an outcome.
pub(crate) fn collect_facts(answers: Vec<Result<HostFacts, RemoteError>>) -> (Vec<Option<HostFacts>>, Outcome) {
    let facts: Vec<Option<HostFacts>> = answers.into_iter().map(Result::ok).collect();
    let outcome = if facts.iter().all(Option::is_some) { Outcome::Ok } else { Outcome::Unreachable };
    (facts, outcome)
}

pub(crate) fn report_issues(session: &Session, issues: &[(usize, Issue)]) {
    for (host, issue) in issues {
        session.engine.emitter().send_notice(Some(*host), format!("{}; help: {}", issue.message, issue.hint), true);
    }
}
