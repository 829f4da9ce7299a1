//! Hosts that could not be reached, for a person.

use crate::cli::local_env::print_stderr;
use crate::report::style::{TextStyle, Tone};
use crate::text::hostlist::group_errors;
use crate::text::sanitize::Sanitizer;

/// Says who could not be reached and why, equal reasons once.
pub(super) fn print_unreachable(sanitizer: &Sanitizer, style: TextStyle, unreachable: Vec<(String, String, String)>) {
    for sort in group_errors(unreachable) {
        for (at, line) in sort.lines().iter().enumerate() {
            print_stderr(&style.paint(if at == 0 { Tone::Bad } else { Tone::Plain }, &sanitizer.sanitize_line(line)));
        }
    }
}
