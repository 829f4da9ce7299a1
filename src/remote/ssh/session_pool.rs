//! The sessions of one host, over as many connections as it takes: where its sshd opens no further session on one (MaxSessions), another
//! connection serves, down to one session each.
//!
//! Uses `link`. Knows nothing of what runs in a session.

use std::sync::{Arc, Mutex, MutexGuard, PoisonError};
use std::time::Duration;

use futures_util::future::{BoxFuture, join_all};
use russh::Channel;
use russh::client::Msg;
use tokio::time::Instant;

use super::connection::SshConnection;
use crate::remote::RemoteError;

/// The most connections to one host: what a run needs at once, and some for talks.
const MAX_CONNECTIONS: usize = 12;
/// For so long sshd may still count a session that has ended.
const SESSION_END_GRACE: Duration = Duration::from_secs(1);
/// Before a session is asked for again that sshd may only have refused because of one that has just ended.
const REOPEN_DELAY: Duration = Duration::from_millis(30);
/// How long even the first session of a connection may be refused.
const FIRST_SESSION_TIMEOUT: Duration = Duration::from_secs(5);

/// Makes a further connection to the same host.
pub(super) type ConnectionFactory = Arc<dyn Fn() -> BoxFuture<'static, Result<Arc<SshConnection>, RemoteError>> + Send + Sync>;

/// A connection and how many of its sessions are in use.
struct PooledConnection {
    connection: Arc<SshConnection>,
    sessions_in_use: usize,
    last_freed: Option<Instant>,
}

struct ConnectionList {
    /// The first is the host's: when it is gone, the host is.
    all: Vec<PooledConnection>,
    /// How many sessions its sshd opens on one connection, as far as it has shown.
    max_sessions: usize,
}

/// All sessions of a host.
pub(super) struct SessionPool {
    primary: Arc<SshConnection>,
    connections: Mutex<ConnectionList>,
    connect: ConnectionFactory,
    /// One connection is made at a time.
    connect_lock: tokio::sync::Mutex<()>,
}

/// A session's place; it is free again when this is dropped.
pub(super) struct SessionSlot {
    pub(super) connection: Arc<SshConnection>,
    sessions: Arc<SessionPool>,
    /// Whether there was a session, whose end sshd may notice a little later.
    was_opened: bool,
}

impl Drop for SessionSlot {
    fn drop(&mut self) {
        self.sessions.release_slot(&self.connection, self.was_opened.then(Instant::now));
    }
}

impl SessionPool {
    pub(super) fn new(primary: Arc<SshConnection>, connect: ConnectionFactory) -> Arc<SessionPool> {
        let line = PooledConnection { connection: primary.clone(), sessions_in_use: 0, last_freed: None };
        let lines = Mutex::new(ConnectionList { all: vec![line], max_sessions: usize::MAX });
        Arc::new(SessionPool { primary, connections: lines, connect, connect_lock: tokio::sync::Mutex::default() })
    }

