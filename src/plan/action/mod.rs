//! What can be done to a host: one verb a file, with how to see whether it is needed, the command, the judgement and the way back.
//!
//! All pure: the engine carries commands out and hands the answers back.

pub(crate) mod action_result;
pub mod cleanup;
pub mod container;
mod detached_start;
pub(crate) mod environment;
pub(crate) mod gpus_flag;
pub mod launch;
pub mod lock;
pub(crate) mod memlock;
pub(crate) mod pull;
pub(crate) mod reach_master;
pub(crate) mod run_files;
pub mod send_files;
pub mod task;
mod terminal_reads;
pub(crate) mod verify_facts;

pub use self::action_result::{ActionResult, Execution};
pub(crate) use self::action_result::{EXIT_LOCK_LOST, Issue, Observation};
use crate::model::remote_command::CommandOutput;
use crate::model::tcp_reachability::TcpReachability;
use crate::plan::facts::HostFacts;
use crate::plan::launcher::HostLaunchSpec;

/// One thing to do on one host.
#[derive(Debug, Clone)]
pub enum Action {
    VerifyHostFacts(verify_facts::VerifyHostFacts),
    /// Tries to connect to the master's port.
    ReachMaster(reach_master::ReachMaster),
    PullImage(pull::PullImage),
    /// Writes the run directory.
    WriteRunFiles(Box<run_files::WriteRunFiles>),
    /// Starts the container, or a bare host's keeper.
    StartContainer(container::StartContainer),
    CheckEnvironment(environment::CheckEnvironment),
    /// Runs a task of `prepare` until it ends.
    RunTask(Box<task::RunTask>),
    /// Sends files of the laptop or of another host.
    SendFiles(send_files::SendFiles),
    /// Waits for a task that another command has started.
    WaitForTask(task::WaitForTask),
    StartLauncher(launch::StartLauncher),
    /// Waits for the master's port.
    WaitForMaster(launch::WaitForMaster),
    StopRanks(launch::StopRanks),
    /// Removes the container or ends the keeper.
    RemoveContainer(cleanup::RemoveContainer),
    /// Fetches what the laptop lacks of the logs.
    FetchLogs(cleanup::FetchLogs),
    /// Removes the run directory.
    RemoveFiles(cleanup::RemoveFiles),
    /// Looks whether anything is left.
    VerifyRemoved(cleanup::VerifyRemoved),
}

impl Action {
    /// What it does, for people.
    pub fn title(&self) -> &str {
        match self {
            Action::VerifyHostFacts(_) => "check",
            Action::ReachMaster(_) => "reach the master",
            Action::PullImage(a) => a.title(),
            Action::WriteRunFiles(_) => "write the run directory",
            Action::StartContainer(c) => c.title(),
            Action::CheckEnvironment(_) => "check the ranks' environment",
            Action::RunTask(a) => &a.task.name,
            Action::SendFiles(a) => &a.name,
            Action::WaitForTask(a) => &a.title,
            Action::StartLauncher(_) => "start the launcher",
            Action::WaitForMaster(_) => "wait for the master's port",
            Action::StopRanks(_) => "stop the ranks",
            Action::RemoveContainer(r) => r.title(),
            Action::FetchLogs(_) => "fetch the logs",
            Action::RemoveFiles(_) => "remove the run directory",
            Action::VerifyRemoved(_) => "verify that nothing is left",
        }
    }

    /// Whether it may be interrupted at any moment: it leaves nothing behind that a teardown would have to know of. Of a task only the wait for
    /// its end may; an interrupted transfer keeps its parts for the next one.
    pub fn is_read_only(&self) -> bool {
        match self {
            Action::VerifyHostFacts(_)
            | Action::ReachMaster(_)
            | Action::PullImage(_)
            | Action::CheckEnvironment(_)
            | Action::SendFiles(_)
            | Action::WaitForTask(_)
            | Action::WaitForMaster(_)
            | Action::FetchLogs(_)
            | Action::VerifyRemoved(_) => true,
            Action::WriteRunFiles(_)
            | Action::StartContainer(_)
            | Action::RunTask(_)
            | Action::StartLauncher(_)
            | Action::StopRanks(_)
            | Action::RemoveContainer(_)
            | Action::RemoveFiles(_) => false,
        }
    }

