//! `docker`: the engine answers to the ssh user.

use super::context::CheckContext;
use super::{CheckArea, CheckResult, PreflightCheck};
use crate::inventory::Become;
use crate::plan::fact_rules::docker_issue;
use crate::plan::facts::DockerStatus;

pub(crate) const CHECK: PreflightCheck = PreflightCheck {
    name: "docker",
    area: CheckArea::Docker,
    description: "docker is missing, not running, or the ssh user may not use it",
    probes: &[],
    judge,
};

fn judge(context: &CheckContext<'_>) -> Vec<CheckResult> {
    context.check_each_host(|host| match &host.facts.docker {
        DockerStatus::NotQueried => CheckResult::skipped("bare host"),
        DockerStatus::Usable(version) => CheckResult::pass(version.clone()),
        DockerStatus::Unusable(message) => {
            let trouble = docker_issue(message, "this host", &host.facts.user, host.host.ssh.r#become == Become::Sudo);
            CheckResult::fail(trouble.message, trouble.hint)
        }
    })
}
