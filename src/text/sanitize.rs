//! Bytes of a host made safe for a terminal, and known secrets hidden.
//!
//! Every text that a host, a file or a library wrote goes through here before a person sees it: a log line may try to write the clipboard,
//! move the cursor, answer a question into the shell, or show its letters in another order.
//!
//! `clean`, `Sanitizer::sanitize_multiline` and `Sanitizer::sanitize_line` are for foreign text on its way into ours. Only a [`PrintableText`] may be written to a terminal,
//! and only this file makes one: it cleans again, in case a caller forgot to, and turns our own colour marks into escape sequences
//! last. Outside of it a colour is a noncharacter of Unicode, which foreign text loses when it is cleaned.

use std::borrow::Cow;

use unicode_width::UnicodeWidthChar;

use crate::text::mask;

/// The longest string sequence (OSC, DCS and the like) that is taken for one; a longer one loses its introducer only.
const MAX_STRING_SEQUENCE: usize = 4096;
/// How many marks may sit on one character.
const MAX_COMBINING_MARKS: usize = 4;
/// The shortest secret that is hidden: two letters hide nothing and would garble everything.
const MIN_SECRET_LEN: usize = 3;

pub(crate) const COLOR_RESET: char = '\u{fdd0}';
/// Begin a colour: as it should be, worth a look, wrong, beside the point.
pub(crate) const GREEN: char = '\u{fdd1}';
pub(crate) const YELLOW: char = '\u{fdd2}';
pub(crate) const RED: char = '\u{fdd3}';
pub(crate) const DIM: char = '\u{fdd4}';
/// Distinguish ranks; they have no other meaning.
pub(crate) const RANK_COLORS: [char; 6] = ['\u{fdd5}', '\u{fdd6}', '\u{fdd7}', '\u{fdd8}', '\u{fdd9}', '\u{fdda}'];
const LAST_MARK: char = '\u{fdda}';

/// What a mark is on a terminal: a parameter of SGR (ECMA-48, 8.3.117).
fn sgr_code(mark: char) -> Option<&'static str> {
    Some(match mark {
        GREEN => "32",
        YELLOW => "33",
        RED => "31",
        DIM => "2",
        '\u{fdd5}' => "36",
        '\u{fdd6}' => "35",
        '\u{fdd7}' => "34",
        '\u{fdd8}' => "96",
        '\u{fdd9}' => "95",
        LAST_MARK => "94",
        _ => return None,
    })
}

/// Text that may be written to a terminal: no control character but tab and newline, no escape sequence but our own colours.
#[derive(Debug, Clone, PartialEq, Eq, Default)]
pub struct PrintableText(String);

