//! How rows of logs are cut, escaped and found.

use super::paint::{escape, skip, take, wrap};

#[test]
fn rows_break_between_characters() {
    assert_eq!(wrap("abcdef", 4), ["abcd", "ef"]);
    assert_eq!(wrap("中中中", 4), ["中中", "中"]);
    assert_eq!(wrap("", 4), [""]);
    assert_eq!((take("abcd", 4), take("abcde", 4)), (("abcd".into(), false), ("abc".into(), true)));
    assert_eq!((skip("abc", 2), skip("中a", 1)), ("c".into(), "中a".into()));
}

#[test]
fn bytes_are_escaped() {
    assert_eq!(escape(b"a\x1b[31m\tb\r\\\xff\xc3\xa9"), "a\\e[31m\\tb\\r\\\\\\xffé");
    assert_eq!(escape("\u{202e}\u{9b}中\u{301}".as_bytes()), "\\u{202e}\\u{9b}中\\u{301}");
}
