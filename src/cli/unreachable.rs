//! Prints hosts that could not be reached.

use crate::cli::local_env::{print_stderr, user_lang};
use crate::lifecycle::session::{Session, UnreachableHosts};
use crate::report::style::Tone;
use crate::text::hostlist::error_lines;

/// Prints the hosts that could not be reached, grouped by error.
pub(super) fn print_unreachable(session: &Session, unreachable: UnreachableHosts) {
    let (sanitizer, style) = (session.reporter.sanitizer(), session.reporter.style());
    for lines in error_lines(unreachable) {
        for (index, line) in lines.iter().enumerate() {
            print_stderr(
                &style.paint(if index == 0 { Tone::Bad } else { Tone::Plain }, &user_lang().lines(&sanitizer.sanitize_line(line))),
            );
        }
    }
}
