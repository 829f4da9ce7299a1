//! One host's output on its way to ours: as it is into files and pipes, cleaned for a terminal.

use std::fs::File;
use std::io::{self, IsTerminal as _, Write as _};
use std::os::fd::{AsFd as _, BorrowedFd};

use bytes::Bytes;
use tokio::sync::mpsc;

use crate::remote::OutputChunk;
use crate::text::sanitize::Sanitizer;

/// Pieces that are written at a time.
const CHUNKS_PER_BATCH: usize = 32;
/// The longest line that a terminal waits for.
const MAX_LINE_BYTES: usize = 64 << 10;

/// Writes what comes until it ends. Blocks; wants a thread of its own.
///
/// # Errors
/// Why it cannot be written.
pub(crate) fn write_output(mut chunks: mpsc::Receiver<OutputChunk>, sanitizer: &Sanitizer) -> io::Result<()> {
    let mut out = OutputStream::new(io::stdout().as_fd(), sanitizer)?;
    let mut err = OutputStream::new(io::stderr().as_fd(), sanitizer)?;
    let mut batch = Vec::with_capacity(CHUNKS_PER_BATCH);
    while chunks.blocking_recv_many(&mut batch, CHUNKS_PER_BATCH) > 0 {
        for piece in batch.drain(..) {
            match piece {
                OutputChunk::Stdout(bytes) => out.write(&bytes)?,
                OutputChunk::Stderr(bytes) => err.write(&bytes)?,
            }
        }
    }
    out.finish()?;
    err.finish()
}

/// A terminal, or not. Unbuffered: what comes is in large pieces, or is waited for.
struct OutputStream<'a> {
    file: File,
    /// For a terminal: who cleans, and the line that has no end yet.
    terminal_line: Option<(&'a Sanitizer, Vec<u8>)>,
}

impl<'a> OutputStream<'a> {
    fn new(to: BorrowedFd<'_>, sanitizer: &'a Sanitizer) -> io::Result<Self> {
        let to = File::from(to.try_clone_to_owned()?);
        let screen = to.is_terminal().then(|| (sanitizer, Vec::new()));
        Ok(OutputStream { file: to, terminal_line: screen })
    }

    fn write(&mut self, bytes: &Bytes) -> io::Result<()> {
        let Some((cleaner, line)) = &mut self.terminal_line else { return self.file.write_all(bytes) };
        line.extend_from_slice(bytes);
        let whole = match memchr::memrchr(b'\n', line) {
            Some(at) => at + 1,
            None if line.len() > MAX_LINE_BYTES => line.len(),
            None => return Ok(()),
        };
        let text: Vec<u8> = line.drain(..whole).collect();
        self.file.write_all(cleaner.sanitize_multiline(&String::from_utf8_lossy(&text)).as_bytes())
    }

    fn finish(&mut self) -> io::Result<()> {
        match &self.terminal_line {
            Some((cleaner, line)) => self.file.write_all(cleaner.sanitize_multiline(&String::from_utf8_lossy(line)).as_bytes()),
            None => Ok(()),
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use std::io::{Read as _, Seek as _};

    fn write_chunks(terminal: bool, chunks: &[&'static str]) -> String {
        let cleaner = Sanitizer::default();
        let to = tempfile::tempfile().expect("a file");
        let mut face = OutputStream { file: to.try_clone().expect("a file"), terminal_line: terminal.then(|| (&cleaner, Vec::new())) };
        for chunk in chunks {
            face.write(&Bytes::from_static(chunk.as_bytes())).expect("written");
        }
        face.finish().expect("written");
        let (mut to, mut text) = (to, String::new());
        to.rewind().and_then(|()| to.read_to_string(&mut text)).expect("read");
        text
    }

    #[test]
    fn output_is_sanitized_only_for_terminals() {
        let chunks = ["one\n\u{1b}[2", "Jtwo\n", "three"];
        assert_eq!(write_chunks(true, &chunks), "one\ntwo\nthree");
        assert_eq!(write_chunks(false, &chunks), chunks.concat());
    }
}
