//! Stops and removes a run and its leftovers, and verifies that nothing is left.

use std::collections::BTreeSet;
use std::sync::Arc;
use std::time::Duration;

use crate::event::Outcome;
use crate::lifecycle::error::{WorkflowEnd, WorkflowError, worse_outcome};
use crate::lifecycle::operator::confirm_in_thread;
use crate::lifecycle::recorded_hosts::{RecordedHost, describe_hosts};
use crate::lifecycle::remaining_items::{self, UnremovedItems};
use crate::lifecycle::session::{Session, collect_facts};
use crate::lifecycle::teardown::{self, TeardownOptions};
use crate::plan::display::format_plan;
use crate::plan::existing_run::{HostRunState, host_run_state, running_tasks};
use crate::plan::facts::HostFacts;
use crate::plan::overview::DEFAULT_COLUMNS;
use crate::plan::overview::teardown::format_teardown;
use crate::plan::protocol::run_follower::RunFollower;
use crate::plan::teardown::{TeardownScope, TeardownSpec, plan_teardown};

pub(crate) struct DownRequest {
    /// `--limit`: no other hosts are contacted.
    pub(crate) limited: bool,
    pub(crate) discard_logs: bool,
    pub(crate) kill_at_once: bool,
    pub(crate) lock_wait: Duration,
    /// Take over another operator's lock.
    pub(crate) take_over_lock: bool,
    pub(crate) dry_run: bool,
    /// A dry run prints every script.
    pub(crate) show_scripts: bool,
}

pub(crate) struct DownReport {
    pub(crate) end: WorkflowEnd,
    /// A run of `check --smoke` is on the hosts as well.
    pub(crate) has_smoke_run: bool,
}

pub(crate) async fn tear_down_all(session: &mut Session, request: &DownRequest) -> Result<DownReport, WorkflowError> {
    let (facts, _) = collect_facts(session.gather_facts(None).await);
    let (facts, excluded) = if request.limited { (facts, Vec::new()) } else { include_recorded_hosts(session, facts).await };
    let has_smoke_run = facts.iter().flatten().any(|facts| facts.has_leftover_smoke);
    let unremoved = remaining_items::report_unremoved_items(session, &facts);
    let end = if !facts.iter().flatten().any(HostFacts::has_any_resource) {
        report_nothing_found(session, &facts, unremoved)
    } else if request.dry_run {
        print_teardown_plan(session, &facts, request)
    } else if let Some(followers) = describe_followers(session, &facts)
        && !confirm_over_followers(session, &followers).await
    {
        let command = session.suggest_command("down", "--yes");
        session.notice(format!("{followers}: nothing was changed; `{command}` tears it down all the same"), true);
        WorkflowEnd::new(Outcome::Refused, "nothing was changed")
    } else {
        remove_found(session, request, unremoved, &excluded).await?
    };
    Ok(DownReport { end, has_smoke_run })
}

/// Asks on a terminal, above the progress bars, which would draw over a line without an end; `false` without one.
async fn confirm_over_followers(session: &Session, followers: &str) -> bool {
    if !session.local.console.can_ask() {
        return false;
    }
    session.notice(format!("{followers}. Stop and remove it? [y/N]"), true);
    confirm_in_thread(Arc::clone(&session.local.console), "answer".to_owned()).await
}

/// The followers of the live run that would be torn down; `None`: there are none, or `--yes`.
fn describe_followers(session: &Session, facts: &[Option<HostFacts>]) -> Option<String> {
    let is_live = |facts: &&HostFacts| host_run_state(facts) == HostRunState::Running || !running_tasks(facts).is_empty();
    let live: Vec<&HostFacts> = facts.iter().flatten().filter(is_live).collect();
    let identity = &session.local.identity;
    let is_present = |follower: &&RunFollower| follower.is_present(&identity.local_machine_id, identity.is_process_alive);
    let present = live.iter().flat_map(|facts| &facts.followers).filter(is_present);
    let owners: BTreeSet<&str> = present.map(|follower| follower.owner.as_str()).collect();
    if session.local.assume_yes || owners.is_empty() {
        return None;
    }
    let names: Vec<&str> = owners.into_iter().collect();
    let (name, all) = (&session.inventory.name, names.join(", "));
    Some(if names.len() == 1 { format!("{all} follows the live run of {name}") } else { format!("{all} follow the live run of {name}") })
}

