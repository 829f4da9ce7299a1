//! The real [`HostConnector`]: one SSH connection per host, through its jump hosts, with bounded handshakes.
//!
//! `route_resolver` finds the route, `host_key` verifies host keys, `connection` opens connections.

mod agent;
mod algorithm_preferences;
mod auth;
mod auth_prompts;
mod client_handler;
mod connection;
mod deadline;
mod dial;
mod framing;
mod handshake_error;
mod identities;
mod keys;
mod output_buffer;
mod proxy_command;
mod pty;
mod script_session;
mod script_stream;
mod session_pool;
mod shared_host;
mod ssh_host;
mod transport;

use std::collections::{HashMap, HashSet};
use std::sync::{Arc, Mutex, PoisonError, Weak};
use std::time::Duration;

use futures_util::FutureExt as _;
use futures_util::future::BoxFuture;
use tokio::sync::Semaphore;
use tokio::time::Instant;

use self::connection::{HandshakeSetup, SshConnection};
use self::handshake_error::ConnectError;
use self::keys::Keyring;
use self::session_pool::{MAX_CONNECTIONS, SessionPool};
pub use self::shared_host::SharedHost;
use self::ssh_host::SshHost;
use super::hop::Hop;
use super::hop_report::{HopReport, describe_hop};
use super::host_key::{HostKeyFiles, HostKeyVerifier};
use super::route_resolver::{ResolvedHop, RouteResolver};
use super::ssh_settings::SshSettings;
use super::{HostConnector, Remote, RemoteError};
use crate::inventory::InventoryHost;

/// Concurrent handshakes with one sshd: its MaxStartups drops the tenth.
const HANDSHAKES_PER_SERVER: usize = 8;
/// Concurrent handshakes in total.
const MAX_HANDSHAKES: usize = 64;
/// Delays before a busy sshd is tried again; each with up to 50% jitter.
const BACK_OFF: [Duration; 3] = [Duration::from_millis(200), Duration::from_millis(600), Duration::from_millis(1800)];
/// How long to retry a host after an error that retries alone do not fix; default of `ssh.give_up`.
const DEFAULT_RETRY_WINDOW: Duration = Duration::from_secs(600);
/// How long a jump host's refusal applies to all hosts behind it; then one of them tries again, since it may have been fixed.
const JUMP_FAILURE_TTL: Duration = Duration::from_secs(30);
/// Reconnects after the server closed the connection during a prompt.
const MAX_PROMPT_RECONNECTS: usize = 2;

/// The hosts of an inventory and their routes.
pub struct SshFleet(Arc<FleetInner>);

struct FleetInner {
    hosts: Vec<InventoryHost>,
    route_resolver: RouteResolver,
    host_key_files: Arc<HostKeyFiles>,
    keyring: Keyring,
    handshake_slots: Arc<Semaphore>,
    server_slots: Mutex<HashMap<String, Arc<Semaphore>>>,
    /// For retries with a busy sshd: several addresses may lead to one sshd (a gateway, a bastion's containers), whose queues
    /// are independent.
    retry_slots: Arc<Semaphore>,
    jump_hosts: Mutex<HashMap<String, Arc<tokio::sync::Mutex<JumpConnection>>>>,
    /// Notices shown once.
    reported: Mutex<HashSet<String>>,
}

/// A jump host's connection, shared by all hosts behind it.
#[derive(Default)]
struct JumpConnection {
    connection: Weak<SshConnection>,
    last_failure: Option<(Instant, RemoteError)>,
}

/// The queues of a handshake.
struct HandshakeSlots<'a> {
    server: &'a Semaphore,
    /// Whether it is a retry.
    is_retry: bool,
}

impl SshFleet {
    /// Creates a fleet without connecting.
    pub fn new(hosts: Vec<InventoryHost>, settings: SshSettings) -> Self {
        SshFleet(Arc::new(FleetInner {
            hosts,
            route_resolver: RouteResolver::new(settings.clone()),
            host_key_files: Arc::default(),
            handshake_slots: Arc::new(Semaphore::new(settings.max_handshakes.clamp(1, MAX_HANDSHAKES))),
            keyring: Keyring::new(settings),
            server_slots: Mutex::default(),
            retry_slots: Arc::new(Semaphore::new(HANDSHAKES_PER_SERVER)),
            jump_hosts: Mutex::default(),
            reported: Mutex::default(),
        }))
    }

