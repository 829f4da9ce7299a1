//! Hides secrets in a text.

use crate::text::shell_quote::quote;

/// Replaces every secret in `text` by `***`, the longest first, in its plain and its quoted form.
pub(crate) fn mask_secrets(text: &str, secrets: &[String]) -> String {
    let mut sorted: Vec<&String> = secrets.iter().filter(|s| !s.is_empty()).collect();
    sorted.sort_by_key(|s| std::cmp::Reverse(s.len()));
    sorted.iter().fold(text.to_owned(), |text, secret| {
        let quoted = quote(secret);
        let inner = quoted.trim_matches('\'');
        let text = text.replace(secret.as_str(), "***");
        if inner.is_empty() || inner == secret.as_str() { text } else { text.replace(inner, "***") }
    })
}
