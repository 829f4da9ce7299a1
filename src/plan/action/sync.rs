//! A `sync` task of `prepare`: a directory of the laptop, sent through the connection of the host.

use crate::inventory::PrepareTask;
use crate::plan::action::Execution;

/// What one host gets.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct SyncFiles {
    /// Counts from 1 over all tasks of the inventory.
    pub number: u32,
    pub name: String,
    /// A directory of the laptop, as the inventory writes it.
    pub from: String,
    /// A directory of the host.
    pub to: String,
}

impl SyncFiles {
    /// `None`: the host takes no part, or the task is a script.
    pub(crate) fn new(task: &PrepareTask, host: usize) -> Option<SyncFiles> {
        let sync = task.sync.as_ref()?;
        let to = sync.to.get(host).cloned().flatten()?;
        Some(SyncFiles { number: task.number, name: task.name.clone(), from: sync.from.clone(), to })
    }

    pub(super) fn execution(&self) -> Execution {
        Execution::SendFiles { from: self.from.clone(), to: self.to.clone() }
    }

    /// The same by hand, as a comment: the files are on the laptop.
    pub(crate) fn manual_script(&self) -> String {
        format!("# task {}: {}: first copy the laptop's directory {} to {} on this host\n", self.number, self.name, self.from, self.to)
    }
}
