//! Values on the command line, read: times, ranks, themes, speeds.

/// The slowest and the fastest that a journal is played.
pub(super) const SPEED_RANGE: (f64, f64) = (0.25, 1024.0);

/// More ranks than any run has.
const MAX_RANKS: u32 = 1 << 16;

/// Global ranks, as a person names them.
#[derive(Debug, Clone, PartialEq, Eq)]
pub(crate) struct RankList(pub Vec<u32>);

/// Reads `45s`, `5m`, `1h`, `500ms`.
pub(super) fn parse_duration(text: &str) -> Result<std::time::Duration, String> {
    text.parse::<jiff::SignedDuration>()
        .ok()
        .and_then(|d| std::time::Duration::try_from(d).ok())
        .ok_or_else(|| format!("`{text}` is no time: write 45s, 5m, 500ms"))
}

/// Reads `3`, `r3`, `0-1`, `0,2-3`.
pub(super) fn parse_ranks(text: &str) -> Result<RankList, String> {
    let wrong = || format!("`{text}` is not a list of ranks: write 3, r3, 0-1 or 0,2-3");
    let number = |word: &str| word.strip_prefix('r').unwrap_or(word).parse::<u32>().ok();
    let mut list = Vec::new();
    for part in text.split(',') {
        let (first, last) = part.split_once('-').unwrap_or((part, part));
        let (first, last) = number(first).zip(number(last)).ok_or_else(wrong)?;
        if first > last || last >= MAX_RANKS {
            return Err(wrong());
        }
        list.extend(first..=last);
    }
    Ok(RankList(list))
}

/// Reads the name of a theme.
pub(super) fn parse_theme(text: &str) -> Result<String, String> {
    crate::cli::dashboard_config::parse_color_scheme(text).map(|_| text.to_owned())
}

/// Reads how fast a journal is played.
pub(super) fn parse_speed(text: &str) -> Result<f64, String> {
    let speed = text.parse::<f64>().ok().filter(|speed| (SPEED_RANGE.0..=SPEED_RANGE.1).contains(speed));
    speed.ok_or_else(|| format!("`{text}` is no speed: a number from {} to {}", SPEED_RANGE.0, SPEED_RANGE.1))
}
