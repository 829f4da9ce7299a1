//! Bytes of a host made safe for a terminal, and known secrets hidden.
//!
//! Uses `shell` for masking. Every text that a host, a file or a library wrote goes through here before a person sees it: a log line may
//! try to write the clipboard, move the cursor, answer a question into the shell, or show its letters in another order.
//!
//! `clean`, `Cleaner::text` and `Cleaner::line` are for foreign text on its way into ours. Only a [`Printable`] may be written to a terminal,
//! and only this file makes one: it cleans again, whatever was forgotten on the way, and turns our own colour marks into escape sequences
//! last. Outside of it a colour is a noncharacter of Unicode, which foreign text loses when it is cleaned.

use std::borrow::Cow;

use unicode_width::UnicodeWidthChar;

use crate::shell;

/// The longest string sequence (OSC, DCS and the like) that is taken for one; a longer one loses its introducer only.
const STRING: usize = 4096;
/// How many marks may sit on one character.
const MARKS: usize = 4;
/// The shortest secret that is hidden: two letters hide nothing and would garble everything.
const SECRET: usize = 3;

/// Ends a colour.
pub(super) const PLAIN: char = '\u{fdd0}';
/// Begin a colour: as it should be, worth a look, wrong, beside the point.
pub(super) const GREEN: char = '\u{fdd1}';
pub(super) const YELLOW: char = '\u{fdd2}';
pub(super) const RED: char = '\u{fdd3}';
pub(super) const DIM: char = '\u{fdd4}';

/// What a mark is on a terminal: a parameter of SGR (ECMA-48, 8.3.117).
fn colour(mark: char) -> Option<&'static str> {
    Some(match mark {
        GREEN => "32",
        YELLOW => "33",
        RED => "31",
        DIM => "2",
        _ => return None,
    })
}

/// Text that may be written to a terminal: no control character but tab and newline, no escape sequence but our own colours.
#[derive(Debug, Clone, PartialEq, Eq, Default)]
pub struct Printable(String);

impl Printable {
    /// Cleans a text and gives it the colours of [`super::words::Style`]. A colour ends with its line.
    pub fn new(text: &str) -> Self {
        if plain(text) {
            return Printable(text.to_owned());
        }
        let clean = sanitize(text, true);
        let mut out = String::with_capacity(clean.len() + 16);
        let mut open = false;
        for c in clean.chars() {
            match (c, colour(c)) {
                (_, Some(code)) => {
                    out.push_str(&format!("\u{1b}[{code}m"));
                    open = true;
                }
                (PLAIN | '\n', None) => {
                    if std::mem::take(&mut open) {
                        out.push_str("\u{1b}[0m");
                    }
                    if c == '\n' {
                        out.push(c);
                    }
                }
                _ => out.push(c),
            }
        }
        if open {
            out.push_str("\u{1b}[0m");
        }
        Printable(out)
    }

    /// What is written.
    pub fn as_str(&self) -> &str {
        &self.0
    }
}

fn plain(text: &str) -> bool {
    text.bytes().all(|b| matches!(b, b'\t' | b'\n' | 0x20..=0x7e))
}

/// JSON in which every character that a terminal might obey is written as its number. It says the same to a program.
pub fn json_escaped(json: &str) -> String {
    if plain(json) {
        return json.to_owned();
    }
    let mut out = String::with_capacity(json.len() + 16);
    for c in json.chars() {
        let harmless = c == '\n' || !(c.is_control() || changes(c) || c.width() == Some(0));
        if harmless {
            out.push(c);
        } else {
            c.encode_utf16(&mut [0; 2]).iter().for_each(|unit| out.push_str(&format!("\\u{unit:04x}")));
        }
    }
    out
}

/// Whether cleaning changes a character that is no control character.
fn changes(c: char) -> bool {
    vanishes(c) || reorders(c) || matches!(c, '\u{2028}' | '\u{2029}')
}

/// Makes `text` safe: no control character but tab and newline, no escape sequence, nothing invisible that changes the order of letters.
/// A carriage return starts its line anew, as it would on a screen. Cleaning twice changes nothing.
pub fn clean(text: &str) -> Cow<'_, str> {
    if plain(text) { Cow::Borrowed(text) } else { Cow::Owned(sanitize(text, false)) }
}

