//! The sessions of one host over as many connections as needed: if its sshd refuses another session on one (MaxSessions), another
//! connection is opened, down to one session each.

use std::sync::{Arc, Mutex, MutexGuard, PoisonError};
use std::time::Duration;

use futures_util::future::{BoxFuture, join_all};
use russh::Channel;
use russh::client::Msg;
use tokio::time::Instant;

use super::connection::SshConnection;
use crate::remote::RemoteError;

/// Maximum connections to one host: for the sessions of a run, and some for interactive ones.
pub(super) const MAX_CONNECTIONS: usize = 12;
/// How long sshd may still count a session that has ended.
const SESSION_END_GRACE: Duration = Duration::from_secs(1);
/// Delay before a retry if sshd may have counted a session that has just ended.
const REOPEN_DELAY: Duration = Duration::from_millis(30);
/// How long the first session of a connection may be refused.
const FIRST_SESSION_TIMEOUT: Duration = Duration::from_secs(5);

/// Opens another connection to the same host.
pub(super) type ConnectionFactory = Arc<dyn Fn() -> BoxFuture<'static, Result<Arc<SshConnection>, RemoteError>> + Send + Sync>;

/// A connection and its sessions in use.
struct PooledConnection {
    connection: Arc<SshConnection>,
    sessions_in_use: usize,
    last_freed: Option<Instant>,
}

struct ConnectionList {
    /// The first connection is the host's: if it is lost, the host is.
    all: Vec<PooledConnection>,
    /// Session limit of sshd per connection, as far as known.
    max_sessions: usize,
}

/// All sessions of a host.
pub(super) struct SessionPool {
    primary: Arc<SshConnection>,
    connections: Mutex<ConnectionList>,
    connect: ConnectionFactory,
    max_connections: usize,
    /// One connection is opened at a time.
    connect_lock: tokio::sync::Mutex<()>,
}

/// A session slot; dropping it frees the slot.
pub(super) struct SessionSlot {
    pub(super) connection: Arc<SshConnection>,
    sessions: Arc<SessionPool>,
    /// Whether a session was opened, whose end sshd may notice a little later.
    was_opened: bool,
}

impl Drop for SessionSlot {
    fn drop(&mut self) {
        self.sessions.release_slot(&self.connection, self.was_opened.then(Instant::now));
    }
}

impl SessionPool {
    pub(super) fn new(primary: Arc<SshConnection>, connect: ConnectionFactory, max_connections: usize) -> Arc<SessionPool> {
        let pooled = PooledConnection { connection: primary.clone(), sessions_in_use: 0, last_freed: None };
        let list = Mutex::new(ConnectionList { all: vec![pooled], max_sessions: usize::MAX });
        Arc::new(SessionPool { primary, connections: list, connect, max_connections, connect_lock: tokio::sync::Mutex::default() })
    }

    /// The first connection.
    pub(super) fn primary(&self) -> &Arc<SshConnection> {
        &self.primary
    }

