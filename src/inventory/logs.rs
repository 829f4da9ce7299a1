//! `logs`: how long one log may become on a host.

use super::check::Check;
use super::schema;
use super::scope::Scope;
use super::tree::{Kind, Node, shorten};

/// The default of `logs.max`: 20 GiB.
const MAX: u64 = 20 << 30;
/// The least: what is shorter would cut a traceback.
const LEAST: u64 = 64 << 10;

/// `logs.max`, in bytes.
pub(super) fn max(scope: &Scope<'_>, check: &mut Check) -> u64 {
    let block = scope.facts().tree.get("logs").filter(|node| matches!(node.kind, Kind::Map(_)));
    let Some(node) = block.and_then(|block| block.get("max")) else { return MAX };
    let node = scope.eval(node, None);
    let text = check.text_that(&node, |text| match bytes(text) {
        Some(size) if size >= LEAST => Ok(()),
        Some(_) => Err((format!("`{}` is less than 64k", shorten(text)), "write what one log may take on a host, like 20g".to_owned())),
        None => Err((format!("`{}` is not a size", shorten(text)), "write it like 20g or 512m".to_owned())),
    });
    text.as_deref().and_then(bytes).unwrap_or(MAX)
}

/// Compares the block's keys with the known ones.
pub(super) fn keys(tree: &Node, check: &mut Check) {
    if let Some(block) = tree.get("logs") {
        check.block(block, &schema::LOGS);
    }
}

/// Docker's sizes: a number with b, k, m or g, in powers of 1024.
pub(super) fn bytes(text: &str) -> Option<u64> {
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
