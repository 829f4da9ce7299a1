//! What commands print: sanitized, in the user's language, and broken between words on a terminal.

use std::sync::OnceLock;

use crate::report::progress_bars::print_above_bars;
use crate::report::safe_output;
use crate::text::translation::Lang;
use crate::text::width::wrap_indented;

/// The language of what commands print; `main` chooses it.
static USER_LANG: OnceLock<Lang> = OnceLock::new();

/// Chooses the language of what commands print, once.
pub(crate) fn set_user_lang(lang: Lang) {
    if USER_LANG.set(lang).is_err() {
        tracing::debug!("the language is chosen already");
    }
}

pub(crate) fn user_lang() -> Lang {
    USER_LANG.get().copied().unwrap_or_default()
}

/// Prints a sanitized message in the user's language on standard error; a closed standard error is not an error. While the dashboard has the
/// screen, it is printed after it ends.
pub(crate) fn print_stderr(text: &str) {
    // Masked before it is translated.
    let safe = safe_output::sanitizer().sanitize_colored(text);
    print_untranslated(&wrap_to_terminal(&user_lang().lines(&safe)));
}

/// Each line broken between words, what follows indented; unchanged without a terminal.
pub(crate) fn wrap_to_terminal(text: &str) -> String {
    let Some(columns) = terminal_columns().map(usize::from) else { return text.to_owned() };
    text.split('\n').map(|line| wrap_indented(line, columns).join("\n")).collect::<Vec<_>>().join("\n")
}

/// As [`print_stderr`], for lines that are whole and translated already, and for text that is no message of this program.
pub(crate) fn print_untranslated(text: &str) {
    let text = safe_output::to_printable(text);
    if crate::tui::terminal::defer_line_until_restore(&text) || print_above_bars(&text) {
        return;
    }
    if safe_output::write_stderr_line(&text).is_err() {
        tracing::debug!("standard error is closed");
    }
}

/// Prints sanitized text on standard output. A closed pipe (`| head`) is not an error.
pub(crate) fn print_stdout(text: &str) {
    if safe_output::write_stdout(&safe_output::to_printable(text)).is_err() {
        tracing::debug!("standard output is closed");
    }
}

/// Prints JSON on standard output. Control sequences are escaped, so that the values stay intact.
pub(crate) fn print_json(text: &str) {
    if safe_output::write_stdout(&safe_output::to_printable_json(text)).is_err() {
        tracing::debug!("standard output is closed");
    }
}

/// The width of the terminal on standard error; `None` if it is not a terminal or reports no size.
pub(crate) fn terminal_columns() -> Option<u16> {
    let size = rustix::termios::tcgetwinsize(std::io::stderr()).ok()?;
    (size.ws_col > 0).then_some(size.ws_col)
}
