//! The only way to a host: connect once, run scripts, follow a stream. The engine knows [`Remote`]; `remote/ssh` is the real one.
//!
//! Uses `shell` and `inventory`. Owns sockets, key files and known_hosts. Knows nothing of plans, ranks or containers.

mod algorithms;
mod certificate;
pub mod explain;
mod hop;
mod hop_request;
pub(crate) mod inflow;
mod known_hosts;
mod krl;
mod learn;
mod login;
mod lookup;
mod names;
mod presented_key;
mod process;
mod resolve;
pub mod settings;
pub mod ssh;
mod ssh_config;
mod trust;
mod way;

use std::sync::Arc;
use std::time::Duration;

use bytes::Bytes;
use futures_util::future::BoxFuture;
use tokio::sync::{mpsc, oneshot};

pub use self::explain::{HopSettings, Setting};
pub use self::inflow::Inflow;
pub use self::settings::{Prompt, Settings, Variables};
pub use self::ssh::SshFleet;
use crate::shell::{Command, Output};

/// A connected host. Every call has a deadline; a lost connection is an error of every call under way.
pub trait Remote: Send + Sync {
    /// Runs a script to its end. At most the command's timeout.
    fn exec<'a>(&'a self, command: &'a Command) -> BoxFuture<'a, Result<Output, RemoteError>>;

    /// Like [`Remote::exec`], in a session that is kept free for stopping: it does not wait behind other commands.
    fn urgent<'a>(&'a self, command: &'a Command) -> BoxFuture<'a, Result<Output, RemoteError>> {
        self.exec(command)
    }

    /// Like [`Remote::exec`], but what the script writes is handed over as it comes; gives its exit status. A receiver that takes its time
    /// makes the host wait, and all that share its connection: meant for one host alone. One that is gone ends the script.
    fn relay<'a>(&'a self, command: &'a Command, pieces: mpsc::Sender<Piece>) -> BoxFuture<'a, Result<i32, RemoteError>>;

    /// Starts a script that talks for long (`Frame::wrap_stream`); its begin mark must come within the command's timeout.
    fn stream<'a>(&'a self, command: &'a Command) -> BoxFuture<'a, Result<Stream, RemoteError>>;

    /// Starts a script that a person talks with: in a terminal where one is given, else with pipes. It must start within the command's timeout;
    /// its end, and what it writes, are waited for without a limit. The receiver may take its time and then makes the host wait, and all that
    /// share its connection: meant for a connection of its own.
    fn talk<'a>(&'a self, command: &'a Command, terminal: Option<Terminal>) -> BoxFuture<'a, Result<Talk, RemoteError>>;

    /// Asks the host's sshd to open a TCP connection to `address:port`.
    fn reach<'a>(&'a self, address: &'a str, port: u16, within: Duration) -> BoxFuture<'a, Result<Reached, RemoteError>>;

    /// Whether the connection is known to be dead.
    fn is_closed(&self) -> bool;

    /// Says goodbye; at most 2 s.
    fn close(&self) -> BoxFuture<'_, ()>;
}

/// What a person's terminal is.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct Terminal {
    /// `$TERM`.
    pub term: String,
    /// Its size.
    pub columns: u16,
    /// Its size.
    pub rows: u16,
}

/// A program that a person talks with. Dropping it closes its channel: in a terminal, the program is told that it hung up.
pub struct Talk {
    /// What it writes. Bounded.
    pub output: mpsc::Receiver<Piece>,
    /// What it is told; a send fails once it is over.
    pub input: mpsc::Sender<Told>,
    /// How it ended, once all of its output was taken.
    pub end: oneshot::Receiver<Result<i32, RemoteError>>,
}

/// What a program is told that a person talks with.
#[derive(Debug, Clone, PartialEq, Eq)]
pub enum Told {
    /// Typed, or piped in.
    Bytes(Bytes),
    /// The terminal has this many columns and rows now.
    Size(u16, u16),
    /// Nothing more is typed.
    End,
}

