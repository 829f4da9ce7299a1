//! Where lines go: a terminal or a pipe that may be slow, behind a thread of its own, so that a stopped terminal stops nothing.
//!
//! Uses nothing. What must be seen waits for its turn; log lines are left out while too much waits, and their number is told.

use std::collections::VecDeque;
use std::io::{self, Write};
use std::sync::{Arc, Condvar, Mutex, MutexGuard, PoisonError};
use std::thread::JoinHandle;
use std::time::Duration;

/// Log lines are left out beyond this many waiting bytes.
const CHATTER: usize = 4 << 20;
/// Everything is left out beyond this.
const ALL: usize = 64 << 20;

/// Takes lines without their newline.
pub trait Out: Send {
    /// Shows a line. `keep`: it may not be left out for being late.
    ///
    /// # Errors
    /// When nobody reads any more.
    fn line(&mut self, text: &str, keep: bool) -> io::Result<()>;

    /// Waits until all is shown, but not for ever.
    ///
    /// # Errors
    /// When some of it was not.
    fn finish(&mut self) -> io::Result<()>;
}

/// Lines kept in memory, for tests and for those who draw by themselves.
impl Out for Vec<String> {
    fn line(&mut self, text: &str, _keep: bool) -> io::Result<()> {
        self.push(text.to_owned());
        Ok(())
    }

    fn finish(&mut self) -> io::Result<()> {
        Ok(())
    }
}

#[derive(Default)]
struct Queue {
    lines: VecDeque<String>,
    bytes: usize,
    dropped: u64,
    busy: bool,
    closed: bool,
    error: Option<io::Error>,
}

/// A writer behind a thread.
pub struct Outlet {
    shared: Arc<(Mutex<Queue>, Condvar)>,
    thread: Option<JoinHandle<()>>,
    patience: Duration,
}

impl std::fmt::Debug for Outlet {
    fn fmt(&self, f: &mut std::fmt::Formatter<'_>) -> std::fmt::Result {
        f.write_str("Outlet")
    }
}

impl Outlet {
    /// Standard output.
    pub fn stdout() -> Self {
        Self::new(io::stdout(), Duration::from_secs(5))
    }

    /// Standard error.
    pub fn stderr() -> Self {
        Self::new(io::stderr(), Duration::from_secs(5))
    }

    /// Anything; `finish` waits so long for it.
    pub fn new(writer: impl Write + Send + 'static, patience: Duration) -> Self {
        let shared = Arc::new((Mutex::new(Queue::default()), Condvar::new()));
        let theirs = Arc::clone(&shared);
        let thread = std::thread::Builder::new().name("outlet".to_owned()).spawn(move || serve(&theirs, writer)).ok();
        Outlet { shared, thread, patience }
    }

    fn lock(&self) -> MutexGuard<'_, Queue> {
        self.shared.0.lock().unwrap_or_else(PoisonError::into_inner)
    }
}

fn serve(shared: &(Mutex<Queue>, Condvar), mut writer: impl Write) {
    let (queue, bell) = shared;
    let mut guard = queue.lock().unwrap_or_else(PoisonError::into_inner);
    loop {
        while guard.lines.is_empty() && !guard.closed {
            guard = bell.wait(guard).unwrap_or_else(PoisonError::into_inner);
        }
        let lines = std::mem::take(&mut guard.lines);
        let dropped = std::mem::take(&mut guard.dropped);
        guard.bytes = 0;
        if lines.is_empty() && dropped == 0 {
            return;
        }
        guard.busy = true;
        drop(guard);
        let result = write(&mut writer, &lines, dropped);
        guard = queue.lock().unwrap_or_else(PoisonError::into_inner);
        guard.busy = false;
        if let Err(error) = result {
            guard.error = Some(error);
            guard.closed = true;
            guard.lines.clear();
        }
        bell.notify_all();
    }
}

fn write(writer: &mut impl Write, lines: &VecDeque<String>, dropped: u64) -> io::Result<()> {
    let mut text = String::new();
    for line in lines {
        text.push_str(line);
        text.push('\n');
    }
    if dropped > 0 {
        text.push_str(&format!("({dropped} log lines not shown: this terminal is slower than the logs; the log files have them)\n"));
    }
    writer.write_all(text.as_bytes())?;
    writer.flush()
}

impl Out for Outlet {
    fn line(&mut self, text: &str, keep: bool) -> io::Result<()> {
        let mut queue = self.lock();
        if let Some(error) = queue.error.take() {
            return Err(error);
        }
        if queue.closed || self.thread.is_none() {
            return Err(io::ErrorKind::BrokenPipe.into());
        }
        if queue.bytes + text.len() > if keep { ALL } else { CHATTER } {
            queue.dropped += 1;
            return Ok(());
        }
        queue.bytes += text.len() + 1;
        queue.lines.push_back(text.to_owned());
        drop(queue);
        self.shared.1.notify_all();
        Ok(())
    }

    fn finish(&mut self) -> io::Result<()> {
        self.lock().closed = true;
        self.shared.1.notify_all();
        let guard = self.lock();
        let waiting = |queue: &mut Queue| queue.busy || !queue.lines.is_empty();
        let waited = self.shared.1.wait_timeout_while(guard, self.patience, waiting);
        let (mut queue, result) = waited.unwrap_or_else(PoisonError::into_inner);
        let error = queue.error.take();
        drop(queue);
        if result.timed_out() {
            // Whoever reads has stopped: the thread is left behind, it holds nothing.
            return Err(io::ErrorKind::TimedOut.into());
        }
        if let Some(thread) = self.thread.take() {
            thread.join().map_err(|_| io::Error::other("the writing thread died"))?;
        }
        error.map_or(Ok(()), Err)
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use std::io::Read;
    use std::os::unix::net::UnixStream;

    #[test]
    fn all_lines_arrive_in_order() {
        let (mut reader, writer) = UnixStream::pair().expect("a pair");
        let mut out = Outlet::new(writer, Duration::from_secs(20));
        for n in 0..1000 {
            out.line(&n.to_string(), false).expect("taken");
        }
        out.finish().expect("all shown");
        let mut text = String::new();
        drop(out);
        reader.read_to_string(&mut text).expect("read");
        assert_eq!(text, (0..1000).map(|n| format!("{n}\n")).collect::<String>());
    }

    #[test]
    fn a_stopped_reader_stops_nobody() {
        let (mut reader, writer) = UnixStream::pair().expect("a pair");
        let mut out = Outlet::new(writer, Duration::from_millis(50));
        let line = "x".repeat(100_000);
        for _ in 0..100 {
            out.line(&line, false).expect("never waits");
        }
        out.line("the end", true).expect("kept");
        assert_eq!(out.finish().map_err(|e| e.kind()), Err(io::ErrorKind::TimedOut));
        let mut text = String::new();
        reader.read_to_string(&mut text).expect("the thread ends once somebody reads");
        assert!(text.contains("the end\n") && text.contains("log lines not shown"));
        assert!(text.len() < 9 << 20);
    }

    #[test]
    fn a_closed_reader_is_an_error() {
        let (reader, writer) = UnixStream::pair().expect("a pair");
        drop(reader);
        let mut out = Outlet::new(writer, Duration::from_secs(20));
        let mut told = out.line("x", true);
        for _ in 0..1_000_000 {
            told = told.and_then(|()| out.line("x", true));
        }
        assert!(told.is_err() || out.finish().is_err());
    }
}
