//! Queries the terminal's background color. The reply must never be read as keys, even if it comes late.
//!
//! Two queries are sent: `OSC 11` asks for the color; primary device attributes, which every terminal reports, end the wait for terminals that
//! do not know the first (xterm's control sequences).

use crossterm::event::{KeyCode, KeyEvent, KeyModifiers};

/// The queries: the background color, then the device attributes.
pub(super) const BACKGROUND_QUERY: &[u8] = b"\x1b]11;?\x1b\\\x1b[c";
const MAX_REPLY_CHARS: usize = 64;

#[derive(Debug, Clone, Default, PartialEq)]
pub(super) struct BackgroundColorReply {
    /// Luminance of the background, 0 to 1.
    pub(super) brightness: Option<f32>,
    /// The reply to the last query has arrived: nothing more comes.
    pub(super) complete: bool,
    /// The input ends within a reply.
    pub(super) truncated: bool,
    /// Keys pressed in the meantime.
    pub(super) keys: Vec<KeyEvent>,
}

/// Parses everything received so far.
pub(super) fn parse_reply(bytes: &[u8]) -> BackgroundColorReply {
    let mut answer = BackgroundColorReply::default();
    let mut rest = bytes;
    while let Some((first, more)) = rest.split_first() {
        rest = match (*first, more.first()) {
            (0x1b, Some(b']')) => {
                let end = (1..more.len()).find(|at| more[*at] == 0x07 || more[*at] == 0x1b && more.get(at + 1) == Some(&b'\\'));
                let Some(end) = end else {
                    answer.truncated = true;
                    return answer;
                };
                answer.brightness = answer.brightness.or_else(|| parse_brightness(&more[1..end]));
                &more[end + if more[end] == 0x07 { 1 } else { 2 }..]
            }
            (0x1b, Some(b'[')) => {
                let Some(end) = (1..more.len()).find(|at| (0x40..0x7f).contains(&more[*at])) else { return answer };
                answer.complete |= more[end] == b'c' && more.get(1) == Some(&b'?');
                &more[end + 1..]
            }
            (b'\r', _) => {
                answer.keys.push(KeyEvent::new(KeyCode::Enter, KeyModifiers::NONE));
                more
            }
            (0x03, _) => {
                answer.keys.push(KeyEvent::new(KeyCode::Char('c'), KeyModifiers::CONTROL));
                more
            }
            (key @ 0x20..0x7f, _) => {
                answer.keys.push(KeyEvent::new(KeyCode::Char(char::from(key)), KeyModifiers::NONE));
                more
            }
            _ => more,
        };
    }
    answer
}

/// Parses `11;rgb:ffff/ffff/ffff` with one to four digits per channel into a luminance.
fn parse_brightness(text: &[u8]) -> Option<f32> {
    let text = std::str::from_utf8(text).ok()?.strip_prefix("11;rgb:")?;
    let part = |part: &str| {
        let most = 16_u32.checked_pow(u32::try_from(part.len()).ok()?)?.checked_sub(1).filter(|most| *most > 0 && *most <= 0xffff)?;
        let value = u32::from_str_radix(part, 16).ok()?;
        Some(value as f32 / most as f32)
    };
    let parts: Vec<f32> = text.split('/').map(part).collect::<Option<_>>()?;
    let [red, green, blue] = parts[..] else { return None };
    Some(0.2126 * red + 0.7152 * green + 0.0722 * blue)
}

/// Discards a late reply, which the key library reads as Alt and letters.
#[derive(Debug, Clone, Copy, Default, PartialEq, Eq)]
pub(super) struct LateReplyFilter {
    /// A reply may still come.
    reply_pending: bool,
    /// Number of letters of the reply seen so far.
    reply_chars: Option<usize>,
    /// The previous key was Esc: a reply that arrives in two pieces starts like this.
    after_escape: bool,
}

impl LateReplyFilter {
    /// Starts after what was received in time.
    pub(super) fn from_reply(answer: &BackgroundColorReply) -> LateReplyFilter {
        LateReplyFilter { reply_pending: !answer.complete, reply_chars: answer.truncated.then_some(0), after_escape: false }
    }

