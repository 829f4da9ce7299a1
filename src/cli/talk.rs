//! The person's side of a talk with a program on a host: keys there, its output here, and the terminal as it was whatever ends it.
//!
//! Keyboard and screen have a thread each, since neither a terminal nor a pipe can be waited for otherwise; both end with the talk.

use std::collections::VecDeque;
use std::io::{self, Write as _};
use std::os::fd::OwnedFd;
use std::time::Duration;

use bytes::Bytes;
use rustix::event::{PollFd, PollFlags, poll};
use tokio::signal::unix::{Signal, SignalKind, signal};
use tokio::sync::{mpsc, oneshot};

use crate::cli::relay;
use crate::remote::{Piece, RemoteError, Talk, Terminal, Told};
use crate::tui::screen::Raw;

/// Chunks of the keyboard that may wait for the host; then no key is read until it takes some.
const WAITING: usize = 64;
/// The most that is read of the keyboard at a time.
const CHUNK: usize = 16 << 10;
/// How long the last output may take to be shown when the talk did not end by itself.
const LAST: Duration = Duration::from_secs(1);

/// How a talk was left.
#[derive(Debug)]
pub enum Left {
    /// The program ended, with this status.
    Ended(i32),
    /// Nobody reads what it writes (`| head`).
    Unread,
    /// The connection was lost, or the host broke it off.
    Lost(RemoteError),
    /// The person typed `~.`.
    Escaped,
    /// A signal ended it, or (1) the terminal is gone.
    Signal(i32),
}

/// The terminal that input and output are, if they are one.
pub fn terminal() -> Option<Terminal> {
    use std::io::IsTerminal as _;
    if !io::stdin().is_terminal() || !io::stdout().is_terminal() {
        return None;
    }
    let (columns, rows) = size();
    #[expect(clippy::disallowed_methods, reason = "what kind of terminal it is stands in the environment")]
    let term = std::env::var("TERM").ok().filter(|term| !term.is_empty());
    Some(Terminal { term: term.unwrap_or_else(|| "dumb".to_owned()), columns, rows })
}

fn size() -> (u16, u16) {
    let told = rustix::termios::tcgetwinsize(io::stdout()).map_or((0, 0), |size| (size.ws_col, size.ws_row));
    if told.0 == 0 || told.1 == 0 { (80, 24) } else { told }
}

/// Carries it to its end; in a terminal every key is the program's, but for `~.` at the beginning of a line.
///
/// # Errors
/// When this system has no thread, pipe or signal for it.
pub async fn carry(talk: Talk, in_terminal: bool) -> io::Result<Left> {
    let raw = in_terminal.then(Raw::take).transpose()?;
    let Talk { output, input, end } = talk;
    let screen = screen(output, in_terminal)?;
    let (keys, _keyboard) = keyboard()?;
    let mut local = Local { keys: Some(keys), waiting: VecDeque::new(), escape: in_terminal.then(Escape::default), end };
    let (left, shown) = local.run(input, screen).await?;
    drop(raw);
    if in_terminal && !matches!(left, Left::Ended(code) if code < 128) {
        // What ran there could not put the terminal back.
        let reset = if shown { "\x1b[?1049l\r\n" } else { "\r\n" };
        let rest = "\x1b[?1l\x1b>\x1b[?2004l\x1b[?1004l\x1b[?1006l\x1b[?1003l\x1b[?1002l\x1b[?1000l\x1b[?25h\x1b[0m";
        if let Err(error) = io::stdout().write_all(format!("{rest}{reset}").as_bytes()).and_then(|()| io::stdout().flush()) {
            tracing::debug!(%error, "the terminal is gone");
        }
    }
    Ok(left)
}

struct Local {
    keys: Option<mpsc::Receiver<Bytes>>,
    waiting: VecDeque<Told>,
    /// Of a terminal.
    escape: Option<Escape>,
    end: oneshot::Receiver<Result<i32, RemoteError>>,
}

/// How the screen's thread ended: what was written last, and whether the program left the alternate screen on.
type Shown = (io::Result<()>, bool);