    fn connections(&self) -> MutexGuard<'_, ConnectionList> {
        self.connections.lock().unwrap_or_else(PoisonError::into_inner)
    }

    /// Opens a session, for `title`. One that is not confirmed in time may be later, and nobody would close it: its connection goes.
    pub(super) async fn open(self: &Arc<Self>, title: &str, deadline: Instant) -> Result<(Channel<Msg>, SessionSlot), RemoteError> {
        let began = Instant::now();
        let late = || RemoteError::Timeout { title: title.to_owned(), after: deadline - began };
        loop {
            let Some(mut seat) = self.take_slot() else {
                match self.primary.closed.run_until_cancelled(tokio::time::timeout_at(deadline, self.add_connection(title))).await {
                    None => return Err(self.primary.lost_error()),
                    Some(Err(_)) => return Err(late()),
                    Some(Ok(grown)) => grown?,
                }
                continue;
            };
            let link = seat.connection.clone();
            let opening = tokio::time::timeout_at(deadline, link.open_session());
            match link.closed.run_until_cancelled(opening).await {
                Some(Ok(Ok(channel))) => {
                    seat.was_opened = true;
                    return Ok((channel, seat));
                }
                Some(Ok(Err(russh::Error::ChannelOpenFailure(_)))) => self.handle_refusal(seat, title, began).await?,
                None | Some(Ok(Err(_))) => return Err(link.lost_error()),
                Some(Err(_)) => {
                    link.disconnect_info().reason.get_or_init(|| format!("opening a session for `{title}` timed out"));
                    link.abort_token().cancel();
                    return Err(late());
                }
            }
        }
    }

    /// A place on a connection that may have one.
    fn take_slot(self: &Arc<Self>) -> Option<SessionSlot> {
        let mut lines = self.connections();
        lines.all.retain(|line| Arc::ptr_eq(&line.connection, &self.primary) || !line.connection.is_closed());
        let most = lines.max_sessions;
        let line = lines.all.iter_mut().find(|line| line.sessions_in_use < most)?;
        line.sessions_in_use += 1;
        Some(SessionSlot { connection: line.connection.clone(), sessions: self.clone(), was_opened: false })
    }

    fn release_slot(&self, connection: &Arc<SshConnection>, freed: Option<Instant>) {
        if let Some(line) = self.connections().all.iter_mut().find(|line| Arc::ptr_eq(&line.connection, connection)) {
            line.sessions_in_use = line.sessions_in_use.saturating_sub(1);
            line.last_freed = freed.or(line.last_freed);
        }
    }

    /// Learns from a refusal how many sessions there can be; where one has just ended, it is asked for again.
    async fn handle_refusal(&self, slot: SessionSlot, title: &str, started: Instant) -> Result<(), RemoteError> {
        let ended = {
            let mut lines = self.connections();
            let Some(line) = lines.all.iter_mut().find(|line| Arc::ptr_eq(&line.connection, &slot.connection)) else { return Ok(()) };
            let (others, ended) =
                (line.sessions_in_use.saturating_sub(1), line.last_freed.is_some_and(|when| when.elapsed() < SESSION_END_GRACE));
            if others > 0 && !ended {
                tracing::debug!(host = %self.primary.name, sessions = others, "sshd opens no more sessions on one connection");
                lines.max_sessions = lines.max_sessions.min(others);
            }
            if others == 0 && started.elapsed() > FIRST_SESSION_TIMEOUT {
                return Err(RemoteError::Refused {
                    what: format!("sshd refused to open a session for `{title}`"),
                    hint: "set MaxSessions to at least 1 in sshd_config (default: 10)".to_owned(),
                });
            }
            others == 0 || ended
        };
        drop(slot);
        if ended {
            tokio::time::sleep(REOPEN_DELAY).await;
        }
        Ok(())
    }

    /// Makes another connection, unless there is room meanwhile.
    async fn add_connection(self: &Arc<Self>, title: &str) -> Result<(), RemoteError> {
        let _turn = self.connect_lock.lock().await;
        let count = {
            let lines = self.connections();
            if lines.all.iter().any(|line| line.sessions_in_use < lines.max_sessions) {
                return Ok(());
            }
            lines.all.len()
        };
        if count >= MAX_CONNECTIONS {
            return Err(RemoteError::Refused {
                what: format!("sshd refused to open another session for `{title}` on {count} connections"),
                hint: "set MaxSessions to at least 6 in sshd_config (default: 10)".to_owned(),
            });
        }
        tracing::debug!(host = %self.primary.name, count, "another connection, for more sessions");
        let link = (self.connect)().await?;
        self.connections().all.push(PooledConnection { connection: link, sessions_in_use: 0, last_freed: None });
        Ok(())
    }

    /// Says goodbye on every connection.
    pub(super) async fn disconnect(&self) {
        let links: Vec<Arc<SshConnection>> = self.connections().all.iter().map(|line| line.connection.clone()).collect();
        if links.len() > 1 {
            self.primary.wait_for_tasks().await;
        }
        join_all(links.iter().map(|link| link.disconnect())).await;
    }
}
