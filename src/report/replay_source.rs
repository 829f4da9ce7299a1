//! A past run as a dashboard hears it: the events of its journal with the samples among them, and the text of logs put back into them.
//!
//! Uses `journal` and `logs`. What can be read is given, and what cannot is named.

use std::collections::HashMap;
use std::path::Path;

use crate::event::{Event, EventKind, LogFile};

use super::journal::{JOURNAL_FILE, JournalError, JournalReader, SAMPLES_FILE};
use super::log_store::LogStore;
use super::style;

/// The most bytes of a range that are put back: a range stands for up to ten seconds of a log, and its end is what is looked at.
const MAX_RESTORED_BYTES: u64 = 64 << 10;

/// What is known of a past run.
#[derive(Debug, Default)]
pub(crate) struct ReplayData {
    /// In the order of their time.
    pub events: Vec<Event>,
    /// What could not be read, in words; empty: all could.
    pub problems: String,
}

/// Reads the journal and the samples in `dir`.
///
/// # Errors
/// When the journal cannot be opened, or is of another major format.
pub(crate) fn load_replay(dir: &Path) -> Result<ReplayData, JournalError> {
    let mut journal = JournalReader::open(&dir.join(JOURNAL_FILE))?;
    let mut troubles = Vec::new();
    let mut events = read_events(&mut journal, JOURNAL_FILE, &mut troubles);
    // A run that was never followed has no samples.
    if let Ok(mut samples) = JournalReader::open(&dir.join(SAMPLES_FILE)) {
        events.extend(read_events(&mut samples, SAMPLES_FILE, &mut troubles));
    }
    // Stable: the journal's own order stays where times are equal.
    events.sort_by_key(|event| event.at);
    Ok(ReplayData { events, problems: troubles.join("; ") })
}

fn read_events<R: std::io::BufRead>(reader: &mut JournalReader<R>, name: &str, problems: &mut Vec<String>) -> Vec<Event> {
    let mut events = Vec::new();
    loop {
        match reader.next_event() {
            Ok(Some(event)) => events.push(event),
            Ok(None) => break,
            Err(error) => {
                let causes = std::iter::successors(Some(&error as &dyn std::error::Error), |error| error.source());
                let text: Vec<String> = causes.map(ToString::to_string).collect();
                problems.push(format!("{name} ends here: {}", text.join(": ")));
                break;
            }
        }
    }
    for (n, what) in [(reader.damaged_lines, "damaged line"), (reader.unknown_records, "line of a kind that this program does not know")] {
        if n > 0 {
            problems.push(format!("{name}: left out {}", style::count_noun(usize::try_from(n).unwrap_or(usize::MAX), what)));
        }
    }
    events
}

/// Puts the text of logs back into events.
pub(crate) struct LogTextLoader {
    logs: Option<LogStore>,
    /// The hosts that numbers in events mean now.
    hosts: Vec<String>,
    /// How often each log has shrunk so far.
    shrink_counts: HashMap<(String, LogFile), u32>,
}

impl LogTextLoader {
    pub(crate) fn new(logs: Option<LogStore>) -> Self {
        LogTextLoader { logs, hosts: Vec::new(), shrink_counts: HashMap::new() }
    }

    /// The events are given again from the first one.
    pub(crate) fn restart(&mut self) {
        self.hosts.clear();
        self.shrink_counts.clear();
    }

    /// The event with its log text, where the copies have it; a long range becomes two, and only the end has its text. Events come in their order.
    pub(crate) fn fill_log_text(&mut self, event: &Event) -> Vec<Event> {
        match &event.kind {
            EventKind::RunStarted(info) if !info.hosts.is_empty() => self.hosts.clone_from(&info.hosts),
            EventKind::LogTruncated { host, file, .. } => {
                if let Some(host) = self.hosts.get(*host as usize) {
                    *self.shrink_counts.entry((host.clone(), *file)).or_default() += 1;
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

    fn read_text(&self, (host, file): (u32, LogFile), from: u64, len: u64) -> Option<Vec<u8>> {
        let (logs, host) = (self.logs.as_ref()?, self.hosts.get(host as usize)?);
        let copy = self.shrink_counts.get(&(host.clone(), file)).copied().unwrap_or(0) + 1;
        let most = usize::try_from(len).ok()?;
        logs.read_generation(host, file, copy, from, most).ok().filter(|text| text.len() == most)
    }
}

/// The event with the text of its end.
fn split_event_with_text(event: &Event, text: Vec<u8>) -> Vec<Event> {
    let EventKind::Log { host, file, offset, len, .. } = &event.kind else { return vec![event.clone()] };
    let known = text.len() as u64;
    // Where something is left out, what follows begins with a whole line.
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

    /// Copies of host `a`'s launcher log, and who puts them back.
    fn text_loader(dir: &Path, text: &[u8]) -> LogTextLoader {
        let mut logs = LogStore::open(dir).expect("a store");
        logs.write_at("a", LogFile::Launcher, 0, text).expect("written");
        let mut recaller = LogTextLoader::new(Some(logs));
        start_run(&mut recaller, &["b", "a"]);
        recaller
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
        let told = |event: &Event| match &event.kind {
            EventKind::Log { offset, bytes, len, .. } => (*offset, bytes.len() as u64, *len),
            other => panic!("{other:?}"),
        };
        let recalled = |event: &Event, logs: &mut LogTextLoader| logs.fill_log_text(event).iter().map(told).collect::<Vec<_>>();
        assert_eq!(recalled(&log_event(1, 100_000, 4), &mut logs), [(100_000, 4, 4)]);
        assert_eq!(recalled(&log_event(1, 0, 100_004), &mut logs), [(0, 0, 34_468), (34_468, 65_536, 65_536)]);
        assert_eq!(recalled(&log_event(1, 100_000, 9), &mut logs), [(100_000, 0, 9)], "not all of it is there");
        assert_eq!(recalled(&log_event(0, 100_000, 4), &mut logs), [(100_000, 0, 4)], "nothing of that host is there");
        start_run(&mut logs, &["a", "b"]);
        assert_eq!(recalled(&log_event(0, 100_000, 4), &mut logs), [(100_000, 4, 4)], "a later command had another order");
        assert_eq!(recalled(&log_event(1, 100_000, 4), &mut LogTextLoader::new(None)), [(100_000, 0, 4)]);
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
        let told = text_loader(dir.path(), text.as_bytes()).fill_log_text(&log_event(1, 0, text.len() as u64));
        let EventKind::Log { offset, bytes, len, .. } = &told[1].kind else { panic!("a log") };
        assert_eq!((*offset, *len, &bytes[..4]), (100_009, 65_534, &b"y\ny\n"[..]));
    }
}