impl Local {
    async fn run(&mut self, input: mpsc::Sender<Told>, mut screen: oneshot::Receiver<Shown>) -> io::Result<(Left, bool)> {
        let mut signals = Signals::listen()?;
        let mut resized = signal(SignalKind::window_change())?;
        let mut shown = None;
        let left = loop {
            tokio::select! {
                biased;
                number = signals.ended() => break Left::Signal(number),
                _ = resized.recv(), if self.escape.is_some() => {
                    let (columns, rows) = size();
                    self.waiting.push_back(Told::Size(columns, rows));
                }
                how = &mut screen, if shown.is_none() => shown = how.ok(),
                how = &mut self.end => break match how {
                    Ok(Ok(code)) => Left::Ended(code),
                    Ok(Err(_)) if shown.as_ref().is_some_and(|(written, _)| written.is_err()) => Left::Unread,
                    Ok(Err(error)) => Left::Lost(error),
                    Err(_) => Left::Signal(1),
                },
                place = input.reserve(), if !self.waiting.is_empty() => match (place, self.waiting.pop_front()) {
                    (Ok(place), Some(told)) => place.send(told),
                    _ => self.waiting.clear(),
                },
                typed = typed(&mut self.keys), if self.waiting.len() < WAITING => if let Some(left) = self.take(typed) { break left },
            }
        };
        // Where the program has not ended, it is hung up on.
        drop(input);
        // The program's last words come before ours; nobody waits for a terminal that stands still when it did not end by itself.
        if shown.is_none() {
            shown = match &left {
                Left::Ended(_) => tokio::select! { how = screen => how.ok(), _ = signals.ended() => None },
                _ => tokio::time::timeout(LAST, screen).await.ok().and_then(Result::ok),
            };
        }
        Ok((left, shown.is_some_and(|(_, alternate)| alternate)))
    }

    /// Takes what was typed; how it is left by that.
    fn take(&mut self, typed: Option<Bytes>) -> Option<Left> {
        match (typed, &mut self.escape) {
            (None, None) => {
                self.keys = None;
                self.waiting.push_back(Told::End);
            }
            // A terminal has no end; it is gone.
            (None, Some(_)) => return Some(Left::Signal(1)),
            (Some(bytes), None) => self.waiting.push_back(Told::Bytes(bytes)),
            (Some(bytes), Some(escape)) => match escape.pass(&bytes) {
                Some(bytes) if bytes.is_empty() => {}
                Some(bytes) => self.waiting.push_back(Told::Bytes(bytes.into())),
                None => return Some(Left::Escaped),
            },
        }
        None
    }
}

async fn typed(keys: &mut Option<mpsc::Receiver<Bytes>>) -> Option<Bytes> {
    match keys {
        Some(keys) => keys.recv().await,
        None => std::future::pending().await,
    }
}

/// The signals that end a talk.
struct Signals {
    interrupt: Signal,
    terminate: Signal,
    hangup: Signal,
}

impl Signals {
    fn listen() -> io::Result<Signals> {
        Ok(Signals {
            interrupt: signal(SignalKind::interrupt())?,
            terminate: signal(SignalKind::terminate())?,
            hangup: signal(SignalKind::hangup())?,
        })
    }

    async fn ended(&mut self) -> i32 {
        tokio::select! {
            _ = self.interrupt.recv() => 2,
            _ = self.terminate.recv() => 15,
            _ = self.hangup.recv() => 1,
        }
    }
}

/// Looks for `~.` at the beginning of a line, as ssh's; `~~` is one `~`.
#[derive(Debug, Default)]
struct Escape {
    /// Something was typed in this line.
    within: bool,
    /// A `~` began it and is not sent yet.
    held: bool,
}

impl Escape {
    /// What is sent of these bytes; `None`: the talk is left.
    fn pass(&mut self, bytes: &[u8]) -> Option<Vec<u8>> {
        let mut sent = Vec::with_capacity(bytes.len() + 1);
        for &byte in bytes {
            if std::mem::take(&mut self.held) {
                match byte {
                    b'.' => return None,
                    b'~' => {}
                    _ => sent.push(b'~'),
                }
            } else if byte == b'~' && !self.within {
                self.held = true;
                continue;
            }
            self.within = !matches!(byte, b'\r' | b'\n');
            sent.push(byte);
        }
        Some(sent)
    }
}

/// The keyboard's thread ends when this is dropped.
struct Keyboard {
    _bell: OwnedFd,
}

