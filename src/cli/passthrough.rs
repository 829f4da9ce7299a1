//! Copies one host's output to standard output and standard error: unchanged into files and pipes, sanitized for a terminal.

use std::fs::File;
use std::io::{self, IsTerminal as _, Write as _};
use std::os::fd::{AsFd as _, BorrowedFd};

use bytes::Bytes;
use tokio::sync::mpsc;

use crate::remote::OutputChunk;
use crate::text::sanitize::Sanitizer;

const CHUNKS_PER_BATCH: usize = 32;
/// A longer line is written to a terminal before it ends.
const MAX_LINE_BYTES: usize = 64 << 10;

/// Writes chunks until the channel closes. Blocks, so it needs its own thread.
///
/// # Errors
/// The first write error.
pub(crate) fn write_output(mut chunks: mpsc::Receiver<OutputChunk>, sanitizer: &Sanitizer) -> io::Result<()> {
    let mut out = OutputStream::new(io::stdout().as_fd(), sanitizer)?;
    let mut err = OutputStream::new(io::stderr().as_fd(), sanitizer)?;
    let mut batch = Vec::with_capacity(CHUNKS_PER_BATCH);
    while chunks.blocking_recv_many(&mut batch, CHUNKS_PER_BATCH) > 0 {
        for chunk in batch.drain(..) {
            match chunk {
                OutputChunk::Stdout(bytes) => out.write(&bytes)?,
                OutputChunk::Stderr(bytes) => err.write(&bytes)?,
            }
        }
    }
    out.finish()?;
    err.finish()
}

/// Standard output or standard error. Unbuffered: chunks are large, or the reader is waiting for them.
struct OutputStream<'a> {
    file: File,
    /// For a terminal: the sanitizer, and the last line while it is incomplete.
    terminal_line: Option<(&'a Sanitizer, Vec<u8>)>,
}

impl<'a> OutputStream<'a> {
    fn new(fd: BorrowedFd<'_>, sanitizer: &'a Sanitizer) -> io::Result<Self> {
        let file = File::from(fd.try_clone_to_owned()?);
        let terminal_line = file.is_terminal().then(|| (sanitizer, Vec::new()));
        Ok(OutputStream { file, terminal_line })
    }

    fn write(&mut self, bytes: &Bytes) -> io::Result<()> {
        let Some((sanitizer, line)) = &mut self.terminal_line else { return self.file.write_all(bytes) };
        line.extend_from_slice(bytes);
        let complete = match memchr::memrchr(b'\n', line) {
            Some(newline) => newline + 1,
            None if line.len() > MAX_LINE_BYTES => line.len(),
            None => return Ok(()),
        };
        let text: Vec<u8> = line.drain(..complete).collect();
        self.file.write_all(sanitizer.sanitize_multiline(&String::from_utf8_lossy(&text)).as_bytes())
    }

    fn finish(&mut self) -> io::Result<()> {
        match &self.terminal_line {
            Some((sanitizer, line)) => self.file.write_all(sanitizer.sanitize_multiline(&String::from_utf8_lossy(line)).as_bytes()),
            None => Ok(()),
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use std::io::{Read as _, Seek as _};

    fn write_chunks(terminal: bool, chunks: &[&'static str]) -> String {
        let sanitizer = Sanitizer::default();
        let mut file = tempfile::tempfile().expect("a file");
        let mut stream =
            OutputStream { file: file.try_clone().expect("a file"), terminal_line: terminal.then(|| (&sanitizer, Vec::new())) };
        for chunk in chunks {
            stream.write(&Bytes::from_static(chunk.as_bytes())).expect("written");
        }
        stream.finish().expect("written");
        let mut text = String::new();
        file.rewind().and_then(|()| file.read_to_string(&mut text)).expect("read");
        text
    }

    #[test]
    fn output_is_sanitized_only_for_terminals() {
        let chunks = ["one\n\u{1b}[2", "Jtwo\n", "three"];
        assert_eq!(write_chunks(true, &chunks), "one\ntwo\nthree");
        assert_eq!(write_chunks(false, &chunks), chunks.concat());
    }
}
