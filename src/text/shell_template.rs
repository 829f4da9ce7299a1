//! Text in which a shell puts values when it runs: `\0NAME\0` is its variable NAME. No inventory can hold a NUL, so that nothing a user writes
//! is taken for one.

use super::shell_quote;

/// The place of a variable's value.
pub(crate) fn variable(name: &str) -> String {
    format!("\0{name}\0")
}

/// Whether a NUL is there that is no part of a variable.
pub(crate) fn has_foreign_nul(text: &str) -> bool {
    let mut parts = text.split('\0');
    parts.next();
    let parts: Vec<&str> = parts.collect();
    !parts.len().is_multiple_of(2) || parts.iter().step_by(2).any(|name| !shell_quote::is_variable_name(name))
}

/// Quotes a word for POSIX sh; its variables are expanded and stay one word.
pub(crate) fn quote(text: &str) -> String {
    if !text.contains('\0') {
        return shell_quote::quote(text);
    }
    let mut quoted = String::from("\"");
    let mut parts = text.split('\0').enumerate().peekable();
    while let Some((index, part)) = parts.next() {
        if index % 2 == 0 {
            for c in part.chars() {
                if matches!(c, '"' | '\\' | '$' | '`') {
                    quoted.push('\\');
                }
                quoted.push(c);
            }
            continue;
        }
        let joins = parts.peek().is_some_and(|(_, next)| next.starts_with(|c: char| c.is_ascii_alphanumeric() || c == '_'));
        quoted.push_str(&if joins { format!("${{{part}}}") } else { format!("${part}") });
    }
    quoted.push('"');
    quoted
}

/// The text for a person: variables as a shell writes them.
pub(crate) fn describe(text: &str) -> String {
    text.split('\0').enumerate().map(|(index, part)| if index % 2 == 0 { part.to_owned() } else { format!("${part}") }).collect()
}

#[cfg(test)]
mod tests {
    use super::*;
    use proptest::prelude::*;

    proptest! {
        #[test]
        fn only_variables_are_expanded(before in "[^\0]{0,20}", after in "[^\0]{0,20}") {
            let text = format!("{before}{}{after}", variable("VALUE"));
            let script = format!("printf '%s\\0' {}", quote(&text));
            let out = std::process::Command::new("/bin/sh").args(["-c", &script]).env("VALUE", "a  'b' $c").output().expect("a shell");
            prop_assert_eq!(out.stdout, format!("{before}a  'b' $c{after}\0").into_bytes());
        }
    }

    #[test]
    fn words_look_like_typed_by_hand() {
        assert_eq!(quote(&format!("--node_rank={}", variable("RANK"))), "\"--node_rank=$RANK\"");
        assert_eq!(quote(&format!("{}_x", variable("A"))), "\"${A}_x\"");
        assert_eq!(quote("--nnodes=2"), "--nnodes=2");
        assert!(!has_foreign_nul(&format!("a{}b", variable("A"))) && !has_foreign_nul("a"));
        assert!(has_foreign_nul("a\0") && has_foreign_nul("\0b c\0") && has_foreign_nul("\0\0"));
        assert_eq!(describe(&format!("on {}", variable("HOST"))), "on $HOST");
    }
}
