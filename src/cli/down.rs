//! `down`: fetches what this laptop lacks, then stops and removes everything of a name, and verifies it.

use std::path::PathBuf;

use crate::cli::args::{DownArgs, ProgressMode};
use crate::cli::exit::{CliError, worse_outcome};
use crate::cli::local_env::{hide_known_secrets, print_stderr, print_stdout};
use crate::cli::remaining_items::{self, RemainingItems};
use crate::cli::reporter_task::OutputOptions;
use crate::cli::session::{LoadMode, RecordedHost, Session, collect_facts, load_inventory};
use crate::cli::teardown::{self, TeardownOptions};
use crate::event::Outcome;
use crate::inventory::Inventory;
use crate::inventory::smoke_test::SmokeTest;
use crate::plan::facts::HostFacts;
use crate::plan::teardown::{TeardownScope, TeardownSpec, plan_teardown};
use crate::report::log_filter::LogSelection;

/// Runs it.
///
/// # Errors
/// What must be said to the person.
pub async fn run(args: &DownArgs) -> Result<Outcome, CliError> {
    if args.common.progress == ProgressMode::Tui {
        return Err(CliError::Usage("--progress tui: for `up` and `attach`; `down` shows bars or lines".to_owned()));
    }
    let (inventory, base) = load_inventory(&args.common, LoadMode::ConnectionOnly)?;
    let (outcome, smoke) = tear_down_name(args, inventory.clone(), base.clone()).await?;
    if !smoke {
        return Ok(outcome);
    }
    // A `check --smoke` that was killed leaves a run of its own.
    let own = inventory.smoke_test_inventory(&SmokeTest { command: &[], port: None, nproc: None });
    Ok(worse_outcome(tear_down_name(args, own, base).await?.0, outcome))
}

/// Clears one name away; whether a smoke of it is there.
async fn tear_down_name(args: &DownArgs, inventory: Inventory, base: PathBuf) -> Result<(Outcome, bool), CliError> {
    let secrets = hide_known_secrets(&inventory);
    let faces = OutputOptions { progress: args.common.progress, logs: LogSelection::None, logs_to_stdout: false };
    let mut session = Session::open("down", &args.common, inventory, base, faces, &secrets)?;
    session.emit_run_started("", None);
    let again = session.suggest_command("down", "");
    // A terminal that goes away does not break a teardown off.
    let _hangup = tokio::signal::unix::signal(tokio::signal::unix::SignalKind::hangup()).map_err(anyhow::Error::from)?;
    let mut smoke = false;
    let ended = tokio::select! {
        ended = tear_down_session(&mut session, args, &mut smoke) => ended?,
        number = wait_for_interrupt() => {
            print_stderr(&format!("interrupted; to finish:\n    {again}"));
            return Ok((Outcome::Signal(number), false));
        }
    };
    if args.dry_run {
        print_stderr(&ended.1);
    }
    Ok((session.finish(ended.0, &ended.1, !args.dry_run).await.0, smoke))
}

/// The number of the first signal that asks this process to end.
async fn wait_for_interrupt() -> i32 {
    use tokio::signal::unix::{SignalKind, signal};
    let (Ok(mut interrupt), Ok(mut terminate)) = (signal(SignalKind::interrupt()), signal(SignalKind::terminate())) else {
        return std::future::pending().await;
    };
    tokio::select! {
        _ = interrupt.recv() => 2,
        _ = terminate.recv() => 15,
    }
}

