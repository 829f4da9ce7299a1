//! How an interactive program on a host ended.

use std::io;

use crate::remote::RemoteError;

#[derive(Debug)]
pub(crate) enum InteractiveEnd {
    /// Exit status of the remote program.
    Exited(i32),
    /// What the remote program wrote could not be written here; a closed pipe (`| head`) has the kind `BrokenPipe`.
    OutputFailed(io::Error),
    ConnectionLost(RemoteError),
    /// The user typed `~.`.
    Escaped,
    /// A signal to this program; 1 (SIGHUP) also if the terminal is gone.
    Signal(i32),
}

impl InteractiveEnd {
    /// With how writing its output here went. What could not be written ended it, or its status says nothing of that; a terminal that is gone
    /// is a hang-up instead.
    pub(crate) fn with_output(self, written: io::Result<()>, in_terminal: bool) -> InteractiveEnd {
        match (self, written) {
            (InteractiveEnd::ConnectionLost(_), Err(error)) => InteractiveEnd::OutputFailed(error),
            (InteractiveEnd::Exited(_), Err(error)) if !in_terminal => InteractiveEnd::OutputFailed(error),
            (end, _) => end,
        }
    }
}
