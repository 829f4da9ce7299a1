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

use crate::cli::passthrough;
use crate::remote::{ChannelInput, InteractiveChannel, OutputChunk, PtySpec, RemoteError};
use crate::tui::terminal::RawModeGuard;

/// Chunks of the keyboard that may wait for the host; then no key is read until it takes some.
const MAX_QUEUED_INPUT: usize = 64;
/// The most that is read of the keyboard at a time.
const READ_CHUNK_BYTES: usize = 16 << 10;
/// How long the last output may take to be shown when the talk did not end by itself.
const DRAIN_TIMEOUT: Duration = Duration::from_secs(1);

/// How a talk was left.
#[derive(Debug)]
pub(crate) enum InteractiveEnd {
    /// The program ended, with this status.
    Exited(i32),
    /// Nobody reads what it writes (`| head`).
    OutputClosed,
    /// The connection was lost, or the host broke it off.
    ConnectionLost(RemoteError),
    /// The person typed `~.`.
    Escaped,
    /// A signal ended it, or (1) the terminal is gone.
    Signal(i32),
}

/// The terminal that input and output are, if they are one.
pub(crate) fn local_pty_spec() -> Option<PtySpec> {
    use std::io::IsTerminal as _;
    if !io::stdin().is_terminal() || !io::stdout().is_terminal() {
        return None;
    }
    let (columns, rows) = terminal_size();
    #[expect(clippy::disallowed_methods, reason = "what kind of terminal it is stands in the environment")]
    let term = std::env::var("TERM").ok().filter(|term| !term.is_empty());
    Some(PtySpec { term: term.unwrap_or_else(|| "dumb".to_owned()), columns, rows })
}

fn terminal_size() -> (u16, u16) {
    let told = rustix::termios::tcgetwinsize(io::stdout()).map_or((0, 0), |size| (size.ws_col, size.ws_row));
    if told.0 == 0 || told.1 == 0 { (80, 24) } else { told }
}

/// Carries it to its end; in a terminal every key is the program's, but for `~.` at the beginning of a line.
///
/// # Errors
/// When this system has no thread, pipe or signal for it.
pub(crate) async fn run(channel: InteractiveChannel, in_terminal: bool) -> io::Result<InteractiveEnd> {
    let raw = in_terminal.then(RawModeGuard::enable).transpose()?;
    let InteractiveChannel { output, input, exit: end } = channel;
    let screen = spawn_output_thread(output, in_terminal)?;
    let (keys, _keyboard) = spawn_keyboard_thread()?;
    let mut local = InteractiveSession {
        keyboard: Some(keys),
        pending_input: VecDeque::new(),
        escape: in_terminal.then(EscapeFilter::default),
        exit_status: end,
    };
    let (left, shown) = local.run(input, screen).await?;
    drop(raw);
    if in_terminal && !matches!(left, InteractiveEnd::Exited(code) if code < 128) {
        // What ran there could not put the terminal back.
        let reset = if shown { "\x1b[?1049l\r\n" } else { "\r\n" };
        let rest = "\x1b[?1l\x1b>\x1b[?2004l\x1b[?1004l\x1b[?1006l\x1b[?1003l\x1b[?1002l\x1b[?1000l\x1b[?25h\x1b[0m";
        if let Err(error) = io::stdout().write_all(format!("{rest}{reset}").as_bytes()).and_then(|()| io::stdout().flush()) {
            tracing::debug!(%error, "the terminal is gone");
        }
    }
    Ok(left)
}

struct InteractiveSession {
    keyboard: Option<mpsc::Receiver<Bytes>>,
    pending_input: VecDeque<ChannelInput>,
    escape: Option<EscapeFilter>,
    exit_status: oneshot::Receiver<Result<i32, RemoteError>>,
}

/// How the screen's thread ended: what was written last, and whether the program left the alternate screen on.
type OutputThreadResult = (io::Result<()>, bool);