impl PrintableText {
    /// Cleans a text and gives it the colours of `report::style::TextStyle`. A colour ends with its line.
    pub fn new(text: &str) -> Self {
        if is_plain_ascii(text) {
            return PrintableText(text.to_owned());
        }
        let clean = sanitize_with_colors(text, true);
        let mut out = String::with_capacity(clean.len() + 16);
        let mut open = false;
        for c in clean.chars() {
            match (c, sgr_code(c)) {
                (_, Some(code)) => {
                    out.push_str(&format!("\u{1b}[{code}m"));
                    open = true;
                }
                (COLOR_RESET | '\n', None) => {
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
        PrintableText(out)
    }

    pub fn as_str(&self) -> &str {
        &self.0
    }
}

fn is_plain_ascii(text: &str) -> bool {
    text.bytes().all(|b| matches!(b, b'\t' | b'\n' | 0x20..=0x7e))
}

/// JSON in which every character that a terminal might obey is written as its number. It says the same to a program.
pub fn escape_json(json: &str) -> String {
    if is_plain_ascii(json) {
        return json.to_owned();
    }
    let mut out = String::with_capacity(json.len() + 16);
    for c in json.chars() {
        let harmless = c == '\n' || !(c.is_control() || needs_sanitizing(c) || c.width() == Some(0));
        if harmless {
            out.push(c);
        } else {
            c.encode_utf16(&mut [0; 2]).iter().for_each(|unit| out.push_str(&format!("\\u{unit:04x}")));
        }
    }
    out
}

/// Whether cleaning changes a character that is no control character.
fn needs_sanitizing(c: char) -> bool {
    is_invisible(c) || is_bidi_control(c) || matches!(c, '\u{2028}' | '\u{2029}')
}

/// Makes `text` safe: no control character but tab and newline, no escape sequence, nothing invisible that changes the order of letters.
/// A carriage return restarts its line, as on a screen. Cleaning twice changes nothing.
pub fn sanitize_text(text: &str) -> Cow<'_, str> {
    if is_plain_ascii(text) { Cow::Borrowed(text) } else { Cow::Owned(sanitize_with_colors(text, false)) }
}

/// `colours`: whether our own marks stay.
fn sanitize_with_colors(text: &str, colours: bool) -> String {
    let mut out = String::with_capacity(text.len());
    let mut rest = text;
    let mut marks = 0;
    let mut returned = false;
    while let Some(c) = rest.chars().next() {
        let after = &rest[c.len_utf8()..];
        rest = after;
        match c {
            '\u{1b}' => rest = skip_escape(after),
            '\u{9b}' => rest = skip_csi(after),
            '\u{90}' | '\u{98}' | '\u{9d}'..='\u{9f}' => rest = skip_string_sequence(after),
            '\r' => returned = true,
            '\n' => {
                out.push('\n');
                (marks, returned) = (0, false);
            }
            '\t' => apply_carriage_return(&mut out, &mut returned).push('\t'),
            COLOR_RESET..=LAST_MARK if colours => apply_carriage_return(&mut out, &mut returned).push(c),
            c if c.is_control() || is_invisible(c) => {}
            '\u{2028}' | '\u{2029}' => apply_carriage_return(&mut out, &mut returned).push(' '),
            c if is_bidi_control(c) => apply_carriage_return(&mut out, &mut returned).push_str(&format!("‹U+{:04X}›", u32::from(c))),
            c => {
                marks = if c.width() == Some(0) { marks + 1 } else { 0 };
                if marks <= MAX_COMBINING_MARKS {
                    apply_carriage_return(&mut out, &mut returned).push(c);
                }
            }
        }
    }
    out
}

/// Clears the current line if a carriage return preceded.
fn apply_carriage_return<'a>(out: &'a mut String, returned: &mut bool) -> &'a mut String {
    if std::mem::take(returned) {
        out.truncate(out.rfind('\n').map_or(0, |at| at + 1));
    }
    out
}

/// What follows an escape sequence whose ESC is gone.
fn skip_escape(text: &str) -> &str {
    match text.as_bytes().first() {
        Some(b'[') => skip_csi(&text[1..]),
        Some(b']' | b'P' | b'X' | b'^' | b'_') => skip_string_sequence(&text[1..]),
        _ => {
            let rest = text.trim_start_matches(|c| matches!(c, ' '..='/'));
            // Counted against a long run of spaces: an escape has few of them.
            if text.len() - rest.len() > 4 { text } else { rest.strip_prefix(|c| matches!(c, '0'..='~')).unwrap_or(rest) }
        }
    }
}

/// What follows a control sequence whose introducer is gone.
fn skip_csi(text: &str) -> &str {
    let end = text.bytes().take(MAX_STRING_SEQUENCE).position(|b| !matches!(b, 0x20..=0x3f));
    let rest = end.map_or("", |at| &text[at..]);
    rest.strip_prefix(|c| matches!(c, '@'..='~')).unwrap_or(rest)
}

