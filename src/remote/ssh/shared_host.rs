//! One host that stands for several: the login node, through which the nodes of a cluster's job are read. They share its connections.

use std::sync::atomic::AtomicUsize;
use std::sync::{Arc, Weak};
use std::time::Duration;

use futures_util::FutureExt as _;
use futures_util::future::BoxFuture;
use tokio::sync::Mutex;

use super::session_pool::{MAX_CONNECTIONS, SessionPool};
use super::ssh_host::SshHost;
use super::{FleetInner, SshFleet};
use crate::inventory::InventoryHost;
use crate::remote::{HostConnector, Remote, RemoteError, SshSettings};

/// Connects every host number to the same host, over one connection, and as many more as its MaxSessions makes necessary.
pub struct SharedHost {
    fleet: Arc<FleetInner>,
    /// Two sessions for each of those that share it, and MaxSessions may be 1.
    max_connections: usize,
    shared: Mutex<SharedSessions>,
}

/// The connections in use, and the number of their users.
#[derive(Default)]
struct SharedSessions {
    sessions: Weak<SessionPool>,
    users: Arc<AtomicUsize>,
}

impl SharedHost {
    /// Connects to nothing yet. `count`: how many share the host.
    pub fn new(host: InventoryHost, count: usize, settings: SshSettings) -> Self {
        let SshFleet(fleet) = SshFleet::new(vec![host], settings);
        SharedHost { fleet, max_connections: MAX_CONNECTIONS + 2 * count, shared: Mutex::default() }
    }

    async fn connect_shared(&self) -> Result<Arc<dyn Remote>, RemoteError> {
        let mut shared = self.shared.lock().await;
        let open = shared.sessions.upgrade().filter(|sessions| !sessions.primary().is_closed());
        let sessions = match open {
            Some(sessions) => sessions,
            None => {
                let sessions = self.fleet.clone().open_sessions(0, self.max_connections).await?;
                *shared = SharedSessions { sessions: Arc::downgrade(&sessions), users: Arc::default() };
                sessions
            }
        };
        Ok(Arc::new(SshHost::new(sessions, shared.users.clone())))
    }
}

impl HostConnector for SharedHost {
    fn retry_window(&self, _host: usize) -> Duration {
        self.fleet.retry_window(0)
    }

    fn connect(&self, _host: usize) -> BoxFuture<'_, Result<Arc<dyn Remote>, RemoteError>> {
        self.connect_shared().boxed()
    }
}
