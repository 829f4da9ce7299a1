//! The SSH side of a fake host: authentication, channels, and the commands that run behind them in a real shell.
//!
//! Nothing here waits inside a handler: the handler is the connection's own loop, so each channel has a task that drains it.

mod exec_session;
mod fake_ssh_server;

use std::collections::HashMap;
use std::io;
use std::sync::{Arc, Mutex};
use std::time::Duration;

use russh::server::{Auth, ChannelOpenHandle, Handler, Msg, PublicKeyOffer, Session, VerifiedPublicKey};
use russh::{Channel, ChannelId, ChannelOpenFailure, Sig};
use rustix::process::Pid;
use tokio::net::{TcpListener, TcpStream};
use tokio_util::either::Either;
use tokio_util::sync::{CancellationToken, DropGuard};
use tokio_util::task::TaskTracker;

use self::exec_session::{ExecSession, signal_from_ssh};
use super::faulty_stream::{FaultyStream, delay_stream};
use super::processes;
use super::pty::{Pty, PtyResizer};

pub(super) use self::fake_ssh_server::{FakeSshServer, SshKeyPair, SshLogin};

/// As sshd's `MaxSessions`.
const MAX_SESSIONS: usize = 10;
/// How long a forwarded connection may take to open.
const FORWARD_TIMEOUT: Duration = Duration::from_secs(10);

/// Accepts connections until it is stopped.
pub(super) async fn serve_connections(host: Arc<FakeSshServer>, listener: TcpListener, stop: CancellationToken, tasks: TaskTracker) {
    loop {
        tokio::select! {
            () = stop.cancelled() => break,
            accepted = listener.accept() => match accepted {
                Ok((stream, _)) => { tasks.spawn(handle_connection(Arc::clone(&host), stream, tasks.clone())); }
                Err(error) => {
                    tracing::warn!(%error, "the sandbox could not accept a connection");
                    tokio::time::sleep(Duration::from_millis(50)).await;
                }
            }
        }
    }
    host.drop_connections();
}

async fn handle_connection(host: Arc<FakeSshServer>, stream: TcpStream, tasks: TaskTracker) {
    let faults = host.host.faults();
    let cut = host.connection_token();
    if let Err(error) = stream.set_nodelay(true) {
        tracing::debug!(%error, "nodelay");
    }
    let ends = stream.peer_addr().and_then(|peer| stream.local_addr().map(|own| (peer, own)));
    let ends = ends.map(|(peer, own)| format!("{} {} {} {}", peer.ip(), peer.port(), own.ip(), own.port())).unwrap_or_default();
    let gone = CancellationToken::new();
    let handler = ServerConnection {
        server: Arc::clone(&host),
        ssh_connection: ends,
        tasks: tasks.clone(),
        drop_token: cut.clone(),
        channels: HashMap::new(),
        _closed_guard: gone.clone().drop_guard(),
        connection_closed: gone,
    };
    let delay = Duration::try_from_secs_f64(faults.round_trip / 2.0).unwrap_or_default();
    let stream = if delay.is_zero() { Either::Left(stream) } else { Either::Right(delay_stream(stream, delay, &tasks)) };
    let wire = FaultyStream::new(stream, faults.drop_after_bytes, cut.clone());
    let Ok(session) = russh::server::run_stream(Arc::clone(&host.config), wire, handler).await else { return };
    tokio::pin!(session);
    tokio::select! {
        ended = &mut session => return log_session_end(ended, &cut),
        () = sleep_or_forever(faults.drop_after_seconds) => cut.cancel(),
    }
    log_session_end(session.await, &cut);
}

/// Nothing is said of a connection that was cut on purpose.
fn log_session_end(ended: Result<(), russh::Error>, cut: &CancellationToken) {
    if let (Err(error), false) = (ended, cut.is_cancelled()) {
        tracing::debug!(%error, "a sandbox connection ended");
    }
}

async fn sleep_seconds(seconds: f64) {
    if seconds > 0.0 {
        tokio::time::sleep(Duration::try_from_secs_f64(seconds).unwrap_or(Duration::MAX)).await;
    }
}

async fn sleep_or_forever(seconds: Option<f64>) {
    match seconds {
        Some(seconds) => sleep_seconds(seconds).await,
        None => std::future::pending().await,
    }
}

/// A session channel from its opening to its close.
struct SessionChannel {
    channel: Option<Channel<Msg>>,
    environment: Vec<(String, String)>,
    closed: CancellationToken,
    session_leader: Arc<Mutex<Option<Pid>>>,
    /// The terminal that was asked for, until the command starts.
    pty: Option<Pty>,
    /// Sets the terminal's size.
    resizer: Option<PtyResizer>,
}

struct ServerConnection {
    server: Arc<FakeSshServer>,
    ssh_connection: String,
    tasks: TaskTracker,
    drop_token: CancellationToken,
    channels: HashMap<ChannelId, SessionChannel>,
    connection_closed: CancellationToken,
    _closed_guard: DropGuard,
}

impl ServerConnection {
    async fn auth_result(&self, right: bool) -> Auth {
        let faults = self.server.host.faults();
        sleep_seconds(faults.auth_delay).await;
        if right && !faults.refuse_key { Auth::Accept } else { Auth::reject() }
    }

