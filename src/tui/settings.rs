//! What a person may set: colours, symbols, mouse, keys, whether one may only look.
//!
//! Uses the theme and the bindings. Where settings come from is `cli`'s business.

use super::bindings::Bindings;
use super::theme::Theme;

/// When clicks and the wheel come to this program instead of the terminal.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub enum Mouse {
    /// Where there is something to click; not in logs, so that text can be marked with the terminal's own means.
    Auto,
    /// Always.
    On,
    /// Never.
    Off,
}

impl Mouse {
    /// How it is called in settings.
    pub fn name(self) -> &'static str {
        match self {
            Mouse::Auto => "auto",
            Mouse::On => "on",
            Mouse::Off => "off",
        }
    }

    /// The next one.
    #[must_use]
    pub fn next(self) -> Mouse {
        match self {
            Mouse::Auto => Mouse::On,
            Mouse::On => Mouse::Off,
            Mouse::Off => Mouse::Auto,
        }
    }
}

/// How the dashboard looks and what it obeys.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct Settings {
    /// Colours and symbols.
    pub theme: Theme,
    /// Whether the terminal is asked for its background, to choose between dark and light.
    pub ask: bool,
    /// The mouse.
    pub mouse: Mouse,
    /// Keys.
    pub bindings: Bindings,
    /// Whether nothing may be changed from here.
    pub readonly: bool,
    /// What is said when the dashboard breaks: how to go on.
    pub farewell: Vec<String>,
}

impl Settings {
    /// As they are without anything set.
    pub fn of(theme: Theme) -> Settings {
        Settings { theme, ask: false, mouse: Mouse::Auto, bindings: Bindings::default(), readonly: false, farewell: Vec::new() }
    }
}
