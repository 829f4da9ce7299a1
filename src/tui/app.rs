//! The dashboard without its terminal: model and view state, changed by feed messages and commands.
//!
//! Dispatches to the screens, which `ui.rs` holds and `view/` draws. Reads no clock; `now` comes from the feed.

use ratatui::Frame;

use crate::event::{Event, UnixMillis};
use crate::text::sanitize::Sanitizer;
use crate::text::translation::Lang;

use super::command_palette::CommandPalette;
use super::dialog::Dialog;
use super::feed::{Clipboard, DashboardCapabilities, DashboardRole, FeedMessage, UserAction};
use super::key_bindings::KeyBindings;
use super::keymap::{KeyContext, UiCommand};
use super::model::Model;
use super::settings::{DashboardSettings, MouseMode};
use super::text_input::TextInput;
use super::ui::{Overlay, Screen, Ui};
use super::view::{self, logs, problems};

/// How long a toast stays visible.
const TOAST_MS: i64 = 5_000;

/// How urgently the screen must be redrawn, least urgent first.
#[derive(Debug, Clone, Copy, PartialEq, Eq, PartialOrd, Ord)]
pub(crate) enum RedrawPriority {
    None,
    /// A tick or a sample.
    Sample,
    Event,
    /// A key or mouse event.
    Input,
}

/// The model, the view state, and what the event loop still has to do.
#[derive(Default)]
pub(crate) struct App {
    pub model: Model,
    pub ui: Ui,
    /// The target for copied and saved text.
    pub clipboard: Option<Box<dyn Clipboard>>,
    /// Text to send to the terminal's clipboard.
    pub pending_clipboard: Option<String>,
    /// Actions that keys requested and that are not sent yet.
    pub pending_actions: Vec<UserAction>,
    /// Suspend the program after this iteration.
    pub suspend_requested: bool,
    pub full_redraw: bool,
}

impl App {
    pub(crate) fn new(role: DashboardRole, sanitizer: Sanitizer) -> Self {
        App { model: Model::new(role, sanitizer), ..App::default() }
    }

    pub(crate) fn apply_settings(&mut self, settings: DashboardSettings) {
        (self.model.theme, self.ui.mouse_mode, self.model.bindings) = (settings.theme, settings.mouse_mode, settings.bindings);
        if settings.readonly {
            self.set_readonly();
        }
    }

    /// Removes every command that changes something.
    pub(crate) fn set_readonly(&mut self) {
        self.model.readonly = true;
        self.model.bindings.remove_mutating();
    }

    /// Says why a key that changes something elsewhere does nothing here.
    pub(crate) fn explain_readonly(&mut self, key: &str) {
        let default = KeyBindings::default().command_for_key(key, &[KeyContext::Plan, KeyContext::Run]);
        if let Some(cmd) = default.filter(|_| self.model.readonly && self.ui.overlay.is_none()) {
            self.show_toast(&format!("read-only: `{}` needs a dashboard without --readonly", cmd.name()));
        }
    }

    pub(crate) fn draw(&mut self, frame: &mut Frame<'_>) {
        self.model.update_totals();
        self.model.key_contexts = self.ui.key_contexts(&self.model);
        self.model.page_rows = view::draw(frame, &self.model, &mut self.ui);
    }

