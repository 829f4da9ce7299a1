//! A fake host's end of a connection, which can be cut (from outside, or after a number of bytes) and slowed down.

use std::io;
use std::pin::Pin;
use std::task::{Context, Poll};
use std::time::Duration;

use tokio::io::{AsyncRead, AsyncReadExt, AsyncWrite, AsyncWriteExt, DuplexStream, ReadBuf};
use tokio::net::TcpStream;
use tokio::sync::mpsc;
use tokio::time::Instant;
use tokio_util::sync::{CancellationToken, WaitForCancellationFutureOwned};
use tokio_util::task::TaskTracker;

/// The TCP stream, which can be cut from outside or after a number of bytes.
pub(super) struct FaultyStream<S> {
    stream: S,
    bytes_left: Option<u64>,
    drop_token: CancellationToken,
    cancelled: Pin<Box<WaitForCancellationFutureOwned>>,
}

impl<S: AsyncRead + AsyncWrite + Unpin> FaultyStream<S> {
    /// `left`: how many bytes may still go out; `None`: any number.
    pub(super) fn new(stream: S, left: Option<u64>, cut: CancellationToken) -> Self {
        FaultyStream { stream, bytes_left: left, cancelled: Box::pin(cut.clone().cancelled_owned()), drop_token: cut }
    }
}

impl<S: AsyncRead + Unpin> AsyncRead for FaultyStream<S> {
    fn poll_read(mut self: Pin<&mut Self>, cx: &mut Context<'_>, buffer: &mut ReadBuf<'_>) -> Poll<io::Result<()>> {
        if self.cancelled.as_mut().poll(cx).is_ready() {
            return Poll::Ready(Err(io::ErrorKind::ConnectionAborted.into()));
        }
        Pin::new(&mut self.stream).poll_read(cx, buffer)
    }
}

impl<S: AsyncWrite + Unpin> AsyncWrite for FaultyStream<S> {
    fn poll_write(mut self: Pin<&mut Self>, cx: &mut Context<'_>, bytes: &[u8]) -> Poll<io::Result<usize>> {
        if self.drop_token.is_cancelled() {
            return Poll::Ready(Err(io::ErrorKind::ConnectionAborted.into()));
        }
        let most = self.bytes_left.map_or(bytes.len(), |left| usize::try_from(left).unwrap_or(usize::MAX).min(bytes.len()));
        let Some(part) = bytes.get(..most).filter(|part| !part.is_empty() || bytes.is_empty()) else {
            self.drop_token.cancel();
            return Poll::Ready(Err(io::ErrorKind::ConnectionAborted.into()));
        };
        let written = Pin::new(&mut self.stream).poll_write(cx, part);
        if let (Poll::Ready(Ok(count)), Some(left)) = (&written, self.bytes_left.as_mut()) {
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

/// What a slow line holds at most each way, in pieces of [`CHUNK_BYTES`].
const DELAY_QUEUE_CHUNKS: usize = 256;
const CHUNK_BYTES: usize = 32 << 10;

/// The same connection, with every byte `delay` later each way.
pub(super) fn delay_stream(stream: TcpStream, delay: Duration, tasks: &TaskTracker) -> DuplexStream {
    let (near, far) = tokio::io::duplex(CHUNK_BYTES);
    let (from_client, to_client) = stream.into_split();
    let (from_host, to_host) = tokio::io::split(far);
    tasks.spawn(relay_delayed(from_client, to_host, delay));
    tasks.spawn(relay_delayed(from_host, to_client, delay));
    near
}

async fn relay_delayed(mut from: impl AsyncRead + Unpin, mut to: impl AsyncWrite + Unpin, delay: Duration) {
    let (entry, mut exit) = mpsc::channel::<(Instant, bytes::Bytes)>(DELAY_QUEUE_CHUNKS);
    let read = async move {
        let mut buffer = bytes::BytesMut::new();
        loop {
            buffer.reserve(CHUNK_BYTES);
            match from.read_buf(&mut buffer).await {
                Ok(count) if count > 0 => {}
                _ => return,
            }
            if entry.send((Instant::now() + delay, buffer.split().freeze())).await.is_err() {
                return;
            }
        }
    };
    let write = async move {
        while let Some((due, bytes)) = exit.recv().await {
            tokio::time::sleep_until(due).await;
            if to.write_all(&bytes).await.is_err() {
                break;
            }
        }
        if let Err(error) = to.shutdown().await {
            tracing::debug!(%error, "a slow line was cut");
        }
    };
    tokio::join!(read, write);
}