/// `colours`: whether our own marks stay.
fn sanitize(text: &str, colours: bool) -> String {
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
            PLAIN..=DIM if colours => begin(&mut out, &mut returned).push(c),
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
    out
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

/// Whether a character only serves to hide, or is no character: our colours are some of those.
fn vanishes(c: char) -> bool {
    matches!(c, '\u{fdd0}'..='\u{fdef}' | '\u{200b}' | '\u{2060}'..='\u{2064}' | '\u{feff}' | '\u{fff9}'..='\u{fffb}' | '\u{e0000}'..='\u{e007f}')
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

    /// What may be written to a terminal; newlines stay.
    pub fn printable(&self, text: &str) -> Printable {
        if self.secrets.is_empty() {
            return Printable::new(text);
        }
        // A secret that an escape sequence cuts in two is whole again only when that is gone.
        Printable::new(&shell::mask(&sanitize(text, true), &self.secrets))
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
    fn only_our_own_colours_are_printed() {
        let red = format!("{RED}wrong{PLAIN}: ");
        for (text, shown) in [
            (format!("{red}a\u{1b}[32mb\u{1b}[0mc"), "\u{1b}[31mwrong\u{1b}[0m: abc"),
            (format!("{red}\u{1b}]52;c;ZXZpbA==\u{7}x"), "\u{1b}[31mwrong\u{1b}[0m: x"),
            (format!("{RED}open\nnext"), "\u{1b}[31mopen\u{1b}[0m\nnext"),
            (format!("{RED}a\u{9b}{PLAIN}b"), "\u{1b}[31mab\u{1b}[0m"),
            (format!("{}x", clean(&red)), "wrong: x"),
            (format!("lone {PLAIN}\u{fdd7}end"), "lone end"),
            ("10%\r20%\u{2028}\u{7f}".to_owned(), "20% "),
        ] {
            let shown = shown.replace("\u{1b}[31mab\u{1b}[0m", "\u{1b}[31ma\u{1b}[0mb");
            assert_eq!(Printable::new(&text).as_str(), shown, "{text:?}");
        }
        let cleaner = Cleaner::new(&["hunter2-token".to_owned()]);
        assert_eq!(cleaner.printable(&format!("{red}hunt\u{1b}[1mer2-token\n")).as_str(), "\u{1b}[31mwrong\u{1b}[0m: ***\n");
    }

    #[test]
    fn json_says_the_same_and_is_harmless() {
        let text = "a\u{1b}]52;c;eA==\u{7}\u{9b}31m\u{202e}\u{200b}\u{fdd3}e\u{301}\u{301}\u{301}\u{301}\u{301}\u{e0041}\u{7f} 损失";
        let value = serde_json::json!({ "text": text });
        for json in [value.to_string(), format!("{value:#}\n")] {
            let escaped = json_escaped(&json);
            assert_eq!(serde_json::from_str::<serde_json::Value>(&escaped).expect("JSON"), value);
            assert_eq!(Printable::new(&escaped).as_str(), escaped, "nothing is left to be cleaned");
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

    /// What hosts have been seen to say, and worse: whole sequences and halves of them.
    fn hostile() -> Vec<Vec<u8>> {
        let mut all: Vec<Vec<u8>> = [
            &b"\x1b]52;c;ZXZpbA==\x07"[..],
            b"\x1b]52;c;ZXZpbA==\x1b\\",
            b"\x1b]0;title\x07",
            b"\x1b]8;;http://x\x1b\\",
            b"\x1b[2J",
            b"\x1b[6n",
            b"\x1b[31m",
            b"\x1b[0m",
            b"\x1b[",
            b"\x1b",
            b"\x1bP+q544e\x1b\\",
            b"\x1bPtmux;",
            b"\x1b_x\x1b\\",
            b"\x1bc",
            b"\x1b(0",
            b"\x9b2J",
            b"\x9d52;c;x\x9c",
            b"\xc2\x9b2J",
            b"\xc2\x9d52;c;x\xc2\x9c",
            b"\xc2\x90x\xc2\x9c",
            b"\xc2",
            b"\xe4\xb8",
            b"\xf0\x9f",
            b"\xff\xfe",
            b"\r",
            b"\n",
            b"\t",
            b"\x07",
            b"\x08",
            b"\x00",
            b"\x7f",
            b"plain ",
            b"\x0e\x0f",
        ]
        .map(<[u8]>::to_vec)
        .to_vec();
        all.extend(
            ["\u{202e}", "\u{2066}", "\u{200b}", "\u{feff}", "\u{2028}", "\u{301}", "中", "\u{fdd0}", "\u{fdd3}", "\u{fdef}", "\u{e0041}"]
                .map(Vec::from),
        );
        all.push(vec![b'x'; 10_000]);
        all.push([&b"\x1b]"[..], &vec![b'y'; 10_000]].concat());
        all
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
        fn only_colours_are_printed_of_a_hostile_corpus(parts in proptest::collection::vec(proptest::sample::select(hostile()), 0..40)) {
            let text = String::from_utf8_lossy(&parts.concat()).into_owned();
            let shown = Printable::new(&text);
            let mut rest = shown.as_str().to_owned();
            for own in ["\u{1b}[0m", "\u{1b}[2m", "\u{1b}[31m", "\u{1b}[32m", "\u{1b}[33m"] {
                rest = rest.replace(own, "");
            }
            prop_assert!(rest.chars().all(|c| c == '\n' || c == '\t' || !c.is_control()), "{:?}", rest);
            prop_assert!(!rest.chars().any(changes), "{:?}", rest);
            let cleaned = clean(&text).into_owned();
            prop_assert!(!cleaned.chars().any(|c| c == char::from(0x1b) || changes(c)), "{:?}", cleaned);
            let escaped = json_escaped(&serde_json::to_string(&text).expect("JSON"));
            let shown = Printable::new(&escaped);
            prop_assert_eq!(shown.as_str(), escaped.as_str());
            prop_assert_eq!(serde_json::from_str::<String>(&escaped).expect("JSON"), text);
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
