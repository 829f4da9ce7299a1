//! What every command that reaches hosts begins with: the inventory read, the engine made, the reporter at its desk.

use std::path::{Path, PathBuf};
use std::sync::Arc;
use std::time::Duration;

use crate::cli::args::HostArgs;
use crate::cli::desk::{Desk, Faces, Told, offsets};
use crate::cli::exit::{Failure, worse};
use crate::cli::laptop::{Laptop, advice, make_room, rules, say, sources};
use crate::diagnose::Rules;
use crate::engine::Engine;
use crate::engine::emit::Emitter;
use crate::engine::lock::{Held, Identity, LockError};
use crate::engine::watch::Offsets;
use crate::event::{EventKind, FORMAT, Outcome, RunInfo, StepInfo};
use crate::inventory::lint::{Finding, Severity};
use crate::inventory::{Become, Engine as Docker, Host, Inventory, Job, Known, Ssh, valid_host_name};
use crate::plan::Plan;
use crate::plan::build::{site, wanted};
use crate::plan::facts::{self, Elsewhere, Found, HostFacts, Wanted};
use crate::plan::run::{RunFile, RunHost};
use crate::plan::site::Site;
use crate::plan::situation::run_end;
use crate::remote::{Connect, RemoteError, SshFleet};
use crate::report::runs::RunDir;
use crate::state::RunState;

/// How much of the inventory must be valid.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub enum Need {
    /// All of it.
    Launch,
    /// Who the hosts are and how to reach them.
    Connection,
}

/// Reads the inventory of a command.
///
/// # Errors
/// Every problem of it.
pub fn inventory(args: &HostArgs, need: Need) -> Result<(Inventory, PathBuf), Failure> {
    let (read, base) = sources(args)?;
    let mut inventory = match need {
        Need::Launch => linted(Inventory::load(&read, &args.set)?, args)?,
        Need::Connection => Inventory::load_connection(&read, &args.set)?,
    };
    if let Some(pattern) = &args.limit {
        inventory.limit(pattern).map_err(|problem| Failure::Inventory(vec![problem]))?;
    }
    Ok((inventory, base))
}

/// Tells what the lints find; what is denied is a problem.
fn linted(inventory: Inventory, args: &HostArgs) -> Result<Inventory, Failure> {
    let (denied, told): (Vec<Finding>, Vec<Finding>) =
        inventory.lints(&Known::default(), &args.deny)?.into_iter().partition(|finding| finding.severity == Severity::Deny);
    for finding in &told {
        say(&advice(args, Path::new("."), &[]).complete(&format!("warning: {}", finding.problem)));
    }
    if denied.is_empty() { Ok(inventory) } else { Err(Failure::Inventory(denied.into_iter().map(|f| f.problem).collect())) }
}

/// A host that the record of a run names and the inventory does not.
#[derive(Debug, Clone)]
pub struct RecordedHost {
    /// How it is reached.
    pub host: Host,
    /// Whether its ranks ran in a container.
    pub contained: bool,
    jump: Vec<String>,
}

impl RecordedHost {
    /// `name (user@address:port via jump)`.
    pub fn place(&self) -> String {
        let Host { name, address, ssh, .. } = &self.host;
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
    pub laptop: Laptop,
    /// Who we are to other operators.
    pub identity: Identity,
    /// The conductor.
    pub engine: Engine,
    /// The reporter.
    pub desk: Desk,
    /// The run's folder, once there is one.
    pub dir: Option<RunDir>,
    /// Counts the launches of this operation from 1.
    pub attempt: u32,
    command: &'static str,
    args: HostArgs,
    base: PathBuf,
    /// The run that is followed, launched or cleared away; empty: none yet.
    pub run: String,
}

impl Session {
    /// Opens it; nothing is connected yet.
    pub fn open(
        command: &'static str,
        args: &HostArgs,
        inventory: Inventory,
        base: PathBuf,
        faces: Faces,
        secrets: &[String],
    ) -> Result<Session, Failure> {
        let laptop = Laptop::read()?;
        make_room(inventory.hosts.len()).map_err(Failure::Usage)?;
        let (emit, events) = Emitter::new();
        let desk = Desk::open(args, faces, (secrets, advice(args, &base, &inventory.hosts)), events)?;
        // Who only clears away needs none, and no broken rule may stop that.
        if matches!(command, "up" | "tui" | "attach")
            && let Some(own) = rules(inventory.diagnosis()?, &base)?
        {
            desk.explain(Rules::with(own).map_err(Failure::Inventory)?);
        }
        let engine = engine(&laptop, &inventory, &base, args, emit);
        let identity = laptop.identity();
        Ok(Session {
            inventory,
            laptop,
            identity,
            engine,
            desk,
            dir: None,
            attempt: 1,
            command,
            args: args.clone(),
            base,
            run: String::new(),
        })
    }