impl InteractiveSession {
    async fn run(
        &mut self,
        input: mpsc::Sender<ChannelInput>,
        mut screen: oneshot::Receiver<OutputThreadResult>,
    ) -> io::Result<(InteractiveEnd, bool)> {
        let mut signals = TerminationSignals::listen()?;
        let mut resized = signal(SignalKind::window_change())?;
        let mut shown = None;
        let left = loop {
            tokio::select! {
                biased;
                number = signals.wait() => break InteractiveEnd::Signal(number),
                _ = resized.recv(), if self.escape.is_some() => {
                    let (columns, rows) = terminal_size();
                    self.pending_input.push_back(ChannelInput::Resize(columns, rows));
                }
                how = &mut screen, if shown.is_none() => shown = how.ok(),
                how = &mut self.exit_status => break match how {
                    Ok(Ok(code)) => InteractiveEnd::Exited(code),
                    Ok(Err(_)) if shown.as_ref().is_some_and(|(written, _)| written.is_err()) => InteractiveEnd::OutputClosed,
                    Ok(Err(error)) => InteractiveEnd::ConnectionLost(error),
                    Err(_) => InteractiveEnd::Signal(1),
                },
                place = input.reserve(), if !self.pending_input.is_empty() => match (place, self.pending_input.pop_front()) {
                    (Ok(place), Some(told)) => place.send(told),
                    _ => self.pending_input.clear(),
                },
                typed = next_input(&mut self.keyboard), if self.pending_input.len() < MAX_QUEUED_INPUT => if let Some(left) = self.queue_input(typed) { break left },
            }
        };
        // Where the program has not ended, it is hung up on.
        drop(input);
        // The program's last words come before ours; nobody waits for a terminal that stands still when it did not end by itself.
        if shown.is_none() {
            shown = match &left {
                InteractiveEnd::Exited(_) => tokio::select! { how = screen => how.ok(), _ = signals.wait() => None },
                _ => tokio::time::timeout(DRAIN_TIMEOUT, screen).await.ok().and_then(Result::ok),
            };
        }
        Ok((left, shown.is_some_and(|(_, alternate)| alternate)))
    }

    /// Takes what was typed; how it is left by that.
    fn queue_input(&mut self, typed: Option<Bytes>) -> Option<InteractiveEnd> {
        match (typed, &mut self.escape) {
            (None, None) => {
                self.keyboard = None;
                self.pending_input.push_back(ChannelInput::Eof);
            }
            // A terminal has no end; it is gone.
            (None, Some(_)) => return Some(InteractiveEnd::Signal(1)),
            (Some(bytes), None) => self.pending_input.push_back(ChannelInput::Bytes(bytes)),
            (Some(bytes), Some(escape)) => match escape.filter(&bytes) {
                Some(bytes) if bytes.is_empty() => {}
                Some(bytes) => self.pending_input.push_back(ChannelInput::Bytes(bytes.into())),
                None => return Some(InteractiveEnd::Escaped),
            },
        }
        None
    }
}

async fn next_input(keys: &mut Option<mpsc::Receiver<Bytes>>) -> Option<Bytes> {
    match keys {
        Some(keys) => keys.recv().await,
        None => std::future::pending().await,
    }
}

/// The signals that end a talk.
struct TerminationSignals {
    interrupt: Signal,
    terminate: Signal,
    hangup: Signal,
}

impl TerminationSignals {
    fn listen() -> io::Result<TerminationSignals> {
        Ok(TerminationSignals {
            interrupt: signal(SignalKind::interrupt())?,
            terminate: signal(SignalKind::terminate())?,
            hangup: signal(SignalKind::hangup())?,
        })
    }

    async fn wait(&mut self) -> i32 {
        tokio::select! {
            _ = self.interrupt.recv() => 2,
            _ = self.terminate.recv() => 15,
            _ = self.hangup.recv() => 1,
        }
    }
}

/// Looks for `~.` at the beginning of a line, as ssh's; `~~` is one `~`.
#[derive(Debug, Default)]
struct EscapeFilter {
    /// Something was typed in this line.
    mid_line: bool,
    /// A `~` began it and is not sent yet.
    pending_tilde: bool,
}

