#![expect(clippy::disallowed_methods, reason = "frames are paced by the clock; what is shown takes its time from the feed")]
//! The dashboard's thread: reads the feed and keys and draws changes at a bounded rate, for slow connections.
//!
//! All pending keys are handled before a frame is drawn; a frame without changes is not drawn.

mod input;

use std::collections::VecDeque;
use std::io::{self, Write};
use std::os::fd::{AsFd, BorrowedFd};
use std::time::{Duration, Instant};

use crossterm::event::KeyEvent;
use ratatui::buffer::Buffer;
use ratatui::layout::Rect;
use ratatui::text::Line;
use rustix::event::{PollFd, PollFlags, Timespec, poll};
use tokio::sync::mpsc::UnboundedSender;

use super::app::{App, RedrawPriority};
use super::background_color::{self, LateReplyFilter};
use super::feed::{FeedMessage, FeedReceiver, UserAction};
use super::frame_pacing::{FramePace, FramePacer, MAX_WAIT};
use super::frame_writer::{DashboardTerminal, open_cleared_terminal, terminal_size};
use super::terminal;
use super::theme::ColorScheme;
use super::ui::Screen;
use super::view::{self, logs};

/// Whether work continues without messages: an open dialog, or a log that is being indexed.
fn has_timed_work(app: &App) -> bool {
    app.ui.has_dialog() || app.ui.screen == Screen::Logs && logs::is_indexing(&app.ui.logs)
}

