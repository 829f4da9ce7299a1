//! What a command has of the laptop on which it runs.

use std::path::PathBuf;
use std::sync::Arc;

use crate::engine::Engine;
use crate::engine::emitter::Emitter;
use crate::engine::lock::LockIdentity;
use crate::inventory::{Inventory, InventoryHost};
use crate::lifecycle::operator::Console;
use crate::remote::{HostConnector, SharedHost, SshFleet, SshSettings};

/// What a session has of this laptop: who runs it, how it reaches hosts, where it keeps runs.
#[derive(Clone)]
pub(crate) struct LocalContext {
    pub(crate) identity: LockIdentity,
    pub(crate) ssh: SshSettings,
    /// Holds the run directories.
    pub(crate) state_dir: PathBuf,
    /// Maximum number of remote commands at the same time.
    pub(crate) forks: usize,
    /// `--yes`.
    pub(crate) assume_yes: bool,
    pub(crate) console: Arc<dyn Console>,
    /// Every host is reached through this one alone: the login node of a cluster, for its nodes.
    pub(crate) login: Option<InventoryHost>,
}

impl LocalContext {
    pub(super) fn build_engine(&self, inventory: &Inventory, emitter: Emitter) -> Engine {
        let count = inventory.hosts.len();
        let fleet: Arc<dyn HostConnector> = match &self.login {
            Some(login) => Arc::new(SharedHost::new(login.clone(), count, self.ssh.clone())),
            None => Arc::new(SshFleet::new(inventory.hosts.clone(), self.ssh.clone())),
        };
        Engine::new(&fleet, count, self.forks, emitter)
    }
}
