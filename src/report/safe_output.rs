//! What this program must not show, and the door to standard output and error for everything that is not a stream of events.
//!
//! Uses `sanitize`. One program has one terminal and one person at it, so the secrets that it knows are kept here for all of it: also an
//! error of the last moment and a panic are masked.

use std::io::{self, Write as _};
use std::sync::{PoisonError, RwLock};

use crate::text::sanitize::{PrintableText, Sanitizer, escape_json};

static SECRETS: RwLock<(Vec<String>, Option<Sanitizer>)> = RwLock::new((Vec::new(), None));

/// Hides these values from now on, beside those that are hidden; all that are hidden.
pub(crate) fn register_secrets(secrets: Vec<String>) -> Vec<String> {
    let mut known = SECRETS.write().unwrap_or_else(PoisonError::into_inner);
    known.0.extend(secrets);
    known.0.sort();
    known.0.dedup();
    known.1 = Some(Sanitizer::new(&known.0));
    known.0.clone()
}

/// Cleans, and hides every secret that is known.
pub(crate) fn sanitizer() -> Sanitizer {
    SECRETS.read().unwrap_or_else(PoisonError::into_inner).1.clone().unwrap_or_default()
}

/// What may be shown of a text.
pub(crate) fn to_printable(text: &str) -> PrintableText {
    sanitizer().to_printable(text)
}

/// What may be shown of JSON: it stays JSON that says the same.
pub(crate) fn to_printable_json(text: &str) -> PrintableText {
    PrintableText::new(&escape_json(&sanitizer().mask_json(text.to_owned())))
}

/// To standard output.
///
/// # Errors
/// When nobody reads any more.
pub(crate) fn write_stdout(text: &PrintableText) -> io::Result<()> {
    let mut out = io::stdout().lock();
    out.write_all(text.as_str().as_bytes()).and_then(|()| out.flush())
}

/// A line to standard error.
///
/// # Errors
/// When nobody reads any more.
pub(crate) fn write_stderr_line(text: &PrintableText) -> io::Result<()> {
    writeln!(io::stderr(), "{}", text.as_str())
}