/// Maximum wait while such work continues.
const BACKGROUND_WAIT: Duration = Duration::from_millis(100);
/// How long the key library polls for input that has arrived. With zero it does not poll; below a millisecond it polls without a pause until
/// the time is over, so this is CPU time of each wake.
const INPUT_POLL: Duration = Duration::from_micros(50);
/// How long to wait for the reply with the background color.
const REPLY_TIMEOUT: Duration = Duration::from_millis(100);
pub(super) struct EventLoop {
    app: App,
    feed: FeedReceiver,
    actions: UnboundedSender<UserAction>,
    /// Query the terminal's background color.
    query_background_color: bool,
    late_reply: LateReplyFilter,
    /// Keys that arrived while the background color was queried.
    pending_keys: VecDeque<KeyEvent>,
    unfocused: bool,
    /// Position and time of the last click.
    last_click: Option<((u16, u16), Instant)>,
    /// The frame shown while the screen is frozen.
    frozen_buffer: Option<Buffer>,
    pacer: FramePacer,
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
            pacer: FramePacer::new(),
        }
    }

    /// Runs until the feed is closed, the terminal is gone, or a panic.
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

    fn frame_pace(&self) -> FramePace {
        if self.unfocused || self.app.ui.frozen_since.is_some() {
            return FramePace::Slow;
        }
        FramePace::for_hosts(self.app.model.state.hosts.len())
    }

    fn run_loop(&mut self) -> Result<(), LoopError> {
        let mut size = terminal_size();
        let mut terminal = open_cleared_terminal(size)?;
        if self.query_background_color {
            self.detect_background_color()?;
        }
        let (mut drawn, mut polled, mut had_input) = (Instant::now(), Instant::now(), false);
        loop {
            if terminal::has_panicked() {
                return Err(LoopError::Panicked);
            }
            let pace = self.frame_pace();
            let works = has_timed_work(&self.app);
            let wait = self.pacer.wait(pace, drawn.elapsed());
            let has_input = self.wait_for_input(if works { wait.min(BACKGROUND_WAIT) } else { wait })?;
            if !self.receive_messages(works) {
                return Ok(());
            }
            // While another program owns the screen, nothing is drawn and no key is read.
            let Some((guard, needs_redraw)) = terminal::try_lock_terminal() else {
                if !terminal::is_dashboard_shown() && !terminal::has_panicked() {
                    std::thread::sleep(Duration::from_millis(20));
                }
                continue;
            };
            if needs_redraw {
                terminal = open_cleared_terminal(size)?;
                self.pacer.raise_to(RedrawPriority::Input);
            }
            let is_resized = self.handle_resize(&mut size);
            // A poll of the key library costs CPU time, so not every wake has one. After a read it may hold further keys.
            if has_input || is_resized || had_input || polled.elapsed() >= MAX_WAIT {
                polled = Instant::now();
                had_input = self.read_inputs()?;
            }
            terminal::set_mouse_capture(self.app.ui.wants_mouse())?;
            let step = self.pacer.step(pace, drawn.elapsed());
            if step.request_snapshot {
                self.feed.request_snapshot();
            }
            if step.draw {
                if std::mem::take(&mut self.app.full_redraw) {
                    terminal = open_cleared_terminal(size)?;
                }
                self.draw_frame(&mut terminal)?;
                self.pacer.finish_frame();
                drawn = Instant::now();
            }
            if let Some(text) = self.app.pending_clipboard.take() {
                terminal::copy_osc52(&text)?;
            }
            drop(guard);
            for action in std::mem::take(&mut self.app.pending_actions) {
                self.send_action(action);
            }
            if std::mem::take(&mut self.app.suspend_requested) {
                terminal::suspend();
            }
        }
    }

    /// Handles all pending keys; returns whether there were any: then a frame follows.
    fn read_inputs(&mut self) -> Result<bool, LoopError> {
        let had_input = self.handle_inputs()?;
        if had_input {
            self.pacer.raise_to(RedrawPriority::Input);
        }
        Ok(had_input)
    }

    /// Takes over a new size of the terminal; returns whether it has one.
    fn handle_resize(&mut self, size: &mut Rect) -> bool {
        let before = std::mem::replace(size, terminal_size());
        let is_resized = before != *size;
        if is_resized {
            self.pacer.raise_to(RedrawPriority::Input);
            // The frozen frame has another size.
            self.app.ui.frozen_since = None;
            self.app.full_redraw = true;
        }
        is_resized
    }

    /// Handles all pending messages; returns whether the feed is still open.
    fn receive_messages(&mut self, works: bool) -> bool {
        let (messages, dropped, closed) = self.feed.drain();
        for message in messages {
            self.pacer.note_message(&message);
            let priority = self.app.handle_message(message);
            self.pacer.raise_to(priority);
        }
        if works {
            let priority = self.app.handle_message(FeedMessage::Tick(self.app.model.now));
            self.pacer.raise_to(priority);
        }
        self.app.model.skipped_log_bytes += dropped.log_bytes;
        self.app.model.skipped_events += dropped.events;
        !closed
    }

    /// Draws one frame: the current state, or the frozen frame.
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
        let badge = Line::styled(
            app.model.lang.tr_fill(" FROZEN {}s ", &[&((app.model.now - since).max(0) / 1000).to_string()]),
            app.model.theme.selected(),
        );
        terminal.draw(|frame| {
            let area = frame.area();
            if let Some(held) = held.as_ref().filter(|held| held.area == area) {
                frame.buffer_mut().clone_from(held);
            }
            let width = u16::try_from(badge.width()).unwrap_or(0).min(area.width);
            let corner = Rect { x: area.right() - width, width, height: area.height.min(1), ..area };
            view::clear_area(frame, corner);
            frame.render_widget(badge, corner);
        })?;
        Ok(())
    }

    /// Queries whether the terminal is light or dark and waits briefly for the reply.
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
            let limit = Timespec::try_from(left).unwrap_or_default();
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

    /// Waits for a key, a message or the timeout; returns whether there is input to read.
    fn wait_for_input(&self, time: Duration) -> Result<bool, LoopError> {
        let stdin = io::stdin();
        let keys: BorrowedFd<'_> = stdin.as_fd();
        // While another program owns the terminal its input is not read, but a hangup is still detected.
        let listen = if terminal::is_dashboard_shown() { PollFlags::IN } else { PollFlags::empty() };
        let mut ends = [PollFd::from_borrowed_fd(keys, listen), PollFd::from_borrowed_fd(self.feed.wake_fd(), PollFlags::IN)];
        let time = if self.pending_keys.is_empty() { time } else { Duration::ZERO };
        let limit = Timespec::try_from(time).unwrap_or_default();
        match poll(&mut ends, Some(&limit)) {
            Ok(_) | Err(rustix::io::Errno::INTR) => {}
            Err(error) => return Err(LoopError::Terminal(error.into())),
        }
        // The key library never returns on a terminal that is gone.
        if ends[0].revents().intersects(PollFlags::HUP | PollFlags::ERR | PollFlags::NVAL) {
            return Err(LoopError::Terminal(io::ErrorKind::UnexpectedEof.into()));
        }
        Ok(!self.pending_keys.is_empty() || ends[0].revents().contains(PollFlags::IN))
    }
}

/// Why the loop ended before its feed.
enum LoopError {
    Terminal(io::Error),
    Panicked,
}

impl From<io::Error> for LoopError {
    fn from(error: io::Error) -> LoopError {
        LoopError::Terminal(error)
    }
}
