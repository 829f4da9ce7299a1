//! What the person at the dashboard decides before a launch and after the end of a run.

use crate::cli::args::UpArgs;
use crate::cli::exit::{Failure, worse};
use crate::cli::session::Session;
use crate::cli::signals::Signals;
use crate::cli::undo::{self, Way};
use crate::cli::up::{Wish, tell};
use crate::event::{Control, Outcome};
use crate::inventory::Job;
use crate::plan::build::{self, Terms};
use crate::plan::facts::HostFacts;
use crate::plan::situation::{Situation, when_stopped};
use crate::plan::teardown::Depth;
use crate::tui::feed::Offer;

/// What the person wants.
enum Word {
    Start,
    TearDown,
    Leave,
}

/// Waits for the person's word.
async fn word(signals: &mut Signals) -> Word {
    let (go, leave) = (signals.go.clone(), signals.leave.clone());
    tokio::select! {
        () = go.notified() => Word::Start,
        () = leave.cancelled() => Word::Leave,
        control = signals.controls.recv() => if control == Some(Control::Teardown) { Word::TearDown } else { Word::Leave },
    }
}

/// Shows the plan and waits for the word to start it; then all is looked at anew.
#[expect(clippy::too_many_arguments, reason = "one call, and each is a thing of its own")]
pub(super) async fn asked(
    session: &mut Session,
    args: &UpArgs,
    job: &Job,
    texts: &[(String, String)],
    facts: &[HostFacts],
    wish: &mut Wish,
    found: &Situation,
    signals: &mut Signals,
) -> Result<Option<(Outcome, String)>, Failure> {
    let mut ids = wish.ids.clone();
    ids.token = None;
    let facts = &when_stopped(facts);
    let plan = match build::launch(Terms {
        inventory: &session.inventory,
        job,
        facts,
        texts,
        ids: &ids,
        secrets: &wish.secrets,
        passwords: &[],
        checks: &[],
    }) {
        Ok(plan) => plan,
        Err(troubles) => {
            wish.asked = true;
            return Ok(Some((tell(session, &troubles), "nothing was changed".to_owned())));
        }
    };
    session.begin("", Some(&plan));
    let clear = *found != Situation::Nothing;
    session.desk.offer(Offer { start: Some(would(found)), clear, ..Offer::of(signals.role()) });
    let word = word(signals).await;
    session.desk.offer(Offer::of(signals.role()));
    match word {
        Word::Start => {
            if let Some(lacks) = wish.lacks.take() {
                return Err(lacks);
            }
            wish.asked = true;
            session.begin("", None);
            Ok(None)
        }
        Word::TearDown => {
            wish.asked = true;
            tear_down(session, args).await.map(|outcome| Some((outcome, "torn down".to_owned())))
        }
        Word::Leave => {
            let outcome = signals.came().map_or(Outcome::Ok, Outcome::Signal);
            Ok(Some((outcome, "nothing was changed".to_owned())))
        }
    }
}

/// What happened can be looked at until the person leaves, launches again, or tears down what is kept; how it ended, and whether it is to be
/// launched again.
pub(super) async fn afterwards(
    session: &mut Session,
    args: &UpArgs,
    wish: &mut Wish,
    signals: &mut Signals,
    mut outcome: Outcome,
) -> Result<(Outcome, bool), Failure> {
    loop {
        let start = wish.lacks.is_none().then(|| "the run is over: the same would be launched again, as a run of its own".to_owned());
        session.desk.offer(Offer { start, clear: true, ..Offer::of(signals.role()) });
        let word = word(signals).await;
        session.desk.offer(Offer::of(signals.role()));
        match word {
            Word::Start => return Ok((outcome, true)),
            Word::Leave => return Ok((outcome, false)),
            Word::TearDown => {
                let undone = tear_down(session, args).await?;
                outcome = worse(outcome, undone);
                session.conclude(&outcome, "torn down");
            }
        }
    }
}

/// Everything of this name goes; the person has typed it.
async fn tear_down(session: &mut Session, args: &UpArgs) -> Result<Outcome, Failure> {
    let way = Way { depth: Depth::All, kill: false, fetch: true, grace: None };
    undo::locked(session, way, args.lock_wait, true).await
}

/// What a launch would do to what is there.
pub(super) fn would(found: &Situation) -> String {
    match found {
        Situation::Nothing => "nothing of this name is there: it would be launched".to_owned(),
        Situation::Ended { run } => format!("{run} has ended: its logs would be fetched, then a new run launched"),
        Situation::Partial { why } => format!("a partial gang ({why}): it would be stopped, then a new run launched"),
        Situation::Live { run, .. } => format!("{run} runs: it would be stopped, then a new run launched"),
    }
}
