//! One SSH connection: made under a deadline, known to be dead as soon as anyone can know it, and gone with its last owner.
//!
//! Uses `transport`, `client`, `auth`. Knows nothing of scripts: `session` runs them.

use std::borrow::Cow;
use std::sync::Arc;
use std::time::Duration;

use russh::client::{Config, Handle, Msg};
use russh::{Channel, ChannelOpenFailure, SshId};
use tokio::sync::{Mutex, mpsc, oneshot};
use tokio::time::Instant;
use tokio_util::sync::{CancellationToken, DropGuard};
use tokio_util::task::TaskTracker;

use super::auth::{Attempt, Denied};
use super::client::{Client, Left, Trouble, words};
use super::dial::tcp;
use super::keys::Keyring;
use super::offer;
use super::pause::{Clock, Places};
use super::proxy::{self, Story};
use super::transport::{Heard, Patience, Transport, Wire};
use crate::remote::RemoteError;
use crate::remote::hop::Hop;
use crate::remote::trust::Trust;

/// How long a goodbye may take, with what is ended before.
const GOODBYE: Duration = Duration::from_millis(1500);
/// How long its tasks may take to notice.
const GRACE: Duration = Duration::from_millis(500);
/// How long nothing may be received before we are in: keepalives do not run yet, and a person may have to touch a token.
const LOGIN_SILENCE: Duration = Duration::from_secs(75);
/// How long nothing may be received where ssh_config turns the keepalives off.
const FOR_EVER: Duration = Duration::from_secs(365 * 24 * 3600);
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
    /// The connection ended while a person was asked: what was answered is known now.
    Asked(RemoteError),
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
    /// Given up when a person is waited for.
    pub(super) places: Places,
}

impl Link {
    /// Connects, checks the host's key and logs in.
    pub(super) async fn connect(setup: Setup<'_>) -> Result<Arc<Link>, Failure> {
        let Setup { hop, trust, keyring, below, places } = setup;
        let deadline = Instant::now() + hop.connect_timeout;
        let (wire, story) = wire(hop, below.as_ref(), deadline).await?;
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
            Ok(Err(trouble)) => return Err(told(broken(hop, &place(hop, below.as_deref()), trouble, &heard, &left), &cut, story).await),
            Err(_) => return Err(told(Failure::Final(late(hop, &place(hop, below.as_deref()), &heard)), &cut, story).await),
        };
        note_key(&left, &trust, keyring).await;
        let clock = Clock::new(deadline, places);
        let attempt = Attempt::new(&mut handle, hop, keyring, &left, &clock).run().await;
        if let Err(denied) = attempt {
            return Err(told(not_in(hop, below.as_deref(), denied, clock.waited()), &cut, story).await);
        }
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

    /// Asks for a session.
    pub(super) async fn open_session(&self) -> Result<Channel<Msg>, russh::Error> {
        self.handle.channel_open_session().await
    }

    /// Whether the connection is known to be over.
    pub(super) fn is_dead(&self) -> bool {
        self.dead.is_cancelled() || self.handle.is_closed()
    }

