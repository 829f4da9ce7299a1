//! A host for tests: it sends scripted output and ignores its input.

use std::sync::Mutex;

use bytes::Bytes;
use futures_util::future::BoxFuture;
use tokio::sync::mpsc;

use crate::model::remote_command::RemoteCommand;
use crate::remote::byte_channel::{ByteSender, byte_channel};
use crate::remote::stub_remote::StubRemote;
use crate::remote::{RemoteError, RemoteStream};

/// The first line of a session with an empty directory that is there.
pub(super) const HELLO: &str = "H 1 -1 0 0 0 /to\n";

/// The host's ends of a session.
pub(super) type SessionEnds = (ByteSender<RemoteError>, mpsc::Receiver<Bytes>);

#[derive(Default)]
pub(super) struct ScriptedHost {
    /// What it says at once.
    pub(super) output: String,
    /// How its sessions end; `None`: they stay open until the test drops their ends.
    pub(super) end: Option<RemoteError>,
    /// It takes no input.
    pub(super) is_deaf: bool,
    pub(super) sessions: Mutex<Vec<SessionEnds>>,
}

impl ScriptedHost {
    pub(super) fn saying(output: impl Into<String>) -> ScriptedHost {
        ScriptedHost { output: output.into(), ..ScriptedHost::default() }
    }
}

impl StubRemote for ScriptedHost {
    fn open_stream<'a>(&'a self, command: &'a RemoteCommand) -> BoxFuture<'a, Result<RemoteStream, RemoteError>> {
        let (sender, output) = byte_channel(command.output_limit);
        let (input, received) = mpsc::channel(4);
        assert!(sender.send(Bytes::from(self.output.clone()), |_| RemoteError::Protocol { what: String::new() }));
        match &self.end {
            Some(error) => sender.fail(error.clone()),
            None if self.is_deaf => self.sessions.lock().expect("whole").push((sender, mpsc::channel(1).1)),
            None => self.sessions.lock().expect("whole").push((sender, received)),
        }
        Box::pin(async { Ok(RemoteStream { output, input }) })
    }
}
