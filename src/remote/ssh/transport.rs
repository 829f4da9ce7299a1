//! The bytes beneath SSH: a TCP connection or a channel of a jump host, which can be cut from outside and notices silence by itself.
//!
//! Uses `hop`. Knows nothing of SSH but that the first line names it.

use std::future::Future;
use std::io;
use std::net::SocketAddr;
use std::pin::Pin;
use std::sync::atomic::{AtomicU64, Ordering};
use std::sync::{Arc, Mutex, PoisonError};
use std::task::{Context, Poll};
use std::time::Duration;

use tokio::io::{AsyncRead, AsyncWrite, ReadBuf};
use tokio::net::TcpStream;
use tokio::time::{Instant, Sleep};
use tokio_util::sync::{CancellationToken, WaitForCancellationFutureOwned};

use crate::remote::RemoteError;
use crate::remote::hop::{Family, Hop};

/// How long the kernel keeps trying to hand over bytes that nobody acknowledges.
#[cfg(target_os = "linux")]
const UNACKNOWLEDGED: Duration = Duration::from_secs(60);
/// The least that one of several addresses gets of the connect timeout.
const LEAST: Duration = Duration::from_secs(1);
/// How much of the first line is kept for people.
const HEAD: usize = 160;

/// What a connection runs over.
pub(super) trait Wire: AsyncRead + AsyncWrite + Unpin + Send {}
impl<T: AsyncRead + AsyncWrite + Unpin + Send> Wire for T {}

/// What is known of the bytes received.
#[derive(Debug, Default)]
pub(super) struct Heard {
    head: Mutex<Vec<u8>>,
}

impl Heard {
    /// What the other end said instead of an SSH greeting, in one line.
    pub(super) fn refusal(&self) -> Option<String> {
        let head = self.head.lock().unwrap_or_else(PoisonError::into_inner);
        let text = String::from_utf8_lossy(&head);
        let line: String = text.lines().next()?.chars().filter(|c| !c.is_control()).collect();
        (!line.is_empty() && !line.starts_with("SSH-")).then_some(line)
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

    fn check(&mut self, side: usize, cx: &mut Context<'_>) -> io::Result<()> {
        let (Some(cut), Some(silence)) = (self.cut.get_mut(side), self.silence.get_mut(side)) else { return Ok(()) };
        if cut.as_mut().poll(cx).is_ready() {
            return Err(io::Error::new(io::ErrorKind::ConnectionAborted, "closed from our side"));
        }
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
}

impl AsyncRead for Transport {
    fn poll_read(mut self: Pin<&mut Self>, cx: &mut Context<'_>, buf: &mut ReadBuf<'_>) -> Poll<io::Result<()>> {
        self.check(0, cx)?;
        let before = buf.filled().len();
        let polled = Pin::new(&mut self.wire).poll_read(cx, buf);
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
        self.check(1, cx)?;
        Pin::new(&mut self.wire).poll_write(cx, buf)
    }

    fn poll_flush(mut self: Pin<&mut Self>, cx: &mut Context<'_>) -> Poll<io::Result<()>> {
        self.check(1, cx)?;
        Pin::new(&mut self.wire).poll_flush(cx)
    }

    fn poll_shutdown(mut self: Pin<&mut Self>, cx: &mut Context<'_>) -> Poll<io::Result<()>> {
        if self.check(1, cx).is_err() {
            return Poll::Ready(Ok(()));
        }
        Pin::new(&mut self.wire).poll_shutdown(cx)
    }
}

/// Opens a TCP connection to a hop: every address gets its share of the time.
pub(super) async fn tcp(hop: &Hop, deadline: Instant) -> Result<TcpStream, RemoteError> {
    let addresses = addresses(hop, deadline).await?;
    let mut last = String::new();
    for (at, address) in addresses.iter().enumerate() {
        let left = u32::try_from(addresses.len() - at).unwrap_or(1);
        let share = (deadline.saturating_duration_since(Instant::now()) / left).max(LEAST);
        match tokio::time::timeout(share, TcpStream::connect(address)).await {
            Ok(Ok(stream)) => {
                tune(&stream, hop);
                return Ok(stream);
            }
            Ok(Err(e)) => last = format!("{address}: {}", words(&e)),
            Err(_) => last = format!("{address}: no answer within {share:.1?}"),
        }
        if Instant::now() >= deadline {
            break;
        }
    }
    Err(RemoteError::Lost {
        what: format!("could not connect to {}: {last}", hop.name),
        hint: format!("is the host up, and does sshd listen on port {}?", hop.port),
        retry: true,
    })
}

/// An error of the system without its number.
pub(super) fn words(error: &io::Error) -> String {
    let text = error.to_string();
    let plain = text.split(" (os error").next().unwrap_or(&text);
    plain.chars().next().map(|c| c.to_ascii_lowercase()).into_iter().chain(plain.chars().skip(1)).collect()
}

async fn addresses(hop: &Hop, deadline: Instant) -> Result<Vec<SocketAddr>, RemoteError> {
    let unknown = |why: String| RemoteError::Lost {
        what: format!("could not find the address of {} ({}): {why}", hop.name, hop.host),
        hint: "give `address:` in the inventory or `HostName` in ssh_config".to_owned(),
        retry: true,
    };
    let lookup = tokio::net::lookup_host((hop.host.as_str(), hop.port));
    let found = match tokio::time::timeout_at(deadline, lookup).await {
        Ok(Ok(found)) => found,
        Ok(Err(e)) => return Err(unknown(words(&e).replace("failed to lookup address information: ", ""))),
        Err(_) => return Err(unknown("no answer".to_owned())),
    };
    let wanted = |a: &SocketAddr| match hop.family {
        Family::Any => true,
        Family::V4 => a.is_ipv4(),
        Family::V6 => a.is_ipv6(),
    };
    let found: Vec<SocketAddr> = found.filter(wanted).collect();
    if found.is_empty() { Err(unknown("it has none of the wanted family".to_owned())) } else { Ok(found) }
}

/// Sets what makes death noticed and small packets quick. A kernel that refuses one of these still carries the connection.
fn tune(stream: &TcpStream, hop: &Hop) {
    let alive = socket2::TcpKeepalive::new().with_time(hop.keepalive.max(LEAST));
    let socket = socket2::SockRef::from(stream);
    let mut refused = Vec::new();
    refused.extend(stream.set_nodelay(true).err());
    refused.extend(socket.set_tcp_keepalive(&alive).err());
    #[cfg(target_os = "linux")]
    {
        let millis = u32::try_from(UNACKNOWLEDGED.as_millis()).unwrap_or(u32::MAX);
        refused.extend(rustix::net::sockopt::set_tcp_user_timeout(stream, millis).err().map(io::Error::from));
    }
    for error in refused {
        tracing::debug!(host = %hop.name, %error, "a socket option was refused");
    }
}
