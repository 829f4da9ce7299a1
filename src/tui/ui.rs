//! View state of the dashboard: the screen, its overlay, and the view of each pane. Commands change it, panes draw it.

use crate::event::UnixMillis;

use super::command_palette::CommandPalette;
use super::dialog::Dialog;
use super::feed::DashboardRole;
pub use super::keymap::Screen;
use super::keymap::{KeyContext, UiCommand};
use super::model::Model;
use super::pane_action::PaneAction;
use super::settings::MouseMode;
use super::text_input::TextInput;
use super::view::{events, gpus, host, logs, overview, problems, ranks};

/// What covers the screen.
#[derive(Debug, Clone, PartialEq)]
pub enum Overlay {
    /// The help, scrolled by this many rows.
    Help(usize),
    Dialog(Dialog),
    /// Search prompt.
    Find(TextInput),
    /// Command palette.
    Palette(CommandPalette),
    /// Filter prompt.
    Filter(TextInput),
}

/// Screen, overlay, and the view of every pane.
#[derive(Debug, Default)]
pub struct Ui {
    pub screen: Screen,
    /// How many tabs were drawn with their names.
    pub(crate) named_tabs: usize,
    /// The open overlay, if any.
    pub overlay: Option<Overlay>,
    /// Toast with the time when it disappears.
    pub toast: Option<(String, UnixMillis)>,
    /// Since when the screen is frozen.
    pub frozen_since: Option<UnixMillis>,
    /// When the mouse is captured.
    pub mouse_mode: MouseMode,
    pub overview: overview::OverviewPane,
    pub host: host::HostPane,
    pub ranks: ranks::RanksPane,
    pub logs: logs::LogsPane,
    pub gpus: gpus::GpusPane,
    pub events: events::EventsPane,
    pub problems: problems::ProblemsPane,
}

impl Ui {
    /// Contexts whose keys apply now, nearest first.
    pub fn key_contexts(&self, model: &Model) -> Vec<KeyContext> {
        let mut contexts = Vec::new();
        if model.capabilities.start_summary.is_some() {
            contexts.push(KeyContext::Plan);
        }
        // Both the replay and the Events screen have steps: those of the screen win.
        if self.screen == Screen::Events {
            contexts.push(KeyContext::Screen(Screen::Events));
        }
        if model.capabilities.role == DashboardRole::Replay {
            contexts.push(KeyContext::Replay);
        }
        let own = KeyContext::Screen(self.screen);
        if !contexts.contains(&own) {
            contexts.push(own);
        }
        if model.capabilities.can_control || model.capabilities.can_tear_down {
            contexts.push(KeyContext::Run);
        }
        contexts.push(KeyContext::Global);
        contexts
    }

    /// The host under the cursor, and the rank if there is one.
    pub fn target_at_cursor(&self, model: &Model) -> Option<(u32, Option<u32>)> {
        let own = |host| Some((host, None));
        match self.screen {
            Screen::Overview => overview::host_at_cursor(&self.overview).and_then(own),
            Screen::Host => own(self.host.host).filter(|(host, _)| model.state.hosts.len() > *host as usize),
            Screen::Ranks => ranks::rank_at_cursor(&self.ranks, model).map(|(host, rank)| (host, Some(rank))),
            Screen::Logs => self.logs.shown_log(&model.state).map(|(host, file)| (host, file.rank())),
            Screen::Gpus => own(gpus::host_at_cursor(&self.gpus)),
            Screen::Problems => problems::target_at_cursor(&self.problems, model),
            Screen::Events => events::target_at_cursor(&self.events, model),
        }
    }

    /// The logs are read again: the state of their view is reset.
    pub(super) fn reset_logs(&mut self) {
        self.logs.reset_view();
        self.overview.reset_log();
    }

    /// Passes a command to the current pane.
    pub(super) fn update_pane(&mut self, model: &Model, cmd: UiCommand) -> Option<PaneAction> {
        match self.screen {
            Screen::Overview => overview::update(&mut self.overview, model, cmd),
            Screen::Host => host::update(&mut self.host, model, cmd),
            Screen::Ranks => ranks::update(&mut self.ranks, model, cmd),
            Screen::Logs => logs::update(&mut self.logs, model, cmd),
            Screen::Gpus => gpus::update(&mut self.gpus, model, cmd),
            Screen::Events => events::update(&mut self.events, model, cmd),
            Screen::Problems => problems::update(&mut self.problems, model, cmd),
        }
    }

    /// One step back within the screen: search, filter and zoom end before the screen is left. `false`: there is nothing to end.
    pub(super) fn undo_last_view(&mut self) -> bool {
        match self.screen {
            Screen::Logs => self.logs.undo_last_view(),
            Screen::Gpus => self.gpus.clear_filter(),
            Screen::Overview => self.overview.undo_last_view(),
            Screen::Ranks => self.ranks.clear_filter(),
            Screen::Host | Screen::Events | Screen::Problems => false,
        }
    }

    /// Whether a dialog is open.
    pub fn has_dialog(&self) -> bool {
        matches!(self.overlay, Some(Overlay::Dialog(_)))
    }

    /// Whether keys go to a dialog or a prompt.
    pub fn overlay_captures_keys(&self) -> bool {
        matches!(self.overlay, Some(Overlay::Dialog(_) | Overlay::Find(_) | Overlay::Filter(_) | Overlay::Palette(_)))
    }

    /// Whether the mouse should be captured now.
    pub fn wants_mouse(&self) -> bool {
        match self.mouse_mode {
            MouseMode::Auto => self.screen != Screen::Logs,
            MouseMode::On => true,
            MouseMode::Off => false,
        }
    }

    /// The next or previous screen.
    pub fn next_screen(&self, next: bool) -> Screen {
        let at = Screen::ALL.iter().position(|screen| *screen == self.screen).unwrap_or(0);
        let by = if next { 1 } else { Screen::ALL.len() - 1 };
        Screen::ALL[(at + by) % Screen::ALL.len()]
    }

    /// Scrolls or closes the help.
    pub fn update_help(&mut self, cmd: UiCommand, page: usize) {
        let Some(Overlay::Help(top)) = &mut self.overlay else { return };
        match cmd {
            UiCommand::Help | UiCommand::Back | UiCommand::Quit => self.overlay = None,
            _ => *top = cmd.target_row(*top, page, usize::MAX / 2).unwrap_or(*top),
        }
    }

    /// Pastes text into an open prompt; ignored elsewhere.
    pub fn handle_paste(&mut self, text: &str) {
        match &mut self.overlay {
            Some(Overlay::Find(prompt) | Overlay::Filter(prompt)) => prompt.paste(text),
            Some(Overlay::Palette(palette)) => palette.prompt.paste(text),
            // A pasted name does not count as typed.
            Some(Overlay::Dialog(_) | Overlay::Help(_)) | None => {}
        }
    }
}