    /// The error of every call that is under way when the connection ends.
    pub(super) fn lost(&self) -> RemoteError {
        lost(&self.left)
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

    /// Waits a moment for the tasks that work on it.
    pub(super) async fn settle(&self) {
        self.tasks.close();
        if tokio::time::timeout(GRACE, self.tasks.wait()).await.is_err() {
            tracing::debug!(host = %self.name, "its tasks are not over yet");
        }
    }

    /// Says goodbye and waits for the end. What nobody waits for any more is ended before: its task does that.
    pub(super) async fn goodbye(&self) {
        self.left.why.get_or_init(|| "closed by us".to_owned());
        self.tasks.close();
        let bye = async {
            let ended = tokio::time::timeout(GRACE, self.tasks.wait()).await;
            if self.handle.disconnect(russh::Disconnect::ByApplication, "goodbye", "").await.is_ok() {
                self.dead.cancelled().await;
            }
            ended
        };
        let said = tokio::time::timeout(GOODBYE, bye).await;
        self.cut.cancel();
        if !matches!(said, Ok(Ok(()))) && tokio::time::timeout(GRACE, self.tasks.wait()).await.is_err() {
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
pub(super) fn lost(left: &Left) -> RemoteError {
    let why = left.why.get().map_or("closed", String::as_str);
    RemoteError::Lost { what: format!("the connection was lost: {why}"), hint: String::new(), retry: true }
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
    hop.keepalive.map_or(FOR_EVER, |span| span.saturating_mul(times))
}

/// Notes a key that was accepted although it was not known.
async fn note_key(left: &Left, trust: &Arc<Trust>, keyring: &Keyring) {
    let Some(key) = left.new_key.get().cloned() else { return };
    let trust = trust.clone();
    let noted = tokio::task::spawn_blocking(move || trust.learn(&key, salt()));
    if let Ok(Some(text)) = noted.await {
        keyring.notice(&text);
    }
}

/// Adds what became of the program that carried the connection: it is mostly its fault.
async fn told(mut failure: Failure, cut: &CancellationToken, story: Option<Story>) -> Failure {
    let (Failure::Busy(error) | Failure::Asked(error) | Failure::Final(error)) = &mut failure;
    if let (RemoteError::Lost { what, hint, .. }, Some(story)) = (error, story) {
        cut.cancel();
        *what = format!("{what}; it was reached by {}", story.words().await);
        "run the command by hand: it must print the greeting of an sshd".clone_into(hint);
    }
    failure
}

/// After so much time with a person, the server's own patience (LoginGraceTime, 120 s by default) may be what ended a login.
const LONG: Duration = Duration::from_secs(30);

fn not_in(hop: &Hop, below: Option<&Link>, denied: Denied, waited: Duration) -> Failure {
    match denied {
        Denied::Final(error) => Failure::Final(error),
        Denied::Lost { why, retry } => {
            let error = RemoteError::Lost { what: hop.says(&format!("{why}{}", through(below))), hint: String::new(), retry };
            if retry && waited >= LONG { Failure::Asked(error) } else { Failure::Final(error) }
        }
    }
}

/// What carries the connection: a channel of the hop below, a program, or TCP.
async fn wire(hop: &Hop, below: Option<&Arc<Link>>, deadline: Instant) -> Result<(Box<dyn Wire>, Option<Story>), Failure> {
    let Some(below) = below else {
        let Some(proxy) = &hop.proxy else { return Ok((Box::new(tcp(hop, deadline).await.map_err(Failure::Final)?), None)) };
        let wrong = |what| RemoteError::Settings { what, hint: "is the shell of $SHELL there?".to_owned() };
        let (program, story) = proxy::start(proxy).map_err(wrong).map_err(Failure::Final)?;
        return Ok((Box::new(program), Some(story)));
    };
    let fail = |why: String, hint: String, retry| {
        Failure::Final(RemoteError::Lost { what: hop.says(&format!("could not connect through {}: {why}", below.name)), hint, retry })
    };
    match below.open_tcp(&hop.host, hop.port, deadline, false).await {
        Opened::Channel(channel) => Ok((Box::new(channel.into_stream()), None)),
        Opened::Late => Err(fail(format!("port {} did not answer", hop.port), String::new(), true)),
        Opened::Dead => Err(fail(below.lost().to_string(), String::new(), true)),
        Opened::Refused { code: ChannelOpenFailure::AdministrativelyProhibited, .. } => {
            Err(fail("it forbids forwarding".to_owned(), format!("sshd_config of {} needs AllowTcpForwarding yes", below.name), false))
        }
        Opened::Refused { reason, .. } => Err(fail(format!("port {}: {}", hop.port, reason.to_lowercase()), String::new(), true)),
    }
}

/// Where a hop is, for people.
fn place(hop: &Hop, below: Option<&Link>) -> String {
    format!("port {}{}", hop.port, through(below))
}

fn through(below: Option<&Link>) -> String {
    below.map(|below| format!(" through {}", below.name)).unwrap_or_default()
}

fn late(hop: &Hop, place: &str, heard: &Heard) -> RemoteError {
    if let Some(error) = too_old(hop, place, heard) {
        return error;
    }
    let within = hop.connect_timeout;
    let why = match (heard.first_line(), heard.refusal()) {
        (None, _) => format!("it took the connection and said nothing within {within:?}"),
        (Some(_), None) => format!("it did not finish the key exchange within {within:?}"),
        (_, Some(said)) => format!("it said “{said}” and no SSH greeting within {within:?}"),
    };
    RemoteError::Lost {
        what: hop.says(&format!("could not connect to {place}: {why}")),
        hint: "is it an sshd, and is the host overloaded?".to_owned(),
        retry: true,
    }
}

/// The error for a server that speaks no SSH 2. (1.99 speaks both.)
fn too_old(hop: &Hop, place: &str, heard: &Heard) -> Option<RemoteError> {
    let said = heard.first_line().filter(|said| said.starts_with("SSH-1.") && !said.starts_with("SSH-1.99"))?;
    Some(RemoteError::Lost {
        what: hop.says(&format!("could not connect to {place}: it speaks only SSH 1 (“{said}”), which is not safe")),
        hint: "the host needs an sshd that speaks SSH 2".to_owned(),
        retry: false,
    })
}

/// Puts a failed handshake into words, and says whether it is worth another try.
fn broken(hop: &Hop, place: &str, trouble: Trouble, heard: &Heard, left: &Left) -> Failure {
    let error = match trouble {
        Trouble::Key(error) => return Failure::Final(error),
        Trouble::Ssh(error) => error,
    };
    if let Some(error) = too_old(hop, place, heard) {
        return Failure::Final(error);
    }
    let fails = |why: String, hint: &str, retry| RemoteError::Lost {
        what: hop.says(&format!("could not connect to {place}: {why}")),
        hint: hint.to_owned(),
        retry,
    };
    match &error {
        russh::Error::NoCommonAlgo { kind, theirs, .. } => Failure::Final(no_common(hop, kind, theirs)),
        russh::Error::Version => {
            let said = heard.first_line().map(|said| format!("; it said “{said}”")).unwrap_or_default();
            let hint = format!("is {} the right port?", hop.port);
            Failure::Final(fails(format!("what listens there is no SSH server{said}"), &hint, false))
        }
        russh::Error::HUP | russh::Error::Disconnect | russh::Error::IO(_) => {
            let why = match (left.why.get(), heard.refusal(), heard.first_line()) {
                (Some(why), ..) => why.clone(),
                (_, Some(said), _) => format!("it said “{said}” and closed"),
                (.., Some(_)) => format!("{}, during the key exchange", words(&error)),
                (.., None) => format!("{}, without a word", words(&error)),
            };
            Failure::Busy(fails(why, "sshd may be busy (MaxStartups), or refuse this address for a while (PerSourcePenalties)", true))
        }
        _ => Failure::Final(fails(format!("{}, during the key exchange", words(&error)), "", true)),
    }
}

/// Says what the two sides do not share, and which line of ssh_config has a part in it.
fn no_common(hop: &Hop, kind: &russh::AlgorithmKind, theirs: &[String]) -> RemoteError {
    let Some((kind, list)) = offer::list(&hop.algorithms, kind) else {
        return RemoteError::Refused { what: hop.says("no common compression"), hint: String::new() };
    };
    let left_out = list.left_out(kind).map(|text| format!(" ({text})")).unwrap_or_default();
    let hint = match &list.place {
        Some(place) => format!("allow one of them in {} ({place})", kind.keyword()),
        None => format!(
            "the host's sshd is too old, or restricted to algorithms that are not safe; {} +… in ssh_config allows more",
            kind.keyword()
        ),
    };
    let theirs: Vec<&str> = theirs.iter().map(String::as_str).filter(|name| !offer::is_marker(name)).collect();
    let (noun, theirs, ours) = (kind.noun(), theirs.join(", "), list.names.join(", "));
    RemoteError::Refused { what: hop.says(&format!("no common {noun}: the server offers {theirs}; we offer {ours}{left_out}")), hint }
}

fn config(hop: &Hop, trust: &Trust) -> Config {
    Config {
        client_id: SshId::Standard(Cow::Borrowed(concat!("SSH-2.0-orchestrate_", env!("CARGO_PKG_VERSION")))),
        window_size: 2 << 20,
        maximum_packet_size: 32768,
        channel_buffer_size: if hop.jump { JUMP_BUFFER } else { BUFFER },
        keepalive_interval: hop.keepalive,
        keepalive_max: hop.keepalive_max,
        // The transport notices silence, and tells it from a reader of ours that takes its time.
        inactivity_timeout: None,
        nodelay: true,
        preferred: offer::preferred(&hop.algorithms, trust),
        ..Config::default()
    }
}
