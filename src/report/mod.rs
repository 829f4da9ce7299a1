//! Faces without a screen of their own: lines, bars, JSON, the journal, log files, the recap. All are consumers of one stream of events.
//!
//! Uses `event`, `state`, `diagnose`, `shell` and `inventory`. Knows nothing of the engine or of SSH: a journal that is read again looks to it like a
//! run. A face that fails is left out and the others are told; only the log files answer for themselves, since the hosts wait for them.

pub mod aside;
pub mod bar;
pub mod check;
mod files;
pub mod finding;
pub mod fold;
pub mod journal;
pub mod json;
pub mod line;
pub mod loglines;
pub mod logs;
mod nodes;
pub mod outlet;
pub mod past;
pub mod recap;
mod reserve;
pub mod runs;
pub mod sanitize;
pub mod terminal;
pub mod words;

use std::collections::BTreeSet;
use std::io;
use std::path::{Path, PathBuf};

use bytes::Bytes;

use crate::diagnose::{Evidence, Finding};
use crate::event::{Event, EventKind, LogFile, Millis};
use crate::state::RunState;

use journal::Journal;
use logs::{LogError, LogStore};
use runs::RunDir;
use sanitize::Cleaner;

/// How many events wait for a run folder: what happened before the run's name was known.
const EARLY: usize = 10_000;

/// Something that shows events.
pub trait Sink: Send {
    /// Takes an event; `state` knows it already.
    ///
    /// # Errors
    /// When it cannot show it; it is left out from then on.
    fn on(&mut self, event: &Event, state: &RunState) -> io::Result<()>;

    /// Time goes by without an event.
    ///
    /// # Errors
    /// As [`Sink::on`].
    fn tick(&mut self, _now: Millis, _state: &RunState) -> io::Result<()> {
        Ok(())
    }

    /// What went wrong, just before the last event.
    ///
    /// # Errors
    /// As [`Sink::on`].
    fn found(&mut self, _findings: &[Finding], _state: &RunState) -> io::Result<()> {
        Ok(())
    }

    /// Nothing follows. The last call.
    ///
    /// # Errors
    /// When something could not be shown.
    fn finish(&mut self, state: &RunState) -> io::Result<()>;
}

/// Folds the stream and hands it to every face: log files and journal first, then the state, then the sinks.
pub struct Reporter {
    state: RunState,
    evidence: Evidence,
    cleaner: Cleaner,
    logs: Option<LogStore>,
    journal: Option<Journal>,
    dir: Option<RunDir>,
    early: Vec<Event>,
    sinks: Vec<Box<dyn Sink>>,
    lost: Vec<String>,
    full: bool,
    /// Whose logs shrank, as far as it was said.
    shrunk: BTreeSet<(u32, LogFile)>,
}

impl Reporter {
    /// With these faces; `cleaner` knows what must not be written down.
    pub fn new(cleaner: Cleaner, sinks: Vec<Box<dyn Sink>>) -> Self {
        Reporter {
            state: RunState::new(),
            evidence: Evidence::built_in(),
            cleaner,
            logs: None,
            journal: None,
            dir: None,
            early: Vec::new(),
            sinks,
            lost: Vec::new(),
            full: false,
            shrunk: BTreeSet::new(),
        }
    }

    /// Explains by these rules from now on.
    pub fn explain(&mut self, evidence: Evidence) {
        self.evidence = evidence;
    }

    /// Makes the commands complete that an event advises.
    pub fn complete(&self, event: &mut Event) {
        let advice = self.evidence.advice();
        match &mut event.kind {
            EventKind::StepFailed { hint: text, .. }
            | EventKind::Checked { hint: text, .. }
            | EventKind::Notice { text, .. }
            | EventKind::RunFinished { why: text, .. } => *text = advice.complete(text),
            _ => {}
        }
    }

    /// What went wrong, the first cause first.
    pub fn findings(&self) -> Vec<Finding> {
        crate::diagnose::findings(&self.evidence, &self.state)
    }

