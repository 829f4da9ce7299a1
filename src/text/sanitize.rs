//! Bytes of a host made safe for a terminal, and known secrets hidden.
//!
//! Every text that a host, a file or a library wrote goes through here before a person sees it: a log line may try to write the clipboard,
//! move the cursor, answer a question into the shell, or show its letters in another order.
//!
//! [`sanitize_text`], `Sanitizer::sanitize_multiline` and `Sanitizer::sanitize_line` are for foreign text on its way into ours. Only a [`PrintableText`] may be written to a terminal,
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
    const CODES: [&str; 10] = ["32", "33", "31", "2", "36", "35", "34", "96", "95", "94"];
    CODES.get((mark as usize).checked_sub(GREEN as usize)?).copied()
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
        write!(f, "Sanitizer({} secrets)", self.secrets.len())
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
        if self.secrets.is_empty() { PrintableText::new(text) } else { PrintableText::new(&self.sanitize_colored(text)) }
    }

    /// Safe text that keeps our colour marks; newlines stay.
    pub(crate) fn sanitize_colored(&self, text: &str) -> String {
        // A secret that an escape sequence cuts in two is whole again only when that is gone.
        mask::mask_secrets(&sanitize_with_colors(text, true), &self.secrets)
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
#[path = "sanitize_tests.rs"]
mod tests;
