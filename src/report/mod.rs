//! Outputs without a screen of their own: lines, bars, JSON, the journal, log files, the recap. The reporter folds the stream of events once
//! and passes each event on to all of them.

pub(crate) mod bounded_queue;
#[cfg(test)]
mod chinese_tests;
mod disk_reserve;
pub(crate) mod finding;
mod groupable_event;
mod host_rows;
pub(crate) mod job_status;
pub mod journal;
pub(crate) mod json;
pub(crate) mod line_writer;
pub(crate) mod log_lines;
pub(crate) mod log_store;
pub(crate) mod log_tail;
mod node_list;
pub mod past_runs;
pub(crate) mod plain;
pub(crate) mod preflight_report;
mod private_files;
pub(crate) mod progress_bars;
pub(crate) mod progress_bars_transfer;
pub(crate) mod recap;
pub(crate) mod replay_source;
mod reporter;
mod run_fold;
pub mod run_report;
pub(crate) mod safe_output;
mod stored_evidence;
pub(crate) mod style;
pub(crate) mod threaded_sink;
pub(crate) mod transfer_text;

pub use reporter::Reporter;
pub use run_fold::{RunFold, RunSnapshot};

use std::io;

use crate::diagnose::DiagnosisFinding;
use crate::event::{Event, UnixMillis};
use crate::state::RunState;

/// Something that shows events.
pub trait ReportSink: Send {
    /// Takes an event; `state` knows it already.
    ///
    /// # Errors
    /// When it cannot show it; it is left out from then on.
    fn on_event(&mut self, event: &Event, state: &RunState) -> io::Result<()>;

    /// Time goes by without an event.
    ///
    /// # Errors
    /// As [`ReportSink::on_event`].
    fn tick(&mut self, _now: UnixMillis, _state: &RunState) -> io::Result<()> {
        Ok(())
    }

    /// What went wrong, just before the last event.
    ///
    /// # Errors
    /// As [`ReportSink::on_event`].
    fn on_findings(&mut self, _findings: &[DiagnosisFinding], _state: &RunState) -> io::Result<()> {
        Ok(())
    }

    /// Whether it waits for a snapshot.
    fn wants_snapshot(&self) -> bool {
        false
    }

    /// What is known of the run after the last event.
    fn on_snapshot(&mut self, _snapshot: RunSnapshot) {}

    /// Nothing follows. The last call.
    ///
    /// # Errors
    /// When something could not be shown.
    fn finish(&mut self, state: &RunState) -> io::Result<()>;
}

#[cfg(test)]
mod test_support;
