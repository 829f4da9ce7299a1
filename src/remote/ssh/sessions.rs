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

use super::link::Link;
use crate::remote::RemoteError;

/// The most connections to one host: what a run needs at once, and some for talks.
const CONNECTIONS: usize = 12;
/// For so long sshd may still count a session that has ended.
const SETTLE: Duration = Duration::from_secs(1);
/// Before a session is asked for again that sshd may only have refused because of one that has just ended.
const AGAIN: Duration = Duration::from_millis(30);
/// How long even the first session of a connection may be refused.
const NONE: Duration = Duration::from_secs(5);

/// Makes a further connection to the same host.
pub(super) type Further = Arc<dyn Fn() -> BoxFuture<'static, Result<Arc<Link>, RemoteError>> + Send + Sync>;

/// A connection and how many of its sessions are in use.
struct Line {
    link: Arc<Link>,
    used: usize,
    freed: Option<Instant>,
}

struct Lines {
    /// The first is the host's: when it is gone, the host is.
    all: Vec<Line>,
    /// How many sessions its sshd opens on one connection, as far as it has shown.
    most: usize,
}

/// All sessions of a host.
pub(super) struct Sessions {
    first: Arc<Link>,
    lines: Mutex<Lines>,
    further: Further,
    /// One connection is made at a time.
    growing: tokio::sync::Mutex<()>,
}

/// A session's place; it is free again when this is dropped.
pub(super) struct SessionPlace {
    pub(super) link: Arc<Link>,
    sessions: Arc<Sessions>,
    /// Whether there was a session, whose end sshd may notice a little later.
    open: bool,
}

impl Drop for SessionPlace {
    fn drop(&mut self) {
        self.sessions.leave(&self.link, self.open.then(Instant::now));
    }
}

impl Sessions {
    pub(super) fn new(first: Arc<Link>, further: Further) -> Arc<Sessions> {
        let line = Line { link: first.clone(), used: 0, freed: None };
        let lines = Mutex::new(Lines { all: vec![line], most: usize::MAX });
        Arc::new(Sessions { first, lines, further, growing: tokio::sync::Mutex::default() })
    }

    fn lines(&self) -> MutexGuard<'_, Lines> {
        self.lines.lock().unwrap_or_else(PoisonError::into_inner)
    }

    /// Opens a session, for `title`. One that is not confirmed in time may be later, and nobody would close it: its connection goes.
    pub(super) async fn open(self: &Arc<Self>, title: &str, deadline: Instant) -> Result<(Channel<Msg>, SessionPlace), RemoteError> {
        let began = Instant::now();
        let late = || RemoteError::Timeout { title: title.to_owned(), after: deadline - began };
        loop {
            let Some(mut seat) = self.take() else {
                match self.first.dead.run_until_cancelled(tokio::time::timeout_at(deadline, self.grow(title))).await {
                    None => return Err(self.first.lost()),
                    Some(Err(_)) => return Err(late()),
                    Some(Ok(grown)) => grown?,
                }
                continue;
            };
            let link = seat.link.clone();
            let opening = tokio::time::timeout_at(deadline, link.open_session());
            match link.dead.run_until_cancelled(opening).await {
                Some(Ok(Ok(channel))) => {
                    seat.open = true;
                    return Ok((channel, seat));
                }
                Some(Ok(Err(russh::Error::ChannelOpenFailure(_)))) => self.refused(seat, title, began).await?,
                None | Some(Ok(Err(_))) => return Err(link.lost()),
                Some(Err(_)) => {
                    link.left().why.get_or_init(|| format!("no session was opened for `{title}` in time"));
                    link.cut().cancel();
                    return Err(late());
                }
            }
        }
    }

    /// A place on a connection that may have one.
    fn take(self: &Arc<Self>) -> Option<SessionPlace> {
        let mut lines = self.lines();
        lines.all.retain(|line| Arc::ptr_eq(&line.link, &self.first) || !line.link.is_dead());
        let most = lines.most;
        let line = lines.all.iter_mut().find(|line| line.used < most)?;
        line.used += 1;
        Some(SessionPlace { link: line.link.clone(), sessions: self.clone(), open: false })
    }

    fn leave(&self, link: &Arc<Link>, freed: Option<Instant>) {
        if let Some(line) = self.lines().all.iter_mut().find(|line| Arc::ptr_eq(&line.link, link)) {
            line.used = line.used.saturating_sub(1);
            line.freed = freed.or(line.freed);
        }
    }

    /// Learns from a refusal how many sessions there can be; where one has just ended, it is asked for again.
    async fn refused(&self, seat: SessionPlace, title: &str, began: Instant) -> Result<(), RemoteError> {
        let ended = {
            let mut lines = self.lines();
            let Some(line) = lines.all.iter_mut().find(|line| Arc::ptr_eq(&line.link, &seat.link)) else { return Ok(()) };
            let (others, ended) = (line.used.saturating_sub(1), line.freed.is_some_and(|when| when.elapsed() < SETTLE));
            if others > 0 && !ended {
                tracing::debug!(host = %self.first.name, sessions = others, "sshd opens no more sessions on one connection");
                lines.most = lines.most.min(others);
            }
            if others == 0 && began.elapsed() > NONE {
                return Err(RemoteError::Refused {
                    what: format!("sshd opens no session for `{title}`"),
                    hint: "sshd_config needs MaxSessions of at least 1 (10 is the default)".to_owned(),
                });
            }
            others == 0 || ended
        };
        drop(seat);
        if ended {
            tokio::time::sleep(AGAIN).await;
        }
        Ok(())
    }

    /// Makes another connection, unless there is room meanwhile.
    async fn grow(self: &Arc<Self>, title: &str) -> Result<(), RemoteError> {
        let _turn = self.growing.lock().await;
        let count = {
            let lines = self.lines();
            if lines.all.iter().any(|line| line.used < lines.most) {
                return Ok(());
            }
            lines.all.len()
        };
        if count >= CONNECTIONS {
            return Err(RemoteError::Refused {
                what: format!("sshd opens no further session for `{title}` on {count} connections"),
                hint: "sshd_config needs MaxSessions of at least 6 (10 is the default)".to_owned(),
            });
        }
        tracing::debug!(host = %self.first.name, count, "a further connection, for sessions");
        let link = (self.further)().await?;
        self.lines().all.push(Line { link, used: 0, freed: None });
        Ok(())
    }

    /// Says goodbye on every connection.
    pub(super) async fn goodbye(&self) {
        let links: Vec<Arc<Link>> = self.lines().all.iter().map(|line| line.link.clone()).collect();
        if links.len() > 1 {
            self.first.settle().await;
        }
        join_all(links.iter().map(|link| link.goodbye())).await;
    }
}
