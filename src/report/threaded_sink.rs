//! A sink on a thread of its own, so that a stopped terminal or a slow pipe stops nothing else.
//!
//! Log bytes and samples are dropped while the queue is full, and a notice says how many bytes; all else is kept.

use std::collections::VecDeque;
use std::io;
use std::sync::{Arc, Condvar, Mutex, MutexGuard, PoisonError};
use std::thread::JoinHandle;
use std::time::Duration;

use crate::diagnose::DiagnosisFinding;
use crate::event::{Event, EventKind, UnixMillis};
use crate::state::RunState;

use super::ReportSink;

/// Logs and samples are dropped beyond this many queued bytes.
const LOG_QUEUE_LIMIT: usize = 16 << 20;
/// Every event is dropped beyond this.
const QUEUE_LIMIT: usize = 128 << 20;
/// What an event counts beside its log bytes.
const EVENT_OVERHEAD: usize = 512;
/// How long `finish` waits for a sink that does not advance.
pub(crate) const FINISH_TIMEOUT: Duration = Duration::from_secs(5);

enum SinkMessage {
    Event(Box<Event>),
    Tick(UnixMillis),
    Findings(Vec<DiagnosisFinding>),
}

#[derive(Default)]
struct SinkQueue {
    messages: VecDeque<SinkMessage>,
    queued_bytes: usize,
    dropped_bytes: u64,
    closed: bool,
    ended: bool,
    error: Option<io::Error>,
}

type SharedQueue = (Mutex<SinkQueue>, Condvar);

/// A sink behind a queue.
pub(crate) struct ThreadedSink {
    queue: Arc<SharedQueue>,
    thread: Option<JoinHandle<()>>,
    finish_timeout: Duration,
}

impl ThreadedSink {
    /// Runs `sink` on a thread of its own; `state` is the state so far.
    ///
    /// # Errors
    /// If the thread cannot be started.
    pub(crate) fn new(sink: impl ReportSink + 'static, state: RunState, timeout: Duration) -> io::Result<Self> {
        let shared = Arc::new((Mutex::new(SinkQueue::default()), Condvar::new()));
        let worker_queue = Arc::clone(&shared);
        let thread = std::thread::Builder::new().name("sink".to_owned()).spawn(move || run_sink(&worker_queue, sink, state))?;
        Ok(ThreadedSink { queue: shared, thread: Some(thread), finish_timeout: timeout })
    }

    fn lock_queue(&self) -> MutexGuard<'_, SinkQueue> {
        self.queue.0.lock().unwrap_or_else(PoisonError::into_inner)
    }
}

fn run_sink(shared: &SharedQueue, mut sink: impl ReportSink, mut state: RunState) {
    let (queue, condition) = shared;
    loop {
        let mut guard = queue.lock().unwrap_or_else(PoisonError::into_inner);
        while guard.messages.is_empty() && !guard.closed {
            guard = condition.wait(guard).unwrap_or_else(PoisonError::into_inner);
        }
        let notes = std::mem::take(&mut guard.messages);
        let dropped = std::mem::take(&mut guard.dropped_bytes);
        guard.queued_bytes = 0;
        let last = guard.closed && notes.is_empty();
        drop(guard);
        let result = if last { sink.finish(&state) } else { forward_messages(&mut sink, &mut state, notes, dropped) };
        if last || result.is_err() {
            let mut guard = queue.lock().unwrap_or_else(PoisonError::into_inner);
            guard.error = result.err();
            (guard.closed, guard.ended) = (true, true);
            guard.messages.clear();
            condition.notify_all();
            return;
        }
    }
}

fn forward_messages(sink: &mut impl ReportSink, state: &mut RunState, messages: VecDeque<SinkMessage>, dropped: u64) -> io::Result<()> {
    for note in messages {
        match note {
            SinkMessage::Tick(now) => sink.tick(now, state)?,
            SinkMessage::Findings(findings) => sink.on_findings(&findings, state)?,
            SinkMessage::Event(event) => {
                state.apply(&event);
                sink.on_event(&event, state)?;
            }
        }
    }
    if dropped > 0 {
        let text = format!("{dropped} bytes of logs are not shown here, this output is slower than they come; the log files have them");
        let note = Event { seq: state.last_seq, at: state.last_event_at, kind: EventKind::Notice { host: None, text, warn: false } };
        sink.on_event(&note, state)?;
    }
    Ok(())
}