    /// Keeps the run in this folder from now on, and what was told before. `record`: the hosts of the run's record in node-rank order.
    ///
    /// # Errors
    /// When the log folder cannot be opened. A journal that cannot be written is told as a notice.
    pub fn keep(&mut self, dir: RunDir, record: &[String]) -> Result<(), LogError> {
        // Another run follows: how the one before ended is known now.
        if self.dir.as_ref().is_some_and(|before| *before != dir) {
            self.report();
        }
        self.logs = Some(dir.keep_logs(record)?);
        match Journal::open(dir.path(), self.cleaner.clone()) {
            Ok(journal) => self.journal = Some(journal),
            Err(error) => self.lost.push(format!("no journal is kept: {error}")),
        }
        self.dir = Some(dir);
        for event in std::mem::take(&mut self.early) {
            self.write_down(&event);
        }
        Ok(())
    }

    /// What is known.
    pub fn state(&self) -> &RunState {
        &self.state
    }

    /// The log files, once there is a folder for them.
    pub fn logs(&mut self) -> Option<&mut LogStore> {
        self.logs.as_mut()
    }

    /// The run's folder, once there is one.
    pub fn dir(&self) -> Option<&RunDir> {
        self.dir.as_ref()
    }

    /// Adds a face.
    pub fn add(&mut self, sink: Box<dyn Sink>) {
        self.sinks.push(sink);
    }

    /// Writes the bytes of a log event to its file, and begins the copy of a log that shrank anew; nothing for other events. Where the copy so
    /// far was kept, if it was. Once it is `Ok` the bytes may be acknowledged.
    ///
    /// # Errors
    /// When they are not in the file.
    fn store(&mut self, event: &Event) -> Result<Option<PathBuf>, LogError> {
        let (EventKind::Log { host, .. } | EventKind::LogShrunk { host, .. }) = event.kind else { return Ok(None) };
        let Some(logs) = &mut self.logs else { return Ok(None) };
        let name = Some(self.state.host_name(host)).filter(|name| !name.is_empty()).ok_or(LogError::Nameless(host))?;
        match &event.kind {
            EventKind::Log { file, offset, bytes, .. } => logs.write_at(name, *file, *offset, bytes).map(|()| None),
            EventKind::LogShrunk { file, size, .. } => logs.new_generation(name, *file, *size),
            _ => Ok(None),
        }
    }

    /// Waits until all log bytes of the run that this laptop has are on its disk.
    ///
    /// # Errors
    /// When any are not: then the hosts' originals must stay.
    pub fn sync(&mut self) -> Result<(), LogError> {
        self.logs.as_mut().ok_or(LogError::NoFolder)?.sync()
    }

    /// Whether the disk has room for logs, as far as that can be told without writing any.
    pub fn has_room(&mut self) -> bool {
        self.logs.as_mut().is_none_or(LogStore::has_room)
    }

    /// Takes an event. `Ok` for a log event means that its bytes are in the file.
    ///
    /// # Errors
    /// When log bytes could not be written: then nobody was told of them, and they are wanted again.
    pub fn on(&mut self, event: &Event) -> Result<(), LogError> {
        let stored = self.store(event);
        self.tell_storage(event, &stored);
        let kept = stored?;
        self.write_down(event);
        self.state.apply(event);
        self.evidence.apply(event);
        if matches!(event.kind, EventKind::RunFinished { .. }) {
            self.report();
            let (findings, state, lost) = (self.findings(), &self.state, &mut self.lost);
            self.sinks.retain_mut(|sink| match sink.found(&findings, state) {
                Ok(()) => true,
                Err(error) => {
                    lost.push(left_out(&error));
                    false
                }
            });
        }
        let state = &self.state;
        let lost = &mut self.lost;
        self.sinks.retain_mut(|sink| match sink.on(event, state) {
            Ok(()) => true,
            Err(error) => {
                lost.push(left_out(&error));
                false
            }
        });
        self.tell_losses(event.seq, event.at);
        if let Some(kept) = kept {
            self.tell_shrunk(event, &kept);
        }
        Ok(())
    }

    /// Whether log bytes cannot be stored just now: what the ranks write is not seen then.
    pub fn full(&self) -> bool {
        self.full
    }

    /// Shows what is stored already: the end of a log that this laptop has from before. It is neither stored nor written down again.
    pub fn recall(&mut self, host: u32, file: LogFile, offset: u64, bytes: Bytes, at: Millis) {
        let kind = EventKind::Log { host, file, offset, len: bytes.len() as u64, bytes };
        let event = Event { seq: self.state.seq, at, kind };
        self.state.apply(&event);
        self.evidence.apply(&event);
        let (state, lost) = (&self.state, &mut self.lost);
        self.sinks.retain_mut(|sink| match sink.on(&event, state) {
            Ok(()) => true,
            Err(error) => {
                lost.push(left_out(&error));
                false
            }
        });
    }

