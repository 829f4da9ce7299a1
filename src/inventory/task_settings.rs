//! `prepare`: the tasks that run before a launch, every value final.

use std::collections::{BTreeMap, BTreeSet};
use std::time::Duration;

/// A task: a script, or files for hosts.
#[derive(Debug, Clone, PartialEq, Eq, Default)]
pub struct PrepareTask {
    /// Counts from 1 over all tasks of the inventory: names its files on the hosts and its logs here.
    pub number: u32,
    pub name: String,
    /// Whether it runs in the container of the ranks; else on the bare host.
    pub in_container: bool,
    /// Whether its scripts run as root, through `sudo -n`; on the bare host alone.
    pub uses_sudo: bool,
    /// The variable that its output becomes.
    pub register: Option<String>,
    /// Whether the registered value of its only host is every host's.
    pub shares_value: bool,
    /// A regex: the task changed something where its output matches. `None`: where it ran.
    pub changed_pattern: Option<String>,
    /// For each try.
    pub timeout: Duration,
    /// Further tries after the first.
    pub retries: u32,
    pub delay: Duration,
    pub tags: Vec<String>,
    /// Same order as [`Inventory::hosts`](super::Inventory::hosts); `None`: the host takes no part.
    pub hosts: Vec<Option<TaskCommand>>,
    /// It sends files, and its commands are empty.
    pub files: Option<FileTask>,
}

/// What a `sync` or `copy` task sends.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct FileTask {
    /// As the inventory writes it.
    pub from: String,
    pub source: FileSource,
    /// A directory of each host, in the order of [`PrepareTask::hosts`].
    pub to: Vec<Option<String>>,
    /// The name that a single file gets; `None`: its own.
    pub rename: Option<String>,
    /// The mode that every file gets; `None`: its own.
    pub mode: Option<u32>,
    /// Whether `to` is a directory in the container.
    pub in_container: bool,
}

/// Whose files they are.
#[derive(Debug, Clone, PartialEq, Eq)]
pub enum FileSource {
    /// A directory of the laptop, relative to the inventory's folder; what these globs match, as in `.gitignore`, is left out. With `delete`,
    /// hosts lose what it does not have.
    Directory { exclude: Vec<String>, delete: bool },
    /// A file of the laptop or a pattern of files, relative to the inventory's folder.
    LaptopFiles,
    /// A file or a pattern of files of one of [`Inventory::hosts`](super::Inventory::hosts).
    HostFiles { host: usize, path: String },
}

impl FileTask {
    /// Where a host gets it, as the inventory writes it.
    pub(crate) fn target(&self, host: usize) -> Option<String> {
        let directory = self.to.get(host)?.as_ref()?;
        Some(match &self.rename {
            Some(name) => format!("{}/{name}", directory.trim_end_matches('/')),
            None => directory.clone(),
        })
    }
}

/// What one host runs for a task.
#[derive(Debug, Clone, PartialEq, Eq, Default)]
pub struct TaskCommand {
    /// A bash script.
    pub script: String,
    pub chdir: Option<String>,
    pub env: BTreeMap<String, String>,
    /// A path or a glob: where it matches there is nothing to do.
    pub creates: Option<String>,
    /// A bash script that succeeds where there is nothing to do.
    pub unless: Option<String>,
}

/// Tags that have a meaning without a task that has them, as in Ansible.
const SPECIAL_TAGS: [&str; 5] = ["all", "tagged", "untagged", "always", "never"];

/// Which tasks a command runs.
#[derive(Debug, Clone, Default, PartialEq, Eq)]
pub(crate) struct TaskSelection {
    /// Empty: all.
    pub(crate) tags: Vec<String>,
    pub(crate) skip_tags: Vec<String>,
    /// The name of the first task.
    pub(crate) start_at: Option<String>,
}

