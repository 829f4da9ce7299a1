//! The SSH side of a fake host: who gets in, which channels are opened, and what runs behind them in a real shell.
//!
//! The only file of the sandbox that knows russh. Uses `place` for the environment and the faults. Nothing here waits inside a handler:
//! the handler is the connection's own loop, so each channel has a task that drains it.
#![expect(clippy::disallowed_methods, reason = "it starts the shells and times the faults")]

use std::collections::HashMap;
use std::io::{self, Read as _};
use std::os::unix::process::ExitStatusExt;
use std::path::Path;
use std::process::{ExitStatus, Stdio};
use std::sync::atomic::{AtomicUsize, Ordering};
use std::sync::{Arc, Mutex};
use std::time::Duration;

use russh::keys::ssh_key::LineEnding;
use russh::keys::ssh_key::private::Ed25519Keypair;
use russh::keys::{PrivateKey, PublicKey};
use russh::server::{Auth, ChannelOpenHandle, Handle, Handler, Msg, PublicKeyOffer, Session, VerifiedPublicKey};
use russh::{Channel, ChannelId, ChannelMsg, ChannelOpenFailure, ChannelReadHalf, ChannelWriteHalf, MethodKind, MethodSet, Sig};
use rustix::process::{Pid, Signal, kill_process_group};
use tokio::io::{AsyncRead, AsyncReadExt, AsyncWriteExt};
use tokio::net::{TcpListener, TcpStream};
use tokio::process::{Child, ChildStdin, Command};
use tokio::sync::mpsc;
use tokio_util::either::Either;
use tokio_util::sync::{CancellationToken, DropGuard};
use tokio_util::task::TaskTracker;

use super::place::Place;
use super::scenario::Faults;
use super::wire::{Wire, slow_down};

/// As sshd's `MaxSessions`.
const MAX_SESSIONS: usize = 10;
/// How much of what a command is sent is searched for a fault's phrase.
const SEARCHED: usize = 256 << 10;
/// What may wait for a command that does not read its input; a client that sends more loses its connection.
const BACKLOG: usize = 64 << 20;
/// How long a forwarded connection may take to open.
const FORWARD_TIMEOUT: Duration = Duration::from_secs(10);

/// A key pair as text.
pub(super) struct KeyPair {
    /// OpenSSH private key file.
    pub(super) private: String,
    /// `ssh-ed25519 AAAA…`
    pub(super) public: String,
    key: PrivateKey,
}

impl KeyPair {
    /// Makes a new one.
    pub(super) fn generate() -> io::Result<Self> {
        let mut seed = [0_u8; 32];
        std::fs::File::open("/dev/urandom")?.read_exact(&mut seed)?;
        let key = PrivateKey::from(Ed25519Keypair::from_seed(&seed));
        let private = key.to_openssh(LineEnding::LF).map_err(io::Error::other)?.to_string();
        let public = key.public_key().to_openssh().map_err(io::Error::other)?;
        Ok(KeyPair { private, public, key })
    }
}

/// What the server must know about one fake host.
pub(super) struct Fake {
    place: Place,
    user: String,
    password: Option<String>,
    client: PublicKey,
    config: Arc<russh::server::Config>,
    setsid: Option<&'static str>,
    program: std::path::PathBuf,
    connections: Mutex<CancellationToken>,
}

impl Fake {
    /// A host that lets `client` in as `user`.
    pub(super) fn new(place: Place, user: &str, password: Option<String>, client: &KeyPair, own: KeyPair, program: &Path) -> Self {
        let mut methods = vec![MethodKind::PublicKey];
        methods.extend(password.as_ref().map(|_| MethodKind::Password));
        let config = russh::server::Config {
            methods: MethodSet::from(methods.as_slice()),
            server_id: russh::SshId::Standard("SSH-2.0-OpenSSH_9.2-sandbox".into()),
            auth_rejection_time: Duration::from_millis(10),
            auth_rejection_time_initial: Some(Duration::ZERO),
            keys: vec![own.key],
            inactivity_timeout: None,
            nodelay: true,
            ..russh::server::Config::default()
        };
        Fake {
            place,
            user: user.to_owned(),
            password,
            client: client.key.public_key().clone(),
            config: Arc::new(config),
            setsid: ["/usr/bin/setsid", "/bin/setsid"].into_iter().find(|path| Path::new(path).exists()),
            program: program.to_path_buf(),
            connections: Mutex::new(CancellationToken::new()),
        }
    }

    /// Cuts every connection of this host that is open now.
    pub(super) fn drop_connections(&self) {
        let mut current = self.connections.lock().unwrap_or_else(std::sync::PoisonError::into_inner);
        std::mem::take(&mut *current).cancel();
    }

