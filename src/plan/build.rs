//! From inventory, job and facts to the plan of a launch: the few lines that define a launch.

mod run_record;

use std::collections::BTreeMap;

use crate::inventory::{
    ContainerGpus, ContainerSettings, EntrypointMode, Inventory, InventoryHost, Job, JobHost, Launcher, PrepareTask, RegistrySettings,
    StartGate, StartOrder, TaskSelection, Teardown,
};
use crate::model::phase::Phase;
use crate::plan::Plan;
use crate::plan::action::send_files::SendFiles;
use crate::plan::action::task::RunTask;
use crate::plan::action::verify_facts::HostCheckSummary;
use crate::plan::action::{Action, Issue, container, environment, gpus_flag, launch, pull, reach_master, run_files, verify_facts};
use crate::plan::fact_rules::user_ids;
use crate::plan::facts::HostFacts;
use crate::plan::host_context::HostContext;
use crate::plan::launcher::{self, EnvironmentRequirements};
use crate::plan::logind::SystemdScope;
use crate::plan::protocol::run_record::{RunRecord, short_hash};
use crate::plan::rank_layout::{RankLayout, resolve_fabric_address, usable_gpu_count};
use crate::plan::task::HostTask;

/// What is decided outside: the user who launches, and the run's id.
#[derive(Debug, Clone, Default)]
pub(crate) struct RunIdentity {
    pub run_id: String,
    /// The lock's token; `None` in a plan that is only shown.
    pub lock_token: Option<String>,
    /// `user@laptop`.
    pub owner: String,
    /// RFC 3339.
    pub started_at: String,
    /// Whether fitting containers are replaced all the same.
    pub recreate_containers: bool,
    /// Which tasks of `prepare` run.
    pub tasks: TaskSelection,
    /// Whether the run is its tasks alone, in containers that stay.
    pub tasks_only: bool,
}

/// Everything that a launch is made of.
#[derive(Debug, Clone, Copy)]
pub(crate) struct LaunchInputs<'a> {
    /// Holds the hosts.
    pub inventory: &'a Inventory,
    pub job: &'a Job,
    pub facts: &'a [HostFacts],
    /// Container and launch text of each host, what "equal" is decided by.
    pub config_texts: &'a [(String, String)],
    pub identity: &'a RunIdentity,
    pub secrets: &'a [(String, String)],
    /// Names and values of the variables that hold registries' passwords.
    pub registry_passwords: &'a [(String, String)],
    /// What the checks found on each host; empty where nothing was checked.
    pub check_summaries: &'a [HostCheckSummary],
}

/// Seconds that a launch may take beside the wait for its master, counted from when `current` names the run: the deadlines of the run directory
/// (30), the container (180), the environment (120), the launcher of the master (60), the gate's margin (30), and
/// the launcher of a worker (60). A keeper that saw no launcher by then ends, unless the lock's holder is still at work.
const LAUNCH_OVERHEAD_SECS: u64 = 30 + 180 + 120 + 60 + 30 + 60;

/// What of a rank's names a task gets.
const TASK_VARIABLES: [&str; 8] =
    ["ORCH_RUN_ID", "ORCH_NAME", "ORCH_RUN_DIR", "ORCH_HOST", "ORCH_HOSTS", "ORCH_NNODES", "ORCH_NODE_RANK", "PYTHONUNBUFFERED"];

/// The fabric address of every host, or what is wrong with each that has none.
///
/// # Errors
/// The hosts whose address is unknown, with the remedy.
pub(crate) fn resolve_addresses(inventory: &Inventory, facts: &[HostFacts]) -> Result<Vec<String>, Vec<(usize, Issue)>> {
    let mut troubles = Vec::new();
    let mut found = Vec::new();
    for (index, (host, facts)) in inventory.hosts.iter().zip(facts).enumerate() {
        match resolve_fabric_address(host, facts) {
            Ok(address) => found.push(address),
            Err(what) => troubles.push((index, Issue::new(what, "set fabric_address to the address that ranks should use"))),
        }
    }
    if troubles.is_empty() { Ok(found) } else { Err(troubles) }
}

