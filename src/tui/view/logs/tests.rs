//! Wrapping, escaping and truncation of log rows.

use crate::text::width::split_to_width;

use super::text::{escape_bytes, skip_columns, truncate_columns};

#[test]
fn wrapping_breaks_between_characters() {
    assert_eq!(split_to_width("abcdef", 4), ["abcd", "ef"]);
    assert_eq!(split_to_width("中中中", 4), ["中中", "中"]);
    assert_eq!(split_to_width("", 4), [""]);
    assert_eq!((truncate_columns("abcd", 4), truncate_columns("abcde", 4)), (("abcd".into(), false), ("abc".into(), true)));
    assert_eq!((skip_columns("abc", 2), skip_columns("中a", 1)), ("c".into(), "中a".into()));
}

#[test]
fn bytes_are_escaped() {
    assert_eq!(escape_bytes(b"a\x1b[31m\tb\r\\\xff\xc3\xa9"), "a\\e[31m\\tb\\r\\\\\\xffé");
    assert_eq!(escape_bytes("\u{202e}\u{9b}中\u{301}".as_bytes()), "\\u{202e}\\u{9b}中\\u{301}");
}
