//! The commands of the dashboard, where their keys apply, and the names of keys; `default_bindings` binds them.
//!
//! Lower case views, upper case changes; Ctrl with a letter only scrolls, except Ctrl-C, Ctrl-L and Ctrl-Z with their usual meaning.

use crossterm::event::{KeyCode, KeyEvent, KeyModifiers};

/// A command of the dashboard.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub enum UiCommand {
    /// Back one screen; on the overview, choose how to leave.
    Quit,
    /// Close the overlay or go back; never leaves.
    Back,
    /// Leave now; the run continues.
    DetachNow,
    Interrupt,
    /// Show or hide the help.
    Help,
    Redraw,
    /// Suspend the program as Ctrl-Z does in a shell.
    Suspend,
    Overview,
    Host,
    Ranks,
    Logs,
    Gpus,
    /// Enter a line filter.
    Filter,
    /// Switch between this log, all logs and all logs of this host.
    Merge,
    /// Fold equal lines of merged logs, or show each.
    Fold,
    /// Times of lines: off, age, time of day.
    Times,
    /// The next line with an error; outside of logs the next problem.
    NextError,
    PrevError,
    /// Mark or unmark the line.
    Mark,
    NextMark,
    Copy,
    /// Copy the visible lines.
    CopyView,
    /// Save everything in the view.
    Save,
    /// Show raw bytes, escaped.
    Bytes,
    /// Show every redraw of progress bars, or only the last.
    Collapse,
    /// Show only the log.
    Zoom,
    Problems,
    Events,
    PrevEvent,
    NextEvent,
    ZoomIn,
    ZoomOut,
    /// Follow the newest event.
    Live,
    /// The next zone of the screen.
    NextPane,
    NextScreen,
    PrevScreen,
    Up,
    Down,
    PageUp,
    PageDown,
    HalfUp,
    HalfDown,
    Top,
    /// To the end; in a log, follow the newest line.
    Bottom,
    Left,
    Right,
    /// Open the item under the cursor.
    Open,
    /// Open the log of the item under the cursor.
    Output,
    /// Switch the order of rows.
    Sort,
    Metric,
    /// Show only faulty GPUs, or all.
    Faults,
    /// Show the output of nvidia-smi, or hide it.
    Raw,
    Again,
    /// Enter a search pattern.
    Find,
    FindNext,
    FindPrev,
    PrevRank,
    NextRank,
    PrevHost,
    NextHost,
    /// Switch between the logs of the rank and of its launcher.
    NodeLog,
    /// Follow the newest line, or stop following.
    Follow,
    /// Wrap or cut long lines.
    Wrap,
    /// Start the planned launch.
    Start,
    /// Stop every rank: TERM, then KILL after the grace period.
    Stop,
    /// Kill every rank.
    Kill,
    /// Stop all ranks and launch them again.
    Restart,
    /// Stop the run and remove everything.
    TearDown,
    /// Open a shell on the host or in the run's container.
    Shell,
    Palette,
    /// Freeze the screen, or resume.
    Freeze,
    Theme,
    /// Switch the mouse mode.
    Mouse,
    /// Pause or resume the replay.
    Pause,
    Step,
    /// Double the replay speed.
    Faster,
    /// Halve the replay speed.
    Slower,
    /// Seek back by 5%.
    Earlier,
    /// Seek forward by 5%.
    Later,
    /// Seek to the end of the replay.
    ReplayEnd,
    /// Seek to the first failure.
    FirstFailure,
}

#[derive(Debug, Clone, Copy, PartialEq, Eq, Default)]
pub enum Screen {
    /// Hosts, worst first; during a launch the matrix of hosts and phases.
    #[default]
    Overview,
    Host,
    Ranks,
    /// The log of one rank or launcher, or merged logs.
    Logs,
    Gpus,
    Events,
    Problems,
}

impl Screen {
    /// All screens, in the order of their keys.
    pub const ALL: [Screen; 7] =
        [Screen::Overview, Screen::Host, Screen::Ranks, Screen::Logs, Screen::Gpus, Screen::Events, Screen::Problems];

    pub fn name(self) -> &'static str {
        match self {
            Screen::Overview => "Overview",
            Screen::Host => "Host",
            Screen::Ranks => "Ranks",
            Screen::Logs => "Logs",
            Screen::Gpus => "GPUs",
            Screen::Events => "Events",
            Screen::Problems => "Problems",
        }
    }

    /// The command that shows it.
    pub fn command(self) -> UiCommand {
        match self {
            Screen::Overview => UiCommand::Overview,
            Screen::Host => UiCommand::Host,
            Screen::Ranks => UiCommand::Ranks,
            Screen::Logs => UiCommand::Logs,
            Screen::Gpus => UiCommand::Gpus,
            Screen::Events => UiCommand::Events,
            Screen::Problems => UiCommand::Problems,
        }
    }
}

