//! The terminal behind a frame: its size, and a buffer that sends each frame at once.

use std::io::{self, Write};

use crossterm::terminal::{BeginSynchronizedUpdate, Clear, ClearType, EndSynchronizedUpdate};
use crossterm::{QueueableCommand, execute};
use ratatui::layout::Rect;
use ratatui::{Terminal, TerminalOptions, Viewport};

use super::compact_backend::CompactBackend;

pub(super) type DashboardTerminal = Terminal<CompactBackend<FrameWriter>>;

/// Clears the screen. ratatui's own methods query the cursor position and wait 2 s for a terminal that does not reply.
pub(super) fn open_cleared_terminal(size: Rect) -> io::Result<DashboardTerminal> {
    execute!(io::stdout(), Clear(ClearType::All))?;
    Terminal::with_options(CompactBackend::new(FrameWriter::default()), TerminalOptions { viewport: Viewport::Fixed(size) })
}

/// Size of the terminal; if it reports 0 by 0, the environment's size or 80 by 24.
#[expect(clippy::disallowed_methods, reason = "the terminal's size where the terminal does not report it")]
pub(super) fn terminal_size() -> Rect {
    let reported = rustix::termios::tcgetwinsize(io::stdout()).map_or((0, 0), |size| (size.ws_col, size.ws_row));
    let (width, height) = size_or_default(reported, |name| std::env::var(name).ok());
    Rect { x: 0, y: 0, width, height }
}

fn size_or_default((width, height): (u16, u16), variable: impl Fn(&str) -> Option<String>) -> (u16, u16) {
    let or = |reported: u16, name: &str, usual: u16| {
        let set = || variable(name).and_then(|text| text.parse().ok()).filter(|n| *n > 0);
        if reported > 0 { reported } else { set().unwrap_or(usual) }
    };
    (or(width, "COLUMNS", 80), or(height, "LINES", 24))
}

/// Output buffer: sends a frame as one synchronized update where supported, and nothing for a frame without changes.
#[derive(Default)]
pub(super) struct FrameWriter {
    pending: Vec<u8>,
}

impl Write for FrameWriter {
    fn write(&mut self, bytes: &[u8]) -> io::Result<usize> {
        self.pending.extend_from_slice(bytes);
        Ok(bytes.len())
    }

    fn flush(&mut self) -> io::Result<()> {
        let pending = std::mem::take(&mut self.pending);
        if !has_visible_output(&pending) {
            return Ok(());
        }
        let mut whole = Vec::with_capacity(pending.len() + 16);
        whole.queue(BeginSynchronizedUpdate)?;
        whole.extend_from_slice(&pending);
        whole.queue(EndSynchronizedUpdate)?;
        let mut out = io::stdout();
        out.write_all(&whole)?;
        out.flush()
    }
}

/// Whether bytes draw anything: every drawing starts with a position (`CSI … H`) or a clear.
fn has_visible_output(bytes: &[u8]) -> bool {
    bytes.iter().any(|byte| matches!(byte, b'H' | b'J' | b'K'))
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn unknown_size_uses_environment() {
        let none = |_: &str| None;
        assert_eq!((size_or_default((132, 50), none), size_or_default((0, 0), none)), ((132, 50), (80, 24)));
        let set = |name: &str| Some(if name == "COLUMNS" { "100" } else { "0" }.to_owned());
        assert_eq!(size_or_default((0, 0), set), (100, 24));
    }

    #[test]
    fn unchanged_frame_is_not_sent() {
        struct SharedBuffer(std::sync::Arc<std::sync::Mutex<Vec<u8>>>);
        impl Write for SharedBuffer {
            fn write(&mut self, bytes: &[u8]) -> io::Result<usize> {
                self.0.lock().expect("ours").write(bytes)
            }
            fn flush(&mut self) -> io::Result<()> {
                Ok(())
            }
        }
        let sent = std::sync::Arc::default();
        let backend = CompactBackend::new(SharedBuffer(std::sync::Arc::clone(&sent)));
        let viewport = Viewport::Fixed(Rect::new(0, 0, 20, 3));
        let mut terminal = Terminal::with_options(backend, TerminalOptions { viewport }).expect("a terminal of memory");
        let mut draw = |text: &str| {
            sent.lock().expect("ours").clear();
            terminal.draw(|frame| frame.render_widget(text, frame.area())).expect("drawn");
            std::mem::take(&mut *sent.lock().expect("ours"))
        };
        assert!(has_visible_output(&draw("x")));
        let again = draw("x");
        assert!(!has_visible_output(&again), "{again:?}");
        assert!(has_visible_output(&draw("y")));
    }
}
