//! One SSH connection: made under a deadline, known to be dead as soon as anyone can know it, and gone with its last owner.
//!
//! Uses `transport`, `client`, `auth`. Knows nothing of scripts: `session` runs them.

use std::borrow::Cow;
use std::sync::Arc;
use std::time::Duration;

use russh::client::{Config, Handle, Msg};
use russh::keys::{Algorithm, EcdsaCurve, HashAlg};
use russh::{Channel, ChannelOpenFailure, Preferred, SshId, cipher};
use tokio::sync::{Mutex, mpsc, oneshot};
use tokio::time::Instant;
use tokio_util::sync::{CancellationToken, DropGuard};
use tokio_util::task::TaskTracker;

use super::auth::{Attempt, Denied};
use super::client::{Client, Left, Trouble, words};
use super::keys::Keyring;
use super::transport::{Heard, Patience, Transport, Wire, tcp};
use crate::remote::RemoteError;
use crate::remote::hop::Hop;
use crate::remote::trust::Trust;

/// How long a goodbye may take.
const GOODBYE: Duration = Duration::from_millis(1500);
/// How long its tasks may take to notice.
const GRACE: Duration = Duration::from_millis(500);
/// How long nothing may be received before we are in: keepalives do not run yet, and a person may have to touch a token.
const LOGIN_SILENCE: Duration = Duration::from_secs(75);
/// How long after a refused open its reason may come.
const REASON: Duration = Duration::from_millis(200);
/// Channels that carry other hosts' connections hold more messages than their inner window has packets, so that one host cannot stop another.
const JUMP_BUFFER: usize = 1024;
const BUFFER: usize = 256;

/// Why a connection did not come about.
#[derive(Debug)]
pub(super) enum Failure {
    /// Reset or closed before it was secured: sshd may have been busy.
    Busy(RemoteError),
    /// A key must be opened first.
    Locked(std::path::PathBuf),
    /// A password must be asked for first.
    WantsPassword,
    /// Anything else.
    Final(RemoteError),
}

/// A connection that is up.
pub(super) struct Link {
    /// The name people know the host by.
    pub(super) name: String,
    handle: Arc<Handle<Client>>,
    /// Cancelled when russh's loop is over.
    pub(super) dead: CancellationToken,
    left: Arc<Left>,
    /// Cuts the bytes beneath.
    cut: CancellationToken,
    /// Cuts them when the last owner is gone.
    _guard: DropGuard,
    /// Reasons of refused opens, read by one asker at a time.
    refusals: Mutex<mpsc::Receiver<String>>,
    /// Every task that works on this connection.
    pub(super) tasks: TaskTracker,
    /// The connection that carries this one.
    _below: Option<Arc<Link>>,
}

/// What came of opening a TCP channel.
pub(super) enum Opened {
    Channel(Channel<Msg>),
    Refused { code: ChannelOpenFailure, reason: String },
    Dead,
    Late,
}

/// What a handshake needs.
pub(super) struct Setup<'a> {
    pub(super) hop: &'a Hop,
    pub(super) trust: Trust,
    pub(super) keyring: &'a Keyring,
    pub(super) below: Option<Arc<Link>>,
}

impl Link {
    /// Connects, checks the host's key and logs in.
    pub(super) async fn connect(setup: Setup<'_>) -> Result<Arc<Link>, Failure> {
        let Setup { hop, trust, keyring, below } = setup;
        let deadline = Instant::now() + hop.connect_timeout;
        let wire = wire(hop, below.as_ref(), deadline).await?;
        let cut = below.as_ref().map_or_else(CancellationToken::new, |b| b.dead.child_token());
        let guard = cut.clone().drop_guard();
        let (heard, left, dead) = (Arc::new(Heard::default()), Arc::new(Left::default()), CancellationToken::new());
        let (refused, refusals) = mpsc::channel(16);
        let patience = Arc::new(Patience::new(LOGIN_SILENCE.max(silence(hop))));
        let transport = Transport::new(wire, &cut, patience.clone(), heard.clone());
        let config = Arc::new(config(hop, &trust));
        let trust = Arc::new(trust);
        let client = Client::new(trust.clone(), left.clone(), refused, dead.clone());
        let shaking = tokio::time::timeout_at(deadline, russh::client::connect_stream(config, transport, client));
        let mut handle = match shaking.await {
            Ok(Ok(handle)) => handle,
            Ok(Err(trouble)) => return Err(broken(hop, trouble, &heard)),
            Err(_) => return Err(Failure::Final(late(hop))),
        };
        note_key(&left, trust, keyring).await;
        let attempt = Attempt { handle: &mut handle, hop, keyring, left: &left, deadline, tried: Vec::new() };
        attempt.run().await.map_err(|denied| not_in(hop, denied))?;
        patience.set(silence(hop));
        Ok(Arc::new(Link {
            name: hop.name.clone(),
            handle: Arc::new(handle),
            dead,
            left,
            cut,
            _guard: guard,
            refusals: Mutex::new(refusals),
            tasks: TaskTracker::new(),
            _below: below,
        }))
    }

