//! Guards the terminal: it is restored after the dashboard, a lent screen or a panic.
//!
//! A program has one terminal, so this module holds global state: a panic in any task, a signal
//! and a shell that needs the screen all use it.

use std::io::{self, IsTerminal, Write};
use std::sync::atomic::{AtomicBool, Ordering};
use std::sync::{Mutex, MutexGuard, Once, OnceLock, PoisonError, TryLockError};

use crossterm::{cursor, event, execute, terminal};

use crate::report::safe_output::{to_printable, write_stderr_line};
use crate::text::sanitize::PrintableText;

/// Maximum bytes of output held back until the screen is restored.
const MAX_HELD_BYTES: usize = 256 << 10;

#[derive(Default)]
struct HeldOutput {
    lines: Vec<PrintableText>,
    bytes: usize,
    dropped_lines: usize,
}

/// Held while drawing or changing the terminal.
static TERMINAL_LOCK: Mutex<()> = Mutex::new(());
/// The dashboard owns the screen.
static ACTIVE: AtomicBool = AtomicBool::new(false);
/// A panic happened while the dashboard was open.
static PANICKED: AtomicBool = AtomicBool::new(false);
static HELD_OUTPUT: Mutex<HeldOutput> = Mutex::new(HeldOutput { lines: Vec::new(), bytes: 0, dropped_lines: 0 });
static PANIC_HOOK: Once = Once::new();
/// The mouse is captured.
static MOUSE_CAPTURED: AtomicBool = AtomicBool::new(false);
/// Advice printed after a panic.
static PANIC_ADVICE: OnceLock<Vec<String>> = OnceLock::new();

/// Report buttons and the wheel, also beyond column 223, but not every movement.
const MOUSE_ON: &str = "\x1b[?1000h\x1b[?1006h";
const MOUSE_OFF: &str = "\x1b[?1006l\x1b[?1000l";

/// Whether a dashboard can be drawn: input and output are a terminal that can move its cursor.
pub(crate) fn check_terminal_support(term: Option<&str>) -> Result<(), String> {
    if !io::stdin().is_terminal() || !io::stdout().is_terminal() {
        return Err("the dashboard needs a terminal for its input and output; use `up` or `attach` with `--progress plain`".to_owned());
    }
    if term.is_none_or(|term| term.is_empty() || term == "dumb") {
        return Err("the dashboard needs a terminal that can move its cursor (TERM is dumb or not set); use `--progress plain`".to_owned());
    }
    Ok(())
}

/// Takes the screen. On a panic, the terminal is restored, then the panic and `advice` are printed.
///
/// # Errors
/// If the terminal refuses; it is restored.
pub(super) fn enter_dashboard_screen(advice: Vec<String>) -> io::Result<()> {
    PANIC_ADVICE.get_or_init(|| advice);
    install_panic_hook();
    let _guard = lock_terminal();
    show_dashboard()
}

/// The terminal is restored before a panic is printed.
fn install_panic_hook() {
    PANIC_HOOK.call_once(|| {
        let before = std::panic::take_hook();
        std::panic::set_hook(Box::new(move |panic| {
            leave_raw_mode();
            if ACTIVE.load(Ordering::SeqCst) {
                PANICKED.store(true, Ordering::SeqCst);
                restore();
                print_panic(panic);
            } else if !PANICKED.load(Ordering::SeqCst) {
                before(panic);
            }
        }));
    });
}

/// A shell on a host owns the terminal: every key goes there unchanged.
static SHELL_RAW_MODE: AtomicBool = AtomicBool::new(false);

/// Raw mode for a shell on a host; restored on drop and on every other end of the program.
pub(crate) struct RawModeGuard(());

impl RawModeGuard {
    /// # Errors
    /// If the terminal refuses.
    pub(crate) fn enable() -> io::Result<RawModeGuard> {
        install_panic_hook();
        terminal::enable_raw_mode()?;
        SHELL_RAW_MODE.store(true, Ordering::SeqCst);
        Ok(RawModeGuard(()))
    }
}

