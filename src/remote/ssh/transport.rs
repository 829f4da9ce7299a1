//! The bytes beneath SSH: a TCP connection, a program or a channel of a jump host, which can be cut from outside and notices silence by
//! itself.
//!
//! Uses nothing. Knows nothing of SSH but that the first line names it.

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

/// How much of what is said first is kept, and shown to people.
const HEAD: usize = 160;
const SHOWN: usize = 80;

/// What a connection runs over.
pub(super) trait Wire: AsyncRead + AsyncWrite + Unpin + Send {}
impl<T: AsyncRead + AsyncWrite + Unpin + Send> Wire for T {}

/// What is known of the bytes received.
#[derive(Debug, Default)]
pub(super) struct Heard {
    head: Mutex<Vec<u8>>,
}

impl Heard {
    /// The first line that the other end said, safe to show; `None` where it said nothing.
    pub(super) fn first_line(&self) -> Option<String> {
        let head = self.head.lock().unwrap_or_else(PoisonError::into_inner);
        let text = String::from_utf8_lossy(&head);
        let line: String = text.lines().next()?.chars().filter(|c| !c.is_control()).take(SHOWN).collect();
        (!line.is_empty()).then_some(line)
    }

    /// What the other end said instead of an SSH greeting, in one line.
    pub(super) fn refusal(&self) -> Option<String> {
        self.first_line().filter(|line| !line.starts_with("SSH-"))
    }

    /// Keeps the first bytes; says whether there is room for more.
    fn keep(&self, bytes: &[u8]) -> bool {
        let mut head = self.head.lock().unwrap_or_else(PoisonError::into_inner);
        let room = HEAD.saturating_sub(head.len());
        head.extend(bytes.iter().take(room));
        head.len() < HEAD
    }
}

/// How long nothing may be received; it may change while the connection lives.
#[derive(Debug)]
pub(super) struct Patience(AtomicU64);

impl Patience {
    pub(super) fn new(span: Duration) -> Self {
        Patience(AtomicU64::new(millis(span)))
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

/// A wire with a knife: when the token is cancelled, or nothing was received for too long, every read and write fails, so that no task and
/// no socket outlives its owner.
pub(super) struct Transport {
    wire: Box<dyn Wire>,
    /// One for each direction: russh polls them from different places.
    cut: [Pin<Box<WaitForCancellationFutureOwned>>; 2],
    silence: [Pin<Box<Sleep>>; 2],
    patience: Arc<Patience>,
    last: Instant,
    heard: Arc<Heard>,
    early: bool,
}

impl Transport {
    pub(super) fn new(wire: Box<dyn Wire>, cut: &CancellationToken, patience: Arc<Patience>, heard: Arc<Heard>) -> Self {
        let waiting = || Box::pin(cut.clone().cancelled_owned());
        let timer = || Box::pin(tokio::time::sleep(patience.get()));
        let silence = [timer(), timer()];
        Transport { wire, cut: [waiting(), waiting()], silence, patience, last: Instant::now(), heard, early: true }
    }

    /// Whether the knife has fallen.
    fn uncut(&mut self, side: usize, cx: &mut Context<'_>) -> io::Result<()> {
        match self.cut.get_mut(side).map(|cut| cut.as_mut().poll(cx)) {
            Some(Poll::Ready(())) => Err(io::Error::new(io::ErrorKind::ConnectionAborted, "closed from our side")),
            _ => Ok(()),
        }
    }

    /// Whether it is still worth to wait. Only asked where the wire makes us wait: who looks late finds what has come meanwhile.
    fn patient(&mut self, side: usize, cx: &mut Context<'_>) -> io::Result<()> {
        let Some(silence) = self.silence.get_mut(side) else { return Ok(()) };
        let patience = self.patience.get();
        let end = self.last + patience;
        if silence.deadline() > end {
            silence.as_mut().reset(end);
        }
        while silence.as_mut().poll(cx).is_ready() {
            if end <= Instant::now() {
                return Err(io::Error::new(io::ErrorKind::TimedOut, format!("nothing was received for {patience:?}")));
            }
            silence.as_mut().reset(end);
        }
        Ok(())
    }

    /// Writes with `how`, unless cut or left without an answer for too long.
    fn out<T>(
        &mut self,
        cx: &mut Context<'_>,
        how: impl FnOnce(Pin<&mut dyn Wire>, &mut Context<'_>) -> Poll<io::Result<T>>,
    ) -> Poll<io::Result<T>> {
        self.uncut(1, cx)?;
        let polled = how(Pin::new(&mut *self.wire), cx);
        if polled.is_pending() {
            self.patient(1, cx)?;
        }
        polled
    }
}

impl AsyncRead for Transport {
    fn poll_read(mut self: Pin<&mut Self>, cx: &mut Context<'_>, buf: &mut ReadBuf<'_>) -> Poll<io::Result<()>> {
        self.uncut(0, cx)?;
        let before = buf.filled().len();
        let polled = Pin::new(&mut self.wire).poll_read(cx, buf);
        if polled.is_pending() {
            self.patient(0, cx)?;
        }
        let new = buf.filled().get(before..).unwrap_or_default();
        if !new.is_empty() {
            self.last = Instant::now();
            if self.early {
                self.early = self.heard.keep(new);
            }
        }
        polled
    }
}

impl AsyncWrite for Transport {
    fn poll_write(mut self: Pin<&mut Self>, cx: &mut Context<'_>, buf: &[u8]) -> Poll<io::Result<usize>> {
        self.out(cx, |wire, cx| wire.poll_write(cx, buf))
    }

    fn poll_flush(mut self: Pin<&mut Self>, cx: &mut Context<'_>) -> Poll<io::Result<()>> {
        self.out(cx, |wire, cx| wire.poll_flush(cx))
    }

    fn poll_shutdown(mut self: Pin<&mut Self>, cx: &mut Context<'_>) -> Poll<io::Result<()>> {
        if self.uncut(1, cx).is_err() {
            return Poll::Ready(Ok(()));
        }
        self.out(cx, |wire, cx| wire.poll_shutdown(cx))
    }
}

/// An error of the system without its number.
pub(super) fn words(error: &io::Error) -> String {
    let text = error.to_string();
    let plain = text.split(" (os error").next().unwrap_or(&text);
    plain.chars().next().map(|c| c.to_ascii_lowercase()).into_iter().chain(plain.chars().skip(1)).collect()
}
