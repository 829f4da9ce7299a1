//! What a pane wants of the rest of the dashboard: another screen, a line for the person, something of the run, text that leaves.
//!
//! Uses `event` and `feed`. A pane changes its own view alone; the app does what it asks for.

use crate::event::LogFile;

use super::feed::UserAction;

/// Text that leaves the dashboard, clean.
#[derive(Debug, Clone, PartialEq, Eq)]
pub(crate) struct ExportedText {
    /// How its file is called.
    pub name: String,
    /// What it is: `3 lines`.
    pub label: String,
    pub text: String,
}

/// What a pane asks for.
#[derive(Debug, Clone, PartialEq)]
pub(crate) enum PaneAction {
    ShowHost(u32),
    /// Show a log, from its newest lines on.
    ShowLog((u32, LogFile)),
    /// Show a log as it was at that time, where it is known.
    ShowLogAt((u32, LogFile), i64),
    /// Note in the timeline that the person marked this line of a log.
    AddMark((u32, LogFile), String),
    /// Give text to the clipboard.
    CopyText(ExportedText),
    /// Write text to a file.
    SaveText(ExportedText),
    /// Show a line for a moment.
    ShowToast(String),
    /// Ask for something of the run.
    Request(UserAction),
}
