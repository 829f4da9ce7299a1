//! The dashboard: every rank, every log and every GPU of a run on one screen of a terminal.
//!
//! Uses `event`, `state` and `report`. It hears one feed of events, live or replayed, and knows no engine, host or file: what a person
//! wants goes back as an `Ask`, the time and the text of logs come with the feed.

mod act;
pub mod app;
pub mod bindings;
pub mod dialog;
pub mod dry;
pub mod feed;
pub mod filter;
pub mod groups;
pub mod keymap;
pub mod pager;
pub mod palette;
mod pen;
pub mod prompt;
mod query;
pub mod redraw;
pub mod ring;
mod run;
pub mod scan;
pub mod screen;
pub mod settings;
pub mod theme;
pub mod timeline;
pub mod times;
pub mod view;

use std::io;

use tokio::sync::{mpsc, oneshot};

use crate::report::sanitize::Cleaner;

use app::App;
use feed::{Ask, Mouth, Role};
use settings::Settings;

/// A dashboard that is on the screen.
pub struct Dashboard {
    /// Where it is told things; it ends when this is dropped.
    pub mouth: Mouth,
    /// What the person asks for.
    pub asks: mpsc::UnboundedReceiver<Ask>,
    /// Answers when the terminal is as it was.
    pub ended: oneshot::Receiver<()>,
}

/// Takes the screen and shows what the feed will tell, on a thread of its own.
///
/// # Errors
/// When the terminal or the system refuses; the terminal is as it was then.
pub fn open(role: Role, cleaner: Cleaner, settings: Settings) -> io::Result<Dashboard> {
    let (mouth, ear) = feed::feed()?;
    // One ask for a key that a person presses: no host can fill it.
    let (asks, answers) = mpsc::unbounded_channel();
    let (done, ended) = oneshot::channel();
    let mut app = App::new(role, cleaner, settings.theme);
    screen::enter(settings.farewell.clone())?;
    let query = settings.ask;
    app.set(settings);
    let runner = run::Runner::new(app, ear, asks, query);
    let thread = std::thread::Builder::new().name("dashboard".to_owned()).spawn(move || {
        runner.run();
        if done.send(()).is_err() {
            tracing::debug!("nobody waits for the dashboard's end");
        }
    });
    if let Err(error) = thread {
        screen::restore();
        return Err(error);
    }
    Ok(Dashboard { mouth, asks: answers, ended })
}

#[cfg(test)]
mod log_tests;
#[cfg(test)]
mod scenes;
#[cfg(test)]
mod svg;
#[cfg(test)]
mod tests;
