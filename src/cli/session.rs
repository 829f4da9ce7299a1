//! What every command that reaches hosts begins with: the inventory read, the engine made, the reporter at its desk.

use std::path::{Path, PathBuf};
use std::sync::Arc;
use std::time::Duration;

use crate::cli::args::CommonArgs;
use crate::cli::exit::{CliError, worse_outcome};
use crate::cli::local_env::{LocalEnv, build_advice, load_diagnosis_rules, print_stderr, raise_nofile_limit, read_inventory_files};
use crate::cli::reporter_task::{FinalReport, OutputOptions, ReporterHandle, stored_log_offsets};
use crate::diagnose::RuleSet;
use crate::engine::Engine;
use crate::engine::emitter::Emitter;
use crate::engine::lock::{HeldLock, LockError, LockIdentity};
use crate::engine::log_stream::LogOffsets;
use crate::event::{EventKind, JOURNAL_FORMAT, Outcome, RunInfo, StepInfo};
use crate::inventory::lint::{LintFinding, Severity};
use crate::inventory::{
    Become, ContainerEngine as Docker, HostSshSettings, Inventory, InventoryHost, Job, RuntimeValues, is_valid_host_name,
};
use crate::plan::Plan;
use crate::plan::action::Issue;
use crate::plan::build::{facts_request, host_context};
use crate::plan::existing_run::run_outcome;
use crate::plan::facts::{self, ContainerFacts, FactsRequest, HostFacts, OrphanFacts};
use crate::plan::host_context::HostContext;
use crate::plan::protocol::run_record::{RunRecord, RunRecordHost};
use crate::remote::{Connect, RemoteError, SshFleet};
use crate::report::runs::RunDir;
use crate::state::RunState;

/// How much of the inventory must be valid.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub enum LoadMode {
    /// All of it.
    Full,
    /// Who the hosts are and how to reach them.
    ConnectionOnly,
}

/// Reads the inventory of a command.
///
/// # Errors
/// Every problem of it.
pub fn load_inventory(args: &CommonArgs, need: LoadMode) -> Result<(Inventory, PathBuf), CliError> {
    let (read, base) = read_inventory_files(args)?;
    let mut inventory = match need {
        LoadMode::Full => apply_lints(Inventory::load(&read, &args.set)?, args)?,
        LoadMode::ConnectionOnly => Inventory::load_connection(&read, &args.set)?,
    };
    if let Some(pattern) = &args.limit {
        inventory.limit_hosts(pattern).map_err(|problem| CliError::Inventory(vec![problem]))?;
    }
    Ok((inventory, base))
}

/// Tells what the lints find; what is denied is a problem.
fn apply_lints(inventory: Inventory, args: &CommonArgs) -> Result<Inventory, CliError> {
    let (denied, told): (Vec<LintFinding>, Vec<LintFinding>) =
        inventory.run_lints(&RuntimeValues::default(), &args.deny)?.into_iter().partition(|finding| finding.severity == Severity::Deny);
    for finding in &told {
        print_stderr(&build_advice(args, Path::new("."), &[]).complete_commands(&format!("warning: {}", finding.problem)));
    }
    if denied.is_empty() { Ok(inventory) } else { Err(CliError::Inventory(denied.into_iter().map(|f| f.problem).collect())) }
}

/// A host that the record of a run names and the inventory does not.
#[derive(Debug, Clone)]
pub struct RecordedHost {
    /// How it is reached.
    pub host: InventoryHost,
    /// Whether its ranks ran in a container.
    pub in_container: bool,
    jump: Vec<String>,
}

impl RecordedHost {
    /// `name (user@address:port via jump)`.
    pub fn describe(&self) -> String {
        let InventoryHost { name, address, ssh, .. } = &self.host;
        let user = ssh.user.as_ref().map_or_else(String::new, |user| format!("{user}@"));
        let port = ssh.port.map_or_else(String::new, |port| format!(":{port}"));
        let jump = if self.jump.is_empty() { String::new() } else { format!(" via {}", self.jump.join(",")) };
        format!("{name} ({user}{}{port}{jump})", address.as_deref().unwrap_or(name))
    }
}

