//! A `sync` or `copy` task of `prepare`: files of the laptop or of another host, sent through the connection of the host.

use crate::inventory::{FileSource, PrepareTask};
use crate::plan::action::Execution;
use crate::plan::host_context::HostContext;

/// What one host gets.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct SendFiles {
    /// Counts from 1 over all tasks of the inventory.
    pub number: u32,
    pub name: String,
    /// What is sent, for people.
    pub from: String,
    /// Where it goes, for people.
    pub to: String,
    /// The directory that gets it.
    pub directory: String,
    /// Words that run a shell where the directory is; empty: on the host.
    pub enter: Vec<String>,
    by_hand: String,
}

impl SendFiles {
    /// `None`: the host takes no part, or the task is a script.
    pub(crate) fn new(task: &PrepareTask, host: usize, context: &HostContext) -> Option<SendFiles> {
        let files = task.files.as_ref()?;
        let (directory, target) = (files.to.get(host).cloned().flatten()?, files.target(host)?);
        let from = match files.source {
            FileSource::Directory { .. } | FileSource::LaptopFiles => format!("{} on the laptop", files.from),
            FileSource::HostFiles { .. } => files.from.clone(),
        };
        let what = match files.source {
            FileSource::Directory { .. } => "the laptop's directory ",
            FileSource::LaptopFiles => "the laptop's ",
            FileSource::HostFiles { .. } => "",
        };
        let place = if files.in_container { "in the container" } else { "on this host" };
        Some(SendFiles {
            number: task.number,
            name: task.name.clone(),
            from,
            to: if files.in_container { format!("{target} in the container") } else { target.clone() },
            directory,
            enter: if files.in_container { context.container_shell_words() } else { Vec::new() },
            by_hand: format!("{what}{} to {target} {place}", files.from),
        })
    }

    pub(super) fn execution(&self) -> Execution {
        Execution::SendFiles { from: self.from.clone(), to: self.to.clone() }
    }

    /// The same by hand, as a comment: the files are elsewhere.
    pub(crate) fn manual_script(&self) -> String {
        format!("# task {}: {}: first copy {}\n", self.number, self.name, self.by_hand)
    }
}
