//! What the person at the dashboard decides before a launch and after the end of a run.

use crate::cli::args::UpArgs;
use crate::cli::exit::{CliError, worse_outcome};
use crate::cli::launch_request::LaunchRequest;
use crate::cli::session::{Session, report_issues};
use crate::cli::signals::StopController;
use crate::cli::teardown::{self, TeardownOptions};
use crate::event::{Outcome, RunControl};
use crate::inventory::Job;
use crate::plan::build::{self, LaunchInputs};
use crate::plan::existing_run::{ExistingRun, facts_after_stop};
use crate::plan::facts::HostFacts;
use crate::plan::teardown::TeardownScope;
use crate::tui::feed::Capabilities;

/// What the person wants.
enum Decision {
    Start,
    TearDown,
    Leave,
}

/// Waits for the person's word.
async fn wait_for_decision(signals: &mut StopController) -> Decision {
    let (go, leave) = (signals.start_requested.clone(), signals.leave_token.clone());
    tokio::select! {
        () = go.notified() => Decision::Start,
        () = leave.cancelled() => Decision::Leave,
        control = signals.controls.recv() => if control == Some(RunControl::Teardown) { Decision::TearDown } else { Decision::Leave },
    }
}

/// Shows the plan and waits for the word to start it; then all is looked at anew.
#[expect(clippy::too_many_arguments, reason = "one call, and each is a thing of its own")]
pub(super) async fn confirm_plan(
    session: &mut Session,
    args: &UpArgs,
    job: &Job,
    texts: &[(String, String)],
    facts: &[HostFacts],
    wish: &mut LaunchRequest,
    found: &ExistingRun,
    signals: &mut StopController,
) -> Result<Option<(Outcome, String)>, CliError> {
    let mut ids = wish.run_identity.clone();
    ids.lock_token = None;
    let facts = &facts_after_stop(facts);
    let plan = match build::plan_launch(LaunchInputs {
        inventory: &session.inventory,
        job,
        facts,
        config_texts: texts,
        identity: &ids,
        secrets: &wish.secrets,
        registry_passwords: &[],
        check_summaries: &[],
    }) {
        Ok(plan) => plan,
        Err(troubles) => {
            wish.confirmed = true;
            return Ok(Some((report_issues(session, &troubles), "nothing was changed".to_owned())));
        }
    };
    session.emit_run_started("", Some(&plan));
    let clear = *found != ExistingRun::NoRun;
    session.reporter.set_capabilities(Capabilities {
        start_summary: Some(describe(found)),
        can_tear_down: clear,
        ..Capabilities::view_only(signals.dashboard_role())
    });
    let word = wait_for_decision(signals).await;
    session.reporter.set_capabilities(Capabilities::view_only(signals.dashboard_role()));
    match word {
        Decision::Start => {
            if let Some(lacks) = wish.launch_error.take() {
                return Err(lacks);
            }
            wish.confirmed = true;
            session.emit_run_started("", None);
            Ok(None)
        }
        Decision::TearDown => {
            wish.confirmed = true;
            tear_down(session, args).await.map(|outcome| Some((outcome, "torn down".to_owned())))
        }
        Decision::Leave => {
            let outcome = signals.first_signal().map_or(Outcome::Ok, Outcome::Signal);
            Ok(Some((outcome, "nothing was changed".to_owned())))
        }
    }
}

/// What happened can be looked at until the person leaves, launches again, or tears down what is kept; how it ended, and whether it is to be
/// launched again.
pub(super) async fn after_run(
    session: &mut Session,
    args: &UpArgs,
    wish: &mut LaunchRequest,
    signals: &mut StopController,
    mut outcome: Outcome,
) -> Result<(Outcome, bool), CliError> {
    loop {
        let start =
            wish.launch_error.is_none().then(|| "the run is over: the same would be launched again, as a run of its own".to_owned());
        session.reporter.set_capabilities(Capabilities {
            start_summary: start,
            can_tear_down: true,
            ..Capabilities::view_only(signals.dashboard_role())
        });
        let word = wait_for_decision(signals).await;
        session.reporter.set_capabilities(Capabilities::view_only(signals.dashboard_role()));
        match word {
            Decision::Start => return Ok((outcome, true)),
            Decision::Leave => return Ok((outcome, false)),
            Decision::TearDown => {
                let undone = tear_down(session, args).await?;
                outcome = worse_outcome(outcome, undone);
                session.emit_run_finished(&outcome, "torn down");
            }
        }
    }
}

/// Everything of this name goes; the person has typed it.
async fn tear_down(session: &mut Session, args: &UpArgs) -> Result<Outcome, CliError> {
    let way = TeardownOptions { scope: TeardownScope::Everything, kill_at_once: false, fetch_logs: true, grace: None };
    teardown::lock_and_tear_down(session, way, args.lock_wait, true).await
}

/// What a launch would do to what is there.
pub(super) fn describe(found: &ExistingRun) -> String {
    match found {
        ExistingRun::NoRun => "nothing of this name is there: it would be launched".to_owned(),
        ExistingRun::Ended { run_id: run } => format!("{run} has ended: its logs would be fetched, then a new run launched"),
        ExistingRun::Partial { reason: why } => format!("a partial gang ({why}): it would be stopped, then a new run launched"),
        ExistingRun::Live { run_id: run, .. } => format!("{run} runs: it would be stopped, then a new run launched"),
    }
}
