//! `leftovers`: what earlier runs of this name have left.

use super::context::CheckContext;
use super::{CheckArea, CheckResult, PreflightCheck};
use crate::plan::labeled_resources::ContainerFacts;

pub(crate) const CHECK: PreflightCheck = PreflightCheck {
    name: "leftovers",
    area: CheckArea::Host,
    description: "a container or keeper of an earlier run, check or smoke test of this name is left (containers kept on purpose pass)",
    probes: &[],
    judge,
};

fn judge(context: &CheckContext<'_>) -> Vec<CheckResult> {
    context.check_each_host(|host| {
        if host.has_live_run {
            return CheckResult::pass("a run of this name is live");
        }
        let hint = "`orchestrate down` fetches its logs and removes it";
        if host.facts.has_leftover_smoke {
            return CheckResult::warn("a smoke test was interrupted here, or is still running", hint);
        }
        if let [first, ..] = host.facts.orphans.check_containers.as_slice()
            && !context.before_launch
        {
            return CheckResult::warn(
                format!("a check was interrupted here, or is still running: {}", first.name_and_status()),
                "`orchestrate down` removes it",
            );
        }
        // A launch removes what is in its way.
        if context.before_launch {
            return CheckResult::pass("the launch removes it");
        }
        let containers: Vec<String> = host.facts.containers.iter().map(ContainerFacts::name_and_status).collect();
        match (containers.as_slice(), host.facts.keep_container) {
            ([], _) if host.facts.keeper_pid.is_some() => CheckResult::warn("the keeper of an earlier run", hint),
            ([], _) => CheckResult::pass("none"),
            (some, true) => CheckResult::pass(format!("kept: {}", some.join(", "))),
            (some, false) => CheckResult::warn(format!("of an earlier run: {}", some.join(", ")), hint),
        }
    })
}
