#![expect(clippy::disallowed_methods, reason = "what is asked for at the dashboard is done in tasks of its own")]
//! A shell on a host from the dashboard: it leaves the screen, and comes back when the shell has ended. The run is followed meanwhile.

use std::sync::Arc;

use tokio::sync::Mutex;

use crate::cli::interactive::{self, InteractiveEnd};
use crate::engine::Engine;
use crate::event::controls::UserAction;
use crate::lifecycle::operator::DashboardView;
use crate::lifecycle::session::Session;
use crate::lifecycle::stop_controller::StopController;
use crate::plan::facts::{self, FactsRequest, HostFacts};
use crate::plan::host_context::HostContext;
use crate::plan::shell_command::ExecRequest;
use crate::text::sanitize::Sanitizer;
use crate::tui::terminal;

/// The way from the dashboard to the hosts.
#[derive(Clone)]
struct HostShellOpener {
    engine: Engine,
    host_contexts: Vec<HostContext>,
    sanitizer: Sanitizer,
    dashboard: Option<Arc<dyn DashboardView>>,
    /// Held by the one shell that may have the screen.
    screen_lock: Arc<Mutex<()>>,
}

/// Passes on what the person at the dashboard asks for. What only looks goes to the hosts at once.
pub(super) fn spawn_action_handler(session: &mut Session, signals: &StopController) {
    let Some(mut actions) = session.reporter.take_user_actions() else { return };
    let (shell, sender) = (HostShellOpener::for_session(session), signals.action_sender());
    tokio::spawn(async move {
        while let Some(action) = actions.recv().await {
            let shell = shell.clone();
            match action {
                UserAction::QueryNvidiaSmi(host) => drop(tokio::spawn(async move { shell.engine.query_nvidia_smi(host).await })),
                UserAction::OpenShell(host, rank) => drop(tokio::spawn(async move { shell.open_shell(host, rank).await })),
                other if sender.send(other).is_err() => return,
                _ => {}
            }
        }
    });
}

impl HostShellOpener {
    /// The way to the hosts of a session.
    fn for_session(session: &Session) -> HostShellOpener {
        HostShellOpener {
            engine: session.engine.clone(),
            host_contexts: session.host_contexts(&vec![None; session.inventory.hosts.len()], None),
            sanitizer: session.reporter.sanitizer().clone(),
            dashboard: session.reporter.dashboard(),
            screen_lock: Arc::clone(&session.screen_lock),
        }
    }

    /// Opens a shell on this host, with the variables of this rank; ends when the dashboard has its screen again.
    async fn open_shell(&self, host: u32, rank: Option<u32>) {
        let Ok(_one) = self.screen_lock.try_lock() else { return };
        let said = match self.run_shell(host, rank).await {
            Ok(said) | Err(said) => said,
        };
        self.show_message(&said);
    }

    fn show_message(&self, text: &str) {
        if let Some(dashboard) = &self.dashboard {
            dashboard.show_message(text);
        }
    }

    /// What is said when it is over; what went wrong.
    async fn run_shell(&self, host: u32, rank: Option<u32>) -> Result<String, String> {
        let number = host as usize;
        let known = self.host_contexts.get(number).zip(self.engine.connections().get(number));
        let Some((site, link)) = known else { return Err("this host is not in the inventory".to_owned()) };
        let name = site.host.clone();
        let Some(terminal) = interactive::local_pty_spec() else { return Err("a shell needs a terminal".to_owned()) };
        self.show_message(&format!("{name}: opening a shell"));
        let failed = |error: crate::remote::RemoteError| format!("{name}: no shell: {error}");
        // One of its own: a terminal that stands still must not keep the logs from coming.
        let remote = link.connect_dedicated().await.map_err(failed)?;
        let done = async {
            let asked = facts::facts_command(site, &FactsRequest { docker: site.in_container, ..FactsRequest::default() });
            let found = HostFacts::parse(&remote.exec(&asked).await.map_err(failed)?.stdout_text());
            if found.run_dir.is_empty() {
                return Err(format!("{name}: no shell: its answer is not whole"));
            }
            let term = terminal.term.clone();
            let enter = ExecRequest::new(site.clone(), &found, rank, &[], Some(&term));
            let command = enter.build_command().map_err(|no| format!("{}: {}", no.message, no.hint))?;
            let head = self.sanitizer.sanitize_line(&format!(
                "{}; `exit` or Ctrl-D comes back to the dashboard, `~.` where nothing answers",
                enter.describe_target()
            ));
            let talk = remote.open_interactive(&command, Some(terminal)).await.map_err(failed)?;
            let handle = tokio::runtime::Handle::current();
            let lent = tokio::task::spawn_blocking(move || {
                terminal::with_normal_screen(|| {
                    crate::cli::local_env::print_stdout(&format!("{head}\n"));
                    handle.block_on(interactive::run(talk, true))
                })
            });
            match lent.await {
                Ok(Ok(left)) => Ok(describe_end(&name, &left)),
                Ok(Err(error)) => Err(format!("{name}: no shell: {error}")),
                Err(_) => Err(format!("{name}: the shell broke")),
            }
        };
        let said = done.await;
        remote.close().await;
        said
    }
}

fn describe_end(name: &str, end: &InteractiveEnd) -> String {
    match end {
        InteractiveEnd::Exited(0) => format!("back from {name}"),
        InteractiveEnd::Exited(137) => format!("back from {name}: the shell was killed; did its container end?"),
        InteractiveEnd::Exited(code) => format!("back from {name}: the shell ended with {code}"),
        InteractiveEnd::Escaped => format!("back from {name}: left by ~."),
        InteractiveEnd::ConnectionLost(error) => format!("back from {name}: {error}"),
        InteractiveEnd::OutputClosed | InteractiveEnd::Signal(_) => format!("back from {name}: the shell was broken off"),
    }
}
