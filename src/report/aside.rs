//! A face on a thread of its own, so that a stopped terminal or a slow pipe stops nothing else.
//!
//! Uses `event` and `state`. Log bytes and GPU values are left out while too much waits, and a notice tells how much; all else is kept.

use std::collections::VecDeque;
use std::io;
use std::sync::{Arc, Condvar, Mutex, MutexGuard, PoisonError};
use std::thread::JoinHandle;
use std::time::Duration;

use crate::diagnose::Finding;
use crate::event::{Event, EventKind, Millis};
use crate::state::RunState;

use super::Sink;

/// Chatter is left out beyond this many waiting bytes.
const CHATTER: usize = 16 << 20;
/// Everything is left out beyond this.
const ALL: usize = 128 << 20;
/// What an event weighs beside its bytes.
const WEIGHT: usize = 512;
/// How long the end waits for a face that does not move.
pub const PATIENCE: Duration = Duration::from_secs(5);

enum Note {
    Event(Box<Event>),
    Tick(Millis),
    Found(Vec<Finding>),
}

#[derive(Default)]
struct Queue {
    notes: VecDeque<Note>,
    bytes: usize,
    dropped: u64,
    closed: bool,
    ended: bool,
    error: Option<io::Error>,
}

type Shared = (Mutex<Queue>, Condvar);

/// A face behind a queue.
pub struct Aside {
    shared: Arc<Shared>,
    thread: Option<JoinHandle<()>>,
    patience: Duration,
}

impl Aside {
    /// Puts `face` on a thread of its own; `state` is what it knows already.
    ///
    /// # Errors
    /// When there is no thread to be had.
    pub fn new(face: impl Sink + 'static, state: RunState, patience: Duration) -> io::Result<Self> {
        let shared = Arc::new((Mutex::new(Queue::default()), Condvar::new()));
        let theirs = Arc::clone(&shared);
        let thread = std::thread::Builder::new().name("face".to_owned()).spawn(move || serve(&theirs, face, state))?;
        Ok(Aside { shared, thread: Some(thread), patience })
    }

    fn lock(&self) -> MutexGuard<'_, Queue> {
        self.shared.0.lock().unwrap_or_else(PoisonError::into_inner)
    }
}

fn serve(shared: &Shared, mut face: impl Sink, mut state: RunState) {
    let (queue, bell) = shared;
    loop {
        let mut guard = queue.lock().unwrap_or_else(PoisonError::into_inner);
        while guard.notes.is_empty() && !guard.closed {
            guard = bell.wait(guard).unwrap_or_else(PoisonError::into_inner);
        }
        let notes = std::mem::take(&mut guard.notes);
        let dropped = std::mem::take(&mut guard.dropped);
        guard.bytes = 0;
        let last = guard.closed && notes.is_empty();
        drop(guard);
        let result = if last { face.finish(&state) } else { show(&mut face, &mut state, notes, dropped) };
        if last || result.is_err() {
            let mut guard = queue.lock().unwrap_or_else(PoisonError::into_inner);
            guard.error = result.err();
            (guard.closed, guard.ended) = (true, true);
            guard.notes.clear();
            bell.notify_all();
            return;
        }
    }
}

fn show(face: &mut impl Sink, state: &mut RunState, notes: VecDeque<Note>, dropped: u64) -> io::Result<()> {
    for note in notes {
        match note {
            Note::Tick(now) => face.tick(now, state)?,
            Note::Found(findings) => face.found(&findings, state)?,
            Note::Event(event) => {
                state.apply(&event);
                face.on(&event, state)?;
            }
        }
    }
    if dropped > 0 {
        let text = format!("{dropped} bytes of logs are not shown here, this output is slower than they come; the log files have them");
        let note = Event { seq: state.seq, at: state.now, kind: EventKind::Notice { host: None, text, warn: false } };
        face.on(&note, state)?;
    }
    Ok(())
}

impl Sink for Aside {
    fn on(&mut self, event: &Event, _state: &RunState) -> io::Result<()> {
        let mut queue = self.lock();
        if let Some(error) = queue.error.take() {
            return Err(error);
        }
        if queue.ended {
            return Err(io::ErrorKind::BrokenPipe.into());
        }
        let (bytes, limit) = match &event.kind {
            EventKind::Log { bytes, .. } => (bytes.len(), CHATTER),
            kind if kind.is_sample() => (0, CHATTER),
            _ => (0, ALL),
        };
        if queue.bytes + bytes + WEIGHT > limit {
            queue.dropped += bytes as u64;
            return Ok(());
        }
        queue.bytes += bytes + WEIGHT;
        queue.notes.push_back(Note::Event(Box::new(event.clone())));
        drop(queue);
        self.shared.1.notify_all();
        Ok(())
    }

