//! One line of text that the person types: what to look for.
//!
//! Uses nothing. What is typed or pasted is bounded, and control characters are not taken.

/// The longest text.
const LONGEST: usize = 512;

/// A line being typed.
#[derive(Debug, Clone, Default, PartialEq, Eq)]
pub struct Prompt {
    /// What was typed.
    pub text: String,
}

/// What a key did.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub enum Typed {
    /// The text changed, or nothing did.
    On,
    /// It is done.
    Done,
    /// It is given up.
    Off,
}

impl Prompt {
    /// Takes a key by its name.
    pub fn key(&mut self, key: &str) -> Typed {
        match key {
            "enter" => return Typed::Done,
            "esc" | "ctrl-c" => return Typed::Off,
            "backspace" | "ctrl-h" if self.text.is_empty() => return Typed::Off,
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
        Typed::On
    }

    /// Takes text as it is.
    pub fn paste(&mut self, text: &str) {
        for c in text.chars().filter(|c| !c.is_control()) {
            if self.text.len() + c.len_utf8() <= LONGEST {
                self.text.push(c);
            }
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn types() {
        let mut prompt = Prompt::default();
        for key in ["l", "o", "s", "s", "space", "n", "a", "tab", "ctrl-w", "N", "中"] {
            assert_eq!(prompt.key(key), Typed::On);
        }
        assert_eq!(prompt.text, "loss N中");
        prompt.paste("\u{1b}[31m\nx");
        assert_eq!(prompt.text, "loss N中[31mx");
        prompt.paste(&"y".repeat(1000));
        assert_eq!(prompt.text.len(), LONGEST);
        assert_eq!((prompt.key("ctrl-u"), prompt.key("backspace"), prompt.key("enter")), (Typed::On, Typed::Off, Typed::Done));
    }
}