/// A part of what a script writes.
#[derive(Debug)]
pub enum Piece {
    /// To standard output.
    Out(Bytes),
    /// To standard error, login noise included.
    Err(Bytes),
}

impl Piece {
    /// Whether there is nothing in it.
    pub fn is_empty(&self) -> bool {
        let (Piece::Out(bytes) | Piece::Err(bytes)) = self;
        bytes.is_empty()
    }
}

/// What a host's sshd found when it tried a TCP connection.
#[derive(Debug, Clone, PartialEq, Eq)]
pub enum Reached {
    /// It was opened.
    Open,
    /// The other end refused it: nothing listens, and the path is open.
    Refused,
    /// It did not come about, and why: the path is closed.
    Blocked(String),
    /// It cannot be told, and why: sshd forwards nothing, or gives no reason.
    Untold(String),
}

/// A running stream. Dropping it closes its channel.
pub struct Stream {
    /// What it writes after the begin mark. Ends with `None` after the last byte, or after an error was sent. The reader behind it never
    /// waits: it holds at most [`Command::limit`] bytes, and a host that sends more than that unread is cut off. A caller that takes its time
    /// bounds what comes by acknowledgements (`plan/follow`).
    pub output: Inflow<RemoteError>,
    /// What it reads. Bounded; a send fails once the stream is over.
    pub input: mpsc::Sender<Bytes>,
}

/// Opens connections: the engine's factory, so that a lost host can be connected again.
pub trait Connect: Send + Sync {
    /// For how long a host of a run is tried again after an error that no retry mends.
    fn give_up(&self, host: usize) -> Duration;

    /// Connects to host number `host` of the inventory.
    fn connect(&self, host: usize) -> BoxFuture<'_, Result<Arc<dyn Remote>, RemoteError>>;
}

/// Why a host did not do what was asked.
#[derive(Debug, Clone, thiserror::Error)]
pub enum RemoteError {
    /// The host could not be reached, or the connection was lost.
    #[error("{what}")]
    Lost {
        /// What happened, with the hop.
        what: String,
        /// What to do next; may be empty.
        hint: String,
        /// Whether trying again can help (never after a refusal).
        retry: bool,
    },
    /// The host refused us: host key, authentication.
    #[error("{what}")]
    Refused {
        /// What was refused, with file and line where there is one.
        what: String,
        /// The command that mends it; may be empty.
        hint: String,
    },
    /// No answer within the deadline.
    #[error("no answer to `{title}` within {after:?}")]
    Timeout {
        /// The command's title.
        title: String,
        /// The deadline.
        after: Duration,
    },
    /// The host does not keep to the protocol: it is cut off.
    #[error("{what}")]
    Protocol {
        /// What it did.
        what: String,
    },
    /// It ended without an end mark: the outcome is not known.
    #[error("`{title}` was cut off: {what}")]
    CutOff {
        /// The command's title.
        title: String,
        /// What is known.
        what: String,
    },
    /// The laptop's settings are wrong (ssh_config, key file): no host was asked.
    #[error("{what}")]
    Settings {
        /// What is wrong, with file and line.
        what: String,
        /// What to do next.
        hint: String,
    },
}

impl RemoteError {
    /// What to do next; may be empty.
    pub fn hint(&self) -> &str {
        match self {
            RemoteError::Lost { hint, .. } | RemoteError::Refused { hint, .. } | RemoteError::Settings { hint, .. } => hint,
            RemoteError::Protocol { .. } => "is what runs there the host's own sshd and /bin/sh? It sent what no script of ours sends",
            RemoteError::Timeout { .. } | RemoteError::CutOff { .. } => "",
        }
    }

    /// Whether the connection may be tried again.
    pub fn may_retry(&self) -> bool {
        match self {
            RemoteError::Lost { retry, .. } => *retry,
            RemoteError::Timeout { .. } | RemoteError::CutOff { .. } => true,
            RemoteError::Refused { .. } | RemoteError::Settings { .. } | RemoteError::Protocol { .. } => false,
        }
    }
}
