//! Errors as text.

use std::error::Error;

/// An error with its causes, on one line.
pub(crate) fn error_chain(error: &dyn Error) -> String {
    let (mut text, mut next) = (error.to_string(), error.source());
    while let Some(cause) = next {
        text = format!("{text}: {cause}");
        next = cause.source();
    }
    text
}
