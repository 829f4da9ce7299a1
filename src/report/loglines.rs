//! Which lines of which log a person sees, and equal ones of many ranks as one.
//!
//! Uses `event`, `state` and `sanitize`. Time is the events'. Bounded: what waits to be folded, and what one rank may complain.

use std::collections::{BTreeSet, HashMap};

use regex::bytes::Regex;

use crate::event::{LogFile, Millis};
use crate::state::RunState;
use crate::state::lines::Cutter;

use super::sanitize::Cleaner;
use super::words::{self, Role, Style};

/// How long a line waits for equal ones.
const WINDOW: i64 = 250;
/// How many lines wait.
const HELD: usize = 256;
/// How many complaints of one file are shown beside the main rank's log.
const COMPLAINTS: u32 = 40;
/// A progress bar is shown once in this time.
const PROGRESS: i64 = 10_000;
/// What a complaint looks like.
const ALARM: &str = r"(?i-u)traceback \(most recent|\werror:|\wexception:|\berror\b|\bfatal\b|\bpanic|segfault|segmentation fault|out of memory|\bkilled\b|\baborted\b|nccl warn|core dumped";

/// Whose lines are shown.
#[derive(Debug, Clone, PartialEq, Eq, Default)]
pub enum Logs {
    /// No log lines.
    None,
    /// Rank 0 whole, and what the others complain of.
    #[default]
    Main,
    /// Everything.
    All,
    /// These ranks, whole.
    Ranks(BTreeSet<u32>),
}

/// How much of one file is shown.
#[derive(Clone, Copy, PartialEq, Eq)]
enum Share {
    None,
    Alarms,
    Whole,
}

#[derive(Default)]
struct Follow {
    cutter: Cutter,
    next: u64,
    complaints: u32,
    shown: Millis,
}

struct Held {
    text: String,
    files: Vec<(u32, LogFile)>,
}

/// Turns log chunks into lines for people.
pub struct LogLines {
    logs: Logs,
    alarm: Option<Regex>,
    follows: HashMap<(u32, LogFile), Follow>,
    held: Vec<Held>,
    since: Millis,
}

impl LogLines {
    /// Shows what `logs` says.
    pub fn new(logs: Logs) -> Self {
        LogLines { logs, alarm: Regex::new(ALARM).ok(), follows: HashMap::new(), held: Vec::new(), since: 0 }
    }

    fn share(&self, file: LogFile) -> Share {
        match (&self.logs, file) {
            (Logs::None, _) => Share::None,
            (Logs::All, _) | (Logs::Main, LogFile::Rank { rank: 0, .. }) => Share::Whole,
            (Logs::Main, _) => Share::Alarms,
            (Logs::Ranks(ranks), LogFile::Rank { rank, .. }) if ranks.contains(&rank) => Share::Whole,
            (Logs::Ranks(_), _) => Share::None,
        }
    }

    /// Takes bytes of a log.
    pub fn push(&mut self, key: (u32, LogFile), offset: u64, bytes: &[u8], at: Millis) {
        let share = self.share(key.1);
        if share == Share::None {
            return;
        }
        let LogLines { alarm, follows, .. } = self;
        let alarm = alarm.as_ref();
        let follow = follows.entry(key).or_default();
        let end = offset + bytes.len() as u64;
        let seen = usize::try_from(follow.next.saturating_sub(offset)).unwrap_or(usize::MAX);
        let Some(bytes) = bytes.get(seen..).filter(|bytes| !bytes.is_empty()) else { return };
        follow.next = end;
        let mut lines = Vec::new();
        if share == Share::Whole {
            follow.cutter.push(bytes, |line| lines.push(line));
            if follow.cutter.redrawn() && at - follow.shown >= PROGRESS {
                lines.extend(follow.cutter.partial());
            }
        } else {
            follow.complain(bytes, alarm, |line| lines.push(line));
        }
        if !lines.is_empty() {
            follow.shown = at;
        }
        for line in lines {
            self.hold(key, line, at);
        }
    }

    /// What follows are the logs of another run.
    pub fn another_run(&mut self) {
        self.follows.clear();
    }

    /// A file begins again at its first byte.
    pub fn begin_again(&mut self, key: (u32, LogFile)) {
        self.follows.remove(&key);
    }

