//! `logs`: how long one log may become on a host.

use super::errors::InventoryErrors;
use super::eval::Evaluator;
use super::schema;
use super::yaml_tree::{YamlKind, YamlNode, shorten};

/// The default of `logs.max`: 20 GiB.
const DEFAULT_MAX_LOG_BYTES: u64 = 20 << 30;
/// The least: what is shorter would cut a traceback.
const MIN_MAX_LOG_BYTES: u64 = 64 << 10;

/// `logs.max`, in bytes.
pub(super) fn parse_max_log_bytes(evaluator: &Evaluator<'_>, errors: &mut InventoryErrors) -> u64 {
    let block = evaluator.inputs().tree.get("logs").filter(|node| matches!(node.kind, YamlKind::Map(_)));
    let Some(node) = block.and_then(|block| block.get("max")) else { return DEFAULT_MAX_LOG_BYTES };
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

/// Compares the block's keys with the known ones.
pub(super) fn check_keys(tree: &YamlNode, errors: &mut InventoryErrors) {
    if let Some(block) = tree.get("logs") {
        errors.check_keys(block, &schema::LOGS_SCHEMA);
    }
}

/// Docker's sizes: a number with b, k, m or g, in powers of 1024.
pub(super) fn parse_size(text: &str) -> Option<u64> {
    let digits = text.bytes().take_while(u8::is_ascii_digit).count();
    let (number, unit) = text.split_at_checked(digits)?;
    let unit: u64 = match unit.to_lowercase().trim_end_matches('b') {
        "" => 1,
        "k" => 1 << 10,
        "m" => 1 << 20,
        "g" => 1 << 30,
        "t" => 1 << 40,
        _ => return None,
    };
    number.parse::<u64>().ok()?.checked_mul(unit)
}
