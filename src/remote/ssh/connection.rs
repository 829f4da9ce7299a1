//! One SSH connection: opened within a deadline, its loss detected early, closed with its last owner.
//!
//! `script_session` runs scripts over it.

use std::borrow::Cow;
use std::sync::Arc;
use std::time::Duration;

use russh::client::{Config, Handle, Msg};
use russh::{Channel, ChannelOpenFailure, SshId};
use tokio::sync::{Mutex, mpsc, oneshot};
use tokio::time::Instant;
use tokio_util::sync::{CancellationToken, DropGuard};
use tokio_util::task::TaskTracker;

use super::algorithm_preferences;
use super::auth::{AuthAttempt, AuthError};
use super::client_handler::{ClientHandler, DisconnectCause, DisconnectInfo};
use super::deadline::{PausableDeadline, QueuePermits};
use super::dial::connect_tcp;
use super::handshake_error::{ConnectError, handshake_failure, handshake_timeout_error};
use super::keys::Keyring;
use super::proxy_command::{self, ProxyLog};
use super::transport::{Greeting, InactivityLimit, RawStream, SshTransport};
use crate::remote::RemoteError;
use crate::remote::hop::Hop;
use crate::remote::host_key::HostKeyVerifier;

/// Timeout of a disconnect, including pending channels.
const DISCONNECT_TIMEOUT: Duration = Duration::from_millis(1500);
/// How long to wait for its tasks to end.
const TASK_GRACE: Duration = Duration::from_millis(500);
/// Receive timeout before login: keepalives do not run yet, and the user may have to touch a token.
const LOGIN_INACTIVITY_LIMIT: Duration = Duration::from_secs(75);
/// Receive timeout if ssh_config disables keepalives.
const NO_INACTIVITY_LIMIT: Duration = Duration::from_secs(365 * 24 * 3600);
/// How long to wait for the reason of a refused channel.
const OPEN_FAILURE_WAIT: Duration = Duration::from_millis(200);
/// Channels that carry other hosts' connections buffer more messages than their inner window has packets, so that one host cannot block
/// another.
const JUMP_CHANNEL_BUFFER: usize = 1024;
const CHANNEL_BUFFER: usize = 256;

/// An established connection.
pub(super) struct SshConnection {
    /// Name shown to the user.
    pub(super) name: String,
    handle: Arc<Handle<ClientHandler>>,
    /// Cancelled when russh's loop ends.
    pub(super) closed: CancellationToken,
    disconnect_info: Arc<DisconnectInfo>,
    /// Cuts the transport.
    abort: CancellationToken,
    /// Cuts it when the last owner is dropped.
    _guard: DropGuard,
    /// Reasons of refused channels, read by one caller at a time.
    open_failures: Mutex<mpsc::Receiver<String>>,
    /// All tasks of this connection.
    pub(super) tasks: TaskTracker,
    /// The connection that carries this one.
    _parent: Option<Arc<SshConnection>>,
}

/// Result of opening a TCP channel.
pub(super) enum TcpChannelResult {
    Open(Channel<Msg>),
    Refused { code: ChannelOpenFailure, reason: String },
    ConnectionLost,
    TimedOut,
}

/// Inputs of a handshake.
pub(super) struct HandshakeSetup<'a> {
    pub(super) hop: &'a Hop,
    pub(super) verifier: HostKeyVerifier,
    pub(super) keyring: &'a Keyring,
    pub(super) parent: Option<Arc<SshConnection>>,
    /// Released while the user is prompted.
    pub(super) queue_permits: QueuePermits,
}

