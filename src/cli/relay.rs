//! One host's output on its way to ours: as it is into files and pipes, cleaned for a terminal.

use std::fs::File;
use std::io::{self, IsTerminal as _, Write as _};
use std::os::fd::{AsFd as _, BorrowedFd};

use bytes::Bytes;
use tokio::sync::mpsc;

use crate::remote::Piece;
use crate::report::sanitize::Cleaner;

/// Pieces that are written at a time.
const BATCH: usize = 32;
/// The longest line that a terminal waits for.
const LINE: usize = 64 << 10;

/// Writes what comes until it ends. Blocks; wants a thread of its own.
///
/// # Errors
/// Why it cannot be written.
pub fn write(mut pieces: mpsc::Receiver<Piece>, cleaner: &Cleaner) -> io::Result<()> {
    let mut out = Face::new(io::stdout().as_fd(), cleaner)?;
    let mut err = Face::new(io::stderr().as_fd(), cleaner)?;
    let mut batch = Vec::with_capacity(BATCH);
    while pieces.blocking_recv_many(&mut batch, BATCH) > 0 {
        for piece in batch.drain(..) {
            match piece {
                Piece::Out(bytes) => out.write(&bytes)?,
                Piece::Err(bytes) => err.write(&bytes)?,
            }
        }
    }
    out.finish()?;
    err.finish()
}

/// A terminal, or not. Unbuffered: what comes is in large pieces, or is waited for.
struct Face<'a> {
    to: File,
    /// For a terminal: who cleans, and the line that has no end yet.
    screen: Option<(&'a Cleaner, Vec<u8>)>,
}

impl<'a> Face<'a> {
    fn new(to: BorrowedFd<'_>, cleaner: &'a Cleaner) -> io::Result<Self> {
        let to = File::from(to.try_clone_to_owned()?);
        let screen = to.is_terminal().then(|| (cleaner, Vec::new()));
        Ok(Face { to, screen })
    }

    fn write(&mut self, bytes: &Bytes) -> io::Result<()> {
        let Some((cleaner, line)) = &mut self.screen else { return self.to.write_all(bytes) };
        line.extend_from_slice(bytes);
        let whole = match memchr::memrchr(b'\n', line) {
            Some(at) => at + 1,
            None if line.len() > LINE => line.len(),
            None => return Ok(()),
        };
        let text: Vec<u8> = line.drain(..whole).collect();
        self.to.write_all(cleaner.text(&String::from_utf8_lossy(&text)).as_bytes())
    }

    fn finish(&mut self) -> io::Result<()> {
        match &self.screen {
            Some((cleaner, line)) => self.to.write_all(cleaner.text(&String::from_utf8_lossy(line)).as_bytes()),
            None => Ok(()),
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use std::io::{Read as _, Seek as _};

    fn shown(terminal: bool, chunks: &[&'static str]) -> String {
        let cleaner = Cleaner::default();
        let to = tempfile::tempfile().expect("a file");
        let mut face = Face { to: to.try_clone().expect("a file"), screen: terminal.then(|| (&cleaner, Vec::new())) };
        for chunk in chunks {
            face.write(&Bytes::from_static(chunk.as_bytes())).expect("written");
        }
        face.finish().expect("written");
        let (mut to, mut text) = (to, String::new());
        to.rewind().and_then(|()| to.read_to_string(&mut text)).expect("read");
        text
    }

    #[test]
    fn a_terminal_gets_clean_lines_and_a_file_gets_what_came() {
        let chunks = ["one\n\u{1b}[2", "Jtwo\n", "three"];
        assert_eq!(shown(true, &chunks), "one\ntwo\nthree");
        assert_eq!(shown(false, &chunks), chunks.concat());
    }
}
