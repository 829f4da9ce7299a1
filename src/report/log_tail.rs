//! Where the last lines of a log copy begin: the file is read backwards in blocks, so memory is bounded however long the lines are.

use std::fs::File;
use std::io;
use std::os::unix::fs::FileExt as _;

/// So much is read at a time.
const BLOCK_BYTES: usize = 64 << 10;

/// The offset of the last `lines` lines of a file; a last line without an end counts. At most `max_bytes` before its end.
///
/// # Errors
/// The file cannot be read.
pub(crate) fn tail_offset(file: &File, lines: usize, max_bytes: u64) -> io::Result<u64> {
    let len = file.metadata()?.len();
    let first = len.saturating_sub(max_bytes);
    let (mut start, mut missing) = (len, lines);
    let mut buffer = vec![0; BLOCK_BYTES];
    while start > first && missing > 0 {
        let count = usize::try_from(start - first).unwrap_or(usize::MAX).min(BLOCK_BYTES);
        let block = &mut buffer[..count];
        file.read_exact_at(block, start - count as u64)?;
        // The newline that ends the last line begins no further one.
        let body = if start == len { block.strip_suffix(b"\n").unwrap_or(block) } else { block };
        start -= count as u64;
        for at in memchr::memrchr_iter(b'\n', body) {
            missing -= 1;
            if missing == 0 {
                return Ok(start + at as u64 + 1);
            }
        }
    }
    Ok(start)
}

#[cfg(test)]
mod tests {
    use super::*;
    use std::io::Write as _;

    #[test]
    fn tails_begin_at_whole_lines_however_long() {
        let mut file = tempfile::tempfile().expect("a file");
        let long = "x".repeat(9 << 20);
        file.write_all(format!("one\ntwo\n{long}\nfour\nhalf").as_bytes()).expect("written");
        let len = 8 + (9 << 20) + 1 + 5 + 4;
        let offset = |lines, max| tail_offset(&file, lines, max).expect("read");
        let all = u64::MAX;
        assert_eq!([offset(0, all), offset(1, all), offset(2, all)], [len, len - 4, len - 9]);
        assert_eq!([offset(3, all), offset(4, all), offset(5, all), offset(99, all)], [8, 4, 0, 0], "9 MiB are one line");
        assert_eq!(offset(3, 1 << 20), len - (1 << 20));
    }
}
