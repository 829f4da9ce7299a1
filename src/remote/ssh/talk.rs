//! A talk's life: a terminal where one is wanted, the program, then bytes both ways until it ends.
//!
//! Uses `session`. Nothing is framed: what the person types is the program's, and what it writes is theirs.

use russh::client::Msg;
use russh::{ChannelMsg, ChannelReadHalf, ChannelWriteHalf};
use tokio::sync::{mpsc, oneshot};
use tokio::time::Instant;

use super::session::{End, Job, Rest, Said, note};
use crate::remote::{Piece, RemoteError, Terminal, Told};

type Started = oneshot::Sender<Result<(), RemoteError>>;

/// What is waited for before it has started.
struct Start {
    started: Option<Started>,
    /// The answers to come: one for the terminal, one for the program.
    answers: usize,
    terminal: bool,
}

impl Job {
    /// Runs a talk to its end; how the program ended. `started` hears whether it began.
    pub(super) async fn talk(
        &mut self,
        line: String,
        terminal: Option<Terminal>,
        output: mpsc::Sender<Piece>,
        input: mpsc::Receiver<Told>,
        started: Started,
    ) -> Result<i32, RemoteError> {
        let (mut read, write) = match self.open().await {
            Ok(channel) => channel.split(),
            Err(error) => {
                tell(started, Err(error.clone()));
                return Err(error);
            }
        };
        let mut end = End::default();
        let answers = 1 + usize::from(terminal.is_some());
        let mut start = Start { started: Some(started), answers, terminal: terminal.is_some() };
        let how = tokio::select! {
            how = self.listen(&mut read, &mut end, &mut start, &output) => how,
            () = say(&write, line, terminal, input) => Err(self.cut_off(&End::default(), &[], &[])),
        };
        if let (Some(started), Err(error)) = (start.started.take(), &how) {
            tell(started, Err(error.clone()));
        }
        let kill = !end.over();
        self.finish(Rest { read, write, end, kill, opening: None }).await;
        how
    }

    /// Hands over what comes until the channel is closed, or nobody takes it any more.
    async fn listen(
        &self,
        read: &mut ChannelReadHalf,
        end: &mut End,
        start: &mut Start,
        output: &mpsc::Sender<Piece>,
    ) -> Result<i32, RemoteError> {
        loop {
            let begun = start.started.is_none();
            let message = tokio::select! {
                biased;
                message = read.wait() => message,
                () = self.dead.cancelled() => None,
                () = output.closed() => return Err(self.cut_off(end, &[], &[])),
                () = sleep_until((!begun).then(|| self.deadline())) => return Err(self.late()),
            };
            let message = message.ok_or_else(|| self.lost())?;
            if let ChannelMsg::Success = message {
                start.answers = start.answers.saturating_sub(1);
                if start.answers == 0
                    && let Some(started) = start.started.take()
                {
                    tell(started, Ok(()));
                }
            }
            let piece = match note(message, end) {
                Said::Out(bytes) => Piece::Out(bytes),
                Said::Err(bytes) => Piece::Err(bytes),
                Said::Nothing if end.refused && !begun => return Err(self.refusal(start)),
                Said::Nothing if end.closed => return end.code().ok_or_else(|| self.cut_off(end, &[], &[])),
                Said::Nothing => continue,
            };
            if output.send(piece).await.is_err() {
                return Err(self.cut_off(end, &[], &[]));
            }
        }
    }

    /// What was refused: the terminal is asked for first.
    fn refusal(&self, start: &Start) -> RemoteError {
        if start.terminal && start.answers == 2 {
            return RemoteError::Refused {
                what: "sshd gives this user no terminal".to_owned(),
                hint:
                    "sshd_config needs PermitTTY yes, and the key no `no-pty` in authorized_keys; `| cat` behind the command asks for none"
                        .to_owned(),
            };
        }
        self.no_shell()
    }
}

async fn sleep_until(when: Option<Instant>) {
    match when {
        Some(when) => tokio::time::sleep_until(when).await,
        None => std::future::pending().await,
    }
}

/// Asks for the terminal and the program, then passes on what is told; ends when nobody is there to tell anything.
async fn say(write: &ChannelWriteHalf<Msg>, line: String, terminal: Option<Terminal>, mut input: mpsc::Receiver<Told>) {
    let begin = async {
        if let Some(Terminal { term, columns, rows }) = terminal {
            write.request_pty(true, &term, columns.into(), rows.into(), 0, 0, &[]).await?;
        }
        write.exec(true, line).await
    };
    if let Err(error) = begin.await {
        tracing::debug!(%error, "a talk was not begun");
        return;
    }
    while let Some(told) = input.recv().await {
        let said = match told {
            Told::Bytes(bytes) => write.data_bytes(bytes).await,
            Told::Size(columns, rows) => write.window_change(columns.into(), rows.into(), 0, 0).await,
            Told::End => write.eof().await,
        };
        if let Err(error) = said {
            tracing::debug!(%error, "a talk takes no more");
            // Its output may still come.
            input.close();
            std::future::pending::<()>().await;
        }
    }
}

fn tell(started: Started, how: Result<(), RemoteError>) {
    if started.send(how).is_err() {
        tracing::debug!("nobody waits for this talk any more");
    }
}