/// The hosts that answered hold nothing that a teardown removes.
fn report_nothing_found(session: &Session, facts: &[Option<HostFacts>], unremoved: UnremovedItems) -> WorkflowEnd {
    let has_unlistable = remaining_items::report_unlistable_containers(session, facts);
    let lost: Vec<usize> = facts.iter().enumerate().filter(|(_, facts)| facts.is_none()).map(|(host, _)| host).collect();
    for host in &lost {
        teardown::report_unchecked(session, *host);
    }
    let name = &session.inventory.name;
    match (has_unlistable || !lost.is_empty(), unremoved) {
        (true, UnremovedItems::None) if !has_unlistable && lost.len() < facts.len() => {
            let reason =
                format!("no run, container or process of `{name}` is on the hosts that answered: run this again when the others answer");
            WorkflowEnd::new(Outcome::Leftovers, reason)
        }
        (true, _) => WorkflowEnd::new(Outcome::Leftovers, "not all hosts could be checked: run this again when they answer"),
        (false, UnremovedItems::OwnElsewhere) => WorkflowEnd::new(Outcome::Leftovers, ""),
        (false, UnremovedItems::OtherUsers) => WorkflowEnd::new(
            Outcome::Ok,
            format!("no run, container or process of `{name}` is on any host, except what belongs to other users"),
        ),
        (false, UnremovedItems::None) => WorkflowEnd::new(Outcome::Ok, format!("no run, container or process of `{name}` is on any host")),
    }
}

fn print_teardown_plan(session: &Session, facts: &[Option<HostFacts>], request: &DownRequest) -> WorkflowEnd {
    let spec = TeardownSpec { scope: TeardownScope::Everything, grace: None, fetch_logs: !request.discard_logs };
    let plan = plan_teardown(session.host_contexts(facts, None), facts, spec);
    let console = &session.local.console;
    let columns = console.columns().map_or(DEFAULT_COLUMNS, usize::from);
    console.print_stdout(&if request.show_scripts {
        format_plan(&plan, None, false)
    } else {
        format_teardown(&plan, facts, session.reporter.lang(), columns)
    });
    WorkflowEnd::new(Outcome::Ok, "nothing was changed")
}

async fn remove_found(
    session: &mut Session,
    request: &DownRequest,
    unremoved: UnremovedItems,
    excluded: &[RecordedHost],
) -> Result<WorkflowEnd, WorkflowError> {
    let options = TeardownOptions {
        scope: TeardownScope::Everything,
        kill_at_once: request.kill_at_once,
        fetch_logs: !request.discard_logs,
        grace: None,
    };
    let torn_down = teardown::lock_and_tear_down(session, options, request.lock_wait, request.take_over_lock).await?;
    let mut outcome = torn_down.outcome;
    if unremoved == UnremovedItems::OwnElsewhere {
        outcome = worse_outcome(Outcome::Leftovers, outcome);
    }
    if !excluded.is_empty() {
        let names = describe_hosts(excluded);
        let text = format!(
            "not contacted, because only the run's record named them: {names}; add them to the inventory, then run `orchestrate down`, or run `orchestrate down --yes`"
        );
        session.notice(text, true);
        let outcome = worse_outcome(Outcome::Leftovers, outcome);
        return Ok(WorkflowEnd::new(outcome, "hosts that only the run's record names were not contacted"));
    }
    let reason = match (&outcome, unremoved) {
        (Outcome::Ok, UnremovedItems::OtherUsers) => "nothing is left, except what belongs to other users",
        (Outcome::Ok, _) if session.inventory.has_tasks() => "nothing is left, except files that tasks wrote on the hosts",
        (Outcome::Ok, _) => "nothing is left",
        (Outcome::Leftovers, UnremovedItems::None) if torn_down.reached == Outcome::Ok => {
            "nothing is left on the hosts that answered: run this again when the others do"
        }
        _ => "",
    };
    Ok(WorkflowEnd::new(outcome, reason))
}

/// Adds hosts to the session that hold parts of the run but are not in the inventory: inventory hosts under an earlier name, and other hosts if
/// the user agrees. Returns the facts of all hosts, and the hosts that the user excluded.
async fn include_recorded_hosts(session: &mut Session, facts: Vec<Option<HostFacts>>) -> (Vec<Option<HostFacts>>, Vec<RecordedHost>) {
    let (mut facts, mut excluded) = (facts, Vec::<RecordedHost>::new());
    // A record on an added host may name further hosts.
    for _ in 0..3 {
        let mut recorded = session.recorded_hosts(&facts);
        recorded.retain(|host| !excluded.iter().any(|known| known.host.name == host.host.name));
        let (mut added, others): (Vec<_>, Vec<_>) = recorded.into_iter().partition(|host| session.is_renamed(host));
        let renamed = session.renamed_hosts(&facts);
        added.extend(renamed.into_iter().filter(|host| !others.iter().any(|other| other.host.name == host.host.name)));
        added.dedup_by(|a, b| a.host.name == b.host.name);
        if !added.is_empty() {
            session.notice(format!("also under names that are not in the inventory: {}", describe_hosts(&added)), false);
        }
        if !others.is_empty() && session.confirm_reaching_hosts(&others) {
            added.extend(others);
        } else {
            excluded.extend(others);
        }
        if added.is_empty() {
            break;
        }
        session.add_recorded_hosts(added);
        session.announce_hosts();
        facts = collect_facts(session.gather_facts(None).await).0;
    }
    (facts, excluded)
}
