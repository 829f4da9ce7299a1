//! What runs behind a session's channel: a command in a real shell, with pipes or with a terminal of its own.
//!
//! Uses `pty`. Every channel has a task that drains it, whatever becomes of the command.

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

use super::super::pty::{Master, Pty};
use super::super::scenario::{Faults, Hold};
use super::Fake;

/// How much of what a command is sent is searched for a fault's phrase.
const SEARCHED: usize = 256 << 10;
/// How often it is looked whether a command is still to be held.
const HELD: std::time::Duration = std::time::Duration::from_millis(20);
/// What may wait for a command that does not read its input; a client that sends more loses its connection.
const BACKLOG: usize = 64 << 20;

/// One command behind a channel.
pub(super) struct Run {
    pub(super) host: Arc<Fake>,
    pub(super) faults: Faults,
    pub(super) text: String,
    pub(super) environment: Vec<(String, String)>,
    pub(super) handle: Handle,
    pub(super) closed: CancellationToken,
    pub(super) cut: CancellationToken,
    pub(super) leader: Arc<Mutex<Option<Pid>>>,
    /// The terminal that was asked for.
    pub(super) pty: Option<Pty>,
    /// How it is held.
    pub(super) hold: Option<Hold>,
}

impl Run {
    pub(super) async fn go(mut self, channel: Channel<Msg>) {
        let (reader, writer) = channel.split();
        if self.strikes(self.text.as_bytes()) {
            return drain(reader).await;
        }
        if self.hold.as_ref().is_some_and(|hold| !hold.answer) && !self.released().await {
            return drain(reader).await;
        }
        if let Some(noise) = &self.faults.noise {
            self.send(writer.data_bytes(noise.clone().into_bytes())).await;
        }
        let pty = self.pty.take();
        let started = match pty {
            Some(pty) => self.in_terminal(pty),
            None => self.host.command(&self.text, &self.environment).spawn().map(|child| (child, None)),
        };
        match started {
            Ok((child, None)) => {
                let mut child = child;
                let (stdin, stdout, stderr) = (child.stdin.take(), child.stdout.take(), child.stderr.take());
                self.follow(child, stdin, stdout, stderr, reader, writer).await;
            }
            Ok((child, Some(master))) => {
                let (keys, screen) = (Some(master.clone()), Some(master));
                self.follow(child, keys, screen, None::<tokio::io::Empty>, reader, writer).await;
            }
            Err(error) => {
                self.send(writer.extended_data_bytes(1, format!("sandbox: /bin/sh: {error}\n").into_bytes())).await;
                self.report(&writer, ExitStatus::from_raw(127 << 8)).await;
                self.finish(&writer).await;
            }
        }
    }

    /// Starts the command with a terminal as its input and output.
    fn in_terminal(&self, pty: Pty) -> io::Result<(Child, Option<Master>)> {
        let (master, slave) = pty.into_ends();
        let mut environment = self.environment.clone();
        environment.push(("TERM".to_owned(), master.term().to_owned()));
        let mut command = self.host.command_in_terminal(&self.text, &environment);
        command.stdin(slave.try_clone()?).stdout(slave.try_clone()?).stderr(slave);
        Ok((command.spawn()?, Some(master)))
    }

    async fn follow(
        &self,
        mut child: Child,
        stdin: Option<impl AsyncWrite + Unpin>,
        stdout: Option<impl AsyncRead + Unpin>,
        stderr: Option<impl AsyncRead + Unpin>,
        reader: ChannelReadHalf,
        writer: ChannelWriteHalf<Msg>,
    ) {
        *self.leader.lock().unwrap_or_else(std::sync::PoisonError::into_inner) =
            child.id().and_then(|id| i32::try_from(id).ok()).and_then(Pid::from_raw);
        let (input, queue) = mpsc::unbounded_channel();
        let waiting = AtomicUsize::new(0);
        let ended = async {
            let status = child.wait().await;
            self.answers().await;
            *self.leader.lock().unwrap_or_else(std::sync::PoisonError::into_inner) = None;
            status.unwrap_or_else(|_| ExitStatus::from_raw(255 << 8))
        };
        let talk = async {
            self.answers().await;
            tokio::join!(self.pump(stdout, None, &writer), self.pump(stderr, Some(1), &writer));
        };
        let feed = async {
            tokio::join!(self.listen(reader, input, &waiting), self.feed(stdin, queue, &waiting));
        };
        let work = async {
            // As sshd does: the status goes out when the shell has ended, the end of the channel when nobody holds its output any longer.
            let status = async { self.report(&writer, ended.await).await };
            tokio::join!(status, talk);
            self.finish(&writer).await;
        };
        tokio::join!(work, feed);
    }