pub(super) async fn tear_down_session(session: &mut Session, args: &DownArgs, smoke: &mut bool) -> Result<(Outcome, String), CliError> {
    let (facts, _) = collect_facts(session, session.gather_facts(None).await);
    let (facts, left_out) = if args.common.limit.is_none() { include_recorded_hosts(session, facts).await } else { (facts, Vec::new()) };
    *smoke = facts.iter().flatten().any(|facts| facts.has_leftover_smoke);
    let others = remaining_items::report_remaining_items(session, &facts);
    let found = facts.iter().flatten().any(HostFacts::has_any_resource);
    if !found {
        let mut blind = remaining_items::report_unlistable_containers(session, &facts);
        for (host, _) in facts.iter().enumerate().filter(|(_, f)| f.is_none()) {
            teardown::report_leftover(session, host, teardown::UNREACHABLE_LEFTOVER.to_owned());
            blind = true;
        }
        return Ok(match (blind, others) {
            (true, _) => (Outcome::Leftovers, "some hosts could not be looked at".to_owned()),
            (false, RemainingItems::OwnElsewhere) => (Outcome::Leftovers, String::new()),
            (false, RemainingItems::OtherUsers) => {
                (Outcome::Ok, format!("nothing of {} is on any host but what belongs to others", session.inventory.name))
            }
            (false, RemainingItems::None) => (Outcome::Ok, format!("nothing of {} is on any host", session.inventory.name)),
        });
    }
    if args.dry_run {
        let manner = TeardownSpec { scope: TeardownScope::Everything, grace: None, fetch_logs: !args.discard_logs };
        let plan = plan_teardown(session.host_contexts(&facts, None), &facts, manner);
        print_stdout(&crate::plan::display::format_plan(&plan, None, false));
        return Ok((Outcome::Ok, "nothing was changed".to_owned()));
    }
    let way = TeardownOptions { scope: TeardownScope::Everything, kill_at_once: args.kill, fetch_logs: !args.discard_logs, grace: None };
    let mut outcome = teardown::lock_and_tear_down(session, way, args.lock_wait, args.common.yes).await?;
    if others == RemainingItems::OwnElsewhere {
        outcome = worse_outcome(Outcome::Leftovers, outcome);
    }
    if !left_out.is_empty() {
        let names = left_out.iter().map(RecordedHost::describe).collect::<Vec<_>>().join(", ");
        let text = format!(
            "not reached, since only the run's record named them: {names}; put them into the inventory then `orchestrate down`; `orchestrate down --yes` reaches them at once"
        );
        session.engine.emitter().send_notice(None, text, true);
        return Ok((worse_outcome(Outcome::Leftovers, outcome), "hosts that only the run's record names were not reached".to_owned()));
    }
    let why = match (&outcome, others) {
        (Outcome::Ok, RemainingItems::OtherUsers) => "nothing is left but what belongs to others",
        (Outcome::Ok, _) => "nothing is left",
        _ => "",
    };
    Ok((outcome, why.to_owned()))
}

/// Makes those hosts part of this operation on which the name is, though the inventory does not name them: under another name of a host of the
/// inventory, or, where the person lets them be reached, at another place. With the facts of all, and the hosts that were not to be reached.
async fn include_recorded_hosts(session: &mut Session, facts: Vec<Option<HostFacts>>) -> (Vec<Option<HostFacts>>, Vec<RecordedHost>) {
    let (mut facts, mut left_out) = (facts, Vec::<RecordedHost>::new());
    // What is found at one place may name another.
    for _ in 0..3 {
        let mut recorded = session.recorded_hosts(&facts);
        recorded.retain(|host| !left_out.iter().any(|left| left.host.name == host.host.name));
        let (mut more, others): (Vec<_>, Vec<_>) = recorded.into_iter().partition(|host| session.is_renamed(host));
        let shown = session.renamed_hosts(&facts);
        more.extend(shown.into_iter().filter(|host| !others.iter().any(|other| other.host.name == host.host.name)));
        more.dedup_by(|a, b| a.host.name == b.host.name);
        if !more.is_empty() {
            let names = more.iter().map(RecordedHost::describe).collect::<Vec<_>>().join(", ");
            session.engine.emitter().send_notice(None, format!("also under names that are not in the inventory: {names}"), false);
        }
        if !others.is_empty() && session.confirm_reaching_hosts(&others) {
            more.extend(others);
        } else {
            left_out.extend(others);
        }
        if more.is_empty() {
            break;
        }
        session.add_hosts(more);
        session.emit_run_started("", None);
        facts = collect_facts(session, session.gather_facts(None).await).0;
    }
    (facts, left_out)
}
