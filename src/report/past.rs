//! A past run as a dashboard hears it: the events of its journal with the samples among them, and the text of logs put back into them.
//!
//! Uses `journal` and `logs`. What can be read is given, and what cannot is named.

use std::collections::HashMap;
use std::path::Path;

use crate::event::{Event, EventKind, LogFile};

use super::journal::{GPUS, JOURNAL, JournalError, Reader};
use super::logs::LogStore;
use super::words;

/// The most bytes of a range that are put back: a range stands for up to ten seconds of a log, and its end is what is looked at.
const RECALLED: u64 = 64 << 10;

/// What is known of a past run.
#[derive(Debug, Default)]
pub struct Past {
    /// In the order of their time.
    pub events: Vec<Event>,
    /// What could not be read, in words; empty: all could.
    pub trouble: String,
}

/// Reads the journal and the samples in `dir`.
///
/// # Errors
/// When the journal cannot be opened, or is of another major format.
pub fn read(dir: &Path) -> Result<Past, JournalError> {
    let mut journal = Reader::open(&dir.join(JOURNAL))?;
    let mut troubles = Vec::new();
    let mut events = take(&mut journal, JOURNAL, &mut troubles);
    // A run that was never followed has no samples.
    if let Ok(mut samples) = Reader::open(&dir.join(GPUS)) {
        events.extend(take(&mut samples, GPUS, &mut troubles));
    }
    // Stable: the journal's own order stays where times are equal.
    events.sort_by_key(|event| event.at);
    Ok(Past { events, trouble: troubles.join("; ") })
}

fn take<R: std::io::BufRead>(reader: &mut Reader<R>, name: &str, troubles: &mut Vec<String>) -> Vec<Event> {
    let mut events = Vec::new();
    loop {
        match reader.read() {
            Ok(Some(event)) => events.push(event),
            Ok(None) => break,
            Err(error) => {
                let causes = std::iter::successors(Some(&error as &dyn std::error::Error), |error| error.source());
                let text: Vec<String> = causes.map(ToString::to_string).collect();
                troubles.push(format!("{name} ends here: {}", text.join(": ")));
                break;
            }
        }
    }
    for (n, what) in [(reader.damaged, "damaged line"), (reader.skipped, "line of a kind that this program does not know")] {
        if n > 0 {
            troubles.push(format!("{name}: left out {}", words::count(usize::try_from(n).unwrap_or(usize::MAX), what)));
        }
    }
    events
}

/// Puts the text of logs back into events.
pub struct Recaller {
    logs: Option<LogStore>,
    /// The hosts that numbers in events mean now.
    hosts: Vec<String>,
    /// How often each log has shrunk so far.
    shrunk: HashMap<(String, LogFile), u32>,
}

impl Recaller {
    /// From these copies.
    pub fn new(logs: Option<LogStore>) -> Self {
        Recaller { logs, hosts: Vec::new(), shrunk: HashMap::new() }
    }

    /// The events are given again from the first one.
    pub fn begin_again(&mut self) {
        self.hosts.clear();
        self.shrunk.clear();
    }

    /// The event with its log text, where the copies have it; a long range becomes two, and only the end has its text. Events come in their order.
    pub fn recall(&mut self, event: &Event) -> Vec<Event> {
        match &event.kind {
            EventKind::RunStarted(info) if !info.hosts.is_empty() => self.hosts.clone_from(&info.hosts),
            EventKind::LogShrunk { host, file, .. } => {
                if let Some(host) = self.hosts.get(*host as usize) {
                    *self.shrunk.entry((host.clone(), *file)).or_default() += 1;
                }
            }
            EventKind::Log { host, file, offset, bytes, len } if bytes.is_empty() && *len > 0 => {
                let known = (*len).min(RECALLED);
                let text = self.text((*host, *file), offset.saturating_add(len - known), known);
                return text.map_or_else(|| vec![event.clone()], |text| with_text(event, text));
            }
            _ => {}
        }
        vec![event.clone()]
    }

    fn text(&self, (host, file): (u32, LogFile), from: u64, len: u64) -> Option<Vec<u8>> {
        let (logs, host) = (self.logs.as_ref()?, self.hosts.get(host as usize)?);
        let copy = self.shrunk.get(&(host.clone(), file)).copied().unwrap_or(0) + 1;
        let most = usize::try_from(len).ok()?;
        logs.read_earlier(host, file, copy, from, most).ok().filter(|text| text.len() == most)
    }
}

