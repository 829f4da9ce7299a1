//! `memory`: main memory.

use super::context::CheckContext;
use super::context::CheckedHost;
use super::probe::Probe;
use super::{CheckArea, CheckResult, PreflightCheck};

pub(crate) const CHECK: PreflightCheck = PreflightCheck {
    name: "memory",
    area: CheckArea::Host,
    description: "less than 10 % of the memory is available, a host has 10 % less memory than most, or shm_size exceeds the memory",
    probes: &[Probe::Host],
    judge,
};

fn judge(context: &CheckContext<'_>) -> Vec<CheckResult> {
    let total = |host: &CheckedHost<'_>| host.probe_output.last_number("memory_MemTotal").filter(|n| *n > 0);
    let mut all: Vec<u64> = context.hosts.iter().filter_map(total).collect();
    all.sort_unstable();
    let middle = all.get(all.len() / 2).copied().unwrap_or(0);
    context.check_each_host(|host| {
        let Some(total) = total(host) else { return CheckResult::skipped("no /proc/meminfo on this host") };
        let free = host
            .probe_output
            .last_number("memory_MemAvailable")
            .or_else(|| host.probe_output.last_number("memory_MemFree"))
            .unwrap_or(total);
        let what = format!("{} of {} available", format_kib(free), format_kib(total));
        let shm = host.container().and_then(|c| parse_size_kib(&c.shm_size)).unwrap_or(0);
        if free < total / 10 {
            return CheckResult::warn(what, "`ps aux --sort=-rss | head` on that host shows what uses it");
        }
        if shm > total {
            let hint = "set container.shm_size to less than that: shared memory uses RAM";
            return CheckResult::warn(format!("shm_size is {}, but the host has {} of memory", format_kib(shm), format_kib(total)), hint);
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

/// KiB as people write them.
pub(crate) fn format_kib(kib: u64) -> String {
    match kib {
        0..1024 => format!("{kib} KiB"),
        1024..1_048_576 => format!("{} MiB", kib >> 10),
        _ => format!("{:.1} GiB", kib as f64 / f64::from(1 << 20)),
    }
}

/// Docker's `32g`, in KiB.
pub(crate) fn parse_size_kib(text: &str) -> Option<u64> {
    let text = text.trim().to_lowercase();
    let digits = text.trim_end_matches(|c: char| c.is_ascii_alphabetic());
    let number: f64 = digits.parse().ok()?;
    let unit = match text.get(digits.len()..)?.trim_end_matches('b') {
        "" => 1.0 / 1024.0,
        "k" => 1.0,
        "m" => 1024.0,
        "g" => 1024.0 * 1024.0,
        "t" => 1024.0 * 1024.0 * 1024.0,
        _ => return None,
    };
    Some((number * unit) as u64)
}
