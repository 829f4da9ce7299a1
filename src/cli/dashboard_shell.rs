//! A shell on a host from the dashboard: it leaves the screen, and comes back when the shell has ended. The run is followed meanwhile.

use tokio::sync::Mutex;

use crate::cli::interactive::{self, SessionEnd};
use crate::cli::session::Session;
use crate::engine::Engine;
use crate::plan::facts::{self, FactsRequest, HostFacts};
use crate::plan::host_context::HostContext;
use crate::plan::shell_command::ExecRequest;
use crate::text::sanitize::Sanitizer;
use crate::tui::feed::{FeedMessage, WeakFeedSender};
use crate::tui::terminal;

/// Held by the one shell that may have the screen.
static SCREEN_LOCK: Mutex<()> = Mutex::const_new(());

/// Waits until no shell has the screen.
pub async fn wait_closed() {
    drop(SCREEN_LOCK.lock().await);
}

/// The way from the dashboard to the hosts.
#[derive(Clone)]
pub struct HostShell {
    engine: Engine,
    host_contexts: Vec<HostContext>,
    sanitizer: Sanitizer,
    feed_sender: Option<WeakFeedSender>,
}

impl HostShell {
    /// The way to the hosts of a session.
    pub fn for_session(session: &Session) -> HostShell {
        let inventory = &session.inventory;
        let sites = inventory.hosts.iter().map(|host| HostContext::from_inventory(inventory, host, &inventory.run_dir)).collect();
        HostShell {
            engine: session.engine.clone(),
            host_contexts: sites,
            sanitizer: session.reporter.sanitizer().clone(),
            feed_sender: session.reporter.feed_sender(),
        }
    }

    /// Where the hosts are reached.
    pub fn engine(&self) -> &Engine {
        &self.engine
    }

    /// Opens a shell on this host, with the variables of this rank; ends when the dashboard has its screen again.
    pub async fn open_shell(&self, host: u32, rank: Option<u32>) {
        let Ok(_one) = SCREEN_LOCK.try_lock() else { return };
        let said = match self.run_shell(host, rank).await {
            Ok(said) | Err(said) => said,
        };
        self.show_message(&said);
    }

    fn show_message(&self, text: &str) {
        if let Some(teller) = &self.feed_sender
            && !teller.send(FeedMessage::ShowToast(text.to_owned()))
        {
            tracing::debug!("the dashboard has ended");
        }
    }

    /// What is said when it is over; what went wrong.
    async fn run_shell(&self, host: u32, rank: Option<u32>) -> Result<String, String> {
        let number = host as usize;
        let known = self.host_contexts.get(number).zip(self.engine.connections().get(number));
        let Some((site, link)) = known else { return Err("this host is not in the inventory".to_owned()) };
        let name = site.host.clone();
        let Some(terminal) = interactive::local_terminal() else { return Err("a shell needs a terminal".to_owned()) };
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

fn describe_end(name: &str, left: &SessionEnd) -> String {
    match left {
        SessionEnd::Exited(0) => format!("back from {name}"),
        SessionEnd::Exited(137) => format!("back from {name}: the shell was killed; did its container end?"),
        SessionEnd::Exited(code) => format!("back from {name}: the shell ended with {code}"),
        SessionEnd::Escaped => format!("back from {name}: left by ~."),
        SessionEnd::ConnectionLost(error) => format!("back from {name}: {error}"),
        SessionEnd::OutputClosed | SessionEnd::Signal(_) => format!("back from {name}: the shell was broken off"),
    }
}
