//! Lints of `prepare`: tasks that do their work again in every run, or somewhere else than meant.

use super::context::LintContext;
use super::{env_lints, shell_lints};
use crate::inventory::Mount;
use crate::inventory::yaml_tree::{YamlNode, shorten};

pub(super) fn lint_tasks(context: &mut LintContext<'_>) {
    let Some(list) = context.tree.get("prepare") else { return };
    for task in list.items() {
        if let Some(run) = task.get("run") {
            lint_run(context, task, run);
        }
        lint_paths(context, task);
        lint_container_paths(context, task);
        lint_arch_list(context, task);
    }
}

fn lint_run(context: &mut LintContext<'_>, task: &YamlNode, run: &YamlNode) {
    let Some(text) = run.as_text() else { return };
    let is_match = |pattern| shell_lints::is_match(text, pattern);
    if is_match(r"\bpip3?\s+install\b") && task.get("unless").is_none() && task.get("creates").is_none() {
        let message = "pip runs again each time, and counts as a change";
        let hint = "add `unless` to the task, for example `unless: python -c 'import deepspeed'`, or `creates`";
        context.report("pip-without-unless", &run.location, message, hint);
    }
    if is_match(r"(^|[^&])&\s*\z") && !is_match(r"(?m)^\s*wait\b") {
        let message = "the task ends while its command runs in the background: what it does is not waited for, and its failure is not seen";
        let hint = "remove the last &: the task survives a lost connection anyway";
        context.report("background-command", &run.location, message, hint);
    }
    shell_lints::lint_unexported(context, text, &run.location);
    shell_lints::lint_arch_list(context, text, &run.location);
}

/// What an extension is compiled for, in the task's own env.
fn lint_arch_list(context: &mut LintContext<'_>, task: &YamlNode) {
    let Some(node) = task.get_path(&["env", "TORCH_CUDA_ARCH_LIST"]) else { return };
    if node.as_text().is_some_and(env_lints::lacks_hopper) {
        context.report("cuda-arch-list", &node.location, env_lints::ARCH_MESSAGE, env_lints::ARCH_HINT);
    }
}

/// A relative path begins in the home, or in the image's working directory.
fn lint_paths(context: &mut LintContext<'_>, task: &YamlNode) {
    let relative = |key: &str| {
        let node = task.get(key)?;
        let text = node.as_text()?;
        let anchored = text.starts_with(['/', '~']) || text.starts_with("{{");
        (!anchored).then_some(node)
    };
    if let Some(node) = relative("chdir") {
        let hint = "write an absolute path, or one that begins with ~/";
        context.report("relative-path", &node.location, "a relative directory depends on where the task starts", hint);
    }
    if let (Some(node), None) = (relative("creates"), task.get("chdir")) {
        let hint = "write an absolute path or one that begins with ~/, or set chdir";
        context.report("relative-path", &node.location, "a relative path without chdir depends on where the task starts", hint);
    }
}

/// A path of the container in a task on the host, where the mount is another directory.
fn lint_container_paths(context: &mut LintContext<'_>, task: &YamlNode) {
    let place = task.get("in").and_then(YamlNode::as_text);
    let is_file_task = task.get("sync").is_some() || task.get("copy").is_some();
    if place == Some("container") || place.is_none() && !is_file_task {
        return;
    }
    let paths: [&[&str]; 4] = [&["sync", "to"], &["copy", "to"], &["chdir"], &["creates"]];
    for node in paths.iter().filter_map(|keys| task.get_path(keys)) {
        let Some(text) = node.as_text() else { continue };
        let mounts = context.job.hosts.first().and_then(|host| host.container.as_ref()).map(|container| container.mounts.as_slice());
        let Some(on_host) = mounts.and_then(|mounts| host_path(mounts, text)) else { continue };
        let message = format!("`{}` is a path of the container, and the task works on the host", shorten(text));
        context.report("container-path", &node.location, message, format!("write `{}`, which is mounted there", shorten(&on_host)));
    }
}

/// The path on the host of a path in a mount; `None`: it is in no mount, or is a path of the host as well.
fn host_path(mounts: &[Mount], path: &str) -> Option<String> {
    let below = |directory: &str| path.strip_prefix(directory).filter(|rest| rest.is_empty() || rest.starts_with('/'));
    if mounts.iter().any(|mount| below(&mount.source).is_some()) {
        return None;
    }
    let inside = mounts.iter().filter_map(|mount| below(&mount.target).map(|rest| (mount, rest)));
    inside.min_by_key(|(_, rest)| rest.len()).map(|(mount, rest)| format!("{}{rest}", mount.source))
}
