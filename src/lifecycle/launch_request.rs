//! The request of a launch, its state, and how its steps end.

use std::collections::BTreeMap;
use std::sync::Arc;
use std::time::Duration;

use crate::event::Outcome;
use crate::inventory::{Inventory, Job, TaskSelection};
use crate::lifecycle::error::{WorkflowEnd, WorkflowError};
use crate::lifecycle::file_sources::TaskFiles;
use crate::lifecycle::plan_preview::ConfigTexts;
use crate::lifecycle::random::random_hex;
use crate::lifecycle::session::{Session, report_issues};
use crate::lifecycle::stop_controller::StopController;
use crate::lifecycle::stop_ladder::InterruptPolicy;
use crate::plan::Plan;
use crate::plan::build::{self, LaunchInputs, RunIdentity};
use crate::plan::existing_run::{ExistingRun, facts_after_stop};
use crate::plan::facts::HostFacts;
use crate::preflight::PreflightCheck;
use crate::preflight::probe_output::ProbeOutput;

/// The command that launches.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Default)]
pub(crate) enum LaunchMode {
    #[default]
    Up,
    Tui,
    Demo,
    Prepare,
    SlurmSubmit,
}

impl LaunchMode {
    pub(crate) fn name(self) -> &'static str {
        match self {
            LaunchMode::Up | LaunchMode::Demo => "up",
            LaunchMode::Tui => "tui",
            LaunchMode::Prepare => "prepare",
            LaunchMode::SlurmSubmit => "slurm submit",
        }
    }

    /// Changes nothing before the user starts the launch on the dashboard; follows a live run even if it differs from the inventory.
    pub(crate) fn confirms_first(self) -> bool {
        self == LaunchMode::Tui
    }

    /// Runs the tasks of `prepare` and launches nothing.
    pub(crate) fn is_tasks_only(self) -> bool {
        matches!(self, LaunchMode::Prepare | LaunchMode::SlurmSubmit)
    }

    /// What a signal does while nothing else is said.
    pub(crate) fn interrupt_policy(self) -> InterruptPolicy {
        if self.confirms_first() { InterruptPolicy::Detach } else { InterruptPolicy::Stop }
    }
}

/// Immutable during the launch.
pub(crate) struct LaunchRequest {
    pub(crate) command: LaunchMode,
    /// Without `--limit`.
    pub(crate) whole_inventory: Inventory,
    /// The job before facts are known.
    pub(crate) draft: Arc<Job>,
    pub(crate) limit: Option<String>,
    pub(crate) checks: Vec<PreflightCheck>,
    pub(crate) secrets: Vec<(String, String)>,
    /// Name and value of the environment variable.
    pub(crate) registry_passwords: Vec<(String, String)>,
    pub(crate) lock_wait: Duration,
    /// Return as soon as all ranks are running.
    pub(crate) detach: bool,
    /// Keep containers and logs at the end.
    pub(crate) keep: bool,
    /// Stop the run and recreate its containers.
    pub(crate) recreate: bool,
    pub(crate) dry_run: bool,
    pub(crate) show_all_differences: bool,
    /// A dry run prints every script.
    pub(crate) show_scripts: bool,
    /// Which tasks of `prepare` run.
    pub(crate) tasks: TaskSelection,
    /// What the `sync` and `copy` tasks among them send, by number.
    pub(crate) file_sources: BTreeMap<u32, TaskFiles>,
}

pub(crate) struct LaunchState {
    pub(crate) identity: RunIdentity,
    pub(crate) run_stamp: String,
    /// Why this laptop cannot launch. Reported when the user starts a launch: a live run can be followed without it.
    pub(crate) launch_error: Option<WorkflowError>,
    /// The user has started the launch.
    pub(crate) confirmed: bool,
    /// Stop the live run and launch again.
    pub(crate) relaunch: bool,
    /// Hosts that only an earlier run's record names, already cleared.
    pub(crate) cleared_hosts: Vec<String>,
    /// What tasks have registered on the first host, where the run is its tasks alone.
    pub(crate) registered: Vec<(String, String)>,
}

impl LaunchState {
    fn new(session: &Session, request: &LaunchRequest, launch_error: Option<WorkflowError>) -> LaunchState {
        let mut state = LaunchState {
            identity: RunIdentity {
                run_id: String::new(),
                lock_token: Some(session.local.identity.token.clone()),
                owner: session.local.identity.owner.clone(),
                started_at: String::new(),
                recreate_containers: request.recreate,
                tasks: request.tasks.clone(),
                tasks_only: request.command.is_tasks_only(),
            },
            run_stamp: String::new(),
            launch_error,
            confirmed: !request.command.confirms_first(),
            relaunch: false,
            cleared_hosts: Vec::new(),
            registered: Vec::new(),
        };
        state.assign_run_id();
        state
    }

