//! Folds the stream and passes it on: log files and journal first, then the state, then the sinks.
//!
//! A sink that fails is dropped and the others get a notice; only failures of the log files are returned, since the hosts wait for them.

use std::collections::BTreeSet;
use std::io;
use std::path::{Path, PathBuf};
use std::sync::Arc;

use crate::diagnose::{DiagnosisFinding, Evidence};
use crate::event::{Event, EventKind, LogFile, UnixMillis};
use crate::state::RunState;
use crate::text::error_chain::error_chain;
use crate::text::sanitize::Sanitizer;

use super::journal::Journal;
use super::log_store::{LogStore, LogStoreError};
use super::past_runs::{self, RunDir};
use super::stored_evidence::for_each_stored_event;
use super::{ReportSink, RunFold};

/// How many events wait for a run folder: what happened before the run's name was known.
const MAX_EARLY_EVENTS: usize = 10_000;

/// The one reader of the engine's events; everything else gets them from here.
pub struct Reporter {
    fold: RunFold,
    sanitizer: Sanitizer,
    logs: Option<LogStore>,
    journal: Option<Journal>,
    run_dir: Option<RunDir>,
    early_events: Vec<Event>,
    sinks: Vec<Box<dyn ReportSink>>,
    pending_warnings: Vec<String>,
    disk_full: bool,
    /// The logs whose shrinking was reported.
    reported_truncated: BTreeSet<(u32, LogFile)>,
}

impl Reporter {
    /// With these sinks; `sanitizer` masks secrets and cleans foreign text.
    pub fn new(sanitizer: Sanitizer, sinks: Vec<Box<dyn ReportSink>>) -> Self {
        Reporter {
            fold: RunFold::default(),
            sanitizer,
            logs: None,
            journal: None,
            run_dir: None,
            early_events: Vec::new(),
            sinks,
            pending_warnings: Vec::new(),
            disk_full: false,
            reported_truncated: BTreeSet::new(),
        }
    }

    /// Explains by these rules from now on.
    pub fn set_evidence(&mut self, evidence: Evidence) {
        self.fold.set_evidence(evidence);
    }

    /// Makes the commands complete that an event advises.
    pub fn complete_hint_commands(&self, event: &mut Event) {
        let advice = self.fold.evidence().advice_formatter();
        match &mut event.kind {
            EventKind::StepFailed { hint: text, .. }
            | EventKind::HostLost { hint: text, .. }
            | EventKind::CheckFinished { hint: text, .. }
            | EventKind::Notice { text, .. }
            | EventKind::RunFinished { reason: text, .. } => *text = advice.complete_commands(text),
            _ => {}
        }
    }

    /// What went wrong, the first cause first.
    pub fn findings(&self) -> Arc<[DiagnosisFinding]> {
        self.fold.findings()
    }

    /// Keeps the run in this directory from now on, and the events until now. `record`: the hosts of the run's record in node-rank order.
    ///
    /// # Errors
    /// When the log folder cannot be opened. A journal that cannot be written is reported as a notice.
    pub fn set_run_dir(&mut self, dir: RunDir, record: &[String]) -> Result<(), LogStoreError> {
        // Another run follows: how the one before ended is known now.
        if self.run_dir.as_ref().is_some_and(|before| *before != dir) {
            self.write_run_report();
            self.fold.clear_evidence();
        }
        self.logs = Some(dir.open_logs_for_writing(record)?);
        match Journal::open(dir.path(), self.sanitizer.clone()) {
            Ok(journal) => self.journal = Some(journal),
            Err(error) => self.pending_warnings.push(format!("no journal is kept: {error}")),
        }
        self.run_dir = Some(dir);
        for event in std::mem::take(&mut self.early_events) {
            self.write_to_journal(&event);
        }
        Ok(())
    }

    /// Explains also by what earlier commands stored in the run's directory. `hosts`: names by the index of the events.
    pub(crate) fn load_stored_evidence(&mut self, hosts: &[String], at: UnixMillis) {
        if let (Some(dir), true) = (&self.run_dir, self.fold.evidence().has_rules())
            && let Err(error) = for_each_stored_event(dir, hosts, at, |event| self.fold.apply_evidence(event))
        {
            self.pending_warnings.push(format!("the cause of a failure may be missing: {}", error_chain(error.as_ref())));
        }
    }

