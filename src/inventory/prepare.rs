//! The `prepare` list: its tasks, validated, with every template evaluated.

use std::time::Duration;

use super::errors::{InventoryErrors, validate_variable_name};
use super::eval::Evaluator;
use super::file_task::{FileTaskReader, check_deletions};
use super::launch::validate_regex;
use super::problem::{Verdict, require};
use super::schema;
use super::task_settings::{PrepareTask, TaskCommand};
use super::yaml_tree::{YamlKind, YamlNode, shorten};
use super::{Inventory, JobHost};
use crate::text::{host_patterns, shell_template};

/// The most tasks of an inventory.
const MAX_TASKS: usize = 200;
const DEFAULT_TIMEOUT: Duration = Duration::from_secs(30 * 60);
const MAX_RETRIES: u32 = 100;
const MAX_NAME_CHARS: usize = 60;

/// Variables that decide which programs a shell runs: what a host prints must not become one.
const UNSAFE_TO_REGISTER: [&str; 13] = [
    "PATH",
    "HOME",
    "SHELL",
    "USER",
    "IFS",
    "ENV",
    "BASH_ENV",
    "SHELLOPTS",
    "PS4",
    "PROMPT_COMMAND",
    "PYTHONSTARTUP",
    "PYTHONPATH",
    "PYTHONHOME",
];

/// Compares the keys of every task with the known ones.
pub(super) fn check_keys(tree: &YamlNode, errors: &mut InventoryErrors) {
    let Some(list) = tree.get("prepare") else { return };
    for task in errors.read_list(list, "for example [{ name: code, run: git -C ~/src pull }]") {
        errors.check_keys(task, &schema::TASK_SCHEMA);
        if let Some(block) = task.get("sync") {
            errors.check_keys(block, &schema::SYNC_SCHEMA);
        }
        if let Some(block) = task.get("copy") {
            errors.check_keys(block, &schema::COPY_SCHEMA);
        }
    }
}

/// The tasks of the inventory; `check_keys` reports errors in keys. `hosts`: the job's hosts.
pub(super) fn parse_prepare(
    inventory: &Inventory,
    evaluator: &Evaluator<'_>,
    hosts: &[JobHost],
    errors: &mut InventoryErrors,
) -> Vec<PrepareTask> {
    let Some(list) = evaluator.inputs().tree.get("prepare") else { return Vec::new() };
    if let Some(extra) = list.items().get(MAX_TASKS) {
        errors.report(&extra.location, format!("more than {MAX_TASKS} tasks"), "join tasks: `run` is a script of any length");
    }
    let mut tasks: Vec<PrepareTask> = Vec::new();
    for (number, node) in (1..).zip(list.items().iter().take(MAX_TASKS)).filter(|(_, node)| matches!(node.kind, YamlKind::Map(_))) {
        let reader = TaskReader { inventory, evaluator, hosts, node };
        let Some(task) = reader.parse(number, errors) else { continue };
        for earlier in &tasks {
            if let (true, Some(name)) = (earlier.name == task.name, node.get("name")) {
                errors.report(&name.location, format!("two tasks are named `{}`", shorten(&task.name)), "rename one of them");
            }
            if let (true, Some(register)) = (earlier.register.is_some() && earlier.register == task.register, node.get("register")) {
                errors.report(
                    &register.location,
                    format!("the task `{}` registers it too", shorten(&earlier.name)),
                    "rename one of the two variables",
                );
            }
        }
        tasks.push(task);
    }
    check_deletions(&tasks, &inventory.run_dir, list, errors);
    tasks
}

/// One entry of the list.
struct TaskReader<'a> {
    inventory: &'a Inventory,
    evaluator: &'a Evaluator<'a>,
    hosts: &'a [JobHost],
    node: &'a YamlNode,
}

