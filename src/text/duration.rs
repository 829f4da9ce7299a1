//! Durations in words.

/// Rounded down: `90 s`, `5 min`, `2 h 10 min`.
pub(crate) fn format_rounded(millis: i64) -> String {
    match millis.max(0) / 1000 {
        seconds @ 0..120 => format!("{seconds} s"),
        seconds @ 120..7200 => format!("{} min", seconds / 60),
        seconds => format!("{} h {} min", seconds / 3600, seconds % 3600 / 60),
    }
}
