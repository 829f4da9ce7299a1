//! What a person may set: colours, symbols, mouse, keys, whether one may only look.
//!
//! Uses the theme and the bindings. Where settings come from is `cli`'s business.

use super::key_bindings::KeyBindings;
use super::theme::Theme;

/// When clicks and the wheel come to this program instead of the terminal.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Default)]
pub enum MouseMode {
    /// Where there is something to click; not in logs, so that text can be marked with the terminal's own means.
    #[default]
    Auto,
    On,
    Off,
}

impl MouseMode {
    /// How it is called in settings.
    pub fn name(self) -> &'static str {
        match self {
            MouseMode::Auto => "auto",
            MouseMode::On => "on",
            MouseMode::Off => "off",
        }
    }

    #[must_use]
    pub fn next(self) -> MouseMode {
        match self {
            MouseMode::Auto => MouseMode::On,
            MouseMode::On => MouseMode::Off,
            MouseMode::Off => MouseMode::Auto,
        }
    }
}

/// How the dashboard looks and what it obeys.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct DashboardSettings {
    pub theme: Theme,
    /// Whether the terminal is asked for its background, to choose between dark and light.
    pub query_background_color: bool,
    pub mouse_mode: MouseMode,
    pub bindings: KeyBindings,
    /// Whether nothing may be changed from here.
    pub readonly: bool,
    /// What is said when the dashboard breaks: how to go on.
    pub panic_advice: Vec<String>,
}

impl DashboardSettings {
    /// As they are without anything set.
    pub fn new(theme: Theme) -> DashboardSettings {
        DashboardSettings {
            theme,
            query_background_color: false,
            mouse_mode: MouseMode::Auto,
            bindings: KeyBindings::default(),
            readonly: false,
            panic_advice: Vec::new(),
        }
    }
}
