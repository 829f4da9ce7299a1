//! A connected host: scripts to their end, long streams, the question whether an address can be reached from there.
//!
//! Uses `link` and `collect`. Every channel has a task that only reads and writes it, never waits for anyone else and closes it at the end.

use std::sync::Arc;
use std::time::Duration;

use bytes::Bytes;
use futures_util::FutureExt as _;
use futures_util::future::BoxFuture;
use russh::client::Msg;
use russh::{Channel, ChannelMsg, ChannelOpenFailure, ChannelReadHalf, ChannelWriteHalf, Sig};
use tokio::sync::{OwnedSemaphorePermit, RwLock, Semaphore, mpsc, oneshot};
use tokio::time::Instant;
use tokio_util::sync::CancellationToken;

use super::client::Left;
use super::collect::{Answer, INTRODUCE, Opening};
use super::link::{self, Link, Opened};
use super::sessions::{Further, SessionPlace, Sessions};
use super::sink::{Kept, Sink};
use crate::remote::inflow::inflow;
use crate::remote::{Piece, Reached, Remote, RemoteError, Stream, Talk, Terminal};
use crate::shell::{self, Command, Frame, Output, mask};

/// Sessions at once: six in all; OpenSSH allows ten. Urgent are two: while one waits for ranks that were asked to end, the other kills them.
const COMMANDS: usize = 2;
const URGENT: usize = 2;
const STREAMS: usize = 2;
/// Addresses that are tried side by side: each is an open file of its sshd.
const WAYS: usize = 128;
/// How long after the end mark its exit status, and after that the rest, may come.
const GRACE: Duration = Duration::from_millis(200);
/// Chunks that a stream's writer holds.
const INPUT: usize = 64;
/// Pieces (32 KiB at most, each) of a talk that may wait for their reader.
const PIECES: usize = 16;
/// How long a shell that is to be killed may take to say its number.
const INTRODUCTION: Duration = Duration::from_secs(5);
/// How long ending a script may take before the connection goes.
const KILL: Duration = Duration::from_secs(5);
/// What every script is handed to, whatever the login shell is.
const SHELL: &str = "exec /bin/sh -s";

/// A host behind one connection.
pub(super) struct SshHost {
    link: Arc<Link>,
    sessions: Arc<Sessions>,
    commands: Arc<Semaphore>,
    urgent: Arc<Semaphore>,
    streams: Arc<Semaphore>,
    ways: Semaphore,
    /// Read by who tries an address beside others, written by who must be alone.
    alone: RwLock<()>,
}

impl SshHost {
    pub(super) fn new(link: Arc<Link>, further: Further) -> Self {
        let slots = |n| Arc::new(Semaphore::new(n));
        let (ways, alone) = (Semaphore::new(WAYS), RwLock::new(()));
        let sessions = Sessions::new(link.clone(), further);
        SshHost { link, sessions, commands: slots(COMMANDS), urgent: slots(URGENT), streams: slots(STREAMS), ways, alone }
    }

    /// Waits for a slot, at most as long as the command itself may take.
    async fn slot(&self, slots: &Arc<Semaphore>, command: &Command) -> Result<OwnedSemaphorePermit, RemoteError> {
        let timeout = || RemoteError::Timeout { title: command.title.clone(), after: command.timeout };
        let waiting = tokio::time::timeout(command.timeout, slots.clone().acquire_owned());
        match self.link.dead.run_until_cancelled(waiting).await {
            None | Some(Ok(Err(_))) => Err(self.link.lost()),
            Some(Err(_)) => Err(timeout()),
            Some(Ok(Ok(permit))) => Ok(permit),
        }
    }

    fn job(&self, command: &Command) -> Job {
        let nonce: String = link::salt().iter().map(|b| format!("{b:02x}")).collect();
        Job {
            host: self.link.name.clone(),
            title: command.title.clone(),
            masks: command.masks.clone(),
            timeout: command.timeout,
            started: Instant::now(),
            frame: Frame::new(nonce),
            sessions: self.sessions.clone(),
            seat: None,
            dead: self.link.dead.clone(),
            left: self.link.left(),
            cut: self.link.cut(),
        }
    }

