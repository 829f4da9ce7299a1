//! The terminal and the dashboard as workflows use them; `cli` implements both.

use std::path::Path;
use std::pin::Pin;
use std::sync::Arc;

use tokio::sync::{mpsc, oneshot};

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

/// Asks in a thread of its own, so that Ctrl-C works while the terminal waits for an answer. `false` also where no thread could be started.
pub(crate) async fn confirm_in_thread(console: Arc<dyn Console>, question: String) -> bool {
    let (sender, answer) = oneshot::channel();
    let ask = move || {
        if sender.send(console.confirm(&question)).is_err() {
            tracing::debug!("the command was cancelled before the answer");
        }
    };
    std::thread::Builder::new().name("question".to_owned()).spawn(ask).is_ok() && answer.await.unwrap_or(false)
}

/// What the dashboard gets beside events.
pub(crate) trait DashboardView: Send + Sync {
    fn set_capabilities(&self, capabilities: DashboardCapabilities);

    fn show_message(&self, text: &str);

    fn set_wording(&self, advice: AdviceFormatter, lang: Lang);

    /// The run directory, from which the dashboard reads log text.
    fn set_run_dir(&self, path: &Path);

    /// Completes when the dashboard waits for a snapshot of the run.
    fn snapshot_requested(&self) -> Pin<Box<dyn Future<Output = ()> + Send + '_>>;
}

pub(crate) struct DashboardHandle {
    pub(crate) view: Arc<dyn DashboardView>,
    /// Taken once.
    pub(crate) user_actions: Option<mpsc::UnboundedReceiver<UserAction>>,
    pub(crate) closed: oneshot::Receiver<()>,
}