    /// The handle, for opening sessions.
    pub(super) fn handle(&self) -> Arc<Handle<Client>> {
        self.handle.clone()
    }

    /// Whether the connection is known to be over.
    pub(super) fn is_dead(&self) -> bool {
        self.dead.is_cancelled() || self.handle.is_closed()
    }

    /// The error of every call that is under way when the connection ends.
    pub(super) fn lost(&self) -> RemoteError {
        lost(&self.name, &self.left)
    }

    /// What tasks need to tell of an end.
    pub(super) fn left(&self) -> Arc<Left> {
        self.left.clone()
    }

    /// A token that cuts the connection when cancelled.
    pub(super) fn cut(&self) -> CancellationToken {
        self.cut.clone()
    }

    /// Asks the host to connect to `address:port`. A late answer is waited for by a task, so that its channel is closed and not forgotten.
    ///
    /// russh hands out the reasons of refusals apart from the refusals. `exact` calls go one at a time, so that the reason is theirs; others do
    /// not wait for each other (an address that does not answer would hold up every host behind a bastion) and may show a neighbour's.
    pub(super) async fn open_tcp(&self, address: &str, port: u16, deadline: Instant, exact: bool) -> Opened {
        let mut alone = None;
        if exact {
            let Ok(mut refusals) = tokio::time::timeout_at(deadline, self.refusals.lock()).await else { return Opened::Late };
            while refusals.try_recv().is_ok() {}
            alone = Some(refusals);
        }
        let (tx, rx) = oneshot::channel();
        let (handle, dead, address) = (self.handle.clone(), self.dead.clone(), address.to_owned());
        self.tasks.spawn(async move {
            let opening = handle.channel_open_direct_tcpip(address, u32::from(port), "127.0.0.1", 0);
            let opened = dead.run_until_cancelled(opening).await;
            if let Err(Some(Ok(channel))) = tx.send(opened) {
                close(&channel, &dead).await;
            }
        });
        match tokio::time::timeout_at(deadline, rx).await {
            Err(_) => Opened::Late,
            Ok(Ok(Some(Ok(channel)))) => Opened::Channel(channel),
            Ok(Ok(Some(Err(russh::Error::ChannelOpenFailure(code))))) => {
                let reading = async {
                    match &mut alone {
                        Some(refusals) => refusals.recv().await,
                        None => self.refusals.lock().await.recv().await,
                    }
                };
                let reason = tokio::time::timeout(REASON, reading).await.ok().flatten().unwrap_or_default();
                Opened::Refused { code, reason }
            }
            Ok(_) => Opened::Dead,
        }
    }

    /// Says goodbye and waits for the end.
    pub(super) async fn goodbye(&self) {
        self.left.why.get_or_init(|| "closed by us".to_owned());
        let bye = async {
            if self.handle.disconnect(russh::Disconnect::ByApplication, "goodbye", "").await.is_ok() {
                self.dead.cancelled().await;
            }
        };
        let said = tokio::time::timeout(GOODBYE, bye).await;
        self.cut.cancel();
        self.tasks.close();
        if said.is_err() || tokio::time::timeout(GRACE, self.tasks.wait()).await.is_err() {
            tracing::debug!(host = %self.name, "no goodbye in time");
        }
    }
}