    async fn run(&self, slots: &Arc<Semaphore>, command: &Command, sink: Sink) -> Result<Output, RemoteError> {
        let permit = self.slot(slots, command).await?;
        let mut job = self.job(command);
        let script = format!("{INTRODUCE}{}", job.frame.wrap(&command.script));
        let (tx, rx) = oneshot::channel();
        self.link.tasks.spawn(async move {
            let mut tx = tx;
            let (result, rest) = job.exec(script, sink, tx.closed()).await;
            if tx.send(result).is_err() {
                tracing::debug!("nobody waits for this answer any more");
            }
            if let Some(rest) = rest {
                job.finish(rest).await;
            }
            drop(permit);
        });
        rx.await.unwrap_or_else(|_| Err(self.link.lost()))
    }

    async fn follow(&self, command: &Command) -> Result<Stream, RemoteError> {
        let permit = self.slot(&self.streams, command).await?;
        let mut job = self.job(command);
        let script = format!("{INTRODUCE}{}", job.frame.wrap_stream(&command.script));
        let (output, reader) = inflow(command.limit);
        let (input, writer) = mpsc::channel(INPUT);
        let (tx, rx) = oneshot::channel();
        self.link.tasks.spawn(async move {
            job.stream(script, output, writer, tx).await;
            drop(permit);
        });
        rx.await.unwrap_or_else(|_| Err(self.link.lost()))?;
        Ok(Stream { output: reader, input })
    }

    async fn converse(&self, command: &Command, terminal: Option<Terminal>) -> Result<Talk, RemoteError> {
        let mut job = self.job(command);
        let line = shell::line(&command.script);
        let (output, pieces) = mpsc::channel(PIECES);
        let (input, told) = mpsc::channel(INPUT);
        let (tx, rx) = oneshot::channel();
        let (ended, end) = oneshot::channel();
        self.link.tasks.spawn(async move {
            let how = job.talk(line, terminal, output, told, tx).await;
            if ended.send(how).is_err() {
                tracing::debug!("nobody waits for the end of this talk");
            }
        });
        rx.await.unwrap_or_else(|_| Err(self.link.lost()))?;
        Ok(Talk { output: pieces, input, end })
    }

    /// Tries an address. Many are tried side by side, for one that does not answer must hold up none; who is refused asks again alone, so that
    /// the reason is its own. Waiting for a turn is no part of the time that the address has.
    async fn ask(&self, address: &str, port: u16, within: Duration) -> Result<Reached, RemoteError> {
        let Ok(_turn) = self.ways.acquire().await else { return Err(self.link.lost()) };
        let mut opened = {
            let _beside = self.alone.read().await;
            self.link.open_tcp(address, port, Instant::now() + within, false).await
        };
        if let Opened::Refused { .. } = opened {
            let _alone = self.alone.write().await;
            opened = self.link.open_tcp(address, port, Instant::now() + within, true).await;
        }
        match opened {
            Opened::Channel(channel) => {
                link::close(&channel, &self.link.dead).await;
                Ok(Reached::Open)
            }
            Opened::Refused { code, reason } => Ok(reached(code, &reason.to_lowercase())),
            Opened::Dead => Err(self.link.lost()),
            Opened::Late => Ok(Reached::Blocked(format!("no answer within {} s", within.as_secs()))),
        }
    }
}

impl Remote for SshHost {
    fn exec<'a>(&'a self, command: &'a Command) -> BoxFuture<'a, Result<Output, RemoteError>> {
        self.run(&self.commands, command, Sink::keep(command.limit)).boxed()
    }

    fn relay<'a>(&'a self, command: &'a Command, pieces: mpsc::Sender<Piece>) -> BoxFuture<'a, Result<i32, RemoteError>> {
        async { Ok(self.run(&self.commands, command, Sink::pass(pieces)).await?.code) }.boxed()
    }

    fn urgent<'a>(&'a self, command: &'a Command) -> BoxFuture<'a, Result<Output, RemoteError>> {
        self.run(&self.urgent, command, Sink::keep(command.limit)).boxed()
    }

    fn stream<'a>(&'a self, command: &'a Command) -> BoxFuture<'a, Result<Stream, RemoteError>> {
        self.follow(command).boxed()
    }