/// What follows a string sequence; an endless one loses its introducer only, so that it cannot hide text.
fn skip_string_sequence(text: &str) -> &str {
    for (at, c) in text.char_indices().take(MAX_STRING_SEQUENCE) {
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
fn is_invisible(c: char) -> bool {
    matches!(c, '\u{fdd0}'..='\u{fdef}' | '\u{200b}' | '\u{2060}'..='\u{2064}' | '\u{feff}' | '\u{fff9}'..='\u{fffb}' | '\u{e0000}'..='\u{e007f}')
}

/// Whether a character changes the order of others.
fn is_bidi_control(c: char) -> bool {
    matches!(c, '\u{61c}' | '\u{200e}' | '\u{200f}' | '\u{202a}'..='\u{202e}' | '\u{2066}'..='\u{2069}')
}

/// Cleans and hides secrets.
#[derive(Clone, Default)]
pub struct Sanitizer {
    secrets: Vec<String>,
    json_secrets: Vec<String>,
}

impl std::fmt::Debug for Sanitizer {
    fn fmt(&self, f: &mut std::fmt::Formatter<'_>) -> std::fmt::Result {
        write!(f, "Cleaner({} secrets)", self.secrets.len())
    }
}

impl Sanitizer {
    /// Knows what must never be shown.
    pub fn new(secrets: &[String]) -> Self {
        let mut all: Vec<String> = Vec::new();
        for secret in secrets {
            all.push(secret.clone());
            // Lines are cut before they are cleaned, and cleaning may change a secret.
            all.extend(secret.lines().map(str::to_owned));
            all.push(sanitize_text(secret).into_owned());
        }
        all.retain(|secret| secret.len() >= MIN_SECRET_LEN);
        all.sort();
        all.dedup();
        let json = all.iter().filter_map(|s| serde_json::to_string(s).ok()).map(|s| s[1..s.len() - 1].to_owned()).collect();
        Sanitizer { secrets: all, json_secrets: json }
    }

    /// Safe text; newlines stay.
    pub fn sanitize_multiline(&self, text: &str) -> String {
        let clean = sanitize_text(text);
        if self.secrets.is_empty() { clean.into_owned() } else { self.mask_truncated_secret(&mask::mask_secrets(&clean, &self.secrets)) }
    }

    /// What may be written to a terminal; newlines stay.
    pub fn to_printable(&self, text: &str) -> PrintableText {
        if self.secrets.is_empty() {
            return PrintableText::new(text);
        }
        // A secret that an escape sequence cuts in two is whole again only when that is gone.
        PrintableText::new(&mask::mask_secrets(&sanitize_with_colors(text, true), &self.secrets))
    }

    /// Safe text on one line.
    pub fn sanitize_line(&self, text: &str) -> String {
        let text = self.sanitize_multiline(text.trim_end_matches(['\n', '\r']));
        if text.contains('\n') { text.lines().map(str::trim).filter(|l| !l.is_empty()).collect::<Vec<_>>().join("; ") } else { text }
    }

    /// Hides the secrets in a line of JSON.
    pub fn mask_json(&self, line: String) -> String {
        if self.json_secrets.is_empty() { line } else { mask::mask_secrets(&line, &self.json_secrets) }
    }

    /// Whether there is anything to hide.
    pub fn has_secrets(&self) -> bool {
        !self.secrets.is_empty()
    }

    /// A line that was cut at its bound may end within a secret.
    fn mask_truncated_secret(&self, text: &str) -> String {
        let Some(body) = text.strip_suffix('…') else { return text.to_owned() };
        for secret in &self.secrets {
            let starts = secret.char_indices().map(|(at, _)| at).filter(|at| *at >= MIN_SECRET_LEN).rev();
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
    fn escape_sequence_attacks_are_removed() {
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
            assert_eq!(sanitize_text(bad), good, "{bad:?}");
        }
    }

    #[test]
    fn printable_keeps_only_own_colors() {
        let red = format!("{RED}wrong{COLOR_RESET}: ");
        for (text, shown) in [
            (format!("{red}a\u{1b}[32mb\u{1b}[0mc"), "\u{1b}[31mwrong\u{1b}[0m: abc"),
            (format!("{red}\u{1b}]52;c;ZXZpbA==\u{7}x"), "\u{1b}[31mwrong\u{1b}[0m: x"),
            (format!("{RED}open\nnext"), "\u{1b}[31mopen\u{1b}[0m\nnext"),
            (format!("{RED}a\u{9b}{COLOR_RESET}b"), "\u{1b}[31mab\u{1b}[0m"),
            (format!("{}x", sanitize_text(&red)), "wrong: x"),
            (format!("lone {COLOR_RESET}\u{fddf}end"), "lone end"),
            ("10%\r20%\u{2028}\u{7f}".to_owned(), "20% "),
        ] {
            let shown = shown.replace("\u{1b}[31mab\u{1b}[0m", "\u{1b}[31ma\u{1b}[0mb");
            assert_eq!(PrintableText::new(&text).as_str(), shown, "{text:?}");
        }
        let cleaner = Sanitizer::new(&["hunter2-token".to_owned()]);
        assert_eq!(cleaner.to_printable(&format!("{red}hunt\u{1b}[1mer2-token\n")).as_str(), "\u{1b}[31mwrong\u{1b}[0m: ***\n");
    }

    #[test]
    fn escaped_json_is_equal_and_harmless() {
        let text = "a\u{1b}]52;c;eA==\u{7}\u{9b}31m\u{202e}\u{200b}\u{fdd3}e\u{301}\u{301}\u{301}\u{301}\u{301}\u{e0041}\u{7f} 损失";
        let value = serde_json::json!({ "text": text });
        for json in [value.to_string(), format!("{value:#}\n")] {
            let escaped = escape_json(&json);
            assert_eq!(serde_json::from_str::<serde_json::Value>(&escaped).expect("JSON"), value);
            assert_eq!(PrintableText::new(&escaped).as_str(), escaped, "nothing is left to be cleaned");
        }
    }

    #[test]
    fn endless_string_sequence_hides_nothing() {
        let text = format!("\u{1b}]{}", "x".repeat(MAX_STRING_SEQUENCE * 4));
        assert_eq!(sanitize_text(&text).len(), MAX_STRING_SEQUENCE * 4);
    }

    #[test]
    fn secrets_are_masked_in_every_form() {
        let cleaner = Sanitizer::new(&["hunter2-token".to_owned(), "ab".to_owned(), "it's\nlong key\n".to_owned()]);
        assert_eq!(cleaner.sanitize_line("x hunter2-token y"), "x *** y");
        assert_eq!(cleaner.sanitize_line("x hun\u{1b}[1mter2-token y"), "x *** y", "an escape does not save it");
        assert_eq!(cleaner.sanitize_line("cab long key"), "cab ***");
        assert_eq!(cleaner.sanitize_line("x hunter2-t…"), "x ***…", "nor does the end of a long line");
        assert_eq!(cleaner.mask_json(r#"{"a":"it's\nlong key\n"}"#.to_owned()), r#"{"a":"***"}"#);
        assert_eq!(cleaner.sanitize_line("two\nlines\n"), "two; lines");
        assert!(!format!("{cleaner:?}").contains("hunter2"));
    }

    /// What hosts have been seen to say, and worse: whole sequences and halves of them.
    fn hostile_inputs() -> Vec<Vec<u8>> {
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
        fn sanitized_bytes_hold_no_controls(bytes in proptest::collection::vec(any::<u8>(), 0..300)) {
            let text = String::from_utf8_lossy(&bytes);
            let once = sanitize_text(&text).into_owned();
            prop_assert!(once.chars().all(|c| c == '\n' || c == '\t' || !c.is_control()), "{:?}", once);
            prop_assert_eq!(sanitize_text(&once), once.as_str());
            prop_assert!(once.len() <= text.len() * 6);
        }

        #[test]
        fn hostile_inputs_print_only_colors(parts in proptest::collection::vec(proptest::sample::select(hostile_inputs()), 0..40)) {
            let text = String::from_utf8_lossy(&parts.concat()).into_owned();
            let shown = PrintableText::new(&text);
            let mut rest = shown.as_str().to_owned();
            for own in ["\u{1b}[0m", "\u{1b}[2m", "\u{1b}[31m", "\u{1b}[32m", "\u{1b}[33m"] {
                rest = rest.replace(own, "");
            }
            prop_assert!(rest.chars().all(|c| c == '\n' || c == '\t' || !c.is_control()), "{:?}", rest);
            prop_assert!(!rest.chars().any(needs_sanitizing), "{:?}", rest);
            let cleaned = sanitize_text(&text).into_owned();
            prop_assert!(!cleaned.chars().any(|c| c == char::from(0x1b) || needs_sanitizing(c)), "{:?}", cleaned);
            let escaped = escape_json(&serde_json::to_string(&text).expect("JSON"));
            let shown = PrintableText::new(&escaped);
            prop_assert_eq!(shown.as_str(), escaped.as_str());
            prop_assert_eq!(serde_json::from_str::<String>(&escaped).expect("JSON"), text);
        }

        #[test]
        fn sanitized_sequences_hold_no_controls(parts in proptest::collection::vec(
            proptest::sample::select(vec!["\u{1b}", "[", "]", "0;", "\u{9b}", "\u{9c}", "\u{7}", "\\", "m", "\r", "\n", "a", "\u{202e}", "\u{301}", "P", " ", "中"]), 0..60)) {
            let text = parts.concat();
            let once = sanitize_text(&text).into_owned();
            prop_assert!(once.chars().all(|c| c == '\n' || c == '\t' || !c.is_control()));
            prop_assert_eq!(sanitize_text(&once), once.as_str());
        }
    }
}
