//! What commands print in the user's language, line by line, and the punctuation between translated texts.

use std::borrow::Cow;

use crate::text::translation::Lang;

/// What a line of a command's message may begin with.
const LABELS: [&str; 3] = ["help: ", "warning: ", "error: "];

impl Lang {
    /// The separator between a location and its message.
    pub(crate) fn colon(self) -> &'static str {
        self.pick(": ", "：")
    }

    /// The separator of words in a list.
    pub(crate) fn comma(self) -> &'static str {
        self.pick(", ", "，")
    }

    /// The separator of the items of a list.
    pub(crate) fn semicolon(self) -> &'static str {
        self.pick("; ", "；")
    }

    fn pick(self, english: &'static str, chinese: &'static str) -> &'static str {
        if self == Lang::En { english } else { chinese }
    }

    /// A message with its remedy on a line of its own, as commands print them: each part is translated separately.
    pub(crate) fn lines(self, english: &str) -> Cow<'_, str> {
        if self == Lang::En {
            return Cow::Borrowed(english);
        }
        let chinese: Vec<String> = english.split('\n').map(|line| self.line(line)).collect();
        Cow::Owned(chinese.join("\n"))
    }

    /// A line, with its indentation, and the label of a remedy.
    fn line(self, english: &str) -> String {
        let text = english.trim_start_matches(' ');
        let indent = &english[..english.len() - text.len()];
        let labeled = LABELS.iter().find_map(|label| Some((self.term(label), text.strip_prefix(label)?)));
        let (label, message) = labeled.unwrap_or(("", text));
        format!("{indent}{label}{}", self.message(message))
    }
}
