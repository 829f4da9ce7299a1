//! `container-name`: the name that our container gets.

use super::context::CheckContext;
use super::{CheckArea, CheckResult, PreflightCheck};
use crate::plan::host_context::HostContext;

/// See its `looks`.
pub(crate) const CHECK: PreflightCheck = PreflightCheck {
    name: "container-name",
    area: CheckArea::Docker,
    description: "another one's container has the name that ours would get",
    probes: &[],
    judge,
};

fn judge(scene: &CheckContext<'_>) -> Vec<CheckResult> {
    scene.check_each_host(|host| {
        if host.container().is_none() {
            return CheckResult::skipped("bare host");
        }
        let site = HostContext::from_inventory(scene.inventory, host.host, &host.facts.run_dir);
        match &host.facts.name_holder {
            Some(labels) if *labels != format!("{}/{}", site.name, site.host) => CheckResult::fail(
                format!("{} is a container that is not ours", site.container_name()),
                format!("look at it with `docker inspect {}`; rename or remove it, or change `name:`", site.container_name()),
            ),
            _ => CheckResult::pass(site.container_name()),
        }
    })
}