/// Closes a channel unless the connection is gone.
pub(super) async fn close(channel: &Channel<Msg>, dead: &CancellationToken) {
    if let Some(Err(error)) = dead.run_until_cancelled(channel.close()).await {
        tracing::debug!(%error, "a channel was closed already");
    }
}

/// The error for a connection that ended.
pub(super) fn lost(name: &str, left: &Left) -> RemoteError {
    let why = left.why.get().map_or("closed", String::as_str);
    RemoteError::Lost { what: format!("the connection to {name} was lost: {why}"), hint: String::new(), retry: true }
}

/// Twenty bytes that nobody can guess; also used for marks.
pub(super) fn salt() -> [u8; 20] {
    use russh::keys::ssh_key::rand_core::Rng as _;
    let mut bytes = [0; 20];
    russh::keys::key::safe_rng().fill_bytes(&mut bytes);
    bytes
}

/// How long nothing may be received: longer than the keepalives need to find out.
fn silence(hop: &Hop) -> Duration {
    let times = u32::try_from(hop.keepalive_max).unwrap_or(u32::MAX).saturating_add(2);
    hop.keepalive.saturating_mul(times)
}

/// Notes a key that was accepted although it was not known.
async fn note_key(left: &Left, trust: Arc<Trust>, keyring: &Keyring) {
    let Some(key) = left.new_key.get().cloned() else { return };
    let noted = tokio::task::spawn_blocking(move || trust.learn(&key.kind, &key.blob, salt()));
    if let Ok(Some(text)) = noted.await {
        keyring.notice(&text);
    }
}

fn not_in(hop: &Hop, denied: Denied) -> Failure {
    match denied {
        Denied::Locked(path) => Failure::Locked(path),
        Denied::WantsPassword => Failure::WantsPassword,
        Denied::Final(error) => Failure::Final(error),
        Denied::Lost(why) => {
            let what = format!("the connection to {} ended: {why}", hop.name);
            Failure::Final(RemoteError::Lost { what, hint: String::new(), retry: true })
        }
    }
}

async fn wire(hop: &Hop, below: Option<&Arc<Link>>, deadline: Instant) -> Result<Box<dyn Wire>, Failure> {
    let Some(below) = below else {
        return Ok(Box::new(tcp(hop, deadline).await.map_err(Failure::Final)?));
    };
    let fail = |why: String, hint: String, retry| {
        Failure::Final(RemoteError::Lost { what: format!("could not connect to {} through {}: {why}", hop.name, below.name), hint, retry })
    };
    match below.open_tcp(&hop.host, hop.port, deadline, false).await {
        Opened::Channel(channel) => Ok(Box::new(channel.into_stream())),
        Opened::Late => Err(fail(format!("{}:{} did not answer", hop.host, hop.port), String::new(), true)),
        Opened::Dead => Err(Failure::Final(below.lost())),
        Opened::Refused { code: ChannelOpenFailure::AdministrativelyProhibited, .. } => {
            Err(fail("it forbids forwarding".to_owned(), format!("sshd_config of {} needs AllowTcpForwarding yes", below.name), false))
        }
        Opened::Refused { reason, .. } => Err(fail(format!("{}:{}: {}", hop.host, hop.port, reason.to_lowercase()), String::new(), true)),
    }
}

fn late(hop: &Hop) -> RemoteError {
    RemoteError::Lost {
        what: format!(
            "could not connect to {}: {}:{} did not finish the key exchange within {:?}",
            hop.name, hop.host, hop.port, hop.connect_timeout
        ),
        hint: "is it an sshd, and is the host overloaded?".to_owned(),
        retry: true,
    }
}

