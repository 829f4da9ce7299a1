//! The only access to a host: connect once, run scripts, follow a stream. The engine uses [`Remote`]; `remote/ssh` implements it.
//!
//! Owns sockets, key files and known_hosts.

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
mod local_process;
mod name_validation;
mod presented_key;
mod route_resolver;
pub(crate) mod ssh;
pub(super) mod ssh_g;
pub(crate) mod ssh_settings;
#[cfg(test)]
pub(crate) mod stub_remote;

use std::sync::Arc;
use std::time::Duration;

use bytes::Bytes;
use futures_util::future::BoxFuture;
use tokio::sync::{mpsc, oneshot};

pub(crate) use self::byte_channel::ByteReceiver;
pub(crate) use self::hop_report::{HopReport, HopSetting};
pub use self::ssh::{SharedHost, SshFleet};
pub use self::ssh_settings::{SshSettings, UserPrompt};
use crate::model::remote_command::{CommandOutput, RemoteCommand};
use crate::model::tcp_reachability::TcpReachability;

/// A connected host. Every call has a deadline; if the connection is lost, every pending call fails.
pub trait Remote: Send + Sync {
    /// Runs a script to its end, limited by the command's timeout.
    fn exec<'a>(&'a self, command: &'a RemoteCommand) -> BoxFuture<'a, Result<CommandOutput, RemoteError>>;

    /// Like [`Remote::exec`], in a session reserved for stopping: it does not wait behind other commands.
    fn exec_priority<'a>(&'a self, command: &'a RemoteCommand) -> BoxFuture<'a, Result<CommandOutput, RemoteError>> {
        self.exec(command)
    }

    /// Like [`Remote::exec`], but output is forwarded as it arrives; returns the exit status. A slow receiver
    /// makes the host and everything on its connection wait: use it for one host alone. Dropping the receiver ends the script.
    fn exec_streaming<'a>(
        &'a self,
        command: &'a RemoteCommand,
        chunks: mpsc::Sender<OutputChunk>,
    ) -> BoxFuture<'a, Result<i32, RemoteError>>;

    /// Starts a long-running script (`ScriptFrame::wrap_streaming`); its begin mark must arrive within the command's timeout.
    fn open_stream<'a>(&'a self, command: &'a RemoteCommand) -> BoxFuture<'a, Result<RemoteStream, RemoteError>>;

    /// Starts an interactive script: in a terminal if one is given, otherwise with pipes. It must start within the command's timeout;
    /// its output and end have no time limit. A slow receiver makes the host and everything on its connection
    /// wait: use a connection of its own.
    fn open_interactive<'a>(
        &'a self,
        command: &'a RemoteCommand,
        terminal: Option<PtySpec>,
    ) -> BoxFuture<'a, Result<InteractiveChannel, RemoteError>>;

    /// Asks the host's sshd to open a TCP connection to `address:port`.
    fn probe_tcp<'a>(&'a self, address: &'a str, port: u16, within: Duration) -> BoxFuture<'a, Result<TcpReachability, RemoteError>>;

    /// Whether the connection is known to be dead.
    fn is_closed(&self) -> bool;

    /// Disconnects; at most 2 s.
    fn close(&self) -> BoxFuture<'_, ()>;
}

/// The user's terminal.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct PtySpec {
    /// `$TERM`.
    pub term: String,
    pub columns: u16,
    pub rows: u16,
}

/// An interactive program. Dropping it closes its channel: in a terminal, the program gets SIGHUP.
pub struct InteractiveChannel {
    /// Its output. Bounded.
    pub output: mpsc::Receiver<OutputChunk>,
    /// Its input; sending fails after its end.
    pub input: mpsc::Sender<ChannelInput>,
    /// How it ended, after all of its output was received.
    pub exit: oneshot::Receiver<Result<i32, RemoteError>>,
}

