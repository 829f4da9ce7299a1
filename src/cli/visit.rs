//! A shell on a host from the dashboard: it leaves the screen, and comes back when the shell has ended. The run is followed meanwhile.

use tokio::sync::Mutex;

use crate::cli::session::Session;
use crate::cli::talk::{self, Left};
use crate::engine::Engine;
use crate::plan::build::site;
use crate::plan::enter::Enter;
use crate::plan::facts::{self, HostFacts, Wanted};
use crate::plan::site::Site;
use crate::report::sanitize::Cleaner;
use crate::tui::feed::{Note, Teller};
use crate::tui::screen;

/// Held by the one shell that may have the screen.
static VISIT: Mutex<()> = Mutex::const_new(());

/// Waits until no shell has the screen.
pub async fn none() {
    drop(VISIT.lock().await);
}

/// The way from the dashboard to the hosts.
#[derive(Clone)]
pub struct Door {
    engine: Engine,
    sites: Vec<Site>,
    cleaner: Cleaner,
    teller: Option<Teller>,
}

impl Door {
    /// The way to the hosts of a session.
    pub fn of(session: &Session) -> Door {
        let inventory = &session.inventory;
        let sites = inventory.hosts.iter().map(|host| site(inventory, host, &inventory.run_dir, "", None)).collect();
        Door { engine: session.engine.clone(), sites, cleaner: session.desk.cleaner().clone(), teller: session.desk.teller() }
    }

    /// Where the hosts are reached.
    pub fn engine(&self) -> &Engine {
        &self.engine
    }

    /// Opens a shell on this host, with the variables of this rank; ends when the dashboard has its screen again.
    pub async fn visit(&self, host: u32, rank: Option<u32>) {
        let Ok(_one) = VISIT.try_lock() else { return };
        let said = match self.enter(host, rank).await {
            Ok(said) | Err(said) => said,
        };
        self.say(&said);
    }

    fn say(&self, text: &str) {
        if let Some(teller) = &self.teller
            && !teller.tell(Note::Say(text.to_owned()))
        {
            tracing::debug!("the dashboard has ended");
        }
    }

    /// What is said when it is over; what went wrong.
    async fn enter(&self, host: u32, rank: Option<u32>) -> Result<String, String> {
        let number = host as usize;
        let known = self.sites.get(number).zip(self.engine.links().get(number));
        let Some((site, link)) = known else { return Err("this host is not in the inventory".to_owned()) };
        let name = site.host.clone();
        let Some(terminal) = talk::terminal() else { return Err("a shell needs a terminal".to_owned()) };
        self.say(&format!("{name}: opening a shell"));
        let failed = |error: crate::remote::RemoteError| format!("{name}: no shell: {error}");
        // One of its own: a terminal that stands still must not keep the logs from coming.
        let remote = link.apart().await.map_err(failed)?;
        let done = async {
            let asked = facts::command(site, &Wanted { docker: site.contained, ..Wanted::default() });
            let found = HostFacts::read(&remote.exec(&asked).await.map_err(failed)?.text());
            if found.run_dir.is_empty() {
                return Err(format!("{name}: no shell: its answer is not whole"));
            }
            let term = terminal.term.clone();
            let enter = Enter::new(site.clone(), &found, rank, &[], Some(&term));
            let command = enter.command().map_err(|no| format!("{}: {}", no.what, no.hint))?;
            let head =
                self.cleaner.line(&format!("{}; `exit` or Ctrl-D comes back to the dashboard, `~.` where nothing answers", enter.place()));
            let talk = remote.talk(&command, Some(terminal)).await.map_err(failed)?;
            let handle = tokio::runtime::Handle::current();
            let lent = tokio::task::spawn_blocking(move || {
                screen::lend(|| {
                    crate::cli::laptop::print(&format!("{head}\n"));
                    handle.block_on(talk::carry(talk, true))
                })
            });
            match lent.await {
                Ok(Ok(left)) => Ok(words(&name, &left)),
                Ok(Err(error)) => Err(format!("{name}: no shell: {error}")),
                Err(_) => Err(format!("{name}: the shell broke")),
            }
        };
        let said = done.await;
        remote.close().await;
        said
    }
}

fn words(name: &str, left: &Left) -> String {
    match left {
        Left::Ended(0) => format!("back from {name}"),
        Left::Ended(137) => format!("back from {name}: the shell was killed; did its container end?"),
        Left::Ended(code) => format!("back from {name}: the shell ended with {code}"),
        Left::Escaped => format!("back from {name}: left by ~."),
        Left::Lost(error) => format!("back from {name}: {error}"),
        Left::Unread | Left::Signal(_) => format!("back from {name}: the shell was broken off"),
    }
}
