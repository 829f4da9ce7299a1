//! A sink whose output may be slow: the reporter's task makes the lines, the output's own thread writes them, so that a stopped
//! terminal or a slow pipe blocks nothing else.
//!
//! Log bytes and samples are dropped while the queue is full, and a notice says how much; all else is kept.

use std::io;
use std::sync::{Arc, Condvar, Mutex, MutexGuard, PoisonError};
use std::thread::JoinHandle;
use std::time::Duration;

use crate::diagnose::DiagnosisFinding;
use crate::event::{Event, EventKind, UnixMillis};
use crate::state::RunState;

use super::ReportSink;
use super::bounded_queue::{BoundedQueue, DroppedCounts};
use super::line_writer::{BarTexts, LineOutput};

/// How long `finish` waits for an output that does not advance.
pub(crate) const FINISH_TIMEOUT: Duration = Duration::from_secs(5);

/// What the thread writes.
enum QueuedOutput {
    Line(String),
    LogLine(String),
    Bars(BarTexts),
}

/// What a queued line takes beside its text.
const LINE_OVERHEAD: usize = size_of::<QueuedOutput>() + 16;

struct OutputQueue {
    waiting: BoundedQueue<QueuedOutput>,
    closed: bool,
    ended: bool,
    error: Option<io::Error>,
}

impl Default for OutputQueue {
    fn default() -> Self {
        OutputQueue { waiting: BoundedQueue::new(LINE_OVERHEAD), closed: false, ended: false, error: None }
    }
}

/// The output's queue, for the sink and for the thread.
#[derive(Clone, Default)]
struct SharedQueue(Arc<(Mutex<OutputQueue>, Condvar)>);

impl SharedQueue {
    fn lock(&self) -> MutexGuard<'_, OutputQueue> {
        self.0.0.lock().unwrap_or_else(PoisonError::into_inner)
    }

    /// # Errors
    /// The output failed, or has ended.
    fn lock_open(&self) -> io::Result<MutexGuard<'_, OutputQueue>> {
        let mut queue = self.lock();
        match queue.error.take() {
            Some(error) => Err(error),
            None if queue.ended => Err(io::ErrorKind::BrokenPipe.into()),
            None => Ok(queue),
        }
    }

    fn push(&self, item: QueuedOutput, bytes: usize) -> io::Result<()> {
        self.lock_open()?.waiting.push(item, bytes);
        self.0.1.notify_all();
        Ok(())
    }

    fn close(&self) {
        self.lock().closed = true;
        self.0.1.notify_all();
    }

    /// Writes what is queued until the queue is closed, or the output fails.
    fn run(&self, mut output: impl LineOutput) {
        loop {
            let mut queue = self.lock();
            while queue.waiting.is_empty() && !queue.closed {
                queue = self.0.1.wait(queue).unwrap_or_else(PoisonError::into_inner);
            }
            let items = queue.waiting.take_items();
            let last = queue.closed && items.is_empty();
            drop(queue);
            let written = if last { output.finish() } else { write_items(&mut output, items) };
            if last || written.is_err() {
                let mut queue = self.lock();
                queue.error = written.err();
                (queue.closed, queue.ended) = (true, true);
                drop(queue.waiting.take_items());
                self.0.1.notify_all();
                return;
            }
        }
    }
}

fn write_items(output: &mut impl LineOutput, items: impl IntoIterator<Item = QueuedOutput>) -> io::Result<()> {
    for item in items {
        match item {
            QueuedOutput::Line(text) => output.write_line(&text)?,
            QueuedOutput::LogLine(text) => output.write_log_line(&text)?,
            QueuedOutput::Bars(bars) => output.draw_bars(&bars)?,
        }
    }
    output.flush()
}

/// Lines for the thread's output. An error is that of an earlier line.
pub(crate) struct QueuedLines(SharedQueue);

impl LineOutput for QueuedLines {
    fn write_line(&mut self, text: &str) -> io::Result<()> {
        self.0.push(QueuedOutput::Line(text.to_owned()), text.len())
    }

    fn write_log_line(&mut self, text: &str) -> io::Result<()> {
        self.0.push(QueuedOutput::LogLine(text.to_owned()), text.len())
    }

