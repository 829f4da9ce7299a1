//! `shm`: shared memory: data loaders and NCCL die of a bus error without it.

use super::context::CheckContext;
use super::memory::{advised_shm_gib, format_kib, total_memory_kib};
use super::probe::Probe;
use super::{CheckArea, CheckResult, PreflightCheck};
use crate::inventory::{ContainerSettings, parse_size};

pub(crate) const CHECK: PreflightCheck = PreflightCheck {
    name: "shm",
    area: CheckArea::Host,
    description: "ranks have less than 1 GiB of shared memory",
    probes: &[Probe::Host],
    judge,
};

const MIN_SHM_KIB: u64 = 1 << 20;

fn judge(context: &CheckContext<'_>) -> Vec<CheckResult> {
    context.check_each_host(|host| {
        let own = |key| host.probe_output.last_value(key).and_then(|v| v.split_whitespace().next()?.parse::<u64>().ok());
        let hosts = host.container().is_none_or(ContainerSettings::uses_host_ipc);
        let planned = host.container().and_then(|c| parse_size(&c.shm_size)).map(|bytes| bytes >> 10);
        let Some(kib) = own("inside_shm").filter(|_| !hosts).or(if hosts { own("shm") } else { planned }) else {
            return CheckResult::skipped("df does not report /dev/shm");
        };
        let hint = if hosts {
            let advised = advised_shm_gib(total_memory_kib(host));
            format!("run `sudo mount -o remount,size={advised}g /dev/shm` there; `checks: {{ skip: [shm] }}` leaves this check out")
        } else {
            "remove container.shm_size: the default of 32g is a limit, memory is taken only when used; `checks: { skip: [shm] }` leaves this check out"
                .to_owned()
        };
        if kib < MIN_SHM_KIB {
            return CheckResult::warn(format!("only {} of shared memory, less than 1 GiB", format_kib(kib)), hint);
        }
        CheckResult::pass(format!("{} of shared memory", format_kib(kib)))
    })
}
