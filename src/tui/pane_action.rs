//! Requests of a pane to the rest of the dashboard: another screen, a toast, an action on the run, text to export.
//!
//! A pane changes only its own view; the app carries out its requests.

use crate::event::LogFile;

use super::feed::UserAction;

/// Sanitized text to export.
#[derive(Debug, Clone, PartialEq, Eq)]
pub(crate) struct ExportedText {
    /// File name.
    pub name: String,
    /// Description: `3 lines`.
    pub label: String,
    pub text: String,
}

#[derive(Debug, Clone, PartialEq)]
pub(crate) enum PaneAction {
    ShowHost(u32),
    /// Show a log from its newest line.
    ShowLog((u32, LogFile)),
    /// Show a log as of that time, where known.
    ShowLogAt((u32, LogFile), i64),
    /// Add a mark of the user to the timeline.
    AddMark((u32, LogFile), String),
    CopyText(ExportedText),
    SaveText(ExportedText),
    ShowToast(String),
    Request(UserAction),
}
