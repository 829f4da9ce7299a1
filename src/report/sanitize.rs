//! Bytes of a host made safe for a terminal, and known secrets hidden.
//!
//! Uses `shell` for masking. Every text that a host, a file or a library wrote goes through here before a person sees it: a log line may
//! try to write the clipboard, move the cursor, answer a question into the shell, or show its letters in another order.

use std::borrow::Cow;

use unicode_width::UnicodeWidthChar;

use crate::shell;

/// The longest string sequence (OSC, DCS and the like) that is taken for one; a longer one loses its introducer only.
const STRING: usize = 4096;
/// How many marks may sit on one character.
const MARKS: usize = 4;
/// The shortest secret that is hidden: two letters hide nothing and would garble everything.
const SECRET: usize = 3;

/// Makes `text` safe: no control character but tab and newline, no escape sequence, nothing invisible that changes the order of letters.
/// A carriage return starts its line anew, as it would on a screen. Cleaning twice changes nothing.
pub fn clean(text: &str) -> Cow<'_, str> {
    if text.bytes().all(|b| matches!(b, b'\t' | b'\n' | 0x20..=0x7e)) {
        return Cow::Borrowed(text);
    }
    let mut out = String::with_capacity(text.len());
    let mut rest = text;
    let mut marks = 0;
    let mut returned = false;
    while let Some(c) = rest.chars().next() {
        let after = &rest[c.len_utf8()..];
        rest = after;
        match c {
            '\u{1b}' => rest = escape(after),
            '\u{9b}' => rest = csi(after),
            '\u{90}' | '\u{98}' | '\u{9d}'..='\u{9f}' => rest = string(after),
            '\r' => returned = true,
            '\n' => {
                out.push('\n');
                (marks, returned) = (0, false);
            }
            '\t' => begin(&mut out, &mut returned).push('\t'),
            c if c.is_control() || vanishes(c) => {}
            '\u{2028}' | '\u{2029}' => begin(&mut out, &mut returned).push(' '),
            c if reorders(c) => begin(&mut out, &mut returned).push_str(&format!("‹U+{:04X}›", u32::from(c))),
            c => {
                marks = if c.width() == Some(0) { marks + 1 } else { 0 };
                if marks <= MARKS {
                    begin(&mut out, &mut returned).push(c);
                }
            }
        }
    }
    Cow::Owned(out)
}

/// Takes what stands on the line away if a carriage return went before.
fn begin<'a>(out: &'a mut String, returned: &mut bool) -> &'a mut String {
    if std::mem::take(returned) {
        out.truncate(out.rfind('\n').map_or(0, |at| at + 1));
    }
    out
}

/// What follows an escape sequence whose ESC is gone.
fn escape(text: &str) -> &str {
    match text.as_bytes().first() {
        Some(b'[') => csi(&text[1..]),
        Some(b']' | b'P' | b'X' | b'^' | b'_') => string(&text[1..]),
        _ => {
            let rest = text.trim_start_matches(|c| matches!(c, ' '..='/'));
            // Counted against a long run of spaces: an escape has few of them.
            if text.len() - rest.len() > 4 { text } else { rest.strip_prefix(|c| matches!(c, '0'..='~')).unwrap_or(rest) }
        }
    }
}

/// What follows a control sequence whose introducer is gone.
fn csi(text: &str) -> &str {
    let end = text.bytes().take(STRING).position(|b| !matches!(b, 0x20..=0x3f));
    let rest = end.map_or("", |at| &text[at..]);
    rest.strip_prefix(|c| matches!(c, '@'..='~')).unwrap_or(rest)
}

/// What follows a string sequence; an endless one loses its introducer only, so that it cannot hide text.
fn string(text: &str) -> &str {
    for (at, c) in text.char_indices().take(STRING) {
        match c {
            '\u{7}' | '\u{9c}' => return &text[at + c.len_utf8()..],
            '\u{1b}' if text[at + 1..].starts_with('\\') => return &text[at + 2..],
            '\t' => {}
            c if c.is_control() => return text,
            _ => {}
        }
    }
    text
}

/// Whether a character only serves to hide.
fn vanishes(c: char) -> bool {
    matches!(c, '\u{200b}' | '\u{2060}'..='\u{2064}' | '\u{feff}' | '\u{fff9}'..='\u{fffb}' | '\u{e0000}'..='\u{e007f}')
}

/// Whether a character changes the order of others.
fn reorders(c: char) -> bool {
    matches!(c, '\u{61c}' | '\u{200e}' | '\u{200f}' | '\u{202a}'..='\u{202e}' | '\u{2066}'..='\u{2069}')
}

/// Cleans and hides secrets.
#[derive(Clone, Default)]
pub struct Cleaner {
    secrets: Vec<String>,
    json: Vec<String>,
}

impl std::fmt::Debug for Cleaner {
    fn fmt(&self, f: &mut std::fmt::Formatter<'_>) -> std::fmt::Result {
        write!(f, "Cleaner({} secrets)", self.secrets.len())
    }
}

impl Cleaner {
    /// Knows what must never be shown.
    pub fn new(secrets: &[String]) -> Self {
        let mut all: Vec<String> = Vec::new();
        for secret in secrets {
            all.push(secret.clone());
            // Lines are cut before they are cleaned, and cleaning may change a secret.
            all.extend(secret.lines().map(str::to_owned));
            all.push(clean(secret).into_owned());
        }
        all.retain(|secret| secret.len() >= SECRET);
        all.sort();
        all.dedup();
        let json = all.iter().filter_map(|s| serde_json::to_string(s).ok()).map(|s| s[1..s.len() - 1].to_owned()).collect();
        Cleaner { secrets: all, json }
    }