    /// Time goes by: what waits to be folded is shown. Call it a few times a second while no event comes.
    pub fn tick(&mut self, now: Millis) {
        let (state, lost) = (&self.state, &mut self.lost);
        self.sinks.retain_mut(|sink| match sink.tick(now, state) {
            Ok(()) => true,
            Err(error) => {
                lost.push(left_out(&error));
                false
            }
        });
    }

    /// Ends all faces and writes the report. What could not be written is returned as text.
    pub fn finish(&mut self) -> Vec<String> {
        let state = &self.state;
        for sink in &mut self.sinks {
            if let Err(error) = sink.finish(state) {
                self.lost.push(format!("an output was not finished: {error}"));
            }
        }
        if let Some(error) = self.journal.as_mut().and_then(|journal| journal.flush().err()) {
            self.lost.push(format!("the journal is not complete: {error}"));
        }
        self.report();
        std::mem::take(&mut self.lost)
    }

    /// Writes down how the run of the folder stands.
    fn report(&mut self) {
        let Some(dir) = self.dir.as_ref().filter(|dir| dir.is_of(&self.state.info.run)) else { return };
        if let Err(error) = runs::write_report(dir, &self.state, &self.findings(), &self.cleaner) {
            self.lost.push(format!("no report was written: {error}"));
        }
    }

    fn write_down(&mut self, event: &Event) {
        if let Some(journal) = &mut self.journal {
            if let Err(error) = journal.on(event) {
                self.journal = None;
                self.lost.push(format!("the journal ends here: {error}"));
            }
        } else if self.dir.is_none() && self.early.len() < EARLY && !event.kind.is_sample() && !matches!(event.kind, EventKind::Log { .. })
        {
            self.early.push(event.clone());
        }
    }

    /// A disk that takes no more log bytes is told once, and once more when it does again.
    fn tell_storage(&mut self, event: &Event, stored: &Result<Option<PathBuf>, LogError>) {
        let log = matches!(event.kind, EventKind::Log { .. });
        let told = match stored {
            Err(LogError::Io { path, source, .. }) if !self.full => {
                Some((true, format!("{path}: {source}: the copying of logs waits, the run goes on; free space on this laptop")))
            }
            Err(error @ LogError::Reserve { .. }) if !self.full => {
                Some((true, format!("{error}: the copying of logs waits, the run goes on; free space on this laptop")))
            }
            Ok(_) if log && self.full => Some((false, "logs are copied again".to_owned())),
            _ => None,
        };
        if let Some((full, text)) = told {
            self.full = full;
            self.lost.push(text);
            self.tell_losses(event.seq, event.at);
        }
    }

    /// Those who are left learn who is gone.
    fn tell_losses(&mut self, seq: u64, at: Millis) {
        for text in std::mem::take(&mut self.lost) {
            self.warn((seq, at), None, text);
        }
    }

    /// A log that shrank is told once, however often it shrinks: a program may cut its log with every line.
    fn tell_shrunk(&mut self, event: &Event, kept: &Path) {
        let EventKind::LogShrunk { host, file, size } = event.kind else { return };
        if !self.shrunk.insert((host, file)) {
            return;
        }
        let whose = match file {
            LogFile::Node => "the launcher's log".to_owned(),
            LogFile::Rank { rank, .. } => format!("rank {rank}'s log"),
        };
        let text = format!(
            "{whose} shrank to {size} bytes on the host: it is not complete; what was copied before is kept in {}, and the copy begins again",
            kept.display()
        );
        self.warn((event.seq, event.at), Some(host), text);
    }

    fn warn(&mut self, (seq, at): (u64, Millis), host: Option<u32>, text: String) {
        let note = Event { seq, at, kind: EventKind::Notice { host, text, warn: true } };
        if let Some(journal) = &mut self.journal
            && journal.on(&note).is_err()
        {
            self.journal = None;
        }
        self.state.apply(&note);
        let state = &self.state;
        self.sinks.retain_mut(|sink| sink.on(&note, state).is_ok());
    }
}

fn left_out(error: &io::Error) -> String {
    format!("an output was closed and is left out: {error}")
}

#[cfg(test)]
mod scene;
#[cfg(test)]
mod tests;
