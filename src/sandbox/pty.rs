//! Pseudo-terminals: the end that a fake sshd or the stand-in of docker holds, and the end that a program gets.
//!
//! The holder of the other end sets the size, and the kernel notifies the program (SIGWINCH).

use std::io;
use std::os::fd::OwnedFd;
use std::pin::Pin;
use std::sync::{Arc, Weak};
use std::task::{Context, Poll, ready};

use rustix::fs::{Mode, OFlags};
use rustix::io::Errno;
use rustix::pty::{OpenptFlags, grantpt, openpt, ptsname, unlockpt};
use rustix::termios::{Winsize, tcsetwinsize};
use tokio::io::unix::AsyncFd;
use tokio::io::{AsyncRead, AsyncWrite, ReadBuf};

/// Both ends, the holder's and the program's, as the system gives them.
pub(super) fn open_pty_pair(columns: u32, rows: u32) -> io::Result<(OwnedFd, OwnedFd)> {
    let master = openpt(OpenptFlags::RDWR | OpenptFlags::NOCTTY | OpenptFlags::CLOEXEC)?;
    grantpt(&master)?;
    unlockpt(&master)?;
    let slave = rustix::fs::open(ptsname(&master, Vec::new())?, OFlags::RDWR | OFlags::NOCTTY | OFlags::CLOEXEC, Mode::empty())?;
    tcsetwinsize(&master, winsize(columns, rows))?;
    Ok((master, slave))
}

fn winsize(columns: u32, rows: u32) -> Winsize {
    let short = |number: u32| u16::try_from(number).unwrap_or(u16::MAX);
    Winsize { ws_row: short(rows), ws_col: short(columns), ws_xpixel: 0, ws_ypixel: 0 }
}

/// A terminal that is not in use yet.
pub(super) struct Pty {
    master: PtyMaster,
    slave: OwnedFd,
}

#[derive(Clone)]
pub(super) struct PtyMaster {
    fd: Arc<AsyncFd<OwnedFd>>,
    term: Arc<str>,
}

/// Resizes a terminal; does not keep it open.
pub(super) struct PtyResizer(Weak<AsyncFd<OwnedFd>>);

impl Pty {
    pub(super) fn open(term: &str, columns: u32, rows: u32) -> io::Result<Pty> {
        let (master, slave) = open_pty_pair(columns, rows)?;
        let flags = rustix::fs::fcntl_getfl(&master)?;
        rustix::fs::fcntl_setfl(&master, flags | OFlags::NONBLOCK)?;
        #[expect(
            deprecated,
            reason = "what replaces it needs unsafe code; this one owns its descriptor, which is never changed or closed before"
        )]
        let fd = Arc::new(AsyncFd::new(master)?);
        Ok(Pty { master: PtyMaster { fd, term: term.into() }, slave })
    }

    /// A handle that resizes the terminal.
    pub(super) fn resizer(&self) -> PtyResizer {
        PtyResizer(Arc::downgrade(&self.master.fd))
    }

    pub(super) fn into_ends(self) -> (PtyMaster, OwnedFd) {
        (self.master, self.slave)
    }
}

impl PtyResizer {
    pub(super) fn resize(&self, columns: u32, rows: u32) {
        if let Some(master) = self.0.upgrade()
            && let Err(error) = tcsetwinsize(master.get_ref(), winsize(columns, rows))
        {
            tracing::debug!(%error, "the size of a terminal");
        }
    }
}

impl PtyMaster {
    /// What kind of terminal it is.
    pub(super) fn term(&self) -> &str {
        &self.term
    }
}

impl AsyncRead for PtyMaster {
    fn poll_read(self: Pin<&mut Self>, context: &mut Context<'_>, buffer: &mut ReadBuf<'_>) -> Poll<io::Result<()>> {
        loop {
            let mut guard = ready!(self.fd.poll_read_ready(context))?;
            match guard.try_io(|fd| rustix::io::read(fd.get_ref(), buffer.initialize_unfilled()).map_err(io::Error::from)) {
                Ok(Ok(count)) => {
                    buffer.advance(count);
                    return Poll::Ready(Ok(()));
                }
                // The program's end is closed.
                Ok(Err(error)) if error.raw_os_error() == Some(Errno::IO.raw_os_error()) => return Poll::Ready(Ok(())),
                Ok(Err(error)) => return Poll::Ready(Err(error)),
                Err(_) => {}
            }
        }
    }
}

impl AsyncWrite for PtyMaster {
    fn poll_write(self: Pin<&mut Self>, context: &mut Context<'_>, bytes: &[u8]) -> Poll<io::Result<usize>> {
        loop {
            let mut guard = ready!(self.fd.poll_write_ready(context))?;
            if let Ok(written) = guard.try_io(|fd| rustix::io::write(fd.get_ref(), bytes).map_err(io::Error::from)) {
                return Poll::Ready(written);
            }
        }
    }

    fn poll_flush(self: Pin<&mut Self>, _: &mut Context<'_>) -> Poll<io::Result<()>> {
        Poll::Ready(Ok(()))
    }

    fn poll_shutdown(self: Pin<&mut Self>, _: &mut Context<'_>) -> Poll<io::Result<()>> {
        Poll::Ready(Ok(()))
    }
}
