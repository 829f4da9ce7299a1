//! Splits a command line into words like a shell, and does nothing else that a shell does: no variables, no globs, no pipes.
//!
//! Uses nothing but template pieces: what an expression gives is a part of one word, whatever it holds.

/// A part of a command line.
#[derive(Debug, Clone)]
pub(super) enum Part {
    /// As it was typed.
    Typed(String),
    /// As it is, and whether it is known.
    Value(String),
}

/// The words, or what is wrong and what would be right.
pub(super) fn split(parts: &[Part]) -> Result<Vec<String>, (String, String)> {
    let mut state = Split::default();
    for part in parts {
        match part {
            Part::Value(value) => {
                state.leave_escape();
                state.started = true;
                state.quoted = true;
                state.word.push_str(value);
            }
            Part::Typed(text) => {
                for c in text.chars() {
                    state.take(c)?;
                }
            }
        }
    }
    state.finish()
}

#[derive(Default)]
struct Split {
    words: Vec<String>,
    word: String,
    /// A word has begun, though it may be empty: `''`.
    started: bool,
    /// A part of it was quoted, so that it is no operator.
    quoted: bool,
    quote: Option<char>,
    escaped: bool,
}

impl Split {
    fn take(&mut self, c: char) -> Result<(), (String, String)> {
        match (self.quote, c) {
            (Some('"'), _) if self.escaped => {
                self.escaped = false;
                if !"\"\\$`\n".contains(c) {
                    self.word.push('\\');
                }
                if c != '\n' {
                    self.word.push(c);
                }
            }
            (None, _) if self.escaped => {
                self.escaped = false;
                if c != '\n' {
                    self.begin(true);
                    self.word.push(c);
                }
            }
            (None | Some('"'), '\\') => self.escaped = true,
            (Some(open), _) if open == c => self.quote = None,
            (Some(_), _) => self.word.push(c),
            (None, '\'' | '"') => {
                self.begin(true);
                self.quote = Some(c);
            }
            (None, ' ' | '\t' | '\n' | '\r') => self.end()?,
            (None, _) => {
                self.begin(false);
                self.word.push(c);
            }
        }
        Ok(())
    }

    fn begin(&mut self, quoted: bool) {
        self.started = true;
        self.quoted |= quoted;
    }

    fn leave_escape(&mut self) {
        if std::mem::take(&mut self.escaped) {
            self.word.push('\\');
        }
    }

    fn end(&mut self) -> Result<(), (String, String)> {
        if !std::mem::take(&mut self.started) {
            return Ok(());
        }
        let word = std::mem::take(&mut self.word);
        if !std::mem::take(&mut self.quoted) && is_operator(&word) {
            let hint =
                "output is kept anyway; for a real script use launch.shell with `with: script`, for the plain word write it in quotes";
            return Err((format!("`{word}` means nothing here: the command is split into words, no shell runs it"), hint.to_owned()));
        }
        self.words.push(word);
        Ok(())
    }

    fn finish(mut self) -> Result<Vec<String>, (String, String)> {
        if let Some(quote) = self.quote {
            return Err((format!("a {quote} without its partner"), "close the quote, or write the command as a list".to_owned()));
        }
        self.leave_escape();
        if !self.word.is_empty() {
            self.started = true;
        }
        self.end()?;
        Ok(self.words)
    }
}

fn is_operator(word: &str) -> bool {
    matches!(word, "|" | "||" | "&" | "&&" | ";" | ">" | ">>" | "<" | "<<" | "2>&1" | "2>" | "&>" | "|&" | "1>" | ">&2")
}

#[cfg(test)]
mod tests {
    use super::*;
    use proptest::prelude::*;

    fn typed(text: &str) -> Result<Vec<String>, (String, String)> {
        split(&[Part::Typed(text.to_owned())])
    }

    #[test]
    fn words_are_split_without_expansion() {
        let cases: [(&str, &[&str]); 8] = [
            ("train.py --lr 1e-3", &["train.py", "--lr", "1e-3"]),
            ("a 'b c' \"d $e\" f\\ g", &["a", "b c", "d $e", "f g"]),
            ("  a\n\tb \\\n c ", &["a", "b", "c"]),
            ("'' \"\" a''b", &["", "", "ab"]),
            (r#""a \"b\" \n \\ \$x" 'it'\''s'"#, &[r#"a "b" \n \ $x"#, "it's"]),
            ("832*480 $(date) ~/x a;b #c", &["832*480", "$(date)", "~/x", "a;b", "#c"]),
            ("'>' \\|", &[">", "|"]),
            ("", &[]),
        ];
        for (text, words) in cases {
            assert_eq!(typed(text).unwrap(), words, "{text}");
        }
        for bad in ["a 'b", "a \"b\\\"", "python x > log", "a && b", "x 2>&1", "sleep 1 &"] {
            assert!(typed(bad).is_err(), "{bad}");
        }
    }

    #[test]
    fn a_value_is_never_split() {
        let value = |text: &str| Part::Value(text.to_owned());
        let parts = [
            Part::Typed("--prompt ".to_owned()),
            value("it's a \"b\" > c"),
            Part::Typed(" \"x ".to_owned()),
            value("'"),
            Part::Typed("\"".to_owned()),
        ];
        assert_eq!(split(&parts).unwrap(), ["--prompt", "it's a \"b\" > c", "x '"]);
    }

    proptest! {
        #[test]
        fn what_the_house_quotes_is_read_back(words in prop::collection::vec("[^\0]{0,20}", 0..6)) {
            let line = words.iter().map(|word| if word.is_empty() || is_operator(word) { format!("'{word}'") } else { crate::shell::quote(word) });
            prop_assert_eq!(typed(&line.collect::<Vec<_>>().join(" ")).unwrap(), words);
        }
    }
}
