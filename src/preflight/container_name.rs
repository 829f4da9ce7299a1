//! `container-name`: the name that our container gets.

use super::context::CheckContext;
use super::{CheckArea, CheckResult, PreflightCheck};
use crate::plan::fact_rules::container_name_taken;
use crate::plan::host_context::HostContext;

pub(crate) const CHECK: PreflightCheck = PreflightCheck {
    name: "container-name",
    area: CheckArea::Docker,
    description: "a container that this program did not create has the name that the run needs",
    probes: &[],
    judge,
};

fn judge(context: &CheckContext<'_>) -> Vec<CheckResult> {
    context.check_each_host(|host| {
        if host.container().is_none() {
            return CheckResult::skipped("bare host");
        }
        let context = HostContext::from_inventory(context.inventory, host.host, &host.facts.run_dir);
        container_name_taken(host.facts, &context).map_or_else(|| CheckResult::pass(context.container_name()), CheckResult::from)
    })
}
