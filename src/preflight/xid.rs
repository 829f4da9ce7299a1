//! `xid`: what the kernel says of the GPUs.

use super::context::CheckContext;
use super::probe::Probe;
use super::{CheckArea, CheckResult, PreflightCheck};

pub(crate) const CHECK: PreflightCheck = PreflightCheck {
    name: "xid",
    area: CheckArea::Gpu,
    description: "the kernel log has a hardware Xid: a GPU fell off the bus (79, a failure), or memory, NVLink or firmware failed (warnings)",
    probes: &[Probe::Gpus],
    judge,
};

/// Xids that are the hardware's, with what they mean (docs.nvidia.com/deploy/xid-errors). Those of an application (13, 31, 43, 45) are not here.
const HARDWARE_XIDS: [(u32, &str); 13] = [
    (48, "double bit memory error"),
    (63, "memory row or page will be remapped"),
    (64, "memory row or page could not be remapped"),
    (74, "NVLink error"),
    (79, "the GPU fell off the bus"),
    (92, "many corrected memory errors"),
    (94, "contained memory error"),
    (95, "uncontained memory error"),
    (119, "GSP firmware does not respond"),
    (120, "GSP firmware error"),
    (140, "uncorrected memory error"),
    (149, "NVLink fatal error"),
    (154, "a reset or reboot is needed"),
];

fn judge(context: &CheckContext<'_>) -> Vec<CheckResult> {
    context.check_each_host(|host| {
        if !host.wants_gpus() {
            return CheckResult::skipped("no GPUs are used");
        }
        if host.probe_output.last_value("kernel_log").is_none() {
            return CheckResult::skipped(format!("user {} may not read the kernel log", host.facts.user));
        }
        let number = |line: &str| line.split("): ").nth(1)?.split(|c: char| !c.is_ascii_digit()).next()?.parse::<u32>().ok();
        let found: Vec<(u32, &str, &String)> = host
            .probe_output
            .values("xid")
            .iter()
            .filter_map(|line| HARDWARE_XIDS.iter().find(|(n, _)| number(line) == Some(*n)).map(|(n, why)| (*n, *why, line)))
            .collect();
        let lines = found.iter().map(|(_, _, line)| (*line).clone());
        match found.iter().find(|(n, _, _)| *n == 79).or(found.last()) {
            Some((79, why, _)) => CheckResult::fail(format!("Xid 79: {why}"), "reboot the host; have the GPU checked if it happens again")
                .with_evidence(lines),
            Some((n, why, _)) => {
                CheckResult::warn(format!("Xid {n}: {why}"), "see `nvidia-smi -q` on that host; reset the GPU or reboot the host")
                    .with_evidence(lines)
            }
            None => CheckResult::pass(format!("no hardware Xid in {}", host.probe_output.last_value("kernel_log").unwrap_or("its log"))),
        }
    })
}