impl SshConnection {
    /// Connects, verifies the host key and logs in.
    pub(super) async fn connect(setup: HandshakeSetup<'_>) -> Result<Arc<SshConnection>, ConnectError> {
        let HandshakeSetup { hop, verifier, keyring, parent, queue_permits } = setup;
        let deadline = Instant::now() + hop.connect_timeout;
        let (wire, proxy_log) = open_transport(hop, parent.as_ref(), deadline).await?;
        let cut = parent.as_ref().map_or_else(CancellationToken::new, |parent| parent.closed.child_token());
        let guard = cut.clone().drop_guard();
        let (greeting, disconnect_info, closed) =
            (Arc::new(Greeting::default()), Arc::new(DisconnectInfo::default()), CancellationToken::new());
        let (open_failures, failures) = mpsc::channel(16);
        let inactivity = Arc::new(InactivityLimit::new(LOGIN_INACTIVITY_LIMIT.max(inactivity_limit(hop))));
        let transport = SshTransport::new(wire, &cut, inactivity.clone(), greeting.clone());
        let config = Arc::new(russh_config(hop, &verifier));
        let verifier = Arc::new(verifier);
        let client = ClientHandler::new(verifier.clone(), disconnect_info.clone(), open_failures, closed.clone());
        let port = describe_port(hop, parent.as_deref());
        let shaken = match tokio::time::timeout_at(deadline, russh::client::connect_stream(config, transport, client)).await {
            Ok(Ok(handle)) => Ok(handle),
            Ok(Err(error)) => Err(handshake_failure(hop, &port, error, &greeting, &disconnect_info)),
            Err(_) => Err(ConnectError::Final(handshake_timeout_error(hop, &port, &greeting))),
        };
        let mut handle = match shaken {
            Ok(handle) => handle,
            Err(failure) => return Err(add_proxy_log(failure, &cut, proxy_log).await),
        };
        record_host_key(&disconnect_info, &verifier, keyring).await;
        let clock = PausableDeadline::new(deadline, queue_permits);
        let attempt = AuthAttempt::new(&mut handle, hop, keyring, &disconnect_info, &clock).run().await;
        if let Err(error) = attempt {
            return Err(add_proxy_log(auth_failure(hop, parent.as_deref(), error, clock.paused_total()), &cut, proxy_log).await);
        }
        inactivity.set(inactivity_limit(hop));
        Ok(Arc::new(SshConnection {
            name: hop.name.clone(),
            handle: Arc::new(handle),
            closed,
            disconnect_info,
            abort: cut,
            _guard: guard,
            open_failures: Mutex::new(failures),
            tasks: TaskTracker::new(),
            _parent: parent,
        }))
    }

    /// Opens a session channel.
    pub(super) async fn open_session(&self) -> Result<Channel<Msg>, russh::Error> {
        self.handle.channel_open_session().await
    }

    /// Whether the connection has ended.
    pub(super) fn is_closed(&self) -> bool {
        self.closed.is_cancelled() || self.handle.is_closed()
    }

    /// The error for pending calls when the connection ends.
    pub(super) fn lost_error(&self) -> RemoteError {
        let why = self.disconnect_info.cause.get().map_or_else(|| "closed".to_owned(), ToString::to_string);
        RemoteError::lost(format!("the connection was lost: {why}"), "", true)
    }

    /// Cuts the connection; `why` counts if no other cause is known.
    pub(super) fn cut(&self, why: impl Into<String>) {
        drop(self.disconnect_info.cause.set(DisconnectCause::Other(why.into())));
        self.abort.cancel();
    }

