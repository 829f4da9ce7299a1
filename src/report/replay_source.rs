//! Loads a past run for replay: the journal's events merged with the samples, and log text restored from the copies.
//!
//! Unreadable records are counted and reported; the rest is replayed.

use std::collections::HashMap;
use std::path::Path;

use crate::event::{Event, EventKind, LogFile};
use crate::text::error_chain::error_chain;
use crate::text::plural::count_noun;

use super::journal::{JOURNAL_FILE, JournalError, JournalReader, SAMPLES_FILE};
use super::log_store::LogStore;

/// The maximum text restored for one range. A range covers up to ten seconds of a log; the dashboard shows its end.
const MAX_RESTORED_BYTES: u64 = 64 << 10;

#[derive(Debug, Default)]
pub(crate) struct ReplayData {
    /// Sorted by time.
    pub events: Vec<Event>,
    /// What could not be read; empty if everything could.
    pub problems: String,
}

/// Reads the journal and the samples in `dir`.
///
/// # Errors
/// When the journal cannot be opened, or has another major format.
pub(crate) fn load_replay(dir: &Path) -> Result<ReplayData, JournalError> {
    let mut journal = JournalReader::open(&dir.join(JOURNAL_FILE))?;
    let mut problems = Vec::new();
    let mut events = read_events(&mut journal, JOURNAL_FILE, &mut problems);
    // A run that was never followed has no samples.
    if let Ok(mut samples) = JournalReader::open(&dir.join(SAMPLES_FILE)) {
        events.extend(read_events(&mut samples, SAMPLES_FILE, &mut problems));
    }
    // A stable sort keeps the journal's order of equal times.
    events.sort_by_key(|event| event.at);
    Ok(ReplayData { events, problems: problems.join("; ") })
}

fn read_events<R: std::io::BufRead>(reader: &mut JournalReader<R>, name: &str, problems: &mut Vec<String>) -> Vec<Event> {
    let mut events = Vec::new();
    loop {
        match reader.next_event() {
            Ok(Some(event)) => events.push(event),
            Ok(None) => break,
            Err(error) => {
                problems.push(format!("{name} is unreadable from here on: {}", error_chain(&error)));
                break;
            }
        }
    }
    let count = |n: u64, noun: &str| (n > 0).then(|| count_noun(usize::try_from(n).unwrap_or(usize::MAX), noun));
    let skipped = [(count(reader.damaged_lines, "damaged line"), ""), (count(reader.unknown_records, "record"), " of an unknown kind")];
    for (text, suffix) in skipped {
        problems.extend(text.map(|text| format!("{name}: skipped {text}{suffix}")));
    }
    events
}

/// Restores the log text of events.
pub(crate) struct LogTextLoader {
    logs: Option<LogStore>,
    /// The hosts that the events' indexes refer to.
    hosts: Vec<String>,
    /// How often each log was truncated so far.
    truncation_counts: HashMap<(String, LogFile), u32>,
}

impl LogTextLoader {
    pub(crate) fn new(logs: Option<LogStore>) -> Self {
        LogTextLoader { logs, hosts: Vec::new(), truncation_counts: HashMap::new() }
    }

    /// The replay starts again at the first event.
    pub(crate) fn restart(&mut self) {
        self.hosts.clear();
        self.truncation_counts.clear();
    }

    /// Restores an event's log text from the copies. A long range is split in two, and only its end has text. Call it in event order.
    pub(crate) fn fill_log_text(&mut self, event: &Event) -> Vec<Event> {
        match &event.kind {
            EventKind::RunStarted(info) if !info.hosts.is_empty() => self.hosts.clone_from(&info.hosts),
            EventKind::LogTruncated { host, file, .. } => {
                if let Some(host) = self.hosts.get(*host as usize) {
                    *self.truncation_counts.entry((host.clone(), *file)).or_default() += 1;
                }
            }
            EventKind::Log { host, file, offset, bytes, len } if bytes.is_empty() && *len > 0 => {
                let known = (*len).min(MAX_RESTORED_BYTES);
                let text = self.read_text((*host, *file), offset.saturating_add(len - known), known);
                return text.map_or_else(|| vec![event.clone()], |text| split_event_with_text(event, text));
            }
            _ => {}
        }
        vec![event.clone()]
    }

    fn read_text(&self, (host, file): (u32, LogFile), offset: u64, len: u64) -> Option<Vec<u8>> {
        let (logs, host) = (self.logs.as_ref()?, self.hosts.get(host as usize)?);
        let generation = self.truncation_counts.get(&(host.clone(), file)).copied().unwrap_or(0) + 1;
        let range = offset..offset.saturating_add(len);
        logs.read_generation(host, file, generation, range).ok().filter(|text| text.len() as u64 == len)
    }
}