/// Input of an interactive program.
#[derive(Debug, Clone, PartialEq, Eq)]
pub enum ChannelInput {
    /// Typed or piped bytes.
    Bytes(Bytes),
    /// New size of the terminal in columns and rows.
    Resize(u16, u16),
    /// End of input.
    Eof,
}

/// A chunk of a script's output.
#[derive(Debug)]
pub enum OutputChunk {
    Stdout(Bytes),
    /// Standard error, login noise included.
    Stderr(Bytes),
}

/// A running stream. Dropping it closes its channel.
pub struct RemoteStream {
    /// Output after the begin mark. Ends with `None` after the last byte or an error. The SSH reader never
    /// waits: it holds at most [`RemoteCommand::output_limit`] bytes, and a host that sends more unread bytes is cut off. A slow caller
    /// limits the host by acknowledgements (`plan/protocol`).
    pub output: ByteReceiver<RemoteError>,
    /// Its input. Bounded; sending fails after the end of the stream.
    pub input: mpsc::Sender<Bytes>,
}

/// Opens connections; the engine uses it again to reconnect a lost host.
pub trait HostConnector: Send + Sync {
    /// How long to retry a host of a run after an error that retries alone do not fix.
    fn retry_window(&self, host: usize) -> Duration;

    /// Connects to host number `host` of the inventory.
    fn connect(&self, host: usize) -> BoxFuture<'_, Result<Arc<dyn Remote>, RemoteError>>;
}

/// Why a request to a host failed.
#[derive(Debug, Clone, thiserror::Error)]
pub enum RemoteError {
    /// The host could not be reached, or the connection was lost.
    #[error("{what}")]
    Lost {
        /// What happened, with the hop.
        what: String,
        /// What to do next; may be empty.
        hint: String,
        /// Whether a retry can help (never after a refusal).
        retry: bool,
    },
    /// The host refused us: host key, authentication.
    #[error("{what}")]
    Refused {
        /// What was refused, with file and line where there is one.
        what: String,
        /// The command that fixes it; may be empty.
        hint: String,
    },
    /// No answer within the deadline.
    #[error("no answer to `{title}` within {after:?}")]
    Timeout { title: String, after: Duration },
    /// The host violates the protocol: its stream is closed.
    #[error("{what}")]
    Protocol { what: String },
    /// The script ended without an end mark: the outcome is unknown.
    #[error("`{title}` was cut off: {what}")]
    Truncated { title: String, what: String },
    /// The laptop's settings are wrong (ssh_config, key file): no host was contacted.
    #[error("{what}")]
    InvalidConfig {
        /// What is wrong, with file and line.
        what: String,
        /// What to do next.
        hint: String,
    },
}

impl RemoteError {
    pub(crate) fn lost(what: impl Into<String>, hint: impl Into<String>, retry: bool) -> Self {
        RemoteError::Lost { what: what.into(), hint: hint.into(), retry }
    }

    pub(crate) fn refused(what: impl Into<String>, hint: impl Into<String>) -> Self {
        RemoteError::Refused { what: what.into(), hint: hint.into() }
    }

    pub(crate) fn invalid_config(what: impl Into<String>, hint: impl Into<String>) -> Self {
        RemoteError::InvalidConfig { what: what.into(), hint: hint.into() }
    }

    /// What to do next; may be empty.
    pub fn hint(&self) -> &str {
        match self {
            RemoteError::Lost { hint, .. } | RemoteError::Refused { hint, .. } | RemoteError::InvalidConfig { hint, .. } => hint,
            RemoteError::Protocol { .. } => "the host sent unexpected data; check that its own sshd and /bin/sh answer there",
            RemoteError::Timeout { .. } | RemoteError::Truncated { .. } => "",
        }
    }

    /// Whether the connection may be retried.
    pub fn is_retryable(&self) -> bool {
        match self {
            RemoteError::Lost { retry, .. } => *retry,
            RemoteError::Timeout { .. } | RemoteError::Truncated { .. } => true,
            RemoteError::Refused { .. } | RemoteError::InvalidConfig { .. } | RemoteError::Protocol { .. } => false,
        }
    }
}
