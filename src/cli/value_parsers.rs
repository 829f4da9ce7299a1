//! Parsers for values of command-line options: durations, ranks, themes, speeds.

/// The slowest and the fastest playback of a journal.
pub(super) const SPEED_RANGE: (f64, f64) = (0.25, 1024.0);

/// An upper bound that no run reaches.
const MAX_RANKS: u32 = 1 << 16;

/// Global ranks.
#[derive(Debug, Clone, PartialEq, Eq)]
pub(crate) struct RankList(pub Vec<u32>);

/// Reads `45s`, `5m`, `1h`, `500ms`.
pub(super) fn parse_duration(text: &str) -> Result<std::time::Duration, String> {
    text.parse::<jiff::SignedDuration>()
        .ok()
        .and_then(|d| std::time::Duration::try_from(d).ok())
        .ok_or_else(|| format!("invalid duration `{text}`: write a unit, for example 45s"))
}

/// Reads `3`, `r3`, `0-1`, `0,2-3`.
pub(super) fn parse_ranks(text: &str) -> Result<RankList, String> {
    let invalid = || format!("invalid list of ranks `{text}`: write 3, r3, 0-1 or 0,2-3");
    let number = |rank: &str| rank.strip_prefix('r').unwrap_or(rank).parse::<u32>().ok();
    let mut list = Vec::new();
    for range in text.split(',') {
        let (first, last) = range.split_once('-').unwrap_or((range, range));
        let (first, last) = number(first).zip(number(last)).ok_or_else(invalid)?;
        if first > last || last >= MAX_RANKS {
            return Err(invalid());
        }
        list.extend(first..=last);
    }
    Ok(RankList(list))
}

pub(super) fn parse_theme(text: &str) -> Result<String, String> {
    crate::cli::dashboard_config::parse_color_scheme(text).map(|_| text.to_owned())
}

pub(super) fn parse_speed(text: &str) -> Result<f64, String> {
    let speed = text.parse::<f64>().ok().filter(|speed| (SPEED_RANGE.0..=SPEED_RANGE.1).contains(speed));
    speed.ok_or_else(|| format!("invalid speed `{text}`: write a number from {} to {}", SPEED_RANGE.0, SPEED_RANGE.1))
}
