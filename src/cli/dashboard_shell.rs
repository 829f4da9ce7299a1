#![expect(clippy::disallowed_methods, reason = "actions from the dashboard run in their own tasks")]
//! Opens a shell on a host from the dashboard. The dashboard releases the screen until the shell ends; the run is followed meanwhile.

use std::sync::Arc;

use tokio::sync::Mutex;

use crate::cli::interactive;
use crate::cli::interactive_end::InteractiveEnd;
use crate::engine::Engine;
use crate::event::controls::UserAction;
use crate::lifecycle::operator::DashboardView;
use crate::lifecycle::session::Session;
use crate::lifecycle::stop_controller::StopController;
use crate::plan::facts::HostFacts;
use crate::plan::facts_request::{FactsRequest, facts_command};
use crate::plan::host_context::HostContext;
use crate::plan::shell_command::ExecRequest;
use crate::text::sanitize::Sanitizer;
use crate::tui::terminal;

const ON_CLUSTER: &str = "not supported yet for a job's nodes; on the login node: srun --jobid=JOB --overlap -w NODE --pty bash";

#[derive(Clone)]
struct HostShellOpener {
    engine: Engine,
    host_contexts: Vec<HostContext>,
    sanitizer: Sanitizer,
    dashboard: Option<Arc<dyn DashboardView>>,
    /// The hosts are nodes of a job, behind a login node.
    is_on_cluster: bool,
    /// Only one shell can have the screen.
    screen_lock: Arc<Mutex<()>>,
}

/// Runs `nvidia-smi` and shell actions itself, and forwards every other action to the stop controller.
pub(super) fn spawn_action_handler(session: &mut Session, signals: &StopController) {
    let Some(mut actions) = session.reporter.take_user_actions() else { return };
    let (opener, sender) = (HostShellOpener::for_session(session), signals.action_sender());
    tokio::spawn(async move {
        while let Some(action) = actions.recv().await {
            let opener = opener.clone();
            match action {
                UserAction::QueryNvidiaSmi(_) | UserAction::OpenShell(..) if opener.is_on_cluster => opener.show_message(ON_CLUSTER),
                UserAction::QueryNvidiaSmi(host) => drop(tokio::spawn(async move { opener.engine.query_nvidia_smi(host).await })),
                UserAction::OpenShell(host, rank) => drop(tokio::spawn(async move { opener.open_shell(host, rank).await })),
                other if sender.send(other).is_err() => return,
                _ => {}
            }
        }
    });
}

impl HostShellOpener {
    fn for_session(session: &Session) -> HostShellOpener {
        HostShellOpener {
            engine: session.engine.clone(),
            host_contexts: session.host_contexts(&vec![None; session.inventory.hosts.len()], None),
            sanitizer: session.reporter.sanitizer().clone(),
            dashboard: session.reporter.dashboard(),
            is_on_cluster: session.local.login.is_some(),
            screen_lock: Arc::clone(&session.screen_lock),
        }
    }

    /// Opens a shell on this host, with the variables of this rank; returns when the dashboard has the screen again.
    async fn open_shell(&self, host: u32, rank: Option<u32>) {
        let Ok(_screen) = self.screen_lock.try_lock() else { return };
        let message = match self.run_shell(host, rank).await {
            Ok(message) | Err(message) => message,
        };
        self.show_message(&message);
    }

    fn show_message(&self, text: &str) {
        if let Some(dashboard) = &self.dashboard {
            dashboard.show_message(text);
        }
    }

    /// The message to show afterwards; `Err` if the shell did not run.
    async fn run_shell(&self, host: u32, rank: Option<u32>) -> Result<String, String> {
        let index = host as usize;
        let found = self.host_contexts.get(index).zip(self.engine.connections().get(index));
        let Some((context, connection)) = found else { return Err("this host is not in the inventory".to_owned()) };
        let name = context.host.clone();
        let Some(terminal) = interactive::local_pty_spec() else { return Err("a shell needs a terminal".to_owned()) };
        self.show_message(&format!("{name}: opening a shell"));
        let failed = |error: crate::remote::RemoteError| format!("{name}: no shell: {error}");
        // A dedicated connection: a terminal that does not read must not block the logs.
        let remote = connection.connect_dedicated().await.map_err(failed)?;
        let session = async {
            let command = facts_command(context, &FactsRequest { docker: context.in_container, ..FactsRequest::default() });
            let found = HostFacts::parse(&remote.exec(&command).await.map_err(failed)?.stdout_text());
            if found.run_dir.is_empty() {
                return Err(format!("{name}: no shell: incomplete facts; try again"));
            }
            let term = terminal.term.clone();
            let request = ExecRequest::new(context.clone(), &found, rank, &[], Some(&term));
            let command = request.build_command().map_err(|issue| format!("{}: {}", issue.message, issue.hint))?;
            let header = self
                .sanitizer
                .sanitize_line(&format!("{}; `exit` or Ctrl-D returns to the dashboard, `~.` disconnects", request.describe_target()));
            let channel = remote.open_interactive(&command, Some(terminal)).await.map_err(failed)?;
            let handle = tokio::runtime::Handle::current();
            let shell = tokio::task::spawn_blocking(move || {
                terminal::with_normal_screen(|| {
                    crate::cli::local_env::print_stdout(&format!("{header}\n"));
                    handle.block_on(interactive::run(channel, true))
                })
            });
            match shell.await {
                Ok(Ok(end)) => Ok(describe_end(&name, &end)),
                Ok(Err(error)) => Err(format!("{name}: no shell: {error}")),
                Err(_) => Err(format!("{name}: the shell panicked")),
            }
        };
        let result = session.await;
        remote.close().await;
        result
    }
}

fn describe_end(name: &str, end: &InteractiveEnd) -> String {
    match end {
        InteractiveEnd::Exited(0) => format!("back from {name}"),
        InteractiveEnd::Exited(137) => format!("back from {name}: the shell was killed; its container may have stopped"),
        InteractiveEnd::Exited(code) => format!("back from {name}: the shell exited with {code}"),
        InteractiveEnd::Escaped => format!("back from {name}: disconnected by ~."),
        InteractiveEnd::ConnectionLost(error) => format!("back from {name}: {error}"),
        InteractiveEnd::OutputFailed(_) | InteractiveEnd::Signal(_) => format!("back from {name}: the shell was interrupted"),
    }
}
