//! Prints hosts that could not be reached.

use crate::cli::local_env::{print_stderr, user_lang};
use crate::report::style::{TextStyle, Tone};
use crate::text::hostlist::group_errors;
use crate::text::sanitize::Sanitizer;

/// Prints the hosts that could not be reached, grouped by error.
pub(super) fn print_unreachable(sanitizer: &Sanitizer, style: TextStyle, unreachable: Vec<(String, String, String)>) {
    for group in group_errors(unreachable) {
        for (index, line) in group.lines().iter().enumerate() {
            print_stderr(
                &style.paint(if index == 0 { Tone::Bad } else { Tone::Plain }, &user_lang().lines(&sanitizer.sanitize_line(line))),
            );
        }
    }
}
