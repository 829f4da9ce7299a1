//! Reads lines of a stored log by offset, so that logs of any size can be shown without loading them.
//!
//! A line ends at a newline; longer lines than the limit are split.

use std::io;

use crate::event::LogFile;

use super::feed::StoredLogs;

/// Maximum bytes of a line.
pub(super) const MAX_LINE_BYTES: usize = 16 << 10;
/// Bytes per read.
const BLOCK_BYTES: usize = 64 << 10;

#[derive(Debug, Clone, PartialEq, Eq)]
pub(crate) struct StoredLine {
    /// Offset of its first byte.
    pub offset: u64,
    pub bytes: Vec<u8>,
    /// Offset after the line and its newline.
    pub next_offset: u64,
}

/// A log of bytes in memory.
pub(crate) struct MemoryLog(pub Vec<u8>);

impl StoredLogs for MemoryLog {
    fn len(&self, _: &str, _: LogFile) -> io::Result<u64> {
        Ok(self.0.len() as u64)
    }

    fn read(&self, _: &str, _: LogFile, from: u64, most: usize) -> io::Result<Vec<u8>> {
        let from = usize::try_from(from).unwrap_or(usize::MAX).min(self.0.len());
        Ok(self.0[from..from.saturating_add(most).min(self.0.len())].to_vec())
    }
}

/// One log up to its known length.
pub(crate) struct LogSource<'a> {
    pub logs: &'a dyn StoredLogs,
    pub host: u32,
    pub host_name: &'a str,
    pub file: LogFile,
    pub len: u64,
}

impl LogSource<'_> {
    fn read_range(&self, from: u64, to: u64) -> io::Result<Vec<u8>> {
        let most = usize::try_from(to.min(self.len).saturating_sub(from)).unwrap_or(BLOCK_BYTES);
        if most == 0 { Ok(Vec::new()) } else { self.logs.read(self.host_name, self.file, from, most) }
    }

    /// The first `count` lines starting at `from`, which must be the start of a line.
    ///
    /// # Errors
    /// If the file cannot be read.
    pub(crate) fn lines_from(&self, from: u64, count: usize) -> io::Result<Vec<StoredLine>> {
        let mut lines = Vec::new();
        let (mut start, mut held) = (from, Vec::new());
        while lines.len() < count {
            let at = start + held.len() as u64;
            let block = self.read_range(at, at + BLOCK_BYTES as u64)?;
            let end = block.is_empty();
            held.extend_from_slice(&block);
            if held.is_empty() {
                break;
            }
            let used = split_lines(&held, start, end, &mut lines);
            held.drain(..used);
            start += used as u64;
            if end {
                break;
            }
        }
        lines.truncate(count);
        Ok(lines)
    }

    /// The last `count` lines that end at or before `end`, oldest first.
    ///
    /// # Errors
    /// If the file cannot be read.
    pub(crate) fn lines_before(&self, end: u64, count: usize) -> io::Result<Vec<StoredLine>> {
        let end = end.min(self.len);
        let (mut from, mut span) = (end, BLOCK_BYTES as u64);
        loop {
            from = from.saturating_sub(span);
            let block = self.read_range(from, end)?;
            // Text before the first newline belongs to an earlier line.
            let skip = if from == 0 { Some(0) } else { memchr::memchr(b'\n', &block).map(|at| at + 1) };
            let enough = block.len() >= 64 * BLOCK_BYTES || from == 0;
            let start = match skip {
                Some(skip) if skip < block.len() || from == 0 => skip,
                // One endless line: it is split relative to where reading starts.
                _ if enough => 0,
                _ => {
                    span *= 2;
                    continue;
                }
            };
            let mut lines = Vec::new();
            split_lines(&block[start..], from + start as u64, true, &mut lines);
            if lines.len() >= count || enough {
                return Ok(lines.split_off(lines.len().saturating_sub(count)));
            }
            span *= 2;
        }
    }
}

/// Splits text that starts at `start` into lines and returns the number of bytes used. Without `end`, a last line without newline is kept.
fn split_lines(text: &[u8], start: u64, end: bool, lines: &mut Vec<StoredLine>) -> usize {
    let mut used = 0;
    while used < text.len() {
        let rest = &text[used..];
        let (len, whole) = match memchr::memchr(b'\n', &rest[..rest.len().min(MAX_LINE_BYTES)]) {
            Some(at) => (at, at + 1),
            None if rest.len() >= MAX_LINE_BYTES => (MAX_LINE_BYTES, MAX_LINE_BYTES),
            None if end => (rest.len(), rest.len()),
            None => break,
        };
        let at = start + used as u64;
        used += whole;
        lines.push(StoredLine { offset: at, bytes: rest[..len].to_vec(), next_offset: at + whole as u64 });
    }
    used
}

#[cfg(test)]
pub(super) mod tests {
    use super::*;
    use proptest::prelude::*;

    pub(crate) fn log_source(text: &MemoryLog) -> LogSource<'_> {
        LogSource { logs: text, host: 0, host_name: "", file: LogFile::Launcher, len: text.0.len() as u64 }
    }

    fn line_texts(lines: &[StoredLine]) -> Vec<String> {
        lines.iter().map(|line| String::from_utf8_lossy(&line.bytes).into_owned()).collect()
    }

    #[test]
    fn reads_both_ends_of_a_long_log() {
        let text = MemoryLog((0..100_000).map(|n| format!("line {n}\n")).collect::<String>().into_bytes());
        let source = log_source(&text);
        let last = source.lines_before(u64::MAX, 3).expect("read");
        assert_eq!(line_texts(&last), ["line 99997", "line 99998", "line 99999"]);
        assert_eq!(line_texts(&source.lines_before(last[0].offset, 1).expect("read")), ["line 99996"]);
        assert_eq!(line_texts(&source.lines_from(0, 2).expect("read")), ["line 0", "line 1"]);
        assert_eq!(source.lines_before(u64::MAX, 20_000).expect("read").len(), 20_000);
        assert_eq!(source.lines_before(0, 5).expect("read"), []);
    }

    #[test]
    fn endless_line_is_split() {
        let text = MemoryLog(vec![b'x'; 5 * MAX_LINE_BYTES + 7]);
        let source = log_source(&text);
        assert_eq!(source.lines_from(0, 100).expect("read").len(), 6);
        assert_eq!(source.lines_before(u64::MAX, 2).expect("read").len(), 2);
    }

    proptest! {
        #[test]
        fn forward_and_backward_reads_agree(text in "[ab\n]{0,300}", count in 0..40_usize) {
            let text = MemoryLog(text.into_bytes());
            let source = log_source(&text);
            let all = source.lines_from(0, 1000).expect("read");
            let back = source.lines_before(u64::MAX, count).expect("read");
            prop_assert_eq!(&all[all.len().saturating_sub(count)..], &back[..]);
            for line in &all {
                prop_assert_eq!(&source.lines_from(line.offset, 1).expect("read")[0], line);
            }
        }
    }
}
