//! The block `sync` of a task: a directory of the laptop, copied to hosts.

use super::errors::InventoryErrors;
use super::eval::Evaluator;
use super::task_settings::SyncTask;
use super::yaml_tree::YamlNode;

/// Keys that only a script can have.
const RUN_KEYS: [&str; 10] = ["chdir", "env", "creates", "unless", "changed", "timeout", "retries", "delay", "become", "register"];

/// `selected`: the hosts that take part.
pub(super) fn parse_sync(task: &YamlNode, evaluator: &Evaluator<'_>, selected: &[bool], errors: &mut InventoryErrors) -> Option<SyncTask> {
    let block = task.get("sync")?;
    for key in RUN_KEYS {
        if let Some(node) = task.get(key) {
            errors.report(&node.location, format!("`{key}` does not belong to a `sync` task"), "remove it, or write a `run` task");
        }
    }
    let place =
        task.get("in").and_then(|node| errors.read_choice(&evaluator.evaluate(node, None), &[("host", false), ("container", true)]));
    if let (Some(true), Some(node)) = (place, task.get("in")) {
        errors.report(
            &node.location,
            "not supported yet",
            "remove it: this version syncs to the host; mount the directory into the container",
        );
    }
    let read = |key: &str, host: Option<usize>| block.get(key).map(|node| evaluator.evaluate(node, host));
    if let (Some(true), Some(node)) = (read("delete", None).and_then(|node| errors.read_bool(&node)), block.get("delete")) {
        errors.report(&node.location, "not supported yet", "remove it: this version deletes nothing on a host");
    }
    for key in ["from", "to"].into_iter().filter(|key| block.get(key).is_none()) {
        errors.report(&block.location.child(key), format!("`{key}` is missing"), "for example sync: { from: ./src, to: ~/src }");
    }
    let from = read("from", None).and_then(|node| errors.validated_text(&node, validate_local_path));
    let mut target =
        |host: usize| read("to", Some(host)).and_then(|node| errors.validated_text(&node, validate_host_path)).unwrap_or_default();
    let to = selected.iter().enumerate().map(|(host, takes_part)| takes_part.then(|| target(host))).collect();
    let exclude = read("exclude", None).map(|node| errors.read_text_list(&node)).unwrap_or_default();
    Some(SyncTask { from: from?, to, exclude })
}

fn validate_local_path(text: &str) -> Result<(), (String, String)> {
    if text.is_empty() || text.contains(['\0', '\n']) {
        return Err(("this is no path".to_owned(), "name a directory of this laptop, relative to the inventory's folder".to_owned()));
    }
    Ok(())
}

/// Absolute or below the home: what a relative path is relative to, nobody would know.
fn validate_host_path(text: &str) -> Result<(), (String, String)> {
    let rooted = text == "~" || text.starts_with("~/") || text.starts_with('/');
    if rooted && !text.contains(['\0', '\n']) && !text.split('/').any(|component| component == "..") {
        return Ok(());
    }
    Err((format!("`{text}` is no path on a host"), "write an absolute path or ~/…, without `..`".to_owned()))
}
