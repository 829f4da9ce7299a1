//! What the dashboard knows: the fold of its feed, and what the person at it looks at. Notes and commands change it, panes draw it.
//!
//! Uses `event`, `state`, `diagnose`, `report` and the panes' own states. Reads no clock; `now` comes from the feed.

use crate::event::{Event, EventKind, UnixMillis};
use crate::text::sanitize::Sanitizer;

use super::bindings::KeyBindings;
use super::dialog::{Dialog, DialogChoice};
use super::feed::{Clipboard, DashboardRole, FeedMessage, UserAction};
use super::keymap::{KeyContext, UiCommand};
use super::model::Model;
use super::palette::{CommandPalette, PaletteOutcome};
use super::settings::{DashboardSettings, MouseMode};
use super::text_input::{InputOutcome, TextInput};
use super::theme::Theme;
use super::view::{self, events, gpus, host, logs, overview, problems, ranks};

/// How long a line for the person stays.
const TOAST_MS: i64 = 5_000;
/// A screen.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub enum Screen {
    /// Hosts, the worst first; during a launch the matrix of hosts and phases.
    Overview,
    /// One host.
    Host,
    /// Every rank.
    Ranks,
    /// The log of one rank or launcher.
    Logs,
    /// Every GPU.
    Gpus,
    /// What happened.
    Events,
    /// What is wrong.
    Problems,
}

impl Screen {
    /// All, in the order of their keys.
    pub const ALL: [Screen; 7] =
        [Screen::Overview, Screen::Host, Screen::Ranks, Screen::Logs, Screen::Gpus, Screen::Events, Screen::Problems];

    /// Its key and name.
    pub fn title(self) -> (&'static str, &'static str) {
        match self {
            Screen::Overview => ("1", "Overview"),
            Screen::Host => ("2", "Host"),
            Screen::Ranks => ("3", "Ranks"),
            Screen::Logs => ("4", "Logs"),
            Screen::Gpus => ("5", "GPUs"),
            Screen::Events => ("6", "Events"),
            Screen::Problems => ("7", "Problems"),
        }
    }
}

/// What lies on top of the screen.
#[derive(Debug, Clone, PartialEq, Eq)]
pub enum Overlay {
    /// The keys; scrolled by so many rows.
    Help(usize),
    /// A question.
    Dialog(Dialog),
    /// What to look for in the logs.
    Find(TextInput),
    /// A command being chosen.
    Palette(CommandPalette),
    /// Which of their lines to show.
    Filter(TextInput),
}

/// What must be drawn anew, the least urgent first.
#[derive(Debug, Clone, Copy, PartialEq, Eq, PartialOrd, Ord)]
pub enum RedrawPriority {
    /// Nothing.
    None,
    /// The clock or a sample.
    Sample,
    /// Something happened.
    Event,
    /// The person pressed a key.
    Input,
}

/// All of it.
pub struct App {
    /// What is known.
    pub model: Model,
    /// Which keys count.
    pub bindings: KeyBindings,
    /// When the mouse is ours.
    pub mouse_mode: MouseMode,
    /// The screen is kept as it is since then.
    pub frozen_since: Option<UnixMillis>,
    /// Who takes copies of text.
    pub clipboard: Option<Box<dyn Clipboard>>,
    /// Text on its way to the terminal's clipboard.
    pub pending_clipboard: Option<String>,
    /// Log bytes that were not shown, since the screen was slower.
    pub skipped_log_bytes: u64,
    /// Which screen.
    pub screen: Screen,
    /// What lies on top.
    pub overlay: Option<Overlay>,
    /// A line for the person, and until when.
    pub toast: Option<(String, UnixMillis)>,
    /// The overview's own.
    pub overview_pane: overview::OverviewPane,
    /// The host's own.
    pub host_pane: host::HostPane,
    /// The ranks' own.
    pub ranks_pane: ranks::RanksPane,
    /// The logs' own.
    pub logs_pane: logs::LogsPane,
    /// The GPUs' own.
    pub gpus_pane: gpus::GpusPane,
    /// The events' own.
    pub events_pane: events::EventsPane,
    /// The problems' own.
    pub problems_pane: problems::ProblemsPane,
    /// Asked for by keys, not yet sent.
    pub pending_actions: Vec<UserAction>,
    /// Suspend after this round.
    pub suspend_requested: bool,
    /// Draw every cell.
    pub full_redraw: bool,
}

