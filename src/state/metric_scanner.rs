//! Finds the metrics in the lines of a rank: names, numbers, progress bars.

use std::collections::BTreeMap;
use std::sync::LazyLock;

use regex::bytes::{Regex, RegexBuilder};

/// The built-in metrics, in the order in which they are shown.
pub(crate) const BUILT_IN_METRICS: [&str; 6] = ["step", "loss", "tokens/s", "it/s", "lr", "grad_norm"];

/// The place of the step among them.
pub(crate) const STEP_INDEX: u8 = 0;

/// The place of the loss among them.
pub(crate) const LOSS_INDEX: u8 = 1;

/// The place of the tokens a second among them.
pub(crate) const TOKENS_PER_SECOND_INDEX: u8 = 2;

/// The place of the iterations a second among them.
pub(crate) const ITERATIONS_PER_SECOND_INDEX: u8 = 3;

pub(super) const LEARNING_RATE_INDEX: u8 = 4;

pub(super) const GRAD_NORM_INDEX: u8 = 5;

/// The most metrics that an inventory may name.
pub(crate) const MAX_CUSTOM_METRICS: usize = 16;

/// The largest program of one pattern, in bytes.
pub(crate) const MAX_PATTERN_BYTES: usize = 1 << 20;

/// The most bytes between a name and its value.
pub(super) const MAX_NAME_VALUE_GAP: usize = 24;

/// Names before values, and units after or before them.
pub(super) static METRIC_NAME_REGEX: LazyLock<Option<Regex>> = LazyLock::new(|| {
    let names = r"(?:\b(?:global_step|step|iteration|iter|train_loss|lm loss|loss|learning[_ ]rate|lr|grad[_ ]norm|gnorm|tps|tokens_per_sec(?:ond)?)|tok(?:en)?s?/s(?:ec(?:ond)?)?|it/s|s/it)\b";
    RegexBuilder::new(names).unicode(false).case_insensitive(true).build().ok()
});

/// Finds values in lines; by default those of the known metrics.
#[derive(Debug, Clone)]
pub(crate) struct MetricScanner {
    names: Vec<String>,
    /// The index of the name, and its pattern.
    custom_patterns: Vec<(u8, Regex)>,
}

impl Default for MetricScanner {
    fn default() -> Self {
        MetricScanner::new(&BTreeMap::new())
    }
}

/// The values of a line, by metric.
pub(crate) type MetricValues = Vec<(u8, f64)>;

impl MetricScanner {
    /// The known metrics, and own ones by name and pattern. A pattern that cannot be used is left out: the inventory's check refused it.
    pub(crate) fn new(own: &BTreeMap<String, String>) -> MetricScanner {
        let mut names: Vec<String> = BUILT_IN_METRICS.iter().map(|name| (*name).to_owned()).collect();
        let mut patterns = Vec::new();
        for (name, pattern) in own.iter().take(MAX_CUSTOM_METRICS) {
            let built = RegexBuilder::new(pattern).unicode(false).size_limit(MAX_PATTERN_BYTES).build();
            let Some(regex) = built.ok().filter(|regex| regex.captures_len() == 2) else { continue };
            let at = names.iter().position(|known| known == name).unwrap_or_else(|| {
                names.push(name.clone());
                names.len() - 1
            });
            patterns.push((u8::try_from(at).unwrap_or(u8::MAX), regex));
        }
        MetricScanner { names, custom_patterns: patterns }
    }

    /// The name of a metric.
    pub(crate) fn metric_name(&self, metric: u8) -> &str {
        self.names.get(usize::from(metric)).or_else(|| self.names.first()).map_or("", String::as_str)
    }

    /// Every value in a line, one a metric: own patterns win over the known names.
    pub(crate) fn scan_line(&self, line: &[u8], values: &mut MetricValues) {
        values.clear();
        for (metric, regex) in &self.custom_patterns {
            let reported = regex.captures(line).and_then(|hit| hit.get(1)).and_then(|hit| parse_number(hit.as_bytes(), true));
            if let Some((value, _)) = reported {
                push_if_absent(values, *metric, value);
            }
        }
        let Some(names) = &*METRIC_NAME_REGEX else { return };
        // What a value before a unit must not be: the value of the name before it.
        let mut used = 0;
        for hit in names.find_iter(line) {
            let Some(metric) = metric_for_name(hit.as_bytes()) else { continue };
            if is_validation_metric(&line[..hit.start()]) {
                continue;
            }
            let scaled = metric == TOKENS_PER_SECOND_INDEX;
            let after = || parse_value_after_name(&line[hit.end()..], scaled).map(|(value, len)| (value, hit.end() + len));
            let before = || parse_value_before_unit(&line[used..hit.start()], scaled).map(|value| (value, hit.end()));
            let slashed = hit.as_bytes().contains(&b'/');
            let reported = if slashed { before().or_else(after) } else { after() };
            let Some((value, end)) = reported else { continue };
            used = end;
            let inverse = hit.as_bytes().eq_ignore_ascii_case(b"s/it");
            push_if_absent(values, metric, if inverse && value > 0.0 { 1.0 / value } else { value });
        }
    }
}

/// The first value of a metric in a line counts.
pub(super) fn push_if_absent(values: &mut MetricValues, metric: u8, value: f64) {
    if !values.iter().any(|(known, _)| *known == metric) {
        values.push((metric, value));
    }
}

