//! The only way to a host: connect once, run scripts, follow a stream. The engine knows [`Remote`]; `remote/ssh` is the real one.
//!
//! Uses `shell` and `inventory`. Owns sockets, key files and known_hosts. Knows nothing of plans, ranks or containers.

mod algorithms;
mod auth_options;
pub(crate) mod byte_channel;
mod connection_options;
mod hop;
pub(crate) mod hop_report;
mod hop_target;
mod host_certificate;
mod host_key;
mod known_hosts_append;
mod known_hosts_command;
mod krl;
mod name_validation;
mod presented_key;
mod process;
mod route_resolver;
pub(crate) mod ssh;
pub(super) mod ssh_g;
pub(crate) mod ssh_settings;

use std::sync::Arc;
use std::time::Duration;

use bytes::Bytes;
use futures_util::future::BoxFuture;
use tokio::sync::{mpsc, oneshot};

pub(crate) use self::byte_channel::ByteReceiver;
pub(crate) use self::hop_report::{HopReport, HopSetting};
pub use self::ssh::SshFleet;
pub use self::ssh_settings::{SshSettings, UserPrompt};
use crate::model::remote_command::{CommandOutput, RemoteCommand};
use crate::model::tcp_reachability::TcpReachability;

/// A connected host. Every call has a deadline; a lost connection is an error of every call under way.
pub trait Remote: Send + Sync {
    /// Runs a script to its end. At most the command's timeout.
    fn exec<'a>(&'a self, command: &'a RemoteCommand) -> BoxFuture<'a, Result<CommandOutput, RemoteError>>;

    /// Like [`Remote::exec`], in a session that is kept free for stopping: it does not wait behind other commands.
    fn exec_priority<'a>(&'a self, command: &'a RemoteCommand) -> BoxFuture<'a, Result<CommandOutput, RemoteError>> {
        self.exec(command)
    }

    /// Like [`Remote::exec`], but what the script writes is handed over as it comes; gives its exit status. A receiver that takes its time
    /// makes the host wait, and all that share its connection: meant for one host alone. One that is gone ends the script.
    fn exec_streaming<'a>(
        &'a self,
        command: &'a RemoteCommand,
        chunks: mpsc::Sender<OutputChunk>,
    ) -> BoxFuture<'a, Result<i32, RemoteError>>;

    /// Starts a script that talks for long (`Frame::wrap_stream`); its begin mark must come within the command's timeout.
    fn open_stream<'a>(&'a self, command: &'a RemoteCommand) -> BoxFuture<'a, Result<RemoteStream, RemoteError>>;

    /// Starts a script that a person talks with: in a terminal where one is given, else with pipes. It must start within the command's timeout;
    /// its end, and what it writes, are waited for without a limit. The receiver may take its time and then makes the host wait, and all that
    /// share its connection: meant for a connection of its own.
    fn open_interactive<'a>(
        &'a self,
        command: &'a RemoteCommand,
        terminal: Option<PtySpec>,
    ) -> BoxFuture<'a, Result<InteractiveChannel, RemoteError>>;

    /// Asks the host's sshd to open a TCP connection to `address:port`.
    fn probe_tcp<'a>(&'a self, address: &'a str, port: u16, within: Duration) -> BoxFuture<'a, Result<TcpReachability, RemoteError>>;

    /// Whether the connection is known to be dead.
    fn is_closed(&self) -> bool;

    /// Says goodbye; at most 2 s.
    fn close(&self) -> BoxFuture<'_, ()>;
}

/// What a person's terminal is.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct PtySpec {
    /// `$TERM`.
    pub term: String,
    pub columns: u16,
    pub rows: u16,
}

/// A program that a person talks with. Dropping it closes its channel: in a terminal, the program is told that it hung up.
pub struct InteractiveChannel {
    /// What it writes. Bounded.
    pub output: mpsc::Receiver<OutputChunk>,
    /// What it is told; a send fails once it is over.
    pub input: mpsc::Sender<ChannelInput>,
    /// How it ended, once all of its output was taken.
    pub exit: oneshot::Receiver<Result<i32, RemoteError>>,
}

/// What a program is told that a person talks with.
#[derive(Debug, Clone, PartialEq, Eq)]
pub enum ChannelInput {
    /// Typed, or piped in.
    Bytes(Bytes),
    /// The terminal has this many columns and rows now.
    Resize(u16, u16),
    /// Nothing more is typed.
    Eof,
}

/// A part of what a script writes.
#[derive(Debug)]
pub enum OutputChunk {
    Stdout(Bytes),
    /// To standard error, login noise included.
    Stderr(Bytes),
}

impl OutputChunk {
    /// Whether there is nothing in it.
    pub fn is_empty(&self) -> bool {
        let (OutputChunk::Stdout(bytes) | OutputChunk::Stderr(bytes)) = self;
        bytes.is_empty()
    }
}

/// A running stream. Dropping it closes its channel.
pub struct RemoteStream {
    /// What it writes after the begin mark. Ends with `None` after the last byte, or after an error was sent. The reader behind it never
    /// waits: it holds at most [`RemoteCommand::output_limit`] bytes, and a host that sends more than that unread is cut off. A caller that takes its time
    /// bounds what comes by acknowledgements (`plan/log_frames`).
    pub output: ByteReceiver<RemoteError>,
    /// What it reads. Bounded; a send fails once the stream is over.
    pub input: mpsc::Sender<Bytes>,
}

/// Opens connections: the engine's factory, so that a lost host can be connected again.
pub trait HostConnector: Send + Sync {
    /// For how long a host of a run is tried again after an error that no retry mends.
    fn retry_window(&self, host: usize) -> Duration;

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
    Timeout { title: String, after: Duration },
    /// The host does not keep to the protocol: it is cut off.
    #[error("{what}")]
    Protocol { what: String },
    /// It ended without an end mark: the outcome is not known.
    #[error("`{title}` was cut off: {what}")]
    Truncated { title: String, what: String },
    /// The laptop's settings are wrong (ssh_config, key file): no host was asked.
    #[error("{what}")]
    InvalidConfig {
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
            RemoteError::Lost { hint, .. } | RemoteError::Refused { hint, .. } | RemoteError::InvalidConfig { hint, .. } => hint,
            RemoteError::Protocol { .. } => "the host sent unexpected data; check that its own sshd and /bin/sh answer there",
            RemoteError::Timeout { .. } | RemoteError::Truncated { .. } => "",
        }
    }

    /// Whether the connection may be tried again.
    pub fn is_retryable(&self) -> bool {
        match self {
            RemoteError::Lost { retry, .. } => *retry,
            RemoteError::Timeout { .. } | RemoteError::Truncated { .. } => true,
            RemoteError::Refused { .. } | RemoteError::InvalidConfig { .. } | RemoteError::Protocol { .. } => false,
        }
    }
}