    /// Hands on what the client sends; goes on reading whatever happens, for an unread channel stops the whole connection.
    async fn listen(&self, mut reader: ChannelReadHalf, input: mpsc::UnboundedSender<bytes::Bytes>, waiting: &AtomicUsize) {
        let mut input = Some(input);
        let mut seen = Vec::new();
        loop {
            let message = tokio::select! {
                () = self.closed.cancelled() => return,
                message = reader.wait() => message,
            };
            match message {
                None => return,
                Some(ChannelMsg::Eof) => input = None,
                Some(ChannelMsg::Data { data }) => {
                    if seen.len() < SEARCHED {
                        seen.extend_from_slice(&data);
                    }
                    if input.is_some() && self.strikes(&seen) {
                        return drain(reader).await;
                    }
                    let size = data.len();
                    if input.as_ref().is_some_and(|input| input.send(data).is_err()) {
                        input = None;
                    } else if input.is_some() && waiting.fetch_add(size, Ordering::Relaxed) > BACKLOG {
                        self.cut.cancel();
                    }
                }
                Some(_) => {}
            }
        }
    }

    async fn feed(&self, stdin: Option<impl AsyncWrite + Unpin>, mut queue: mpsc::UnboundedReceiver<bytes::Bytes>, waiting: &AtomicUsize) {
        let Some(mut stdin) = stdin else { return };
        loop {
            tokio::select! {
                () = self.closed.cancelled() => return,
                bytes = queue.recv() => match bytes {
                    Some(bytes) => {
                        if !self.put(&mut stdin, &bytes).await {
                            return;
                        }
                        waiting.fetch_sub(bytes.len(), Ordering::Relaxed);
                    }
                    None => return,
                }
            }
        }
    }

    async fn put(&self, stdin: &mut (impl AsyncWrite + Unpin), bytes: &[u8]) -> bool {
        tokio::select! {
            () = self.closed.cancelled() => false,
            written = stdin.write_all(bytes) => written.is_ok(),
        }
    }

    async fn pump<R: AsyncRead + Unpin>(&self, from: Option<R>, ext: Option<u32>, writer: &ChannelWriteHalf<Msg>) {
        let Some(mut from) = from else { return };
        let mut buffer = bytes::BytesMut::new();
        loop {
            buffer.reserve(32 << 10);
            let read = tokio::select! {
                () = self.closed.cancelled() => return,
                read = from.read_buf(&mut buffer) => read,
            };
            if !matches!(read, Ok(count) if count > 0) {
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
        tokio::select! {
            () = self.closed.cancelled() => {}
            sent = sending => if let Err(error) = sent { tracing::debug!(%error, "not sent") },
        }
    }

    async fn report(&self, writer: &ChannelWriteHalf<Msg>, status: ExitStatus) {
        match (status.code(), status.signal().and_then(name)) {
            (Some(code), _) => self.send(writer.exit_status(u32::try_from(code).unwrap_or(255))).await,
            (None, Some(signal)) => {
                let sent = self.handle.exit_signal_request(writer.id(), signal, status.core_dumped(), String::new(), String::new());
                self.send(async { sent.await.map_err(|()| russh::Error::SendError) }).await;
            }
            (None, None) => self.send(writer.exit_status(255)).await,
        }
    }

    async fn finish(&self, writer: &ChannelWriteHalf<Msg>) {
        self.send(writer.eof()).await;
        self.send(writer.close()).await;
        // The handler is not told when the client answers this close: the place is free from here on, and the listener has nothing to hear.
        self.closed.cancel();
    }

    /// Waits until it is no longer held; `false`: the caller has gone away before.
    async fn released(&self) -> bool {
        if let Err(error) = std::fs::write(self.host.place.root().join("held"), "held\n") {
            tracing::warn!(%error, "it cannot be told that a command is held");
        }
        while self.host.place.faults().hold == self.hold {
            tokio::select! {
                () = self.closed.cancelled() => return false,
                () = tokio::time::sleep(HELD) => {}
            }
        }
        true
    }

    /// Waits until its answer may go out.
    async fn answers(&self) {
        if self.hold.as_ref().is_some_and(|hold| hold.answer) {
            self.released().await;
        }
    }

    /// Whether a fault waits for these bytes; a lost connection is lost here.
    fn strikes(&self, bytes: &[u8]) -> bool {
        let contains = |phrase: &Option<String>| phrase.as_ref().is_some_and(|p| memchr::memmem::find(bytes, p.as_bytes()).is_some());
        if contains(&self.faults.drop_on) {
            self.cut.cancel();
            return true;
        }
        contains(&self.faults.hang_on)
    }
}

pub(super) async fn drain(mut reader: ChannelReadHalf) {
    while reader.wait().await.is_some() {}
}

pub(super) fn number(signal: &Sig) -> Option<Signal> {
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

fn name(signal: i32) -> Option<Sig> {
    let known =
        [Sig::ABRT, Sig::ALRM, Sig::FPE, Sig::HUP, Sig::ILL, Sig::INT, Sig::KILL, Sig::PIPE, Sig::QUIT, Sig::SEGV, Sig::TERM, Sig::USR1];
    known.into_iter().find(|sig| number(sig).is_some_and(|n| n.as_raw() == signal))
}
