//! What the log stream of a host brings.

use bytes::Bytes;

use crate::event::UnixMillis;
use crate::model::exit::Exit;
use crate::model::log_file::LogFile;

/// What a watcher saw.
#[derive(Debug, Clone, PartialEq)]
pub(crate) enum LogStreamEvent {
    /// A wrapper was recorded: when on our clock.
    ProcessStarted(usize, LogFile, UnixMillis),
    /// A wrapper ended: how, when on our clock, and how wrong that may be.
    ProcessEnded(usize, LogFile, Exit, UnixMillis, i64),
    /// The run is not there.
    RunMissing(usize),
    /// A piece of log, as stored.
    Log(usize, LogFile, Bytes),
    /// The host cannot be followed any more, with the reason.
    HostGivenUp(usize, String),
}
