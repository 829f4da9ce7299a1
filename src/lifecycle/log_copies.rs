//! This laptop's log copies as a command that follows a run needs them: what to show first, and where the hosts' streams continue.

use std::sync::Arc;

use bytes::Bytes;

use crate::engine::log_stream::LogOffsets;
use crate::event::LogFile;
use crate::report::past_runs::{RunDir, open_logs};

/// A part of a log that is read at once, and how many bytes of all logs wait at most.
const LOG_PART_BYTES: usize = 256 << 10;
const MAX_UNPRINTED_BYTES: u64 = 16 << 20;

/// How far one of this laptop's log copies is printed.
#[derive(Debug, Clone, PartialEq, Eq)]
pub(crate) struct LogEnd {
    pub(crate) host: String,
    pub(crate) file: LogFile,
    pub(crate) offset: u64,
}

/// A part of one of this laptop's log copies.
pub(crate) struct LogPart {
    pub(super) host: u32,
    pub(super) file: LogFile,
    pub(super) offset: u64,
    pub(super) bytes: Bytes,
}

/// The last lines of each of this laptop's log copies of these hosts.
pub(crate) fn read_log_tails(dir: &RunDir, hosts: &[String], lines: usize) -> Vec<LogPart> {
    let Ok(mut store) = open_logs(dir.path()) else { return Vec::new() };
    let mut tails = Vec::new();
    for (host, name) in (0..).zip(hosts) {
        for (file, len) in store.log_lengths(name).unwrap_or_default() {
            match store.tail(name, file, lines) {
                Ok(bytes) => tails.push(LogPart { host, file, offset: len.saturating_sub(bytes.len() as u64), bytes: bytes.into() }),
                Err(error) => tracing::debug!(%error, "could not read the end of a log copy"),
            }
        }
    }
    tails
}

/// What the copies have beyond what is printed: mostly a line without an end, whose rest comes from the host.
pub(crate) fn read_unprinted_logs(dir: &RunDir, hosts: &[String], printed: &[LogEnd]) -> Vec<LogPart> {
    let Ok(store) = open_logs(dir.path()) else { return Vec::new() };
    let (mut parts, mut total) = (Vec::new(), 0);
    for LogEnd { host: name, file, offset } in printed {
        let Some(host) = hosts.iter().position(|known| known == name).and_then(|at| u32::try_from(at).ok()) else { continue };
        let mut offset = *offset;
        while let Ok(bytes) = store.read_at(name, *file, offset, LOG_PART_BYTES) {
            if bytes.is_empty() {
                break;
            }
            let len = bytes.len() as u64;
            parts.push(LogPart { host, file: *file, offset, bytes: bytes.into() });
            (offset, total) = (offset + len, total + len);
            if total >= MAX_UNPRINTED_BYTES {
                return parts;
            }
        }
    }
    parts
}

/// How much of each log this laptop has, looked up when a stream starts.
pub(crate) fn stored_log_offsets(dir: RunDir, hosts: Vec<String>) -> LogOffsets {
    Arc::new(move |host| {
        let Some(name) = hosts.get(host) else { return Vec::new() };
        open_logs(dir.path()).and_then(|mut store| store.log_lengths(name)).unwrap_or_default()
    })
}