    fn talk<'a>(&'a self, command: &'a Command, terminal: Option<Terminal>) -> BoxFuture<'a, Result<Talk, RemoteError>> {
        self.converse(command, terminal).boxed()
    }

    fn reach<'a>(&'a self, address: &'a str, port: u16, within: Duration) -> BoxFuture<'a, Result<Reached, RemoteError>> {
        self.ask(address, port, within).boxed()
    }

    fn is_closed(&self) -> bool {
        self.link.is_dead()
    }

    fn close(&self) -> BoxFuture<'_, ()> {
        self.sessions.goodbye().boxed()
    }
}

/// OpenSSH's sshd gives the system's reason as text; another server may give none.
fn reached(code: ChannelOpenFailure, reason: &str) -> Reached {
    if reason.contains("refused") {
        Reached::Refused
    } else if code == ChannelOpenFailure::AdministrativelyProhibited {
        Reached::Untold("its sshd forwards nothing (AllowTcpForwarding)".to_owned())
    } else if ["timed out", "no route", "unreachable", "resolve", "not known"].iter().any(|r| reason.contains(r)) {
        Reached::Blocked(reason.to_owned())
    } else {
        Reached::Untold(format!("its sshd says only: {reason}"))
    }
}

/// One script on its way.
pub(super) struct Job {
    host: String,
    pub(super) title: String,
    masks: Vec<String>,
    timeout: Duration,
    started: Instant,
    pub(super) frame: Frame,
    sessions: Arc<Sessions>,
    /// Its session's place, once it has one; the rest is that of its connection.
    seat: Option<SessionPlace>,
    pub(super) dead: CancellationToken,
    left: Arc<Left>,
    cut: CancellationToken,
}

/// The signals that SSH names (RFC 4254, 6.10), with their numbers.
const NUMBERS: [(&str, i32); 10] =
    [("HUP", 1), ("INT", 2), ("QUIT", 3), ("ILL", 4), ("ABRT", 6), ("FPE", 8), ("KILL", 9), ("SEGV", 11), ("PIPE", 13), ("TERM", 15)];

/// How a channel ended, as far as it has.
#[derive(Default)]
pub(super) struct End {
    pub(super) status: Option<u32>,
    pub(super) signal: Option<String>,
    eof: bool,
    pub(super) closed: bool,
    pub(super) refused: bool,
}

impl End {
    /// Whether the remote shell is over.
    pub(super) fn over(&self) -> bool {
        self.status.is_some() || self.signal.is_some()
    }

    /// The exit status as a shell sees it: 128 + n where signal n ended it.
    pub(super) fn code(&self) -> Option<i32> {
        match (&self.signal, self.status) {
            (Some(name), _) => Some(128 + NUMBERS.iter().find(|(known, _)| known == name).map_or(0, |(_, number)| *number)),
            (None, status) => status.map(|status| i32::try_from(status).unwrap_or(255)),
        }
    }

    fn words(&self) -> String {
        match (&self.signal, self.status) {
            (Some(signal), _) => format!("its shell was ended by signal {signal}"),
            (None, Some(status)) => format!("its shell ended with status {status}"),
            (None, None) => "its channel was closed".to_owned(),
        }
    }
}

/// What is left of a channel when its work is done.
pub(super) struct Rest {
    pub(super) read: ChannelReadHalf,
    pub(super) write: ChannelWriteHalf<Msg>,
    pub(super) end: End,
    /// Whether what still runs there is killed: by a signal, and by the shell's number where it is known.
    pub(super) kill: bool,
    /// What the shell has said of itself so far; none where it has no number to say.
    pub(super) opening: Option<Opening>,
}

impl Job {
    pub(super) fn deadline(&self) -> Instant {
        self.started + self.timeout
    }

    pub(super) fn late(&self) -> RemoteError {
        RemoteError::Timeout { title: self.title.clone(), after: self.timeout }
    }

    pub(super) fn lost(&self) -> RemoteError {
        link::lost(&self.left)
    }