    /// The operation: `up`, `down`.
    pub fn command(&self) -> &'static str {
        self.command
    }

    /// The folder that paths of the inventory begin at.
    pub fn base(&self) -> &std::path::Path {
        &self.base
    }

    /// The names of the hosts, in node-rank order.
    pub fn names(&self) -> Vec<String> {
        self.inventory.hosts.iter().map(|h| h.name.clone()).collect()
    }

    /// A command of this inventory, to be pasted.
    pub fn advise(&self, verb: &str, rest: &str) -> String {
        self.desk.advice().command(verb, rest)
    }

    /// Tells what is about to be done; with a plan, its steps and ranks.
    pub fn begin(&mut self, run: &str, plan: Option<&Plan>) {
        run.clone_into(&mut self.run);
        let steps = plan.map_or(Vec::new(), |p| {
            let info = |s: &crate::plan::Step| StepInfo {
                id: s.id,
                host: u32::try_from(s.host).unwrap_or(u32::MAX),
                phase: s.phase,
                title: s.action.title().to_owned(),
            };
            p.steps.iter().map(info).collect()
        });
        let ranks = plan.map_or(Vec::new(), |p| match (&p.run, p.ranks.is_empty()) {
            (Some(run), true) => run.ranks.clone(),
            _ => p.ranks.clone(),
        });
        self.engine.emitter().send(EventKind::RunStarted(RunInfo {
            format: FORMAT.to_owned(),
            name: self.inventory.name.clone(),
            run: run.to_owned(),
            command: self.command.to_owned(),
            attempt: self.attempt,
            hosts: self.names(),
            ranks,
            steps,
            metrics: self.inventory.metrics.clone(),
        }));
    }

    /// Tells how the current run of these hosts ended, or that it runs, as their record, statuses and marks say.
    pub async fn tell_run_end(&self, facts: &[Option<HostFacts>]) {
        let known: Vec<&HostFacts> = facts.iter().flatten().collect();
        let Some((end, at)) = run_end(&known) else { return };
        // The host's second on our clock: of the host whose clock is known best it does not matter which.
        let offset = self.desk.state().await.hosts.iter().find_map(|host| host.clock).map_or(0, |(offset, _)| offset);
        let when = if at > 0.0 { (at * 1000.0) as i64 - offset } else { 0 };
        self.engine.emitter().send(EventKind::RunFound { end, when });
    }

    /// Asks every host what it is and what of this name is on it.
    pub async fn gather(&self, job: Option<&Job>) -> Vec<Result<HostFacts, RemoteError>> {
        self.engine.gather(self.questions(job).collect()).await
    }

    /// Asks again those who answered before; who does not answer now is told.
    pub async fn gather_again(&self, seen: &[Option<HostFacts>]) -> Vec<Option<HostFacts>> {
        let questions = self.questions(None).filter(|(host, _)| seen.get(*host).is_some_and(Option::is_some));
        answered(self, self.engine.gather(questions.collect()).await).0
    }