impl EscapeFilter {
    /// What is sent of these bytes; `None`: the talk is left.
    fn filter(&mut self, bytes: &[u8]) -> Option<Vec<u8>> {
        let mut sent = Vec::with_capacity(bytes.len() + 1);
        for &byte in bytes {
            if std::mem::take(&mut self.pending_tilde) {
                match byte {
                    b'.' => return None,
                    b'~' => {}
                    _ => sent.push(b'~'),
                }
            } else if byte == b'~' && !self.mid_line {
                self.pending_tilde = true;
                continue;
            }
            self.mid_line = !matches!(byte, b'\r' | b'\n');
            sent.push(byte);
        }
        Some(sent)
    }
}

/// The keyboard's thread ends when this is dropped.
struct KeyboardGuard {
    _wake_pipe: OwnedFd,
}

fn spawn_keyboard_thread() -> io::Result<(mpsc::Receiver<Bytes>, KeyboardGuard)> {
    let (bell, end) = rustix::pipe::pipe()?;
    for side in [&bell, &end] {
        rustix::io::fcntl_setfd(side, rustix::io::FdFlags::CLOEXEC)?;
    }
    let (keys, typed) = mpsc::channel(1);
    std::thread::Builder::new().name("keyboard".to_owned()).spawn(move || {
        let stdin = io::stdin();
        let mut chunk = vec![0; READ_CHUNK_BYTES];
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
    Ok((typed, KeyboardGuard { _wake_pipe: end }))
}

/// Writes what comes. In an interactive shell as it is: what is asked to draw on the terminal may do so, as with ssh. Where no program has
/// the terminal, files and pipes get every byte, and a terminal gets it cleaned.
fn spawn_output_thread(mut chunks: mpsc::Receiver<OutputChunk>, in_terminal: bool) -> io::Result<oneshot::Receiver<OutputThreadResult>> {
    let (done, shown) = oneshot::channel();
    std::thread::Builder::new().name("output".to_owned()).spawn(move || {
        if !in_terminal {
            let written = passthrough::write_output(chunks, &crate::report::safe_output::sanitizer());
            if done.send((written, false)).is_err() {
                tracing::debug!("nobody waits for the last of the output");
            }
            return;
        }
        let mut alternate = AltScreenTracker::default();
        let mut write = || -> io::Result<()> {
            while let Some(piece) = chunks.blocking_recv() {
                match piece {
                    OutputChunk::Stdout(bytes) => {
                        alternate.update(&bytes);
                        let mut out = io::stdout().lock();
                        out.write_all(&bytes)?;
                        out.flush()?;
                    }
                    OutputChunk::Stderr(bytes) => io::stderr().lock().write_all(&bytes)?,
                }
            }
            Ok(())
        };
        let written = write();
        drop(chunks);
        if done.send((written, alternate.active)).is_err() {
            tracing::debug!("nobody waits for the last of the output");
        }
    })?;
    Ok(shown)
}

/// Whether the program has the alternate screen, as far as its output says.
#[derive(Debug, Default)]
struct AltScreenTracker {
    active: bool,
    /// The end of what was seen, which may be the beginning of a sequence.
    tail: Vec<u8>,
}

impl AltScreenTracker {
    fn update(&mut self, bytes: &[u8]) {
        self.tail.extend_from_slice(bytes);
        let last = |wanted: &[u8]| memchr::memmem::rfind(&self.tail, wanted);
        let (entered, left) = (last(b"\x1b[?1049h"), last(b"\x1b[?1049l"));
        if entered.is_some() || left.is_some() {
            self.active = entered > left;
        }
        let keep = self.tail.len().saturating_sub(7);
        self.tail.drain(..keep);
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn tilde_dot_escapes_only_at_line_start() {
        let typed = |chunks: &[&str]| {
            let mut escape = EscapeFilter::default();
            let mut sent = Vec::new();
            for chunk in chunks {
                match escape.filter(chunk.as_bytes()) {
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
    fn alt_screen_is_detected_across_chunks() {
        let on = |pieces: &[&str]| {
            let mut alternate = AltScreenTracker::default();
            pieces.iter().for_each(|piece| alternate.update(piece.as_bytes()));
            alternate.active
        };
        assert!(on(&["x\x1b[?10", "49hvim"]));
        assert!(on(&["\x1b[?1049h", "much\x1b[1m", "more"]));
        assert!(!on(&["\x1b[?1049h", "\x1b[?1049", "l$ "]));
    }
}