pub(super) fn metric_for_name(name: &[u8]) -> Option<u8> {
    let is = |names: &[&str]| names.iter().any(|known| name.eq_ignore_ascii_case(known.as_bytes()));
    Some(match name.first()?.to_ascii_lowercase() {
        b's' if is(&["s/it"]) => ITERATIONS_PER_SECOND_INDEX,
        b'i' if is(&["it/s"]) => ITERATIONS_PER_SECOND_INDEX,
        b's' | b'i' => STEP_INDEX,
        b'g' if is(&["global_step"]) => STEP_INDEX,
        b'g' => GRAD_NORM_INDEX,
        b't' if is(&["train_loss"]) => LOSS_INDEX,
        b't' => TOKENS_PER_SECOND_INDEX,
        b'l' if is(&["loss", "lm loss"]) => LOSS_INDEX,
        b'l' => LEARNING_RATE_INDEX,
        _ => return None,
    })
}

/// `val loss 2.3` is not the loss of training.
pub(super) fn is_validation_metric(before: &[u8]) -> bool {
    let text = before.trim_ascii_end();
    ["val", "eval", "valid", "validation", "test"].iter().any(|word| {
        text.len().checked_sub(word.len()).is_some_and(|at| {
            text[at..].eq_ignore_ascii_case(word.as_bytes())
                && (at == 0 || !text[at - 1].is_ascii_alphanumeric())
                && text.len() < before.len()
        })
    })
}

/// The value behind a name: ` 2.3`, `=2.3`, `': '2.3`, `: [0.1]`; and how many bytes it takes with what stands before it.
pub(super) fn parse_value_after_name(text: &[u8], scaled: bool) -> Option<(f64, usize)> {
    let mut at = 0;
    let mut assigned = false;
    while let Some(byte) = text.get(at).filter(|_| at < MAX_NAME_VALUE_GAP) {
        match byte {
            b' ' | b'\t' | b'"' | b'\'' => {}
            b']' if !assigned => {}
            b'=' | b':' if !assigned => assigned = true,
            b'[' => {}
            _ => break,
        }
        at += 1;
    }
    if at == 0 {
        return None;
    }
    parse_number(&text[at..], scaled).map(|(value, len)| (value, at + len))
}

/// The value before a unit: `12.9k tok/s`, `32.9it/s`.
pub(super) fn parse_value_before_unit(text: &[u8], scaled: bool) -> Option<f64> {
    let text = text.strip_suffix(b" ").unwrap_or(text);
    let part = |byte: &u8| byte.is_ascii_digit() || matches!(byte, b'.' | b',' | b'k' | b'K' | b'M');
    let start = text.iter().rposition(|byte| !part(byte)).map_or(0, |at| at + 1);
    let (value, len) = parse_number(&text[start..], scaled)?;
    (start + len == text.len() && (start == 0 || !text[start - 1].is_ascii_alphabetic())).then_some(value)
}

/// A number at the beginning of a text and how long it is: `3`, `12,874`, `3.0e-4`, `nan`; with `k` and `M` where values are scaled so.
pub(super) fn parse_number(text: &[u8], scaled: bool) -> Option<(f64, usize)> {
    for word in [&b"nan"[..], b"inf", b"-inf"] {
        if text.len() >= word.len()
            && text[..word.len()].eq_ignore_ascii_case(word)
            && !text.get(word.len()).is_some_and(u8::is_ascii_alphanumeric)
        {
            let value = if word == b"nan" { f64::NAN } else { f64::INFINITY };
            return Some((if word[0] == b'-' { -value } else { value }, word.len()));
        }
    }
    let digits = |from: usize| text[from.min(text.len())..].iter().take_while(|byte| byte.is_ascii_digit()).count();
    let mut end = usize::from(matches!(text.first(), Some(b'+' | b'-')));
    let whole = digits(end);
    end += whole;
    // Thousands are groups of three digits.
    while text.get(end) == Some(&b',') && whole <= 3 && whole > 0 && digits(end + 1) == 3 {
        end += 4;
    }
    if text.get(end) == Some(&b'.') && (whole > 0 || digits(end + 1) > 0) {
        end += 1 + digits(end + 1);
    }
    if !text[..end].iter().any(u8::is_ascii_digit) || end > 40 {
        return None;
    }
    if matches!(text.get(end), Some(b'e' | b'E')) {
        let sign = usize::from(matches!(text.get(end + 1), Some(b'+' | b'-')));
        let power = digits(end + 1 + sign);
        if power > 0 && power <= 4 {
            end += 1 + sign + power;
        }
    }
    let plain: String = text[..end].iter().filter(|byte| **byte != b',').map(|byte| char::from(*byte)).collect();
    let value: f64 = plain.parse().ok()?;
    let scale = match text.get(end).filter(|_| scaled) {
        Some(b'k' | b'K') => 1e3,
        Some(b'M') => 1e6,
        _ => 1.0,
    };
    let len = end + usize::from(scale > 1.0);
    (!text.get(len).is_some_and(u8::is_ascii_alphabetic) || text[len..].starts_with(b"it/") || text[len..].starts_with(b"tok"))
        .then_some((value * scale, len))
}
