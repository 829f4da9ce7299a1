//! Outputs for lines. A slow output delays only its own sink, which `threaded_sink` keeps apart from the others.

use std::io::{self, BufWriter, Write};

use crate::text::sanitize::PrintableText;

/// Takes lines without their newline.
pub(crate) trait LineOutput: Send {
    /// # Errors
    /// When the reader has closed the output.
    fn write_line(&mut self, text: &str) -> io::Result<()>;

    /// A line of a rank's or a launcher's log.
    ///
    /// # Errors
    /// When the reader has closed the output.
    fn write_log_line(&mut self, text: &str) -> io::Result<()> {
        self.write_line(text)
    }

    /// Draws progress bars below the lines; an output without bars does nothing.
    ///
    /// # Errors
    /// When the reader has closed the output.
    fn draw_bars(&mut self, _bars: &BarTexts) -> io::Result<()> {
        Ok(())
    }

    /// # Errors
    /// When the reader has closed the output.
    fn flush(&mut self) -> io::Result<()>;

    /// The last call.
    ///
    /// # Errors
    /// When the reader has closed the output.
    fn finish(&mut self) -> io::Result<()> {
        self.flush()
    }
}

/// The texts of progress bars: a header, and a row per host.
#[derive(Debug, Clone, Default, PartialEq, Eq)]
pub(crate) struct BarTexts {
    pub(crate) header: String,
    pub(crate) rows: Vec<String>,
}

impl BarTexts {
    /// Their bytes.
    pub(crate) fn len(&self) -> usize {
        self.rows.iter().fold(self.header.len(), |sum, row| sum + row.len())
    }
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

/// Where log lines go.
enum LogOutput {
    WithStatus,
    Own(Box<dyn LineOutput>),
    /// Its reader has gone.
    Closed,
}

/// Log lines to one output, everything else to another. A reader that closes the log output ends only the log lines.
pub(crate) struct SplitLineOutput<T> {
    status: T,
    logs: LogOutput,
}

impl<T: LineOutput> SplitLineOutput<T> {
    /// `logs`: `None` if log lines go where everything else goes.
    pub(crate) fn new(status: T, logs: Option<Box<dyn LineOutput>>) -> Self {
        SplitLineOutput { status, logs: logs.map_or(LogOutput::WithStatus, LogOutput::Own) }
    }

    fn with_logs(&mut self, write: impl FnOnce(&mut dyn LineOutput) -> io::Result<()>) -> io::Result<()> {
        let LogOutput::Own(logs) = &mut self.logs else { return Ok(()) };
        match write(logs.as_mut()) {
            Err(error) if error.kind() == io::ErrorKind::BrokenPipe => {
                self.logs = LogOutput::Closed;
                Ok(())
            }
            result => result,
        }
    }
}

impl<T: LineOutput> LineOutput for SplitLineOutput<T> {
    /// Both outputs may be one terminal, so the order is kept.
    fn write_line(&mut self, text: &str) -> io::Result<()> {
        self.with_logs(|logs| logs.flush())?;
        self.status.write_line(text)
    }

    fn write_log_line(&mut self, text: &str) -> io::Result<()> {
        if matches!(self.logs, LogOutput::WithStatus) {
            return self.status.write_line(text);
        }
        self.status.flush()?;
        self.with_logs(|logs| logs.write_line(text))
    }

    fn draw_bars(&mut self, bars: &BarTexts) -> io::Result<()> {
        self.status.draw_bars(bars)
    }

    fn flush(&mut self) -> io::Result<()> {
        self.status.flush()?;
        self.with_logs(|logs| logs.flush())
    }

    fn finish(&mut self) -> io::Result<()> {
        self.with_logs(|logs| logs.finish())?;
        self.status.finish()
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

#[cfg(test)]
mod tests {
    use super::*;

    struct ClosedPipe;

    impl LineOutput for ClosedPipe {
        fn write_line(&mut self, _text: &str) -> io::Result<()> {
            Err(io::ErrorKind::BrokenPipe.into())
        }

        fn flush(&mut self) -> io::Result<()> {
            Ok(())
        }
    }

    #[test]
    fn log_lines_and_status_are_kept_apart() {
        let file = tempfile::tempfile().expect("a file");
        let logs = SanitizedLineWriter::new(file.try_clone().expect("a file"));
        let mut output = SplitLineOutput::new(Vec::new(), Some(Box::new(logs)));
        output.write_line("preflight ok").expect("written");
        output.write_log_line("[rank 0] step 1").expect("written");
        output.flush().expect("written");
        let mut text = String::new();
        std::io::Seek::rewind(&mut &file).and_then(|()| std::io::Read::read_to_string(&mut &file, &mut text)).expect("read");
        assert_eq!((output.status.concat(), text), ("preflight ok".into(), "[rank 0] step 1\n".into()));
        let mut same = SplitLineOutput::new(Vec::new(), None);
        same.write_log_line("[rank 0] step 1").expect("written");
        assert_eq!(same.status.concat(), "[rank 0] step 1");
    }

    #[test]
    fn closed_log_output_does_not_end_the_status() {
        let mut output = SplitLineOutput::new(Vec::new(), Some(Box::new(ClosedPipe)));
        output.write_log_line("[rank 0] step 1").expect("no error");
        output.write_line("FAILED gpu02").expect("written");
        output.write_log_line("[rank 0] step 2").expect("no error");
        assert_eq!(output.status.concat(), "FAILED gpu02");
    }
}
