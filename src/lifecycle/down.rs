//! Stops and removes everything of a name, and verifies it.

use std::time::Duration;

use crate::event::Outcome;
use crate::lifecycle::error::{WorkflowEnd, WorkflowError, worse_outcome};
use crate::lifecycle::recorded_hosts::{RecordedHost, describe_hosts};
use crate::lifecycle::remaining_items::{self, UnremovedItems};
use crate::lifecycle::session::{Session, collect_facts};
use crate::lifecycle::teardown::{self, TeardownOptions};
use crate::plan::facts::HostFacts;
use crate::plan::teardown::{TeardownScope, TeardownSpec, plan_teardown};

/// What a person asks of `down`.
pub(crate) struct DownRequest {
    /// Only some hosts of the inventory: no others are reached.
    pub(crate) limited: bool,
    pub(crate) discard_logs: bool,
    pub(crate) kill_at_once: bool,
    pub(crate) lock_wait: Duration,
    /// A lock that another operator holds is taken over.
    pub(crate) take_over_lock: bool,
    pub(crate) dry_run: bool,
}

/// What `down` did.
pub(crate) struct DownReport {
    pub(crate) end: WorkflowEnd,
    /// A run of `check --smoke` is on the hosts.
    pub(crate) has_smoke_run: bool,
}

/// Stops and removes everything of a name.
pub(crate) async fn tear_down_all(session: &mut Session, request: &DownRequest) -> Result<DownReport, WorkflowError> {
    let (facts, _) = collect_facts(session, session.gather_facts(None).await);
    let (facts, left_out) = if request.limited { (facts, Vec::new()) } else { include_recorded_hosts(session, facts).await };
    let has_smoke_run = facts.iter().flatten().any(|facts| facts.has_leftover_smoke);
    let others = remaining_items::report_unremoved_items(session, &facts);
    let end = if !facts.iter().flatten().any(HostFacts::has_any_resource) {
        report_nothing_found(session, &facts, others)
    } else if request.dry_run {
        print_teardown_plan(session, &facts, request)
    } else {
        remove_found(session, request, others, &left_out).await?
    };
    Ok(DownReport { end, has_smoke_run })
}

/// Nothing that a teardown removes is on the hosts that answered.
fn report_nothing_found(session: &Session, facts: &[Option<HostFacts>], others: UnremovedItems) -> WorkflowEnd {
    let mut blind = remaining_items::report_unlistable_containers(session, facts);
    for (host, _) in facts.iter().enumerate().filter(|(_, f)| f.is_none()) {
        teardown::report_leftover(session, host, teardown::UNREACHABLE_LEFTOVER.to_owned());
        blind = true;
    }
    let name = &session.inventory.name;
    match (blind, others) {
        (true, _) => WorkflowEnd::new(Outcome::Leftovers, "some hosts could not be looked at"),
        (false, UnremovedItems::OwnElsewhere) => WorkflowEnd::new(Outcome::Leftovers, ""),
        (false, UnremovedItems::OtherUsers) => {
            WorkflowEnd::new(Outcome::Ok, format!("nothing of {name} is on any host but what belongs to others"))
        }
        (false, UnremovedItems::None) => WorkflowEnd::new(Outcome::Ok, format!("nothing of {name} is on any host")),
    }
}

fn print_teardown_plan(session: &Session, facts: &[Option<HostFacts>], request: &DownRequest) -> WorkflowEnd {
    let spec = TeardownSpec { scope: TeardownScope::Everything, grace: None, fetch_logs: !request.discard_logs };
    let plan = plan_teardown(session.host_contexts(facts, None), facts, spec);
    session.local.console.print_stdout(&crate::plan::display::format_plan(&plan, None, false));
    WorkflowEnd::new(Outcome::Ok, "nothing was changed")
}

async fn remove_found(
    session: &mut Session,
    request: &DownRequest,
    others: UnremovedItems,
    left_out: &[RecordedHost],
) -> Result<WorkflowEnd, WorkflowError> {
    let options = TeardownOptions {
        scope: TeardownScope::Everything,
        kill_at_once: request.kill_at_once,
        fetch_logs: !request.discard_logs,
        grace: None,
    };
    let mut outcome = teardown::lock_and_tear_down(session, options, request.lock_wait, request.take_over_lock).await?;
    if others == UnremovedItems::OwnElsewhere {
        outcome = worse_outcome(Outcome::Leftovers, outcome);
    }
    if !left_out.is_empty() {
        let names = describe_hosts(left_out);
        let text = format!(
            "not reached, since only the run's record named them: {names}; put them into the inventory then `orchestrate down`; `orchestrate down --yes` reaches them at once"
        );
        session.notice(text, true);
        let outcome = worse_outcome(Outcome::Leftovers, outcome);
        return Ok(WorkflowEnd::new(outcome, "hosts that only the run's record names were not reached"));
    }
    let reason = match (&outcome, others) {
        (Outcome::Ok, UnremovedItems::OtherUsers) => "nothing is left but what belongs to others",
        (Outcome::Ok, _) => "nothing is left",
        _ => "",
    };
    Ok(WorkflowEnd::new(outcome, reason))
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
            session.notice(format!("also under names that are not in the inventory: {}", describe_hosts(&more)), false);
        }
        if !others.is_empty() && session.confirm_reaching_hosts(&others) {
            more.extend(others);
        } else {
            left_out.extend(others);
        }
        if more.is_empty() {
            break;
        }
        session.add_recorded_hosts(more);
        session.emit_run_started("", None);
        facts = collect_facts(session, session.gather_facts(None).await).0;
    }
    (facts, left_out)
}