/// The event with the text of its end.
fn with_text(event: &Event, text: Vec<u8>) -> Vec<Event> {
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
    fn recaller(dir: &Path, text: &[u8]) -> Recaller {
        let mut logs = LogStore::open(dir).expect("a store");
        logs.write_at("a", LogFile::Node, 0, text).expect("written");
        let mut recaller = Recaller::new(Some(logs));
        started(&mut recaller, &["b", "a"]);
        recaller
    }

    fn started(recaller: &mut Recaller, hosts: &[&str]) {
        let info = RunInfo { hosts: hosts.iter().map(|host| (*host).to_owned()).collect(), ..RunInfo::default() };
        recaller.recall(&Event { seq: 1, at: 5, kind: EventKind::RunStarted(info) });
    }

    fn log(host: u32, offset: u64, len: u64) -> Event {
        Event { seq: 1, at: 5, kind: EventKind::Log { host, file: LogFile::Node, offset, bytes: bytes::Bytes::new(), len } }
    }

    #[test]
    fn text_is_put_back_where_it_is_known() {
        let dir = tempfile::tempdir().expect("a folder");
        let mut logs = recaller(dir.path(), ("x".repeat(100_000) + "end\n").as_bytes());
        let told = |event: &Event| match &event.kind {
            EventKind::Log { offset, bytes, len, .. } => (*offset, bytes.len() as u64, *len),
            other => panic!("{other:?}"),
        };
        let recalled = |event: &Event, logs: &mut Recaller| logs.recall(event).iter().map(told).collect::<Vec<_>>();
        assert_eq!(recalled(&log(1, 100_000, 4), &mut logs), [(100_000, 4, 4)]);
        assert_eq!(recalled(&log(1, 0, 100_004), &mut logs), [(0, 0, 34_468), (34_468, 65_536, 65_536)]);
        assert_eq!(recalled(&log(1, 100_000, 9), &mut logs), [(100_000, 0, 9)], "not all of it is there");
        assert_eq!(recalled(&log(0, 100_000, 4), &mut logs), [(100_000, 0, 4)], "nothing of that host is there");
        started(&mut logs, &["a", "b"]);
        assert_eq!(recalled(&log(0, 100_000, 4), &mut logs), [(100_000, 4, 4)], "a later command had another order");
        assert_eq!(recalled(&log(1, 100_000, 4), &mut Recaller::new(None)), [(100_000, 0, 4)]);
        assert_eq!(logs.recall(&Event { seq: 1, at: 5, kind: EventKind::Ready }).len(), 1);
    }

    #[test]
    fn what_came_before_a_log_shrank_is_read_from_the_copy_that_was_kept() {
        let dir = tempfile::tempdir().expect("a folder");
        let mut logs = recaller(dir.path(), b"before\n");
        if let Some(store) = &mut logs.logs {
            store.new_generation("a", LogFile::Node, 0).expect("kept");
            store.write_at("a", LogFile::Node, 0, b"after!\n").expect("written");
        }
        let text = |logs: &mut Recaller| match &logs.recall(&log(1, 0, 7))[0].kind {
            EventKind::Log { bytes, .. } => bytes.to_vec(),
            other => panic!("{other:?}"),
        };
        assert_eq!(text(&mut logs), b"before\n");
        logs.recall(&Event { seq: 1, at: 5, kind: EventKind::LogShrunk { host: 1, file: LogFile::Node, size: 7 } });
        assert_eq!(text(&mut logs), b"after!\n");
    }

    #[test]
    fn what_follows_a_gap_begins_with_a_whole_line() {
        let dir = tempfile::tempdir().expect("a folder");
        let text = "x".repeat(100_004) + "half\n" + &"y\n".repeat(32_767);
        let told = recaller(dir.path(), text.as_bytes()).recall(&log(1, 0, text.len() as u64));
        let EventKind::Log { offset, bytes, len, .. } = &told[1].kind else { panic!("a log") };
        assert_eq!((*offset, *len, &bytes[..4]), (100_009, 65_534, &b"y\ny\n"[..]));
    }
}
