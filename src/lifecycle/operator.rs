//! The terminal and the dashboard as workflows use them; `cli` implements both.

use std::path::Path;
use std::sync::Arc;

use tokio::sync::{Notify, mpsc, oneshot};

use crate::diagnose::advice_formatter::AdviceFormatter;
use crate::event::controls::{DashboardCapabilities, UserAction};
use crate::text::translation::Lang;

pub(crate) trait Console: Send + Sync {
    /// A message on standard error, in the user's language.
    fn print_stderr(&self, text: &str);

    /// A line on standard error that is translated and wrapped already.
    fn print_finished(&self, line: &str);

    /// Text on standard output.
    fn print_stdout(&self, text: &str);

    /// Whether there is a terminal on which a question can be answered.
    fn can_ask(&self) -> bool;

    /// Asks a yes-or-no question; `false` without a terminal.
    fn confirm(&self, question: &str) -> bool;

    /// The width of the terminal on standard error; `None` for a file or a pipe.
    fn columns(&self) -> Option<u16>;
}

/// Runs work that blocks in a thread of its own, so that signals are handled meanwhile. No answer: it panicked.
///
/// # Errors
/// The thread could not be started.
pub(crate) fn run_in_thread<T: Send + 'static>(
    name: &str,
    work: impl FnOnce() -> T + Send + 'static,
) -> std::io::Result<oneshot::Receiver<T>> {
    let (sender, answer) = oneshot::channel();
    let run = move || {
        if sender.send(work()).is_err() {
            tracing::debug!("the command ended before its thread");
        }
    };
    std::thread::Builder::new().name(name.to_owned()).spawn(run)?;
    Ok(answer)
}

/// `false` also where no thread could be started.
pub(crate) async fn confirm_in_thread(console: Arc<dyn Console>, question: String) -> bool {
    match run_in_thread("question", move || console.confirm(&question)) {
        Ok(answer) => answer.await.unwrap_or(false),
        Err(_) => false,
    }
}

/// What the dashboard gets beside events.
pub(crate) trait DashboardView: Send + Sync {
    fn set_capabilities(&self, capabilities: DashboardCapabilities);

    fn show_message(&self, text: &str);

    fn set_wording(&self, advice: AdviceFormatter, lang: Lang);

    /// The run directory, from which the dashboard reads log text.
    fn set_run_dir(&self, path: &Path);
}

pub(crate) struct DashboardHandle {
    pub(crate) view: Arc<dyn DashboardView>,
    /// Notified when the dashboard waits for a snapshot of the run.
    pub(crate) snapshot_request: Arc<Notify>,
    /// Taken once.
    pub(crate) user_actions: Option<mpsc::UnboundedReceiver<UserAction>>,
    pub(crate) closed: oneshot::Receiver<()>,
}