/// One operation on the hosts of an inventory.
pub struct Session {
    /// Who the hosts are.
    pub inventory: Inventory,
    /// This laptop.
    pub local_env: LocalEnv,
    /// Who we are to other operators.
    pub identity: LockIdentity,
    /// The conductor.
    pub engine: Engine,
    /// The reporter.
    pub reporter: ReporterHandle,
    /// The run's folder, once there is one.
    pub run_dir: Option<RunDir>,
    /// Counts the launches of this operation from 1.
    pub attempt: u32,
    command: &'static str,
    args: CommonArgs,
    base_dir: PathBuf,
    /// Held by a shell on a host while it has the screen.
    pub screen_lock: Arc<tokio::sync::Mutex<()>>,
    /// The run that is followed, launched or cleared away; empty: none yet.
    pub run_id: String,
}

impl Session {
    /// Opens it; nothing is connected yet.
    pub fn open(
        command: &'static str,
        args: &CommonArgs,
        inventory: Inventory,
        base: PathBuf,
        faces: OutputOptions,
        secrets: &[String],
    ) -> Result<Session, CliError> {
        let laptop = LocalEnv::read()?;
        raise_nofile_limit(inventory.hosts.len()).map_err(CliError::Usage)?;
        let (emit, events) = Emitter::new();
        let desk = ReporterHandle::open(args, faces, (secrets, build_advice(args, &base, &inventory.hosts)), events)?;
        // Who only clears away needs none, and no broken rule may stop that.
        if matches!(command, "up" | "tui" | "attach")
            && let Some(own) = load_diagnosis_rules(inventory.diagnosis_source()?, &base)?
        {
            desk.set_rules(RuleSet::with_user_rules(own).map_err(CliError::Inventory)?);
        }
        let engine = build_engine(&laptop, &inventory, &base, args, emit);
        let identity = laptop.lock_identity();
        Ok(Session {
            inventory,
            local_env: laptop,
            identity,
            engine,
            reporter: desk,
            run_dir: None,
            attempt: 1,
            command,
            args: args.clone(),
            base_dir: base,
            screen_lock: Arc::default(),
            run_id: String::new(),
        })
    }