    /// The newest bars replace those that wait.
    fn draw_bars(&mut self, bars: &BarTexts) -> io::Result<()> {
        let mut queue = self.0.lock_open()?;
        let has_room = queue.waiting.has_room_for_logs();
        match queue.waiting.last_mut() {
            Some(QueuedOutput::Bars(waiting)) => waiting.clone_from(bars),
            _ if has_room => queue.waiting.push(QueuedOutput::Bars(bars.clone()), bars.len()),
            _ => {}
        }
        drop(queue);
        self.0.0.1.notify_all();
        Ok(())
    }

    /// The thread flushes when the queue is empty.
    fn flush(&mut self) -> io::Result<()> {
        Ok(())
    }
}

/// A sink before a queue.
pub(crate) struct ThreadedSink<S> {
    sink: S,
    queue: SharedQueue,
    thread: Option<JoinHandle<()>>,
    finish_timeout: Duration,
}

impl<S: ReportSink> ThreadedSink<S> {
    /// Writes to `output` in a thread of its own; `build` gets the lines' way to it.
    ///
    /// # Errors
    /// If the thread cannot be started.
    pub(crate) fn new(
        output: impl LineOutput + 'static,
        finish_timeout: Duration,
        build: impl FnOnce(QueuedLines) -> S,
    ) -> io::Result<Self> {
        let queue = SharedQueue::default();
        let worker_queue = queue.clone();
        let thread = std::thread::Builder::new().name("output".to_owned()).spawn(move || worker_queue.run(output))?;
        Ok(ThreadedSink { sink: build(QueuedLines(queue.clone())), queue, thread: Some(thread), finish_timeout })
    }

    fn report_dropped(&mut self, dropped: DroppedCounts, state: &RunState) -> io::Result<()> {
        if dropped.is_empty() {
            return Ok(());
        }
        let text = format!("not shown, because this output is read too slowly: {dropped}; the log files hold all logs");
        let notice = Event { seq: state.last_seq, at: state.last_event_at, kind: EventKind::Notice { host: None, text, warn: false } };
        self.sink.on_event(&notice, state)
    }

    /// Says what was dropped, once the output has caught up.
    fn report_caught_up(&mut self, state: &RunState) -> io::Result<()> {
        let mut queue = self.queue.lock_open()?;
        let dropped = if queue.waiting.has_room_for_logs() { queue.waiting.take_dropped() } else { DroppedCounts::default() };
        drop(queue);
        self.report_dropped(dropped, state)
    }
}

impl<S: ReportSink> ReportSink for ThreadedSink<S> {
    fn on_event(&mut self, event: &Event, state: &RunState) -> io::Result<()> {
        self.report_caught_up(state)?;
        let is_admitted = self.queue.lock_open()?.waiting.admits(&event.kind);
        if is_admitted { self.sink.on_event(event, state) } else { Ok(()) }
    }

    fn tick(&mut self, now: UnixMillis, state: &RunState) -> io::Result<()> {
        self.report_caught_up(state)?;
        self.sink.tick(now, state)
    }

    fn on_findings(&mut self, findings: &[DiagnosisFinding], state: &RunState) -> io::Result<()> {
        self.sink.on_findings(findings, state)
    }

    fn finish(&mut self, state: &RunState) -> io::Result<()> {
        let dropped = self.queue.lock().waiting.take_dropped();
        let finished = self.report_dropped(dropped, state).and_then(|()| self.sink.finish(state));
        self.queue.close();
        let (lock, ended) = &*self.queue.0;
        let waited =
            ended.wait_timeout_while(lock.lock().unwrap_or_else(PoisonError::into_inner), self.finish_timeout, |queue| !queue.ended);
        let (mut queue, result) = waited.unwrap_or_else(PoisonError::into_inner);
        let error = queue.error.take();
        drop(queue);
        if result.timed_out() {
            // Its reader has stopped: the thread is left behind, it holds nothing that others need.
            return Err(io::ErrorKind::TimedOut.into());
        }
        if let Some(thread) = self.thread.take() {
            thread.join().map_err(|_| io::Error::other("the thread of an output panicked"))?;
        }
        error.map_or(finished, Err)
    }
}

impl<S> Drop for ThreadedSink<S> {
    /// The thread of a sink that was dropped, or never finished, ends by itself.
    fn drop(&mut self) {
        self.queue.close();
    }
}