impl TaskSelection {
    /// The tasks to run, in order. A task that registers a variable always runs: later tasks and the ranks need it.
    ///
    /// # Errors
    /// No task has the name to start at, or one of the tags; what is wrong, and the names that there are.
    pub(crate) fn select<'t>(&self, tasks: &'t [PrepareTask]) -> Result<Vec<&'t PrepareTask>, (String, String)> {
        self.check_tags(tasks)?;
        let first = match &self.start_at {
            None => 0,
            Some(name) => tasks.iter().position(|task| task.name == *name).ok_or_else(|| {
                let names: Vec<String> = tasks.iter().map(|task| format!("`{}`", task.name)).collect();
                let hint =
                    if names.is_empty() { "the inventory has no tasks".to_owned() } else { format!("the tasks are {}", names.join(", ")) };
                (format!("--start-at: no task is named `{name}`"), hint)
            })?,
        };
        let has_tag = |task: &PrepareTask, tags: &[String]| {
            task.tags.iter().any(|tag| tags.contains(tag))
                || tags.iter().any(|tag| match tag.as_str() {
                    "all" => true,
                    "tagged" => !task.tags.is_empty(),
                    "untagged" => task.tags.is_empty(),
                    _ => false,
                })
        };
        let wanted = |task: &PrepareTask| {
            let always = task.tags.iter().any(|tag| tag == "always");
            let never = task.tags.iter().any(|tag| tag == "never");
            let asked =
                if never { task.tags.iter().any(|tag| self.tags.contains(tag)) } else { self.tags.is_empty() || has_tag(task, &self.tags) };
            (always || asked) && !has_tag(task, &self.skip_tags)
        };
        let selected = |(at, task): &(usize, &PrepareTask)| task.register.is_some() || *at >= first && wanted(task);
        Ok(tasks.iter().enumerate().filter(selected).map(|(_, task)| task).collect())
    }

    /// # Errors
    /// A tag that no task has: misspelled, it would leave out every task, or none.
    fn check_tags(&self, tasks: &[PrepareTask]) -> Result<(), (String, String)> {
        let known: BTreeSet<&str> = tasks.iter().flat_map(|task| &task.tags).map(String::as_str).collect();
        let find_unknown =
            |tags: &'_ [String]| tags.iter().find(|tag| !known.contains(tag.as_str()) && !SPECIAL_TAGS.contains(&tag.as_str())).cloned();
        let unknown = [("--tags", &self.tags), ("--skip-tags", &self.skip_tags)];
        let Some((flag, tag)) = unknown.into_iter().find_map(|(flag, tags)| Some((flag, find_unknown(tags)?))) else { return Ok(()) };
        let hint = if known.is_empty() {
            "no task of the inventory has `tags`".to_owned()
        } else {
            format!("the tags are {}", known.iter().map(|tag| format!("`{tag}`")).collect::<Vec<_>>().join(", "))
        };
        Err((format!("{flag}: no task has the tag `{tag}`"), hint))
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    fn task(number: u32, tags: &[&str]) -> PrepareTask {
        PrepareTask {
            number,
            name: format!("t{number}"),
            tags: tags.iter().map(|tag| (*tag).to_owned()).collect(),
            ..PrepareTask::default()
        }
    }

    fn selected(tags: &[&str], skip: &[&str], start_at: Option<&str>) -> Vec<u32> {
        let words = |list: &[&str]| list.iter().map(|word| (*word).to_owned()).collect();
        let tasks = [
            task(1, &["wheel"]),
            PrepareTask { register: Some("V".to_owned()), ..task(2, &[]) },
            task(3, &[]),
            task(4, &["never", "clean"]),
            task(5, &["always"]),
        ];
        let selection = TaskSelection { tags: words(tags), skip_tags: words(skip), start_at: start_at.map(str::to_owned) };
        selection.select(&tasks).expect("the task exists").iter().map(|task| task.number).collect()
    }

    #[test]
    fn tags_select_tasks_as_in_ansible() {
        assert_eq!(selected(&[], &[], None), [1, 2, 3, 5]);
        assert_eq!(selected(&["wheel"], &[], None), [1, 2, 5]);
        assert_eq!(selected(&["clean"], &[], None), [2, 4, 5]);
        assert_eq!(selected(&["untagged"], &[], None), [2, 3, 5]);
        assert_eq!(selected(&[], &["wheel", "always"], None), [2, 3]);
        assert_eq!(selected(&["all"], &["tagged"], None), [2, 3]);
    }

    #[test]
    fn unknown_tag_is_refused() {
        let tasks = [task(1, &["wheel", "always"]), task(2, &[])];
        for (tags, skip, tasks, expected) in [
            ("wheels", "", &tasks[..], Some(("--tags: no task has the tag `wheels`", "the tags are `always`, `wheel`"))),
            ("wheel", "code", &tasks[..], Some(("--skip-tags: no task has the tag `code`", "the tags are `always`, `wheel`"))),
            ("wheel", "", &tasks[1..], Some(("--tags: no task has the tag `wheel`", "no task of the inventory has `tags`"))),
            ("wheel", "", &[], Some(("--tags: no task has the tag `wheel`", "no task of the inventory has `tags`"))),
            ("untagged", "never", &tasks[..], None),
        ] {
            let words = |text: &str| text.split(' ').filter(|word| !word.is_empty()).map(str::to_owned).collect();
            let selection = TaskSelection { tags: words(tags), skip_tags: words(skip), start_at: None };
            let refused = selection.select(tasks).err();
            assert_eq!(refused.as_ref().map(|(what, hint)| (what.as_str(), hint.as_str())), expected, "{tags} {skip}");
        }
    }

    #[test]
    fn start_at_keeps_registering_tasks() {
        assert_eq!(selected(&[], &[], Some("t3")), [2, 3, 5]);
        let unknown = TaskSelection { start_at: Some("t9".to_owned()), ..TaskSelection::default() };
        assert_eq!(unknown.select(&[task(1, &[])]), Err(("--start-at: no task is named `t9`".to_owned(), "the tasks are `t1`".to_owned())));
    }
}