impl App {
    /// Nothing is known yet.
    pub fn new(role: DashboardRole, cleaner: Sanitizer, theme: Theme) -> Self {
        App {
            model: Model::new(role, cleaner, theme),
            bindings: KeyBindings::default(),
            mouse_mode: MouseMode::Auto,
            frozen_since: None,
            clipboard: None,
            pending_clipboard: None,
            skipped_log_bytes: 0,
            screen: Screen::Overview,
            overlay: None,
            toast: None,
            overview_pane: overview::OverviewPane::default(),
            host_pane: host::HostPane::default(),
            ranks_pane: ranks::RanksPane::default(),
            logs_pane: logs::LogsPane::default(),
            gpus_pane: gpus::GpusPane::default(),
            events_pane: events::EventsPane::default(),
            problems_pane: problems::ProblemsPane::default(),
            pending_actions: Vec::new(),
            suspend_requested: false,
            full_redraw: false,
        }
    }

    /// Takes what the person has set.
    pub fn apply_settings(&mut self, settings: DashboardSettings) {
        (self.model.theme, self.mouse_mode, self.bindings) = (settings.theme, settings.mouse_mode, settings.bindings);
        if settings.readonly {
            self.set_readonly();
        }
    }

    /// From now on nothing can be changed from here.
    pub fn set_readonly(&mut self) {
        self.model.readonly = true;
        self.bindings.remove_mutating();
    }

    /// Takes one thing that was told; what it makes dirty.
    pub fn handle_message(&mut self, note: FeedMessage) -> RedrawPriority {
        match note {
            FeedMessage::Event(event) => return self.handle_event(&event),
            FeedMessage::Tick(now) => {
                let second = now / 1000 != self.model.now / 1000;
                self.advance_clock(now);
                let over = self.toast.take_if(|(_, until)| *until <= now).is_some();
                let waits = matches!(self.overlay, Some(Overlay::Dialog(_)));
                if self.screen == Screen::Logs && logs::index_on_tick(self) {
                    return RedrawPriority::Event;
                }
                return if waits {
                    RedrawPriority::Event
                } else if second || over {
                    RedrawPriority::Sample
                } else {
                    RedrawPriority::None
                };
            }
            FeedMessage::DiagnosisRules(evidence, lang) => (self.model.evidence, self.model.lang) = (*evidence, lang),
            FeedMessage::StoredLogs(stored) => self.model.stored_logs = Some(stored),
            FeedMessage::Clipboard(hand) => self.clipboard = Some(hand),
            FeedMessage::Capabilities(offer) => {
                if matches!(self.overlay, Some(Overlay::Dialog(_))) && self.model.capabilities != offer {
                    // What was asked is no longer the question.
                    self.overlay = None;
                }
                self.model.capabilities = offer;
            }
            FeedMessage::ReplayClock(pace) => self.model.replay_clock = Some(pace),
            FeedMessage::Reset => {
                self.model.reset();
                self.logs_pane.reset();
            }
            FeedMessage::ShowToast(text) => self.show_toast(&text),
            #[cfg(debug_assertions)]
            #[expect(clippy::panic, reason = "that is what is rehearsed")]
            FeedMessage::Panic => panic!("rehearsed in the screen"),
            FeedMessage::UtcOffset(zone) => self.model.utc_offset = zone,
        }
        RedrawPriority::Event
    }