    /// Whether it may leave something on the host when it fails or is interrupted: actions that change a host, and a login at a registry.
    pub fn can_leave_leftovers(&self) -> bool {
        match self {
            Action::PullImage(pull) => pull.login.is_some(),
            other => !other.is_read_only(),
        }
    }

    /// Whether there is anything to do on a host with these facts.
    pub fn observe(&self, facts: &HostFacts) -> Observation {
        match self {
            Action::VerifyHostFacts(a) => a.observe(facts),
            Action::PullImage(a) => a.observe(facts),
            Action::StartContainer(a) => a.observe(facts),
            _ => Observation::Needed(String::new()),
        }
    }

    /// What a host launches, if this writes its files.
    pub(crate) fn launch_spec(&self) -> Option<&HostLaunchSpec> {
        match self {
            Action::WriteRunFiles(files) => Some(&files.launch_spec),
            _ => None,
        }
    }

    /// Hands over what earlier tasks have registered, where it is of use: to tasks and ranks.
    pub(crate) fn set_registered(&mut self, values: &[(String, String)]) {
        match self {
            Action::RunTask(a) => a.registered = values.to_vec(),
            Action::StartLauncher(a) => a.registered = values.to_vec(),
            _ => {}
        }
    }

    /// How it is carried out.
    pub fn execution(&self) -> Execution {
        match self {
            Action::VerifyHostFacts(_) => Execution::NoOp,
            Action::ReachMaster(a) => a.execution(),
            Action::PullImage(a) => a.execution(),
            Action::WriteRunFiles(a) => Execution::Script(a.command()),
            Action::StartContainer(a) => Execution::Script(a.command()),
            Action::CheckEnvironment(a) => Execution::Script(a.command()),
            Action::RunTask(a) => Execution::Script(a.command()),
            Action::SendFiles(a) => a.execution(),
            Action::WaitForTask(a) => Execution::Script(a.command()),
            Action::StartLauncher(a) => Execution::Script(a.command()),
            Action::WaitForMaster(a) => Execution::Script(a.command()),
            Action::StopRanks(a) => Execution::Script(a.command()),
            Action::RemoveContainer(a) => Execution::Script(a.command()),
            Action::FetchLogs(_) => Execution::FetchLogs,
            Action::RemoveFiles(a) => Execution::Script(a.command()),
            Action::VerifyRemoved(a) => Execution::Script(a.command()),
        }
    }

    /// What a connection means; an error: unknown.
    ///
    /// # Errors
    /// Why it is unknown.
    pub fn judge_connection(&self, found: &TcpReachability) -> Result<ActionResult, String> {
        match self {
            Action::ReachMaster(a) => a.judge(found),
            _ => Ok(ActionResult::unchanged("")),
        }
    }

    /// What the answer means.
    pub fn judge(&self, output: &CommandOutput) -> ActionResult {
        if output.exit_code == EXIT_LOCK_LOST {
            return ActionResult::LockLost;
        }
        match self {
            Action::VerifyHostFacts(_) | Action::ReachMaster(_) | Action::SendFiles(_) | Action::FetchLogs(_) => {
                ActionResult::unchanged("")
            }
            Action::PullImage(a) => a.judge(output),
            Action::WriteRunFiles(a) => a.judge(output),
            Action::StartContainer(a) => a.judge(output),
            Action::CheckEnvironment(a) => a.judge(output),
            Action::RunTask(a) => a.judge(output),
            Action::WaitForTask(a) => a.judge(output),
            Action::StartLauncher(a) => a.judge(output),
            Action::WaitForMaster(a) => a.judge(output),
            Action::StopRanks(a) => a.judge(output),
            Action::RemoveContainer(a) => a.judge(output),
            Action::RemoveFiles(a) => a.judge(output),
            Action::VerifyRemoved(a) => a.judge(output),
        }
    }
}
