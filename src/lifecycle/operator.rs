//! What workflows use of the person's terminal and dashboard; `cli` hands it in.

use std::path::Path;
use std::sync::Arc;

use tokio::sync::{mpsc, oneshot};

use crate::diagnose::{Evidence, Lang};
use crate::event::controls::{DashboardCapabilities, UserAction};

/// The terminal that a command was started from.
pub(crate) trait Console: Send + Sync {
    /// One line on standard error.
    fn print_stderr(&self, text: &str);

    /// Text on standard output.
    fn print_stdout(&self, text: &str);

    /// Whether the person says yes; no where there is no terminal.
    fn confirm(&self, question: &str) -> bool;

    /// The columns of the terminal behind standard error; `None`: a file or a pipe.
    fn columns(&self) -> Option<u16>;
}

/// What workflows tell the dashboard beside events.
pub(crate) trait DashboardView: Send + Sync {
    /// What can be asked for changed.
    fn set_capabilities(&self, capabilities: DashboardCapabilities);

    /// A line for the person at the screen.
    fn show_message(&self, text: &str);

    /// The rules by which failures are explained, and the language.
    fn set_diagnosis(&self, evidence: Evidence, lang: Lang);

    /// The run's folder, where log text can be read.
    fn set_run_dir(&self, path: &Path);
}

pub(crate) struct DashboardHandle {
    pub(crate) view: Arc<dyn DashboardView>,
    /// One action for a key that a person presses; taken once.
    pub(crate) user_actions: Option<mpsc::UnboundedReceiver<UserAction>>,
    pub(crate) closed: oneshot::Receiver<()>,
}
