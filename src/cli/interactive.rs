//! The local side of an interactive session: sends keys, prints output, restores the terminal however the session ends.
//!
//! Keyboard and screen each have a thread, since terminals and pipes can only be read and written with blocking calls.

use std::collections::VecDeque;
use std::io::{self, Write as _};
use std::os::fd::OwnedFd;
use std::time::Duration;

use bytes::Bytes;
use rustix::event::{PollFd, PollFlags, poll};
use tokio::signal::unix::{Signal, SignalKind, signal};
use tokio::sync::{mpsc, oneshot};

use crate::cli::interactive_end::InteractiveEnd;
use crate::cli::passthrough;
use crate::lifecycle::hangup_signal::HangupSignal;
use crate::lifecycle::operator::run_in_thread;
use crate::remote::{ChannelInput, InteractiveChannel, OutputChunk, PtySpec, RemoteError};
use crate::tui::terminal::RawModeGuard;

/// Queued keyboard chunks; with a full queue, no key is read until the host takes some.
const MAX_QUEUED_INPUT: usize = 64;
const READ_CHUNK_BYTES: usize = 16 << 10;
/// How long to wait for the last output if the remote program did not exit.
const DRAIN_TIMEOUT: Duration = Duration::from_secs(1);

/// `None` unless standard input and standard output are a terminal.
pub(crate) fn local_pty_spec() -> Option<PtySpec> {
    use std::io::IsTerminal as _;
    if !io::stdin().is_terminal() || !io::stdout().is_terminal() {
        return None;
    }
    let (columns, rows) = terminal_size();
    #[expect(clippy::disallowed_methods, reason = "the type of terminal is in the environment")]
    let term = std::env::var("TERM").ok().filter(|term| !term.is_empty());
    Some(PtySpec { term: term.unwrap_or_else(|| "dumb".to_owned()), columns, rows })
}

fn terminal_size() -> (u16, u16) {
    let size = rustix::termios::tcgetwinsize(io::stdout()).map_or((0, 0), |size| (size.ws_col, size.ws_row));
    if size.0 == 0 || size.1 == 0 { (80, 24) } else { size }
}

/// Runs the session to its end. In a terminal every key goes to the program, except `~.` at the start of a line.
///
/// # Errors
/// A thread, pipe or signal handler could not be created.
pub(crate) async fn run(channel: InteractiveChannel, in_terminal: bool) -> io::Result<InteractiveEnd> {
    let raw = in_terminal.then(RawModeGuard::enable).transpose()?;
    let InteractiveChannel { output, input, exit } = channel;
    let screen = spawn_output_thread(output, in_terminal)?;
    let (keys, _keyboard) = spawn_keyboard_thread()?;
    let mut local = InteractiveSession {
        keyboard: Some(keys),
        pending_input: VecDeque::new(),
        escape: in_terminal.then(EscapeFilter::default),
        exit_status: exit,
    };
    let (end, alternate_screen) = local.run(input, screen).await?;
    drop(raw);
    if in_terminal && !matches!(end, InteractiveEnd::Exited(code) if code < 128) {
        // The remote program had no chance to restore the terminal.
        let leave_screen = if alternate_screen { "\x1b[?1049l\r\n" } else { "\r\n" };
        let reset_modes = "\x1b[?1l\x1b>\x1b[?2004l\x1b[?1004l\x1b[?1006l\x1b[?1003l\x1b[?1002l\x1b[?1000l\x1b[?25h\x1b[0m";
        if let Err(error) = io::stdout().write_all(format!("{reset_modes}{leave_screen}").as_bytes()).and_then(|()| io::stdout().flush()) {
            tracing::debug!(%error, "the terminal is gone");
        }
    }
    Ok(end)
}

struct InteractiveSession {
    keyboard: Option<mpsc::Receiver<Bytes>>,
    pending_input: VecDeque<ChannelInput>,
    escape: Option<EscapeFilter>,
    exit_status: oneshot::Receiver<Result<i32, RemoteError>>,
}

/// The result of writing, and whether the program left the alternate screen on.
type OutputThreadResult = (io::Result<()>, bool);

impl InteractiveSession {
    async fn run(
        &mut self,
        input: mpsc::Sender<ChannelInput>,
        mut screen: oneshot::Receiver<OutputThreadResult>,
    ) -> io::Result<(InteractiveEnd, bool)> {
        let mut signals = TerminationSignals::listen()?;
        let mut resized = signal(SignalKind::window_change())?;
        let mut output_result = None;
        let end = loop {
            tokio::select! {
                biased;
                number = signals.wait() => break InteractiveEnd::Signal(number),
                _ = resized.recv(), if self.escape.is_some() => {
                    let (columns, rows) = terminal_size();
                    self.pending_input.push_back(ChannelInput::Resize(columns, rows));
                }
                result = &mut screen, if output_result.is_none() => output_result = result.ok(),
                exit = &mut self.exit_status => break match exit {
                    Ok(Ok(code)) => InteractiveEnd::Exited(code),
                    Ok(Err(error)) => InteractiveEnd::ConnectionLost(error),
                    Err(_) => InteractiveEnd::Signal(1),
                },
                permit = input.reserve(), if !self.pending_input.is_empty() => match (permit, self.pending_input.pop_front()) {
                    (Ok(permit), Some(message)) => permit.send(message),
                    _ => self.pending_input.clear(),
                },
                typed = next_input(&mut self.keyboard), if self.pending_input.len() < MAX_QUEUED_INPUT => if let Some(end) = self.queue_input(typed) { break end },
            }
        };
        // If the program has not exited, it gets SIGHUP.
        drop(input);
        // Print the program's last output before our own. If it did not exit, a terminal that does not read may lose it.
        if output_result.is_none() {
            output_result = match &end {
                InteractiveEnd::Exited(_) => tokio::select! { result = screen => result.ok(), _ = signals.wait() => None },
                _ => tokio::time::timeout(DRAIN_TIMEOUT, screen).await.ok().and_then(Result::ok),
            };
        }
        let (written, alternate) = output_result.unwrap_or((Ok(()), false));
        Ok((end.with_output(written, self.escape.is_some()), alternate))
    }

