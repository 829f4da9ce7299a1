//! `docker exec -t`: the process gets a terminal of the container's own, and the client's becomes its keyboard and screen.
//!
//! One thread polls both ends in turn, and the size of the client's terminal ten times a second.

use std::fs::File;
use std::io::{self, Read as _, Write as _};
use std::os::fd::{AsFd as _, OwnedFd};
use std::process::{Command, ExitCode};

use rustix::event::{PollFd, PollFlags, Timespec, poll};
use rustix::termios::{OptionalActions, Termios, Winsize, tcgetattr, tcgetwinsize, tcsetattr, tcsetwinsize};

use super::super::fake_program::{exit_code, shell_code};
use super::super::pty;
use super::error::DockerError;

/// How often the size of the client's terminal is looked at.
const RESIZE_POLL_INTERVAL: Timespec = Timespec { tv_sec: 0, tv_nsec: 100_000_000 };

/// The client's terminal in raw mode, until dropped.
struct RawTerminal(Option<Termios>);

impl RawTerminal {
    fn enable() -> RawTerminal {
        let before = tcgetattr(io::stdin()).ok();
        if let Some(before) = &before {
            let mut raw = before.clone();
            raw.make_raw();
            if let Err(error) = tcsetattr(io::stdin(), OptionalActions::Now, &raw) {
                tracing::debug!(%error, "the client's terminal");
            }
        }
        RawTerminal(before)
    }
}

impl Drop for RawTerminal {
    fn drop(&mut self) {
        if let Some(before) = &self.0
            && let Err(error) = tcsetattr(io::stdin(), OptionalActions::Now, before)
        {
            tracing::debug!(%error, "the client's terminal");
        }
    }
}

/// Runs the command to its end.
pub(super) fn run_with_tty(mut command: Command, interactive: bool) -> Result<ExitCode, DockerError> {
    let known = tcgetwinsize(io::stdout()).unwrap_or(Winsize { ws_row: 0, ws_col: 0, ws_xpixel: 0, ws_ypixel: 0 });
    let (master, slave) = pty::open_pty_pair(known.ws_col.into(), known.ws_row.into())?;
    let mut child = command.stdin(slave.try_clone()?).stdout(slave.try_clone()?).stderr(slave).spawn()?;
    drop(command);
    let raw = RawTerminal::enable();
    relay_terminal(master, interactive, known)?;
    drop(raw);
    Ok(exit_code(shell_code(child.wait()?)))
}

/// Copies bytes both ways until no process in the container has the terminal open.
fn relay_terminal(master: OwnedFd, interactive: bool, mut known: Winsize) -> io::Result<()> {
    let mut inside = File::from(master);
    let (mut keyboard, mut screen) = (File::from(io::stdin().as_fd().try_clone_to_owned()?), io::stdout());
    let (mut reads, mut chunk) = (interactive, [0; 8192]);
    loop {
        let (keys, shown) = {
            let mut ends = [PollFd::new(&inside, PollFlags::IN), PollFd::new(&keyboard, PollFlags::IN)];
            // A keyboard that is gone would be ready for ever.
            let ends = if reads { &mut ends[..] } else { &mut ends[..1] };
            poll(ends, Some(&RESIZE_POLL_INTERVAL))?;
            (ends.get(1).is_some_and(|end| !end.revents().is_empty()), !ends[0].revents().is_empty())
        };
        if keys {
            match keyboard.read(&mut chunk) {
                Ok(0) | Err(_) => reads = false,
                Ok(count) => inside.write_all(&chunk[..count])?,
            }
        }
        if shown {
            match inside.read(&mut chunk) {
                Ok(0) | Err(_) => return Ok(()),
                Ok(count) => screen.write_all(&chunk[..count]).and_then(|()| screen.flush())?,
            }
        }
        let now = tcgetwinsize(io::stdout()).unwrap_or(known);
        if (now.ws_col, now.ws_row) != (known.ws_col, known.ws_row) {
            known = now;
            tcsetwinsize(&inside, now)?;
        }
    }
}
