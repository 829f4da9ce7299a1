//! A host for tests that answers only what the test defines: everything else waits without end.

use std::time::Duration;

use futures_util::future::BoxFuture;
use tokio::sync::mpsc;

use super::{InteractiveChannel, OutputChunk, PtySpec, Remote, RemoteError, RemoteStream};
use crate::model::remote_command::{CommandOutput, RemoteCommand};
use crate::model::tcp_reachability::TcpReachability;

/// What a test defines of [`Remote`].
pub(crate) trait StubRemote: Send + Sync {
    fn exec<'a>(&'a self, _: &'a RemoteCommand) -> BoxFuture<'a, Result<CommandOutput, RemoteError>> {
        Box::pin(std::future::pending())
    }

    fn open_stream<'a>(&'a self, _: &'a RemoteCommand) -> BoxFuture<'a, Result<RemoteStream, RemoteError>> {
        Box::pin(std::future::pending())
    }
}

impl<T: StubRemote> Remote for T {
    fn exec<'a>(&'a self, command: &'a RemoteCommand) -> BoxFuture<'a, Result<CommandOutput, RemoteError>> {
        StubRemote::exec(self, command)
    }

    fn exec_streaming<'a>(&'a self, _: &'a RemoteCommand, _: mpsc::Sender<OutputChunk>) -> BoxFuture<'a, Result<i32, RemoteError>> {
        Box::pin(std::future::pending())
    }

    fn open_stream<'a>(&'a self, command: &'a RemoteCommand) -> BoxFuture<'a, Result<RemoteStream, RemoteError>> {
        StubRemote::open_stream(self, command)
    }

    fn open_interactive<'a>(&'a self, _: &'a RemoteCommand, _: Option<PtySpec>) -> BoxFuture<'a, Result<InteractiveChannel, RemoteError>> {
        Box::pin(std::future::pending())
    }

    fn probe_tcp<'a>(&'a self, _: &'a str, _: u16, _: Duration) -> BoxFuture<'a, Result<TcpReachability, RemoteError>> {
        Box::pin(std::future::pending())
    }

    fn is_closed(&self) -> bool {
        false
    }

    fn close(&self) -> BoxFuture<'_, ()> {
        Box::pin(async {})
    }
}