/// Splits an event into a part without text and its end with text.
fn split_event_with_text(event: &Event, text: Vec<u8>) -> Vec<Event> {
    let EventKind::Log { host, file, offset, len, .. } = &event.kind else { return vec![event.clone()] };
    let known = text.len() as u64;
    // If the beginning has no text, the end starts at a line.
    let cut = text.iter().position(|byte| *byte == b'\n').filter(|at| known < *len && at + 1 < text.len()).map_or(0, |at| at + 1);
    let (from, known, text) = (offset + (len - known) + cut as u64, known - cut as u64, bytes::Bytes::from(text).slice(cut..));
    let piece = |offset: u64, bytes: bytes::Bytes, len: u64| Event {
        kind: EventKind::Log { host: *host, file: *file, offset, bytes, len },
        ..*event
    };
    let end = piece(from, text, known);
    if known == *len { vec![end] } else { vec![piece(*offset, bytes::Bytes::new(), len - known), end] }
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::event::RunInfo;

    /// A loader for a copy of host `a`'s launcher log.
    fn text_loader(dir: &Path, text: &[u8]) -> LogTextLoader {
        let mut logs = LogStore::open(dir).expect("a store");
        logs.write_at("a", LogFile::Launcher, 0, text).expect("written");
        let mut loader = LogTextLoader::new(Some(logs));
        start_run(&mut loader, &["b", "a"]);
        loader
    }

    fn start_run(loader: &mut LogTextLoader, hosts: &[&str]) {
        let info = RunInfo { hosts: hosts.iter().map(|host| (*host).to_owned()).collect(), ..RunInfo::default() };
        loader.fill_log_text(&Event { seq: 1, at: 5, kind: EventKind::RunStarted(info) });
    }

    fn log_event(host: u32, offset: u64, len: u64) -> Event {
        Event { seq: 1, at: 5, kind: EventKind::Log { host, file: LogFile::Launcher, offset, bytes: bytes::Bytes::new(), len } }
    }

    #[test]
    fn log_text_is_restored_where_stored() {
        let dir = tempfile::tempdir().expect("a folder");
        let mut logs = text_loader(dir.path(), ("x".repeat(100_000) + "end\n").as_bytes());
        let range = |event: &Event| match &event.kind {
            EventKind::Log { offset, bytes, len, .. } => (*offset, bytes.len() as u64, *len),
            other => panic!("{other:?}"),
        };
        let loaded = |event: &Event, logs: &mut LogTextLoader| logs.fill_log_text(event).iter().map(range).collect::<Vec<_>>();
        assert_eq!(loaded(&log_event(1, 100_000, 4), &mut logs), [(100_000, 4, 4)]);
        assert_eq!(loaded(&log_event(1, 0, 100_004), &mut logs), [(0, 0, 34_468), (34_468, 65_536, 65_536)]);
        assert_eq!(loaded(&log_event(1, 100_000, 9), &mut logs), [(100_000, 0, 9)], "the copy is shorter");
        assert_eq!(loaded(&log_event(0, 100_000, 4), &mut logs), [(100_000, 0, 4)], "no copy of that host");
        start_run(&mut logs, &["a", "b"]);
        assert_eq!(loaded(&log_event(0, 100_000, 4), &mut logs), [(100_000, 4, 4)], "a later command had another order");
        assert_eq!(loaded(&log_event(1, 100_000, 4), &mut LogTextLoader::new(None)), [(100_000, 0, 4)]);
        assert_eq!(logs.fill_log_text(&Event { seq: 1, at: 5, kind: EventKind::Ready }).len(), 1);
    }

    #[test]
    fn text_before_shrink_comes_from_generation() {
        let dir = tempfile::tempdir().expect("a folder");
        let mut logs = text_loader(dir.path(), b"before\n");
        if let Some(store) = &mut logs.logs {
            store.start_new_generation("a", LogFile::Launcher, 0).expect("kept");
            store.write_at("a", LogFile::Launcher, 0, b"after!\n").expect("written");
        }
        let text = |logs: &mut LogTextLoader| match &logs.fill_log_text(&log_event(1, 0, 7))[0].kind {
            EventKind::Log { bytes, .. } => bytes.to_vec(),
            other => panic!("{other:?}"),
        };
        assert_eq!(text(&mut logs), b"before\n");
        logs.fill_log_text(&Event { seq: 1, at: 5, kind: EventKind::LogTruncated { host: 1, file: LogFile::Launcher, size: 7 } });
        assert_eq!(text(&mut logs), b"after!\n");
    }

    #[test]
    fn text_after_gap_starts_at_a_line() {
        let dir = tempfile::tempdir().expect("a folder");
        let text = "x".repeat(100_004) + "half\n" + &"y\n".repeat(32_767);
        let events = text_loader(dir.path(), text.as_bytes()).fill_log_text(&log_event(1, 0, text.len() as u64));
        let EventKind::Log { offset, bytes, len, .. } = &events[1].kind else { panic!("a log") };
        assert_eq!((*offset, *len, &bytes[..4]), (100_009, 65_534, &b"y\ny\n"[..]));
    }
}