    fn questions(&self, job: Option<&Job>) -> impl Iterator<Item = (usize, crate::shell::Command)> {
        self.inventory.hosts.iter().enumerate().map(move |(i, host)| {
            let site = site(&self.inventory, host, &self.inventory.run_dir, "", None);
            let left = self.command == "down";
            let wanted =
                if job.is_some() { wanted(&self.inventory, job, i) } else { Wanted { docker: site.contained, left, ..Wanted::default() } };
            (i, facts::command(&site, &wanted))
        })
    }

    /// Looks at hosts that are no part of this operation, in silence; those that do not answer are left out.
    pub async fn look_at(&self, others: &Inventory) -> Vec<(String, HostFacts)> {
        let (emit, _silence) = Emitter::new();
        let aside = engine(&self.laptop, others, &self.base, &self.args, emit);
        let look = |host: &Host| {
            let site = site(others, host, &others.run_dir, "", None);
            facts::command(&site, &Wanted { docker: site.contained, ..Wanted::default() })
        };
        let answers = aside.gather(others.hosts.iter().map(look).enumerate().collect()).await;
        aside.close().await;
        let names = others.hosts.iter().map(|h| h.name.clone());
        names.zip(answers).filter_map(|(name, answer)| answer.ok().map(|facts| (name, facts))).collect()
    }

    /// The sites of all hosts with the run directory that each host told; a host without facts keeps the inventory's text.
    pub fn sites(&self, facts: &[Option<HostFacts>], token: Option<&str>) -> Vec<Site> {
        self.inventory
            .hosts
            .iter()
            .zip(facts)
            .map(|(host, facts)| {
                let base = facts.as_ref().map_or(self.inventory.run_dir.as_str(), |f| f.run_dir.as_str());
                let run = facts.as_ref().and_then(|f| f.current.clone()).unwrap_or_default();
                let mut site = site(&self.inventory, host, base, &run, token.map(str::to_owned));
                if let Some(facts) = facts {
                    site.old = facts.old;
                    site.log_max = facts.run_file().map_or(0, |file| file.log_max);
                    site.ranks = facts.run_file().map_or(0, |file| file.world_size);
                    site.contained = facts.contained(site.contained);
                }
                site
            })
            .collect()
    }

    /// Keeps a run in its folder on this laptop from now on, its logs named by the hosts of its record; where that is not known, by ours.
    ///
    /// # Errors
    /// When the folder cannot be made.
    pub async fn keep(&mut self, run: &str, record: Option<&RunFile>) -> Result<Offsets, Failure> {
        let dir = RunDir::open(&self.laptop.state, run)
            .map_err(|e| Failure::Usage(format!("{}: the run cannot be kept here: {e}", self.laptop.state.display())))?;
        let record = record.filter(|file| file.run == run && !file.hosts.is_empty());
        let record = record.map_or_else(|| self.names(), |file| file.hosts.iter().map(|host| host.name.clone()).collect());
        self.dir = Some(dir.clone());
        self.desk.keep(dir.clone(), record).await.map_err(Failure::Usage)?;
        Ok(offsets(dir, self.names()))
    }

    /// Locks the name on the hosts that answered, on all of them or on none.
    ///
    /// # Errors
    /// The outcome, told to the person.
    pub async fn lock(&self, facts: &[Option<HostFacts>], wait: Duration, force: bool) -> Result<Held, Outcome> {
        self.engine.lock(self.lockable(facts), &self.identity, wait, force).await.map_err(|error| self.not_locked(&error))
    }

    /// Locks the name on those of the hosts that answered where that can be done, and tells where it cannot.
    ///
    /// # Errors
    /// The outcome, told to the person: another operator holds it.
    pub async fn lock_what_can_be(
        &self,
        facts: &[Option<HostFacts>],
        wait: Duration,
        force: bool,
    ) -> Result<(Held, Vec<(usize, LockError)>), Outcome> {
        let locked = self.engine.lock_what_can_be(self.lockable(facts), &self.identity, wait, force).await;
        locked.map_err(|error| self.not_locked(&error))
    }

    fn lockable(&self, facts: &[Option<HostFacts>]) -> Vec<(usize, Site)> {
        let sites = self.sites(facts, Some(&self.identity.token));
        sites.into_iter().enumerate().filter(|(i, _)| facts.get(*i).is_some_and(Option::is_some)).collect()
    }

