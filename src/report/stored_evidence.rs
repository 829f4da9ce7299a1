//! What earlier commands learned of a run and its hosts do not send again: the ends of the log copies, and the lines gathered after a failure.
//!
//! Without them a later command, for example `down` after `logs`, would replace the cause in `report.json` by a weaker one.

use std::collections::HashMap;

use crate::event::{Event, EventKind, UnixMillis};

use super::journal::{JOURNAL_FILE, JournalReader};
use super::log_store::LogStore;
use super::past_runs::RunDir;

/// So much of the end of one log is read, and of all logs of a run.
const MAX_LOG_BYTES: u64 = 256 << 10;
const MAX_TOTAL_BYTES: u64 = 64 << 20;

/// Passes them on as events. `hosts`: names by the index of the new events.
pub(super) fn for_each_stored_event(dir: &RunDir, logs: &mut LogStore, hosts: &[String], at: UnixMillis, mut pass: impl FnMut(&Event)) {
    for_each_log_end(logs, hosts, |kind| pass(&Event { seq: 0, at, kind }));
    for_each_postmortem(dir, hosts, pass);
}

fn for_each_log_end(logs: &mut LogStore, hosts: &[String], mut pass: impl FnMut(EventKind)) {
    let mut copies = Vec::new();
    for (host, name) in (0..).zip(hosts) {
        match logs.log_lengths(name) {
            Ok(lengths) => copies.extend(lengths.into_iter().map(|(file, len)| (host, name, file, len))),
            Err(error) => tracing::debug!(%error, host = name, "could not list the log copies"),
        }
    }
    let max_len = MAX_LOG_BYTES.min(MAX_TOTAL_BYTES / copies.len().max(1) as u64);
    for (host, name, file, len) in copies {
        let start = len.saturating_sub(max_len);
        match logs.read_at(name, file, start, usize::try_from(max_len).unwrap_or(usize::MAX)) {
            Ok(mut bytes) => {
                // A line whose beginning is unknown is no evidence.
                let cut = if start == 0 { 0 } else { memchr::memchr(b'\n', &bytes).map_or(bytes.len(), |at| at + 1) };
                bytes.drain(..cut);
                let (offset, len) = (start + cut as u64, bytes.len() as u64);
                pass(EventKind::Log { host, file, offset, bytes: bytes.into(), len });
            }
            Err(error) => tracing::debug!(%error, host = name, "could not read the end of a log copy"),
        }
    }
}

fn for_each_postmortem(dir: &RunDir, hosts: &[String], mut pass: impl FnMut(&Event)) {
    let Ok(mut journal) = JournalReader::open(&dir.path().join(JOURNAL_FILE)) else { return };
    let known: HashMap<&str, u32> = hosts.iter().map(String::as_str).zip(0..).collect();
    let mut recorded_hosts = Vec::new();
    loop {
        match journal.next_event() {
            Ok(Some(Event { kind: EventKind::RunStarted(info), .. })) if !info.hosts.is_empty() => recorded_hosts = info.hosts,
            Ok(Some(Event { kind: EventKind::Postmortem { host, lines }, seq, at })) => {
                if let Some(host) = recorded_hosts.get(host as usize).and_then(|name| known.get(name.as_str())) {
                    pass(&Event { seq, at, kind: EventKind::Postmortem { host: *host, lines } });
                }
            }
            Ok(Some(_)) => {}
            Ok(None) => return,
            Err(error) => return tracing::debug!(%error, "the journal is unreadable from here on"),
        }
    }
}
