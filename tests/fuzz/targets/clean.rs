//! Sanitizes any text of a host: no terminal control sequence is left, and sanitizing twice changes nothing.
#![no_main]

use libfuzzer_sys::fuzz_target;
use orchestrate::text::sanitize::sanitize_text;

fuzz_target!(|bytes: &[u8]| {
    let text = String::from_utf8_lossy(bytes);
    let safe = sanitize_text(&text);
    assert!(safe.chars().all(|c| matches!(c, '\t' | '\n') || !c.is_control() && !('\u{202a}'..='\u{202e}').contains(&c)), "{safe:?}");
    assert_eq!(sanitize_text(&safe), safe, "cleaned twice");
    // A bidirectional control character is shown by its number, `‹U+061C›`: 12 bytes for 2 at most; nothing else grows.
    assert!(safe.len() <= text.len() * 6, "{} of {}", safe.len(), text.len());
});
