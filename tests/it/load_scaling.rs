//! How busy this machine is: a bound on time must not fail a test because other programs have the processors.

/// What may take 2 s on a machine with nothing else to do, in milliseconds. A test has its hosts, their ranks and its neighbours on the same
/// processors: with three programs that want one, all takes three times as long. The promise itself, 2 s, is measured by the benchmarks
/// (`docs/performance.md`); a test holds that it is kept at once, and not after a wait of some other kind.
pub(crate) fn two_seconds_under_load() -> i64 {
    let text = std::fs::read_to_string("/proc/loadavg").unwrap_or_default();
    let mut words = text.split([' ', '/']);
    // The average of the last minute, and how many want a processor now.
    let average: f64 = words.next().and_then(|word| word.parse().ok()).unwrap_or(0.0);
    let now: f64 = words.nth(2).and_then(|word| word.parse().ok()).unwrap_or(0.0);
    let cores = std::thread::available_parallelism().map_or(1, std::num::NonZero::get);
    let cores = f64::from(u32::try_from(cores).unwrap_or(u32::MAX));
    #[expect(clippy::cast_possible_truncation, reason = "some seconds")]
    let scaled = (2000.0 * (1.0 + average.max(now) / cores)) as i64;
    scaled
}
