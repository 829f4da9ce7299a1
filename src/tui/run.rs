#![expect(clippy::disallowed_methods, reason = "frames are paced by the clock; what is shown takes its time from the feed")]
//! The dashboard's thread: hears the feed, reads keys, draws what changed, and not more often than a terminal far away can take.
//!
//! Uses the app and the screen. All keys that wait are taken before one frame is drawn; a frame without a change is not drawn.

use std::collections::VecDeque;
use std::io::{self, Write};
use std::os::fd::{AsFd, BorrowedFd};
use std::time::{Duration, Instant};

use crossterm::event::{Event as Input, KeyEvent, KeyEventKind, MouseButton, MouseEvent, MouseEventKind};
use crossterm::{QueueableCommand, event, execute, terminal};
use ratatui::buffer::Buffer;
use ratatui::layout::Rect;
use ratatui::text::Line;
use ratatui::{Terminal, TerminalOptions, Viewport};
use rustix::event::{PollFd, PollFlags, Timespec, poll};
use tokio::sync::mpsc::UnboundedSender;

use super::app::{self, App, Dirt, Overlay};
use super::feed::{Ask, Ear, Note};
use super::keymap::{self, Cmd};
use super::pen::Pen;
use super::query::{self, Late};
use super::theme::Skin;
use super::{screen, view};

/// How long to wait when a frame was drawn so long ago: without anything to draw there is no hurry.
fn until(dirt: Dirt, slow: bool, since: Duration) -> Duration {
    if dirt == Dirt::None { LONGEST } else { pace(dirt, slow).saturating_sub(since).min(LONGEST) }
}

/// How long a frame waits for more of the same: 10 frames a second of news, 2 of samples, and at once for a key; one a second where nobody
/// looks.
fn pace(dirt: Dirt, slow: bool) -> Duration {
    Duration::from_millis(match dirt {
        Dirt::None => 0,
        Dirt::Key => 10,
        Dirt::Sample | Dirt::News if slow => 1000,
        Dirt::Sample => 500,
        Dirt::News => 100,
    })
}

/// Whether something goes on here although nothing is told: a question that waits for its answer, a log that is looked through.
fn works(app: &App) -> bool {
    matches!(app.overlay, Some(Overlay::Dialog(_))) || app.screen == app::Screen::Logs && view::logs::behind(app)
}

/// The longest wait while something goes on here.
const WORK: Duration = Duration::from_millis(100);
/// The longest wait for anything: then the size of the terminal is looked at again.
const LONGEST: Duration = Duration::from_millis(250);
/// How long the key library looks for input: with no time at all it does not look.
const LOOK: Duration = Duration::from_millis(1);
/// How long the terminal may take to tell its background.
const ANSWER: Duration = Duration::from_millis(100);
/// Two clicks within this time are one double click.
const DOUBLE: Duration = Duration::from_millis(400);
/// Rows that one turn of the wheel scrolls.
const WHEEL: usize = 3;

type Screen = Terminal<Pen<Out>>;

pub(super) struct Runner {
    app: App,
    ear: Ear,
    asks: UnboundedSender<Ask>,
    /// Ask the terminal for its background.
    query: bool,
    late: Late,
    /// Keys that were pressed before anyone read them.
    early: VecDeque<KeyEvent>,
    /// Nobody looks.
    away: bool,
    /// The last click, and when.
    click: Option<((u16, u16), Instant)>,
    /// The screen as it was frozen.
    held: Option<Buffer>,
}

impl Runner {
    pub(super) fn new(app: App, ear: Ear, asks: UnboundedSender<Ask>, query: bool) -> Runner {
        Runner { app, ear, asks, query, late: Late::default(), early: VecDeque::new(), away: false, click: None, held: None }
    }

    /// Runs until the feed is closed, the terminal is gone, or something broke.
    pub(super) fn run(mut self) {
        let ended = std::panic::catch_unwind(std::panic::AssertUnwindSafe(|| self.serve())).unwrap_or(Err(Gone::Broken));
        screen::restore();
        match ended {
            Ok(()) => {}
            Err(Gone::Terminal(error)) => {
                tracing::debug!(%error, "the terminal is gone");
                self.ask(Ask::Hangup);
            }
            Err(Gone::Broken) => self.ask(Ask::Broken),
        }
    }

