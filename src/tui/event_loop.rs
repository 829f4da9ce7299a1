#![expect(clippy::disallowed_methods, reason = "frames are paced by the clock; what is shown takes its time from the feed")]
//! The dashboard's thread: hears the feed, reads keys, draws what changed, and not more often than a terminal far away can take.
//!
//! Uses the app and the screen. All keys that wait are taken before one frame is drawn; a frame without a change is not drawn.

use std::collections::VecDeque;
use std::io::{self, Write};
use std::os::fd::{AsFd, BorrowedFd};
use std::time::{Duration, Instant};

use crossterm::event::{Event as Input, KeyEvent, KeyEventKind, MouseButton, MouseEvent, MouseEventKind};
use crossterm::terminal::{BeginSynchronizedUpdate, Clear, ClearType, EndSynchronizedUpdate};
use crossterm::{QueueableCommand, event, execute};
use ratatui::buffer::Buffer;
use ratatui::layout::Rect;
use ratatui::text::Line;
use ratatui::{Terminal, TerminalOptions, Viewport};
use rustix::event::{PollFd, PollFlags, Timespec, poll};
use tokio::sync::mpsc::UnboundedSender;

use super::app::{App, RedrawPriority};
use super::background_color::{self, LateReplyFilter};
use super::compact_backend::CompactBackend;
use super::feed::{FeedMessage, FeedReceiver, UserAction};
use super::keymap::{self, UiCommand};
use super::terminal;
use super::theme::ColorScheme;
use super::ui::Screen;
use super::view::logs;

/// How long to wait when a frame was drawn so long ago: without anything to draw there is no hurry.
fn frame_wait(priority: RedrawPriority, slow: bool, since: Duration) -> Duration {
    if priority == RedrawPriority::None { MAX_WAIT } else { frame_interval(priority, slow).saturating_sub(since).min(MAX_WAIT) }
}

/// How long a frame waits for more of the same: 10 frames a second of news, 2 of samples, and at once for a key; one a second where nobody
/// looks.
fn frame_interval(priority: RedrawPriority, slow: bool) -> Duration {
    Duration::from_millis(match priority {
        RedrawPriority::None => 0,
        RedrawPriority::Input => 10,
        RedrawPriority::Sample | RedrawPriority::Event if slow => 1000,
        RedrawPriority::Sample => 500,
        RedrawPriority::Event => 100,
    })
}

/// Whether something goes on here although nothing is told: a question that waits for its answer, a log that is looked through.
fn has_background_work(app: &App) -> bool {
    app.ui.has_dialog() || app.ui.screen == Screen::Logs && logs::is_indexing(&app.ui.logs)
}

/// The longest wait while something goes on here.
const BACKGROUND_WAIT: Duration = Duration::from_millis(100);
/// The longest wait for anything: then the size of the terminal is looked at again.
const MAX_WAIT: Duration = Duration::from_millis(250);
/// How long the key library looks for input: with no time at all it does not look.
const INPUT_POLL: Duration = Duration::from_millis(1);
/// How long the terminal may take to tell its background.
const REPLY_TIMEOUT: Duration = Duration::from_millis(100);
/// Two clicks within this time are one double click.
const DOUBLE_CLICK: Duration = Duration::from_millis(400);
/// Rows that one turn of the wheel scrolls.
const WHEEL_ROWS: usize = 3;

type DashboardTerminal = Terminal<CompactBackend<FrameWriter>>;

pub(super) struct EventLoop {
    app: App,
    feed: FeedReceiver,
    actions: UnboundedSender<UserAction>,
    /// Ask the terminal for its background.
    query_background_color: bool,
    late_reply: LateReplyFilter,
    /// Keys that were pressed before anyone read them.
    pending_keys: VecDeque<KeyEvent>,
    unfocused: bool,
    /// The last click, and when.
    last_click: Option<((u16, u16), Instant)>,
    /// The screen as it was frozen.
    frozen_buffer: Option<Buffer>,
}

impl EventLoop {
    pub(super) fn new(app: App, receiver: FeedReceiver, actions: UnboundedSender<UserAction>, query: bool) -> EventLoop {
        EventLoop {
            app,
            feed: receiver,
            actions,
            query_background_color: query,
            late_reply: LateReplyFilter::default(),
            pending_keys: VecDeque::new(),
            unfocused: false,
            last_click: None,
            frozen_buffer: None,
        }
    }

