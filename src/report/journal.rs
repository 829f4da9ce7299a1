//! The journal: one event per line, for replay and for the list of past runs.
//!
//! It holds log ranges, never log bytes. Samples go to a file of their own, one per kind and host in ten seconds.
//! A reader skips unknown kinds, refuses a newer major format, and tolerates a last line that a crash truncated.

use std::collections::HashMap;
use std::fs::{File, OpenOptions};
use std::hash::Hash;
use std::io::{self, BufRead, Read, Seek, SeekFrom, Write};
use std::mem::Discriminant;
use std::path::Path;

use serde::{Deserialize, Serialize};

use crate::event::stop_orders::StopOrders;
use crate::event::{Event, EventKind, JOURNAL_FORMAT, LogFile, UnixMillis};

use super::private_files::private_options;
use crate::text::sanitize::Sanitizer;

pub const JOURNAL_FILE: &str = "journal.jsonl";
pub const SAMPLES_FILE: &str = "gpus.jsonl";
/// The size limit of either file.
pub const MAX_JOURNAL_BYTES: u64 = 64 << 20;
/// Kept free for the last event.
const FINAL_EVENT_RESERVE: u64 = 64 << 10;
/// At most one sample per kind and host, and one log range per file, in this time.
const SAMPLE_INTERVAL_MS: i64 = 10_000;
/// At most one disk record per host in this time.
const DISK_INTERVAL_MS: i64 = 600_000;
/// The longest line that the reader accepts.
const MAX_LINE_BYTES: u64 = 32 << 20;

/// The first record, repeated by every process that appends to the journal.
#[derive(Debug, Clone, PartialEq, Eq, Serialize, Deserialize)]
pub struct JournalHeader {
    /// `major.minor`.
    pub format: String,
    pub orchestrate: String,
}

impl JournalHeader {
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
    /// Appends to the journal in `dir`, or creates it.
    ///
    /// # Errors
    /// When a file cannot be opened or written.
    pub fn open(dir: &Path, sanitizer: Sanitizer) -> io::Result<Self> {
        Self::with_limit(dir, sanitizer, MAX_JOURNAL_BYTES)
    }

    fn with_limit(dir: &Path, sanitizer: Sanitizer, limit: u64) -> io::Result<Self> {
        let header = serde_json::to_string(&JournalHeader::current())?;
        let mut events = BoundedFile::open(&dir.join(JOURNAL_FILE), limit)?;
        let mut samples = BoundedFile::open(&dir.join(SAMPLES_FILE), limit)?;
        events.write_line(&header, true)?;
        samples.write_line(&header, false)?;
        Ok(Journal { events, samples, sanitizer, pending_ranges: HashMap::new(), last_samples: HashMap::new(), last_disk: HashMap::new() })
    }

    /// # Errors
    /// When the file cannot be written.
    pub fn record_event(&mut self, event: &Event) -> io::Result<()> {
        match &event.kind {
            EventKind::Log { host, file, offset, len, .. } => self.merge_log_range(event, (*host, *file), *offset, *len),
            EventKind::Gpus { host, .. }
            | EventKind::GpuProcesses { host, .. }
            | EventKind::HostMetrics { host, .. }
            | EventKind::StepProgress { host, .. } => {
                let key = (*host, std::mem::discriminant(&event.kind));
                if mark_if_due(&mut self.last_samples, key, event.at, SAMPLE_INTERVAL_MS) { self.write_sample(event) } else { Ok(()) }
            }
            // Rare, since the user requests it.
            EventKind::NvidiaSmi { .. } => self.write_sample(event),
            EventKind::DiskSpace { host, .. } if !mark_if_due(&mut self.last_disk, *host, event.at, DISK_INTERVAL_MS) => Ok(()),
            _ => {
                self.flush()?;
                let last = matches!(event.kind, EventKind::RunFinished { .. });
                self.write_event(event, last)
            }
        }
    }

    /// Writes the pending log ranges.
    ///
    /// # Errors
    /// When the file cannot be written.
    pub fn flush(&mut self) -> io::Result<()> {
        let mut ranges: Vec<Event> = self.pending_ranges.drain().map(|(_, event)| event).collect();
        ranges.sort_by_key(|event| event.seq);
        ranges.iter().try_for_each(|event| self.write_event(event, false))
    }

