//! What the log stream of a host brings.
//!
//! Uses `plan` and `event`.

use bytes::Bytes;

use crate::event::Millis;
use crate::plan::words::{Exit, LogFile};

/// What a watcher saw.
#[derive(Debug, Clone, PartialEq)]
pub enum Report {
    /// A wrapper was recorded: when on our clock.
    Started(usize, LogFile, Millis),
    /// A wrapper ended: how, when on our clock, and how wrong that may be.
    Ended(usize, LogFile, Exit, Millis, i64),
    /// The run is not there.
    Nothing(usize),
    /// A piece of log, as stored.
    Log(usize, LogFile, Bytes),
    /// No retry mends why the host cannot be followed: nothing more will be known of it.
    GivenUp(usize, String),
}