    /// Runs until the feed is closed, the terminal is gone, or something broke.
    pub(super) fn run(mut self) {
        let ended = std::panic::catch_unwind(std::panic::AssertUnwindSafe(|| self.run_loop())).unwrap_or(Err(LoopError::Panicked));
        terminal::restore();
        match ended {
            Ok(()) => {}
            Err(LoopError::Terminal(error)) => {
                tracing::debug!(%error, "the terminal is gone");
                self.send_action(UserAction::Hangup);
            }
            Err(LoopError::Panicked) => self.send_action(UserAction::DashboardPanicked),
        }
    }

    fn send_action(&self, action: UserAction) {
        if self.actions.send(action).is_err() {
            tracing::debug!(?action, "no task takes actions any more");
        }
    }

    fn run_loop(&mut self) -> Result<(), LoopError> {
        let mut size = terminal_size();
        let mut terminal = open_cleared_terminal(size)?;
        if self.query_background_color {
            self.detect_background_color()?;
        }
        let (mut dirt, mut drawn) = (RedrawPriority::Input, Instant::now());
        loop {
            if terminal::has_panicked() {
                return Err(LoopError::Panicked);
            }
            let slow = self.unfocused || self.app.ui.frozen_since.is_some();
            let works = has_background_work(&self.app);
            self.wait_for_input(frame_wait(dirt, slow, drawn.elapsed()).min(if works { BACKGROUND_WAIT } else { MAX_WAIT }))?;
            let Some(heard) = self.receive_messages(works) else { return Ok(()) };
            dirt = dirt.max(heard);
            // Someone else may have the screen: then nothing is drawn and no key is taken from them.
            let Some((own, lent)) = terminal::try_lock_terminal() else {
                if !terminal::is_dashboard_shown() && !terminal::has_panicked() {
                    std::thread::sleep(Duration::from_millis(20));
                }
                continue;
            };
            if lent {
                terminal = open_cleared_terminal(size)?;
                dirt = RedrawPriority::Input;
            }
            if self.handle_inputs()? {
                dirt = RedrawPriority::Input;
            }
            let now = self::terminal_size();
            if now != size {
                (size, dirt) = (now, RedrawPriority::Input);
                // What was frozen has another shape.
                self.app.ui.frozen_since = None;
                self.app.full_redraw = true;
            }
            terminal::set_mouse_capture(self.app.ui.wants_mouse())?;
            if dirt > RedrawPriority::None && drawn.elapsed() >= frame_interval(dirt, slow) {
                if std::mem::take(&mut self.app.full_redraw) {
                    terminal = open_cleared_terminal(size)?;
                }
                self.draw_frame(&mut terminal)?;
                (dirt, drawn) = (RedrawPriority::None, Instant::now());
            }
            if let Some(text) = self.app.pending_clipboard.take() {
                terminal::copy_osc52(&text)?;
            }
            drop(own);
            for ask in std::mem::take(&mut self.app.pending_actions) {
                self.send_action(ask);
            }
            if std::mem::take(&mut self.app.suspend_requested) {
                terminal::suspend();
            }
        }
    }

    /// Takes what was told since the last time; what it makes dirty, or none where the feed is closed.
    fn receive_messages(&mut self, works: bool) -> Option<RedrawPriority> {
        let (notes, skipped, closed) = self.feed.drain();
        let mut dirt = RedrawPriority::None;
        for note in notes {
            dirt = dirt.max(self.app.handle_message(note));
        }
        if works {
            dirt = dirt.max(self.app.handle_message(FeedMessage::Tick(self.app.model.now)));
        }
        self.app.model.skipped_log_bytes += skipped;
        (!closed).then_some(dirt)
    }

    /// One frame: what is, or what was when the screen was frozen.
    fn draw_frame(&mut self, terminal: &mut DashboardTerminal) -> io::Result<()> {
        let app = &mut self.app;
        let Some(since) = app.ui.frozen_since else {
            self.frozen_buffer = None;
            return terminal.draw(|frame| app.draw(frame)).map(|_| ());
        };
        if self.frozen_buffer.is_none() {
            self.frozen_buffer = Some(terminal.draw(|frame| app.draw(frame))?.buffer.clone());
        }
        let held = &self.frozen_buffer;
        let badge = Line::styled(format!(" FROZEN {}s ", (app.model.now - since).max(0) / 1000), app.model.theme.selected());
        terminal.draw(|frame| {
            let area = frame.area();
            if let Some(held) = held.as_ref().filter(|held| held.area == area) {
                frame.buffer_mut().clone_from(held);
            }
            let width = u16::try_from(badge.width()).unwrap_or(0).min(area.width);
            let place = Rect { x: area.right() - width, width, height: area.height.min(1), ..area };
            frame.render_widget(badge, place);
        })?;
        Ok(())
    }

