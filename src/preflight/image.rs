//! `image`: the same image everywhere, compared by id.

use super::context::CheckContext;
use super::{CheckArea, CheckResult, PreflightCheck};
use crate::inventory::PullPolicy;
use crate::model::level::Level;
use crate::plan::action::pull::short_image_id;

pub(crate) const CHECK: PreflightCheck = PreflightCheck {
    name: "image",
    area: CheckArea::Environment,
    description: "the image has different ids on the hosts that have it, or is missing and container.pull is never",
    probes: &[],
    judge,
};

fn judge(context: &CheckContext<'_>) -> Vec<CheckResult> {
    let hint = "pull or load the same image everywhere (container.pull: always, or a digest: image@sha256:…)";
    context.compare_hosts(Level::Fail, hint, |host| {
        let Some(container) = host.container() else { return Err(CheckResult::skipped("bare host")) };
        match (&host.facts.image_id, container.pull) {
            (_, PullPolicy::Always) => Err(CheckResult::skipped("will be pulled in any case")),
            (Some(id), _) => Ok(short_image_id(id)),
            (None, PullPolicy::Missing) => {
                Err(CheckResult::skipped("not there yet: will be pulled (the registry is not checked in advance)"))
            }
            // The step that pulls the image reports it.
            (None, PullPolicy::Never) if context.before_launch => Err(CheckResult::skipped("")),
            (None, PullPolicy::Never) => Err(CheckResult::fail(
                format!("{} is missing", container.image),
                "load the image there with `docker load`, or set container.pull: missing",
            )),
        }
    })
}
