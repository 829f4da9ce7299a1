//! Looks out for a run that hangs while it is followed: tells it as an event, and stops the gang where the inventory says so.

use tokio::sync::mpsc;

use crate::cli::session::Session;
use crate::cli::signals::Signals;
use crate::diagnose::hang::{Terms, Verdict, judge, same};
use crate::engine::emit::Emitter;
use crate::engine::follow::{Finish, Run};
use crate::engine::watch::Offsets;
use crate::event::{Control, EventKind, Hang, Millis};
use crate::plan::run::RunFile;
use crate::report::finding;
use crate::report::sanitize::Cleaner;
use crate::state::RunState;

/// How often it is judged, milliseconds.
const EACH: i64 = 1000;
/// Who looks again after so long was asleep, and knows no silence of that time.
const ASLEEP: i64 = 20_000;

/// One who looks out.
pub struct Watch {
    terms: Terms,
    emit: Emitter,
    /// Who is told to stop the gang; none where it is only warned of.
    stop: Option<mpsc::WeakSender<Control>>,
    looked: Millis,
    heard: Millis,
}

impl Watch {
    /// Looks at what is known; `deaf`: what the ranks write is not taken in.
    pub fn look(&mut self, state: &RunState, now: Millis, deaf: bool) {
        if deaf {
            (self.looked, self.heard) = (now, now);
            return;
        }
        if now - self.looked < EACH && now >= self.looked {
            return;
        }
        if now - self.looked > ASLEEP || now < self.looked {
            self.heard = now;
        }
        self.looked = now;
        match (judge(state, self.terms, self.heard, now), &state.hang) {
            (Verdict::Hangs(hang), old) if old.as_ref().is_none_or(|(old, _)| !same(old, &hang)) => self.tell(state, hang, now),
            (Verdict::Fine, Some((_, told))) if moved(state, *told) => self.emit.send(EventKind::HangOver),
            _ => {}
        }
    }

    fn tell(&mut self, state: &RunState, hang: Hang, now: Millis) {
        // Who shows it masks what must not be shown.
        let why = format!("the run seems to hang: {}", finding::hang(&hang, now, state, &Cleaner::default()));
        self.emit.send(EventKind::Hang(hang));
        let Some(orders) = self.stop.take().and_then(|orders| orders.upgrade()) else { return };
        if orders.try_send(Control::Stop { why }).is_err() {
            tracing::debug!("nobody follows the run any more");
        }
    }
}

/// Whether anything of the run has moved since `told`: a host that was lost in between, or a look that saw a GPU rest, is no all-clear.
fn moved(state: &RunState, told: Millis) -> bool {
    let later = |at: Option<Millis>| at.is_some_and(|at| at > told);
    state.pace.spoke > told
        || later(state.ready)
        || state.ranks.values().any(|rank| later(rank.started) || rank.exit.is_some() && rank.when > told)
}

/// What a run says of its own hangs.
pub fn terms_of(file: &RunFile) -> (Terms, bool) {
    let after = file.hang_after.map(|after| i64::try_from(after).unwrap_or(i64::MAX));
    (Terms { after, marked: file.ready_when.is_some() }, file.stop_hung)
}

/// Follows a run to its end and looks out meanwhile.
pub async fn follow(session: &Session, run: &Run, offsets: &Offsets, signals: &mut Signals, (terms, stop): (Terms, bool)) -> Finish {
    let now = crate::engine::emit::now();
    let watch = Watch {
        terms,
        emit: session.engine.emitter().clone(),
        stop: Some(signals.orders.clone()).filter(|_| stop && !run.only_look),
        looked: now,
        heard: now,
    };
    // Who only reads logs sees no GPU, and could not judge.
    session.desk.watch(Some(watch).filter(|_| !run.until_running && !run.only_look));
    let finish = session.engine.follow(run, offsets, &mut signals.controls).await;
    session.desk.watch(None);
    finish
}