    fn assign_run_id(&mut self) {
        let now = jiff::Zoned::now();
        self.identity.run_id = new_run_id(&now);
        self.identity.started_at = now.timestamp().to_string();
        self.run_stamp = now.strftime("%Y%m%d%H%M%S").to_string();
    }

    /// For another launch, with a new run id.
    pub(crate) fn reset(&mut self) {
        self.assign_run_id();
        (self.confirmed, self.relaunch) = (true, true);
    }
}

pub(crate) fn new_run_id(now: &jiff::Zoned) -> String {
    format!("{}-{}", now.strftime("%Y%m%d-%H%M%S"), random_hex(4))
}

pub(crate) struct LaunchContext<'a> {
    pub(crate) session: &'a mut Session,
    pub(crate) request: &'a LaunchRequest,
    pub(crate) state: LaunchState,
    pub(crate) signals: &'a mut StopController,
}

impl<'a> LaunchContext<'a> {
    pub(crate) fn new(
        session: &'a mut Session,
        request: &'a LaunchRequest,
        launch_error: Option<WorkflowError>,
        signals: &'a mut StopController,
    ) -> LaunchContext<'a> {
        let state = LaunchState::new(session, request, launch_error);
        LaunchContext { session, request, state, signals }
    }

    /// Runs work that comes before the launch and changes nothing: a signal cancels it.
    ///
    /// # Errors
    /// The end of the launch after that signal.
    pub(crate) async fn run_before_launch<T>(&self, work: impl Future<Output = T>) -> Result<T, WorkflowEnd> {
        self.signals.set_policy(InterruptPolicy::Abort);
        let done = self.signals.run_until_stopped(work).await;
        self.signals.set_policy(self.request.command.interrupt_policy());
        done.map_err(|outcome| WorkflowEnd::new(outcome, self.nothing_done()))
    }

    /// The reason of a launch that ends before it has begun.
    pub(crate) fn nothing_done(&self) -> &'static str {
        if self.state.cleared_hosts.is_empty() { "nothing was changed" } else { "nothing was launched" }
    }
}

/// What was found on the hosts, and the job that fits them.
pub(crate) struct LaunchTarget {
    pub(crate) job: Job,
    pub(crate) config_texts: ConfigTexts,
    pub(crate) facts: Vec<HostFacts>,
    pub(crate) probes: Vec<ProbeOutput>,
    pub(crate) existing: ExistingRun,
}

impl LaunchTarget {
    /// The inputs of a plan, without secrets and checks.
    pub(crate) fn inputs<'a>(&'a self, session: &'a Session, facts: &'a [HostFacts], identity: &'a RunIdentity) -> LaunchInputs<'a> {
        LaunchInputs {
            inventory: &session.inventory,
            job: &self.job,
            facts,
            config_texts: &self.config_texts,
            identity,
            secrets: &[],
            registry_passwords: &[],
            check_summaries: &[],
        }
    }

    /// The plan that is only shown, with the facts it is made from: a run that is live would be stopped first.
    pub(crate) fn preview(
        &self,
        session: &Session,
        identity: &RunIdentity,
        secrets: &[(String, String)],
    ) -> Result<(Plan, Vec<HostFacts>), WorkflowEnd> {
        let identity = RunIdentity { lock_token: None, ..identity.clone() };
        let facts = facts_after_stop(&self.facts);
        let plan = build::plan_launch(LaunchInputs { secrets, ..self.inputs(session, &facts, &identity) }).map_err(|issues| {
            report_issues(session, &issues);
            misfit()
        })?;
        Ok((plan, facts))
    }
}

/// The end of a launch whose inventory does not fit the hosts, which is reported already.
pub(crate) fn misfit() -> WorkflowEnd {
    WorkflowEnd::new(Outcome::Refused, "the inventory does not fit the hosts: nothing was changed")
}

pub(crate) enum LaunchStep {
    Done(WorkflowEnd),
    /// The decision is outdated, or another launch was requested: gather the facts and decide again.
    Reconcile,
}

impl LaunchStep {
    pub(crate) fn done(outcome: Outcome, reason: impl Into<String>) -> LaunchStep {
        LaunchStep::Done(WorkflowEnd::new(outcome, reason))
    }
}