    fn not_locked(&self, error: &LockError) -> Outcome {
        let outcome = match error {
            LockError::Held { .. } => Outcome::Locked,
            LockError::Remote { .. } => Outcome::Unreachable,
            LockError::Impossible { .. } => Outcome::Refused,
        };
        let hint = if outcome == Outcome::Locked { "; wait for it, or take it over: `orchestrate down --yes`" } else { "" };
        self.engine.emitter().notice(None, format!("{error}{hint}"), true);
        outcome
    }

    /// The hosts that a run's record names and the inventory does not, each once. The record of an earlier version counts for the host it lies on
    /// alone: a rank could have written it.
    pub fn recorded_hosts(&self, facts: &[Option<HostFacts>]) -> Vec<RecordedHost> {
        let mut found: Vec<RecordedHost> = Vec::new();
        let current = facts.iter().flatten().filter(|facts| !facts.old).filter_map(HostFacts::run_file);
        let elsewhere = facts.iter().flatten().flat_map(|facts| &facts.elsewhere.records);
        for file in current.chain(elsewhere) {
            for host in file.hosts.iter().filter(|_| file.name == self.inventory.name && !file.exposed) {
                let known = self.inventory.hosts.iter().any(|h| h.name == host.name) || found.iter().any(|f| f.host.name == host.name);
                if !known {
                    let jump = host.jump.clone().unwrap_or_default();
                    found.push(RecordedHost { contained: file.contained, jump, host: stored_host(host, self.like()) });
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
            let Elsewhere { containers, processes, dirs, records, .. } = &facts.elsewhere;
            let ours = containers.iter().filter(|c| self.is_ours(c, facts)).map(|c| (&c.host, true));
            let explained = |name: &String| records.iter().any(|file| file.hosts.iter().any(|host| host.name == *name));
            let dirs = dirs.iter().filter(|name| !explained(name)).map(|name| (name, !facts.containers.is_empty()));
            for (name, contained) in ours.chain(processes.iter().map(|p| (&p.host, false))).chain(dirs) {
                let known = self.inventory.hosts.iter().any(|h| h.name == *name) || found.iter().any(|f| f.host.name == *name);
                if !known && valid_host_name(name) {
                    let address = host.address.clone().or_else(|| Some(host.name.clone()));
                    let jump = host.ssh.jump.clone().unwrap_or_default();
                    found.push(RecordedHost { contained, jump, host: Host { name: name.clone(), address, ..host.clone() } });
                }
            }
        }
        found
    }

    /// Whether a container of this name is ours: its files are where ours are, or, where that is not known, we launched it.
    pub fn is_ours(&self, found: &Found, facts: &HostFacts) -> bool {
        match found.run_dir.as_str() {
            "" => found.owner == self.identity.owner,
            dir => dir == facts.run_dir && facts.elsewhere.foreign.is_none(),
        }
    }

    /// Whether a host of a record is one of the inventory under another name: the same address, user and port.
    pub fn is_renamed(&self, recorded: &RecordedHost) -> bool {
        let at = |host: &Host| (host.address.clone().unwrap_or_else(|| host.name.clone()), host.ssh.user.clone(), host.ssh.port);
        self.inventory.hosts.iter().any(|host| at(host) == at(&recorded.host))
    }

    fn like(&self) -> Option<&Ssh> {
        self.inventory.hosts.first().map(|h| &h.ssh)
    }

    /// Makes them part of this operation, so that they are cleaned too.
    pub fn add_hosts(&mut self, recorded: Vec<RecordedHost>) {
        for RecordedHost { host, contained, .. } in recorded {
            if contained && self.inventory.engine.is_none() {
                self.inventory.engine = Some(Docker::default());
            }
            self.inventory.hosts.push(host);
        }
        let emit = self.engine.emitter().clone();
        self.engine = engine(&self.laptop, &self.inventory, &self.base, &self.args, emit);
    }

    /// Whether the person lets hosts be reached that only the record of a run names: `--yes`, or an answer on the terminal. They are named.
    pub fn may_reach(&self, recorded: &[RecordedHost]) -> bool {
        let names = recorded.iter().map(RecordedHost::place).collect::<Vec<_>>().join(", ");
        if self.args.yes {
            self.engine.emitter().notice(None, format!("also on hosts that only the run's record names: {names}"), false);
            return true;
        }
        crate::cli::laptop::agrees(&format!("The run's record also names hosts that are not in the inventory: {names}. Reach them too?"))
    }

    /// The last words: the final event, the recap, the goodbye to the hosts; the outcome as given.
    pub async fn finish(self, outcome: Outcome, why: &str, recap: bool) -> (Outcome, RunState) {
        self.conclude(&outcome, why);
        self.close(outcome, recap).await
    }

    /// The final event.
    pub fn conclude(&self, outcome: &Outcome, why: &str) {
        self.engine.emitter().send(EventKind::RunFinished { outcome: outcome.clone(), why: why.to_owned() });
    }

    /// What follows the final event.
    pub async fn close(self, outcome: Outcome, recap: bool) -> (Outcome, RunState) {
        let screen = self.desk.has_dashboard();
        // A person in a shell on a host is not thrown out of it by the end of the run.
        crate::cli::visit::none().await;
        let logs = self.dir.as_ref().map(|d| d.logs().display().to_string());
        let mut context = self.desk.context(logs);
        let Told { state, findings, lost } = self.desk.finish().await;
        context.findings = findings;
        self.engine.close().await;
        for text in lost {
            say(&format!("warning: {text}"));
        }
        // What a face of lines would have said is not on the normal screen yet.
        for note in state.notices.iter().filter(|note| screen && note.warn) {
            let place = note.host.map_or_else(String::new, |host| format!("{}: ", state.host_name(host)));
            say(&format!("warning: {}", context.cleaner.line(&format!("{place}{}", note.text))));
        }
        if recap {
            for line in crate::report::recap::recap(&state, &context) {
                say(&line);
            }
        }
        (outcome, *state)
    }
}

fn engine(laptop: &Laptop, inventory: &Inventory, base: &std::path::Path, args: &HostArgs, emit: Emitter) -> Engine {
    let fleet: Arc<dyn Connect> = Arc::new(SshFleet::new(inventory.hosts.clone(), laptop.settings(base, args)));
    Engine::new(&fleet, inventory.hosts.len(), args.forks, emit)
}

fn stored_host(host: &RunHost, like: Option<&Ssh>) -> Host {
    let mut ssh = like.cloned().unwrap_or_default();
    ssh.user.clone_from(&host.user);
    ssh.port = host.port;
    ssh.jump.clone_from(&host.jump);
    ssh.r#become = if host.sudo { Become::Sudo } else { Become::None };
    Host {
        name: host.name.clone(),
        address: host.address.clone(),
        fabric_address: Some(host.fabric.clone()),
        gpus: crate::inventory::Gpus::Any,
        ssh,
    }
}

/// What a run says of itself on the first host that has it.
pub fn record<'a>(mut facts: impl Iterator<Item = &'a HostFacts>, run: &str) -> Option<&'a RunFile> {
    facts.find_map(|facts| facts.run_file().filter(|file| file.run == run))
}

/// The facts of those who answered; the others are told, and how it ends for them.
pub fn answered(session: &Session, answers: Vec<Result<HostFacts, RemoteError>>) -> (Vec<Option<HostFacts>>, Outcome) {
    let mut outcome = Outcome::Ok;
    let facts = answers.into_iter().enumerate().map(|(i, answer)| match answer {
        Ok(facts) => Some(facts),
        Err(error) => {
            outcome = worse(Outcome::Unreachable, outcome.clone());
            let hint = error.hint();
            if !hint.is_empty() {
                session.engine.emitter().notice(Some(i), format!("help: {hint}"), true);
            }
            None
        }
    });
    let facts = facts.collect();
    (facts, outcome)
}