impl Drop for RawModeGuard {
    fn drop(&mut self) {
        leave_raw_mode();
    }
}

fn leave_raw_mode() {
    if SHELL_RAW_MODE.swap(false, Ordering::SeqCst)
        && let Err(error) = terminal::disable_raw_mode()
    {
        tracing::debug!(%error, "cannot restore the terminal");
    }
}

/// Prints the panic and that the run on the hosts continues.
fn print_panic(panic: &std::panic::PanicHookInfo<'_>) {
    let payload = panic.payload();
    let what = payload.downcast_ref::<&str>().map(|text| (*text).to_owned()).or_else(|| payload.downcast_ref::<String>().cloned());
    let what = what.unwrap_or_else(|| "a panic".to_owned());
    let location = panic.location().map_or_else(String::new, |location| format!(" ({}:{})", location.file(), location.line()));
    let mut lines = vec![format!("orchestrate crashed: {what}{location}")];
    lines.extend(PANIC_ADVICE.get().into_iter().flatten().cloned());
    lines.push("    help: this is a bug of orchestrate; please report it with this text".to_owned());
    let backtrace = std::backtrace::Backtrace::capture();
    if backtrace.status() == std::backtrace::BacktraceStatus::Captured {
        lines.push(backtrace.to_string());
    }
    for line in lines {
        if write_stderr_line(&to_printable(&line)).is_err() {
            return;
        }
    }
}

fn show_dashboard() -> io::Result<()> {
    terminal::enable_raw_mode()?;
    ACTIVE.store(true, Ordering::SeqCst);
    let mut out = io::stdout();
    let entered = execute!(out, terminal::EnterAlternateScreen, event::EnableBracketedPaste, event::EnableFocusChange, cursor::Hide);
    let entered = entered.and_then(|()| if MOUSE_CAPTURED.load(Ordering::SeqCst) { write_stdout(MOUSE_ON) } else { Ok(()) });
    if entered.is_err() {
        hide_dashboard();
    }
    entered
}

fn write_stdout(text: &str) -> io::Result<()> {
    let mut out = io::stdout();
    out.write_all(text.as_bytes())?;
    out.flush()
}

/// Captures or releases the mouse. Call only while owning the screen.
pub(super) fn set_mouse_capture(on: bool) -> io::Result<()> {
    if MOUSE_CAPTURED.swap(on, Ordering::SeqCst) == on {
        return Ok(());
    }
    write_stdout(if on { MOUSE_ON } else { MOUSE_OFF })
}

/// Restores the terminal. Errors are ignored if the terminal is gone.
fn hide_dashboard() {
    if !ACTIVE.swap(false, Ordering::SeqCst) {
        return;
    }
    let mouse = if MOUSE_CAPTURED.load(Ordering::SeqCst) { write_stdout(MOUSE_OFF) } else { Ok(()) };
    let left =
        execute!(io::stdout(), event::DisableFocusChange, event::DisableBracketedPaste, terminal::LeaveAlternateScreen, cursor::Show);
    if let Err(error) = mouse.and(left).and_then(|()| terminal::disable_raw_mode()) {
        tracing::debug!(%error, "cannot restore the terminal");
    }
}

/// Restores the screen for good and prints the output held back. Does nothing without a dashboard.
pub(crate) fn restore() {
    // A frame being drawn may finish; the drawing thread may also be the one that panicked, so the wait is short.
    let guard = (0..=10).find_map(|n| {
        std::thread::sleep(std::time::Duration::from_millis(if n > 0 { 5 } else { 0 }));
        try_lock()
    });
    hide_dashboard();
    leave_raw_mode();
    drop(guard);
    let held = std::mem::take(&mut *HELD_OUTPUT.lock().unwrap_or_else(PoisonError::into_inner));
    let more = (held.dropped_lines > 0).then(|| PrintableText::new(&format!("… and {} more lines", held.dropped_lines)));
    for line in held.lines.into_iter().chain(more) {
        if write_stderr_line(&line).is_err() {
            return;
        }
    }
}

