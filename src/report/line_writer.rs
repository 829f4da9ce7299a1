//! Where lines go.
//!
//! Uses `sanitize`. What is slow here is slow for its face alone: `aside` keeps it from the others.

use std::io::{self, BufWriter, Write};

use crate::text::sanitize::PrintableText;

/// Takes lines without their newline.
pub(crate) trait LineOutput: Send {
    /// Adds a line.
    ///
    /// # Errors
    /// When nobody reads any more.
    fn write_line(&mut self, text: &str) -> io::Result<()>;

    /// Shows what was added.
    ///
    /// # Errors
    /// When nobody reads any more.
    fn flush(&mut self) -> io::Result<()>;
}

/// Lines kept in memory, for tests and for those who draw by themselves.
impl LineOutput for Vec<String> {
    fn write_line(&mut self, text: &str) -> io::Result<()> {
        self.push(text.to_owned());
        Ok(())
    }

    fn flush(&mut self) -> io::Result<()> {
        Ok(())
    }
}

/// A stream that lines are written to, and a door to the terminal: whatever comes is cleaned.
#[derive(Debug)]
pub(crate) struct SanitizedLineWriter<W: Write>(BufWriter<W>);

impl<W: Write> SanitizedLineWriter<W> {
    /// Writes to `writer`.
    pub(crate) fn new(writer: W) -> Self {
        SanitizedLineWriter(BufWriter::with_capacity(64 << 10, writer))
    }
}

impl SanitizedLineWriter<io::Stdout> {
    pub(crate) fn stdout() -> Self {
        Self::new(io::stdout())
    }
}

impl SanitizedLineWriter<io::Stderr> {
    pub(crate) fn stderr() -> Self {
        Self::new(io::stderr())
    }
}

impl<W: Write + Send> LineOutput for SanitizedLineWriter<W> {
    fn write_line(&mut self, text: &str) -> io::Result<()> {
        self.0.write_all(PrintableText::new(text).as_str().as_bytes())?;
        self.0.write_all(b"\n")
    }

    fn flush(&mut self) -> io::Result<()> {
        self.0.flush()
    }
}