    pub fn state(&self) -> &RunState {
        self.fold.state()
    }

    /// The log files, once there is a folder for them.
    pub fn logs(&mut self) -> Option<&mut LogStore> {
        self.logs.as_mut()
    }

    /// The run's folder, once there is one.
    pub fn run_dir(&self) -> Option<&RunDir> {
        self.run_dir.as_ref()
    }

    /// Writes the bytes of a log event to its file, and starts a new copy of a log that shrank; nothing for other events. Where the copy so
    /// far was kept, if it was. Once it is `Ok` the bytes may be acknowledged.
    ///
    /// # Errors
    /// When they are not in the file.
    fn store_log(&mut self, event: &Event) -> Result<Option<PathBuf>, LogStoreError> {
        let (EventKind::Log { host, .. } | EventKind::LogTruncated { host, .. }) = event.kind else { return Ok(None) };
        let Some(logs) = &mut self.logs else { return Ok(None) };
        let name = Some(self.fold.state().host_name(host)).filter(|name| !name.is_empty()).ok_or(LogStoreError::UnknownHost(host))?;
        match &event.kind {
            EventKind::Log { file, offset, bytes, .. } => logs.write_at(name, *file, *offset, bytes).map(|()| None),
            EventKind::LogTruncated { file, size, .. } => logs.start_new_generation(name, *file, *size),
            _ => Ok(None),
        }
    }

    /// Waits until all log bytes of the run that this laptop has are on its disk.
    ///
    /// # Errors
    /// When any are not: then the hosts' originals must stay.
    pub fn sync_logs(&mut self) -> Result<(), LogStoreError> {
        self.logs.as_mut().ok_or(LogStoreError::NoRunDir)?.sync()
    }

    /// Whether the disk has room for logs, as far as that is known without writing any.
    pub fn has_disk_space(&mut self) -> bool {
        self.logs.as_mut().is_none_or(LogStore::has_disk_space)
    }

    /// Takes an event. `Ok` for a log event means that its bytes are in the file.
    ///
    /// # Errors
    /// When log bytes could not be written: then no sink got them, and they are requested again.
    pub fn handle_event(&mut self, event: &Event) -> Result<(), LogStoreError> {
        let stored = self.store_log(event);
        self.warn_disk_state(event, &stored);
        let kept = stored?;
        self.write_to_journal(event);
        self.fold.apply(event);
        if matches!(event.kind, EventKind::RunFinished { .. }) {
            self.write_run_report();
            let findings = self.findings();
            self.for_each_sink(|sink, state| sink.on_findings(&findings, state));
        }
        self.for_each_sink(|sink, state| sink.on_event(event, state));
        self.emit_pending_warnings(event.seq, event.at);
        if let Some(kept) = kept {
            self.warn_log_truncated(event, &kept);
        }
        self.send_wanted_snapshots();
        Ok(())
    }

    /// Calls each sink; one that fails is left out from then on, and the next warning says so.
    fn for_each_sink(&mut self, mut call: impl FnMut(&mut dyn ReportSink, &RunState) -> io::Result<()>) {
        let (state, lost) = (self.fold.state(), &mut self.pending_warnings);
        self.sinks.retain_mut(|sink| match call(sink.as_mut(), state) {
            Ok(()) => true,
            Err(error) => {
                lost.push(format!("an output was closed and is left out: {error}"));
                false
            }
        });
    }

    /// Answers the sinks that wait for a snapshot.
    pub fn send_wanted_snapshots(&mut self) {
        for sink in self.sinks.iter_mut().filter(|sink| sink.wants_snapshot()) {
            sink.on_snapshot(self.fold.snapshot());
        }
    }

    /// Whether log bytes cannot be stored just now: what the ranks write is not seen then.
    pub fn is_disk_full(&self) -> bool {
        self.disk_full
    }

    /// Shows the end of a log that this laptop has already: it is neither stored nor journaled again.
    pub(crate) fn show_stored_log(&mut self, log: EventKind, at: UnixMillis) {
        let event = Event { seq: self.state().last_seq, at, kind: log };
        self.show(&event);
    }

