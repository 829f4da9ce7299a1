//! The journal: what happened, one event a line, for replay and for the list of past runs.
//!
//! Uses `event`. Log bytes are never in it, only which ranges came when; samples go to a file of their own, one of a kind in ten seconds a host.
//! A reader skips kinds that it does not know, refuses a newer major format, and forgives a line that a crash cut off.

use std::collections::HashMap;
use std::fs::{File, OpenOptions};
use std::hash::Hash;
use std::io::{self, BufRead, Read, Seek, SeekFrom, Write};
use std::mem::Discriminant;
use std::path::Path;

use serde::{Deserialize, Serialize};

use crate::event::{Event, EventKind, JOURNAL_FORMAT, LogFile, UnixMillis};

use super::private_files::private_options;
use crate::text::sanitize::Sanitizer;

/// The name of the journal in the run's folder.
pub const JOURNAL_FILE: &str = "journal.jsonl";
/// The name of the samples in the run's folder.
pub const SAMPLES_FILE: &str = "gpus.jsonl";
/// The most bytes of either.
pub const MAX_JOURNAL_BYTES: u64 = 64 << 20;
/// The room that is kept for the last words.
const FINAL_EVENT_RESERVE: u64 = 64 << 10;
/// One sample of a kind and host in this time, and one log range a file.
const SAMPLE_INTERVAL_MS: i64 = 10_000;
/// One record about a disk in this time.
const DISK_INTERVAL_MS: i64 = 600_000;
/// The longest line that a reader takes.
const MAX_LINE_BYTES: u64 = 32 << 20;

/// The first record, and the first of every `orchestrate` that goes on with it.
#[derive(Debug, Clone, PartialEq, Eq, Serialize, Deserialize)]
pub struct JournalHeader {
    /// `major.minor`.
    pub format: String,
    pub orchestrate: String,
}

impl JournalHeader {
    /// What this program writes.
    pub fn current() -> Self {
        JournalHeader { format: JOURNAL_FORMAT.to_owned(), orchestrate: env!("CARGO_PKG_VERSION").to_owned() }
    }
}

/// Writes `journal.jsonl` and `gpus.jsonl`.
#[derive(Debug)]
pub struct Journal {
    events: BoundedFile,
    samples: BoundedFile,
    sanitizer: Sanitizer,
    pending_ranges: HashMap<(u32, LogFile), Event>,
    last_samples: HashMap<(u32, Discriminant<EventKind>), UnixMillis>,
    last_disk: HashMap<u32, UnixMillis>,
}

impl Journal {
    /// Goes on with the journal in `dir`, or begins it.
    ///
    /// # Errors
    /// When a file cannot be opened or written.
    pub fn open(dir: &Path, sanitizer: Sanitizer) -> io::Result<Self> {
        Self::with_limit(dir, sanitizer, MAX_JOURNAL_BYTES)
    }

    fn with_limit(dir: &Path, sanitizer: Sanitizer, limit: u64) -> io::Result<Self> {
        let header = serde_json::to_string(&JournalHeader::current())?;
        let mut events = BoundedFile::open(&dir.join(JOURNAL_FILE), limit)?;
        let mut gpus = BoundedFile::open(&dir.join(SAMPLES_FILE), limit)?;
        events.write_line(&header, true)?;
        gpus.write_line(&header, false)?;
        Ok(Journal {
            events,
            samples: gpus,
            sanitizer,
            pending_ranges: HashMap::new(),
            last_samples: HashMap::new(),
            last_disk: HashMap::new(),
        })
    }

    /// Records an event.
    ///
    /// # Errors
    /// When the disk does not take it.
    pub fn record_event(&mut self, event: &Event) -> io::Result<()> {
        match &event.kind {
            EventKind::Log { host, file, offset, len, .. } => self.merge_log_range(event, (*host, *file), *offset, *len),
            EventKind::Gpus { host, .. } | EventKind::GpuProcesses { host, .. } | EventKind::HostMetrics { host, .. } => {
                if mark_if_due(&mut self.last_samples, (*host, std::mem::discriminant(&event.kind)), event.at, SAMPLE_INTERVAL_MS) {
                    let line = serde_json::to_string(event)?;
                    self.samples.write_line(&line, false)?;
                }
                Ok(())
            }
            // Asked for by a person, seldom; the names of processes are in it.
            EventKind::NvidiaSmi { .. } => {
                let line = self.sanitizer.mask_json(serde_json::to_string(event)?);
                self.samples.write_line(&line, false)?;
                Ok(())
            }
            EventKind::DiskSpace { host, .. } if !mark_if_due(&mut self.last_disk, *host, event.at, DISK_INTERVAL_MS) => Ok(()),
            _ => {
                self.flush()?;
                let last = matches!(event.kind, EventKind::RunFinished { .. });
                self.write_event(event, last)
            }
        }
    }

