//! The words and colours that lines, bars and recap share.
//!
//! Uses `event`, `state` and `sanitize`. Meaning is never in the colour alone.

use crate::event::{Exit, Outcome, RunEnd, RunInfo};
use crate::state::RunState;

use super::fold;
use super::sanitize::{Cleaner, DIM, GREEN, PLAIN, RED, YELLOW};

/// What a piece of text means.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub enum Role {
    /// As it should be.
    Ok,
    /// Worth a look.
    Warn,
    /// Wrong.
    Bad,
    /// Beside the point.
    Dim,
    /// As it is.
    Plain,
}

/// Whether to use colours: decided once, from `--color`, `NO_COLOR` and the terminal, by `cli`.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Default)]
pub struct Style {
    /// Whether there are colours.
    pub color: bool,
}

impl Style {
    /// `text` marked with the colour of its role, which it gets where it is printed.
    pub fn paint(self, role: Role, text: &str) -> String {
        let mark = match role {
            Role::Ok => GREEN,
            Role::Warn => YELLOW,
            Role::Bad => RED,
            Role::Dim => DIM,
            Role::Plain => return text.to_owned(),
        };
        if self.color && !text.is_empty() { format!("{mark}{text}{PLAIN}") } else { text.to_owned() }
    }
}

/// `exit 1`, `signal 9 (KILL)`, `gone without a status`.
pub fn exit(exit: Exit) -> String {
    match exit {
        // A Python launcher that ends with its child's negative code: the shell sees 256 less the signal (deepspeed/launcher/launch.py).
        Exit::Code(code @ 241..=250) => format!("exit {code} (-{0} in Python: signal {0})", 256 - code),
        Exit::Code(code) => format!("exit {code}"),
        Exit::Signal(n) => match signal(n) {
            "" => format!("signal {n}"),
            name => format!("signal {n} ({name})"),
        },
        Exit::Killed => "gone without a status".to_owned(),
    }
}

fn signal(number: i32) -> &'static str {
    match number {
        1 => "HUP",
        2 => "INT",
        3 => "QUIT",
        4 => "ILL",
        6 => "ABRT",
        7 => "BUS",
        8 => "FPE",
        9 => "KILL",
        11 => "SEGV",
        13 => "PIPE",
        15 => "TERM",
        _ => "",
    }
}

/// `1 host`, `2 hosts`.
pub fn count(n: usize, noun: &str) -> String {
    format!("{n} {noun}{}", if n == 1 { "" } else { "s" })
}

/// `0.3 s`, `12 s`, `4m05s`, `2h13m`.
pub fn span(millis: i64) -> String {
    let seconds = millis.max(0) / 1000;
    match seconds {
        0..10 => format!("{}.{} s", seconds, millis.max(0) % 1000 / 100),
        10..60 => format!("{seconds} s"),
        60..3600 => format!("{}m{:02}s", seconds / 60, seconds % 60),
        _ => format!("{}h{:02}m", seconds / 3600, seconds % 3600 / 60),
    }
}

/// Hosts by number, as their folded names.
pub fn hosts<'a>(state: &RunState, cleaner: &Cleaner, list: impl IntoIterator<Item = &'a u32>) -> String {
    let name = |host: &u32| match state.host_name(*host) {
        "" => format!("host {host}"),
        name => cleaner.line(name),
    };
    fold::fold(&list.into_iter().map(name).collect::<Vec<_>>())
}

/// `rank 3`, `ranks 0-3,7`.
pub fn ranks(list: &[u32]) -> String {
    format!("rank{} {}", if list.len() == 1 { "" } else { "s" }, fold::numbers(list))
}

/// `up wan22`.
pub fn title(info: &RunInfo, cleaner: &Cleaner) -> String {
    [info.command.as_str(), info.name.as_str()]
        .iter()
        .filter(|word| !word.is_empty())
        .map(|word| cleaner.line(word))
        .collect::<Vec<_>>()
        .join(" ")
}

/// The word for an outcome, and what it means.
pub fn outcome(outcome: &Outcome) -> (&'static str, Role) {
    match outcome {
        Outcome::Ok => ("OK", Role::Ok),
        Outcome::Detached => ("DETACHED", Role::Warn),
        Outcome::Failed => ("FAILED", Role::Bad),
        Outcome::Refused => ("REFUSED", Role::Bad),
        Outcome::Unreachable => ("UNREACHABLE", Role::Bad),
        Outcome::Signal(_) | Outcome::Stopped => ("STOPPED", Role::Warn),
        Outcome::Leftovers => ("LEFTOVERS", Role::Bad),
        Outcome::Locked => ("LOCKED", Role::Bad),
    }
}

/// The word for how a run ended.
pub fn run_end(end: RunEnd) -> (&'static str, Role) {
    outcome(match end {
        RunEnd::Ok => &Outcome::Ok,
        RunEnd::Failed => &Outcome::Failed,
        RunEnd::Stopped => &Outcome::Stopped,
        RunEnd::Running => &Outcome::Detached,
    })
}

