//! What runs behind a session's channel: a command in a real shell, with pipes or with a terminal of its own.
//!
//! Every channel has a task that drains it, also after the command has ended.

use std::io;
use std::os::unix::process::ExitStatusExt;
use std::process::ExitStatus;
use std::sync::atomic::{AtomicUsize, Ordering};
use std::sync::{Arc, Mutex};

use russh::server::{Handle, Msg};
use russh::{Channel, ChannelMsg, ChannelReadHalf, ChannelWriteHalf, Sig};
use rustix::process::{Pid, Signal};
use tokio::io::{AsyncRead, AsyncReadExt, AsyncWrite, AsyncWriteExt};
use tokio::process::Child;
use tokio::sync::mpsc;
use tokio_util::sync::CancellationToken;

use super::super::pty::{Pty, PtyMaster};
use super::super::scenario::{Faults, HeldCommand};
use super::fake_ssh_server::FakeSshServer;

/// How much of what a command is sent is searched for a fault's phrase.
const INPUT_SEARCH_LIMIT: usize = 256 << 10;
/// How often it is looked whether a command is still to be held.
const HOLD_POLL_INTERVAL: std::time::Duration = std::time::Duration::from_millis(20);
/// What may wait for a command that does not read its input; a client that sends more loses its connection. More than any file of the tests:
/// on a busy machine all of it may have been sent before the command reads.
const INPUT_BACKLOG_LIMIT: usize = 256 << 20;

/// One command behind a channel.
pub(super) struct ExecSession {
    pub(super) server: Arc<FakeSshServer>,
    pub(super) faults: Faults,
    pub(super) command_text: String,
    pub(super) environment: Vec<(String, String)>,
    pub(super) handle: Handle,
    pub(super) closed: CancellationToken,
    pub(super) drop_token: CancellationToken,
    pub(super) session_leader: Arc<Mutex<Option<Pid>>>,
    /// The terminal that was asked for.
    pub(super) pty: Option<Pty>,
    /// How it is held.
    pub(super) hold: Option<HeldCommand>,
}

impl ExecSession {
    pub(super) async fn run(mut self, channel: Channel<Msg>) {
        let (reader, writer) = channel.split();
        if self.triggers_fault(self.command_text.as_bytes()) {
            return drain_channel(reader).await;
        }
        if self.hold.as_ref().is_some_and(|hold| !hold.answer) && !self.wait_until_released().await {
            return drain_channel(reader).await;
        }
        if let Some(noise) = &self.faults.noise {
            self.send(writer.data_bytes(noise.clone().into_bytes())).await;
        }
        let pty = self.pty.take();
        let started = match pty {
            Some(pty) => self.spawn_with_tty(pty),
            None => self.server.shell_command(&self.command_text, &self.environment).spawn().map(|child| (child, None)),
        };
        match started {
            Ok((mut child, None)) => {
                let streams = (child.stdin.take(), child.stdout.take(), child.stderr.take());
                self.relay_until_exit(child, streams, reader, writer).await;
            }
            Ok((child, Some(master))) => {
                let streams = (Some(master.clone()), Some(master), None::<tokio::io::Empty>);
                self.relay_until_exit(child, streams, reader, writer).await;
            }
            Err(error) => {
                self.send(writer.extended_data_bytes(1, format!("sandbox: /bin/sh: {error}\n").into_bytes())).await;
                self.send_exit_status(&writer, ExitStatus::from_raw(127 << 8)).await;
                self.close_channel(&writer).await;
            }
        }
    }

    /// Starts the command with a terminal as its input and output.
    fn spawn_with_tty(&self, pty: Pty) -> io::Result<(Child, Option<PtyMaster>)> {
        let (master, slave) = pty.into_ends();
        let mut environment = self.environment.clone();
        environment.push(("TERM".to_owned(), master.term().to_owned()));
        let mut command = self.server.shell_command_with_tty(&self.command_text, &environment);
        command.stdin(slave.try_clone()?).stdout(slave.try_clone()?).stderr(slave);
        Ok((command.spawn()?, Some(master)))
    }