impl ReportSink for ThreadedSink {
    fn on_event(&mut self, event: &Event, _state: &RunState) -> io::Result<()> {
        let mut queue = self.lock_queue();
        if let Some(error) = queue.error.take() {
            return Err(error);
        }
        if queue.ended {
            return Err(io::ErrorKind::BrokenPipe.into());
        }
        let (bytes, limit) = match &event.kind {
            EventKind::Log { bytes, .. } => (bytes.len(), LOG_QUEUE_LIMIT),
            kind if kind.is_sample() => (0, LOG_QUEUE_LIMIT),
            _ => (0, QUEUE_LIMIT),
        };
        if queue.queued_bytes + bytes + EVENT_OVERHEAD > limit {
            queue.dropped_bytes += bytes as u64;
            return Ok(());
        }
        queue.queued_bytes += bytes + EVENT_OVERHEAD;
        queue.messages.push_back(SinkMessage::Event(Box::new(event.clone())));
        drop(queue);
        self.queue.1.notify_all();
        Ok(())
    }

    fn tick(&mut self, now: UnixMillis, _state: &RunState) -> io::Result<()> {
        let mut queue = self.lock_queue();
        match queue.messages.back_mut() {
            Some(SinkMessage::Tick(last)) => *last = now,
            _ => queue.messages.push_back(SinkMessage::Tick(now)),
        }
        drop(queue);
        self.queue.1.notify_all();
        Ok(())
    }

    fn on_findings(&mut self, findings: &[DiagnosisFinding], _state: &RunState) -> io::Result<()> {
        self.lock_queue().messages.push_back(SinkMessage::Findings(findings.to_vec()));
        self.queue.1.notify_all();
        Ok(())
    }

    fn finish(&mut self, _state: &RunState) -> io::Result<()> {
        self.lock_queue().closed = true;
        self.queue.1.notify_all();
        let waited = self.queue.1.wait_timeout_while(self.lock_queue(), self.finish_timeout, |queue| !queue.ended);
        let (mut queue, result) = waited.unwrap_or_else(PoisonError::into_inner);
        let error = queue.error.take();
        drop(queue);
        if result.timed_out() {
            // Whoever reads has stopped: the thread is left behind, it holds nothing that others need.
            return Err(io::ErrorKind::TimedOut.into());
        }
        if let Some(thread) = self.thread.take() {
            thread.join().map_err(|_| io::Error::other("the face's thread died"))?;
        }
        error.map_or(Ok(()), Err)
    }
}

impl Drop for ThreadedSink {
    /// The thread of a sink that was dropped, or never finished, ends by itself.
    fn drop(&mut self) {
        self.lock_queue().closed = true;
        self.queue.1.notify_all();
    }
}

#[cfg(test)]
mod tests {
    use std::io::{Read, Write};
    use std::os::unix::net::UnixStream;

    use super::*;
    use crate::report::line_writer::SanitizedLineWriter;
    use crate::report::log_lines::LogSelection;
    use crate::report::plain::PlainSink;
    use crate::report::style::TextStyle;
    use crate::report::test_support::{SinkHarness, rank_log, run_started};
    use crate::text::sanitize::Sanitizer;

    fn harness(writer: impl Write + Send + 'static, patience: Duration) -> SinkHarness<ThreadedSink> {
        let lines = PlainSink::new(SanitizedLineWriter::new(writer), Sanitizer::default(), TextStyle::default(), LogSelection::MainRank);
        SinkHarness::new(ThreadedSink::new(lines, RunState::new(), patience).expect("a thread"))
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
        reader.read_to_string(&mut text).expect("the thread ends once somebody reads");
        assert!(text.contains("warning: the end\n") && text.contains("bytes of logs are not shown here"));
        // Of all that was told, which is more: what was taken at once, what may wait behind it, and each line's own beginning.
        assert!(text.len() < LOG_QUEUE_LIMIT * 3);
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