    /// Asks the host to connect to `address:port`. A task waits for a late answer and closes its channel.
    ///
    /// russh reports refusal reasons separately from refusals. `exact` calls run one at a time to get their own reason; others run
    /// concurrently (a silent address would delay every host behind a bastion) and may report another call's reason.
    pub(super) async fn open_tcp(&self, address: &str, port: u16, deadline: Instant, exact: bool) -> TcpChannelResult {
        let mut alone = None;
        if exact {
            let Ok(mut refusals) = tokio::time::timeout_at(deadline, self.open_failures.lock()).await else {
                return TcpChannelResult::TimedOut;
            };
            while refusals.try_recv().is_ok() {}
            alone = Some(refusals);
        }
        let (tx, rx) = oneshot::channel();
        let (handle, closed, address) = (self.handle.clone(), self.closed.clone(), address.to_owned());
        self.tasks.spawn(async move {
            let opening = handle.channel_open_direct_tcpip(address, u32::from(port), "127.0.0.1", 0);
            let opened = closed.run_until_cancelled(opening).await;
            if let Err(Some(Ok(channel))) = tx.send(opened) {
                close_channel(&channel, &closed).await;
            }
        });
        match tokio::time::timeout_at(deadline, rx).await {
            Err(_) => TcpChannelResult::TimedOut,
            Ok(Ok(Some(Ok(channel)))) => TcpChannelResult::Open(channel),
            Ok(Ok(Some(Err(russh::Error::ChannelOpenFailure(code))))) => {
                let reading = async {
                    match &mut alone {
                        Some(refusals) => refusals.recv().await,
                        None => self.open_failures.lock().await.recv().await,
                    }
                };
                let reason = tokio::time::timeout(OPEN_FAILURE_WAIT, reading).await.ok().flatten().unwrap_or_default();
                TcpChannelResult::Refused { code, reason }
            }
            Ok(_) => TcpChannelResult::ConnectionLost,
        }
    }

    /// Waits a moment for its tasks.
    pub(super) async fn wait_for_tasks(&self) {
        self.tasks.close();
        if tokio::time::timeout(TASK_GRACE, self.tasks.wait()).await.is_err() {
            tracing::debug!(host = %self.name, "its tasks are still running");
        }
    }

    /// Disconnects and waits for the end. Abandoned operations are ended first by their tasks.
    pub(super) async fn disconnect(&self) {
        drop(self.disconnect_info.cause.set(DisconnectCause::Other("closed by us".to_owned())));
        self.tasks.close();
        let bye = async {
            let ended = tokio::time::timeout(TASK_GRACE, self.tasks.wait()).await;
            if self.handle.disconnect(russh::Disconnect::ByApplication, "goodbye", "").await.is_ok() {
                self.closed.cancelled().await;
            }
            ended
        };
        let result = tokio::time::timeout(DISCONNECT_TIMEOUT, bye).await;
        self.abort.cancel();
        if !matches!(result, Ok(Ok(()))) && tokio::time::timeout(TASK_GRACE, self.tasks.wait()).await.is_err() {
            tracing::debug!(host = %self.name, "the disconnect was not sent in time");
        }
    }
}

/// Closes a channel unless the connection is gone.
pub(super) async fn close_channel(channel: &Channel<Msg>, closed: &CancellationToken) {
    if let Some(Err(error)) = closed.run_until_cancelled(channel.close()).await {
        tracing::debug!(%error, "a channel was closed already");
    }
}

/// Twenty random bytes; also used for marks.
pub(super) fn random_bytes() -> [u8; 20] {
    use russh::keys::ssh_key::rand_core::Rng as _;
    let mut bytes = [0; 20];
    russh::keys::key::safe_rng().fill_bytes(&mut bytes);
    bytes
}

/// Receive timeout: longer than keepalives need to detect a loss.
fn inactivity_limit(hop: &Hop) -> Duration {
    let times = u32::try_from(hop.keepalive_max).unwrap_or(u32::MAX).saturating_add(2);
    hop.keepalive_interval.map_or(NO_INACTIVITY_LIMIT, |span| span.saturating_mul(times))
}

/// Stores a newly accepted key.
async fn record_host_key(disconnect_info: &DisconnectInfo, verifier: &Arc<HostKeyVerifier>, keyring: &Keyring) {
    let Some(key) = disconnect_info.new_key.get().cloned() else { return };
    let verifier = verifier.clone();
    let recorded = tokio::task::spawn_blocking(move || verifier.record_key(&key, random_bytes()));
    if let Ok(Some(text)) = recorded.await {
        keyring.show_notice(&text);
    }
}

/// Adds the result of the program that carried the connection, which is usually the cause.
async fn add_proxy_log(mut failure: ConnectError, abort: &CancellationToken, proxy_log: Option<ProxyLog>) -> ConnectError {
    let (ConnectError::Busy(error) | ConnectError::LostDuringPrompt(error) | ConnectError::Final(error)) = &mut failure;
    if let (RemoteError::Lost { what, hint, .. }, Some(log)) = (error, proxy_log) {
        abort.cancel();
        *what = format!("{what}; connected through {}", log.describe().await);
        "run the command by hand: it must print the greeting of an SSH server".clone_into(hint);
    }
    failure
}

