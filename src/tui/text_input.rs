//! A one-line text input.
//!
//! Typed or pasted text is bounded, and control characters are dropped.

const MAX_BYTES: usize = 512;

#[derive(Debug, Clone, Default, PartialEq, Eq)]
pub struct TextInput {
    pub text: String,
}

/// Result of a key press.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub enum InputOutcome {
    /// The input stays open.
    Editing,
    Submitted,
    Cancelled,
}

impl TextInput {
    /// Handles a key by name.
    pub fn handle_key(&mut self, key: &str) -> InputOutcome {
        match key {
            "enter" => return InputOutcome::Submitted,
            "esc" => return InputOutcome::Cancelled,
            "backspace" | "ctrl-h" if self.text.is_empty() => return InputOutcome::Cancelled,
            "backspace" | "ctrl-h" => self.text.truncate(self.text.char_indices().last().map_or(0, |(at, _)| at)),
            "ctrl-u" => self.text.clear(),
            "ctrl-w" => {
                let kept = self.text.trim_end().rfind(' ').map_or(0, |at| at + 1);
                self.text.truncate(kept);
            }
            "space" => self.paste(" "),
            key if key.chars().count() == 1 => self.paste(key),
            _ => {}
        }
        InputOutcome::Editing
    }

    /// Inserts text.
    pub fn paste(&mut self, text: &str) {
        for c in text.chars().filter(|c| !c.is_control()) {
            if self.text.len() + c.len_utf8() <= MAX_BYTES {
                self.text.push(c);
            }
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn keys_edit_the_text() {
        let mut prompt = TextInput::default();
        for key in ["l", "o", "s", "s", "space", "n", "a", "tab", "ctrl-w", "N", "中"] {
            assert_eq!(prompt.handle_key(key), InputOutcome::Editing);
        }
        assert_eq!(prompt.text, "loss N中");
        prompt.paste("\u{1b}[31m\nx");
        assert_eq!(prompt.text, "loss N中[31mx");
        prompt.paste(&"y".repeat(1000));
        assert_eq!(prompt.text.len(), MAX_BYTES);
        assert_eq!(
            (prompt.handle_key("ctrl-u"), prompt.handle_key("backspace"), prompt.handle_key("enter")),
            (InputOutcome::Editing, InputOutcome::Cancelled, InputOutcome::Submitted)
        );
    }
}
