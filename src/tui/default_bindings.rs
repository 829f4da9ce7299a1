//! The keys of every command.

use super::keymap::{KeyContext, Screen, UiCommand};

/// A default binding: one command with one or several keys.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(crate) struct DefaultBinding {
    pub context: KeyContext,
    /// The keys as shown in the help.
    pub keys: &'static [&'static str],
    /// The command; a pair of keys also has its counterpart.
    pub command: UiCommand,
    /// Help text.
    pub help: &'static str,
    /// Short form for the footer; empty if it is not shown there.
    pub hint: &'static str,
}

const fn binding(
    context: KeyContext,
    keys: &'static [&'static str],
    cmd: UiCommand,
    help: &'static str,
    hint: &'static str,
) -> DefaultBinding {
    DefaultBinding { context, keys, command: cmd, help, hint }
}

const OVERVIEW: KeyContext = KeyContext::Screen(Screen::Overview);
const HOST: KeyContext = KeyContext::Screen(Screen::Host);
const RANKS: KeyContext = KeyContext::Screen(Screen::Ranks);
const LOGS: KeyContext = KeyContext::Screen(Screen::Logs);
const GPUS: KeyContext = KeyContext::Screen(Screen::Gpus);
const EVENTS: KeyContext = KeyContext::Screen(Screen::Events);
const PROBLEMS: KeyContext = KeyContext::Screen(Screen::Problems);