    /// Queues typed bytes; returns the end of the session if they end it.
    fn queue_input(&mut self, typed: Option<Bytes>) -> Option<InteractiveEnd> {
        match (typed, &mut self.escape) {
            (None, None) => {
                self.keyboard = None;
                self.pending_input.push_back(ChannelInput::Eof);
            }
            // End of input on a terminal: it is gone.
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

struct TerminationSignals {
    interrupt: Signal,
    terminate: Signal,
    hangup: HangupSignal,
}

impl TerminationSignals {
    fn listen() -> io::Result<TerminationSignals> {
        Ok(TerminationSignals {
            interrupt: signal(SignalKind::interrupt())?,
            terminate: signal(SignalKind::terminate())?,
            hangup: HangupSignal::listen()?,
        })
    }

    async fn wait(&mut self) -> i32 {
        tokio::select! {
            _ = self.interrupt.recv() => 2,
            _ = self.terminate.recv() => 15,
            () = self.hangup.recv() => 1,
        }
    }
}

/// Recognizes `~.` at the start of a line, as ssh does; `~~` sends one `~`.
#[derive(Debug, Default)]
struct EscapeFilter {
    mid_line: bool,
    /// The line starts with a `~` that is not sent yet.
    pending_tilde: bool,
}

impl EscapeFilter {
    /// The bytes to send; `None` after `~.`.
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

/// Dropping it ends the keyboard thread.
struct KeyboardGuard {
    _wake_pipe: OwnedFd,
}

fn spawn_keyboard_thread() -> io::Result<(mpsc::Receiver<Bytes>, KeyboardGuard)> {
    let (wake_reader, wake_writer) = rustix::pipe::pipe()?;
    for end in [&wake_reader, &wake_writer] {
        rustix::io::fcntl_setfd(end, rustix::io::FdFlags::CLOEXEC)?;
    }
    let (sender, receiver) = mpsc::channel(1);
    std::thread::Builder::new().name("keyboard".to_owned()).spawn(move || {
        let stdin = io::stdin();
        let mut chunk = vec![0; READ_CHUNK_BYTES];
        loop {
            let mut inputs = [PollFd::new(&stdin, PollFlags::IN), PollFd::new(&wake_reader, PollFlags::IN)];
            match poll(&mut inputs, None) {
                Ok(_) => {}
                Err(rustix::io::Errno::INTR) => continue,
                Err(_) => return,
            }
            // Leave unread keys for the next reader of the terminal.
            if !inputs[1].revents().is_empty() {
                return;
            }
            let count = match rustix::io::read(&stdin, &mut chunk) {
                Ok(count) if count > 0 => count,
                Err(rustix::io::Errno::INTR | rustix::io::Errno::AGAIN) => continue,
                _ => return,
            };
            if sender.blocking_send(Bytes::copy_from_slice(&chunk[..count])).is_err() {
                return;
            }
        }
    })?;
    Ok((receiver, KeyboardGuard { _wake_pipe: wake_writer }))
}

/// In a terminal session, output is written unchanged: the remote program may draw on the terminal, as with ssh. Otherwise files and pipes get
/// every byte, and a terminal gets sanitized text.
fn spawn_output_thread(mut chunks: mpsc::Receiver<OutputChunk>, in_terminal: bool) -> io::Result<oneshot::Receiver<OutputThreadResult>> {
    run_in_thread("output", move || {
        if !in_terminal {
            return (passthrough::write_output(chunks, &crate::report::safe_output::sanitizer()), false);
        }
        let mut alternate = AltScreenTracker::default();
        let mut write = || -> io::Result<()> {
            while let Some(chunk) = chunks.blocking_recv() {
                match chunk {
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
        (written, alternate.active)
    })
}

/// Detects from the output whether the program uses the alternate screen.
#[derive(Debug, Default)]
struct AltScreenTracker {
    active: bool,
    /// The last bytes, which may be the start of a sequence.
    tail: Vec<u8>,
}

impl AltScreenTracker {
    fn update(&mut self, bytes: &[u8]) {
        self.tail.extend_from_slice(bytes);
        let last = |sequence: &[u8]| memchr::memmem::rfind(&self.tail, sequence);
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
        let is_active = |chunks: &[&str]| {
            let mut alternate = AltScreenTracker::default();
            chunks.iter().for_each(|chunk| alternate.update(chunk.as_bytes()));
            alternate.active
        };
        assert!(is_active(&["x\x1b[?10", "49hvim"]));
        assert!(is_active(&["\x1b[?1049h", "much\x1b[1m", "more"]));
        assert!(!is_active(&["\x1b[?1049h", "\x1b[?1049", "l$ "]));
    }
}
