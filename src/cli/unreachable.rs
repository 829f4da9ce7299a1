//! Hosts that could not be reached, for a person.

use crate::cli::local_env::print_stderr;
use crate::report::style::{TextStyle, Tone};
use crate::text::hostlist::group_errors;
use crate::text::sanitize::Sanitizer;

/// Says who could not be reached and why, equal reasons once.
pub(super) fn print_unreachable(cleaner: &Sanitizer, style: TextStyle, lost: Vec<(String, String, String)>) {
    for sort in group_errors(lost) {
        for (at, line) in sort.lines().iter().enumerate() {
            print_stderr(&style.paint(if at == 0 { Tone::Bad } else { Tone::Plain }, &cleaner.sanitize_line(line)));
        }
    }
}