pub(crate) const DEFAULT_BINDINGS: &[DefaultBinding] = &[
    binding(KeyContext::Plan, &["U"], UiCommand::Start, "start the planned launch", "start"),
    binding(KeyContext::Run, &["H"], UiCommand::Stop, "stop: TERM to every rank, KILL after the grace period", ""),
    binding(KeyContext::Run, &["K"], UiCommand::Kill, "kill every rank now", ""),
    binding(KeyContext::Run, &["R"], UiCommand::Restart, "stop all ranks and launch them again", ""),
    binding(KeyContext::Run, &["X"], UiCommand::TearDown, "tear down: stop and remove everything", "tear down"),
    binding(KeyContext::Run, &["S"], UiCommand::Shell, "open a shell for the host or rank under the cursor", ""),
    binding(KeyContext::Replay, &["space"], UiCommand::Pause, "pause or resume", "pause"),
    binding(KeyContext::Replay, &["."], UiCommand::Step, "next event", "step"),
    binding(KeyContext::Replay, &["+"], UiCommand::Faster, "double the speed", "faster"),
    binding(KeyContext::Replay, &["-"], UiCommand::Slower, "halve the speed", "slower"),
    binding(KeyContext::Replay, &["<"], UiCommand::Earlier, "back by 5%", "back"),
    binding(KeyContext::Replay, &[">"], UiCommand::Later, "forward by 5%", "forward"),
    binding(KeyContext::Replay, &["x"], UiCommand::FirstFailure, "to the first failure", "failure"),
    binding(KeyContext::Replay, &["ctrl-e"], UiCommand::ReplayEnd, "to the end; on the Overview also G", ""),
    binding(OVERVIEW, &["enter"], UiCommand::Open, "open the host under the cursor", "host"),
    binding(OVERVIEW, &["o"], UiCommand::Output, "open its most relevant log", "log"),
    binding(OVERVIEW, &["tab"], UiCommand::NextPane, "switch between the hosts and the log", "pane"),
    binding(OVERVIEW, &["z"], UiCommand::Zoom, "show only the focused pane, or all", "zoom"),
    binding(OVERVIEW, &["/"], UiCommand::Find, "filter hosts: `gpu0 gpu[1-4] util<5 temp>80`; log: search", "find"),
    binding(OVERVIEW, &["n", "N"], UiCommand::FindPrev, "in the log: previous, next match", ""),
    binding(OVERVIEW, &["s"], UiCommand::Sort, "order: problems, inventory, least used, hottest, silent", "order"),
    binding(OVERVIEW, &["!"], UiCommand::Faults, "show only hosts with a problem, or all", ""),
    binding(OVERVIEW, &["right", "l"], UiCommand::Right, "next host; in a table expand a row of equal hosts", ""),
    binding(OVERVIEW, &["left", "h"], UiCommand::Left, "previous host; in a table collapse them again", ""),
    binding(HOST, &["[", "]"], UiCommand::PrevHost, "previous, next host", "host"),
    binding(HOST, &["left", "right"], UiCommand::PrevHost, "previous, next host", ""),
    binding(HOST, &["{", "}"], UiCommand::PrevHost, "previous, next host", ""),
    binding(HOST, &["enter", "o"], UiCommand::Output, "open its most relevant log", "log"),
    binding(HOST, &["v"], UiCommand::Raw, "switch between nvidia-smi output and graphs", "nvidia-smi"),
    binding(HOST, &["r"], UiCommand::Again, "run nvidia-smi again", ""),
    binding(RANKS, &["enter", "o"], UiCommand::Output, "open its log", "log"),
    binding(RANKS, &["/"], UiCommand::Find, "show ranks `0-7,12`, of hosts `gpu0[1-3]`, `util<5`; empty: all", "find"),
    binding(RANKS, &["s"], UiCommand::Sort, "order: worst first, by rank, longest silent first", "order"),
    binding(GPUS, &["m"], UiCommand::Metric, "utilization, power, memory, temperature", "metric"),
    binding(GPUS, &["/"], UiCommand::Find, "find `gpu03 util<5 power<50 mem>90 temp>80`; empty: all", "find"),
    binding(GPUS, &["n", "N"], UiCommand::FindNext, "next, previous match", ""),
    binding(GPUS, &["!"], UiCommand::Faults, "show only faulty GPUs, or all", "faults"),
    binding(GPUS, &["enter"], UiCommand::Open, "open its host", "host"),
    binding(GPUS, &["o"], UiCommand::Output, "open the most relevant log of its host", "log"),
    binding(GPUS, &["left", "h"], UiCommand::Left, "left", ""),
    binding(GPUS, &["right", "l"], UiCommand::Right, "right", ""),
    binding(PROBLEMS, &["enter", "o"], UiCommand::Open, "open its log or host", "log"),
    binding(EVENTS, &["enter", "o"], UiCommand::Output, "open the log at that time", "log"),
    binding(EVENTS, &[",", "."], UiCommand::PrevEvent, "previous, next event", "step"),
    binding(EVENTS, &[">", "<"], UiCommand::ZoomIn, "zoom in, out", "zoom"),
    binding(EVENTS, &["L"], UiCommand::Live, "follow the newest event", "live"),
    binding(LOGS, &["/"], UiCommand::Find, "search backwards for a text or a regular expression", "find"),
    binding(LOGS, &["n", "N"], UiCommand::FindPrev, "previous, next match", ""),
    binding(LOGS, &["&"], UiCommand::Filter, "filter: rank:0-7 host:gpu0* level>=warn step:1..9 text !text", "filter"),
    binding(LOGS, &["o"], UiCommand::Merge, "switch: this log, all logs, all logs of this host", "merge"),
    binding(LOGS, &["u"], UiCommand::Fold, "in merged logs: fold equal lines, or show each line", ""),
    binding(LOGS, &["enter"], UiCommand::Open, "in merged logs: open the log of this line", ""),
    binding(LOGS, &["e", "E"], UiCommand::PrevError, "previous, next line with an error", "error"),
    binding(LOGS, &["t"], UiCommand::Times, "times of lines: off, age, time of day", "times"),
    binding(LOGS, &["m"], UiCommand::Mark, "mark or unmark the line", ""),
    binding(LOGS, &["'"], UiCommand::NextMark, "next marked line", ""),
    binding(LOGS, &["y", "Y"], UiCommand::Copy, "copy the line, the screen", "copy"),
    binding(LOGS, &["ctrl-s"], UiCommand::Save, "save everything in this view to a file", ""),
    binding(LOGS, &["a"], UiCommand::Bytes, "show raw bytes, escaped", ""),
    binding(LOGS, &["c"], UiCommand::Collapse, "progress bars: show every redraw, or only the last", ""),
    binding(LOGS, &["z"], UiCommand::Zoom, "show only the log, to select text with the terminal", "zoom"),
    binding(LOGS, &["[", "]"], UiCommand::PrevRank, "log of the previous, next rank", "rank"),
    binding(LOGS, &["{", "}"], UiCommand::PrevHost, "first log of the previous, next host", "host"),
    binding(LOGS, &["b"], UiCommand::NodeLog, "switch between the rank's and the launcher's log", "launcher"),
    binding(LOGS, &["F"], UiCommand::Follow, "follow the newest line, or stop following", "follow"),
    binding(LOGS, &["w"], UiCommand::Wrap, "wrap or cut long lines", "wrap"),
    binding(LOGS, &["left", "h"], UiCommand::Left, "half a screen left", ""),
    binding(LOGS, &["right", "l"], UiCommand::Right, "half a screen right", ""),
    binding(KeyContext::Global, &["1"], UiCommand::Overview, "overview: hosts, worst first", ""),
    binding(KeyContext::Global, &["2"], UiCommand::Host, "one host: GPUs, processes, ranks", ""),
    binding(KeyContext::Global, &["3"], UiCommand::Ranks, "ranks", ""),
    binding(KeyContext::Global, &["4"], UiCommand::Logs, "logs", ""),
    binding(KeyContext::Global, &["5"], UiCommand::Gpus, "GPUs: one cell each", ""),
    binding(KeyContext::Global, &["6"], UiCommand::Events, "events, oldest first", ""),
    binding(KeyContext::Global, &["7"], UiCommand::Problems, "problems, with evidence", ""),
    binding(KeyContext::Global, &["e", "E"], UiCommand::NextError, "next, previous problem", ""),
    binding(KeyContext::Global, &["tab"], UiCommand::NextScreen, "next screen", ""),
    binding(KeyContext::Global, &["backtab"], UiCommand::PrevScreen, "previous screen", ""),
    binding(KeyContext::Global, &["up", "k"], UiCommand::Up, "up", ""),
    binding(KeyContext::Global, &["down", "j"], UiCommand::Down, "down", ""),
    binding(KeyContext::Global, &["pgup", "ctrl-b"], UiCommand::PageUp, "page up", ""),
    binding(KeyContext::Global, &["pgdn", "ctrl-f"], UiCommand::PageDown, "page down", ""),
    binding(KeyContext::Global, &["ctrl-u"], UiCommand::HalfUp, "half a page up", ""),
    binding(KeyContext::Global, &["ctrl-d"], UiCommand::HalfDown, "half a page down", ""),
    binding(KeyContext::Global, &["g", "home"], UiCommand::Top, "to the start", ""),
    binding(KeyContext::Global, &["G", "end"], UiCommand::Bottom, "to the end; in a log: follow the newest line", ""),
    binding(KeyContext::Global, &["?", "f1"], UiCommand::Help, "this help", "keys"),
    binding(KeyContext::Global, &["esc"], UiCommand::Back, "back", ""),
    binding(KeyContext::Global, &["q"], UiCommand::Quit, "back; on the overview: choose how to leave", ""),
    binding(KeyContext::Global, &["Q"], UiCommand::DetachNow, "leave now; the run continues", ""),
    binding(KeyContext::Global, &["ctrl-c"], UiCommand::Interrupt, "leave; if this program launched the run: stop it", ""),
    binding(KeyContext::Global, &[":"], UiCommand::Palette, "run a command by name", ""),
    binding(KeyContext::Global, &["f"], UiCommand::Freeze, "freeze the screen, or resume", ""),
    binding(KeyContext::Global, &["T"], UiCommand::Theme, "switch the color scheme", ""),
    binding(KeyContext::Global, &["M"], UiCommand::Mouse, "mouse: auto, on, off", ""),
    binding(KeyContext::Global, &["ctrl-l"], UiCommand::Redraw, "redraw the screen", ""),
    binding(KeyContext::Global, &["ctrl-z"], UiCommand::Suspend, "suspend this program", ""),
];

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn rows_have_help_and_at_most_two_keys() {
        assert!(DEFAULT_BINDINGS.iter().all(|row| row.keys.len() <= 2 && !row.help.is_empty()));
    }

    #[test]
    fn mutating_keys_are_upper_case() {
        let upper = |key: &&str| key.chars().count() == 1 && !key.chars().any(char::is_lowercase);
        assert!(DEFAULT_BINDINGS.iter().all(|row| !row.command.is_mutating() || row.keys.iter().all(upper)));
    }
}
