//! The arguments that `prepare` and `up` share.

use clap::Args;

use crate::inventory::TaskSelection;

/// Which tasks of `prepare` run.
#[derive(Debug, Clone, Default, Args)]
pub(crate) struct TaskArgs {
    /// Only tasks with one of these tags, separated by commas; tasks that register a variable always run
    #[arg(long, value_name = "TAGS", value_delimiter = ',', help_heading = "Tasks")]
    pub tags: Vec<String>,
    /// Leave out tasks with one of these tags
    #[arg(long, value_name = "TAGS", value_delimiter = ',', help_heading = "Tasks")]
    pub skip_tags: Vec<String>,
    /// Begin with the task of this name
    #[arg(long, value_name = "NAME", help_heading = "Tasks")]
    pub start_at: Option<String>,
    /// List the tasks that would run, and contact no host
    #[arg(long, help_heading = "Tasks")]
    pub list_tasks: bool,
}

impl TaskArgs {
    pub(crate) fn selection(&self) -> TaskSelection {
        // Without a tag, every task would run: `--tags ""` is a mistake.
        let tags = Some(named_tags(&self.tags)).filter(|tags| !tags.is_empty()).unwrap_or_else(|| self.tags.clone());
        TaskSelection { tags, skip_tags: named_tags(&self.skip_tags), start_at: self.start_at.clone() }
    }

    /// As on the command line.
    pub(crate) fn to_words(&self) -> Vec<String> {
        let lists = [("--tags", self.tags.join(",")), ("--skip-tags", self.skip_tags.join(","))];
        let flags = lists.into_iter().filter(|(_, list)| !list.is_empty());
        let start = self.start_at.iter().map(|name| ("--start-at", name.clone()));
        flags.chain(start).flat_map(|(flag, value)| [flag.to_owned(), value]).collect()
    }
}

/// Without spaces around them, and without empty ones: `"a, b"`, `a,`.
fn named_tags(given: &[String]) -> Vec<String> {
    given.iter().map(|tag| tag.trim().to_owned()).filter(|tag| !tag.is_empty()).collect()
}