    fn handle_event(&mut self, event: &Event) -> RedrawPriority {
        self.advance_clock(event.at);
        self.model.record(event);
        if matches!(event.kind, EventKind::LogTruncated { .. }) {
            self.logs_pane.reset();
        }
        if event.kind.is_sample() { RedrawPriority::Sample } else { RedrawPriority::Event }
    }

    fn advance_clock(&mut self, now: UnixMillis) {
        // What was said before any time was known begins now.
        if self.model.now == 0
            && let Some((_, until)) = &mut self.toast
        {
            *until += now;
        }
        self.model.now = self.model.now.max(now);
    }

    /// Shows a line for a moment.
    pub fn show_toast(&mut self, text: &str) {
        self.toast = Some((self.model.sanitizer.sanitize_line(text), self.model.now + TOAST_MS));
    }

    /// The places whose keys count now, the nearest first.
    pub fn key_contexts(&self) -> Vec<KeyContext> {
        let mut places = Vec::new();
        if self.model.capabilities.start_summary.is_some() {
            places.push(KeyContext::Plan);
        }
        // Both the journal and the events have steps: those of the screen win.
        if self.screen == Screen::Events {
            places.push(KeyContext::Events);
        }
        if self.model.capabilities.role == DashboardRole::Replay {
            places.push(KeyContext::Replay);
        }
        let own = match self.screen {
            Screen::Overview => KeyContext::Overview,
            Screen::Host => KeyContext::Host,
            Screen::Ranks => KeyContext::Ranks,
            Screen::Logs => KeyContext::Logs,
            Screen::Gpus => KeyContext::Gpus,
            Screen::Events => KeyContext::Events,
            Screen::Problems => KeyContext::Problems,
        };
        if !places.contains(&own) {
            places.push(own);
        }
        if self.model.capabilities.can_control || self.model.capabilities.can_tear_down {
            places.push(KeyContext::Run);
        }
        places.push(KeyContext::Global);
        places
    }

    /// Obeys a command.
    pub fn update(&mut self, cmd: UiCommand) {
        match (&mut self.overlay, cmd) {
            (_, UiCommand::Interrupt) => self.handle_interrupt(),
            (_, UiCommand::Redraw) => self.full_redraw = true,
            (_, UiCommand::Suspend) => self.suspend_requested = true,
            (Some(Overlay::Help(top)), _) => {
                let page = self.model.page_rows.max(1);
                match cmd {
                    UiCommand::Up => *top = top.saturating_sub(1),
                    UiCommand::Down => *top += 1,
                    UiCommand::PageUp | UiCommand::HalfUp => *top = top.saturating_sub(page),
                    UiCommand::PageDown | UiCommand::HalfDown => *top += page,
                    UiCommand::Top => *top = 0,
                    UiCommand::Bottom => *top = usize::MAX / 2,
                    UiCommand::Help | UiCommand::Back | UiCommand::Quit => self.overlay = None,
                    _ => {}
                }
            }
            (Some(Overlay::Dialog(_) | Overlay::Find(_) | Overlay::Filter(_) | Overlay::Palette(_)), _) => {}
            (None, _) => self.dispatch_command(cmd),
        }
    }

