//! Outputs for lines. A slow output delays only its own sink, which `threaded_sink` keeps apart from the others.

use std::io::{self, BufWriter, Write};

use crate::text::sanitize::PrintableText;

/// Takes lines without their newline.
pub(crate) trait LineOutput: Send {
    /// # Errors
    /// When the reader has closed the output.
    fn write_line(&mut self, text: &str) -> io::Result<()>;

    /// # Errors
    /// When the reader has closed the output.
    fn flush(&mut self) -> io::Result<()>;
}

/// Lines kept in memory, for tests and for sinks that draw them themselves.
impl LineOutput for Vec<String> {
    fn write_line(&mut self, text: &str) -> io::Result<()> {
        self.push(text.to_owned());
        Ok(())
    }

    fn flush(&mut self) -> io::Result<()> {
        Ok(())
    }
}

/// Sanitizes every line before it reaches the stream.
#[derive(Debug)]
pub(crate) struct SanitizedLineWriter<W: Write>(BufWriter<W>);

impl<W: Write> SanitizedLineWriter<W> {
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