#[cfg(test)]
mod tests {
    use std::io::{Read, Write};
    use std::os::unix::net::UnixStream;

    use super::*;
    use crate::report::bounded_queue::LOG_QUEUE_LIMIT;
    use crate::report::line_writer::SanitizedLineWriter;
    use crate::report::plain::{PlainSettings, PlainSink};
    use crate::report::test_support::{SinkHarness, rank_log, run_started};

    fn harness(writer: impl Write + Send + 'static, patience: Duration) -> SinkHarness<ThreadedSink<PlainSink<QueuedLines>>> {
        let plain = |lines| PlainSink::new(lines, PlainSettings::default());
        SinkHarness::new(ThreadedSink::new(SanitizedLineWriter::new(writer), patience, plain).expect("a thread"))
    }

    #[test]
    fn all_lines_arrive_in_order() {
        let (mut reader, writer) = UnixStream::pair().expect("a pair");
        let mut scene = harness(writer, FINISH_TIMEOUT);
        let reading = std::thread::spawn(move || {
            let mut text = String::new();
            reader.read_to_string(&mut text).map(|_| text)
        });
        scene.emit(0, run_started(1, 1, &[]));
        let mut offset = 0;
        for n in 0..500 {
            let text = format!("{n}\n");
            scene.emit(1, rank_log(0, 0, offset, &text));
            offset += text.len() as u64;
        }
        scene.finish();
        drop(scene);
        let text = reading.join().expect("no panic").expect("read");
        let lines: Vec<&str> = text.lines().skip(1).collect();
        assert_eq!(lines, (0..500).map(|n| format!("[rank 0 gpu01] {n}")).collect::<Vec<_>>());
    }

    #[test]
    fn slow_sink_drops_only_logs() {
        let (mut reader, writer) = UnixStream::pair().expect("a pair");
        let mut scene = harness(writer, Duration::from_millis(50));
        scene.emit(0, run_started(1, 1, &[]));
        let line = format!("{}\n", "x".repeat(1000)).repeat(200);
        for n in 0..300_u64 {
            scene.emit(1, rank_log(0, 0, n * line.len() as u64, &line));
        }
        scene.emit(1, EventKind::Notice { host: None, text: "the end".to_owned(), warn: true });
        let ended = scene.sink.finish(&scene.state).map_err(|error| error.kind());
        assert_eq!(ended, Err(io::ErrorKind::TimedOut));
        let mut text = String::new();
        reader.read_to_string(&mut text).expect("the thread ends once the pipe is read");
        assert!(text.contains("warning: the end\n") && text.contains("not shown, because this output is read too slowly: "));
        // A part of all that was sent: what was taken at once, what may wait in the queue, and each line's prefix.
        assert!(text.len() < LOG_QUEUE_LIMIT * 3);
    }

    #[test]
    fn queue_holds_its_bytes_of_short_lines() {
        let (mut reader, writer) = UnixStream::pair().expect("a pair");
        let mut scene = harness(writer, Duration::from_millis(50));
        scene.emit(0, run_started(1, 1, &[]));
        let lines = "123456789\n".repeat(10_000);
        for n in 0..5_u64 {
            scene.emit(1, rank_log(0, 0, n * lines.len() as u64, &lines));
        }
        assert!(scene.sink.finish(&scene.state).is_err(), "the reader takes nothing yet");
        let mut text = String::new();
        reader.read_to_string(&mut text).expect("the thread ends once the pipe is read");
        assert_eq!(text.matches("123456789\n").count(), 50_000);
    }

    #[test]
    fn closed_reader_is_an_error() {
        let (reader, writer) = UnixStream::pair().expect("a pair");
        drop(reader);
        let mut scene = harness(writer, FINISH_TIMEOUT);
        scene.state.apply(&Event { seq: 1, at: 1, kind: EventKind::Ready });
        let note = Event { seq: 2, at: 2, kind: EventKind::Ready };
        let sent = scene.sink.on_event(&note, &scene.state);
        let ended = scene.sink.finish(&scene.state);
        assert!(sent.is_err() || ended.is_err());
        assert!(scene.sink.on_event(&note, &scene.state).is_err(), "it stays closed");
    }
}
