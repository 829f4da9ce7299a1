//! Parsers for values of command-line options: durations, ranks, themes, speeds.

use crate::text::rank_selection::{MAX_RANKS, RankSelection};

/// The slowest and the fastest playback of a journal.
pub(super) const SPEED_RANGE: (f64, f64) = (0.25, 1024.0);

/// Reads `45s`, `5m`, `1h`, `500ms`.
pub(super) fn parse_duration(text: &str) -> Result<std::time::Duration, String> {
    text.parse::<jiff::SignedDuration>()
        .ok()
        .and_then(|d| std::time::Duration::try_from(d).ok())
        .ok_or_else(|| format!("invalid duration `{text}`: write a unit, for example 45s"))
}

/// The lines of each log that a command shows when it begins to follow.
pub(super) const DEFAULT_TAIL: usize = 10;
/// They wait in memory until the log is current.
const MAX_TAIL: usize = 10_000;

/// Reads a number of lines to show before following.
pub(super) fn parse_tail(text: &str) -> Result<usize, String> {
    let lines = text.parse::<usize>().ok().filter(|lines| *lines <= MAX_TAIL);
    lines.ok_or_else(|| format!("invalid number of lines `{text}`: write 0 to {MAX_TAIL}; `orchestrate logs` prints whole logs"))
}

/// Reads a number of lines, or `all`.
pub(super) fn parse_tail_or_all(text: &str) -> Result<usize, String> {
    if text == "all" {
        return Ok(usize::MAX);
    }
    text.parse().map_err(|_| format!("invalid number of lines `{text}`: write a number or `all`"))
}

/// Reads `3` or `r3`.
pub(super) fn parse_rank(text: &str) -> Result<u32, String> {
    let number = text.strip_prefix('r').unwrap_or(text).parse::<u32>().ok().filter(|rank| *rank < MAX_RANKS);
    number.ok_or_else(|| format!("invalid rank `{text}`: write 3 or r3"))
}

/// Reads `3`, `r3`, `0-3,7`, `host:gpu02`.
pub(super) fn parse_ranks(text: &str) -> Result<RankSelection, String> {
    RankSelection::parse(text)
}

pub(super) fn parse_theme(text: &str) -> Result<String, String> {
    crate::cli::dashboard_config::parse_color_scheme(text).map(|_| text.to_owned())
}

pub(super) fn parse_speed(text: &str) -> Result<f64, String> {
    let speed = text.parse::<f64>().ok().filter(|speed| (SPEED_RANGE.0..=SPEED_RANGE.1).contains(speed));
    speed.ok_or_else(|| format!("invalid speed `{text}`: write a number from {} to {}", SPEED_RANGE.0, SPEED_RANGE.1))
}