/// The container hash of a host: its text and the keeper that would run in it.
pub(crate) fn compute_container_hash(text: &str) -> String {
    short_hash(&format!("{text}\n{}", include_str!("../../assets/keeper.sh")))
}

/// Whether tasks run on this host beside its container.
fn has_host_tasks(job: &Job, tasks: &[&PrepareTask], host: usize) -> bool {
    let runs_on_host =
        |task: &&PrepareTask| !task.in_container && task.files.is_none() && task.hosts.get(host).is_some_and(Option::is_some);
    job.hosts.get(host).is_some_and(|host| host.container.is_some()) && tasks.iter().any(runs_on_host)
}

/// The whole launch.
///
/// # Errors
/// The hosts that cannot take part, with the remedy.
pub(crate) fn plan_launch(inputs: LaunchInputs<'_>) -> Result<Plan, Vec<(usize, Issue)>> {
    let LaunchInputs { inventory, job, facts, identity: ids, .. } = inputs;
    let addresses = resolve_addresses(inventory, facts)?;
    let layout = RankLayout::new(job, addresses);
    let tasks = ids.tasks.select(&job.tasks).unwrap_or_default();
    let contexts: Vec<HostContext> = (inventory.hosts.iter().zip(facts))
        .enumerate()
        .map(|(i, (host, facts))| HostContext {
            run_id: ids.run_id.clone(),
            lock_token: ids.lock_token.clone(),
            in_container: job.hosts.get(i).is_some_and(|h| h.container.is_some()),
            max_log_bytes: job.max_log_bytes,
            world_size: layout.world_size(),
            has_host_tasks: has_host_tasks(job, &tasks, i),
            ..HostContext::from_inventory(inventory, host, &facts.run_dir)
        })
        .collect();
    let mut plan = Plan::empty(contexts);
    if !ids.tasks_only {
        plan.ranks = layout.ranks();
        plan.world_size = layout.world_size();
    }
    let hosts = inventory.hosts.iter().zip(&job.hosts).zip(facts).zip(plan.hosts.clone()).enumerate();
    let planners: Vec<HostPlanner<'_>> = hosts
        .map(|(host_index, (((host, job_host), facts), context))| HostPlanner {
            inputs,
            layout: &layout,
            context,
            host_index,
            host,
            job_host,
            facts,
            tasks: &tasks,
        })
        .collect();
    let records: Vec<RunRecord> = planners.iter().map(|planner| planner.run_record(&plan)).collect();
    plan.run_record = records.first().cloned();
    let task_phases = tasks.iter().map(|task| Phase::Task(task.number));
    let launch = [Phase::Requirements, Phase::Master, Phase::Workers].into_iter().filter(|_| !ids.tasks_only);
    let before = [Phase::Preflight, Phase::Pull, Phase::Container, Phase::Environment];
    for phase in before.into_iter().chain(task_phases).chain(launch) {
        for (planner, record) in planners.iter().zip(&records) {
            for action in planner.phase_actions(phase, record) {
                plan.push(planner.host_index, phase, action);
            }
        }
    }
    Ok(plan)
}

/// One host's column of the matrix.
struct HostPlanner<'a> {
    inputs: LaunchInputs<'a>,
    layout: &'a RankLayout,
    context: HostContext,
    host_index: usize,
    host: &'a InventoryHost,
    job_host: &'a JobHost,
    facts: &'a HostFacts,
    /// The selected tasks of `prepare`, of all hosts.
    tasks: &'a [&'a PrepareTask],
}