    /// Merges adjacent log ranges. A merged range keeps the time of its first event and the number of its last.
    fn merge_log_range(&mut self, event: &Event, key: (u32, LogFile), offset: u64, len: u64) -> io::Result<()> {
        if let Some(pending) = self.pending_ranges.get_mut(&key) {
            let at = pending.at;
            if let EventKind::Log { offset: start, len: pending_len, .. } = &mut pending.kind
                && *start + *pending_len == offset
                && event.at - at < SAMPLE_INTERVAL_MS
            {
                *pending_len += len;
                pending.seq = event.seq;
                return Ok(());
            }
            let old = self.pending_ranges.remove(&key);
            old.map_or(Ok(()), |old| self.write_event(&old, false))?;
        }
        let kind = EventKind::Log { host: key.0, file: key.1, offset, bytes: bytes::Bytes::new(), len };
        self.pending_ranges.insert(key, Event { seq: event.seq, at: event.at, kind });
        Ok(())
    }

    /// Masks those that name processes: in the others a secret of digits alone would hide figures.
    fn write_sample(&mut self, event: &Event) -> io::Result<()> {
        let line = serde_json::to_string(event)?;
        let line = match event.kind {
            EventKind::GpuProcesses { .. } | EventKind::NvidiaSmi { .. } => self.sanitizer.mask_json(line),
            _ => line,
        };
        self.samples.write_line(&line, false).map(drop)
    }

    fn write_event(&mut self, event: &Event, last: bool) -> io::Result<()> {
        let line = self.sanitizer.mask_json(serde_json::to_string(event)?);
        if self.events.write_line(&line, last)? {
            let text = "the journal is full: later events are not recorded".to_owned();
            let notice = Event { seq: event.seq, at: event.at, kind: EventKind::Notice { host: None, text, warn: true } };
            self.events.write_line(&serde_json::to_string(&notice)?, true)?;
        }
        Ok(())
    }
}

fn mark_if_due<K: Eq + Hash>(last: &mut HashMap<K, UnixMillis>, key: K, at: UnixMillis, interval: i64) -> bool {
    let due = last.get(&key).is_none_or(|last| at - last >= interval);
    if due {
        last.insert(key, at);
    }
    due
}

/// A file of lines with a size limit.
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
                // A crash truncated the last line: terminate it, so that the next record gets its own line.
                file.write_all(b"\n")?;
                len += 1;
            }
        }
        Ok(BoundedFile { file, len, limit, full: false })
    }

    /// Appends a line, or drops it where the file would be too long. Whether it is the first one that is dropped.
    fn write_line(&mut self, line: &str, last: bool) -> io::Result<bool> {
        let size = line.len() as u64 + 1;
        let limit = if last { self.limit + FINAL_EVENT_RESERVE } else { self.limit };
        if self.len + size > limit {
            return Ok(!std::mem::replace(&mut self.full, true));
        }
        self.file.write_all(format!("{line}\n").as_bytes())?;
        self.len += size;
        Ok(false)
    }
}

/// Why a journal cannot be read.
#[derive(Debug, thiserror::Error)]
pub enum JournalError {
    #[error("could not read {path}")]
    Io {
        path: String,
        #[source]
        source: io::Error,
    },
    /// It does not begin with a header.
    #[error("{path} is not a journal: {what}")]
    NotAJournal { path: String, what: String },
    /// A newer version wrote it.
    #[error("{path} has format {format}; this version reads formats 1.0 to {JOURNAL_FORMAT}: install a newer orchestrate")]
    UnsupportedFormat { path: String, format: String },
}

#[derive(Debug)]
pub struct JournalReader<R> {
    input: R,
    path: String,
    /// Records of a kind that this version does not know.
    pub unknown_records: u64,
    /// Lines that are not records.
    pub damaged_lines: u64,
    line: Vec<u8>,
    stop_orders: StopOrders,
}

impl JournalReader<io::BufReader<File>> {
    /// # Errors
    /// When the file cannot be read, is not a journal, or has a newer major format.
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
        Ok(JournalReader { input, path, unknown_records: 0, damaged_lines: 0, line: Vec::new(), stop_orders: StopOrders::default() })
    }

    /// The next event; `None` at the end.
    ///
    /// # Errors
    /// When the file cannot be read, or continues in a newer major format.
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
                Ok(mut event) => {
                    // Older formats have no stamp.
                    self.stop_orders.stamp(&mut event.kind, event.at);
                    return Ok(Some(event));
                }
                Err(_) => self.count_unreadable_line()?,
            }
        }
    }

    /// Counts a line that is not an event of ours as unknown or damaged.
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

    /// All remaining events.
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