    fn connections(&self) -> MutexGuard<'_, ConnectionList> {
        self.connections.lock().unwrap_or_else(PoisonError::into_inner)
    }

    /// Opens a session for `title`. If it is not confirmed in time, its connection is closed: a late session would stay open.
    pub(super) async fn open(self: &Arc<Self>, title: &str, deadline: Instant) -> Result<(Channel<Msg>, SessionSlot), RemoteError> {
        let began = Instant::now();
        let late = || RemoteError::Timeout { title: title.to_owned(), after: deadline - began };
        loop {
            let Some(mut slot) = self.take_slot() else {
                match self.primary.closed.run_until_cancelled(tokio::time::timeout_at(deadline, self.add_connection(title))).await {
                    None => return Err(self.primary.lost_error()),
                    Some(Err(_)) => return Err(late()),
                    Some(Ok(grown)) => grown?,
                }
                continue;
            };
            let opening = tokio::time::timeout_at(deadline, slot.connection.open_session());
            match slot.connection.closed.run_until_cancelled(opening).await {
                Some(Ok(Ok(channel))) => {
                    slot.was_opened = true;
                    return Ok((channel, slot));
                }
                Some(Ok(Err(russh::Error::ChannelOpenFailure(_)))) => self.handle_refusal(slot, title, began).await?,
                None | Some(Ok(Err(_))) => return Err(slot.connection.lost_error()),
                Some(Err(_)) => {
                    slot.connection.cut(format!("opening a session for `{title}` timed out"));
                    return Err(late());
                }
            }
        }
    }

    /// A slot on a connection with room.
    fn take_slot(self: &Arc<Self>) -> Option<SessionSlot> {
        let mut list = self.connections();
        list.all.retain(|pooled| Arc::ptr_eq(&pooled.connection, &self.primary) || !pooled.connection.is_closed());
        let most = list.max_sessions;
        let pooled = list.all.iter_mut().find(|pooled| pooled.sessions_in_use < most)?;
        pooled.sessions_in_use += 1;
        Some(SessionSlot { connection: pooled.connection.clone(), sessions: self.clone(), was_opened: false })
    }

    fn release_slot(&self, connection: &Arc<SshConnection>, freed: Option<Instant>) {
        if let Some(pooled) = self.connections().all.iter_mut().find(|pooled| Arc::ptr_eq(&pooled.connection, connection)) {
            pooled.sessions_in_use = pooled.sessions_in_use.saturating_sub(1);
            pooled.last_freed = freed.or(pooled.last_freed);
        }
    }

    /// Learns the session limit from a refusal; retries if a session has just ended.
    async fn handle_refusal(&self, slot: SessionSlot, title: &str, started: Instant) -> Result<(), RemoteError> {
        let ended = {
            let mut list = self.connections();
            let Some(pooled) = list.all.iter_mut().find(|pooled| Arc::ptr_eq(&pooled.connection, &slot.connection)) else { return Ok(()) };
            let (others, ended) =
                (pooled.sessions_in_use.saturating_sub(1), pooled.last_freed.is_some_and(|when| when.elapsed() < SESSION_END_GRACE));
            if others > 0 && !ended {
                tracing::debug!(host = %self.primary.name, sessions = others, "sshd opens no more sessions on one connection");
                list.max_sessions = list.max_sessions.min(others);
            }
            if others == 0 && started.elapsed() > FIRST_SESSION_TIMEOUT {
                return Err(RemoteError::refused(
                    format!("sshd refused to open a session for `{title}`"),
                    "set MaxSessions to at least 1 in sshd_config (default: 10)",
                ));
            }
            others == 0 || ended
        };
        drop(slot);
        if ended {
            tokio::time::sleep(REOPEN_DELAY).await;
        }
        Ok(())
    }

    /// Opens another connection, unless a slot became free.
    async fn add_connection(self: &Arc<Self>, title: &str) -> Result<(), RemoteError> {
        let _lock = self.connect_lock.lock().await;
        let count = {
            let list = self.connections();
            if list.all.iter().any(|pooled| pooled.sessions_in_use < list.max_sessions) {
                return Ok(());
            }
            list.all.len()
        };
        if count >= self.max_connections {
            return Err(RemoteError::refused(
                format!("sshd refused to open another session for `{title}` on {count} connections"),
                "set MaxSessions to at least 6 in sshd_config (default: 10)",
            ));
        }
        tracing::debug!(host = %self.primary.name, count, "another connection, for more sessions");
        let connection = (self.connect)().await?;
        self.connections().all.push(PooledConnection { connection, sessions_in_use: 0, last_freed: None });
        Ok(())
    }

    /// Closes every connection.
    pub(super) async fn disconnect(&self) {
        let connections: Vec<Arc<SshConnection>> = self.connections().all.iter().map(|pooled| pooled.connection.clone()).collect();
        if connections.len() > 1 {
            self.primary.wait_for_tasks().await;
        }
        join_all(connections.iter().map(|connection| connection.disconnect())).await;
    }
}
