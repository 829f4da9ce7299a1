//! `memory`: main memory.

use super::context::{CheckContext, CheckedHost};
use super::probe::Probe;
use super::{CheckArea, CheckResult, PreflightCheck};
use crate::inventory::{DEFAULT_SHM_SIZE, parse_size};

pub(crate) const CHECK: PreflightCheck = PreflightCheck {
    name: "memory",
    area: CheckArea::Host,
    description: "less than 10 % of the memory is available, a host has 10 % less memory than most, or shm_size exceeds the memory",
    probes: &[Probe::Host],
    judge,
};

fn judge(context: &CheckContext<'_>) -> Vec<CheckResult> {
    let mut all: Vec<u64> = context.hosts.iter().filter_map(total_memory_kib).collect();
    all.sort_unstable();
    let middle = all.get(all.len() / 2).copied().unwrap_or(0);
    context.check_each_host(|host| {
        let Some(total) = total_memory_kib(host) else { return CheckResult::skipped("no /proc/meminfo on this host") };
        let free = host
            .probe_output
            .last_number("memory_MemAvailable")
            .or_else(|| host.probe_output.last_number("memory_MemFree"))
            .unwrap_or(total);
        let what = format!("{} of {} available", format_kib(free), format_kib(total));
        let shm_size = host.container().map_or("", |c| &c.shm_size);
        let shm = parse_size(shm_size).unwrap_or(0) >> 10;
        if free < total / 10 {
            return CheckResult::warn(what, "`ps aux --sort=-rss | head` on that host shows what uses it");
        }
        if shm > total {
            let (shm, total_text) = (format_kib(shm), format_kib(total));
            let text = if shm_size == DEFAULT_SHM_SIZE {
                format!("shm_size is {shm} by default, but the host has {total_text} of memory")
            } else {
                format!("shm_size is {shm}, but the host has {total_text} of memory")
            };
            let hint = format!("set container.shm_size: {}g, because shared memory uses RAM", advised_shm_gib(Some(total)));
            return CheckResult::warn(text, hint);
        }
        if total < middle / 10 * 9 {
            let agree = all.iter().filter(|n| **n >= middle / 10 * 9).count();
            let cell = CheckResult::warn(
                format!("{} instead of {}", format_kib(total), format_kib(middle)),
                "check for a failed memory module: run `dmidecode -t memory` on that host",
            );
            return CheckResult { majority_size: agree, ..cell };
        }
        CheckResult::pass(what)
    })
}

pub(super) fn total_memory_kib(host: &CheckedHost<'_>) -> Option<u64> {
    host.probe_output.last_number("memory_MemTotal").filter(|n| *n > 0)
}

/// Half of the memory, as the kernel's own default for a tmpfs, at most the default of `container.shm_size`.
pub(super) fn advised_shm_gib(total_kib: Option<u64>) -> u64 {
    let default = parse_size(DEFAULT_SHM_SIZE).unwrap_or(0) >> 10;
    (total_kib.map_or(default, |kib| kib / 2).min(default) >> 20).max(1)
}

/// KiB as people write them.
pub(crate) fn format_kib(kib: u64) -> String {
    match kib {
        0..1024 => format!("{kib} KiB"),
        1024..1_048_576 => format!("{} MiB", kib >> 10),
        _ => format!("{:.1} GiB", kib as f64 / f64::from(1 << 20)),
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn advised_shared_memory_fits_the_host() {
        for (total_gib, advised) in [(Some(1024), 32), (Some(24), 12), (Some(1), 1), (None, 32)] {
            assert_eq!(advised_shm_gib(total_gib.map(|gib: u64| gib << 20)), advised, "{total_gib:?}");
        }
    }
}