/// Puts a failed handshake into words, and says whether it is worth another try.
fn broken(hop: &Hop, trouble: Trouble, heard: &Heard) -> Failure {
    let error = match trouble {
        Trouble::Key(error) => return Failure::Final(error),
        Trouble::Ssh(error) => error,
    };
    let place = format!("{} ({}:{})", hop.name, hop.host, hop.port);
    let fails = |why: String, hint: &str, retry| RemoteError::Lost {
        what: format!("could not connect to {place}: {why}"),
        hint: hint.to_owned(),
        retry,
    };
    match &error {
        russh::Error::NoCommonAlgo { kind, theirs, .. } => Failure::Final(RemoteError::Refused {
            what: format!("could not connect to {place}: no common {kind:?}; it offers {}", theirs.join(", ")),
            hint: "the host's sshd is too old, or restricted to algorithms that are not safe".to_owned(),
        }),
        russh::Error::Version => Failure::Final(fails("what listens there is no SSH server".to_owned(), "check the port", false)),
        russh::Error::HUP | russh::Error::Disconnect | russh::Error::IO(_) => {
            let why = heard.refusal().map_or_else(|| words(&error), |said| format!("it said “{said}” and closed"));
            Failure::Busy(fails(why, "sshd may be busy (MaxStartups), or refuse this address for a while (PerSourcePenalties)", true))
        }
        _ => Failure::Final(fails(words(&error), "", true)),
    }
}

fn config(hop: &Hop, trust: &Trust) -> Config {
    Config {
        client_id: SshId::Standard(Cow::Borrowed(concat!("SSH-2.0-orchestrate_", env!("CARGO_PKG_VERSION")))),
        window_size: 2 << 20,
        maximum_packet_size: 32768,
        channel_buffer_size: if hop.jump { JUMP_BUFFER } else { BUFFER },
        keepalive_interval: Some(hop.keepalive),
        keepalive_max: hop.keepalive_max,
        inactivity_timeout: Some(LOGIN_SILENCE.max(silence(hop))),
        nodelay: true,
        preferred: Preferred {
            key: Cow::Owned(key_order(&trust.kinds())),
            host_key_certificates: if trust.authorities().next().is_some() { Cow::Owned(key_order(&[])) } else { Cow::Borrowed(&[]) },
            cipher: Cow::Borrowed(if fast_aes() { &AES_FIRST } else { &CHACHA_FIRST }),
            ..Preferred::DEFAULT
        },
        ..Config::default()
    }
}

const AES_FIRST: [cipher::Name; 5] =
    [cipher::AES_256_GCM, cipher::AES_128_GCM, cipher::CHACHA20_POLY1305, cipher::AES_256_CTR, cipher::AES_128_CTR];
const CHACHA_FIRST: [cipher::Name; 5] =
    [cipher::CHACHA20_POLY1305, cipher::AES_256_GCM, cipher::AES_128_GCM, cipher::AES_256_CTR, cipher::AES_128_CTR];

#[cfg(any(target_arch = "x86", target_arch = "x86_64"))]
fn fast_aes() -> bool {
    std::arch::is_x86_feature_detected!("aes")
}

#[cfg(target_arch = "aarch64")]
fn fast_aes() -> bool {
    std::arch::is_aarch64_feature_detected!("aes")
}

#[cfg(not(any(target_arch = "x86", target_arch = "x86_64", target_arch = "aarch64")))]
fn fast_aes() -> bool {
    false
}

/// Host key types, those first that known_hosts has for this host: else a host with several keys would show one that is not known.
fn key_order(known: &[String]) -> Vec<Algorithm> {
    let ecdsa = |curve| Algorithm::Ecdsa { curve };
    let mut order = vec![
        Algorithm::Ed25519,
        ecdsa(EcdsaCurve::NistP256),
        ecdsa(EcdsaCurve::NistP384),
        ecdsa(EcdsaCurve::NistP521),
        Algorithm::Rsa { hash: Some(HashAlg::Sha512) },
        Algorithm::Rsa { hash: Some(HashAlg::Sha256) },
    ];
    let kind = |a: &Algorithm| if a.clone().is_rsa() { "ssh-rsa".to_owned() } else { a.to_string() };
    order.sort_by_key(|a| !known.contains(&kind(a)));
    order
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn known_key_types_come_first_and_sha1_never() {
        let order = key_order(&["ssh-rsa".to_owned()]);
        assert!(order[0].clone().is_rsa() && order[1].clone().is_rsa() && order[2] == Algorithm::Ed25519);
        assert!(!order.contains(&Algorithm::Rsa { hash: None }));
        assert_eq!(key_order(&[])[0], Algorithm::Ed25519);
    }
}
