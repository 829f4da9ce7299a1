//! Scales time limits by the machine's load, so that no test fails because other programs use the processors.

/// A limit of 2 s on an idle machine, scaled by the load, in milliseconds. All hosts, ranks and other tests share the processors. The
/// benchmarks measure the 2 s themselves (`docs/performance.md`); tests only rule out an additional
/// wait. At least 4 s: the load of a short burst is not in the average.
pub(crate) fn two_seconds_under_load() -> i64 {
    let text = std::fs::read_to_string("/proc/loadavg").unwrap_or_default();
    let mut fields = text.split([' ', '/']);
    // The average of the last minute, and the number of processes that want a processor now.
    let average: f64 = fields.next().and_then(|field| field.parse().ok()).unwrap_or(0.0);
    let now: f64 = fields.nth(2).and_then(|field| field.parse().ok()).unwrap_or(0.0);
    let cores = std::thread::available_parallelism().map_or(1, std::num::NonZero::get);
    let cores = f64::from(u32::try_from(cores).unwrap_or(u32::MAX));
    (2000.0 * (1.0 + average.max(now) / cores)).max(4000.0) as i64
}
