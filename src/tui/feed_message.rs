//! What the dashboard is sent: events and snapshots of the run, and what it may use on this laptop.

use std::io;

use crate::diagnose::advice_formatter::AdviceFormatter;
use crate::event::controls::DashboardCapabilities;
use crate::event::{Event, UnixMillis};
use crate::report::RunSnapshot;
use crate::report::past_runs::StoredLogs;
use crate::text::translation::Lang;

use super::timeline::TimelineEntry;

/// Position of the replay.
#[derive(Debug, Clone, Copy, PartialEq)]
pub struct ReplayClock {
    pub paused: bool,
    /// Seconds of the run per second of replay.
    pub speed: f64,
    /// Time of the first event.
    pub start: UnixMillis,
    /// Time of the last event.
    pub end: UnixMillis,
}

/// Copies and saves text on this laptop; implemented in `cli`.
pub trait Clipboard: Send {
    /// Copies text to the terminal multiplexer, which passes it to the clipboard; `None` outside of a multiplexer.
    fn copy_to_multiplexer(&self, text: &str) -> Option<io::Result<()>>;

    /// Writes text to a new file with this name prefix and returns its path.
    ///
    /// # Errors
    /// If it cannot be written.
    fn save_to_file(&self, name: &str, text: &str) -> io::Result<String>;
}

/// A message to the dashboard.
pub enum FeedMessage {
    Event(Event),
    /// What the event before says to the timeline.
    Timeline(TimelineEntry),
    /// What is known of the run after the events before.
    Snapshot(RunSnapshot),
    Tick(UnixMillis),
    /// How suggested commands are written, and the language of the diagnosis; sent before any event.
    Wording(AdviceFormatter, Lang),
    StoredLogs(Box<dyn StoredLogs>),
    Clipboard(Box<dyn Clipboard>),
    /// The available controls have changed.
    Capabilities(DashboardCapabilities),
    ReplayClock(ReplayClock),
    /// The replay restarts: everything known of the run is discarded.
    Reset,
    ShowToast(String),
    /// Panic, to test that the terminal is restored.
    #[cfg(debug_assertions)]
    Panic,
    /// Offset of local time from UTC in seconds.
    UtcOffset(i64),
}