    fn tick(&mut self, now: Millis, _state: &RunState) -> io::Result<()> {
        let mut queue = self.lock();
        match queue.notes.back_mut() {
            Some(Note::Tick(last)) => *last = now,
            _ => queue.notes.push_back(Note::Tick(now)),
        }
        drop(queue);
        self.shared.1.notify_all();
        Ok(())
    }

    fn found(&mut self, findings: &[Finding], _state: &RunState) -> io::Result<()> {
        self.lock().notes.push_back(Note::Found(findings.to_vec()));
        self.shared.1.notify_all();
        Ok(())
    }

    fn finish(&mut self, _state: &RunState) -> io::Result<()> {
        self.lock().closed = true;
        self.shared.1.notify_all();
        let waited = self.shared.1.wait_timeout_while(self.lock(), self.patience, |queue| !queue.ended);
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

impl Drop for Aside {
    /// A face that was left out, or never finished, ends by itself.
    fn drop(&mut self) {
        self.lock().closed = true;
        self.shared.1.notify_all();
    }
}

#[cfg(test)]
mod tests {
    use std::io::{Read, Write};
    use std::os::unix::net::UnixStream;

    use super::*;
    use crate::report::line::Lines;
    use crate::report::loglines::Logs;
    use crate::report::outlet::Outlet;
    use crate::report::sanitize::Cleaner;
    use crate::report::scene::{Scene, log, plan};
    use crate::report::words::Style;

    fn scene(writer: impl Write + Send + 'static, patience: Duration) -> Scene<Aside> {
        let lines = Lines::new(Outlet::new(writer), Cleaner::default(), Style::default(), Logs::Main);
        Scene::new(Aside::new(lines, RunState::new(), patience).expect("a thread"))
    }

    #[test]
    fn all_lines_arrive_in_order() {
        let (mut reader, writer) = UnixStream::pair().expect("a pair");
        let mut scene = scene(writer, PATIENCE);
        let reading = std::thread::spawn(move || {
            let mut text = String::new();
            reader.read_to_string(&mut text).map(|_| text)
        });
        scene.tell(0, plan(1, 1, &[]));
        let mut offset = 0;
        for n in 0..500 {
            let text = format!("{n}\n");
            scene.tell(1, log(0, 0, offset, &text));
            offset += text.len() as u64;
        }
        scene.finish();
        drop(scene);
        let text = reading.join().expect("no panic").expect("read");
        let lines: Vec<&str> = text.lines().skip(1).collect();
        assert_eq!(lines, (0..500).map(|n| format!("[rank 0 gpu01] {n}")).collect::<Vec<_>>());
    }

    #[test]
    fn a_stopped_reader_stops_nobody_and_loses_only_logs() {
        let (mut reader, writer) = UnixStream::pair().expect("a pair");
        let mut scene = scene(writer, Duration::from_millis(50));
        scene.tell(0, plan(1, 1, &[]));
        let line = format!("{}\n", "x".repeat(1000)).repeat(200);
        for n in 0..300_u64 {
            scene.tell(1, log(0, 0, n * line.len() as u64, &line));
        }
        scene.tell(1, EventKind::Notice { host: None, text: "the end".to_owned(), warn: true });
        let ended = scene.face.finish(&scene.state).map_err(|error| error.kind());
        assert_eq!(ended, Err(io::ErrorKind::TimedOut));
        let mut text = String::new();
        reader.read_to_string(&mut text).expect("the thread ends once somebody reads");
        assert!(text.contains("warning: the end\n") && text.contains("bytes of logs are not shown here"));
        // Of all that was told, which is more: what was taken at once, what may wait behind it, and each line's own beginning.
        assert!(text.len() < CHATTER * 3);
    }

    #[test]
    fn a_closed_reader_is_an_error() {
        let (reader, writer) = UnixStream::pair().expect("a pair");
        drop(reader);
        let mut scene = scene(writer, PATIENCE);
        scene.state.apply(&Event { seq: 1, at: 1, kind: EventKind::Ready });
        let note = Event { seq: 2, at: 2, kind: EventKind::Ready };
        let told = scene.face.on(&note, &scene.state);
        let ended = scene.face.finish(&scene.state);
        assert!(told.is_err() || ended.is_err());
        assert!(scene.face.on(&note, &scene.state).is_err(), "it stays closed");
    }
}