    pub(super) fn cut_off(&self, end: &End, stderr: &[u8], noise: &[u8]) -> RemoteError {
        let last = |bytes: &[u8]| String::from_utf8_lossy(bytes).lines().rev().map(str::trim).find(|l| !l.is_empty()).map(str::to_owned);
        let said = last(stderr).or_else(|| last(noise)).map(|s| format!(": {s}")).unwrap_or_default();
        // What a restricted shell says of the words that start /bin/sh: another time it says the same.
        if said.ends_with("exec: restricted") {
            return RemoteError::Refused {
                what: format!("the login shell does not run /bin/sh for `{}`{said}", self.title),
                hint:
                    "a restricted shell cannot run ranks: give the ssh user a full one (`chsh -s /bin/bash USER`), or set another ssh.user"
                        .to_owned(),
            };
        }
        RemoteError::CutOff { title: self.title.clone(), what: mask(&format!("{}{said}", end.words()), &self.masks) }
    }

    pub(super) fn no_shell(&self) -> RemoteError {
        RemoteError::Refused {
            what: format!("sshd refused to start /bin/sh for `{}`", self.title),
            hint: "is there a ForceCommand, a command= before the key in authorized_keys, or a login shell like nologin?".to_owned(),
        }
    }

    /// Opens its session, on whichever connection has room.
    pub(super) async fn open(&mut self) -> Result<Channel<Msg>, RemoteError> {
        let (channel, seat) = self.sessions.open(&self.title, self.deadline()).await?;
        (self.dead, self.left, self.cut) = (seat.link.dead.clone(), seat.link.left(), seat.link.cut());
        self.seat = Some(seat);
        Ok(channel)
    }

    /// Runs a script to its end mark; what is left of its channel must be finished then.
    async fn exec(
        &mut self,
        script: String,
        mut sink: Sink,
        unwanted: impl Future<Output = ()>,
    ) -> (Result<Output, RemoteError>, Option<Rest>) {
        let (mut read, write) = match self.open().await {
            Ok(channel) => channel.split(),
            Err(error) => return (Err(error), None),
        };
        let (mut answer, mut end) = (Answer::new(self.frame.clone()), End::default());
        let result = tokio::select! {
            biased;
            () = unwanted => Err(self.late()),
            result = self.collect(&mut read, &mut answer, &mut end, &mut sink) => result,
            error = sending(&write, script) => {
                tracing::debug!(host = %self.host, %error, "a script was not taken to its end");
                self.collect(&mut read, &mut answer, &mut end, &mut sink).await
            }
        };
        let kill = result.is_err() && !end.over();
        let Kept { stdout, stderr } = sink.kept();
        let output = result.map(|code| {
            let dropped = stdout.dropped + stderr.dropped;
            Output { code, stdout: stdout.bytes, stderr: stderr.bytes, dropped, elapsed: self.started.elapsed() }
        });
        (output, Some(Rest { read, write, end, kill, opening: Some(answer.into_opening()) }))
    }

    /// Reads until the answer is whole: its end mark, then its exit status and what else comes within the grace. Gives the script's status.
    async fn collect(&self, read: &mut ChannelReadHalf, answer: &mut Answer, end: &mut End, sink: &mut Sink) -> Result<i32, RemoteError> {
        let mut until = self.deadline();
        loop {
            let done = answer.ended();
            let message = tokio::select! {
                // The time first: a script that never stops talking is late as well. What was received comes before the news of an end.
                biased;
                () = tokio::time::sleep_until(until) => return done.ok_or_else(|| self.late()),
                message = read.wait() => message,
                () = self.dead.cancelled() => None,
                () = sink.unread() => return Err(self.late()),
            };
            let taken = match message.map(|message| note(message, end)) {
                None => return done.ok_or_else(|| self.lost()),
                Some(Said::Out(bytes)) => sink.take(Piece::Out(answer.push(bytes)), self.deadline()).await,
                Some(Said::Err(bytes)) => sink.take(Piece::Err(bytes), self.deadline()).await,
                Some(Said::Nothing) if end.refused => return Err(self.no_shell()),
                Some(Said::Nothing) => true,
            };
            let ended = answer.ended();
            if let Some(code) = ended.filter(|_| end.closed || end.eof && end.over()) {
                return Ok(code);
            }
            if !taken {
                return Err(self.late());
            }
            if end.closed {
                return Err(self.cut_off(end, sink.last_words(), answer.noise()));
            }
            if ended.is_some() && done.is_none() {
                until = Instant::now() + GRACE;
            }
        }
    }