    fn start_command(&mut self, id: ChannelId, text: String, session: &mut Session) -> Result<(), russh::Error> {
        let Some((slot, channel)) = self.channels.get_mut(&id).and_then(|slot| slot.channel.take().map(|channel| (slot, channel))) else {
            return session.channel_failure(id);
        };
        session.channel_success(id)?;
        let faults = self.server.host.faults();
        let run = ExecSession {
            server: Arc::clone(&self.server),
            hold: self.server.take_matching_hold(&faults),
            faults,
            command_text: text,
            environment: std::mem::take(&mut slot.environment),
            handle: session.handle(),
            closed: slot.closed.clone(),
            drop_token: self.drop_token.clone(),
            session_leader: Arc::clone(&slot.session_leader),
            pty: slot.pty.take(),
        };
        self.tasks.spawn(run.run(channel));
        Ok(())
    }
}

impl Handler for ServerConnection {
    type Error = russh::Error;

    async fn auth_publickey_offered(&mut self, user: &str, offer: PublicKeyOffer<'_>) -> Result<Auth, Self::Error> {
        let right = user == self.server.login.user && offer.public_key.key_data() == self.server.login.client_key.key_data();
        Ok(self.auth_result(right).await)
    }

    async fn auth_publickey(&mut self, user: &str, key: VerifiedPublicKey<'_>) -> Result<Auth, Self::Error> {
        let right = user == self.server.login.user && key.public_key.key_data() == self.server.login.client_key.key_data();
        Ok(self.auth_result(right).await)
    }

    async fn auth_password(&mut self, user: &str, password: &str) -> Result<Auth, Self::Error> {
        let right = user == self.server.login.user && self.server.login.password.as_deref() == Some(password);
        Ok(self.auth_result(right).await)
    }

    async fn channel_open_session(&mut self, channel: Channel<Msg>, reply: ChannelOpenHandle, _: &mut Session) -> Result<(), Self::Error> {
        self.channels.retain(|_, slot| !slot.closed.is_cancelled());
        if self.channels.len() >= self.server.host.faults().max_sessions.unwrap_or(MAX_SESSIONS) {
            reply.reject(ChannelOpenFailure::ConnectFailed).await;
            return Ok(());
        }
        reply.accept().await;
        let id = channel.id();
        let slot = SessionChannel {
            channel: Some(channel),
            environment: vec![("SSH_CONNECTION".to_owned(), self.ssh_connection.clone())],
            closed: self.connection_closed.child_token(),
            session_leader: Arc::default(),
            pty: None,
            resizer: None,
        };
        self.channels.insert(id, slot);
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
        if let (true, Ok(port)) = (loopback, u16::try_from(port)) {
            self.tasks.spawn(forward_tcp(channel, host.to_owned(), port, reply, self.connection_closed.clone()));
        } else {
            reply.reject(ChannelOpenFailure::ConnectFailed).await;
        }
        Ok(())
    }

    async fn channel_close(&mut self, id: ChannelId, _: &mut Session) -> Result<(), Self::Error> {
        if let Some(slot) = self.channels.remove(&id) {
            slot.closed.cancel();
        }
        Ok(())
    }

    async fn env_request(&mut self, id: ChannelId, name: &str, value: &str, session: &mut Session) -> Result<(), Self::Error> {
        match self.channels.get_mut(&id) {
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
        term: &str,
        columns: u32,
        rows: u32,
        _: u32,
        _: u32,
        _: &[(russh::Pty, u32)],
        session: &mut Session,
    ) -> Result<(), Self::Error> {
        let opened =
            if self.server.host.faults().no_terminal { Err(io::ErrorKind::Unsupported.into()) } else { Pty::open(term, columns, rows) };
        match (self.channels.get_mut(&id), opened) {
            (Some(slot), Ok(pty)) => {
                slot.resizer = Some(pty.resizer());
                slot.pty = Some(pty);
                session.channel_success(id)
            }
            _ => session.channel_failure(id),
        }
    }

    async fn window_change_request(
        &mut self,
        id: ChannelId,
        columns: u32,
        rows: u32,
        _: u32,
        _: u32,
        _: &mut Session,
    ) -> Result<(), Self::Error> {
        if let Some(size) = self.channels.get(&id).and_then(|slot| slot.resizer.as_ref()) {
            size.resize(columns, rows);
        }
        Ok(())
    }

    async fn subsystem_request(&mut self, id: ChannelId, _: &str, session: &mut Session) -> Result<(), Self::Error> {
        session.channel_failure(id)
    }

    async fn shell_request(&mut self, id: ChannelId, session: &mut Session) -> Result<(), Self::Error> {
        self.start_command(id, "exec /bin/sh".to_owned(), session)
    }

    async fn exec_request(&mut self, id: ChannelId, text: &[u8], session: &mut Session) -> Result<(), Self::Error> {
        self.start_command(id, String::from_utf8_lossy(text).into_owned(), session)
    }

    async fn signal(&mut self, id: ChannelId, signal: Sig, _: &mut Session) -> Result<(), Self::Error> {
        let leader = self.channels.get(&id).and_then(|slot| *slot.session_leader.lock().unwrap_or_else(std::sync::PoisonError::into_inner));
        if let (Some(leader), Some(signal)) = (leader, signal_from_ssh(&signal)) {
            processes::send_group_signal(leader.as_raw_pid(), signal);
        }
        Ok(())
    }
}

async fn forward_tcp(channel: Channel<Msg>, host: String, port: u16, reply: ChannelOpenHandle, gone: CancellationToken) {
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
