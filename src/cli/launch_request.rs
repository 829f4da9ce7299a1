//! What a launch is of: its run's identity, and what was decided on the way.

use crate::cli::exit::CliError;
use crate::cli::local_env::random_64_bit_hex;
use crate::plan::build::RunIdentity;

/// What is decided before anything is asked.
pub(super) struct LaunchRequest {
    pub(super) run_identity: RunIdentity,
    pub(super) run_stamp: String,
    pub(super) secrets: Vec<(String, String)>,
    /// Of registries, by the name of their variable.
    pub(super) registry_passwords: Vec<(String, String)>,
    /// Why it cannot be launched from here, which is told when it is asked for: what runs can be followed without.
    pub(super) launch_error: Option<CliError>,
    /// The person has asked for it.
    pub(super) confirmed: bool,
    /// What runs is to be stopped and launched again.
    pub(super) relaunch: bool,
    /// Hosts that only the record of an earlier run names, and that were cleared.
    pub(super) cleared_hosts: Vec<String>,
}

impl LaunchRequest {
    /// Another launch of the same: with a run of its own.
    pub(super) fn reset(&mut self) {
        let now = jiff::Zoned::now();
        self.run_identity.run_id = new_run_id(&now);
        self.run_identity.started_at = now.timestamp().to_string();
        self.run_stamp = now.strftime("%Y%m%d%H%M%S").to_string();
        (self.confirmed, self.relaunch) = (true, true);
    }
}

pub(super) fn new_run_id(now: &jiff::Zoned) -> String {
    format!("{}-{}", now.strftime("%Y%m%d-%H%M%S"), random_64_bit_hex().chars().take(4).collect::<String>())
}
