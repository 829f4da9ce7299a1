//! Standard output and error for everything that is not a stream of events, with secrets masked.
//!
//! The known secrets are global to the process, so that late errors and panics are masked too.

use std::io::{self, Write as _};
use std::sync::{PoisonError, RwLock};

use crate::text::sanitize::{PrintableText, Sanitizer, escape_json};

static SECRETS: RwLock<(Vec<String>, Option<Sanitizer>)> = RwLock::new((Vec::new(), None));

/// Masks these values from now on; returns all masked values.
pub(crate) fn register_secrets(secrets: Vec<String>) -> Vec<String> {
    let mut known = SECRETS.write().unwrap_or_else(PoisonError::into_inner);
    known.0.extend(secrets);
    known.0.sort();
    known.0.dedup();
    known.1 = Some(Sanitizer::new(&known.0));
    known.0.clone()
}

/// A sanitizer that masks all registered secrets.
pub(crate) fn sanitizer() -> Sanitizer {
    SECRETS.read().unwrap_or_else(PoisonError::into_inner).1.clone().unwrap_or_default()
}

pub(crate) fn to_printable(text: &str) -> PrintableText {
    sanitizer().to_printable(text)
}

/// Masks and escapes JSON; the result parses to the same value, apart from masked secrets.
pub(crate) fn to_printable_json(text: &str) -> PrintableText {
    PrintableText::new(&escape_json(&sanitizer().mask_json(text.to_owned())))
}

/// # Errors
/// When the reader has closed standard output.
pub(crate) fn write_stdout(text: &PrintableText) -> io::Result<()> {
    let mut out = io::stdout().lock();
    out.write_all(text.as_str().as_bytes()).and_then(|()| out.flush())
}

/// # Errors
/// When the reader has closed standard error.
pub(crate) fn write_stderr_line(text: &PrintableText) -> io::Result<()> {
    // In one call: another process that writes to the terminal comes before or after the line.
    io::stderr().lock().write_all(format!("{}\n", text.as_str()).as_bytes())
}
