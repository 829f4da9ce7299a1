//! Splits a line of a log into text and numbers, with a key that is equal for lines which differ in numbers alone.
//!
//! Takes sanitized text only.

/// Placeholders for numbers and for other varying parts in the comparison key: sanitized text contains neither.
const NUMBER_PLACEHOLDER: char = '\u{1}';
const ID_PLACEHOLDER: char = '\u{2}';

/// A token of a line.
#[derive(Debug, Clone, PartialEq)]
pub(crate) enum LineSegment {
    /// Equal in all lines.
    Text(String),
    /// A number that may differ.
    Number {
        /// As first written.
        first: String,
        /// The smallest value and its text.
        min: (f64, String),
        /// The largest value and its text.
        max: (f64, String),
    },
}

/// A part of a line.
pub(super) struct Token {
    from: usize,
    to: usize,
    is_number: bool,
    /// Not a number where there is none.
    pub(super) value: f64,
}

impl Token {
    pub(super) fn text<'a>(&self, line: &'a str) -> &'a str {
        &line[self.from..self.to]
    }

    pub(super) fn segment(&self, line: &str) -> LineSegment {
        let text = self.text(line);
        match self.is_number {
            true => LineSegment::Number { first: text.to_owned(), min: (self.value, text.to_owned()), max: (self.value, text.to_owned()) },
            false => LineSegment::Text(text.to_owned()),
        }
    }
}

/// Comparison key and tokens of a line; no key for a line of numbers only.
pub(super) fn tokenize_line(line: &str) -> (Option<String>, Vec<Token>) {
    let (mut key, mut tokens) = (String::with_capacity(line.len()), Vec::<Token>::new());
    let mut from = 0;
    let mut letters = false;
    let mut before = ' ';
    while from < line.len() {
        let (len, kind) = next_token(&line[from..], before);
        let to = from + len;
        let text = &line[from..to];
        match kind {
            TokenKind::Number => {
                key.push(NUMBER_PLACEHOLDER);
                let value = if text.contains(',') { text.replace(',', "").parse() } else { text.parse() };
                tokens.push(Token { from, to, is_number: true, value: value.unwrap_or(f64::NAN) });
            }
            // Differs, but has no numeric value.
            TokenKind::Id => {
                key.push(ID_PLACEHOLDER);
                tokens.push(Token { from, to, is_number: false, value: f64::NAN });
            }
            TokenKind::Text => {
                letters = letters || text.chars().any(char::is_alphabetic);
                key.push_str(text);
                match tokens.last_mut().filter(|last| !last.is_number) {
                    Some(last) => last.to = to,
                    None => tokens.push(Token { from, to, is_number: false, value: f64::NAN }),
                }
            }
        }
        before = text.chars().next_back().unwrap_or(' ');
        from = to;
    }
    (letters.then_some(key), tokens)
}

enum TokenKind {
    Text,
    Number,
    Id,
}

/// The next token of a line and its length in bytes.
fn next_token(text: &str, before: char) -> (usize, TokenKind) {
    let bytes = text.as_bytes();
    let run = |from: usize, of: fn(&u8) -> bool| bytes[from.min(bytes.len())..].iter().take_while(|byte| of(byte)).count();
    let digits = |from: usize| run(from, u8::is_ascii_digit);
    let whole = digits(0);
    if !before.is_alphanumeric() {
        let word = run(0, u8::is_ascii_alphanumeric);
        let hex = &bytes[..word];
        let marked = hex.starts_with(b"0x") && word > 2 && hex[2..].iter().all(u8::is_ascii_hexdigit);
        let long = word >= 8
            && hex.iter().all(u8::is_ascii_hexdigit)
            && hex.iter().any(u8::is_ascii_digit)
            && hex.iter().any(u8::is_ascii_alphabetic);
        if marked || long {
            return (word, TokenKind::Id);
        }
        // A time of day or a date: 13:06:05.123, 2026-11-22.
        let pair = |from: usize, sign: u8| bytes.get(from) == Some(&sign) && digits(from + 1) == 2;
        if whole == 2 && pair(2, b':') {
            let mut len = if pair(5, b':') { 8 } else { 5 };
            if matches!(bytes.get(len), Some(b'.' | b',')) && digits(len + 1) > 0 {
                len += 1 + digits(len + 1);
            }
            return (len, TokenKind::Id);
        }
        if whole == 4 && pair(4, b'-') && pair(7, b'-') {
            return (10, TokenKind::Id);
        }
    }
    if whole > 0 {
        let mut len = whole;
        while bytes.get(len) == Some(&b',') && whole <= 3 && digits(len + 1) == 3 {
            len += 4;
        }
        if bytes.get(len) == Some(&b'.') && digits(len + 1) > 0 {
            len += 1 + digits(len + 1);
        }
        if matches!(bytes.get(len), Some(b'e' | b'E')) {
            let sign = usize::from(matches!(bytes.get(len + 1), Some(b'+' | b'-')));
            let power = digits(len + 1 + sign);
            if power > 0 && !bytes.get(len + 1 + sign + power).is_some_and(u8::is_ascii_alphanumeric) {
                len += 1 + sign + power;
            }
        }
        return (len, TokenKind::Number);
    }
    // The bytes of other characters than ASCII are neither digits nor letters here.
    let starts_token = |pair: &[u8]| pair[1].is_ascii_digit() || pair[1].is_ascii_alphanumeric() && !pair[0].is_ascii_alphanumeric();
    (bytes.windows(2).position(starts_token).map_or(bytes.len(), |at| at + 1), TokenKind::Text)
}

#[cfg(test)]
mod tests {
    use super::*;
    use proptest::prelude::*;

    proptest! {
        #[test]
        fn single_line_keeps_its_text(line in "[a-z0-9 :.,x/\\[\\]=é中-]{0,60}") {
            let (_, tokens) = tokenize_line(&line);
            let text: String = tokens.iter().map(|token| match token.segment(&line) {
                LineSegment::Text(text) => text,
                LineSegment::Number { first, .. } => first,
            }).collect();
            prop_assert_eq!(text, line);
        }

        #[test]
        fn equal_keys_have_matching_segments(a in "[ab0-9 .:]{0,20}", b in "[ab0-9 .:]{0,20}") {
            let ((one, tokens), (other, more)) = (tokenize_line(&a), tokenize_line(&b));
            if one.is_some() && one == other {
                let kinds = |tokens: &[Token]| tokens.iter().map(|token| token.is_number).collect::<Vec<_>>();
                prop_assert_eq!(kinds(&tokens), kinds(&more));
            }
        }
    }
}