    fn cut(&self) -> CancellationToken {
        self.connections.lock().unwrap_or_else(std::sync::PoisonError::into_inner).child_token()
    }

    /// A command in the user's shell, in a session of its own as sshd does it.
    fn command(&self, text: &str, extra: &[(String, String)]) -> Command {
        let mut command = match self.setsid {
            Some(setsid) => {
                let mut command = Command::new(setsid);
                command.arg("/bin/sh");
                command
            }
            None => {
                let mut command = Command::new(&self.program);
                command.arg0("sandbox-shim").args(["setsid", "/bin/sh"]);
                command
            }
        };
        command.args(["-c", text]).env_clear().envs(self.place.environment(&self.user)).envs(extra.iter().cloned());
        command.current_dir(self.place.root().join("home")).stdin(Stdio::piped()).stdout(Stdio::piped()).stderr(Stdio::piped());
        command
    }
}

/// Accepts connections until told to stop.
pub(super) async fn serve(host: Arc<Fake>, listener: TcpListener, stop: CancellationToken, tasks: TaskTracker) {
    loop {
        tokio::select! {
            () = stop.cancelled() => break,
            accepted = listener.accept() => match accepted {
                Ok((stream, _)) => { tasks.spawn(connection(Arc::clone(&host), stream, tasks.clone())); }
                Err(error) => {
                    tracing::warn!(%error, "the sandbox could not accept a connection");
                    tokio::time::sleep(Duration::from_millis(50)).await;
                }
            }
        }
    }
    host.drop_connections();
}

async fn connection(host: Arc<Fake>, stream: TcpStream, tasks: TaskTracker) {
    let faults = host.place.faults();
    let cut = host.cut();
    tokio::select! {
        () = cut.cancelled() => return,
        () = pause(faults.slow_connect) => {}
    }
    if let Err(error) = stream.set_nodelay(true) {
        tracing::debug!(%error, "nodelay");
    }
    let ends = stream.peer_addr().and_then(|peer| stream.local_addr().map(|own| (peer, own)));
    let ends = ends.map(|(peer, own)| format!("{} {} {} {}", peer.ip(), peer.port(), own.ip(), own.port())).unwrap_or_default();
    let gone = CancellationToken::new();
    let handler = Connection {
        host: Arc::clone(&host),
        tasks: tasks.clone(),
        cut: cut.clone(),
        slots: HashMap::new(),
        _gone: gone.clone().drop_guard(),
        gone,
    };
    let delay = Duration::try_from_secs_f64(faults.round_trip / 2.0).unwrap_or_default();
    let stream = if delay.is_zero() { Either::Left(stream) } else { Either::Right(slow_down(stream, delay, &tasks)) };
    let wire = Wire::new(stream, faults.drop_after_bytes, cut.clone());
    let Ok(session) = russh::server::run_stream(Arc::clone(&host.config), wire, handler).await else { return };
    tokio::pin!(session);
    tokio::select! {
        ended = &mut session => return log_end(ended),
        () = limit(faults.drop_after_seconds) => cut.cancel(),
    }
    log_end(session.await);
}

fn log_end(ended: Result<(), russh::Error>) {
    if let Err(error) = ended {
        tracing::debug!(%error, "a sandbox connection ended");
    }
}

async fn pause(seconds: f64) {
    if seconds > 0.0 {
        tokio::time::sleep(Duration::try_from_secs_f64(seconds).unwrap_or(Duration::MAX)).await;
    }
}

async fn limit(seconds: Option<f64>) {
    match seconds {
        Some(seconds) => pause(seconds).await,
        None => std::future::pending().await,
    }
}

/// A session channel from its opening to its close.
struct Slot {
    channel: Option<Channel<Msg>>,
    environment: Vec<(String, String)>,
    closed: CancellationToken,
    leader: Arc<Mutex<Option<Pid>>>,
}

struct Connection {
    host: Arc<Fake>,
    ends: String,
    tasks: TaskTracker,
    cut: CancellationToken,
    slots: HashMap<ChannelId, Slot>,
    gone: CancellationToken,
    _gone: DropGuard,
}

impl Connection {
    async fn verdict(&self, right: bool) -> Auth {
        let faults = self.host.place.faults();
        pause(faults.auth_delay).await;
        if right && !faults.refuse_key { Auth::Accept } else { Auth::reject() }
    }