    fn ask(&self, ask: Ask) {
        if self.asks.send(ask).is_err() {
            tracing::debug!(?ask, "nobody is asked any more");
        }
    }

    fn serve(&mut self) -> Result<(), Gone> {
        let mut size = size();
        let mut terminal = clean(size)?;
        if self.query {
            self.look_at_background()?;
        }
        let (mut dirt, mut drawn) = (Dirt::Key, Instant::now());
        loop {
            if screen::broken() {
                return Err(Gone::Broken);
            }
            let slow = self.away || self.app.frozen.is_some();
            let works = works(&self.app);
            self.wait(until(dirt, slow, drawn.elapsed()).min(if works { WORK } else { LONGEST }))?;
            let (notes, skipped, closed) = self.ear.take();
            for note in notes {
                dirt = dirt.max(self.app.hear(note));
            }
            if works {
                dirt = dirt.max(self.app.hear(Note::Now(self.app.now)));
            }
            self.app.skipped += skipped;
            if closed {
                return Ok(());
            }
            // Someone else may have the screen: then nothing is drawn and no key is taken from them.
            let Some((own, lent)) = screen::own() else {
                if !screen::is_on() && !screen::broken() {
                    std::thread::sleep(Duration::from_millis(20));
                }
                continue;
            };
            if lent {
                terminal = clean(size)?;
                dirt = Dirt::Key;
            }
            if self.keys()? {
                dirt = Dirt::Key;
            }
            let now = self::size();
            if now != size {
                (size, dirt) = (now, Dirt::Key);
                // What was frozen has another shape.
                self.app.frozen = None;
                self.app.redraw = true;
            }
            screen::mouse(self.app.wants_mouse())?;
            if dirt > Dirt::None && drawn.elapsed() >= pace(dirt, slow) {
                if std::mem::take(&mut self.app.redraw) {
                    terminal = clean(size)?;
                }
                self.frame(&mut terminal)?;
                (dirt, drawn) = (Dirt::None, Instant::now());
            }
            if let Some(text) = self.app.clip.take() {
                screen::clip(&text)?;
            }
            drop(own);
            for ask in std::mem::take(&mut self.app.asks) {
                self.ask(ask);
            }
            if std::mem::take(&mut self.app.suspend) {
                screen::suspend();
            }
        }
    }