    /// Safe text; newlines stay.
    pub fn text(&self, text: &str) -> String {
        let clean = clean(text);
        if self.secrets.is_empty() { clean.into_owned() } else { self.hide_cut(&shell::mask(&clean, &self.secrets)) }
    }

    /// Safe text on one line.
    pub fn line(&self, text: &str) -> String {
        let text = self.text(text.trim_end_matches(['\n', '\r']));
        if text.contains('\n') { text.lines().map(str::trim).filter(|l| !l.is_empty()).collect::<Vec<_>>().join("; ") } else { text }
    }

    /// Hides the secrets in a line of JSON.
    pub fn json(&self, line: String) -> String {
        if self.json.is_empty() { line } else { shell::mask(&line, &self.json) }
    }

    /// Whether there is anything to hide.
    pub fn hides(&self) -> bool {
        !self.secrets.is_empty()
    }

    /// A line that was cut at its bound may end within a secret.
    fn hide_cut(&self, text: &str) -> String {
        let Some(body) = text.strip_suffix('…') else { return text.to_owned() };
        for secret in &self.secrets {
            let starts = secret.char_indices().map(|(at, _)| at).filter(|at| *at >= SECRET).rev();
            if let Some(at) = starts.into_iter().find(|at| body.ends_with(&secret[..*at])) {
                return format!("{}***…", &body[..body.len() - at]);
            }
        }
        text.to_owned()
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use proptest::prelude::*;

    #[test]
    fn attacks_lose_their_teeth() {
        for (bad, good) in [
            ("A\u{1b}[31mred\u{1b}[0m\tC", "Ared\tC"),
            ("a\u{1b}]52;c;ZXZpbA==\u{7}b", "ab"),
            ("a\u{1b}]0;title\u{1b}\\b", "ab"),
            ("a\u{1b}]8;;http://x\u{1b}\\link\u{1b}]8;;\u{1b}\\", "alink"),
            ("a\u{9d}0;t\u{9c}b\u{9b}2Jc", "abc"),
            ("a\u{1b}Ptmux;x\u{1b}\\b", "ab"),
            ("never \u{1b}]0;ends and hides", "never 0;ends and hides"),
            ("a\u{1b}cb\u{1b}(Bc\u{1b}[6nd", "abcd"),
            ("a\u{1b}[", "a"),
            ("a\u{1b}", "a"),
            ("10%\r20%\rdone\nx\r\n", "done\nx\n"),
            ("a\u{8}b\u{7f}c\u{0}", "abc"),
            ("user\u{202e}txt.exe", "user‹U+202E›txt.exe"),
            ("z\u{200b}e\u{feff}ro\u{e0041}", "zero"),
            ("e\u{301}\u{301}\u{301}\u{301}\u{301}\u{301}", "e\u{301}\u{301}\u{301}\u{301}"),
            ("损失 0.5 é", "损失 0.5 é"),
        ] {
            assert_eq!(clean(bad), good, "{bad:?}");
        }
    }

    #[test]
    fn an_endless_string_is_linear_and_hides_nothing() {
        let text = format!("\u{1b}]{}", "x".repeat(STRING * 4));
        assert_eq!(clean(&text).len(), STRING * 4);
    }

    #[test]
    fn secrets_are_hidden_in_every_dress() {
        let cleaner = Cleaner::new(&["hunter2-token".to_owned(), "ab".to_owned(), "it's\nlong key\n".to_owned()]);
        assert_eq!(cleaner.line("x hunter2-token y"), "x *** y");
        assert_eq!(cleaner.line("x hun\u{1b}[1mter2-token y"), "x *** y", "an escape does not save it");
        assert_eq!(cleaner.line("cab long key"), "cab ***");
        assert_eq!(cleaner.line("x hunter2-t…"), "x ***…", "nor does the end of a long line");
        assert_eq!(cleaner.json(r#"{"a":"it's\nlong key\n"}"#.to_owned()), r#"{"a":"***"}"#);
        assert_eq!(cleaner.line("two\nlines\n"), "two; lines");
        assert!(!format!("{cleaner:?}").contains("hunter2"));
    }

    proptest! {
        #[test]
        fn nothing_dangerous_comes_out(bytes in proptest::collection::vec(any::<u8>(), 0..300)) {
            let text = String::from_utf8_lossy(&bytes);
            let once = clean(&text).into_owned();
            prop_assert!(once.chars().all(|c| c == '\n' || c == '\t' || !c.is_control()), "{:?}", once);
            prop_assert_eq!(clean(&once), once.as_str());
            prop_assert!(once.len() <= text.len() * 6);
        }

        #[test]
        fn nothing_dangerous_comes_out_of_sequences(parts in proptest::collection::vec(
            proptest::sample::select(vec!["\u{1b}", "[", "]", "0;", "\u{9b}", "\u{9c}", "\u{7}", "\\", "m", "\r", "\n", "a", "\u{202e}", "\u{301}", "P", " ", "中"]), 0..60)) {
            let text = parts.concat();
            let once = clean(&text).into_owned();
            prop_assert!(once.chars().all(|c| c == '\n' || c == '\t' || !c.is_control()));
            prop_assert_eq!(clean(&once), once.as_str());
        }
    }
}