    async fn relay_until_exit(
        &self,
        mut child: Child,
        (stdin, stdout, stderr): (Option<impl AsyncWrite + Unpin>, Option<impl AsyncRead + Unpin>, Option<impl AsyncRead + Unpin>),
        reader: ChannelReadHalf,
        writer: ChannelWriteHalf<Msg>,
    ) {
        *self.session_leader.lock().unwrap_or_else(std::sync::PoisonError::into_inner) =
            child.id().and_then(|id| i32::try_from(id).ok()).and_then(Pid::from_raw);
        let (input, queue) = mpsc::unbounded_channel();
        let waiting = AtomicUsize::new(0);
        let ended = async {
            let status = child.wait().await;
            self.wait_before_output().await;
            *self.session_leader.lock().unwrap_or_else(std::sync::PoisonError::into_inner) = None;
            status.unwrap_or_else(|_| ExitStatus::from_raw(255 << 8))
        };
        let transfer = async {
            self.wait_before_output().await;
            tokio::join!(self.forward_output(stdout, None, &writer), self.forward_output(stderr, Some(1), &writer));
        };
        let feed = async {
            tokio::join!(self.receive_input(reader, input, &waiting), self.feed_stdin(stdin, queue, &waiting));
        };
        let work = async {
            // As sshd does: the status is sent when the shell has ended, the end of the channel when its output has no writer any more.
            let status = async { self.send_exit_status(&writer, ended.await).await };
            tokio::join!(status, transfer);
            self.close_channel(&writer).await;
        };
        tokio::join!(work, feed);
    }

    /// Forwards what the client sends; always continues to read, since an unread channel stops the whole connection.
    async fn receive_input(&self, mut reader: ChannelReadHalf, input: mpsc::UnboundedSender<bytes::Bytes>, waiting: &AtomicUsize) {
        let mut input = Some(input);
        let mut seen = Vec::new();
        while let Some(Some(message)) = self.closed.run_until_cancelled(reader.wait()).await {
            match message {
                ChannelMsg::Eof => input = None,
                ChannelMsg::Data { data } => {
                    if seen.len() < INPUT_SEARCH_LIMIT {
                        seen.extend_from_slice(&data);
                    }
                    if input.is_some() && self.triggers_fault(&seen) {
                        return drain_channel(reader).await;
                    }
                    let size = data.len();
                    if input.as_ref().is_some_and(|input| input.send(data).is_err()) {
                        input = None;
                    } else if input.is_some() && waiting.fetch_add(size, Ordering::Relaxed) > INPUT_BACKLOG_LIMIT {
                        tracing::warn!("a command does not read its input: its connection is cut");
                        self.drop_token.cancel();
                    }
                }
                _ => {}
            }
        }
    }

    async fn feed_stdin(
        &self,
        stdin: Option<impl AsyncWrite + Unpin>,
        mut queue: mpsc::UnboundedReceiver<bytes::Bytes>,
        waiting: &AtomicUsize,
    ) {
        let Some(mut stdin) = stdin else { return };
        let feeding = async {
            while let Some(bytes) = queue.recv().await {
                if stdin.write_all(&bytes).await.is_err() {
                    return;
                }
                waiting.fetch_sub(bytes.len(), Ordering::Relaxed);
            }
        };
        self.closed.run_until_cancelled(feeding).await;
    }

    async fn forward_output<R: AsyncRead + Unpin>(&self, from: Option<R>, ext: Option<u32>, writer: &ChannelWriteHalf<Msg>) {
        let Some(mut from) = from else { return };
        let mut buffer = bytes::BytesMut::new();
        loop {
            buffer.reserve(32 << 10);
            let read = self.closed.run_until_cancelled(from.read_buf(&mut buffer)).await;
            if !matches!(read, Some(Ok(count)) if count > 0) {
                return;
            }
            let bytes = buffer.split().freeze();
            match ext {
                None => self.send(writer.data_bytes(bytes)).await,
                Some(ext) => self.send(writer.extended_data_bytes(ext, bytes)).await,
            }
        }
    }

