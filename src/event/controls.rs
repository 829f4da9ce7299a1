//! What a person at the dashboard can ask for, and what is offered to them.

/// Who sits at the dashboard.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub enum DashboardRole {
    /// Ctrl-C stops the run, then kills it.
    Owner,
    /// Ctrl-C leaves the run alone.
    Observer,
    /// There is no run, only its journal.
    Replay,
}

/// What can be asked for now.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct DashboardCapabilities {
    pub role: DashboardRole,
    /// The plan is shown and waits for a word: what starting it would do.
    pub start_summary: Option<String>,
    /// A run is followed: it can be stopped, killed and torn down.
    pub can_control: bool,
    /// What is followed can be launched again.
    pub can_restart: bool,
    /// Nothing is followed, but hosts may hold something that can be torn down.
    pub can_tear_down: bool,
}

impl DashboardCapabilities {
    /// Nothing but to look.
    pub fn view_only(role: DashboardRole) -> DashboardCapabilities {
        DashboardCapabilities { role, start_summary: None, can_control: false, can_restart: false, can_tear_down: false }
    }
}

/// What the person at the dashboard asks for.
#[derive(Debug, Clone, Copy, PartialEq)]
pub enum UserAction {
    /// Start what the plan shows.
    Start,
    /// Leave the run alone and end.
    Detach,
    /// End every rank with time to save.
    Stop,
    /// End every rank now.
    Kill,
    /// Stop and remove everything.
    TearDown,
    /// Stop the gang and launch it again.
    Restart,
    /// What nvidia-smi prints on this host.
    QueryNvidiaSmi(u32),
    /// A shell on this host, with the variables of this rank.
    OpenShell(u32, Option<u32>),
    Interrupt,
    /// Leave now, whatever is under way.
    LeaveNow,
    /// The terminal is gone.
    Hangup,
    /// The dashboard broke: the terminal is as it was, the run goes on.
    DashboardPanicked,
    /// Stop or go on playing.
    TogglePause,
    StepEvent,
    /// Play this many times as fast as until now.
    ScaleSpeed(f64),
    /// Go so many milliseconds on, or back.
    Seek(i64),
}
