//! Which key means what as this program is shipped: one table. What a person changed of it is `bindings`, from which keys are looked up and
//! the help is drawn.
//!
//! Lower case looks, upper case changes; Ctrl with a letter only scrolls, but for Ctrl-C, Ctrl-L and Ctrl-Z which mean what they always do.

use crossterm::event::{KeyCode, KeyEvent, KeyModifiers};

/// What a key asks of the dashboard.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub enum Cmd {
    /// One screen back; on the first one ask how to leave.
    Quit,
    /// Close what lies on top, go back; never leaves.
    Back,
    /// Leave at once; the run goes on.
    DetachNow,
    /// Ctrl-C.
    Interrupt,
    /// Show the keys, or hide them.
    Help,
    /// Draw all anew.
    Redraw,
    /// Stop this program as the shell does.
    Suspend,
    /// Show the overview.
    Overview,
    /// Show one host.
    Host,
    /// Show the ranks.
    Ranks,
    /// Show the logs.
    Logs,
    /// Show every GPU.
    Gpus,
    /// Ask which lines to show.
    Filter,
    /// One log, all, those of a host.
    Merge,
    /// Equal lines as one, or each.
    Fold,
    /// No times, how long ago, the time of day.
    Times,
    /// The line before that says that something is wrong; outside of logs the next problem.
    NextError,
    /// The line after that says so; outside of logs the problem before.
    PrevError,
    /// Mark the line, or take its mark away.
    Mark,
    /// The next marked line.
    NextMark,
    /// Copy the line.
    Copy,
    /// Copy what is on the screen.
    CopyView,
    /// Save what can be scrolled to.
    Save,
    /// Every byte as it is, escaped.
    Bytes,
    /// Every picture of a progress bar, or the last one.
    Collapse,
    /// Nothing but the log.
    Zoom,
    /// Show what is wrong.
    Problems,
    /// Show what happened.
    Events,
    /// The event before.
    PrevEvent,
    /// The next event.
    NextEvent,
    /// Less time in more detail.
    ZoomIn,
    /// More time.
    ZoomOut,
    /// The newest, as it comes.
    Live,
    /// The next screen.
    NextScreen,
    /// The screen before.
    PrevScreen,
    /// One line up.
    Up,
    /// One line down.
    Down,
    /// One page up.
    PageUp,
    /// One page down.
    PageDown,
    /// Half a page up.
    HalfUp,
    /// Half a page down.
    HalfDown,
    /// To the beginning.
    Top,
    /// To the end; in a log the newest line, and stay there.
    Bottom,
    /// To the left.
    Left,
    /// To the right.
    Right,
    /// Open what is under the cursor.
    Open,
    /// The log of what is under the cursor.
    Output,
    /// Another order of the rows.
    Sort,
    /// Another metric.
    Metric,
    /// Only what is wrong, or all.
    Faults,
    /// What nvidia-smi prints, or no longer.
    Raw,
    /// Ask it again.
    Again,
    /// Ask what to look for.
    Find,
    /// The next line that has it.
    FindNext,
    /// The line before that has it.
    FindPrev,
    /// The log of the rank before.
    PrevRank,
    /// The log of the next rank.
    NextRank,
    /// The logs of the host before.
    PrevHost,
    /// The logs of the next host.
    NextHost,
    /// The launcher's own log of this host, and back.
    NodeLog,
    /// Stay at the newest line, or stop.
    Follow,
    /// Show long lines whole, or cut.
    Wrap,
    /// Start what the plan shows.
    Start,
    /// End every rank with time to save.
    Halt,
    /// End every rank now.
    Kill,
    /// Stop the gang and launch it again.
    Restart,
    /// Stop and remove everything.
    TearDown,
    /// A shell where the run is.
    Shell,
    /// Choose a command by its name.
    Palette,
    /// Keep the screen as it is, or go on.
    Freeze,
    /// Other colours.
    Theme,
    /// The mouse: as the screen needs it, on, off.
    Mouse,
    /// Pause the journal, or go on.
    Pause,
    /// One event further.
    Step,
    /// Play twice as fast.
    Faster,
    /// Play half as fast.
    Slower,
    /// A twentieth of the journal back.
    Earlier,
    /// A twentieth of the journal on.
    Later,
}

/// Where a key means something.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub enum Place {
    /// Everywhere.
    All,
    /// On the overview.
    Overview,
    /// At one host.
    Host,
    /// At the ranks.
    Ranks,
    /// In the logs.
    Logs,
    /// At the GPUs.
    Gpus,
    /// At what happened.
    Events,
    /// At what is wrong.
    Problems,
    /// While a plan waits for its start.
    Plan,
    /// While there is a run to act on.
    Run,
    /// While a journal is played.
    Replay,
}

