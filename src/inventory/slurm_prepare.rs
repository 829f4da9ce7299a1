//! `prepare` on SLURM. Tasks of the host and files are done once, on the login node, before the job is submitted; tasks in the container are
//! steps of the job.

use super::errors::InventoryErrors;
use super::eval::Evaluator;
use super::slurm::SlurmContainer;
use super::yaml_tree::{YamlEntry, YamlKind, YamlNode, shorten};
use super::{Inventory, InventoryHost, PrepareTask, RuntimeValues};

/// What of the inventory the tasks on the login node need.
const LOGIN_KEYS: [&str; 5] = ["name", "ssh", "run_dir", "logs", "secrets"];

/// Gives every task its place: what does not run in a container of the job runs on the login node, whatever its `hosts` says.
pub(super) fn place_tasks(tree: &mut YamlNode, mode: SlurmContainer, host_names: &[String]) {
    let has_container = tree.get("container").is_some() && mode != SlurmContainer::None;
    let YamlKind::Map(entries) = &mut tree.kind else { return };
    let lists = entries.iter_mut().filter(|entry| entry.key == "prepare");
    for task in lists.flat_map(|entry| if let YamlKind::List(tasks) = &mut entry.value.kind { tasks.as_mut_slice() } else { &mut [] }) {
        let sends_files = task.get("sync").is_some() || task.get("copy").is_some();
        let in_job = match task.get("in").map(|node| &node.kind) {
            Some(YamlKind::Scalar { text, .. }) => text != "host",
            _ => has_container && !sends_files,
        };
        let location = task.location.clone();
        let YamlKind::Map(entries) = &mut task.kind else { continue };
        if in_job {
            continue;
        }
        entries.retain(|entry| !["in", "hosts", "once"].contains(&entry.key.as_str()));
        entries.iter_mut().filter(|entry| entry.key == "copy").for_each(|entry| read_from_login_node(&mut entry.value, host_names));
        entries.push(YamlEntry::new("in", location.clone(), YamlNode::scalar(location, "host", true)));
    }
}

/// The files of every host are the login node's: they are on shared paths.
fn read_from_login_node(copy: &mut YamlNode, host_names: &[String]) {
    let YamlKind::Map(entries) = &mut copy.kind else { return };
    for entry in entries.iter_mut().filter(|entry| entry.key == "from") {
        let YamlKind::Scalar { text, .. } = &mut entry.value.kind else { continue };
        let path = host_names.iter().find_map(|name| text.strip_prefix(name.as_str())?.strip_prefix(':'));
        if let Some(path) = path {
            *text = format!("master:{path}");
        }
    }
}

/// Reports tasks that SLURM cannot do. `tasks`: of the tree after [`place_tasks`].
pub(super) fn check_tasks(tree: &YamlNode, tasks: &[PrepareTask], mode: SlurmContainer, errors: &mut InventoryErrors) {
    let Some(list) = tree.get("prepare") else { return };
    let mut first_in_job: Option<&PrepareTask> = None;
    for task in tasks {
        let Some(node) = list.items().get(task.number.saturating_sub(1) as usize) else { continue };
        let at = |key: &str| node.get(key).map_or(&node.location, |node| &node.location);
        if task.files.as_ref().is_some_and(|files| files.in_container) {
            let hint = "remove `in`: send them to a directory that all nodes share, and mount it by container.mounts";
            errors.report(at("in"), "files cannot be sent into a container of a job on SLURM", hint);
        } else if task.in_container && mode == SlurmContainer::None {
            let hint = "remove it: without a container the task runs on the login node";
            errors.report(at("in"), "slurm.container is none: the job has no container", hint);
        } else if task.in_container && mode == SlurmContainer::Apptainer {
            let hint = "build it into the image, or write `in: host`: then it runs on the login node";
            errors.report(&node.location, "an apptainer container keeps nothing of what a task changes in it", hint);
        }
        match first_in_job {
            Some(earlier) if !task.in_container && task.files.as_ref().is_none_or(|files| !files.in_container) => {
                let message = format!("it would run before the task `{}`, which is a step of the job", shorten(&earlier.name));
                let hint = "move it up: files and tasks on the host are done when the job is submitted, on the login node";
                errors.report(&node.location, message, hint);
            }
            Some(_) => {}
            None => first_in_job = Some(task).filter(|task| task.in_container),
        }
        check_values(task, node, errors);
    }
}

/// Reports values that differ between the nodes, or that a task on the login node comes too early for.
fn check_values(task: &PrepareTask, node: &YamlNode, errors: &mut InventoryErrors) {
    let differs = |mut values: Vec<String>| {
        values.dedup();
        values.len() > 1
    };
    let commands = task.hosts.iter().flatten().map(|command| format!("{command:?}")).collect();
    let targets = task.files.iter().flat_map(|files| files.to.iter().flatten().cloned()).collect();
    if differs(commands) || differs(targets) {
        let hint = if task.in_container { "let the task read ORCH_NODE_RANK from its environment" } else { "remove `host` from it" };
        errors.report(&node.location, "`host` differs from node to node, and SLURM chooses the nodes when the job starts", hint);
    }
    let has_variables = task.hosts.iter().flatten().any(|command| command.env.values().any(|value| value.contains('\0')));
    if has_variables && !task.in_container {
        let location = node.get("env").map_or(&node.location, |env| &env.location);
        let message = "a value that is known when the job starts, and this task runs before, on the login node";
        errors.report(location, message, "remove `run`, `master` and `host` from it");
    }
}

/// The inventory of the tasks on the login node; `None`: there are none. `view`: the inventory as SLURM sees it.
pub(super) fn login_inventory(view: &Inventory, login: &InventoryHost, runtime: &RuntimeValues) -> Option<Inventory> {
    let evaluator = Evaluator::new(view.eval_inputs(runtime));
    let tree = &view.merged.tree;
    let prepare = tree.get("prepare")?;
    let on_host = |task: &&YamlNode| task.get("in").and_then(YamlNode::as_text) == Some("host");
    let tasks: Vec<YamlNode> =
        prepare.items().iter().take_while(on_host).map(|task| without_templates(evaluator.evaluate(task, Some(0)))).collect();
    if tasks.is_empty() {
        return None;
    }
    let mut entries: Vec<YamlEntry> = tree.entries().iter().filter(|entry| LOGIN_KEYS.contains(&entry.key.as_str())).cloned().collect();
    let value = YamlNode { location: prepare.location.clone(), kind: YamlKind::List(tasks) };
    entries.push(YamlEntry::new("prepare", prepare.location.clone(), value));
    // No rank meets there: which of its addresses the nodes reach does not matter.
    let host = InventoryHost { fabric_address: Some("127.0.0.1".to_owned()), ..login.clone() };
    let tree = YamlNode::map(tree.location.clone(), entries);
    Some(Inventory { engine: None, slurm: None, ..view.with_hosts(tree, vec![host], &prepare.location) })
}

/// The same texts, in which nothing is evaluated again.
fn without_templates(node: YamlNode) -> YamlNode {
    let kind = match node.kind {
        YamlKind::List(items) => YamlKind::List(items.into_iter().map(without_templates).collect()),
        YamlKind::Map(entries) => {
            YamlKind::Map(entries.into_iter().map(|entry| YamlEntry { value: without_templates(entry.value), ..entry }).collect())
        }
        YamlKind::Scalar { text, plain } => YamlKind::Scalar { text: text.replace("{{", "{{ '{{' }}"), plain },
        unknown @ YamlKind::Unknown(_) => unknown,
    };
    YamlNode { kind, ..node }
}
