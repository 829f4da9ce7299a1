//! What a name must look like wherever it comes from: an inventory, a command line, or the record of a run on a host.

use super::expand;

/// A host's name or address: letters, digits and `._-:%`, beginning with a letter, a digit, `:` or `_`.
pub fn is_host(text: &str) -> bool {
    expand::is_host(text)
}

/// A user's name: letters, digits and `._+-`, not beginning with a dash or a dot; a `$` may be its end, as that of a machine's account is.
pub fn is_user(text: &str) -> bool {
    let body = text.strip_suffix('$').unwrap_or(text);
    !body.is_empty()
        && body.len() <= 256
        && !body.starts_with(['-', '.', '+'])
        && body.chars().all(|c| c.is_alphanumeric() || "._+-".contains(c))
}

/// A jump host: `user@host:port`, user and port may be absent.
pub fn is_jump(text: &str) -> bool {
    expand::short(text).is_ok_and(|short| expand::is_host(&short.host) && short.user.as_deref().is_none_or(is_user))
}

/// The inventory's name: lower-case letters, digits and dashes, at most 40.
pub fn is_name(text: &str) -> bool {
    let first = text.bytes().next().is_some_and(|b| b.is_ascii_lowercase() || b.is_ascii_digit());
    first && text.len() <= 40 && text.bytes().all(|b| b.is_ascii_lowercase() || b.is_ascii_digit() || b == b'-')
}

/// A run's id: letters, digits and dashes, at most 40; `assets/facts.sh` knows the same.
pub fn is_run_id(text: &str) -> bool {
    let first = text.bytes().next().is_some_and(|b| b.is_ascii_alphanumeric());
    first && text.len() <= 40 && text.bytes().all(|b| b.is_ascii_alphanumeric() || b == b'-')
}