/// After this much time in prompts, the server's own timeout (LoginGraceTime, 120 s by default) may have ended the login.
const LONG_PROMPT: Duration = Duration::from_secs(30);

fn auth_failure(hop: &Hop, parent: Option<&SshConnection>, error: AuthError, waited: Duration) -> ConnectError {
    match error {
        AuthError::Final(error) => ConnectError::Final(error),
        AuthError::Lost { why, retry } => {
            let error = RemoteError::lost(hop.prefix_message(&format!("{why}{}", describe_parent(parent))), "", retry);
            if retry && waited >= LONG_PROMPT { ConnectError::LostDuringPrompt(error) } else { ConnectError::Final(error) }
        }
    }
}

/// Opens the transport: a channel of the previous hop, a program, or TCP.
async fn open_transport(
    hop: &Hop,
    parent: Option<&Arc<SshConnection>>,
    deadline: Instant,
) -> Result<(Box<dyn RawStream>, Option<ProxyLog>), ConnectError> {
    let Some(parent) = parent else {
        let Some(proxy) = &hop.proxy_command else {
            return Ok((Box::new(connect_tcp(hop, deadline).await.map_err(ConnectError::Final)?), None));
        };
        let wrong = |what| RemoteError::invalid_config(what, "check that the shell named by $SHELL exists");
        let (program, proxy_log) = proxy_command::start_proxy(proxy).map_err(wrong).map_err(ConnectError::Final)?;
        return Ok((Box::new(program), Some(proxy_log)));
    };
    let fail = |why: String, hint: String, retry| {
        ConnectError::Final(RemoteError::lost(
            hop.prefix_message(&format!("could not connect through {}: {why}", parent.name)),
            hint,
            retry,
        ))
    };
    match parent.open_tcp(&hop.host, hop.port, deadline, false).await {
        TcpChannelResult::Open(channel) => Ok((Box::new(channel.into_stream()), None)),
        TcpChannelResult::TimedOut => Err(fail(format!("port {} did not answer", hop.port), String::new(), true)),
        TcpChannelResult::ConnectionLost => Err(fail(parent.lost_error().to_string(), String::new(), true)),
        TcpChannelResult::Refused { code: ChannelOpenFailure::AdministrativelyProhibited, .. } => Err(fail(
            "it does not allow forwarding".to_owned(),
            format!("set AllowTcpForwarding yes in sshd_config on {}", parent.name),
            false,
        )),
        TcpChannelResult::Refused { reason, .. } => Err(fail(format!("port {}: {}", hop.port, reason.to_lowercase()), String::new(), true)),
    }
}

/// Location of a hop for messages.
fn describe_port(hop: &Hop, parent: Option<&SshConnection>) -> String {
    format!("port {}{}", hop.port, describe_parent(parent))
}

fn describe_parent(parent: Option<&SshConnection>) -> String {
    parent.map(|parent| format!(" through {}", parent.name)).unwrap_or_default()
}

fn russh_config(hop: &Hop, verifier: &HostKeyVerifier) -> Config {
    Config {
        client_id: SshId::Standard(Cow::Borrowed(concat!("SSH-2.0-orchestrate_", env!("CARGO_PKG_VERSION")))),
        window_size: 2 << 20,
        maximum_packet_size: 32768,
        channel_buffer_size: if hop.is_jump { JUMP_CHANNEL_BUFFER } else { CHANNEL_BUFFER },
        keepalive_interval: hop.keepalive_interval,
        keepalive_max: hop.keepalive_max,
        // The transport detects silence and distinguishes it from a slow consumer.
        inactivity_timeout: None,
        nodelay: true,
        preferred: algorithm_preferences::build_preferred(&hop.algorithms, verifier),
        ..Config::default()
    }
}
