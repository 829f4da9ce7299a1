//! A fake host's end of a connection, which can be cut: from outside, or after so many bytes.

use std::io;
use std::pin::Pin;
use std::task::{Context, Poll};

use tokio::io::{AsyncRead, AsyncWrite, ReadBuf};
use tokio::net::TcpStream;
use tokio_util::sync::{CancellationToken, WaitForCancellationFutureOwned};

/// The TCP stream, which can be cut from outside or after so many bytes.
pub(super) struct Wire {
    stream: TcpStream,
    left: Option<u64>,
    cut: CancellationToken,
    cancelled: Pin<Box<WaitForCancellationFutureOwned>>,
}

impl Wire {
    /// `left`: how many bytes may still go out; `None`: any number.
    pub(super) fn new(stream: TcpStream, left: Option<u64>, cut: CancellationToken) -> Self {
        Wire { stream, left, cancelled: Box::pin(cut.clone().cancelled_owned()), cut }
    }
}

impl AsyncRead for Wire {
    fn poll_read(mut self: Pin<&mut Self>, cx: &mut Context<'_>, buffer: &mut ReadBuf<'_>) -> Poll<io::Result<()>> {
        if self.cancelled.as_mut().poll(cx).is_ready() {
            return Poll::Ready(Err(io::ErrorKind::ConnectionAborted.into()));
        }
        Pin::new(&mut self.stream).poll_read(cx, buffer)
    }
}

impl AsyncWrite for Wire {
    fn poll_write(mut self: Pin<&mut Self>, cx: &mut Context<'_>, bytes: &[u8]) -> Poll<io::Result<usize>> {
        if self.cut.is_cancelled() {
            return Poll::Ready(Err(io::ErrorKind::ConnectionAborted.into()));
        }
        let most = self.left.map_or(bytes.len(), |left| usize::try_from(left).unwrap_or(usize::MAX).min(bytes.len()));
        let Some(part) = bytes.get(..most).filter(|part| !part.is_empty() || bytes.is_empty()) else {
            self.cut.cancel();
            return Poll::Ready(Err(io::ErrorKind::ConnectionAborted.into()));
        };
        let written = Pin::new(&mut self.stream).poll_write(cx, part);
        if let (Poll::Ready(Ok(count)), Some(left)) = (&written, self.left.as_mut()) {
            *left = left.saturating_sub(*count as u64);
        }
        written
    }

    fn poll_flush(mut self: Pin<&mut Self>, cx: &mut Context<'_>) -> Poll<io::Result<()>> {
        Pin::new(&mut self.stream).poll_flush(cx)
    }

    fn poll_shutdown(mut self: Pin<&mut Self>, cx: &mut Context<'_>) -> Poll<io::Result<()>> {
        Pin::new(&mut self.stream).poll_shutdown(cx)
    }
}