impl Place {
    /// The head of its keys in the help.
    pub fn title(self) -> &'static str {
        match self {
            Place::All => "Everywhere",
            Place::Overview => "Overview",
            Place::Host => "Host",
            Place::Ranks => "Ranks",
            Place::Gpus => "GPUs",
            Place::Events => "Events",
            Place::Problems => "Problems",
            Place::Logs => "Logs",
            Place::Plan => "Before the start",
            Place::Run => "The run",
            Place::Replay => "Replay",
        }
    }
}

/// A row of the table: the same command under one or several keys.
#[derive(Debug, Clone, Copy)]
pub struct Binding {
    /// Where.
    pub place: Place,
    /// The keys, as they are written in the help.
    pub keys: &'static [&'static str],
    /// What they ask.
    pub cmd: Cmd,
    /// What the help says.
    pub help: &'static str,
    /// The same in a word or two, for the last line of the screen; empty: not told there.
    pub hint: &'static str,
}

const fn row(place: Place, keys: &'static [&'static str], cmd: Cmd, help: &'static str, hint: &'static str) -> Binding {
    Binding { place, keys, cmd, help, hint }
}

/// The table.
pub const TABLE: &[Binding] = &[
    row(Place::Plan, &["U"], Cmd::Start, "start what the plan shows", "start"),
    row(Place::Run, &["H"], Cmd::Halt, "stop: TERM to every rank, KILL after the grace", ""),
    row(Place::Run, &["K"], Cmd::Kill, "kill every rank now", ""),
    row(Place::Run, &["R"], Cmd::Restart, "stop the gang and launch it again", ""),
    row(Place::Run, &["X"], Cmd::TearDown, "tear down: stop and remove everything", ""),
    row(Place::Run, &["S"], Cmd::Shell, "a shell where the host or rank under the cursor runs", ""),
    row(Place::Replay, &["space"], Cmd::Pause, "pause, go on", "pause"),
    row(Place::Replay, &["."], Cmd::Step, "one event further", "step"),
    row(Place::Replay, &["+"], Cmd::Faster, "twice as fast", "faster"),
    row(Place::Replay, &["-"], Cmd::Slower, "half as fast", "slower"),
    row(Place::Replay, &["<"], Cmd::Earlier, "a twentieth back", "back"),
    row(Place::Replay, &[">"], Cmd::Later, "a twentieth on", "on"),
    row(Place::Overview, &["enter"], Cmd::Open, "the host under the cursor", "host"),
    row(Place::Overview, &["o"], Cmd::Output, "the log that tells most about it", "log"),
    row(Place::Overview, &["right", "l"], Cmd::Right, "unfold a row of equal hosts in place", ""),
    row(Place::Overview, &["left", "h"], Cmd::Left, "fold it again", ""),
    row(Place::Host, &["[", "]"], Cmd::PrevHost, "the host before, after", "host"),
    row(Place::Host, &["left", "right"], Cmd::PrevHost, "the host before, after", ""),
    row(Place::Host, &["{", "}"], Cmd::PrevHost, "the host before, after", ""),
    row(Place::Host, &["enter", "o"], Cmd::Output, "the log that tells most about it", "log"),
    row(Place::Host, &["v"], Cmd::Raw, "what nvidia-smi prints there, asked now; or the graphs again", "nvidia-smi"),
    row(Place::Host, &["r"], Cmd::Again, "ask nvidia-smi again", ""),
    row(Place::Ranks, &["enter", "o"], Cmd::Output, "its log", "log"),
    row(Place::Ranks, &["s"], Cmd::Sort, "the worst first, by rank, the longest silent first", "order"),
    row(Place::Gpus, &["m"], Cmd::Metric, "utilisation, power, memory, temperature", "metric"),
    row(Place::Gpus, &["/"], Cmd::Find, "look for `gpu03 util<5 power<50 mem>90 temp>80`; the rest is dimmed; empty: all", "find"),
    row(Place::Gpus, &["n", "N"], Cmd::FindNext, "the next, the last one before that is meant", ""),
    row(Place::Gpus, &["!"], Cmd::Faults, "only what is wrong, or all", "faults"),
    row(Place::Gpus, &["enter"], Cmd::Open, "its host", "host"),
    row(Place::Gpus, &["o"], Cmd::Output, "the log that tells most about its host", "log"),
    row(Place::Gpus, &["left", "h"], Cmd::Left, "to the left", ""),
    row(Place::Gpus, &["right", "l"], Cmd::Right, "to the right", ""),
    row(Place::Problems, &["enter", "o"], Cmd::Open, "its log, or its host", "log"),
    row(Place::Events, &["enter", "o"], Cmd::Output, "the log around that time", "log"),
    row(Place::Events, &[",", "."], Cmd::PrevEvent, "the event before, after", "step"),
    row(Place::Events, &[">", "<"], Cmd::ZoomIn, "less time in more detail, more time", "zoom"),
    row(Place::Events, &["L"], Cmd::Live, "the newest, as it comes", "live"),
    row(Place::Logs, &["/"], Cmd::Find, "look for a text or a regular expression, backwards", "find"),
    row(Place::Logs, &["n", "N"], Cmd::FindPrev, "the line before, after that has it", ""),
    row(
        Place::Logs,
        &["&"],
        Cmd::Filter,
        "show only lines: rank:0-7 host:gpu0* level>=warn step:1000..1100 text; ! turns it round",
        "filter",
    ),
    row(Place::Logs, &["o"], Cmd::Merge, "this log, all logs, those of this host", "merge"),
    row(Place::Logs, &["u"], Cmd::Fold, "in several logs: equal lines as one with the range of their numbers, or each", ""),
    row(Place::Logs, &["enter"], Cmd::Open, "in several logs: the log of the line, at its place", ""),
    row(Place::Logs, &["e", "E"], Cmd::NextError, "the line before, after that says that something is wrong", "error"),
    row(Place::Logs, &["t"], Cmd::Times, "when lines came: not, how long ago, the time of day", "times"),
    row(Place::Logs, &["m"], Cmd::Mark, "mark the line, or take its mark away", ""),
    row(Place::Logs, &["'"], Cmd::NextMark, "the next marked line", ""),
    row(Place::Logs, &["y", "Y"], Cmd::Copy, "copy the line, what is on the screen", "copy"),
    row(Place::Logs, &["ctrl-s"], Cmd::Save, "save all that can be scrolled to in a file", ""),
    row(Place::Logs, &["a"], Cmd::Bytes, "every byte as it is, escaped", ""),
    row(Place::Logs, &["c"], Cmd::Collapse, "of progress bars all pictures, or the last", ""),
    row(Place::Logs, &["z"], Cmd::Zoom, "nothing but the log, for the terminal's own selection", "zoom"),
    row(Place::Logs, &["[", "]"], Cmd::PrevRank, "the log of the rank before, after", "rank"),
    row(Place::Logs, &["{", "}"], Cmd::PrevHost, "the first log of the host before, after", "host"),
    row(Place::Logs, &["b"], Cmd::NodeLog, "the launcher's own log, and back", "launcher"),
    row(Place::Logs, &["F"], Cmd::Follow, "stay at the newest line, or stop", "follow"),
    row(Place::Logs, &["w"], Cmd::Wrap, "long lines whole, or cut", "wrap"),
    row(Place::Logs, &["left", "h"], Cmd::Left, "half a screen to the left", ""),
    row(Place::Logs, &["right", "l"], Cmd::Right, "half a screen to the right", ""),
    row(Place::All, &["1"], Cmd::Overview, "overview: hosts, the worst first", ""),
    row(Place::All, &["2"], Cmd::Host, "one host: GPUs, processes, ranks", ""),
    row(Place::All, &["3"], Cmd::Ranks, "ranks", ""),
    row(Place::All, &["4"], Cmd::Logs, "logs", ""),
    row(Place::All, &["5"], Cmd::Gpus, "every GPU in a glyph", ""),
    row(Place::All, &["6"], Cmd::Events, "what happened, in its order", ""),
    row(Place::All, &["7"], Cmd::Problems, "what is wrong, with evidence", ""),
    row(Place::All, &["e", "E"], Cmd::NextError, "the next problem, the one before", ""),
    row(Place::All, &["tab"], Cmd::NextScreen, "the next screen", ""),
    row(Place::All, &["backtab"], Cmd::PrevScreen, "the screen before", ""),
    row(Place::All, &["up", "k"], Cmd::Up, "up", ""),
    row(Place::All, &["down", "j"], Cmd::Down, "down", ""),
    row(Place::All, &["pgup", "ctrl-b"], Cmd::PageUp, "a page up", ""),
    row(Place::All, &["pgdn", "ctrl-f"], Cmd::PageDown, "a page down", ""),
    row(Place::All, &["ctrl-u"], Cmd::HalfUp, "half a page up", ""),
    row(Place::All, &["ctrl-d"], Cmd::HalfDown, "half a page down", ""),
    row(Place::All, &["g", "home"], Cmd::Top, "to the beginning", ""),
    row(Place::All, &["G", "end"], Cmd::Bottom, "to the end; in a log: the newest line, and stay there", ""),
    row(Place::All, &["?", "f1"], Cmd::Help, "these keys", "keys"),
    row(Place::All, &["esc"], Cmd::Back, "back", ""),
    row(Place::All, &["q"], Cmd::Quit, "back; on the overview: ask how to leave", ""),
    row(Place::All, &["Q"], Cmd::DetachNow, "leave at once; the run goes on", ""),
    row(Place::All, &["ctrl-c"], Cmd::Interrupt, "leave; where this program launched the run: stop it", ""),
    row(Place::All, &[":"], Cmd::Palette, "every command by its name", ""),
    row(Place::All, &["f"], Cmd::Freeze, "keep the screen as it is, or go on", ""),
    row(Place::All, &["T"], Cmd::Theme, "other colours", ""),
    row(Place::All, &["M"], Cmd::Mouse, "the mouse: as the screen needs it, on, off", ""),
    row(Place::All, &["ctrl-l"], Cmd::Redraw, "draw the screen anew", ""),
    row(Place::All, &["ctrl-z"], Cmd::Suspend, "suspend this program", ""),
];

