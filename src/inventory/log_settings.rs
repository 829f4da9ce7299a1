//! `logs`: how long one log may become on a host.

use super::errors::InventoryErrors;
use super::eval::Evaluator;
use super::yaml_tree::shorten;

/// The default of `logs.max`: 20 GiB.
const DEFAULT_MAX_LOG_BYTES: u64 = 20 << 30;
/// The least: what is shorter would cut a traceback.
const MIN_MAX_LOG_BYTES: u64 = 64 << 10;

/// `logs.max`, in bytes.
pub(super) fn parse_max_log_bytes(evaluator: &Evaluator<'_>, errors: &mut InventoryErrors) -> u64 {
    let Some(node) = evaluator.inputs().tree.get_path(&["logs", "max"]) else { return DEFAULT_MAX_LOG_BYTES };
    let node = evaluator.evaluate(node, None);
    let text = errors.validated_text(&node, |text| match parse_size(text) {
        Some(size) if size >= MIN_MAX_LOG_BYTES => Ok(()),
        Some(_) => Err((
            format!("`{}` is less than 64k", shorten(text)),
            "write the most that one log may use on a host, for example 20g".to_owned(),
        )),
        None => Err((format!("`{}` is not a size", shorten(text)), "for example 20g or 512m".to_owned())),
    });
    text.as_deref().and_then(parse_size).unwrap_or(DEFAULT_MAX_LOG_BYTES)
}

/// Docker's sizes: a number with b, k, m, g or t, in powers of 1024.
pub(crate) fn parse_size(text: &str) -> Option<u64> {
    let digits = text.bytes().take_while(u8::is_ascii_digit).count();
    let (number, unit) = text.split_at_checked(digits)?;
    let unit = unit.to_lowercase();
    let unit: u64 = match unit.strip_suffix('b').unwrap_or(&unit) {
        "" => 1,
        "k" => 1 << 10,
        "m" => 1 << 20,
        "g" => 1 << 30,
        "t" => 1 << 40,
        _ => return None,
    };
    number.parse::<u64>().ok()?.checked_mul(unit)
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn sizes_are_read_as_docker_does() {
        for (text, bytes) in [("7", 7), ("7b", 7), ("5k", 5 << 10), ("5KB", 5 << 10), ("32g", 32 << 30), ("1t", 1 << 40)] {
            assert_eq!(parse_size(text), Some(bytes), "{text}");
        }
        for text in ["", "g", "5kbbb", "5bb", "1.5g", "-1g", "5 g", "99999999t"] {
            assert_eq!(parse_size(text), None, "{text}");
        }
    }
}