impl TaskReader<'_> {
    fn read(&self, key: &str) -> Option<YamlNode> {
        self.node.get(key).map(|node| self.evaluator.evaluate(node, None))
    }

    fn parse(&self, number: u32, errors: &mut InventoryErrors) -> Option<PrepareTask> {
        let name = self.parse_name(errors);
        let kinds: Vec<(&str, &YamlNode)> =
            ["run", "sync", "copy"].into_iter().filter_map(|key| Some((key, self.node.get(key)?))).collect();
        if let [(first, _), (second, other), ..] = kinds.as_slice() {
            errors.report(&other.location, format!("`{first}` and `{second}` in one task"), "write two tasks");
        }
        let run = match kinds.first() {
            Some(("run", run)) => *run,
            Some(_) => return self.parse_file_task(number, name, errors),
            None => {
                let hint = "write what the task runs, a bash script, or `sync` or `copy`";
                errors.report(&self.node.location.child("run"), "`run` is missing", hint);
                return None;
            }
        };
        let (in_container, uses_sudo) = self.parse_place(errors);
        let commands = self.parse_commands(run, errors);
        let register = self.parse_register(&commands, errors);
        let duration = |key: &str, errors: &mut InventoryErrors| self.read(key).and_then(|node| errors.read_duration(&node));
        let timeout = duration("timeout", errors);
        if let (Some(Duration::ZERO), Some(node)) = (timeout, self.node.get("timeout")) {
            errors.report(&node.location, "a timeout of 0", "write how long the task may take, for example 30m");
        }
        Some(PrepareTask {
            number,
            name: name?,
            in_container,
            uses_sudo,
            shares_value: register.is_some() && commands.iter().flatten().count() == 1,
            register,
            changed_pattern: self.read("changed").and_then(|node| errors.validated_text(&node, validate_regex)),
            timeout: timeout.unwrap_or(DEFAULT_TIMEOUT),
            retries: self.read("retries").and_then(|node| errors.read_number(&node, 0, MAX_RETRIES)).unwrap_or(0),
            delay: duration("delay", errors).unwrap_or_default(),
            tags: self.parse_tags(errors),
            hosts: commands,
            files: None,
        })
    }

    fn parse_file_task(&self, number: u32, name: Option<String>, errors: &mut InventoryErrors) -> Option<PrepareTask> {
        let selected = self.selected_hosts(errors);
        let reader = FileTaskReader {
            inventory: self.inventory,
            evaluator: self.evaluator,
            task: self.node,
            selected: &selected,
            in_container: self.parse_in(errors).unwrap_or(false),
        };
        let files = reader.parse(errors);
        Some(PrepareTask {
            number,
            name: name?,
            timeout: DEFAULT_TIMEOUT,
            tags: self.parse_tags(errors),
            hosts: selected.into_iter().map(|takes_part| takes_part.then(TaskCommand::default)).collect(),
            files: Some(files?),
            ..PrepareTask::default()
        })
    }

    fn parse_name(&self, errors: &mut InventoryErrors) -> Option<String> {
        match self.read("name") {
            Some(node) => errors.validated_text(&node, validate_task_name),
            None => {
                errors.report(&self.node.location.child("name"), "`name` is missing", "name the task: reports and --start-at use it");
                None
            }
        }
    }

    fn has_container(&self) -> bool {
        self.hosts.iter().any(|host| host.container.is_some())
    }

    /// Whether it works in the container, if it says where.
    fn parse_in(&self, errors: &mut InventoryErrors) -> Option<bool> {
        let place = self.read("in").and_then(|node| errors.read_choice(&node, &[("host", false), ("container", true)]));
        if let (Some(true), false, Some(node)) = (place, self.has_container(), self.node.get("in")) {
            errors.report(&node.location, "the inventory has no container", "remove it, or add `container`");
        }
        place
    }

    /// Whether a script runs in the container, and whether through sudo.
    fn parse_place(&self, errors: &mut InventoryErrors) -> (bool, bool) {
        let in_container = self.parse_in(errors).unwrap_or_else(|| self.has_container());
        let uses_sudo = errors.choose(self.read("become").as_ref(), &[("none", false), ("sudo", true)], false);
        if let (true, true, Some(node)) = (uses_sudo, in_container, self.node.get("become")) {
            let hint = "remove it, or write `in: host`: a task in a container runs as the container's user";
            errors.report(&node.location, "`become: sudo` in a container", hint);
        }
        (in_container, uses_sudo)
    }

    /// What each host runs; `None` for hosts that take no part.
    fn parse_commands(&self, run: &YamlNode, errors: &mut InventoryErrors) -> Vec<Option<TaskCommand>> {
        let selected = self.selected_hosts(errors);
        selected.into_iter().enumerate().map(|(host, takes_part)| takes_part.then(|| self.parse_command(run, host, errors))).collect()
    }

    fn parse_command(&self, run: &YamlNode, host: usize, errors: &mut InventoryErrors) -> TaskCommand {
        let read = |key: &str| self.node.get(key).map(|node| self.evaluator.evaluate(node, Some(host)));
        let run = self.evaluator.evaluate(run, Some(host));
        let path = |key: &str, errors: &mut InventoryErrors| read(key).and_then(|node| errors.validated_text(&node, validate_path));
        TaskCommand {
            script: errors.validated_text(&run, validate_script).unwrap_or_default(),
            chdir: path("chdir", errors),
            env: read("env").map(|node| errors.read_env(&node)).unwrap_or_default(),
            creates: path("creates", errors),
            unless: read("unless").and_then(|node| errors.validated_text(&node, validate_script)),
        }
    }

    /// Whether each host of this run takes part; with `once` the first of them alone.
    fn selected_hosts(&self, errors: &mut InventoryErrors) -> Vec<bool> {
        let mut selected = self.named_hosts(errors);
        if self.read("once").and_then(|node| errors.read_bool(&node)).unwrap_or(false) {
            let first = selected.iter().position(|takes_part| *takes_part);
            selected.iter_mut().enumerate().for_each(|(host, takes_part)| *takes_part = Some(host) == first);
        }
        selected
    }

    /// Whether `hosts` names each host of this run. A host that `--limit` left out may be named all the same.
    fn named_hosts(&self, errors: &mut InventoryErrors) -> Vec<bool> {
        let names: Vec<&str> = self.inventory.hosts.iter().map(|host| host.name.as_str()).collect();
        let Some(node) = self.read("hosts") else { return vec![true; names.len()] };
        let words = errors.read_text_list(&node);
        match words.join(",").as_str() {
            "all" => return vec![true; names.len()],
            "master" => return (0..names.len()).map(|host| host == 0).collect(),
            "workers" => return (0..names.len()).map(|host| host > 0).collect(),
            _ => {}
        }
        let all = &self.inventory.merged.all_host_names;
        match host_patterns::select_hosts(&words.join(","), all) {
            Ok(kept) => {
                let chosen: Vec<&String> = all.iter().zip(kept).filter(|(_, kept)| *kept).map(|(name, _)| name).collect();
                names.iter().map(|name| chosen.iter().any(|chosen| chosen == name)).collect()
            }
            Err(_) if all.iter().any(|name| name.contains('\0')) => {
                errors.report(&node.location, "SLURM chooses the nodes", "write all, master or workers");
                vec![false; names.len()]
            }
            Err((message, hint)) => {
                errors.report(&node.location, message, hint);
                vec![false; names.len()]
            }
        }
    }

    fn parse_register(&self, commands: &[Option<TaskCommand>], errors: &mut InventoryErrors) -> Option<String> {
        let node = self.read("register")?;
        let name = errors.validated_text(&node, validate_registered_name)?;
        for key in ["creates", "unless"] {
            if let Some(other) = self.node.get(key) {
                errors.report(
                    &other.location,
                    format!("`register` and `{key}` are both given"),
                    "remove one: a skipped task has no output to register",
                );
            }
        }
        let merged = &self.inventory.merged;
        let mut taken = merged.env_entries().map(|entry| entry.key.as_str());
        let secret = merged.tree.get("secrets").is_some_and(|list| list.items().iter().any(|item| item.as_text() == Some(&name)));
        if secret || taken.any(|key| key == name) {
            let message = format!("`{}` is also {}", name, if secret { "listed in secrets" } else { "set in env" });
            errors.report(&node.location, message, "rename one of the two variables");
        }
        if commands.iter().all(Option::is_none) && self.inventory.merged.all_host_names.len() > self.inventory.hosts.len() {
            errors.report(
                &node.location,
                "--limit leaves out every host of this task, and later tasks or ranks use its value",
                "add one of its hosts to --limit",
            );
        }
        Some(name)
    }

    fn parse_tags(&self, errors: &mut InventoryErrors) -> Vec<String> {
        let Some(node) = self.read("tags") else { return Vec::new() };
        let tags = errors.read_text_list(&node);
        for tag in tags.iter().filter(|tag| !is_valid_tag(tag)) {
            errors.report(&node.location, format!("`{}` is not a tag", shorten(tag)), "use letters, digits, - and _");
        }
        tags
    }
}