    /// One frame: what is, or what was when the screen was frozen.
    fn frame(&mut self, terminal: &mut Screen) -> io::Result<()> {
        let app = &mut self.app;
        let Some(since) = app.frozen else {
            self.held = None;
            return terminal.draw(|frame| view::draw(frame, app)).map(|_| ());
        };
        if self.held.is_none() {
            self.held = Some(terminal.draw(|frame| view::draw(frame, app))?.buffer.clone());
        }
        let held = &self.held;
        let badge = Line::styled(format!(" FROZEN {}s ", (app.now - since).max(0) / 1000), app.theme.chosen());
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
    fn look_at_background(&mut self) -> Result<(), Gone> {
        let mut out = io::stdout();
        out.write_all(query::QUESTION)?;
        out.flush()?;
        let (end, mut bytes) = (Instant::now() + ANSWER, Vec::new());
        let answer = loop {
            let answer = query::read(&bytes);
            let left = end.saturating_duration_since(Instant::now());
            if answer.done || left.is_zero() {
                break answer;
            }
            let stdin = io::stdin();
            let mut ends = [PollFd::new(&stdin, PollFlags::IN)];
            let limit = Timespec { tv_sec: 0, tv_nsec: i64::from(left.subsec_nanos()) };
            let ready = poll(&mut ends, Some(&limit)).unwrap_or(0);
            if ready > 0 {
                let mut chunk = [0; 1024];
                match rustix::io::read(&stdin, &mut chunk) {
                    Ok(0) => return Err(Gone::Terminal(io::ErrorKind::UnexpectedEof.into())),
                    Ok(n) => bytes.extend_from_slice(&chunk[..n]),
                    Err(rustix::io::Errno::INTR | rustix::io::Errno::AGAIN) => {}
                    Err(error) => return Err(Gone::Terminal(error.into())),
                }
            }
        };
        if answer.light.is_some_and(|light| light > 0.5) {
            self.app.theme.skin = Skin::Light;
        }
        self.late = Late::after(&answer);
        self.early.extend(answer.keys);
        Ok(())
    }

    /// Until a key or a note comes, or the time is over.
    fn wait(&self, time: Duration) -> Result<(), Gone> {
        let stdin = io::stdin();
        let keys: BorrowedFd<'_> = stdin.as_fd();
        // A terminal that someone else has is not listened to, but that it is gone is told in any case.
        let listen = if screen::is_on() { PollFlags::IN } else { PollFlags::empty() };
        let mut ends = [PollFd::from_borrowed_fd(keys, listen), PollFd::from_borrowed_fd(self.ear.bell(), PollFlags::IN)];
        let time = if self.early.is_empty() { time } else { Duration::ZERO };
        let limit = Timespec { tv_sec: i64::from(time.as_secs() > 0), tv_nsec: i64::from(time.subsec_nanos()) };
        match poll(&mut ends, Some(&limit)) {
            Ok(_) | Err(rustix::io::Errno::INTR) => {}
            Err(error) => return Err(Gone::Terminal(error.into())),
        }
        // A key library that reads a terminal which is gone never returns.
        if ends[0].revents().intersects(PollFlags::HUP | PollFlags::ERR | PollFlags::NVAL) {
            return Err(Gone::Terminal(io::ErrorKind::UnexpectedEof.into()));
        }
        Ok(())
    }

    /// Takes every key that waits; whether anything came of it.
    fn keys(&mut self) -> Result<bool, Gone> {
        let mut any = false;
        loop {
            let input = match self.early.pop_front() {
                Some(key) => Input::Key(key),
                None if event::poll(LOOK)? => event::read()?,
                None => return Ok(any),
            };
            match input {
                Input::Key(key) if key.kind != KeyEventKind::Release && !self.late.swallows(key) => {
                    any = true;
                    let questions = |app: &App| matches!(app.overlay, Some(Overlay::Dialog(_)));
                    let asked = questions(&self.app);
                    self.key(key);
                    if questions(&self.app) && !asked {
                        // What was typed before the question could be read is no answer to it.
                        self.early.clear();
                        while event::poll(LOOK)? {
                            event::read()?;
                        }
                        return Ok(true);
                    }
                }
                Input::Paste(text) => {
                    any = true;
                    self.app.paste(&text);
                }
                Input::Mouse(mouse) => any |= self.mouse(mouse),
                Input::FocusGained => {
                    self.away = false;
                    any = true;
                }
                Input::FocusLost => self.away = true,
                // The same size again: it was another for a moment, and what did not fit then is cut off.
                Input::Resize(..) => {
                    any = true;
                    self.app.redraw = true;
                }
                Input::Key(_) => {}
            }
        }
    }

    fn key(&mut self, key: KeyEvent) {
        let found = self.app.bindings.find(key, &self.app.places());
        if self.app.asking() && found != Some(Cmd::Interrupt) {
            if let Some(name) = keymap::name(key) {
                self.app.answer(&name);
            }
            return;
        }
        // Any key thaws the screen: nobody acts on what is not so any more.
        if self.app.frozen.take().is_some() && found == Some(Cmd::Freeze) {
            return;
        }
        if let Some(cmd) = found {
            self.app.update(cmd);
        }
    }

    fn mouse(&mut self, mouse: MouseEvent) -> bool {
        let cmd = match mouse.kind {
            MouseEventKind::ScrollUp => Cmd::Up,
            MouseEventKind::ScrollDown => Cmd::Down,
            MouseEventKind::Down(MouseButton::Left) => {
                let place = (mouse.column, mouse.row);
                let before = self.click.replace((place, Instant::now()));
                let twice = before.is_some_and(|(known, at)| known == place && at.elapsed() < DOUBLE);
                if twice {
                    self.click = None;
                }
                self.app.frozen = None;
                return self.app.click(mouse.column, mouse.row, twice);
            }
            _ => return false,
        };
        self.app.frozen = None;
        (0..WHEEL).for_each(|_| self.app.update(cmd));
        true
    }
}

/// A screen with nothing on it. The library's own ways to clear ask the terminal where its cursor is, and wait 2 s for one that does not say.
fn clean(size: Rect) -> io::Result<Screen> {
    execute!(io::stdout(), terminal::Clear(terminal::ClearType::All))?;
    Terminal::with_options(Pen::new(Out::default()), TerminalOptions { viewport: Viewport::Fixed(size) })
}

/// The size of the terminal; one that says 0 by 0 does not know, and is taken for what the environment says, or for 80 by 24.
fn size() -> Rect {
    let told = rustix::termios::tcgetwinsize(io::stdout()).map_or((0, 0), |size| (size.ws_col, size.ws_row));
    let (width, height) = known_size(told, |name| std::env::var(name).ok());
    Rect { x: 0, y: 0, width, height }
}

fn known_size((width, height): (u16, u16), variable: impl Fn(&str) -> Option<String>) -> (u16, u16) {
    let or = |told: u16, name: &str, usual: u16| {
        let set = || variable(name).and_then(|text| text.parse().ok()).filter(|n| *n > 0);
        if told > 0 { told } else { set().unwrap_or(usual) }
    };
    (or(width, "COLUMNS", 80), or(height, "LINES", 24))
}

/// What goes to the terminal: a frame as a whole where the terminal can take it so, and a frame without a change not at all.
#[derive(Default)]
struct Out {
    pending: Vec<u8>,
}

impl Write for Out {
    fn write(&mut self, bytes: &[u8]) -> io::Result<usize> {
        self.pending.extend_from_slice(bytes);
        Ok(bytes.len())
    }

