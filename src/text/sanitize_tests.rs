//! Control sequences and secrets, by table and by property.

use proptest::prelude::*;

use super::*;

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
        (format!("{RED}a\u{9b}{COLOR_RESET}b"), "\u{1b}[31ma\u{1b}[0mb"),
        (format!("{}x", sanitize_text(&red)), "wrong: x"),
        (format!("lone {COLOR_RESET}\u{fddf}end"), "lone end"),
        ("10%\r20%\u{2028}\u{7f}".to_owned(), "20% "),
    ] {
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
