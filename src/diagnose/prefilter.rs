//! Words that a line must hold for a pattern to match it, read from the pattern itself: most lines are passed over by looking for these
//! alone.

use regex_syntax::hir::{Class, Hir, HirKind};

/// The shortest word that is worth looking for.
const MIN_LITERAL_LEN: usize = 4;
/// The most words of one pattern.
const MAX_LITERALS: usize = 32;

/// Lower-case words of which every matching line holds at least one, compared without regard to ASCII case; `None`: there are no such
/// words.
pub(super) fn required_literals(pattern: &str) -> Option<Vec<Vec<u8>>> {
    let hir = regex_syntax::ParserBuilder::new().unicode(false).utf8(false).build().parse(pattern).ok()?;
    let words = best_literals(&hir)?;
    (words.len() <= MAX_LITERALS && words.iter().all(|word| word.len() >= MIN_LITERAL_LEN)).then_some(words)
}

/// The best literals of a part: the set whose shortest literal is longest.
fn best_literals(hir: &Hir) -> Option<Vec<Vec<u8>>> {
    match hir.kind() {
        HirKind::Capture(inner) => best_literals(&inner.sub),
        HirKind::Repetition(inner) if inner.min > 0 => best_literals(&inner.sub),
        HirKind::Alternation(parts) => {
            let mut all = Vec::new();
            for part in parts {
                all.extend(best_literals(part)?);
            }
            (all.len() <= MAX_LITERALS).then_some(all)
        }
        HirKind::Concat(parts) => best_concat_literals(parts),
        _ => fixed_letters(hir).map(|word| vec![word]),
    }
}

/// Runs of fixed letters are one word; of all words, and of the parts between, the best.
fn best_concat_literals(parts: &[Hir]) -> Option<Vec<Vec<u8>>> {
    let mut candidates: Vec<Vec<Vec<u8>>> = Vec::new();
    let mut run: Vec<u8> = Vec::new();
    for part in parts {
        if let Some(word) = fixed_letters(part) {
            run.extend(word);
            continue;
        }
        if !run.is_empty() {
            candidates.push(vec![std::mem::take(&mut run)]);
        }
        candidates.extend(best_literals(part));
    }
    if !run.is_empty() {
        candidates.push(vec![run]);
    }
    candidates.into_iter().max_by_key(|words| words.iter().map(Vec::len).min())
}

/// Letters that are fixed but for their case.
fn fixed_letters(hir: &Hir) -> Option<Vec<u8>> {
    match hir.kind() {
        HirKind::Literal(literal) => Some(literal.0.to_ascii_lowercase()),
        HirKind::Class(Class::Bytes(class)) => single_letter(class.ranges().iter().flat_map(|range| range.start()..=range.end())),
        HirKind::Class(Class::Unicode(class)) => {
            let wide = class.ranges().iter().any(|range| !range.end().is_ascii());
            if wide { None } else { single_letter(class.ranges().iter().flat_map(|range| range.start() as u8..=range.end() as u8)) }
        }
        _ => None,
    }
}

/// The one letter of a class that holds it in both cases.
fn single_letter(mut bytes: impl Iterator<Item = u8>) -> Option<Vec<u8>> {
    let first = bytes.next()?.to_ascii_lowercase();
    bytes.all(|byte| byte.to_ascii_lowercase() == first).then(|| vec![first])
}

#[cfg(test)]
mod tests {
    use super::*;

    fn required_strings(pattern: &str) -> Option<Vec<String>> {
        required_literals(pattern).map(|words| words.into_iter().map(|word| String::from_utf8(word).expect("text")).collect())
    }

    #[test]
    fn longest_fixed_literal_is_chosen() {
        assert_eq!(required_strings("(?P<have>\\d+)/(?P<want>\\d+) clients joined"), Some(vec![" clients joined".to_owned()]));
        assert_eq!(required_strings("(?i)CUDA out of memory"), Some(vec!["cuda out of memory".to_owned()]));
        assert_eq!(required_strings("(ValueError|KeyError): x"), Some(vec!["valueerror".to_owned(), "keyerror".to_owned()]));
        assert_eq!(required_strings("a?b+\\d"), None, "too short");
        assert_eq!(required_strings("\\w+|long enough"), None, "one branch has none");
    }

    proptest::proptest! {
        /// What a pattern matches holds one of its words.
        #[test]
        fn every_match_contains_a_literal(text in "(abcde|ABCDE|fghij|k{0,3}lmnop){1,3}") {
            for pattern in ["(?i)abcde", "abcde|lmnop", "(fghij|abcde)k*lmnop", "(abcde)+", "k+lmnop"] {
                let regex = regex::bytes::RegexBuilder::new(pattern).unicode(false).build().expect("good");
                if regex.is_match(text.as_bytes()) {
                    let lower = text.to_ascii_lowercase();
                    let words = required_strings(pattern).expect("words");
                    proptest::prop_assert!(words.iter().any(|word| lower.contains(word)), "{pattern} {text} {words:?}");
                }
            }
        }
    }
}