    /// Applies one message and returns what must be redrawn.
    pub(crate) fn handle_message(&mut self, message: FeedMessage) -> RedrawPriority {
        match message {
            FeedMessage::Event(event) => return self.handle_event(&event),
            FeedMessage::Timeline(entry) => self.model.timeline.record(&entry),
            // The event loop asked for it because something else has to be drawn.
            FeedMessage::Snapshot(snapshot) => {
                self.model.apply_snapshot(snapshot);
                return RedrawPriority::None;
            }
            FeedMessage::Tick(now) => {
                let second = now / 1000 != self.model.now / 1000;
                self.advance_clock(now);
                let over = self.ui.toast.take_if(|(_, until)| *until <= now).is_some();
                let waits = self.ui.has_dialog();
                if self.ui.screen == Screen::Logs && logs::index_on_tick(&mut self.ui.logs, &self.model) {
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
            FeedMessage::Wording(advice, lang) => {
                // A terminal without UTF-8 shows no Chinese.
                let lang = if self.model.theme.ascii { Lang::En } else { lang };
                (self.model.advice, self.model.lang) = (advice, lang);
            }
            FeedMessage::StoredLogs(stored) => self.model.stored_logs = Some(stored),
            FeedMessage::Clipboard(clipboard) => self.clipboard = Some(clipboard),
            FeedMessage::Capabilities(capabilities) => {
                let actions = |of: &DashboardCapabilities| DashboardCapabilities { plan_lines: Vec::new(), ..of.clone() };
                if self.ui.has_dialog() && actions(&self.model.capabilities) != actions(&capabilities) {
                    // The open dialog asks about an action that no longer applies.
                    self.ui.overlay = None;
                }
                self.model.capabilities = capabilities;
            }
            FeedMessage::ReplayClock(clock) => self.model.replay_clock = Some(clock),
            FeedMessage::Reset => {
                self.model.reset();
                self.ui.reset_logs();
            }
            FeedMessage::ShowToast(text) => self.show_toast(&text),
            #[cfg(debug_assertions)]
            #[expect(clippy::panic, reason = "that is what is rehearsed")]
            FeedMessage::Panic => panic!("rehearsed in the screen"),
            FeedMessage::UtcOffset(offset) => self.model.utc_offset = offset,
        }
        RedrawPriority::Event
    }

    fn handle_event(&mut self, event: &Event) -> RedrawPriority {
        self.advance_clock(event.at);
        if self.model.record_log(event) {
            self.ui.reset_logs();
        }
        if event.kind.is_sample() { RedrawPriority::Sample } else { RedrawPriority::Event }
    }

    fn advance_clock(&mut self, now: UnixMillis) {
        // A toast shown before the first timestamp starts its time now.
        if self.model.now == 0
            && let Some((_, until)) = &mut self.ui.toast
        {
            *until += now;
        }
        self.model.now = self.model.now.max(now);
    }

    pub(crate) fn show_toast(&mut self, text: &str) {
        let text = self.model.sanitizer.sanitize_line(text);
        let text = self.model.lang.message(&text).into_owned();
        self.ui.toast = Some((text, self.model.now + TOAST_MS));
    }

    pub(crate) fn update(&mut self, cmd: UiCommand) {
        match (&self.ui.overlay, cmd) {
            (_, UiCommand::Interrupt) => self.handle_interrupt(),
            (_, UiCommand::Redraw) => self.full_redraw = true,
            (_, UiCommand::Suspend) => self.suspend_requested = true,
            (Some(Overlay::Help(_)), _) => self.ui.update_help(cmd, self.model.page_rows),
            (Some(Overlay::Dialog(_) | Overlay::Find(_) | Overlay::Filter(_) | Overlay::Palette(_)), _) => {}
            (None, _) => self.dispatch_command(cmd),
        }
    }

    fn dispatch_command(&mut self, cmd: UiCommand) {
        match cmd {
            UiCommand::Help => self.ui.overlay = Some(Overlay::Help(0)),
            UiCommand::Back if self.ui.undo_last_view() => {}
            UiCommand::Overview | UiCommand::Back => self.ui.screen = Screen::Overview,
            UiCommand::Host => self.ui.screen = Screen::Host,
            UiCommand::Ranks => self.ui.screen = Screen::Ranks,
            UiCommand::Logs => self.open_screen(Screen::Logs),
            UiCommand::Gpus => self.ui.screen = Screen::Gpus,
            UiCommand::Events => self.ui.screen = Screen::Events,
            UiCommand::Problems => self.ui.screen = Screen::Problems,
            UiCommand::Find => self.ui.overlay = Some(Overlay::Find(TextInput::default())),
            UiCommand::Filter => self.ui.overlay = Some(Overlay::Filter(TextInput { text: self.ui.logs.filter_text() })),
            UiCommand::NextError | UiCommand::PrevError if self.ui.screen != Screen::Logs => self.select_problem(cmd),
            UiCommand::NextScreen | UiCommand::PrevScreen => self.open_screen(self.ui.next_screen(cmd == UiCommand::NextScreen)),
            UiCommand::Quit if self.ui.screen != Screen::Overview => self.ui.screen = Screen::Overview,
            UiCommand::Quit => self.request_quit(),
            UiCommand::Palette => self.ui.overlay = Some(Overlay::Palette(CommandPalette::default())),
            // Any key resumes.
            UiCommand::Freeze => self.ui.frozen_since = Some(self.model.now),
            UiCommand::Theme => {
                self.model.theme.color_scheme = self.model.theme.color_scheme.next();
                self.full_redraw = true;
                self.show_toast(&format!("colors: {}", self.model.theme.color_scheme.name()));
            }
            UiCommand::Mouse => {
                self.ui.mouse_mode = self.ui.mouse_mode.next();
                self.show_toast(match self.ui.mouse_mode {
                    MouseMode::Auto => "mouse: auto; on the Logs screen the terminal selects text",
                    MouseMode::On => "mouse: on; hold Shift to select text in most terminals",
                    MouseMode::Off => "mouse: off; the terminal handles clicks and the wheel",
                });
            }
            _ if cmd.is_mutating() => self.confirm_action(cmd),
            UiCommand::DetachNow => self.pending_actions.push(UserAction::Detach),
            UiCommand::Pause => self.pending_actions.push(UserAction::TogglePause),
            UiCommand::Step => self.pending_actions.push(UserAction::StepEvent),
            UiCommand::Faster => self.pending_actions.push(UserAction::ScaleSpeed(2.0)),
            UiCommand::Slower => self.pending_actions.push(UserAction::ScaleSpeed(0.5)),
            UiCommand::FirstFailure => self.pending_actions.push(UserAction::SeekFirstFailure),
            UiCommand::ReplayEnd => self.seek_replay_end(),
            UiCommand::Bottom if self.ui.screen == Screen::Overview && self.model.replay_clock.is_some() => self.seek_replay_end(),
            UiCommand::Earlier | UiCommand::Later => {
                if let Some(clock) = self.model.replay_clock {
                    let step = ((clock.end - clock.start) / 20).max(1000);
                    self.pending_actions.push(UserAction::Seek(if cmd == UiCommand::Later { step } else { -step }));
                }
            }
            _ => {
                let action = self.ui.update_pane(&self.model, cmd);
                self.perform(action);
            }
        }
    }

    fn seek_replay_end(&mut self) {
        if let Some(clock) = self.model.replay_clock {
            self.pending_actions.push(UserAction::Seek(clock.end - clock.start));
        }
    }

    /// Selects the next or previous problem; from another screen, the first one.
    fn select_problem(&mut self, cmd: UiCommand) {
        let step = match std::mem::replace(&mut self.ui.screen, Screen::Problems) {
            Screen::Problems if cmd == UiCommand::NextError => UiCommand::Down,
            Screen::Problems => UiCommand::Up,
            _ => UiCommand::Top,
        };
        problems::select_problem(&mut self.ui.problems, &self.model, step);
    }

    fn open_screen(&mut self, screen: Screen) {
        if screen == Screen::Logs {
            self.ui.logs.prefer_failed_rank(&self.model.state);
        }
        self.ui.screen = screen;
    }

    /// Handles a click; `false` if nothing was hit.
    pub(crate) fn handle_click(&mut self, x: u16, y: u16, twice: bool) -> bool {
        if self.ui.overlay.is_some() || !view::handle_click(&self.model, &mut self.ui, x, y) {
            return false;
        }
        if y == 1 {
            self.open_screen(self.ui.screen);
        }
        if twice && y > 1 {
            self.dispatch_command(UiCommand::Open);
        }
        true
    }

    /// The wheel scrolls what is under it.
    pub(crate) fn focus_under_wheel(&mut self, x: u16, y: u16) {
        if self.ui.overlay.is_none() {
            view::focus_under_wheel(&mut self.ui, x, y);
        }
    }

    fn request_quit(&mut self) {
        let harmless = self.model.capabilities.role == DashboardRole::Replay
            || self.model.capabilities.start_summary.is_some()
            || self.model.state.outcome.is_some();
        // An observer whose run has not reported anything yet.
        let early = self.model.capabilities.role == DashboardRole::Observer
            && !self.model.capabilities.can_control
            && self.model.state.step_tracker.steps().is_empty();
        if harmless || early {
            self.pending_actions.push(UserAction::Detach);
        } else {
            self.ui.overlay = Some(Overlay::Dialog(Dialog::choose_exit(&self.model)));
        }
    }

    fn handle_interrupt(&mut self) {
        self.ui.overlay = None;
        self.pending_actions.push(UserAction::Interrupt);
        if self.model.capabilities.role == DashboardRole::Owner && self.model.capabilities.start_summary.is_none() {
            self.show_toast(match self.model.state.stopping_since {
                None => "stopping the ranks; press Ctrl-C again to kill them",
                Some(_) => "killing the ranks; press Ctrl-C again to leave without cleaning up",
            });
        }
    }
}
