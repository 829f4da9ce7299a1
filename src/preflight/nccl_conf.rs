//! `nccl-conf`: a file that changes NCCL unseen.

use super::context::CheckContext;
use super::probe::Probe;
use super::{CheckArea, CheckResult, PreflightCheck};
use crate::model::level::Level;

pub(crate) const CHECK: PreflightCheck = PreflightCheck {
    name: "nccl-conf",
    area: CheckArea::Network,
    description: "/etc/nccl.conf differs between the hosts",
    probes: &[Probe::Host],
    judge,
};

fn judge(context: &CheckContext<'_>) -> Vec<CheckResult> {
    context.compare_hosts(Level::Warn, "compare with `orchestrate exec -- cat /etc/nccl.conf`", |host| {
        Ok(host
            .probe_output
            .last_value("nccl_conf")
            .map_or_else(|| "no /etc/nccl.conf".to_owned(), |digest| format!("/etc/nccl.conf ({digest})")))
    })
}
