//! What a launch is asked for, what is decided on the way, and how its steps end.

use std::time::Duration;

use crate::event::Outcome;
use crate::inventory::{Inventory, Job};
use crate::lifecycle::error::{WorkflowEnd, WorkflowError};
use crate::lifecycle::random::random_hex;
use crate::lifecycle::session::Session;
use crate::lifecycle::stop_controller::StopController;
use crate::plan::build::{LaunchInputs, RunIdentity};
use crate::plan::existing_run::ExistingRun;
use crate::plan::facts::HostFacts;
use crate::preflight::PreflightCheck;
use crate::preflight::probe_output::ProbeOutput;

/// What the person asks of a launch; it does not change.
pub(crate) struct LaunchRequest {
    /// The inventory without `--limit`.
    pub(crate) whole_inventory: Inventory,
    /// The job with what is known before the hosts are asked.
    pub(crate) draft: Job,
    /// `--limit`.
    pub(crate) limit: Option<String>,
    /// What is checked before anything is changed.
    pub(crate) checks: Vec<PreflightCheck>,
    pub(crate) secrets: Vec<(String, String)>,
    /// Of registries, by the name of their variable.
    pub(crate) registry_passwords: Vec<(String, String)>,
    /// How long to wait for another operator's lock.
    pub(crate) lock_wait: Duration,
    /// Return once every rank runs.
    pub(crate) detach: bool,
    /// Leave containers and logs at the end.
    pub(crate) keep: bool,
    /// Stop what runs and create every container again.
    pub(crate) recreate: bool,
    pub(crate) dry_run: bool,
    pub(crate) show_all_differences: bool,
    /// Nothing is changed before it is asked for at the dashboard, and whatever runs is followed.
    pub(crate) confirm_first: bool,
    /// What happened can be looked at until the person leaves, where there is a dashboard.
    pub(crate) stay_open: bool,
}

/// What changes while a launch is under way.
pub(crate) struct LaunchState {
    pub(crate) identity: RunIdentity,
    pub(crate) run_stamp: String,
    /// Why nothing can be launched from here. It is told when a launch is asked for: what runs can be followed without.
    pub(crate) launch_error: Option<WorkflowError>,
    /// The person has asked for it.
    pub(crate) confirmed: bool,
    /// What runs is to be stopped and launched again.
    pub(crate) relaunch: bool,
    /// Hosts that only the record of an earlier run names, and that were cleared.
    pub(crate) cleared_hosts: Vec<String>,
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
            },
            run_stamp: String::new(),
            launch_error,
            confirmed: !request.confirm_first,
            relaunch: false,
            cleared_hosts: Vec::new(),
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

    /// Another launch of the same: with a run of its own.
    pub(crate) fn reset(&mut self) {
        self.assign_run_id();
        (self.confirmed, self.relaunch) = (true, true);
    }
}

/// A new run's id.
pub(crate) fn new_run_id(now: &jiff::Zoned) -> String {
    format!("{}-{}", now.strftime("%Y%m%d-%H%M%S"), random_hex(4))
}

/// A launch under way.
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
}

/// What the hosts answered, and what follows from it for a launch.
pub(crate) struct LaunchTarget {
    pub(crate) job: Job,
    /// By which "equal" is decided, a host each: container and launch.
    pub(crate) config_texts: Vec<(String, String)>,
    pub(crate) facts: Vec<HostFacts>,
    pub(crate) probes: Vec<ProbeOutput>,
    pub(crate) existing: ExistingRun,
}

impl LaunchTarget {
    /// What a plan is made of, without secrets and checks.
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
}

/// How a step of a launch ended.
pub(crate) enum LaunchStep {
    Done(WorkflowEnd),
    /// What was decided is no longer right, or another launch is wanted: everything is looked at again.
    Reconcile,
}

impl LaunchStep {
    pub(crate) fn done(outcome: Outcome, reason: impl Into<String>) -> LaunchStep {
        LaunchStep::Done(WorkflowEnd::new(outcome, reason))
    }
}
