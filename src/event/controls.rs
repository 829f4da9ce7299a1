//! Actions of the dashboard's user, and the capabilities that a feed offers.

/// Decides what Ctrl-C does.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Default)]
pub enum DashboardRole {
    /// Ctrl-C stops the run, then kills it.
    Owner,
    /// Ctrl-C leaves the run alone.
    #[default]
    Observer,
    /// There is no run, only its journal.
    Replay,
}

/// The actions that are available now.
#[derive(Debug, Clone, PartialEq, Eq, Default)]
pub struct DashboardCapabilities {
    pub role: DashboardRole,
    /// Set while the plan awaits confirmation: what starting it would do.
    pub start_summary: Option<String>,
    /// What would run, or is being launched, a fact a line.
    pub plan_lines: Vec<String>,
    /// A run is followed: it can be stopped, killed and torn down.
    pub can_control: bool,
    /// The run can be launched again.
    pub can_restart: bool,
    /// No run is followed, but hosts may hold something to tear down.
    pub can_tear_down: bool,
}

impl DashboardCapabilities {
    pub fn view_only(role: DashboardRole) -> DashboardCapabilities {
        DashboardCapabilities { role, ..DashboardCapabilities::default() }
    }
}

/// An action of the dashboard's user.
#[derive(Debug, Clone, Copy, PartialEq)]
pub enum UserAction {
    /// Execute the plan that is shown.
    Start,
    /// Leave the run running and exit.
    Detach,
    /// TERM, then KILL after `stop_grace`.
    Stop,
    /// KILL.
    Kill,
    /// Stop and remove everything.
    TearDown,
    /// Stop the gang and launch it again.
    Restart,
    /// Run nvidia-smi on this host.
    QueryNvidiaSmi(u32),
    /// A shell on this host, with the variables of this rank.
    OpenShell(u32, Option<u32>),
    Interrupt,
    /// Leave immediately, without cleaning up.
    LeaveNow,
    /// The terminal was closed.
    Hangup,
    /// The dashboard panicked: the terminal is restored and the run continues.
    DashboardPanicked,
    /// Pause or resume the replay.
    TogglePause,
    StepEvent,
    /// Multiply the replay speed.
    ScaleSpeed(f64),
    /// Seek by this many milliseconds; negative: back.
    Seek(i64),
    /// Seek to the first failure.
    SeekFirstFailure,
}

/// A request to the engine, from the user, a finding or a signal.
#[derive(Debug, Clone, PartialEq, Eq)]
pub enum RunControl {
    /// Send TERM, after `stop_grace` KILL, then tear down according to `teardown`.
    Stop {
        /// For the journal.
        reason: String,
    },
    /// Send KILL.
    Kill { reason: String },
    /// Stop the gang and launch it again.
    Restart,
    /// Stop and remove everything, regardless of `teardown`.
    Teardown,
    /// Leave the run running and exit.
    Detach,
}