    /// The route of each host with the origin of every setting; contacts no host.
    pub async fn describe_routes(&self) -> Vec<Result<Vec<HopReport>, RemoteError>> {
        let fleet = &self.0;
        let describe = |host| async move {
            Ok(fleet.route_resolver.resolve_hops(host).await?.iter().map(|step| describe_hop(step, &host.ssh)).collect())
        };
        futures_util::future::join_all(fleet.hosts.iter().map(describe)).await
    }
}

impl FleetInner {
    fn retry_window(&self, host: usize) -> Duration {
        self.hosts.get(host).and_then(|host| host.ssh.give_up_after).unwrap_or(DEFAULT_RETRY_WINDOW)
    }

    async fn connect_host(self: Arc<Self>, host: usize) -> Result<Arc<dyn Remote>, RemoteError> {
        Ok(Arc::new(SshHost::new(self.open_sessions(host, MAX_CONNECTIONS).await?, Arc::default())))
    }

    /// Connects to a host, with at most `max_connections` connections, opened as sessions require.
    async fn open_sessions(self: Arc<Self>, host: usize, max_connections: usize) -> Result<Arc<SessionPool>, RemoteError> {
        let first = self.open_connection(host).await?;
        let further = Arc::new(move || {
            let fleet = self.clone();
            async move { fleet.open_connection(host).await }.boxed()
        });
        Ok(SessionPool::new(first, further, max_connections))
    }

    /// Opens one connection to a host.
    async fn open_connection(&self, host: usize) -> Result<Arc<SshConnection>, RemoteError> {
        let missing = || RemoteError::invalid_config(format!("the inventory has no host number {host}"), "");
        let hops = self.route_resolver.resolve_hops(self.hosts.get(host).ok_or_else(missing)?).await?;
        let Some((last, jumps)) = hops.split_last() else { return Err(missing()) };
        let mut parent = None;
        let mut route = String::new();
        for ResolvedHop { hop, .. } in jumps {
            route = format!("{route}{}@{}:{}/", hop.user, hop.host, hop.port);
            parent = Some(self.jump_connection(hop, &route, parent).await?);
        }
        self.connect_hop(&last.hop, &route, parent).await
    }

    /// The shared connection to a jump host. Callers that waited for a failed attempt get its error instead of trying again.
    async fn jump_connection(&self, hop: &Hop, route: &str, parent: Option<Arc<SshConnection>>) -> Result<Arc<SshConnection>, RemoteError> {
        let asked = Instant::now();
        let slot = self.jump_hosts.lock().unwrap_or_else(PoisonError::into_inner).entry(route.to_owned()).or_default().clone();
        let mut slot = slot.lock().await;
        if let Some(connection) = slot.connection.upgrade().filter(|connection| !connection.is_closed()) {
            return Ok(connection);
        }
        let lasting = |when: &Instant, error: &RemoteError| !error.is_retryable() && when.elapsed() < JUMP_FAILURE_TTL;
        if let Some((when, error)) = slot.last_failure.as_ref().filter(|(when, error)| *when >= asked || lasting(when, error)) {
            tracing::debug!(jump = %hop.name, since = ?when.elapsed(), "not retried");
            return Err(error.clone());
        }
        match self.connect_hop(hop, route, parent).await {
            Ok(connection) => {
                slot.connection = Arc::downgrade(&connection);
                slot.last_failure = None;
                Ok(connection)
            }
            Err(error) => {
                slot.last_failure = Some((Instant::now(), error.clone()));
                Err(error)
            }
        }
    }

