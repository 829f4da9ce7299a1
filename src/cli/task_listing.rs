//! Which tasks of `prepare` a command runs, and the list of them.

use unicode_width::UnicodeWidthStr as _;

use crate::cli::exit::CliError;
use crate::cli::local_env::{print_stderr, print_stdout, user_lang};
use crate::event::Outcome;
use crate::inventory::{Inventory, PrepareTask, TaskSelection};
use crate::text::hostlist::fold_names;
use crate::text::width::pad_end;

/// # Errors
/// The task to start at or a tag does not exist.
pub(super) fn select_tasks<'t>(selection: &TaskSelection, tasks: &'t [PrepareTask]) -> Result<Vec<&'t PrepareTask>, CliError> {
    selection.select(tasks).map_err(|(message, hint)| CliError::Usage(format!("{message}\n    help: {hint}")))
}

/// Prints the tasks that would run: number, name, hosts, tags.
pub(super) fn list_tasks(inventory: &Inventory, selection: &TaskSelection) -> Result<Outcome, CliError> {
    let job = inventory.draft()?;
    let tasks = select_tasks(selection, &job.tasks)?;
    let width = tasks.iter().map(|task| task.name.width()).max().unwrap_or(0);
    let lang = user_lang();
    let mut text = String::new();
    for task in tasks {
        let names: Vec<String> =
            inventory.hosts.iter().zip(&task.hosts).filter(|(_, command)| command.is_some()).map(|(host, _)| host.name.clone()).collect();
        let hosts = if names.is_empty() { lang.tr("no host").to_owned() } else { fold_names(&names) };
        let tags = if task.tags.is_empty() { String::new() } else { lang.tr_fill("  tags: {}", &[&task.tags.join(", ")]) };
        text.push_str(&format!("{:>3}  {}  {hosts}{tags}\n", task.number, pad_end(&task.name, width)));
    }
    if text.is_empty() {
        print_stderr("no task would run");
    }
    print_stdout(&text);
    Ok(Outcome::Ok)
}