    fn flush(&mut self) -> io::Result<()> {
        let pending = std::mem::take(&mut self.pending);
        if !draws(&pending) {
            return Ok(());
        }
        let mut whole = Vec::with_capacity(pending.len() + 16);
        whole.queue(terminal::BeginSynchronizedUpdate)?;
        whole.extend_from_slice(&pending);
        whole.queue(terminal::EndSynchronizedUpdate)?;
        let mut out = io::stdout();
        out.write_all(&whole)?;
        out.flush()
    }
}

/// Whether bytes put anything on the screen: whatever does goes to a place first (`CSI … H`) or clears.
fn draws(bytes: &[u8]) -> bool {
    bytes.iter().any(|byte| matches!(byte, b'H' | b'J' | b'K'))
}

/// Why the thread ended before its feed.
enum Gone {
    Terminal(io::Error),
    Broken,
}

impl From<io::Error> for Gone {
    fn from(error: io::Error) -> Gone {
        Gone::Terminal(error)
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn an_idle_dashboard_sleeps() {
        let second = Duration::from_secs(1);
        assert_eq!(until(Dirt::None, false, second), LONGEST, "however long nothing was drawn");
        assert_eq!(until(Dirt::News, false, second), Duration::ZERO);
        assert_eq!(until(Dirt::News, false, Duration::from_millis(40)), Duration::from_millis(60));
        assert_eq!(until(Dirt::Sample, false, Duration::ZERO), LONGEST);
    }

    #[test]
    fn nobody_looks() {
        assert_eq!(pace(Dirt::News, true), Duration::from_secs(1));
        assert_eq!(pace(Dirt::Key, true), pace(Dirt::Key, false));
    }

    #[test]
    fn a_terminal_that_does_not_know_its_size() {
        let none = |_: &str| None;
        assert_eq!((known_size((132, 50), none), known_size((0, 0), none)), ((132, 50), (80, 24)));
        let set = |name: &str| Some(if name == "COLUMNS" { "100" } else { "0" }.to_owned());
        assert_eq!(known_size((0, 0), set), (100, 24));
    }

    #[test]
    fn a_frame_without_a_change_is_not_sent() {
        struct Tap(std::sync::Arc<std::sync::Mutex<Vec<u8>>>);
        impl Write for Tap {
            fn write(&mut self, bytes: &[u8]) -> io::Result<usize> {
                self.0.lock().expect("ours").write(bytes)
            }
            fn flush(&mut self) -> io::Result<()> {
                Ok(())
            }
        }
        let sent = std::sync::Arc::default();
        let backend = Pen::new(Tap(std::sync::Arc::clone(&sent)));
        let viewport = Viewport::Fixed(Rect::new(0, 0, 20, 3));
        let mut terminal = Terminal::with_options(backend, TerminalOptions { viewport }).expect("a terminal of memory");
        let mut draw = |text: &str| {
            sent.lock().expect("ours").clear();
            terminal.draw(|frame| frame.render_widget(text, frame.area())).expect("drawn");
            std::mem::take(&mut *sent.lock().expect("ours"))
        };
        assert!(draws(&draw("x")));
        let again = draw("x");
        assert!(!draws(&again), "{again:?}");
        assert!(draws(&draw("y")));
    }
}