    /// Closes a channel, and goes on reading it until then: one that nobody reads stops its whole connection.
    pub(super) async fn finish(&self, rest: Rest) {
        let Rest { mut read, write, mut end, kill, opening } = rest;
        let shell = match opening {
            Some(opening) if kill => self.introduced(&mut read, opening, &mut end).await,
            _ => None,
        };
        if end.closed {
            return;
        }
        let reading = async {
            while read.wait().await.is_some() {}
            std::future::pending().await
        };
        let closing = async {
            if kill {
                write.signal(Sig::KILL).await?;
                if let Err(error) = self.kill(shell).await {
                    tracing::debug!(host = %self.host, %error, "a script could not be killed by its number");
                }
            }
            write.close().await
        };
        let ended = tokio::select! {
            () = self.dead.cancelled() => return,
            ended = tokio::time::timeout(KILL, closing) => ended,
            () = reading => return,
        };
        match ended {
            Ok(Ok(())) => {}
            Ok(Err(error)) => tracing::debug!(host = %self.host, %error, "a channel was closed already"),
            Err(_) => {
                self.left.why.get_or_init(|| format!("`{}` could not be ended in time", self.title));
                self.cut.cancel();
            }
        }
    }

    /// The number of a shell that is to be killed: one that has just started may not have said it yet.
    async fn introduced(&self, read: &mut ChannelReadHalf, mut opening: Opening, end: &mut End) -> Option<u32> {
        let heard = async {
            while opening.may_introduce() && !end.closed {
                match read.wait().await.map(|message| note(message, end)) {
                    Some(Said::Out(bytes)) => drop(opening.push(&bytes)),
                    Some(Said::Err(_) | Said::Nothing) => {}
                    None => break,
                }
            }
        };
        tokio::select! {
            () = heard => {}
            () = self.dead.cancelled() => {}
            () = tokio::time::sleep(INTRODUCTION) => tracing::debug!(host = %self.host, "a shell that is to be killed has not said its number"),
        }
        opening.shell()
    }

    /// Kills a shell by its number, since sshd delivers no signals to root's sessions.
    async fn kill(&self, shell: Option<u32>) -> Result<(), russh::Error> {
        let Some(shell) = shell else { return Ok(()) };
        let Ok((channel, _seat)) = self.sessions.open("kill a script", Instant::now() + KILL).await else {
            return Err(russh::Error::Disconnect);
        };
        let (mut read, write) = channel.split();
        write.exec(false, format!("exec /bin/sh -c 'kill -9 -{shell}'")).await?;
        while read.wait().await.is_some_and(|message| !matches!(message, ChannelMsg::Close)) {}
        write.close().await
    }
}

/// Starts the shell of a fresh session and hands it a script; its answer is not waited for, that saves a round trip.
pub(super) async fn send(write: &ChannelWriteHalf<Msg>, script: String) -> Result<(), russh::Error> {
    write.exec(true, SHELL).await?;
    write.data_bytes(script.into_bytes()).await
}

/// Hands over a script and says that nothing follows; ends only when that fails.
async fn sending(write: &ChannelWriteHalf<Msg>, script: String) -> russh::Error {
    let sent = async {
        send(write, script).await?;
        write.eof().await
    };
    match sent.await {
        Ok(()) => std::future::pending().await,
        Err(error) => error,
    }
}

/// What a message carried.
pub(super) enum Said {
    Out(Bytes),
    Err(Bytes),
    Nothing,
}

/// Takes note of a message; gives back what was written.
pub(super) fn note(message: ChannelMsg, end: &mut End) -> Said {
    match message {
        ChannelMsg::Data { data } => return Said::Out(data),
        ChannelMsg::ExtendedData { data, ext: 1 } => return Said::Err(data),
        ChannelMsg::ExitStatus { exit_status } => end.status = Some(exit_status),
        ChannelMsg::ExitSignal { signal_name, .. } => end.signal = Some(format!("{signal_name:?}")),
        ChannelMsg::Eof => end.eof = true,
        ChannelMsg::Close => end.closed = true,
        ChannelMsg::Failure => end.refused = true,
        _ => {}
    }
    Said::Nothing
}
