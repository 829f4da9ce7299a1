//! User settings: colors, symbols, mouse, keys, readonly.
//!
//! `cli` reads them from the configuration.

use super::key_bindings::KeyBindings;
use super::theme::Theme;

/// When the program captures the mouse instead of the terminal.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Default)]
pub enum MouseMode {
    /// Captured where something is clickable; not in logs, so that the terminal can select text.
    #[default]
    Auto,
    On,
    Off,
}

impl MouseMode {
    #[must_use]
    pub fn next(self) -> MouseMode {
        match self {
            MouseMode::Auto => MouseMode::On,
            MouseMode::On => MouseMode::Off,
            MouseMode::Off => MouseMode::Auto,
        }
    }
}

/// Appearance and permissions of the dashboard.
#[derive(Debug, Clone, Default, PartialEq, Eq)]
pub struct DashboardSettings {
    pub theme: Theme,
    /// Query the terminal's background color to choose between dark and light.
    pub query_background_color: bool,
    pub mouse_mode: MouseMode,
    pub bindings: KeyBindings,
    /// Disable commands that change something.
    pub readonly: bool,
    /// Advice printed after a panic: how to continue.
    pub panic_advice: Vec<String>,
}