/// The word for how an operation ended; `None` while it goes on. Who leaves a run that goes on has detached, whatever made them leave.
pub fn ending(state: &RunState) -> Option<(&'static str, Role)> {
    match &state.outcome.as_ref()?.0 {
        Outcome::Signal(_) if state.run_end() == Some(RunEnd::Running) => Some(run_end(RunEnd::Running)),
        ended => Some(outcome(ended)),
    }
}

/// Lines of at most `width` columns, broken at spaces, and before and after a wide character. A longer word stays whole, so that a command can
/// be pasted; where `hard`, it is broken.
pub fn wrap(text: &str, width: usize, hard: bool) -> Vec<String> {
    use unicode_width::{UnicodeWidthChar, UnicodeWidthStr};
    let wide = |c: char| c.width().unwrap_or(0) > 1;
    let mut lines = vec![String::new()];
    for (at, word) in text.split(' ').enumerate() {
        let mut gap = if at > 0 { " " } else { "" };
        let mut rest = word;
        loop {
            // A piece: one wide character, or all up to the next one.
            let end = rest
                .char_indices()
                .find(|(at, c)| *at > 0 && (wide(*c) || rest.chars().next().is_some_and(wide)))
                .map_or(rest.len(), |(at, _)| at);
            let (piece, tail) = rest.split_at(end);
            for piece in if hard { pieces(piece, width.max(1)) } else { vec![piece] } {
                let line = lines.last().map_or(0, |line| line.width());
                if line > 0 && line + gap.len() + piece.width() > width {
                    lines.push(String::new());
                    gap = "";
                }
                if let Some(line) = lines.last_mut() {
                    line.push_str(gap);
                    line.push_str(piece);
                }
                gap = "";
            }
            if tail.is_empty() {
                break;
            }
            rest = tail;
        }
    }
    lines
}

/// A text in pieces of at most `width` columns.
fn pieces(text: &str, width: usize) -> Vec<&str> {
    use unicode_width::UnicodeWidthChar;
    let (mut found, mut from, mut used) = (Vec::new(), 0, 0);
    for (at, c) in text.char_indices() {
        let own = c.width().unwrap_or(0);
        if used + own > width && at > from {
            found.push(&text[from..at]);
            (from, used) = (at, 0);
        }
        used += own;
    }
    found.push(&text[from..]);
    found
}

/// The first `width` columns of a text, with `…` where something is missing.
pub fn cut(text: &str, width: usize) -> String {
    use unicode_width::{UnicodeWidthChar, UnicodeWidthStr};
    let text = text.replace('\t', " ");
    if text.width() <= width {
        return text;
    }
    let mut used = 0;
    let fits = |c: &char| {
        used += c.width().unwrap_or(0);
        used < width
    };
    let mut short: String = text.chars().take_while(fits).collect();
    short.push('…');
    short
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_negative_code_of_python_is_read() {
        assert_eq!(exit(Exit::Code(247)), "exit 247 (-9 in Python: signal 9)");
        assert_eq!(exit(Exit::Code(251)), "exit 251");
    }

    #[test]
    fn a_remedy_is_wrapped_and_never_cut() {
        let long = "orchestrate exec a.yaml --limit gpu01 -- nvidia-smi; PYTORCH_CUDA_ALLOC_CONF=expandable_segments:True";
        let lines = wrap(long, 40, false);
        assert_eq!(lines.join(" "), long);
        assert_eq!(lines.last().map(String::as_str), Some("PYTORCH_CUDA_ALLOC_CONF=expandable_segments:True"), "whole, to be pasted");
        assert!(wrap(long, 40, true).iter().all(|line| line.len() <= 40));
        assert_eq!(wrap(long, 40, true).concat().replace(' ', ""), long.replace(' ', ""));
        let chinese = "减小批大小;PYTORCH=1减少数据加载进程";
        assert_eq!(wrap(chinese, 12, false), ["减小批大小", ";PYTORCH=1减", "少数据加载进", "程"]);
        assert_eq!(wrap("", 10, true), [""]);
    }

    #[test]
    fn words() {
        assert_eq!((count(1, "host"), count(2, "host"), count(0, "host")), ("1 host".into(), "2 hosts".into(), "0 hosts".into()));
        assert_eq!([0, 950, 9_999, 59_999, 245_000, 7_980_000].map(span), ["0.0 s", "0.9 s", "9.9 s", "59 s", "4m05s", "2h13m"]);
        assert_eq!(exit(Exit::Signal(9)), "signal 9 (KILL)");
        assert_eq!(exit(Exit::Signal(64)), "signal 64");
        assert_eq!((cut("abcdef", 4), cut("中中中", 4), cut("abcd", 4)), ("abc…".into(), "中…".into(), "abcd".into()));
        let painted = Style { color: true }.paint(Role::Bad, "x");
        assert_eq!(crate::report::sanitize::Printable::new(&painted).as_str(), "\u{1b}[31mx\u{1b}[0m");
        assert_eq!(Style::default().paint(Role::Bad, "x"), "x");
    }
}
