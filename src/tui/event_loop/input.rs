//! Keys, pasted text, the mouse, focus.

use std::time::{Duration, Instant};

use crossterm::event;
use crossterm::event::{Event as Input, KeyEvent, KeyEventKind, MouseButton, MouseEvent, MouseEventKind};

use super::super::keymap::{self, UiCommand};
use super::{EventLoop, INPUT_POLL, LoopError};

/// As [`INPUT_POLL`] where input that has arrived must not be missed.
const DRAIN_POLL: Duration = Duration::from_millis(1);

/// Two clicks within this time are a double click.
const DOUBLE_CLICK: Duration = Duration::from_millis(400);

/// Rows per wheel step.
const WHEEL_ROWS: usize = 3;

impl EventLoop {
    /// Handles all pending keys; returns whether there were any.
    pub(super) fn handle_inputs(&mut self) -> Result<bool, LoopError> {
        let mut any = false;
        loop {
            let input = match self.pending_keys.pop_front() {
                Some(key) => Input::Key(key),
                None if event::poll(INPUT_POLL)? => event::read()?,
                None => return Ok(any),
            };
            match input {
                Input::Key(key) if key.kind != KeyEventKind::Release && !self.late_reply.consumes(key) => {
                    any = true;
                    let asked = self.app.ui.has_dialog();
                    self.handle_key(key);
                    if self.app.ui.has_dialog() && !asked {
                        // Keys typed before the dialog could be read do not answer it.
                        self.pending_keys.clear();
                        while event::poll(DRAIN_POLL)? {
                            event::read()?;
                        }
                        return Ok(true);
                    }
                }
                Input::Paste(text) => {
                    any = true;
                    self.app.ui.handle_paste(&text);
                }
                Input::Mouse(mouse) => any |= self.handle_mouse(mouse),
                Input::FocusGained => {
                    self.unfocused = false;
                    any = true;
                }
                Input::FocusLost => self.unfocused = true,
                // Same size again: it differed in between, and content that did not fit then is cut off.
                Input::Resize(..) => {
                    any = true;
                    self.app.full_redraw = true;
                }
                Input::Key(_) => {}
            }
        }
    }

    fn handle_key(&mut self, key: KeyEvent) {
        let name = keymap::key_name(key);
        let contexts = self.app.ui.key_contexts(&self.app.model);
        let found = name.as_deref().and_then(|name| self.app.model.bindings.command_for_key(name, &contexts));
        if self.app.ui.overlay_captures_keys() && found != Some(UiCommand::Interrupt) {
            if let Some(name) = name {
                self.app.handle_overlay_key(&name);
            }
            return;
        }
        // Any key unfreezes the screen, so that the user does not act on outdated content.
        if self.app.ui.frozen_since.take().is_some() && found == Some(UiCommand::Freeze) {
            return;
        }
        match found {
            Some(cmd) => self.app.update(cmd),
            None => name.into_iter().for_each(|name| self.app.explain_readonly(&name)),
        }
    }

    fn handle_mouse(&mut self, mouse: MouseEvent) -> bool {
        let cmd = match mouse.kind {
            MouseEventKind::ScrollUp => UiCommand::Up,
            MouseEventKind::ScrollDown => UiCommand::Down,
            MouseEventKind::Down(MouseButton::Left) => {
                let cell = (mouse.column, mouse.row);
                let before = self.last_click.replace((cell, Instant::now()));
                let twice = before.is_some_and(|(known, at)| known == cell && at.elapsed() < DOUBLE_CLICK);
                if twice {
                    self.last_click = None;
                }
                self.app.ui.frozen_since = None;
                return self.app.handle_click(mouse.column, mouse.row, twice);
            }
            _ => return false,
        };
        self.app.ui.frozen_since = None;
        self.app.focus_under_wheel(mouse.column, mouse.row);
        (0..WHEEL_ROWS).for_each(|_| self.app.update(cmd));
        true
    }
}