impl HostPlanner<'_> {
    fn starts_master_first(&self) -> bool {
        self.inputs.job.launch.start == StartOrder::MasterFirst
    }

    fn phase_actions(&self, phase: Phase, run_record: &RunRecord) -> Vec<Action> {
        let job = self.inputs.job;
        match phase {
            Phase::Preflight => self.preflight_actions(),
            Phase::Pull => self.job_host.container.iter().map(|container| Action::PullImage(self.pull_action(container))).collect(),
            Phase::Container => vec![self.run_files_action(run_record), self.container_action()],
            Phase::Environment => vec![self.environment_action(self.runs_no_task())],
            Phase::Task(number) => {
                let scripts = self.host_tasks().into_iter().filter(|task| task.number == number).map(|task| self.task_action(task));
                let own = job.tasks.iter().filter(|task| task.number == number);
                let files = own.filter_map(|task| SendFiles::new(task, self.host_index, &self.context));
                scripts.chain(files.map(Action::SendFiles)).collect()
            }
            Phase::Requirements if !self.runs_no_task() => vec![self.environment_action(true)],
            Phase::Master if self.host_index == 0 && self.starts_master_first() => {
                let mut actions = vec![self.launch_action()];
                if job.launch.gate == StartGate::MasterPort && self.inputs.inventory.hosts.len() > 1 {
                    let timeout = job.launch.master_timeout;
                    actions.push(Action::WaitForMaster(launch::WaitForMaster {
                        context: self.context.clone(),
                        port: self.layout.master_port.unwrap_or_default(),
                        timeout,
                        fails_with_a_rank: job.launch.launcher == Launcher::Processes,
                    }));
                }
                actions
            }
            Phase::Workers if self.host_index > 0 || !self.starts_master_first() => vec![self.launch_action()],
            _ => Vec::new(),
        }
    }

    fn wanted_gpu_count(&self) -> u32 {
        self.job_host.nproc.unwrap_or_else(|| usable_gpu_count(self.host, self.facts))
    }

    /// If no process can outlive the log-out, a check reports it; without that check the launch uses what there is.
    fn scope(&self) -> SystemdScope {
        self.facts.systemd_scope().unwrap_or_default()
    }

    fn preflight_actions(&self) -> Vec<Action> {
        let mut actions = vec![Action::VerifyHostFacts(verify_facts::VerifyHostFacts {
            context: self.context.clone(),
            container: self.job_host.container.clone(),
            gpus: self.host.gpus.clone(),
            nproc: self.wanted_gpu_count(),
            port: self.layout.master_port.filter(|_| self.host_index == 0),
            check_summary: self.inputs.check_summaries.get(self.host_index).cloned().unwrap_or_default(),
        })];
        if self.host_index > 0 {
            let port = self.layout.master_port.unwrap_or_default();
            actions.push(Action::ReachMaster(reach_master::ReachMaster { address: self.layout.master_address().to_owned(), port }));
        }
        actions
    }

    fn pull_action(&self, container: &ContainerSettings) -> pull::PullImage {
        let password = |registry: &RegistrySettings| {
            let found = self.inputs.registry_passwords.iter().find(|(name, _)| *name == registry.password_variable);
            found.map_or_else(|| format!("<password {}>", registry.password_variable), |(_, value)| value.clone())
        };
        pull::PullImage {
            context: self.context.clone(),
            image: container.image.clone(),
            policy: container.pull,
            login: container.registry.as_ref().map(|registry| pull::RegistryCredentials {
                server: registry.server.clone(),
                username: registry.username.clone(),
                password_variable: registry.password_variable.clone(),
                password: password(registry),
            }),
        }
    }

    fn launch_spec(&self) -> launcher::HostLaunchSpec {
        launcher::build_launch_spec(&launcher::LaunchSpecBuilder {
            job: self.inputs.job,
            layout: self.layout,
            context: &self.context,
            node_rank: self.host_index,
            hosts: &self.inputs.inventory.hosts,
            facts: Some(self.facts),
        })
    }

    /// Where no task runs, what the ranks need must be there already.
    fn runs_no_task(&self) -> bool {
        !self.inputs.identity.tasks_only && self.tasks.is_empty()
    }

    /// The tasks that run on this host.
    fn host_tasks(&self) -> Vec<HostTask> {
        let env = if self.tasks.is_empty() { BTreeMap::new() } else { self.launch_spec().env };
        let run_env: BTreeMap<String, String> = env.into_iter().filter(|(name, _)| TASK_VARIABLES.contains(&name.as_str())).collect();
        self.tasks.iter().filter_map(|task| HostTask::new(task, self.host_index, run_env.clone())).collect()
    }

    /// The names of the tasks that send files to this host.
    fn file_tasks(&self) -> BTreeMap<u32, String> {
        let tasks = self.tasks.iter().filter_map(|task| SendFiles::new(task, self.host_index, &self.context));
        tasks.map(|task| (task.number, task.name)).collect()
    }

    fn task_action(&self, task: HostTask) -> Action {
        let host_place = self.context.host_task_context().filter(|_| !task.in_container);
        Action::RunTask(Box::new(RunTask {
            context: host_place.unwrap_or_else(|| self.context.clone()),
            task,
            secrets: self.inputs.secrets.to_vec(),
            scope: self.scope(),
            registered: Vec::new(),
        }))
    }

    fn run_files_action(&self, run_record: &RunRecord) -> Action {
        let job = self.inputs.job;
        Action::WriteRunFiles(Box::new(run_files::WriteRunFiles {
            context: self.context.clone(),
            launch_spec: self.launch_spec(),
            run_record: run_record.clone(),
            start_timeout_secs: job.launch.master_timeout.as_secs() + LAUNCH_OVERHEAD_SECS,
            entrypoint_image: self.job_host.container.as_ref().filter(|c| c.entrypoint == EntrypointMode::Image).map(|c| c.image.clone()),
            keep_container: job.teardown != Teardown::Always || self.inputs.identity.tasks_only && self.context.in_container,
            tasks: self.host_tasks(),
            max_log_bytes: job.max_log_bytes,
        }))
    }

    fn container_action(&self) -> Action {
        let spec = self.job_host.container.clone();
        let text = self.inputs.config_texts.get(self.host_index).map_or("", |t| t.0.as_str());
        let idle = self.facts.idle_gpus();
        Action::StartContainer(container::StartContainer {
            context: self.context.clone(),
            gpus_flag: spec.as_ref().and_then(|s| gpus_flag::format_gpus_flag(&s.gpus, &self.host.gpus, idle.as_deref())),
            spec,
            container_hash: compute_container_hash(text),
            owner: self.inputs.identity.owner.clone(),
            stop_grace: self.inputs.job.launch.stop_grace.as_secs(),
            user_ids: user_ids(self.facts, &self.context.host),
            home: self.facts.home.clone(),
            recreate: self.inputs.identity.recreate_containers,
            has_leftover_checks: !self.facts.orphans.check_containers.is_empty(),
            scope: self.scope(),
        })
    }

    /// `whole`: with what the ranks need, which tasks may have to make first.
    fn environment_action(&self, whole: bool) -> Action {
        let start = self.launch_spec();
        let contained_gpus = self.job_host.container.as_ref().is_some_and(|c| c.gpus != ContainerGpus::None);
        Action::CheckEnvironment(environment::CheckEnvironment {
            context: self.context.clone(),
            has_setup: whole && start.files.contains_key("setup"),
            requirements: if whole { start.requirements } else { EnvironmentRequirements::default() },
            min_gpus: if contained_gpus { self.wanted_gpu_count() } else { 0 },
            workdir: self.job_host.workdir.as_deref().filter(|_| whole).map(|dir| launcher::expand_home(dir, &self.facts.home)),
        })
    }

    fn launch_action(&self) -> Action {
        Action::StartLauncher(launch::StartLauncher {
            context: self.context.clone(),
            secrets: self.inputs.secrets.to_vec(),
            scope: self.scope(),
            registered: Vec::new(),
        })
    }
}