    fn start(&mut self, id: ChannelId, text: String, session: &mut Session) -> Result<(), russh::Error> {
        let Some((slot, channel)) = self.slots.get_mut(&id).and_then(|slot| slot.channel.take().map(|channel| (slot, channel))) else {
            return session.channel_failure(id);
        };
        session.channel_success(id)?;
        let run = Run {
            host: Arc::clone(&self.host),
            faults: self.host.place.faults(),
            text,
            environment: std::mem::take(&mut slot.environment),
            handle: session.handle(),
            closed: slot.closed.clone(),
            cut: self.cut.clone(),
            leader: Arc::clone(&slot.leader),
        };
        self.tasks.spawn(run.go(channel));
        Ok(())
    }
}

impl Handler for Connection {
    type Error = russh::Error;

    async fn auth_publickey_offered(&mut self, user: &str, offer: PublicKeyOffer<'_>) -> Result<Auth, Self::Error> {
        let right = user == self.host.user && offer.public_key.key_data() == self.host.client.key_data();
        Ok(self.verdict(right).await)
    }

    async fn auth_publickey(&mut self, user: &str, key: VerifiedPublicKey<'_>) -> Result<Auth, Self::Error> {
        let right = user == self.host.user && key.public_key.key_data() == self.host.client.key_data();
        Ok(self.verdict(right).await)
    }

    async fn auth_password(&mut self, user: &str, password: &str) -> Result<Auth, Self::Error> {
        let right = user == self.host.user && self.host.password.as_deref() == Some(password);
        Ok(self.verdict(right).await)
    }

    async fn channel_open_session(&mut self, channel: Channel<Msg>, reply: ChannelOpenHandle, _: &mut Session) -> Result<(), Self::Error> {
        self.slots.retain(|_, slot| !slot.closed.is_cancelled());
        if self.slots.len() >= self.host.place.faults().max_sessions.unwrap_or(MAX_SESSIONS) {
            reply.reject(ChannelOpenFailure::ConnectFailed).await;
            return Ok(());
        }
        reply.accept().await;
        let environment = vec![("SSH_CONNECTION".to_owned(), self.ends.clone())];
        let slot = Slot { environment, closed: self.gone.child_token(), leader: Arc::default(), channel: None };
        let id = channel.id();
        self.slots.insert(id, Slot { channel: Some(channel), ..slot });
        Ok(())
    }

    async fn channel_open_direct_tcpip(
        &mut self,
        channel: Channel<Msg>,
        host: &str,
        port: u32,
        _: &str,
        _: u32,
        reply: ChannelOpenHandle,
        _: &mut Session,
    ) -> Result<(), Self::Error> {
        let loopback = host == "localhost" || host.parse::<std::net::IpAddr>().is_ok_and(|ip| ip.is_loopback());
        if self.host.place.faults().no_forwarding {
            reply.reject(ChannelOpenFailure::AdministrativelyProhibited).await;
        } else if let (true, Ok(port)) = (loopback, u16::try_from(port)) {
            self.tasks.spawn(forward(channel, host.to_owned(), port, reply, self.gone.clone()));
        } else {
            reply.reject(ChannelOpenFailure::ConnectFailed).await;
        }
        Ok(())
    }

    async fn channel_close(&mut self, id: ChannelId, _: &mut Session) -> Result<(), Self::Error> {
        if let Some(slot) = self.slots.remove(&id) {
            slot.closed.cancel();
        }
        Ok(())
    }

    async fn env_request(&mut self, id: ChannelId, name: &str, value: &str, session: &mut Session) -> Result<(), Self::Error> {
        match self.slots.get_mut(&id) {
            Some(slot) if name == "LANG" || name.starts_with("LC_") => {
                slot.environment.push((name.to_owned(), value.to_owned()));
                session.channel_success(id)
            }
            _ => session.channel_failure(id),
        }
    }

    async fn pty_request(
        &mut self,
        id: ChannelId,
        _: &str,
        _: u32,
        _: u32,
        _: u32,
        _: u32,
        _: &[(russh::Pty, u32)],
        session: &mut Session,
    ) -> Result<(), Self::Error> {
        session.channel_failure(id)
    }

    async fn subsystem_request(&mut self, id: ChannelId, _: &str, session: &mut Session) -> Result<(), Self::Error> {
        session.channel_failure(id)
    }

    async fn shell_request(&mut self, id: ChannelId, session: &mut Session) -> Result<(), Self::Error> {
        self.start(id, "exec /bin/sh".to_owned(), session)
    }

    async fn exec_request(&mut self, id: ChannelId, text: &[u8], session: &mut Session) -> Result<(), Self::Error> {
        self.start(id, String::from_utf8_lossy(text).into_owned(), session)
    }