/// Where a key binding applies.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub enum KeyContext {
    Global,
    Screen(Screen),
    /// While a plan waits to be started.
    Plan,
    /// While there is a run to act on.
    Run,
    /// During a replay.
    Replay,
}

impl KeyContext {
    /// Section title in the help.
    pub fn title(self) -> &'static str {
        match self {
            KeyContext::Global => "Everywhere",
            KeyContext::Screen(screen) => screen.name(),
            KeyContext::Plan => "Before the launch",
            KeyContext::Run => "The run",
            KeyContext::Replay => "Replay",
        }
    }
}

/// The command of the second key of a pair.
pub(super) fn paired_command(cmd: UiCommand) -> UiCommand {
    match cmd {
        UiCommand::NextError => UiCommand::PrevError,
        UiCommand::PrevError => UiCommand::NextError,
        UiCommand::Copy => UiCommand::CopyView,
        UiCommand::PrevEvent => UiCommand::NextEvent,
        UiCommand::ZoomIn => UiCommand::ZoomOut,
        UiCommand::PrevRank => UiCommand::NextRank,
        UiCommand::PrevHost => UiCommand::NextHost,
        UiCommand::FindPrev => UiCommand::FindNext,
        UiCommand::FindNext => UiCommand::FindPrev,
        other => other,
    }
}

impl UiCommand {
    /// Name of the command in settings and in the palette: `tear-down`.
    pub fn name(self) -> String {
        let mut name = String::new();
        for c in format!("{self:?}").chars() {
            if c.is_uppercase() && !name.is_empty() {
                name.push('-');
            }
            name.extend(c.to_lowercase());
        }
        name
    }

    /// Where a movement leads from row `at`; `None`: the command is no movement.
    pub(super) fn target_row(self, at: usize, page: usize, last: usize) -> Option<usize> {
        let page = page.max(1);
        let to = match self {
            UiCommand::Up => at.saturating_sub(1),
            UiCommand::Down => at + 1,
            UiCommand::PageUp => at.saturating_sub(page),
            UiCommand::PageDown => at + page,
            UiCommand::HalfUp => at.saturating_sub(page.div_ceil(2)),
            UiCommand::HalfDown => at + page.div_ceil(2),
            UiCommand::Top => 0,
            UiCommand::Bottom => last,
            _ => return None,
        };
        Some(to.min(last))
    }

    /// Whether the command changes something on hosts.
    pub fn is_mutating(self) -> bool {
        matches!(self, UiCommand::Start | UiCommand::Stop | UiCommand::Kill | UiCommand::Restart | UiCommand::TearDown | UiCommand::Shell)
    }
}

/// Keys whose name is not their character.
pub(super) const NAMED_KEYS: [(KeyCode, &str); 15] = [
    (KeyCode::Char(' '), "space"),
    (KeyCode::Enter, "enter"),
    (KeyCode::Esc, "esc"),
    (KeyCode::Tab, "tab"),
    (KeyCode::BackTab, "backtab"),
    (KeyCode::Up, "up"),
    (KeyCode::Down, "down"),
    (KeyCode::Left, "left"),
    (KeyCode::Right, "right"),
    (KeyCode::PageUp, "pgup"),
    (KeyCode::PageDown, "pgdn"),
    (KeyCode::Home, "home"),
    (KeyCode::End, "end"),
    (KeyCode::Backspace, "backspace"),
    (KeyCode::Delete, "delete"),
];

/// Name of a key, as in the table of bindings.
pub(crate) fn key_name(key: KeyEvent) -> Option<String> {
    let named = NAMED_KEYS.iter().find(|(code, _)| *code == key.code).map(|(_, name)| (*name).to_owned());
    let plain = match key.code {
        KeyCode::F(n) => format!("f{n}"),
        KeyCode::Char(c) => named.unwrap_or_else(|| c.to_string()),
        _ => named?,
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
    fn keys_have_names() {
        let name = |code, modifiers| key_name(KeyEvent::new(code, modifiers));
        assert_eq!(name(KeyCode::Char('G'), KeyModifiers::SHIFT).as_deref(), Some("G"));
        assert_eq!(name(KeyCode::Char('d'), KeyModifiers::CONTROL).as_deref(), Some("ctrl-d"));
        assert_eq!(name(KeyCode::Char(' '), KeyModifiers::NONE).as_deref(), Some("space"));
        assert_eq!(name(KeyCode::F(5), KeyModifiers::NONE).as_deref(), Some("f5"));
        assert_eq!((name(KeyCode::Char('d'), KeyModifiers::ALT), name(KeyCode::Insert, KeyModifiers::NONE)), (None, None));
    }

    #[test]
    fn commands_have_kebab_names() {
        assert_eq!(
            [UiCommand::TearDown, UiCommand::Find, UiCommand::PrevRank, UiCommand::Stop].map(UiCommand::name),
            ["tear-down", "find", "prev-rank", "stop"]
        );
    }
}