    /// Asks the terminal whether it is light or dark, and waits for its answer for a moment.
    fn detect_background_color(&mut self) -> Result<(), LoopError> {
        let mut out = io::stdout();
        out.write_all(background_color::BACKGROUND_QUERY)?;
        out.flush()?;
        let (end, mut bytes) = (Instant::now() + REPLY_TIMEOUT, Vec::new());
        let answer = loop {
            let answer = background_color::parse_reply(&bytes);
            let left = end.saturating_duration_since(Instant::now());
            if answer.complete || left.is_zero() {
                break answer;
            }
            let stdin = io::stdin();
            let mut ends = [PollFd::new(&stdin, PollFlags::IN)];
            let limit = Timespec { tv_sec: 0, tv_nsec: i64::from(left.subsec_nanos()) };
            let ready = poll(&mut ends, Some(&limit)).unwrap_or(0);
            if ready > 0 {
                let mut chunk = [0; 1024];
                match rustix::io::read(&stdin, &mut chunk) {
                    Ok(0) => return Err(LoopError::Terminal(io::ErrorKind::UnexpectedEof.into())),
                    Ok(n) => bytes.extend_from_slice(&chunk[..n]),
                    Err(rustix::io::Errno::INTR | rustix::io::Errno::AGAIN) => {}
                    Err(error) => return Err(LoopError::Terminal(error.into())),
                }
            }
        };
        if answer.brightness.is_some_and(|light| light > 0.5) {
            self.app.model.theme.color_scheme = ColorScheme::Light;
        }
        self.late_reply = LateReplyFilter::from_reply(&answer);
        self.pending_keys.extend(answer.keys);
        Ok(())
    }

    /// Until a key or a note comes, or the time is over.
    fn wait_for_input(&self, time: Duration) -> Result<(), LoopError> {
        let stdin = io::stdin();
        let keys: BorrowedFd<'_> = stdin.as_fd();
        // A terminal that someone else has is not listened to, but that it is gone is told in any case.
        let listen = if terminal::is_dashboard_shown() { PollFlags::IN } else { PollFlags::empty() };
        let mut ends = [PollFd::from_borrowed_fd(keys, listen), PollFd::from_borrowed_fd(self.feed.wake_fd(), PollFlags::IN)];
        let time = if self.pending_keys.is_empty() { time } else { Duration::ZERO };
        let limit = Timespec { tv_sec: i64::from(time.as_secs() > 0), tv_nsec: i64::from(time.subsec_nanos()) };
        match poll(&mut ends, Some(&limit)) {
            Ok(_) | Err(rustix::io::Errno::INTR) => {}
            Err(error) => return Err(LoopError::Terminal(error.into())),
        }
        // A key library that reads a terminal which is gone never returns.
        if ends[0].revents().intersects(PollFlags::HUP | PollFlags::ERR | PollFlags::NVAL) {
            return Err(LoopError::Terminal(io::ErrorKind::UnexpectedEof.into()));
        }
        Ok(())
    }

    /// Takes every key that waits; whether anything came of it.
    fn handle_inputs(&mut self) -> Result<bool, LoopError> {
        let mut any = false;
        loop {
            let input = match self.pending_keys.pop_front() {
                Some(key) => Input::Key(key),
                None if event::poll(INPUT_POLL)? => event::read()?,
                None => return Ok(any),
            };
            match input {
                Input::Key(key) if key.kind != KeyEventKind::Release && !self.late_reply.consumes(key) => {
                    any = true;
                    let asked = self.app.ui.has_dialog();
                    self.handle_key(key);
                    if self.app.ui.has_dialog() && !asked {
                        // What was typed before the question could be read is no answer to it.
                        self.pending_keys.clear();
                        while event::poll(INPUT_POLL)? {
                            event::read()?;
                        }
                        return Ok(true);
                    }
                }
                Input::Paste(text) => {
                    any = true;
                    self.app.ui.handle_paste(&text);
                }
                Input::Mouse(mouse) => any |= self.handle_mouse(mouse),
                Input::FocusGained => {
                    self.unfocused = false;
                    any = true;
                }
                Input::FocusLost => self.unfocused = true,
                // The same size again: it was another for a moment, and what did not fit then is cut off.
                Input::Resize(..) => {
                    any = true;
                    self.app.full_redraw = true;
                }
                Input::Key(_) => {}
            }
        }
    }