    fn dispatch_command(&mut self, cmd: UiCommand) {
        match cmd {
            UiCommand::Help => self.overlay = Some(Overlay::Help(0)),
            UiCommand::Overview => self.screen = Screen::Overview,
            UiCommand::Host => self.screen = Screen::Host,
            UiCommand::Ranks => self.screen = Screen::Ranks,
            UiCommand::Logs => self.screen = Screen::Logs,
            UiCommand::Gpus => self.screen = Screen::Gpus,
            UiCommand::Events => self.screen = Screen::Events,
            UiCommand::Problems => self.screen = Screen::Problems,
            UiCommand::Find => self.overlay = Some(Overlay::Find(TextInput::default())),
            UiCommand::Filter => self.overlay = Some(Overlay::Filter(TextInput { text: self.logs_pane.filter_text() })),
            UiCommand::NextError | UiCommand::PrevError if self.screen != Screen::Logs => {
                problems::select_problem(self, cmd == UiCommand::NextError)
            }
            UiCommand::NextScreen | UiCommand::PrevScreen => {
                self.cycle_screen(if cmd == UiCommand::NextScreen { 1 } else { Screen::ALL.len() - 1 })
            }
            UiCommand::Back => self.screen = Screen::Overview,
            UiCommand::Quit if self.screen != Screen::Overview => self.screen = Screen::Overview,
            UiCommand::Quit => self.request_quit(),
            UiCommand::Palette => self.overlay = Some(Overlay::Palette(CommandPalette::default())),
            UiCommand::Freeze => self.frozen_since = if self.frozen_since.is_some() { None } else { Some(self.model.now) },
            UiCommand::Theme => {
                self.model.theme.color_scheme = self.model.theme.color_scheme.next();
                self.full_redraw = true;
                self.show_toast(&format!("colours: {}", self.model.theme.color_scheme.name()));
            }
            UiCommand::Mouse => {
                self.mouse_mode = self.mouse_mode.next();
                self.show_toast(match self.mouse_mode {
                    MouseMode::Auto => "mouse: auto; in logs text is marked with the terminal's own means",
                    MouseMode::On => "mouse: on; with Shift most terminals mark text by their own means",
                    MouseMode::Off => "mouse: off; clicks and wheel are the terminal's",
                });
            }
            _ if cmd.is_mutating() => self.confirm_action(cmd),
            UiCommand::DetachNow => self.pending_actions.push(UserAction::Detach),
            UiCommand::Pause => self.pending_actions.push(UserAction::TogglePause),
            UiCommand::Step => self.pending_actions.push(UserAction::StepEvent),
            UiCommand::Faster | UiCommand::Slower => {
                self.pending_actions.push(UserAction::ScaleSpeed(if cmd == UiCommand::Faster { 2.0 } else { 0.5 }));
            }
            UiCommand::Earlier | UiCommand::Later => {
                if let Some(pace) = self.model.replay_clock {
                    let part = ((pace.end - pace.start) / 20).max(1000);
                    self.pending_actions.push(UserAction::Seek(if cmd == UiCommand::Later { part } else { -part }));
                }
            }
            _ => match self.screen {
                Screen::Overview => overview::update(self, cmd),
                Screen::Host => host::update(self, cmd),
                Screen::Ranks => ranks::update(self, cmd),
                Screen::Logs => logs::update(self, cmd),
                Screen::Gpus => gpus::update(self, cmd),
                Screen::Events => events::update(self, cmd),
                Screen::Problems => problems::update(self, cmd),
            },
        }
    }

    /// Whether keys answer a question or are typed into a line now.
    pub fn overlay_captures_keys(&self) -> bool {
        matches!(self.overlay, Some(Overlay::Dialog(_) | Overlay::Find(_) | Overlay::Filter(_) | Overlay::Palette(_)))
    }

    /// A click; whether there was something.
    pub fn handle_click(&mut self, x: u16, y: u16, twice: bool) -> bool {
        if self.overlay.is_some() || !view::handle_click(self, x, y) {
            return false;
        }
        if twice && y > 1 {
            self.dispatch_command(UiCommand::Open);
        }
        true
    }

    /// Whether clicks and the wheel should come here.
    pub fn wants_mouse(&self) -> bool {
        match self.mouse_mode {
            MouseMode::Auto => self.screen != Screen::Logs,
            MouseMode::On => true,
            MouseMode::Off => false,
        }
    }

    fn cycle_screen(&mut self, by: usize) {
        let at = Screen::ALL.iter().position(|screen| *screen == self.screen).unwrap_or(0);
        self.screen = Screen::ALL[(at + by) % Screen::ALL.len()];
    }

