//! A past run as a dashboard hears it: the events of its journal with the samples among them, and the text of logs put back into them.
//!
//! Uses `journal` and `logs`. What can be read is given, and what cannot is named.

use std::path::Path;

use crate::event::{Event, EventKind};

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

/// The event with its log text, where the copies have it; a long range becomes two, and only the end has its text.
pub fn recall(event: &Event, logs: Option<&LogStore>) -> Vec<Event> {
    let EventKind::Log { host, file, offset, bytes, len } = &event.kind else { return vec![event.clone()] };
    let known = (*len).min(RECALLED);
    let from = offset.saturating_add(len - known);
    let most = usize::try_from(known).unwrap_or(0);
    let text = logs.filter(|_| bytes.is_empty() && most > 0).and_then(|logs| logs.read_at(*host, *file, from, most).ok());
    let Some(text) = text.filter(|text| text.len() == most) else { return vec![event.clone()] };
    // Where something is left out, what follows begins with a whole line.
    let cut = text.iter().position(|byte| *byte == b'\n').filter(|at| known < *len && at + 1 < text.len()).map_or(0, |at| at + 1);
    let (from, known, text) = (from + cut as u64, known - cut as u64, bytes::Bytes::from(text).slice(cut..));
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
    use crate::event::LogFile;

    #[test]
    fn text_is_put_back_where_it_is_known() {
        let dir = tempfile::tempdir().expect("a folder");
        let mut logs = LogStore::open(dir.path()).expect("a store");
        let text = "x".repeat(100_000) + "end\n";
        logs.write_at(0, LogFile::Node, 0, text.as_bytes()).expect("written");
        let log = |offset, len| Event {
            seq: 1,
            at: 5,
            kind: EventKind::Log { host: 0, file: LogFile::Node, offset, bytes: bytes::Bytes::new(), len },
        };
        let told = |event: &Event| match &event.kind {
            EventKind::Log { offset, bytes, len, .. } => (*offset, bytes.len() as u64, *len),
            other => panic!("{other:?}"),
        };
        let recalled = |event: &Event, logs| recall(event, logs).iter().map(told).collect::<Vec<_>>();
        assert_eq!(recalled(&log(100_000, 4), Some(&logs)), [(100_000, 4, 4)]);
        assert_eq!(recalled(&log(0, 100_004), Some(&logs)), [(0, 0, 34_468), (34_468, 65_536, 65_536)]);
        assert_eq!(recalled(&log(100_000, 9), Some(&logs)), [(100_000, 0, 9)], "not all of it is there");
        assert_eq!(recalled(&log(100_000, 4), None), [(100_000, 0, 4)]);
        assert_eq!(recall(&Event { seq: 1, at: 5, kind: EventKind::Ready }, Some(&logs)).len(), 1);
    }

    #[test]
    fn what_follows_a_gap_begins_with_a_whole_line() {
        let dir = tempfile::tempdir().expect("a folder");
        let mut logs = LogStore::open(dir.path()).expect("a store");
        let text = "x".repeat(100_004) + "half\n" + &"y\n".repeat(32_767);
        logs.write_at(0, LogFile::Node, 0, text.as_bytes()).expect("written");
        let kind = EventKind::Log { host: 0, file: LogFile::Node, offset: 0, bytes: bytes::Bytes::new(), len: text.len() as u64 };
        let told = recall(&Event { seq: 1, at: 5, kind }, Some(&logs));
        let EventKind::Log { offset, bytes, len, .. } = &told[1].kind else { panic!("a log") };
        assert_eq!((*offset, *len, &bytes[..4]), (100_009, 65_534, &b"y\ny\n"[..]));
    }
}
