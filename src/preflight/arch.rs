//! `arch`: one image for all needs one kind of processor.

use super::context::CheckContext;
use super::{CheckArea, CheckResult, PreflightCheck};
use crate::model::level::Level;

pub(crate) const CHECK: PreflightCheck = PreflightCheck {
    name: "arch",
    area: CheckArea::Host,
    description: "the hosts have different processor architectures",
    probes: &[],
    judge,
};

fn judge(context: &CheckContext<'_>) -> Vec<CheckResult> {
    context.compare_hosts(Level::Fail, "use hosts of one architecture: an image is made for one", |host| match host.facts.system.as_str() {
        "" => Err(CheckResult::skipped("uname printed nothing")),
        system => Ok(system.to_owned()),
    })
}