/// What the second key of a pair asks.
pub(super) fn second(cmd: Cmd) -> Cmd {
    match cmd {
        Cmd::NextError => Cmd::PrevError,
        Cmd::Copy => Cmd::CopyView,
        Cmd::PrevEvent => Cmd::NextEvent,
        Cmd::ZoomIn => Cmd::ZoomOut,
        Cmd::PrevRank => Cmd::NextRank,
        Cmd::PrevHost => Cmd::NextHost,
        Cmd::FindPrev => Cmd::FindNext,
        Cmd::FindNext => Cmd::FindPrev,
        other => other,
    }
}

impl Cmd {
    /// How the command is called in settings and in the palette: `tear-down`.
    pub fn action(self) -> String {
        let mut name = String::new();
        for c in format!("{self:?}").chars() {
            if c.is_uppercase() && !name.is_empty() {
                name.push('-');
            }
            name.extend(c.to_lowercase());
        }
        name
    }

    /// Whether it changes something on hosts.
    pub fn changes(self) -> bool {
        matches!(self, Cmd::Start | Cmd::Halt | Cmd::Kill | Cmd::Restart | Cmd::TearDown | Cmd::Shell)
    }
}

/// How a key is written in the table.
pub fn name(key: KeyEvent) -> Option<String> {
    let plain = match key.code {
        KeyCode::Char(' ') => "space".to_owned(),
        KeyCode::Char(c) => c.to_string(),
        KeyCode::Enter => "enter".to_owned(),
        KeyCode::Esc => "esc".to_owned(),
        KeyCode::Tab => "tab".to_owned(),
        KeyCode::BackTab => "backtab".to_owned(),
        KeyCode::Up => "up".to_owned(),
        KeyCode::Down => "down".to_owned(),
        KeyCode::Left => "left".to_owned(),
        KeyCode::Right => "right".to_owned(),
        KeyCode::PageUp => "pgup".to_owned(),
        KeyCode::PageDown => "pgdn".to_owned(),
        KeyCode::Home => "home".to_owned(),
        KeyCode::End => "end".to_owned(),
        KeyCode::Backspace => "backspace".to_owned(),
        KeyCode::Delete => "delete".to_owned(),
        KeyCode::F(n) => format!("f{n}"),
        _ => return None,
    };
    if key.modifiers.contains(KeyModifiers::ALT) {
        return None;
    }
    if key.modifiers.contains(KeyModifiers::CONTROL) {
        return Some(format!("ctrl-{}", plain.to_lowercase()));
    }
    Some(plain)
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn actions_have_names() {
        assert_eq!(
            (Cmd::TearDown.action(), Cmd::Find.action(), Cmd::PrevRank.action()),
            ("tear-down".into(), "find".into(), "prev-rank".into())
        );
        assert!(TABLE.iter().all(|row| row.keys.len() <= 2 && !row.help.is_empty()));
    }

    #[test]
    fn what_destroys_is_upper_case() {
        let upper = |key: &&str| key.chars().count() == 1 && !key.chars().any(char::is_lowercase);
        assert!(TABLE.iter().all(|row| !row.cmd.changes() || row.keys.iter().all(upper)));
    }
}
