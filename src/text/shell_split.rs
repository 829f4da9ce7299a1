//! Splits a command line into words like a shell, and does nothing else that a shell does: no variables, no globs, no pipes.

/// A part of a command line.
#[derive(Debug, Clone)]
pub(crate) enum CommandFragment {
    /// As it was typed.
    Source(String),
    /// As it is, and whether it is known.
    Literal(String),
}

/// The words, or what is wrong and what would be right.
pub(crate) fn split_words(parts: &[CommandFragment]) -> Result<Vec<String>, (String, String)> {
    let mut state = WordSplitter::default();
    for part in parts {
        match part {
            CommandFragment::Literal(value) => {
                state.flush_escape();
                state.in_word = true;
                state.quoted = true;
                state.word.push_str(value);
            }
            CommandFragment::Source(text) => {
                for c in text.chars() {
                    state.push_char(c)?;
                }
            }
        }
    }
    state.finish()
}

#[derive(Default)]
struct WordSplitter {
    words: Vec<String>,
    word: String,
    /// A word has begun, though it may be empty: `''`.
    in_word: bool,
    /// A part of it was quoted, so that it is no operator.
    quoted: bool,
    open_quote: Option<char>,
    escaped: bool,
}

impl WordSplitter {
    fn push_char(&mut self, c: char) -> Result<(), (String, String)> {
        match (self.open_quote, c) {
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
                    self.begin_word(true);
                    self.word.push(c);
                }
            }
            (None | Some('"'), '\\') => self.escaped = true,
            (Some(open), _) if open == c => self.open_quote = None,
            (Some(_), _) => self.word.push(c),
            (None, '\'' | '"') => {
                self.begin_word(true);
                self.open_quote = Some(c);
            }
            (None, ' ' | '\t' | '\n' | '\r') => self.end_word()?,
            (None, _) => {
                self.begin_word(false);
                self.word.push(c);
            }
        }
        Ok(())
    }

    fn begin_word(&mut self, quoted: bool) {
        self.in_word = true;
        self.quoted |= quoted;
    }

    fn flush_escape(&mut self) {
        if std::mem::take(&mut self.escaped) {
            self.word.push('\\');
        }
    }

    fn end_word(&mut self) -> Result<(), (String, String)> {
        if !std::mem::take(&mut self.in_word) {
            return Ok(());
        }
        let word = std::mem::take(&mut self.word);
        if !std::mem::take(&mut self.quoted) && is_operator(&word) {
            let hint = "output is kept anyway; for a shell script use launch.shell with `with: script`; for the literal text use quotes";
            return Err((format!("`{word}` has no effect here: the command is split into arguments, no shell runs it"), hint.to_owned()));
        }
        self.words.push(word);
        Ok(())
    }

    fn finish(mut self) -> Result<Vec<String>, (String, String)> {
        if let Some(quote) = self.open_quote {
            return Err((format!("unclosed {quote}"), "close the quote, or write the command as a list".to_owned()));
        }
        self.flush_escape();
        if !self.word.is_empty() {
            self.in_word = true;
        }
        self.end_word()?;
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

    fn split_text(text: &str) -> Result<Vec<String>, (String, String)> {
        split_words(&[CommandFragment::Source(text.to_owned())])
    }

    #[test]
    fn words_split_without_expansion() {
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
            assert_eq!(split_text(text).unwrap(), words, "{text}");
        }
        for bad in ["a 'b", "a \"b\\\"", "python x > log", "a && b", "x 2>&1", "sleep 1 &"] {
            assert!(split_text(bad).is_err(), "{bad}");
        }
    }

    #[test]
    fn literal_fragments_are_never_split() {
        let value = |text: &str| CommandFragment::Literal(text.to_owned());
        let parts = [
            CommandFragment::Source("--prompt ".to_owned()),
            value("it's a \"b\" > c"),
            CommandFragment::Source(" \"x ".to_owned()),
            value("'"),
            CommandFragment::Source("\"".to_owned()),
        ];
        assert_eq!(split_words(&parts).unwrap(), ["--prompt", "it's a \"b\" > c", "x '"]);
    }

    proptest! {
        #[test]
        fn quoted_words_split_back(words in prop::collection::vec("[^\0]{0,20}", 0..6)) {
            let line = words.iter().map(|word| if word.is_empty() || is_operator(word) { format!("'{word}'") } else { crate::text::shell_quote::quote(word) });
            prop_assert_eq!(split_text(&line.collect::<Vec<_>>().join(" ")).unwrap(), words);
        }
    }
}
