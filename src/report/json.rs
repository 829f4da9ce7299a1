//! The stream as lines of JSON, for programs.
//!
//! Uses `event` and its neighbours. One object an event, the first is a header with the format. Log bytes are text here: cut at line ends,
//! invalid UTF-8 replaced, with the place they came from; the log files have them as they were.

use std::collections::HashMap;
use std::io;

use serde::Serialize;

use crate::diagnose::Finding;
use crate::event::{Event, EventKind, LogFile, Millis};
use crate::state::RunState;

use super::Sink;
use super::finding::FindingReport;
use super::journal::Header;
use super::outlet::Out;
use super::sanitize::{Cleaner, json_escaped};

/// Text without a newline is held back up to this many bytes, so that no secret and no character is cut in two.
const HOLD: usize = 64 << 10;

/// A piece of a log in the stream.
#[derive(Serialize)]
struct LogText<'a> {
    seq: u64,
    at: Millis,
    kind: &'static str,
    host: u32,
    name: &'a str,
    file: LogFile,
    offset: u64,
    len: u64,
    text: String,
}

/// What went wrong, before the last event.
#[derive(Serialize)]
struct Found {
    seq: u64,
    at: Millis,
    kind: &'static str,
    #[serde(flatten)]
    finding: FindingReport,
}

#[derive(Default)]
struct Held {
    offset: u64,
    bytes: Vec<u8>,
}

/// Prints JSON.
pub struct Json<O> {
    out: O,
    cleaner: Cleaner,
    held: HashMap<(u32, LogFile), Held>,
    begun: bool,
}

impl<O: Out> Json<O> {
    /// Prints to `out`.
    pub fn new(out: O, cleaner: Cleaner) -> Self {
        Json { out, cleaner, held: HashMap::new(), begun: false }
    }

    fn put(&mut self, value: &impl Serialize) -> io::Result<()> {
        let line = self.cleaner.json(serde_json::to_string(value)?);
        self.out.line(&json_escaped(&line))
    }

    fn log(&mut self, key: (u32, LogFile), offset: u64, bytes: &[u8], event: &Event, state: &RunState) -> io::Result<()> {
        let held = self.held.entry(key).or_default();
        if held.bytes.is_empty() || held.offset + held.bytes.len() as u64 != offset {
            held.bytes.clear();
            held.offset = offset;
        }
        held.bytes.extend_from_slice(bytes);
        let whole = match memchr::memrchr(b'\n', &held.bytes) {
            Some(at) => at + 1,
            None if held.bytes.len() > HOLD => held.bytes.len(),
            None => return Ok(()),
        };
        let ready: Vec<u8> = held.bytes.drain(..whole).collect();
        let from = held.offset;
        held.offset += whole as u64;
        self.text(key, from, &ready, event.seq, event.at, state)
    }

    fn text(&mut self, key: (u32, LogFile), offset: u64, bytes: &[u8], seq: u64, at: Millis, state: &RunState) -> io::Result<()> {
        let text = String::from_utf8_lossy(bytes).into_owned();
        let (host, file) = key;
        self.put(&LogText { seq, at, kind: "log", host, name: state.host_name(host), file, offset, len: bytes.len() as u64, text })
    }

    fn rest(&mut self, seq: u64, at: Millis, state: &RunState) -> io::Result<()> {
        let mut held: Vec<((u32, LogFile), Held)> = self.held.drain().filter(|(_, held)| !held.bytes.is_empty()).collect();
        held.sort_by_key(|(key, _)| *key);
        held.into_iter().try_for_each(|(key, held)| self.text(key, held.offset, &held.bytes, seq, at, state))
    }
}

impl<O: Out> Sink for Json<O> {
    fn on(&mut self, event: &Event, state: &RunState) -> io::Result<()> {
        if !self.begun {
            self.begun = true;
            self.put(&Header::ours())?;
        }
        match &event.kind {
            EventKind::Log { host, file, offset, bytes, .. } => self.log((*host, *file), *offset, bytes, event, state)?,
            EventKind::LogShrunk { host, file, .. } => {
                self.held.remove(&(*host, *file));
                self.put(event)?;
            }
            EventKind::RunFinished { .. } => {
                self.rest(event.seq, event.at, state)?;
                self.put(event)?;
            }
            _ => self.put(event)?,
        }
        self.out.flush()
    }

    fn found(&mut self, findings: &[Finding], state: &RunState) -> io::Result<()> {
        findings.iter().try_for_each(|finding| {
            self.put(&Found { seq: state.seq, at: state.now, kind: "finding", finding: FindingReport::new(finding, state) })
        })
    }

    fn finish(&mut self, state: &RunState) -> io::Result<()> {
        self.rest(state.seq, state.now, state)?;
        self.out.flush()
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::event::Outcome;
    use crate::report::scene::{Scene, log, plan};

    #[test]
    fn every_line_is_an_object_and_text_is_whole_lines() {
        let mut scene = Scene::new(Json::new(Vec::new(), Cleaner::new(&["s3cret".to_owned()])));
        scene.tell(0, plan(2, 1, &[]));
        scene.tell(1, log(1, 1, 0, "one\nmy s3c"));
        scene.tell(1, log(1, 1, 10, "ret \u{9b}31m\u{7f}\nrest"));
        scene.tell(1, EventKind::RunFinished { outcome: Outcome::Ok, why: String::new() });
        scene.finish();
        let lines = std::mem::take(&mut scene.face.out);
        assert!(lines.iter().all(|line| !line.chars().any(char::is_control)));
        let values: Vec<serde_json::Value> = lines.iter().map(|line| serde_json::from_str(line).expect("an object")).collect();
        assert_eq!(values[0]["format"], crate::event::FORMAT);
        let logs: Vec<(u64, u64, &str, &str)> = values
            .iter()
            .filter(|value| value["kind"] == "log")
            .map(|value| {
                let number = |key: &str| value[key].as_u64().expect("a number");
                (number("offset"), number("len"), value["name"].as_str().expect("text"), value["text"].as_str().expect("text"))
            })
            .collect();
        let expected = [(0, 4, "gpu02", "one\n"), (4, 17, "gpu02", "my *** \u{9b}31m\u{7f}\n"), (21, 4, "gpu02", "rest")];
        assert_eq!(logs, expected);
        assert_eq!(values.last().map(|value| value["kind"].clone()), Some("run-finished".into()));
    }

    #[test]
    fn an_endless_line_does_not_grow() {
        let mut scene = Scene::new(Json::new(Vec::new(), Cleaner::default()));
        scene.tell(0, plan(1, 1, &[]));
        for n in 0..100_u64 {
            scene.tell(1, log(0, 0, n * 10_000, &"x".repeat(10_000)));
        }
        assert!(scene.face.held.values().all(|held| held.bytes.len() <= HOLD + 10_000));
        assert!(scene.face.out.len() > 10);
    }
}