fn is_valid_tag(tag: &str) -> bool {
    let reserved = ["all", "tagged", "untagged"].contains(&tag);
    !reserved && !tag.is_empty() && tag.len() <= 40 && tag.chars().all(|c| c.is_ascii_alphanumeric() || "-_".contains(c))
}

fn validate_task_name(text: &str) -> Verdict {
    let fine = !text.trim().is_empty() && !text.contains(char::is_control) && text.chars().count() <= MAX_NAME_CHARS;
    let hint = format!("write one line of at most {MAX_NAME_CHARS} characters");
    require(fine, format!("`{}` cannot name a task", shorten(text)), &hint)
}

fn validate_script(text: &str) -> Verdict {
    require(!text.trim().is_empty(), "empty script", "write a command, or remove the key")?;
    validate_no_nul(text)
}

fn validate_path(text: &str) -> Verdict {
    require(!text.is_empty(), "an empty path", "write a path, or remove the key")?;
    require(!text.contains('\n'), "a path with a line break", "write one path")?;
    validate_no_nul(text)
}

/// On SLURM a NUL stands for what only the running job knows.
fn validate_no_nul(text: &str) -> Verdict {
    match text.contains('\0') {
        false => Ok(()),
        true if shell_template::has_foreign_nul(text) => Err(("a NUL byte".to_owned(), "remove it".to_owned())),
        true => Err((
            "a value that is known when the job starts".to_owned(),
            "a task in the container reads ORCH_RUN_ID, ORCH_HOST and ORCH_NODE_RANK from its environment; one on the host runs before, on the login node".to_owned(),
        )),
    }
}

fn validate_registered_name(name: &str) -> Verdict {
    validate_variable_name(name)?;
    let unsafe_name = UNSAFE_TO_REGISTER.contains(&name) || name.starts_with("LD_") || name.starts_with("BASH_FUNC");
    require(!unsafe_name, format!("`{name}` decides which programs run"), "register another name, and use its value in a script")
}