    /// A file has ended: what is left of it without a newline is a line.
    pub fn end(&mut self, at: Millis) {
        let whole: Vec<(u32, LogFile)> = self.follows.keys().copied().filter(|key| self.share(key.1) == Share::Whole).collect();
        for key in whole {
            if let Some(line) = self.follows.get_mut(&key).and_then(|follow| follow.cutter.finish()) {
                self.hold(key, line, at);
            }
        }
    }

    /// Joins a line to an equal one that waits, never to one before a line of the same file: order within a file is kept.
    fn hold(&mut self, key: (u32, LogFile), text: String, at: Millis) {
        if self.held.is_empty() {
            self.since = at;
        }
        let after = self.held.iter().rposition(|held| held.files.contains(&key)).map_or(0, |place| place + 1);
        match self.held[after..].iter_mut().find(|held| held.text == text) {
            Some(held) => held.files.push(key),
            None => self.held.push(Held { text, files: vec![key] }),
        }
    }

    /// Lines that have waited long enough, ready to be shown.
    pub fn due(&mut self, now: Millis, state: &RunState, cleaner: &Cleaner, style: Style) -> Vec<String> {
        // Where only one file is shown whole there is nothing to wait for.
        let alone = self.logs == Logs::Main && self.held.iter().all(|held| matches!(held.files[..], [(_, LogFile::Rank { rank: 0, .. })]));
        let waits = !alone && state.ranks.len() > 1 && now - self.since < WINDOW && self.held.len() < HELD;
        if waits { Vec::new() } else { self.take(state, cleaner, style) }
    }

    /// All lines that wait.
    pub fn take(&mut self, state: &RunState, cleaner: &Cleaner, style: Style) -> Vec<String> {
        let mut last = (Vec::new(), String::new());
        let held = std::mem::take(&mut self.held);
        let text = |held: Held| {
            if held.files != last.0 {
                let prefix = style.paint(Role::Dim, &prefix(&held.files, state, cleaner));
                last = (held.files, prefix);
            }
            format!("{} {}", last.1, cleaner.line(&held.text))
        };
        held.into_iter().map(text).collect()
    }
}

impl Follow {
    /// Cuts only what may hold a complaint.
    fn complain(&mut self, bytes: &[u8], alarm: Option<&Regex>, mut out: impl FnMut(String)) {
        let Some(alarm) = alarm else { return };
        let (Some(first), Some(last)) = (memchr::memchr(b'\n', bytes), memchr::memrchr(b'\n', bytes)) else {
            self.cutter.push(bytes, |_| ());
            return;
        };
        let complaints = &mut self.complaints;
        let mut tell = |line: String| {
            if alarm.is_match(line.as_bytes()) {
                *complaints = complaints.saturating_add(1);
                match *complaints {
                    1..COMPLAINTS => out(line),
                    COMPLAINTS => out(format!("{line} (more of the like are in the log)")),
                    _ => {}
                }
            }
        };
        self.cutter.push(&bytes[..=first], &mut tell);
        if alarm.is_match(&bytes[first + 1..=last]) {
            self.cutter.push(&bytes[first + 1..=last], &mut tell);
        }
        self.cutter.push(&bytes[last + 1..], |_| ());
    }
}

/// `[rank 3 gpu02]`, `[rank 0-15]`, `[gpu02]`.
fn prefix(files: &[(u32, LogFile)], state: &RunState, cleaner: &Cleaner) -> String {
    let ranks: Vec<u32> =
        files.iter().filter_map(|(_, file)| if let LogFile::Rank { rank, .. } = file { Some(*rank) } else { None }).collect();
    let nodes: Vec<u32> = files.iter().filter(|(_, file)| *file == LogFile::Node).map(|(host, _)| *host).collect();
    let mut words = Vec::new();
    match (&ranks[..], files) {
        ([], _) => {}
        ([rank], [(host, _)]) => words.push(format!("rank {rank} {}", words::hosts(state, cleaner, [host]))),
        (ranks, _) => words.push(format!("rank {}", super::fold::numbers(ranks))),
    }
    if !nodes.is_empty() {
        words.push(words::hosts(state, cleaner, &nodes));
    }
    format!("[{}]", words.join(" "))
}
