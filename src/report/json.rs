//! Events as JSON lines (`--progress json`): a header with the format, then one object per event.
//!
//! Log bytes become text, split after newlines, with invalid UTF-8 replaced; the log files hold the exact bytes.

use std::collections::HashMap;
use std::io;

use serde::Serialize;

use crate::diagnose::DiagnosisFinding;
use crate::event::{Event, EventKind, LogFile, UnixMillis};
use crate::state::RunState;

use super::ReportSink;
use super::finding::FindingReport;
use super::journal::JournalHeader;
use super::line_writer::LineOutput;
use crate::text::sanitize::{Sanitizer, escape_json};

/// An unfinished line is held back up to this many bytes, so that no secret and no character is split.
const MAX_PENDING_BYTES: usize = 64 << 10;

/// Log lines of one file.
#[derive(Serialize)]
struct LogRecord<'a> {
    seq: u64,
    at: UnixMillis,
    kind: &'static str,
    host: u32,
    name: &'a str,
    file: LogFile,
    offset: u64,
    len: u64,
    text: String,
}

impl<'a> LogRecord<'a> {
    fn new((seq, at): (u64, UnixMillis), (host, file): (u32, LogFile), name: &'a str, (offset, bytes): (u64, &[u8])) -> LogRecord<'a> {
        let text = String::from_utf8_lossy(bytes).into_owned();
        LogRecord { seq, at, kind: "log", host, name, file, offset, len: bytes.len() as u64, text }
    }
}

/// A finding; all findings precede the last event.
#[derive(Serialize)]
struct FindingRecord {
    seq: u64,
    at: UnixMillis,
    kind: &'static str,
    #[serde(flatten)]
    finding: FindingReport,
}

#[derive(Default)]
struct PendingLog {
    offset: u64,
    bytes: Vec<u8>,
}

pub(crate) struct JsonSink<O> {
    out: O,
    sanitizer: Sanitizer,
    pending_logs: HashMap<(u32, LogFile), PendingLog>,
    header_written: bool,
}

impl<O: LineOutput> JsonSink<O> {
    pub(crate) fn new(out: O, sanitizer: Sanitizer) -> Self {
        JsonSink { out, sanitizer, pending_logs: HashMap::new(), header_written: false }
    }

    fn write_json(&mut self, value: &impl Serialize) -> io::Result<()> {
        let line = self.sanitizer.mask_json(serde_json::to_string(value)?);
        self.out.write_line(&escape_json(&line))
    }

    /// Writes the whole lines of a log event; the rest waits for the next one.
    fn write_log(&mut self, event: &Event, state: &RunState) -> io::Result<()> {
        let EventKind::Log { host, file, offset, ref bytes, .. } = event.kind else { return Ok(()) };
        let key = (host, file);
        let pending = self.pending_logs.entry(key).or_default();
        if pending.bytes.is_empty() || pending.offset + pending.bytes.len() as u64 != offset {
            pending.bytes.clear();
            pending.offset = offset;
        }
        pending.bytes.extend_from_slice(bytes);
        let ready_len = match memchr::memrchr(b'\n', &pending.bytes) {
            Some(at) => at + 1,
            None if pending.bytes.len() > MAX_PENDING_BYTES => pending.bytes.len(),
            None => return Ok(()),
        };
        let ready: Vec<u8> = pending.bytes.drain(..ready_len).collect();
        let start = pending.offset;
        pending.offset += ready_len as u64;
        self.write_json(&LogRecord::new((event.seq, event.at), key, state.host_name(host), (start, &ready)))
    }

    /// Writes what is left without a newline, before the last event of the run.
    fn flush_pending(&mut self, stamp: (u64, UnixMillis), state: &RunState) -> io::Result<()> {
        let mut pending: Vec<((u32, LogFile), PendingLog)> = self.pending_logs.drain().filter(|(_, log)| !log.bytes.is_empty()).collect();
        pending.sort_by_key(|(key, _)| *key);
        pending
            .into_iter()
            .try_for_each(|(key, log)| self.write_json(&LogRecord::new(stamp, key, state.host_name(key.0), (log.offset, &log.bytes))))
    }
}

impl<O: LineOutput> ReportSink for JsonSink<O> {
    fn on_event(&mut self, event: &Event, state: &RunState) -> io::Result<()> {
        if !self.header_written {
            self.header_written = true;
            self.write_json(&JournalHeader::current())?;
        }
        match &event.kind {
            EventKind::Log { .. } => self.write_log(event, state)?,
            EventKind::LogTruncated { host, file, .. } => {
                self.pending_logs.remove(&(*host, *file));
                self.write_json(event)?;
            }
            EventKind::RunFinished { .. } => {
                self.flush_pending((event.seq, event.at), state)?;
                self.write_json(event)?;
            }
            _ => self.write_json(event)?,
        }
        self.out.flush()
    }

    fn on_findings(&mut self, findings: &[DiagnosisFinding], state: &RunState) -> io::Result<()> {
        findings.iter().try_for_each(|finding| {
            self.write_json(&FindingRecord {
                seq: state.last_seq,
                at: state.last_event_at,
                kind: "finding",
                finding: FindingReport::new(finding, state),
            })
        })
    }

    fn finish(&mut self, state: &RunState) -> io::Result<()> {
        self.flush_pending((state.last_seq, state.last_event_at), state)?;
        self.out.flush()
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::event::Outcome;
    use crate::report::test_support::{SinkHarness, rank_log, run_started};

    #[test]
    fn json_lines_hold_whole_log_lines() {
        let mut harness = SinkHarness::new(JsonSink::new(Vec::new(), Sanitizer::new(&["s3cret".to_owned()])));
        harness.emit(0, run_started(2, 1, &[]));
        harness.emit(1, rank_log(1, 1, 0, "one\nmy s3c"));
        harness.emit(1, rank_log(1, 1, 10, "ret \u{9b}31m\u{7f}\nrest"));
        harness.emit(1, EventKind::RunFinished { outcome: Outcome::Ok, reason: String::new() });
        harness.finish();
        let lines = std::mem::take(&mut harness.sink.out);
        assert!(lines.iter().all(|line| !line.chars().any(char::is_control)));
        let values: Vec<serde_json::Value> = lines.iter().map(|line| serde_json::from_str(line).expect("an object")).collect();
        assert_eq!(values[0]["format"], crate::event::JOURNAL_FORMAT);
        let logs: Vec<(u64, u64, &str, &str)> = values
            .iter()
            .filter(|value| value["kind"] == "log")
            .map(|value| {
                let number = |key: &str| value[key].as_u64().expect("a number");
                (number("offset"), number("len"), value["name"].as_str().expect("text"), value["text"].as_str().expect("text"))
            })
            .collect();
        let expected = [(0, 4, "gpu02", "one\n"), (4, 17, "gpu02", "my *** \u{9b}31m\u{7f}\n"), (21, 4, "gpu02", "rest")];
        assert_eq!(logs, expected);
        assert_eq!(values.last().map(|value| value["kind"].clone()), Some("run-finished".into()));
    }

    #[test]
    fn endless_line_memory_is_bounded() {
        let mut harness = SinkHarness::new(JsonSink::new(Vec::new(), Sanitizer::default()));
        harness.emit(0, run_started(1, 1, &[]));
        for n in 0..100_u64 {
            harness.emit(1, rank_log(0, 0, n * 10_000, &"x".repeat(10_000)));
        }
        assert!(harness.sink.pending_logs.values().all(|log| log.bytes.len() <= MAX_PENDING_BYTES + 10_000));
        assert!(harness.sink.out.len() > 10);
    }
}