/// Sends text to the terminal's clipboard (OSC 52); the terminal may ignore it without an error. Base64-encoded,
/// so that no text can end the sequence.
///
/// # Errors
/// If the terminal is gone.
pub(super) fn copy_osc52(text: &str) -> io::Result<()> {
    use base64::Engine as _;
    let code = base64::engine::general_purpose::STANDARD.encode(text);
    write_stdout(&format!("\x1b]52;c;{code}\x07"))
}

/// Holds a line back until the screen is restored; `false` if neither the dashboard nor a shell owns it and it can be printed.
pub(crate) fn defer_line_until_restore(line: &PrintableText) -> bool {
    if !ACTIVE.load(Ordering::SeqCst) && !SHELL_RAW_MODE.load(Ordering::SeqCst) {
        return false;
    }
    let mut held = HELD_OUTPUT.lock().unwrap_or_else(PoisonError::into_inner);
    let len = line.as_str().len();
    if held.bytes + len > MAX_HELD_BYTES {
        held.dropped_lines += 1;
    } else {
        held.bytes += len;
        held.lines.push(line.clone());
    }
    true
}

/// Whether a panic happened while the dashboard was open.
pub(crate) fn has_panicked() -> bool {
    PANICKED.load(Ordering::SeqCst)
}

/// Lends the normal screen to a prompt or a shell; the dashboard returns afterwards, also after a panic.
pub(crate) fn with_normal_screen<T>(action: impl FnOnce() -> T) -> T {
    if !ACTIVE.load(Ordering::SeqCst) {
        return action();
    }
    let _lent = LentScreen { _guard: lock_terminal() };
    hide_dashboard();
    action()
}

/// While it lives the screen is lent.
struct LentScreen {
    _guard: MutexGuard<'static, ()>,
}

impl Drop for LentScreen {
    fn drop(&mut self) {
        if !has_panicked()
            && let Err(error) = show_dashboard()
        {
            tracing::debug!(%error, "cannot take the terminal back");
        }
        NEEDS_REDRAW.store(true, Ordering::SeqCst);
    }
}

/// Set when the screen was lent: its content is no longer the last frame.
static NEEDS_REDRAW: AtomicBool = AtomicBool::new(false);

/// Access to the terminal unless the screen is lent, with whether a full redraw is needed.
pub(super) fn try_lock_terminal() -> Option<(MutexGuard<'static, ()>, bool)> {
    let guard = try_lock()?;
    ACTIVE.load(Ordering::SeqCst).then(|| (guard, NEEDS_REDRAW.swap(false, Ordering::SeqCst)))
}

pub(super) fn is_dashboard_shown() -> bool {
    ACTIVE.load(Ordering::SeqCst)
}

/// Suspends the program as the shell does on Ctrl-Z, with the terminal restored; returns when it resumes.
pub(super) fn suspend() {
    with_normal_screen(|| {
        if let Err(error) = rustix::process::kill_current_process_group(rustix::process::Signal::TSTP) {
            tracing::debug!(%error, "cannot suspend");
        }
        // The signal may reach another thread first: until then this thread must not take the screen again.
        std::thread::sleep(std::time::Duration::from_millis(100));
    });
}

/// The lock guards no data: a panic of its holder spoils nothing.
fn lock_terminal() -> MutexGuard<'static, ()> {
    TERMINAL_LOCK.lock().unwrap_or_else(PoisonError::into_inner)
}

/// Takes the lock if no other thread holds it.
fn try_lock() -> Option<MutexGuard<'static, ()>> {
    match TERMINAL_LOCK.try_lock() {
        Ok(guard) => Some(guard),
        Err(TryLockError::Poisoned(error)) => Some(error.into_inner()),
        Err(TryLockError::WouldBlock) => None,
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn lock_is_free_after_a_panic() {
        let holder = std::thread::spawn(|| {
            let _guard = lock_terminal();
            panic!("while the screen is lent");
        });
        assert!(holder.join().is_err() && TERMINAL_LOCK.is_poisoned());
        assert!(try_lock().is_some());
    }
}