    /// Whether a key belongs to a reply.
    pub(super) fn consumes(&mut self, key: KeyEvent) -> bool {
        if !self.reply_pending {
            return false;
        }
        let alt = key.modifiers.contains(KeyModifiers::ALT);
        let escaped = std::mem::replace(&mut self.after_escape, key.code == KeyCode::Esc);
        let Some(count) = self.reply_chars else {
            if key.code == KeyCode::Char(']') && (alt || escaped) {
                self.reply_chars = Some(0);
                return true;
            }
            return false;
        };
        let ends = match key.code {
            KeyCode::Char('\\') => alt || escaped,
            KeyCode::Char('g') if key.modifiers.contains(KeyModifiers::CONTROL) => true,
            _ => false,
        };
        // A key that no reply contains: it was not a reply, or its end is lost.
        let foreign =
            !matches!(key.code, KeyCode::Char('0'..='9' | 'a'..='f' | 'A'..='F' | 'r' | 'g' | ':' | ';' | '/' | '\\') | KeyCode::Esc);
        self.reply_chars = if ends || foreign || count >= MAX_REPLY_CHARS { None } else { Some(count + 1) };
        self.reply_pending = !ends;
        !foreign
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    fn decoded_keys(text: &str) -> Vec<KeyEvent> {
        // As the key library reports it: Esc and a letter arrive as Alt and the letter.
        let (mut keys, mut alt) = (Vec::new(), false);
        for c in text.chars() {
            match c {
                '\x1b' => alt = true,
                '\x07' => keys.push(KeyEvent::new(KeyCode::Char('g'), KeyModifiers::CONTROL)),
                c => keys
                    .push(KeyEvent::new(KeyCode::Char(c), if std::mem::take(&mut alt) { KeyModifiers::ALT } else { KeyModifiers::NONE })),
            }
        }
        keys
    }

    #[test]
    fn background_replies_are_parsed() {
        let near = |answer: &BackgroundColorReply, light: f32| answer.brightness.is_some_and(|l| (l - light).abs() < 0.01);
        let white = parse_reply(b"\x1b]11;rgb:ffff/ffff/ffff\x1b\\\x1b[?65;1c");
        assert!(near(&white, 1.0) && white.complete && white.keys.is_empty(), "{white:?}");
        let dark = parse_reply(b"\x1b]11;rgb:1e/1e/2e\x07");
        assert!(near(&dark, 0.12) && !dark.complete, "{dark:?}");
        let none = parse_reply(b"x\x1b[?1;2c\rq\x1b[A");
        assert_eq!((none.brightness, none.complete, none.truncated, none.keys.len()), (None, true, false, 3));
        assert!(parse_reply(b"\x1b]11;rgb:ff").truncated);
        for bad in ["", "11;", "11;rgb:", "11;rgb:f/f", "11;rgb:fffff/f/f", "11;rgb:g/g/g", "10;rgb:f/f/f", "11;rgb:f/f/f/f"] {
            assert_eq!(parse_brightness(bad.as_bytes()), None, "{bad}");
        }
    }

    #[test]
    fn late_replies_are_not_keys() {
        for answer in ["\x1b]11;rgb:ffff/ffff/ffff\x1b\\", "\x1b]11;rgb:1e1e/1e1e/2e2e\x07"] {
            let mut late = LateReplyFilter::from_reply(&parse_reply(b""));
            assert!(decoded_keys(answer).into_iter().all(|key| late.consumes(key)), "{answer:?}");
            assert!(!decoded_keys("q1/x").into_iter().any(|key| late.consumes(key)), "what follows is typed");
        }
        let mut late = LateReplyFilter::from_reply(&parse_reply(b"\x1b]11;rgb:ffff/ff"));
        assert!(decoded_keys("ff/ffff\x1b\\").into_iter().all(|key| late.consumes(key)), "the rest of one that began in time");
        let mut late = LateReplyFilter::from_reply(&parse_reply(b""));
        assert!(!late.consumes(KeyEvent::new(KeyCode::Esc, KeyModifiers::NONE)));
        assert!(decoded_keys("]11;rgb:0/0/0\x07").into_iter().all(|key| late.consumes(key)), "torn after its first byte");
    }

    #[test]
    fn typed_keys_pass_the_filter() {
        let mut late = LateReplyFilter::from_reply(&parse_reply(b""));
        assert!(!decoded_keys("/loss ]n\x1bx").into_iter().any(|key| late.consumes(key)));
        let mut late = LateReplyFilter::from_reply(&parse_reply(b"\x1b[?1c"));
        assert!(!decoded_keys("\x1b]11").into_iter().any(|key| late.consumes(key)), "nothing is to come");
        let mut late = LateReplyFilter::from_reply(&parse_reply(b""));
        assert!(
            late.consumes(decoded_keys("\x1b]")[0]) && !late.consumes(decoded_keys("q")[0]) && !late.consumes(decoded_keys("1")[0]),
            "it was no answer"
        );
    }
}