    /// The operation: `up`, `down`.
    pub fn command(&self) -> &'static str {
        self.command
    }

    /// The folder that paths of the inventory begin at.
    pub fn base_dir(&self) -> &std::path::Path {
        &self.base_dir
    }

    /// The names of the hosts, in node-rank order.
    pub fn host_names(&self) -> Vec<String> {
        self.inventory.hosts.iter().map(|h| h.name.clone()).collect()
    }

    /// A command of this inventory, to be pasted.
    pub fn suggest_command(&self, verb: &str, rest: &str) -> String {
        self.reporter.advice().format_command(verb, rest)
    }

    /// Tells what is about to be done; with a plan, its steps and ranks.
    pub fn emit_run_started(&mut self, run: &str, plan: Option<&Plan>) {
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
    pub async fn emit_run_found(&self, facts: &[Option<HostFacts>]) {
        let known: Vec<&HostFacts> = facts.iter().flatten().collect();
        let Some((end, at)) = run_outcome(&known) else { return };
        // The host's second on our clock: of the host whose clock is known best it does not matter which.
        let offset = self.reporter.state().await.hosts.iter().find_map(|host| host.clock_offset).map_or(0, |(offset, _)| offset);
        let when = if at > 0.0 { (at * 1000.0) as i64 - offset } else { 0 };
        self.engine.emitter().send(EventKind::RunEndReported { end, ended_at: when });
    }

    /// Asks every host what it is and what of this name is on it.
    pub async fn gather_facts(&self, job: Option<&Job>) -> Vec<Result<HostFacts, RemoteError>> {
        self.engine.gather_facts(self.fact_commands(job).collect()).await
    }

    /// Asks again those who answered before; who does not answer now is told.
    pub async fn gather_facts_again(&self, seen: &[Option<HostFacts>]) -> Vec<Option<HostFacts>> {
        let questions = self.fact_commands(None).filter(|(host, _)| seen.get(*host).is_some_and(Option::is_some));
        collect_facts(self, self.engine.gather_facts(questions.collect()).await).0
    }

    fn fact_commands(&self, job: Option<&Job>) -> impl Iterator<Item = (usize, crate::model::remote_command::RemoteCommand)> {
        self.inventory.hosts.iter().enumerate().map(move |(i, host)| {
            let site = host_context(&self.inventory, host, &self.inventory.run_dir, "", None);
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
    pub async fn gather_others(&self, others: &Inventory) -> Vec<(String, HostFacts)> {
        let (emit, _silence) = Emitter::new();
        let aside = build_engine(&self.local_env, others, &self.base_dir, &self.args, emit);
        let look = |host: &InventoryHost| {
            let site = host_context(others, host, &others.run_dir, "", None);
            facts::facts_command(&site, &FactsRequest { docker: site.in_container, ..FactsRequest::default() })
        };
        let answers = aside.gather_facts(others.hosts.iter().map(look).enumerate().collect()).await;
        aside.close().await;
        let names = others.hosts.iter().map(|h| h.name.clone());
        names.zip(answers).filter_map(|(name, answer)| answer.ok().map(|facts| (name, facts))).collect()
    }

    /// The sites of all hosts with the run directory that each host told; a host without facts keeps the inventory's text.
    pub fn host_contexts(&self, facts: &[Option<HostFacts>], token: Option<&str>) -> Vec<HostContext> {
        self.inventory
            .hosts
            .iter()
            .zip(facts)
            .map(|(host, facts)| {
                let base = facts.as_ref().map_or(self.inventory.run_dir.as_str(), |f| f.run_dir.as_str());
                let run = facts.as_ref().and_then(|f| f.current_run.clone()).unwrap_or_default();
                let mut site = host_context(&self.inventory, host, base, &run, token.map(str::to_owned));
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
    pub async fn open_run_dir(&mut self, run: &str, record: Option<&RunRecord>) -> Result<LogOffsets, CliError> {
        let dir = RunDir::open(&self.local_env.state_dir, run)
            .map_err(|e| CliError::Usage(format!("{}: the run cannot be kept here: {e}", self.local_env.state_dir.display())))?;
        let record = record.filter(|file| file.run_id == run && !file.hosts.is_empty());
        let record = record.map_or_else(|| self.host_names(), |file| file.hosts.iter().map(|host| host.name.clone()).collect());
        self.run_dir = Some(dir.clone());
        self.reporter.open_run_dir(dir.clone(), record).await.map_err(CliError::Usage)?;
        Ok(stored_log_offsets(dir, self.host_names()))
    }

    /// Locks the name on the hosts that answered, on all of them or on none.
    ///
    /// # Errors
    /// The outcome, told to the person.
    pub async fn lock(&self, facts: &[Option<HostFacts>], wait: Duration, force: bool) -> Result<HeldLock, Outcome> {
        self.engine
            .lock_hosts(self.lockable_hosts(facts), &self.identity, wait, force)
            .await
            .map_err(|error| self.report_lock_error(&error))
    }

    /// Locks the name on those of the hosts that answered where that can be done, and tells where it cannot.
    ///
    /// # Errors
    /// The outcome, told to the person: another operator holds it.
    pub async fn lock_available_hosts(
        &self,
        facts: &[Option<HostFacts>],
        wait: Duration,
        force: bool,
    ) -> Result<(HeldLock, Vec<(usize, LockError)>), Outcome> {
        let locked = self.engine.lock_available_hosts(self.lockable_hosts(facts), &self.identity, wait, force).await;
        locked.map_err(|error| self.report_lock_error(&error))
    }

    fn lockable_hosts(&self, facts: &[Option<HostFacts>]) -> Vec<(usize, HostContext)> {
        let sites = self.host_contexts(facts, Some(&self.identity.token));
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

    /// The hosts that a run's record names and the inventory does not, each once. The record of an earlier version counts for the host it lies on
    /// alone: a rank could have written it.
    pub fn recorded_hosts(&self, facts: &[Option<HostFacts>]) -> Vec<RecordedHost> {
        let mut found: Vec<RecordedHost> = Vec::new();
        let current = facts.iter().flatten().filter(|facts| !facts.legacy_layout).filter_map(HostFacts::run_record);
        let elsewhere = facts.iter().flatten().flat_map(|facts| &facts.orphans.run_records);
        for file in current.chain(elsewhere) {
            for host in file.hosts.iter().filter(|_| file.name == self.inventory.name && !file.boundary_voided) {
                let known = self.inventory.hosts.iter().any(|h| h.name == host.name) || found.iter().any(|f| f.host.name == host.name);
                if !known {
                    let jump = host.jump.clone().unwrap_or_default();
                    found.push(RecordedHost { in_container: file.in_container, jump, host: host_from_record(host, self.default_ssh()) });
                }
            }
        }
        found
    }

    /// The hosts of the inventory under the names that they had when something of ours came there, as it shows itself: a container, a process, or a
    /// directory that no record explains. No other machine is reached for them.
    pub fn renamed_hosts(&self, facts: &[Option<HostFacts>]) -> Vec<RecordedHost> {
        let mut found: Vec<RecordedHost> = Vec::new();
        for (host, facts) in self.inventory.hosts.iter().zip(facts) {
            let Some(facts) = facts else { continue };
            let OrphanFacts { containers, processes, host_names: dirs, run_records: records, .. } = &facts.orphans;
            let ours = containers.iter().filter(|c| self.is_ours(c, facts)).map(|c| (&c.host, true));
            let explained = |name: &String| records.iter().any(|file| file.hosts.iter().any(|host| host.name == *name));
            let dirs = dirs.iter().filter(|name| !explained(name)).map(|name| (name, !facts.containers.is_empty()));
            for (name, contained) in ours.chain(processes.iter().map(|p| (&p.host, false))).chain(dirs) {
                let known = self.inventory.hosts.iter().any(|h| h.name == *name) || found.iter().any(|f| f.host.name == *name);
                if !known && is_valid_host_name(name) {
                    let address = host.address.clone().or_else(|| Some(host.name.clone()));
                    let jump = host.ssh.jump_hosts.clone().unwrap_or_default();
                    found.push(RecordedHost {
                        in_container: contained,
                        jump,
                        host: InventoryHost { name: name.clone(), address, ..host.clone() },
                    });
                }
            }
        }
        found
    }

    /// Whether a container of this name is ours: its files are where ours are, or, where that is not known, we launched it.
    pub fn is_ours(&self, found: &ContainerFacts, facts: &HostFacts) -> bool {
        match found.run_dir.as_str() {
            "" => found.owner == self.identity.owner,
            dir => dir == facts.run_dir && facts.orphans.foreign_dir.is_none(),
        }
    }

    /// Whether a host of a record is one of the inventory under another name: the same address, user and port.
    pub fn is_renamed(&self, recorded: &RecordedHost) -> bool {
        let at = |host: &InventoryHost| (host.address.clone().unwrap_or_else(|| host.name.clone()), host.ssh.user.clone(), host.ssh.port);
        self.inventory.hosts.iter().any(|host| at(host) == at(&recorded.host))
    }

    fn default_ssh(&self) -> Option<&HostSshSettings> {
        self.inventory.hosts.first().map(|h| &h.ssh)
    }

    /// Makes them part of this operation, so that they are cleaned too.
    pub fn add_hosts(&mut self, recorded: Vec<RecordedHost>) {
        for RecordedHost { host, in_container: contained, .. } in recorded {
            if contained && self.inventory.engine.is_none() {
                self.inventory.engine = Some(Docker::default());
            }
            self.inventory.hosts.push(host);
        }
        let emit = self.engine.emitter().clone();
        self.engine = build_engine(&self.local_env, &self.inventory, &self.base_dir, &self.args, emit);
    }

    /// Whether the person lets hosts be reached that only the record of a run names: `--yes`, or an answer on the terminal. They are named.
    pub fn confirm_reaching_hosts(&self, recorded: &[RecordedHost]) -> bool {
        let names = recorded.iter().map(RecordedHost::describe).collect::<Vec<_>>().join(", ");
        if self.args.yes {
            self.engine.emitter().send_notice(None, format!("also on hosts that only the run's record names: {names}"), false);
            return true;
        }
        crate::cli::local_env::confirm_on_terminal(&format!(
            "The run's record also names hosts that are not in the inventory: {names}. Reach them too?"
        ))
    }

    /// The last words: the final event, the recap, the goodbye to the hosts; the outcome as given.
    pub async fn finish(self, outcome: Outcome, why: &str, recap: bool) -> (Outcome, RunState) {
        self.emit_run_finished(&outcome, why);
        self.close(outcome, recap).await
    }

    /// The final event.
    pub fn emit_run_finished(&self, outcome: &Outcome, why: &str) {
        self.engine.emitter().send(EventKind::RunFinished { outcome: outcome.clone(), reason: why.to_owned() });
    }

    /// What follows the final event.
    pub async fn close(self, outcome: Outcome, recap: bool) -> (Outcome, RunState) {
        let screen = self.reporter.has_dashboard();
        // A person in a shell on a host is not thrown out of it by the end of the run.
        drop(self.screen_lock.lock().await);
        let logs = self.run_dir.as_ref().map(|d| d.logs_dir().display().to_string());
        let mut context = self.reporter.recap_context(logs);
        let FinalReport { state, findings, output_errors: lost } = self.reporter.finish().await;
        context.findings = findings;
        self.engine.close().await;
        for text in lost {
            print_stderr(&format!("warning: {text}"));
        }
        // What a face of lines would have said is not on the normal screen yet.
        for note in state.notices.iter().filter(|note| screen && note.warn) {
            let place = note.host.map_or_else(String::new, |host| format!("{}: ", state.host_name(host)));
            print_stderr(&format!("warning: {}", context.sanitizer.sanitize_line(&format!("{place}{}", note.text))));
        }
        if recap {
            for line in crate::report::recap::render_recap(&state, &context) {
                print_stderr(&line);
            }
        }
        (outcome, *state)
    }
}

fn build_engine(laptop: &LocalEnv, inventory: &Inventory, base: &std::path::Path, args: &CommonArgs, emit: Emitter) -> Engine {
    let fleet: Arc<dyn Connect> = Arc::new(SshFleet::new(inventory.hosts.clone(), laptop.connection_settings(base, args)));
    Engine::new(&fleet, inventory.hosts.len(), args.forks, emit)
}

fn host_from_record(host: &RunRecordHost, like: Option<&HostSshSettings>) -> InventoryHost {
    let mut ssh = like.cloned().unwrap_or_default();
    ssh.user.clone_from(&host.user);
    ssh.port = host.port;
    ssh.jump_hosts.clone_from(&host.jump);
    ssh.r#become = if host.sudo { Become::Sudo } else { Become::None };
    InventoryHost {
        name: host.name.clone(),
        address: host.address.clone(),
        fabric_address: Some(host.fabric_address.clone()),
        gpus: crate::inventory::GpuSelection::Any,
        ssh,
    }
}

/// What a run says of itself on the first host that has it.
pub fn find_run_record<'a>(mut facts: impl Iterator<Item = &'a HostFacts>, run: &str) -> Option<&'a RunRecord> {
    facts.find_map(|facts| facts.run_record().filter(|file| file.run_id == run))
}

/// The facts of those who answered; the others are told, and how it ends for them.
pub fn collect_facts(session: &Session, answers: Vec<Result<HostFacts, RemoteError>>) -> (Vec<Option<HostFacts>>, Outcome) {
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
pub(super) fn report_issues(session: &Session, troubles: &[(usize, Issue)]) -> Outcome {
    for (host, trouble) in troubles {
        session.engine.emitter().send_notice(Some(*host), format!("{}; help: {}", trouble.message, trouble.hint), true);
    }
    Outcome::Refused
}