    /// Writes what is still held back.
    ///
    /// # Errors
    /// When the disk does not take it.
    pub fn flush(&mut self) -> io::Result<()> {
        let mut ranges: Vec<Event> = self.pending_ranges.drain().map(|(_, event)| event).collect();
        ranges.sort_by_key(|event| event.seq);
        ranges.iter().try_for_each(|event| self.write_event(event, false))
    }

    /// Joins ranges that follow each other; the joint one has the number and time of its last part.
    fn merge_log_range(&mut self, event: &Event, key: (u32, LogFile), offset: u64, len: u64) -> io::Result<()> {
        if let Some(held) = self.pending_ranges.get_mut(&key) {
            let at = held.at;
            if let EventKind::Log { offset: from, len: have, .. } = &mut held.kind
                && *from + *have == offset
                && event.at - at < SAMPLE_INTERVAL_MS
            {
                *have += len;
                held.seq = event.seq;
                return Ok(());
            }
            let old = self.pending_ranges.remove(&key);
            old.map_or(Ok(()), |old| self.write_event(&old, false))?;
        }
        let kind = EventKind::Log { host: key.0, file: key.1, offset, bytes: bytes::Bytes::new(), len };
        self.pending_ranges.insert(key, Event { seq: event.seq, at: event.at, kind });
        Ok(())
    }

    fn write_event(&mut self, event: &Event, last: bool) -> io::Result<()> {
        let line = self.sanitizer.mask_json(serde_json::to_string(event)?);
        if self.events.write_line(&line, last)? == WriteOutcome::LimitReached {
            let text = "the journal is full: what follows is not in it".to_owned();
            let note = Event { seq: event.seq, at: event.at, kind: EventKind::Notice { host: None, text, warn: true } };
            self.events.write_line(&serde_json::to_string(&note)?, true)?;
        }
        Ok(())
    }
}

fn mark_if_due<K: Eq + Hash>(last: &mut HashMap<K, UnixMillis>, key: K, at: UnixMillis, every: i64) -> bool {
    let due = last.get(&key).is_none_or(|last| at - last >= every);
    if due {
        last.insert(key, at);
    }
    due
}

#[derive(Debug, PartialEq, Eq)]
enum WriteOutcome {
    Appended,
    /// No: and this is the first time.
    LimitReached,
    Dropped,
}

/// A file of lines that does not grow beyond its limit.
#[derive(Debug)]
struct BoundedFile {
    file: File,
    len: u64,
    limit: u64,
    full: bool,
}

impl BoundedFile {
    fn open(path: &Path, limit: u64) -> io::Result<Self> {
        let mut file = private_options(OpenOptions::new().read(true).append(true).create(true)).open(path)?;
        let mut len = file.metadata()?.len();
        if len > 0 {
            let mut last = [0];
            file.seek(SeekFrom::End(-1))?;
            file.read_exact(&mut last)?;
            if last != *b"\n" {
                // A crash cut the last line off: what follows must not become part of it.
                file.write_all(b"\n")?;
                len += 1;
            }
        }
        Ok(BoundedFile { file, len, limit, full: false })
    }

    fn write_line(&mut self, line: &str, last: bool) -> io::Result<WriteOutcome> {
        let size = line.len() as u64 + 1;
        let room = if last { self.limit + FINAL_EVENT_RESERVE } else { self.limit };
        if self.len + size > room {
            return Ok(if std::mem::replace(&mut self.full, true) { WriteOutcome::Dropped } else { WriteOutcome::LimitReached });
        }
        let mut whole = String::with_capacity(line.len() + 1);
        whole.push_str(line);
        whole.push('\n');
        self.file.write_all(whole.as_bytes())?;
        self.len += size;
        Ok(WriteOutcome::Appended)
    }
}