    fn handle_key(&mut self, key: KeyEvent) {
        let found = self.app.ui.bindings.command_for_key(key, &self.app.ui.key_contexts(&self.app.model));
        if self.app.ui.overlay_captures_keys() && found != Some(UiCommand::Interrupt) {
            if let Some(name) = keymap::key_name(key) {
                self.app.handle_overlay_key(&name);
            }
            return;
        }
        // Any key thaws the screen: nobody acts on what is not so any more.
        if self.app.ui.frozen_since.take().is_some() && found == Some(UiCommand::Freeze) {
            return;
        }
        if let Some(cmd) = found {
            self.app.update(cmd);
        }
    }

    fn handle_mouse(&mut self, mouse: MouseEvent) -> bool {
        let cmd = match mouse.kind {
            MouseEventKind::ScrollUp => UiCommand::Up,
            MouseEventKind::ScrollDown => UiCommand::Down,
            MouseEventKind::Down(MouseButton::Left) => {
                let place = (mouse.column, mouse.row);
                let before = self.last_click.replace((place, Instant::now()));
                let twice = before.is_some_and(|(known, at)| known == place && at.elapsed() < DOUBLE_CLICK);
                if twice {
                    self.last_click = None;
                }
                self.app.ui.frozen_since = None;
                return self.app.handle_click(mouse.column, mouse.row, twice);
            }
            _ => return false,
        };
        self.app.ui.frozen_since = None;
        (0..WHEEL_ROWS).for_each(|_| self.app.update(cmd));
        true
    }
}

/// A screen with nothing on it. The library's own ways to clear ask the terminal where its cursor is, and wait 2 s for one that does not say.
fn open_cleared_terminal(size: Rect) -> io::Result<DashboardTerminal> {
    execute!(io::stdout(), Clear(ClearType::All))?;
    Terminal::with_options(CompactBackend::new(FrameWriter::default()), TerminalOptions { viewport: Viewport::Fixed(size) })
}

/// The size of the terminal; one that says 0 by 0 does not know, and is taken for what the environment says, or for 80 by 24.
fn terminal_size() -> Rect {
    let told = rustix::termios::tcgetwinsize(io::stdout()).map_or((0, 0), |size| (size.ws_col, size.ws_row));
    let (width, height) = size_or_default(told, |name| std::env::var(name).ok());
    Rect { x: 0, y: 0, width, height }
}

fn size_or_default((width, height): (u16, u16), variable: impl Fn(&str) -> Option<String>) -> (u16, u16) {
    let or = |told: u16, name: &str, usual: u16| {
        let set = || variable(name).and_then(|text| text.parse().ok()).filter(|n| *n > 0);
        if told > 0 { told } else { set().unwrap_or(usual) }
    };
    (or(width, "COLUMNS", 80), or(height, "LINES", 24))
}

/// What goes to the terminal: a frame as a whole where the terminal can take it so, and a frame without a change not at all.
#[derive(Default)]
struct FrameWriter {
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

/// Whether bytes put anything on the screen: whatever does goes to a place first (`CSI … H`) or clears.
fn has_visible_output(bytes: &[u8]) -> bool {
    bytes.iter().any(|byte| matches!(byte, b'H' | b'J' | b'K'))
}

/// Why the thread ended before its feed.
enum LoopError {
    Terminal(io::Error),
    Panicked,
}

impl From<io::Error> for LoopError {
    fn from(error: io::Error) -> LoopError {
        LoopError::Terminal(error)
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn idle_dashboard_sleeps() {
        let second = Duration::from_secs(1);
        assert_eq!(frame_wait(RedrawPriority::None, false, second), MAX_WAIT, "however long nothing was drawn");
        assert_eq!(frame_wait(RedrawPriority::Event, false, second), Duration::ZERO);
        assert_eq!(frame_wait(RedrawPriority::Event, false, Duration::from_millis(40)), Duration::from_millis(60));
        assert_eq!(frame_wait(RedrawPriority::Sample, false, Duration::ZERO), MAX_WAIT);
    }

    #[test]
    fn unfocused_terminal_slows_frames() {
        assert_eq!(frame_interval(RedrawPriority::Event, true), Duration::from_secs(1));
        assert_eq!(frame_interval(RedrawPriority::Input, true), frame_interval(RedrawPriority::Input, false));
    }

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