    /// Sends, unless the other side is gone: then nothing would ever wake the sender.
    async fn send(&self, sending: impl Future<Output = Result<(), russh::Error>>) {
        if let Some(Err(error)) = self.closed.run_until_cancelled(sending).await {
            tracing::debug!(%error, "not sent");
        }
    }

    async fn send_exit_status(&self, writer: &ChannelWriteHalf<Msg>, status: ExitStatus) {
        match (status.code(), status.signal().and_then(signal_to_ssh)) {
            (Some(code), _) => self.send(writer.exit_status(u32::try_from(code).unwrap_or(255))).await,
            (None, Some(signal)) => {
                let sent = self.handle.exit_signal_request(writer.id(), signal, status.core_dumped(), String::new(), String::new());
                self.send(async { sent.await.map_err(|()| russh::Error::SendError) }).await;
            }
            (None, None) => self.send(writer.exit_status(255)).await,
        }
    }

    async fn close_channel(&self, writer: &ChannelWriteHalf<Msg>) {
        self.send(writer.eof()).await;
        self.send(writer.close()).await;
        // The handler does not learn when the client answers this close: the slot is free from here on, and the listener has nothing to wait for.
        self.closed.cancel();
    }

    /// Waits until it is no longer held; `false`: the caller has gone away before.
    async fn wait_until_released(&self) -> bool {
        if let Err(error) = std::fs::write(self.server.host.root().join("held"), "held\n") {
            tracing::warn!(%error, "cannot record that a command is held");
        }
        while self.server.host.faults().hold == self.hold {
            if self.closed.run_until_cancelled(tokio::time::sleep(HOLD_POLL_INTERVAL)).await.is_none() {
                return false;
            }
        }
        true
    }

    /// Waits until its answer may go out.
    async fn wait_before_output(&self) {
        if self.hold.as_ref().is_some_and(|hold| hold.answer) {
            self.wait_until_released().await;
        }
    }

    /// Whether a fault waits for these bytes; a lost connection is lost here.
    fn triggers_fault(&self, bytes: &[u8]) -> bool {
        let contains = |phrase: &Option<String>| phrase.as_ref().is_some_and(|p| memchr::memmem::find(bytes, p.as_bytes()).is_some());
        if contains(&self.faults.drop_on) {
            self.drop_token.cancel();
            return true;
        }
        contains(&self.faults.hang_on)
    }
}

pub(super) async fn drain_channel(mut reader: ChannelReadHalf) {
    while reader.wait().await.is_some() {}
}

pub(super) fn signal_from_ssh(signal: &Sig) -> Option<Signal> {
    Some(match signal {
        Sig::ABRT => Signal::ABORT,
        Sig::ALRM => Signal::ALARM,
        Sig::FPE => Signal::FPE,
        Sig::HUP => Signal::HUP,
        Sig::ILL => Signal::ILL,
        Sig::INT => Signal::INT,
        Sig::KILL => Signal::KILL,
        Sig::PIPE => Signal::PIPE,
        Sig::QUIT => Signal::QUIT,
        Sig::SEGV => Signal::SEGV,
        Sig::TERM => Signal::TERM,
        Sig::USR1 => Signal::USR1,
        Sig::Custom(_) => return None,
    })
}

fn signal_to_ssh(signal: i32) -> Option<Sig> {
    let known =
        [Sig::ABRT, Sig::ALRM, Sig::FPE, Sig::HUP, Sig::ILL, Sig::INT, Sig::KILL, Sig::PIPE, Sig::QUIT, Sig::SEGV, Sig::TERM, Sig::USR1];
    known.into_iter().find(|sig| signal_from_ssh(sig).is_some_and(|n| n.as_raw() == signal))
}