/// Why a journal cannot be read.
#[derive(Debug, thiserror::Error)]
pub enum JournalError {
    /// The file is not there or not readable.
    #[error("could not read {path}")]
    Io {
        path: String,
        #[source]
        source: io::Error,
    },
    /// It does not begin as a journal does.
    #[error("{path} is not a journal: {what}")]
    NotAJournal {
        path: String,
        /// What is wrong with it.
        what: String,
    },
    /// A newer program wrote it.
    #[error("{path} has format {format}; this version reads formats 1.0 to {JOURNAL_FORMAT}: install a newer orchestrate")]
    UnsupportedFormat { path: String, format: String },
}

/// Reads a journal, event by event.
#[derive(Debug)]
pub struct JournalReader<R> {
    input: R,
    path: String,
    header: JournalHeader,
    /// Records of a kind that this program does not know.
    pub unknown_records: u64,
    /// Lines that are no records.
    pub damaged_lines: u64,
    line: Vec<u8>,
}

impl JournalReader<io::BufReader<File>> {
    /// Opens a journal.
    ///
    /// # Errors
    /// When it is not there, is no journal, or has a newer major format.
    pub fn open(path: &Path) -> Result<Self, JournalError> {
        let name = path.display().to_string();
        match private_options(OpenOptions::new().read(true)).open(path) {
            Ok(file) => JournalReader::new(io::BufReader::new(file), &name),
            Err(source) => Err(JournalError::Io { path: name, source }),
        }
    }
}

impl<R: BufRead> JournalReader<R> {
    /// Reads from anything; `path` is for messages.
    ///
    /// # Errors
    /// When it does not begin with a header of a format that this version reads.
    pub fn new(mut input: R, path: &str) -> Result<Self, JournalError> {
        let mut line = Vec::new();
        let path = path.to_owned();
        if let Err(source) = input.by_ref().take(4096).read_until(b'\n', &mut line) {
            return Err(JournalError::Io { path, source });
        }
        let header: JournalHeader = match serde_json::from_slice(&line) {
            Ok(header) => header,
            Err(_) if line.is_empty() => return Err(JournalError::NotAJournal { path, what: "it is empty".to_owned() }),
            Err(_) => return Err(JournalError::NotAJournal { path, what: "its first line has no format".to_owned() }),
        };
        check_format(&path, &header)?;
        Ok(JournalReader { input, path, header, unknown_records: 0, damaged_lines: 0, line: Vec::new() })
    }

    pub fn header(&self) -> &JournalHeader {
        &self.header
    }

    /// The next event; `None` at the end.
    ///
    /// # Errors
    /// When the file cannot be read on, or continues in a newer major format.
    pub fn next_event(&mut self) -> Result<Option<Event>, JournalError> {
        loop {
            self.line.clear();
            let read = self.input.by_ref().take(MAX_LINE_BYTES).read_until(b'\n', &mut self.line);
            match read {
                Err(source) => return Err(JournalError::Io { path: self.path.clone(), source }),
                Ok(0) => return Ok(None),
                Ok(_) => {}
            }
            match serde_json::from_slice::<Event>(&self.line) {
                Ok(event) => return Ok(Some(event)),
                Err(_) => self.count_unreadable_line()?,
            }
        }
    }

    /// A line that is no event of ours.
    fn count_unreadable_line(&mut self) -> Result<(), JournalError> {
        match serde_json::from_slice::<serde_json::Value>(&self.line) {
            Ok(value) if value.get("kind").is_some_and(serde_json::Value::is_string) => self.unknown_records += 1,
            Ok(value) => match serde_json::from_value::<JournalHeader>(value) {
                Ok(header) => check_format(&self.path, &header)?,
                Err(_) => self.damaged_lines += 1,
            },
            Err(_) => self.damaged_lines += u64::from(self.line != b"\n"),
        }
        Ok(())
    }

    /// All that is left.
    ///
    /// # Errors
    /// As [`JournalReader::next_event`].
    pub fn read_all(&mut self) -> Result<Vec<Event>, JournalError> {
        let mut events = Vec::new();
        while let Some(event) = self.next_event()? {
            events.push(event);
        }
        Ok(events)
    }
}

fn check_format(path: &str, header: &JournalHeader) -> Result<(), JournalError> {
    let major = |format: &str| format.split('.').next().and_then(|major| major.parse::<u32>().ok());
    if major(&header.format).is_some_and(|found| found >= 1 && Some(found) <= major(JOURNAL_FORMAT)) {
        return Ok(());
    }
    Err(JournalError::UnsupportedFormat { path: path.to_owned(), format: header.format.chars().take(20).collect() })
}

#[cfg(test)]
#[path = "journal_tests.rs"]
mod tests;