    async fn signal(&mut self, id: ChannelId, signal: Sig, _: &mut Session) -> Result<(), Self::Error> {
        let leader = self.slots.get(&id).and_then(|slot| *slot.leader.lock().unwrap_or_else(std::sync::PoisonError::into_inner));
        if let (Some(leader), Some(signal)) = (leader, number(&signal))
            && let Err(error) = kill_process_group(leader, signal)
        {
            tracing::debug!(%error, "not signalled");
        }
        Ok(())
    }
}

async fn forward(channel: Channel<Msg>, host: String, port: u16, reply: ChannelOpenHandle, gone: CancellationToken) {
    let opened = tokio::time::timeout(FORWARD_TIMEOUT, TcpStream::connect((host.as_str(), port))).await;
    let Ok(Ok(mut tcp)) = opened else { return reply.reject(ChannelOpenFailure::ConnectFailed).await };
    reply.accept().await;
    let mut stream = channel.into_stream();
    tokio::select! {
        () = gone.cancelled() => {}
        ended = tokio::io::copy_bidirectional(&mut stream, &mut tcp) => {
            if let Err(error) = ended {
                tracing::debug!(%error, "a forwarded connection ended");
            }
        }
    }
}

/// One command behind a channel.
struct Run {
    host: Arc<Fake>,
    faults: Faults,
    text: String,
    environment: Vec<(String, String)>,
    handle: Handle,
    closed: CancellationToken,
    cut: CancellationToken,
    leader: Arc<Mutex<Option<Pid>>>,
}

impl Run {
    async fn go(self, channel: Channel<Msg>) {
        let (reader, writer) = channel.split();
        if self.strikes(self.text.as_bytes()) {
            return drain(reader).await;
        }
        if let Some(noise) = &self.faults.noise {
            self.send(writer.data_bytes(noise.clone().into_bytes())).await;
        }
        match self.host.command(&self.text, &self.environment).spawn() {
            Ok(child) => self.follow(child, reader, writer).await,
            Err(error) => {
                self.send(writer.extended_data_bytes(1, format!("sandbox: /bin/sh: {error}\n").into_bytes())).await;
                self.report(&writer, ExitStatus::from_raw(127 << 8)).await;
                self.finish(&writer).await;
            }
        }
    }

    async fn follow(&self, mut child: Child, reader: ChannelReadHalf, writer: ChannelWriteHalf<Msg>) {
        *self.leader.lock().unwrap_or_else(std::sync::PoisonError::into_inner) =
            child.id().and_then(|id| i32::try_from(id).ok()).and_then(Pid::from_raw);
        let (input, queue) = mpsc::unbounded_channel();
        let waiting = AtomicUsize::new(0);
        let (stdin, stdout, stderr) = (child.stdin.take(), child.stdout.take(), child.stderr.take());
        let ended = async {
            let status = child.wait().await;
            *self.leader.lock().unwrap_or_else(std::sync::PoisonError::into_inner) = None;
            status.unwrap_or_else(|_| ExitStatus::from_raw(255 << 8))
        };
        let talk = async {
            tokio::join!(self.pump(stdout, None, &writer), self.pump(stderr, Some(1), &writer));
        };
        let feed = async {
            tokio::join!(self.listen(reader, input, &waiting), self.feed(stdin, queue, &waiting));
        };
        let work = async {
            // As sshd does: the status goes out when the shell has ended, the end of the channel when nobody holds its output any longer.
            let status = async { self.report(&writer, ended.await).await };
            tokio::join!(status, talk);
            self.finish(&writer).await;
        };
        tokio::join!(work, feed);
    }

    /// Hands on what the client sends; goes on reading whatever happens, for an unread channel stops the whole connection.
    async fn listen(&self, mut reader: ChannelReadHalf, input: mpsc::UnboundedSender<bytes::Bytes>, waiting: &AtomicUsize) {
        let mut input = Some(input);
        let mut seen = Vec::new();
        loop {
            let message = tokio::select! {
                () = self.closed.cancelled() => return,
                message = reader.wait() => message,
            };
            match message {
                None => return,
                Some(ChannelMsg::Eof) => input = None,
                Some(ChannelMsg::Data { data }) => {
                    if seen.len() < SEARCHED {
                        seen.extend_from_slice(&data);
                    }
                    if input.is_some() && self.strikes(&seen) {
                        return drain(reader).await;
                    }
                    let size = data.len();
                    if input.as_ref().is_some_and(|input| input.send(data).is_err()) {
                        input = None;
                    } else if input.is_some() && waiting.fetch_add(size, Ordering::Relaxed) > BACKLOG {
                        self.cut.cancel();
                    }
                }
                Some(_) => {}
            }
        }
    }

