//! The transport of an SSH connection: TCP, a program or a channel of a jump host. It can be cut from outside and detects
//! silence.

use std::future::Future;
use std::io;
use std::pin::Pin;
use std::sync::atomic::{AtomicU64, Ordering};
use std::sync::{Arc, Mutex, PoisonError};
use std::task::{Context, Poll};
use std::time::Duration;

use tokio::io::{AsyncRead, AsyncWrite, ReadBuf};
use tokio::time::{Instant, Sleep};
use tokio_util::sync::{CancellationToken, WaitForCancellationFutureOwned};

/// Bytes of the greeting to keep and show.
const MAX_GREETING_BYTES: usize = 160;
const MAX_SHOWN_CHARS: usize = 80;

pub(super) trait RawStream: AsyncRead + AsyncWrite + Unpin + Send {}
impl<T: AsyncRead + AsyncWrite + Unpin + Send> RawStream for T {}

/// Facts about the received bytes.
#[derive(Debug, Default)]
pub(super) struct Greeting {
    first_bytes: Mutex<Vec<u8>>,
}

impl Greeting {
    /// The first line received, sanitized; `None` if nothing was received.
    pub(super) fn first_line(&self) -> Option<String> {
        let head = self.first_bytes.lock().unwrap_or_else(PoisonError::into_inner);
        let text = String::from_utf8_lossy(&head);
        let line: String = text.lines().next()?.chars().filter(|c| !c.is_control()).take(MAX_SHOWN_CHARS).collect();
        (!line.is_empty()).then_some(line)
    }

    /// What the other end sent instead of an SSH greeting, in one line.
    pub(super) fn non_ssh_line(&self) -> Option<String> {
        self.first_line().filter(|line| !line.starts_with("SSH-"))
    }

    /// Keeps the first bytes; returns whether there is room for more.
    fn record(&self, bytes: &[u8]) -> bool {
        let mut head = self.first_bytes.lock().unwrap_or_else(PoisonError::into_inner);
        let room = MAX_GREETING_BYTES.saturating_sub(head.len());
        head.extend(bytes.iter().take(room));
        head.len() < MAX_GREETING_BYTES
    }
}

/// Receive timeout; it may change during the connection.
#[derive(Debug)]
pub(super) struct InactivityLimit(AtomicU64);

impl InactivityLimit {
    pub(super) fn new(span: Duration) -> Self {
        InactivityLimit(AtomicU64::new(millis(span)))
    }

    pub(super) fn set(&self, span: Duration) {
        self.0.store(millis(span), Ordering::Relaxed);
    }

    fn get(&self) -> Duration {
        Duration::from_millis(self.0.load(Ordering::Relaxed))
    }
}

fn millis(span: Duration) -> u64 {
    u64::try_from(span.as_millis()).unwrap_or(u64::MAX)
}

/// A transport that can be cut: when the token is cancelled, or nothing was received for too long, every read and write fails, so
/// that no task and no socket outlives its owner.
pub(super) struct SshTransport {
    stream: Box<dyn RawStream>,
    /// One per direction: russh polls them from different tasks.
    abort: [Pin<Box<WaitForCancellationFutureOwned>>; 2],
    inactivity_timers: [Pin<Box<Sleep>>; 2],
    inactivity_limit: Arc<InactivityLimit>,
    last_received: Instant,
    greeting: Arc<Greeting>,
    greeting_open: bool,
}

impl SshTransport {
    pub(super) fn new(
        stream: Box<dyn RawStream>,
        abort: &CancellationToken,
        inactivity_limit: Arc<InactivityLimit>,
        greeting: Arc<Greeting>,
    ) -> Self {
        let waiting = || Box::pin(abort.clone().cancelled_owned());
        let timer = || Box::pin(tokio::time::sleep(inactivity_limit.get()));
        let silence = [timer(), timer()];
        SshTransport {
            stream,
            abort: [waiting(), waiting()],
            inactivity_timers: silence,
            inactivity_limit,
            last_received: Instant::now(),
            greeting,
            greeting_open: true,
        }
    }

    /// Whether the transport was cut.
    fn check_abort(&mut self, side: usize, cx: &mut Context<'_>) -> io::Result<()> {
        match self.abort.get_mut(side).map(|cut| cut.as_mut().poll(cx)) {
            Some(Poll::Ready(())) => Err(io::Error::new(io::ErrorKind::ConnectionAborted, "closed from our side")),
            _ => Ok(()),
        }
    }

    /// Checks the receive timeout. Called only when the transport would block: a late poll first sees what arrived meanwhile.
    fn check_inactivity(&mut self, side: usize, cx: &mut Context<'_>) -> io::Result<()> {
        let Some(silence) = self.inactivity_timers.get_mut(side) else { return Ok(()) };
        let limit = self.inactivity_limit.get();
        let end = self.last_received + limit;
        if silence.deadline() > end {
            silence.as_mut().reset(end);
        }
        while silence.as_mut().poll(cx).is_ready() {
            if end <= Instant::now() {
                return Err(io::Error::new(io::ErrorKind::TimedOut, format!("nothing was received for {limit:?}")));
            }
            silence.as_mut().reset(end);
        }
        Ok(())
    }

    /// Writes with `how`, unless cut or timed out.
    fn poll_output<T>(
        &mut self,
        cx: &mut Context<'_>,
        how: impl FnOnce(Pin<&mut dyn RawStream>, &mut Context<'_>) -> Poll<io::Result<T>>,
    ) -> Poll<io::Result<T>> {
        self.check_abort(1, cx)?;
        let polled = how(Pin::new(&mut *self.stream), cx);
        if polled.is_pending() {
            self.check_inactivity(1, cx)?;
        }
        polled
    }
}

impl AsyncRead for SshTransport {
    fn poll_read(mut self: Pin<&mut Self>, cx: &mut Context<'_>, buf: &mut ReadBuf<'_>) -> Poll<io::Result<()>> {
        self.check_abort(0, cx)?;
        let before = buf.filled().len();
        let polled = Pin::new(&mut self.stream).poll_read(cx, buf);
        if polled.is_pending() {
            self.check_inactivity(0, cx)?;
        }
        let new = buf.filled().get(before..).unwrap_or_default();
        if !new.is_empty() {
            self.last_received = Instant::now();
            if self.greeting_open {
                self.greeting_open = self.greeting.record(new);
            }
        }
        polled
    }
}

impl AsyncWrite for SshTransport {
    fn poll_write(mut self: Pin<&mut Self>, cx: &mut Context<'_>, buf: &[u8]) -> Poll<io::Result<usize>> {
        self.poll_output(cx, |wire, cx| wire.poll_write(cx, buf))
    }

    fn poll_flush(mut self: Pin<&mut Self>, cx: &mut Context<'_>) -> Poll<io::Result<()>> {
        self.poll_output(cx, |wire, cx| wire.poll_flush(cx))
    }

    fn poll_shutdown(mut self: Pin<&mut Self>, cx: &mut Context<'_>) -> Poll<io::Result<()>> {
        if self.check_abort(1, cx).is_err() {
            return Poll::Ready(Ok(()));
        }
        self.poll_output(cx, |wire, cx| wire.poll_shutdown(cx))
    }
}