    fn request_quit(&mut self) {
        let harmless = self.model.capabilities.role == DashboardRole::Replay
            || self.model.capabilities.start_summary.is_some()
            || self.model.state.outcome.is_some();
        // One who merely looks and has nothing to look at yet.
        let early = self.model.capabilities.role == DashboardRole::Observer
            && !self.model.capabilities.can_control
            && self.model.state.step_table.steps().is_empty();
        if harmless || early {
            self.pending_actions.push(UserAction::Detach);
        } else {
            self.overlay = Some(Overlay::Dialog(Dialog::choose_exit(&self.model)));
        }
    }

    fn handle_interrupt(&mut self) {
        self.overlay = None;
        self.pending_actions.push(UserAction::Interrupt);
        if self.model.capabilities.role == DashboardRole::Owner && self.model.capabilities.start_summary.is_none() {
            self.show_toast(match self.model.state.stopping_since {
                None => "Ctrl-C: stopping the ranks; once more kills them",
                Some(_) => "Ctrl-C: killing the ranks; once more leaves at once",
            });
        }
    }

    /// Text that was pasted: taken where one types, and nowhere else.
    pub fn handle_paste(&mut self, text: &str) {
        match &mut self.overlay {
            Some(Overlay::Find(prompt) | Overlay::Filter(prompt)) => prompt.paste(text),
            Some(Overlay::Palette(palette)) => palette.prompt.paste(text),
            // A name that is pasted was not typed.
            Some(Overlay::Dialog(_) | Overlay::Help(_)) | None => {}
        }
    }

    /// A key for the question or prompt on top; `false`: there is none.
    pub fn handle_overlay_key(&mut self, key: &str) -> bool {
        let filters = matches!(self.overlay, Some(Overlay::Filter(_)));
        if let Some(Overlay::Find(prompt) | Overlay::Filter(prompt)) = &mut self.overlay {
            match prompt.handle_key(key) {
                InputOutcome::Editing => {}
                InputOutcome::Cancelled => self.overlay = None,
                InputOutcome::Submitted => {
                    let text = std::mem::take(&mut prompt.text);
                    self.overlay = None;
                    match self.screen {
                        _ if filters => logs::set_filter(self, &text),
                        Screen::Gpus => gpus::set_filter(self, &text),
                        _ => logs::set_search(self, &text),
                    }
                }
            }
            return true;
        }
        let places = self.key_contexts();
        if let Some(Overlay::Palette(palette)) = &mut self.overlay {
            match palette.handle_key(key, &self.bindings, &places) {
                PaletteOutcome::StillOpen => {}
                PaletteOutcome::Cancelled => self.overlay = None,
                PaletteOutcome::Selected(cmd) => {
                    self.overlay = None;
                    self.update(cmd);
                }
            }
            return true;
        }
        let Some(Overlay::Dialog(dialog)) = &mut self.overlay else { return false };
        let Some(choice) = dialog.handle_key(key, self.model.now) else { return true };
        self.overlay = None;
        match choice {
            DialogChoice::Cancel => {}
            DialogChoice::Start => self.pending_actions.push(UserAction::Start),
            DialogChoice::Detach => {
                if !self.model.capabilities.can_control {
                    self.show_toast("leaving once every rank has been started; the run goes on");
                }
                self.pending_actions.push(UserAction::Detach);
            }
            DialogChoice::Stop => self.pending_actions.push(UserAction::Stop),
            DialogChoice::Kill => self.pending_actions.push(UserAction::Kill),
            DialogChoice::Restart => self.pending_actions.push(UserAction::Restart),
            DialogChoice::TearDown => {
                self.pending_actions.push(UserAction::TearDown);
                self.screen = Screen::Overview;
            }
            DialogChoice::LeaveNow => self.pending_actions.push(UserAction::LeaveNow),
        }
        true
    }
}
