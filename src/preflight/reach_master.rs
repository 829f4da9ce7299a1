//! `reach-master`: from each worker to the master's port, with a listener there.

use super::context::CheckContext;
use super::context::HostView;
use super::probe::Probe;
use super::probe_output::ProbeOutput;
use super::{CheckArea, CheckResult, PreflightCheck};

/// See its `looks`.
pub(crate) const CHECK: PreflightCheck = PreflightCheck {
    name: "reach-master",
    area: CheckArea::Network,
    description: "a worker cannot reach the master's port: a firewall drops or rejects it",
    probes: &[Probe::Connectivity],
    judge,
};

fn judge(scene: &CheckContext<'_>) -> Vec<CheckResult> {
    let master = scene.inventory.hosts.first().map_or("the master", |h| h.name.as_str());
    let port = scene.job.launch.master_port.unwrap_or_default();
    scene.check_each_host(|host| {
        if host.index == 0 {
            return CheckResult::skipped("");
        }
        let hint =
            format!("let TCP port {port} through {master}'s firewall, or set the master's fabric_address to one that the workers reach");
        match connection_result(host, "given>0") {
            None => CheckResult::skipped("it was not tried"),
            Some(ConnectionResult::Unknown(why)) => CheckResult::skipped(why),
            Some(ConnectionResult::Blocked(why)) => CheckResult::fail(format!("no answer from {master}:{port}: {why} (DROP?)"), hint),
            Some(ConnectionResult::Refused(false)) | Some(ConnectionResult::Open(false)) => {
                CheckResult::pass(format!("{master}:{port} can be reached"))
            }
            Some(ConnectionResult::Refused(true)) => {
                CheckResult::fail(format!("{master}:{port} is refused though it listens (REJECT)"), hint)
            }
            Some(ConnectionResult::Open(true)) => CheckResult::pass(format!("{master}:{port} answers")),
        }
    })
}

/// What came of a connection; with whether a listener of ours was there.
pub(crate) enum ConnectionResult<'a> {
    Open(bool),
    Refused(bool),
    Blocked(&'a str),
    Unknown(&'a str),
}

/// `way LABEL LISTENS RESULT WHY`.
pub(crate) fn connection_result<'a>(host: &HostView<'a>, label: &'a str) -> Option<ConnectionResult<'a>> {
    let told: &'a ProbeOutput = host.probe_output;
    let text = told.values_starting_with("way", label).next()?;
    let (listens, rest) = text.split_once(' ')?;
    let (result, why) = rest.split_once(' ').unwrap_or((rest, ""));
    Some(match result {
        "open" => ConnectionResult::Open(listens == "yes"),
        "refused" => ConnectionResult::Refused(listens == "yes"),
        "blocked" => ConnectionResult::Blocked(why),
        _ => ConnectionResult::Unknown(why),
    })
}