    async fn feed(&self, stdin: Option<ChildStdin>, mut queue: mpsc::UnboundedReceiver<bytes::Bytes>, waiting: &AtomicUsize) {
        let Some(mut stdin) = stdin else { return };
        loop {
            tokio::select! {
                () = self.closed.cancelled() => return,
                bytes = queue.recv() => match bytes {
                    Some(bytes) => {
                        if !self.put(&mut stdin, &bytes).await {
                            return;
                        }
                        waiting.fetch_sub(bytes.len(), Ordering::Relaxed);
                    }
                    None => return,
                }
            }
        }
    }

    async fn put(&self, stdin: &mut ChildStdin, bytes: &[u8]) -> bool {
        tokio::select! {
            () = self.closed.cancelled() => false,
            written = stdin.write_all(bytes) => written.is_ok(),
        }
    }

    async fn pump<R: AsyncRead + Unpin>(&self, from: Option<R>, ext: Option<u32>, writer: &ChannelWriteHalf<Msg>) {
        let Some(mut from) = from else { return };
        let mut buffer = bytes::BytesMut::new();
        loop {
            buffer.reserve(32 << 10);
            let read = tokio::select! {
                () = self.closed.cancelled() => return,
                read = from.read_buf(&mut buffer) => read,
            };
            if !matches!(read, Ok(count) if count > 0) {
                return;
            }
            let bytes = buffer.split().freeze();
            match ext {
                None => self.send(writer.data_bytes(bytes)).await,
                Some(ext) => self.send(writer.extended_data_bytes(ext, bytes)).await,
            }
        }
    }

    /// Sends, unless the other side is gone: then nothing would ever wake the sender.
    async fn send(&self, sending: impl Future<Output = Result<(), russh::Error>>) {
        tokio::select! {
            () = self.closed.cancelled() => {}
            sent = sending => if let Err(error) = sent { tracing::debug!(%error, "not sent") },
        }
    }

    async fn report(&self, writer: &ChannelWriteHalf<Msg>, status: ExitStatus) {
        match (status.code(), status.signal().and_then(name)) {
            (Some(code), _) => self.send(writer.exit_status(u32::try_from(code).unwrap_or(255))).await,
            (None, Some(signal)) => {
                let sent = self.handle.exit_signal_request(writer.id(), signal, status.core_dumped(), String::new(), String::new());
                self.send(async { sent.await.map_err(|()| russh::Error::SendError) }).await;
            }
            (None, None) => self.send(writer.exit_status(255)).await,
        }
    }

    async fn finish(&self, writer: &ChannelWriteHalf<Msg>) {
        self.send(writer.eof()).await;
        self.send(writer.close()).await;
        // The handler is not told when the client answers this close: the place is free from here on, and the listener has nothing to hear.
        self.closed.cancel();
    }

    /// Whether a fault waits for these bytes; a lost connection is lost here.
    fn strikes(&self, bytes: &[u8]) -> bool {
        let contains = |phrase: &Option<String>| phrase.as_ref().is_some_and(|p| memchr::memmem::find(bytes, p.as_bytes()).is_some());
        if contains(&self.faults.drop_on) {
            self.cut.cancel();
            return true;
        }
        contains(&self.faults.hang_on)
    }
}

async fn drain(mut reader: ChannelReadHalf) {
    while reader.wait().await.is_some() {}
}

fn number(signal: &Sig) -> Option<Signal> {
    Some(match signal {
        Sig::ABRT => Signal::ABORT,
        Sig::ALRM => Signal::ALARM,
        Sig::FPE => Signal::FPE,
        Sig::HUP => Signal::HUP,
        Sig::ILL => Signal::ILL,
        Sig::INT => Signal::INT,
        Sig::KILL => Signal::KILL,
        Sig::PIPE => Signal::PIPE,
        Sig::QUIT => Signal::QUIT,
        Sig::SEGV => Signal::SEGV,
        Sig::TERM => Signal::TERM,
        Sig::USR1 => Signal::USR1,
        Sig::Custom(_) => return None,
    })
}

fn name(signal: i32) -> Option<Sig> {
    let known =
        [Sig::ABRT, Sig::ALRM, Sig::FPE, Sig::HUP, Sig::ILL, Sig::INT, Sig::KILL, Sig::PIPE, Sig::QUIT, Sig::SEGV, Sig::TERM, Sig::USR1];
    known.into_iter().find(|sig| number(sig).is_some_and(|n| n.as_raw() == signal))
}