    fn show(&mut self, event: &Event) {
        self.fold.apply(event);
        self.for_each_sink(|sink, state| sink.on_event(event, state));
    }

    /// Time goes by: what waits to be folded is shown. Call it a few times a second while no event comes.
    pub fn tick(&mut self, now: UnixMillis) {
        self.for_each_sink(|sink, state| sink.tick(now, state));
        self.send_wanted_snapshots();
    }

    /// Ends all sinks and writes the report. What could not be written is returned as text.
    pub fn finish(&mut self) -> Vec<String> {
        for sink in &mut self.sinks {
            if let Err(error) = sink.finish(self.fold.state()) {
                self.pending_warnings.push(format!("an output was not finished: {error}"));
            }
        }
        if let Some(error) = self.journal.as_mut().and_then(|journal| journal.flush().err()) {
            self.pending_warnings.push(format!("the journal is not complete: {error}"));
        }
        self.write_run_report();
        std::mem::take(&mut self.pending_warnings)
    }

    /// Writes down how the run of the folder stands.
    fn write_run_report(&mut self) {
        let Some(dir) = self.run_dir.as_ref().filter(|dir| dir.belongs_to(&self.state().info.run_id)) else { return };
        if let Err(error) = past_runs::write_report(dir, self.state(), &self.findings(), &self.sanitizer) {
            self.pending_warnings.push(format!("no report was written: {error}"));
        }
    }

    fn write_to_journal(&mut self, event: &Event) {
        if let Some(journal) = &mut self.journal {
            if let Err(error) = journal.record_event(event) {
                self.journal = None;
                self.pending_warnings.push(format!("the journal ends here: {error}"));
            }
        } else if self.run_dir.is_none()
            && self.early_events.len() < MAX_EARLY_EVENTS
            && !event.kind.is_sample()
            && !matches!(event.kind, EventKind::Log { .. })
        {
            self.early_events.push(event.clone());
        }
    }

    /// A disk that takes no more log bytes is reported once, and once more when it does again.
    fn warn_disk_state(&mut self, event: &Event, stored: &Result<Option<PathBuf>, LogStoreError>) {
        let problem = match stored {
            Err(LogStoreError::Io { path, source, .. }) => Some(format!("{path}: {source}")),
            Err(error @ LogStoreError::LowDiskSpace { .. }) => Some(error.to_string()),
            _ => None,
        };
        let text = match problem {
            Some(problem) if !self.disk_full => {
                format!("{problem}: the copying of logs waits, the run goes on; free space on this laptop")
            }
            None if stored.is_ok() && self.disk_full && matches!(event.kind, EventKind::Log { .. }) => "logs are copied again".to_owned(),
            _ => return,
        };
        self.disk_full = !self.disk_full;
        self.pending_warnings.push(text);
        self.emit_pending_warnings(event.seq, event.at);
    }

    /// Reports a failed output to the remaining ones.
    fn emit_pending_warnings(&mut self, seq: u64, at: UnixMillis) {
        for text in std::mem::take(&mut self.pending_warnings) {
            self.emit_warning((seq, at), None, text);
        }
    }

    /// A log that shrank is reported once, however often it shrinks: a program may cut its log with every line.
    fn warn_log_truncated(&mut self, event: &Event, kept: &Path) {
        let EventKind::LogTruncated { host, file, size } = event.kind else { return };
        if !self.reported_truncated.insert((host, file)) {
            return;
        }
        let text = format!(
            "{}'s log shrank to {size} bytes on the host: it is not complete; what was copied before is kept in {}, and the copy begins again",
            file.writer(),
            kept.display()
        );
        self.emit_warning((event.seq, event.at), Some(host), text);
    }

    fn emit_warning(&mut self, (seq, at): (u64, UnixMillis), host: Option<u32>, text: String) {
        let note = Event { seq, at, kind: EventKind::Notice { host, text, warn: true } };
        self.write_to_journal(&note);
        self.show(&note);
    }
}

#[cfg(test)]
#[path = "reporter_tests.rs"]
mod tests;