fn keyboard() -> io::Result<(mpsc::Receiver<Bytes>, Keyboard)> {
    let (bell, end) = rustix::pipe::pipe()?;
    for side in [&bell, &end] {
        rustix::io::fcntl_setfd(side, rustix::io::FdFlags::CLOEXEC)?;
    }
    let (keys, typed) = mpsc::channel(1);
    std::thread::Builder::new().name("keyboard".to_owned()).spawn(move || {
        let stdin = io::stdin();
        let mut chunk = vec![0; CHUNK];
        loop {
            let mut ends = [PollFd::new(&stdin, PollFlags::IN), PollFd::new(&bell, PollFlags::IN)];
            match poll(&mut ends, None) {
                Ok(_) => {}
                Err(rustix::io::Errno::INTR) => continue,
                Err(_) => return,
            }
            // Whoever comes after this talk gets the keys that nobody took.
            if !ends[1].revents().is_empty() {
                return;
            }
            let count = match rustix::io::read(&stdin, &mut chunk) {
                Ok(count) if count > 0 => count,
                Err(rustix::io::Errno::INTR | rustix::io::Errno::AGAIN) => continue,
                _ => return,
            };
            if keys.blocking_send(Bytes::copy_from_slice(&chunk[..count])).is_err() {
                return;
            }
        }
    })?;
    Ok((typed, Keyboard { _bell: end }))
}

/// Writes what comes. In an interactive shell as it is: what is asked to draw on the terminal may do so, as with ssh. Where no program has
/// the terminal, files and pipes get every byte, and a terminal gets it cleaned.
fn screen(mut pieces: mpsc::Receiver<Piece>, in_terminal: bool) -> io::Result<oneshot::Receiver<Shown>> {
    let (done, shown) = oneshot::channel();
    std::thread::Builder::new().name("output".to_owned()).spawn(move || {
        if !in_terminal {
            let written = relay::write(pieces, &crate::report::terminal::cleaner());
            if done.send((written, false)).is_err() {
                tracing::debug!("nobody waits for the last of the output");
            }
            return;
        }
        let mut alternate = Alternate::default();
        let mut write = || -> io::Result<()> {
            while let Some(piece) = pieces.blocking_recv() {
                match piece {
                    Piece::Out(bytes) => {
                        alternate.look(&bytes);
                        let mut out = io::stdout().lock();
                        out.write_all(&bytes)?;
                        out.flush()?;
                    }
                    Piece::Err(bytes) => io::stderr().lock().write_all(&bytes)?,
                }
            }
            Ok(())
        };
        let written = write();
        drop(pieces);
        if done.send((written, alternate.on)).is_err() {
            tracing::debug!("nobody waits for the last of the output");
        }
    })?;
    Ok(shown)
}

/// Whether the program has the alternate screen, as far as its output says.
#[derive(Debug, Default)]
struct Alternate {
    on: bool,
    /// The end of what was seen, which may be the beginning of a sequence.
    tail: Vec<u8>,
}

impl Alternate {
    fn look(&mut self, bytes: &[u8]) {
        self.tail.extend_from_slice(bytes);
        let last = |wanted: &[u8]| memchr::memmem::rfind(&self.tail, wanted);
        let (entered, left) = (last(b"\x1b[?1049h"), last(b"\x1b[?1049l"));
        if entered.is_some() || left.is_some() {
            self.on = entered > left;
        }
        let keep = self.tail.len().saturating_sub(7);
        self.tail.drain(..keep);
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_tilde_and_a_dot_leave_only_at_the_beginning_of_a_line() {
        let typed = |chunks: &[&str]| {
            let mut escape = Escape::default();
            let mut sent = Vec::new();
            for chunk in chunks {
                match escape.pass(chunk.as_bytes()) {
                    Some(bytes) => sent.extend(bytes),
                    None => return None,
                }
            }
            Some(String::from_utf8(sent).expect("text"))
        };
        assert_eq!(typed(&["~."]), None);
        assert_eq!(typed(&["ls\r", "~", "."]), None);
        assert_eq!(typed(&["cd ~.\r"]), Some("cd ~.\r".to_owned()));
        assert_eq!(typed(&["~", "/x\r"]), Some("~/x\r".to_owned()));
        assert_eq!(typed(&["~~.\r"]), Some("~.\r".to_owned()));
        assert_eq!(typed(&["\r~\r~."]), None);
    }

    #[test]
    fn the_alternate_screen_is_noticed_across_pieces() {
        let on = |pieces: &[&str]| {
            let mut alternate = Alternate::default();
            pieces.iter().for_each(|piece| alternate.look(piece.as_bytes()));
            alternate.on
        };
        assert!(on(&["x\x1b[?10", "49hvim"]));
        assert!(on(&["\x1b[?1049h", "much\x1b[1m", "more"]));
        assert!(!on(&["\x1b[?1049h", "\x1b[?1049", "l$ "]));
    }
}
