//! What earlier commands learned of a run and its hosts do not send again: the ends of the log copies, and the lines gathered after a failure.
//!
//! Without them a later command, for example `down` after `logs`, would replace the cause in `report.json` by a weaker one.

use std::collections::HashMap;
use std::io;

use crate::event::{Event, EventKind, LogFile, UnixMillis, follows_run};

use super::journal::{JOURNAL_FILE, JournalError, JournalReader};
use super::log_store::LogStoreError;
use super::past_runs::{RunDir, open_logs};

/// So much of the end of one log is read, and of all logs of a run.
const MAX_LOG_BYTES: u64 = 256 << 10;
const MAX_TOTAL_BYTES: u64 = 64 << 20;

/// Passes them on as events. `hosts`: names by the index of the new events.
///
/// # Errors
/// A log copy or the journal cannot be read; what was read before has been passed on.
pub(super) fn for_each_stored_event(
    dir: &RunDir,
    hosts: &[String],
    at: UnixMillis,
    mut pass: impl FnMut(&Event),
) -> Result<(), Box<dyn std::error::Error>> {
    for_each_log_end(dir, hosts, |kind| pass(&Event { seq: 0, at, kind }))?;
    for_each_postmortem(dir, hosts, pass)?;
    Ok(())
}

fn for_each_log_end(dir: &RunDir, hosts: &[String], mut pass: impl FnMut(EventKind)) -> Result<(), LogStoreError> {
    // A store of its own: one that writes must not know lengths before it writes, since another command may write the same copies.
    let mut logs = open_logs(dir.path())?;
    let mut copies = Vec::new();
    for (host, name) in (0..).zip(hosts) {
        let lengths = logs.log_lengths(name)?;
        let mut newest: HashMap<u32, u32> = HashMap::new();
        for (file, _) in &lengths {
            if let LogFile::Rank { rank, restart } = file {
                let known = newest.entry(*rank).or_default();
                *known = (*restart).max(*known);
            }
        }
        // A rank is judged by what it wrote since its last restart.
        let is_current = |file: &LogFile| match file {
            LogFile::Rank { rank, restart } => newest.get(rank) == Some(restart),
            LogFile::Launcher | LogFile::Task { .. } => true,
        };
        copies.extend(lengths.into_iter().filter(|(file, _)| is_current(file)).map(|(file, len)| (host, name, file, len)));
    }
    let max_len = MAX_LOG_BYTES.min(MAX_TOTAL_BYTES / copies.len().max(1) as u64);
    for (host, name, file, len) in copies {
        let start = len.saturating_sub(max_len);
        let mut bytes = logs.read_at(name, file, start, usize::try_from(max_len).unwrap_or(usize::MAX))?;
        // A line whose beginning is unknown is no evidence.
        let cut = if start == 0 { 0 } else { memchr::memchr(b'\n', &bytes).map_or(bytes.len(), |at| at + 1) };
        bytes.drain(..cut);
        pass(EventKind::log(host, file, start + cut as u64, bytes));
    }
    Ok(())
}

fn for_each_postmortem(dir: &RunDir, hosts: &[String], mut pass: impl FnMut(&Event)) -> Result<(), JournalError> {
    let mut journal = match JournalReader::open(&dir.path().join(JOURNAL_FILE)) {
        Err(JournalError::Io { source, .. }) if source.kind() == io::ErrorKind::NotFound => return Ok(()),
        opened => opened?,
    };
    let known: HashMap<&str, u32> = hosts.iter().map(String::as_str).zip(0..).collect();
    let mut recorded_hosts = Vec::new();
    loop {
        match journal.next_event()? {
            // Other commands write the same journal, of fewer hosts or in another order.
            Some(Event { kind: EventKind::RunStarted(info), .. }) if !info.hosts.is_empty() && follows_run(&info.command) => {
                recorded_hosts = info.hosts;
            }
            Some(Event { kind: EventKind::Postmortem { host, lines }, seq, at }) => {
                if let Some(host) = recorded_hosts.get(host as usize).and_then(|name| known.get(name.as_str())) {
                    pass(&Event { seq, at, kind: EventKind::Postmortem { host: *host, lines } });
                }
            }
            Some(_) => {}
            None => return Ok(()),
        }
    }
}
