//! Tries whether the master's port can be reached from a worker, through that worker's own sshd.

use std::time::Duration;

use crate::plan::action::Execution;

/// The master's port, as a worker reaches it.
#[derive(Debug, Clone)]
pub struct ReachMaster {
    /// The master's fabric address.
    pub address: String,
    /// The rendezvous port.
    pub port: u16,
}

impl ReachMaster {
    pub(super) fn execution(&self) -> Execution {
        Execution::Connect { address: self.address.clone(), port: self.port, timeout: Duration::from_secs(6) }
    }
}