    async fn connect_hop(&self, hop: &Hop, route: &str, parent: Option<Arc<SshConnection>>) -> Result<Arc<SshConnection>, RemoteError> {
        let server = format!("{route}{}:{}", hop.host, hop.port);
        let server = self
            .server_slots
            .lock()
            .unwrap_or_else(PoisonError::into_inner)
            .entry(server)
            .or_insert_with(|| Arc::new(Semaphore::new(HANDSHAKES_PER_SERVER)))
            .clone();
        self.report_unsupported_algorithms(hop);
        let mut waits = BACK_OFF.iter();
        let mut spent = Duration::ZERO;
        let mut questions = 0;
        loop {
            let slots = HandshakeSlots { server: &server, is_retry: waits.len() < BACK_OFF.len() };
            let failure = match self.attempt_handshake(hop, slots, parent.clone(), &mut spent).await {
                Ok(connection) => return Ok(connection),
                Err(failure) => failure,
            };
            match failure {
                ConnectError::Final(error) => return Err(error),
                ConnectError::Busy(error) => match waits.next().filter(|_| spent < hop.connect_timeout) {
                    Some(wait) => tokio::time::sleep(add_jitter(*wait)).await,
                    None => return Err(error),
                },
                ConnectError::LostDuringPrompt(error) if questions == MAX_PROMPT_RECONNECTS => return Err(error),
                ConnectError::LostDuringPrompt(_) => questions += 1,
            }
        }
    }

    /// One attempt after waiting for its turn. The time it takes is added to `spent`.
    async fn attempt_handshake(
        &self,
        hop: &Hop,
        slots: HandshakeSlots<'_>,
        parent: Option<Arc<SshConnection>>,
        spent: &mut Duration,
    ) -> Result<Arc<SshConnection>, ConnectError> {
        let closed = |_| ConnectError::Final(RemoteError::invalid_config("shutting down: no new connections", ""));
        let mut permits = Vec::new();
        if slots.is_retry {
            permits.push(self.retry_slots.clone().acquire_owned().await.map_err(closed)?);
        }
        // Its sshd counts a login until it is complete, also during a prompt: this slot is kept.
        let _permit = slots.server.acquire().await.map_err(closed)?;
        permits.push(self.handshake_slots.clone().acquire_owned().await.map_err(closed)?);
        let began = Instant::now();
        let verifier = self.load_verifier(hop).await.map_err(ConnectError::Final)?;
        let setup = HandshakeSetup { hop, verifier, keyring: &self.keyring, parent, queue_permits: permits };
        let made = SshConnection::connect(setup).await;
        *spent += began.elapsed();
        made
    }

    /// Reports once which algorithms of ssh_config are not supported.
    fn report_unsupported_algorithms(&self, hop: &Hop) {
        for text in hop.algorithms.unsupported_notices() {
            if self.reported.lock().unwrap_or_else(PoisonError::into_inner).insert(text.clone()) {
                tracing::info!("{text}");
            }
        }
    }

    /// Known keys of a hop.
    async fn load_verifier(&self, hop: &Hop) -> Result<HostKeyVerifier, RemoteError> {
        let (files, name, head, policy) =
            (self.host_key_files.clone(), hop.name.clone(), hop.prefix_message(""), hop.host_key_policy.clone());
        let reading = tokio::task::spawn_blocking(move || files.load_verifier(&name, &head, &policy)).await;
        let mut verifier = reading.map_err(|e| RemoteError::invalid_config(format!("known_hosts: {e}"), ""))??;
        if let Some(command) = &hop.host_key_policy.known_hosts_command {
            verifier.set_command_lines(&command.run(None).await?);
        }
        Ok(verifier)
    }
}

/// Adds up to 50% jitter, so that many clients do not retry together.
fn add_jitter(wait: Duration) -> Duration {
    let [first, ..] = connection::random_bytes();
    wait + wait.mul_f64(f64::from(first) / 512.0)
}

impl HostConnector for SshFleet {
    fn retry_window(&self, host: usize) -> Duration {
        self.0.retry_window(host)
    }

    fn connect(&self, host: usize) -> BoxFuture<'_, Result<Arc<dyn Remote>, RemoteError>> {
        self.0.clone().connect_host(host).boxed()
    }
}
