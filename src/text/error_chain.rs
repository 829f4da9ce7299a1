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

/// A system error without its number; its first letter is lower-case.
pub(crate) fn plain_io_error(error: &std::io::Error) -> String {
    let text = error.to_string();
    let plain = text.split(" (os error").next().unwrap_or(&text);
    plain.chars().next().map(|c| c.to_ascii_lowercase()).into_iter().chain(plain.chars().skip(1)).collect()
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn system_errors_lose_their_number_alone() {
        assert_eq!(plain_io_error(&std::io::Error::from_raw_os_error(2)), "no such file or directory");
        assert_eq!(plain_io_error(&std::io::Error::other("UTF-8 is missing")), "uTF-8 is missing");
    }
}
