//! Tries whether the master's port can be reached from a worker, through that worker's own sshd.

use std::time::Duration;

use crate::model::tcp_reachability::{PathState, TcpReachability};
use crate::plan::action::{ActionResult, Execution};

/// How long a first try to connect may take before the path counts as blocked; a second one has twice the time.
pub(crate) const CONNECT_TIMEOUT: Duration = Duration::from_secs(3);

/// The master's port, as a worker reaches it.
#[derive(Debug, Clone)]
pub struct ReachMaster {
    /// The master's fabric address.
    pub address: String,
    pub port: u16,
}

impl ReachMaster {
    pub(super) fn execution(&self) -> Execution {
        Execution::Connect { address: self.address.clone(), port: self.port, timeout: CONNECT_TIMEOUT * 2 }
    }

    /// What the connection shows; an error: unknown. Before the launch nothing listens there.
    pub(super) fn judge(&self, found: &TcpReachability) -> Result<ActionResult, String> {
        let to = format!("{}:{}", self.address, self.port);
        let failed = |why: &str| Ok(ActionResult::failed(format!("{to} is unreachable: {why}"), master_port_hint(self.port, "the master")));
        match found.path_state(false) {
            PathState::Open => Ok(ActionResult::unchanged(format!("{to} is reachable"))),
            PathState::Rejected => failed("refused"),
            PathState::Dropped(why) => failed(why),
            PathState::Unknown(why) => Err(format!("unknown: {why}")),
        }
    }
}

/// What to do where the path to the master's port is closed.
pub(crate) fn master_port_hint(port: u16, master: &str) -> String {
    format!("allow TCP port {port} in {master}'s firewall, or set the master's fabric_address to an address that the workers can reach")
}
