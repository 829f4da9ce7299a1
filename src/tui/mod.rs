//! The dashboard: every rank, every log and every GPU of a run on one screen of a terminal.
//!
//! Reads one feed of events, live or replayed; knows no engine, host or file. Requests of the
//! user go back as `UserAction`; time and log text come with the feed.

mod actions;
pub(crate) mod app;
mod background_color;
pub(crate) mod command_palette;
mod compact_backend;
pub(crate) mod default_bindings;
pub(crate) mod dialog;
mod event_loop;
pub mod feed;
mod feed_message;
mod frame_pacing;
mod frame_writer;
pub mod headless;
pub(crate) mod key_bindings;
pub(crate) mod keymap;
pub(crate) mod line_filter;
pub(crate) mod line_groups;
mod line_tokens;
pub(crate) mod log_arrival_times;
pub(crate) mod log_index;
pub(crate) mod log_progress_bars;
pub(crate) mod log_ring;
pub(crate) mod log_source;
pub(crate) mod model;
mod pane_action;
pub mod settings;
mod slow_ranks;
pub(crate) mod terminal;
pub(crate) mod text_input;
pub mod theme;
pub(crate) mod timeline;
mod timeline_item;
pub mod ui;
pub(crate) mod view;

use std::io;

use tokio::sync::{mpsc, oneshot};

use crate::text::sanitize::Sanitizer;

use app::App;
use feed::{DashboardRole, FeedSender, UserAction};
use settings::DashboardSettings;

/// A running dashboard.
pub struct OpenDashboard {
    /// The dashboard ends when the sender is dropped.
    pub sender: FeedSender,
    /// Requests of the user.
    pub actions: mpsc::UnboundedReceiver<UserAction>,
    /// Completes when the terminal is restored.
    pub ended: oneshot::Receiver<()>,
}

/// Takes the screen and draws the feed on a thread of its own.
///
/// # Errors
/// If the terminal or the system refuses; the terminal is restored.
pub fn open_dashboard(role: DashboardRole, sanitizer: Sanitizer, settings: DashboardSettings) -> io::Result<OpenDashboard> {
    let (sender, receiver) = feed::feed_channel()?;
    // One action per key press: no host can fill this channel.
    let (action_sender, actions) = mpsc::unbounded_channel();
    let (done, ended) = oneshot::channel();
    let mut app = App::new(role, sanitizer);
    terminal::enter_dashboard_screen(settings.panic_advice.clone())?;
    let query = settings.query_background_color;
    app.apply_settings(settings);
    let runner = event_loop::EventLoop::new(app, receiver, action_sender, query);
    let thread = std::thread::Builder::new().name("dashboard".to_owned()).spawn(move || {
        runner.run();
        if done.send(()).is_err() {
            tracing::debug!("no task waits for the end of the dashboard");
        }
    });
    if let Err(error) = thread {
        terminal::restore();
        return Err(error);
    }
    Ok(OpenDashboard { sender, actions, ended })
}

#[cfg(test)]
mod chinese_screen_tests;
#[cfg(test)]
mod chinese_tests;
#[cfg(test)]
mod fixtures;
#[cfg(test)]
mod log_tests;
#[cfg(test)]
mod manners_tests;
#[cfg(test)]
mod outlier_tests;
#[cfg(test)]
mod overview_tests;
#[cfg(test)]
mod pane_tests;
#[cfg(test)]
mod screen_matrix_tests;
#[cfg(test)]
mod svg;
#[cfg(test)]
mod tests;
