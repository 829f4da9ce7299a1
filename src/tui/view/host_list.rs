//! The hosts of the overview as a list: the cursor, and which groups of hosts are expanded.
//!
//! The cursor follows its host when rows move.

use std::collections::{BTreeMap, BTreeSet};

use crate::tui::keymap::UiCommand;

use super::selectable_list::SelectableList;

#[derive(Debug, Clone, Default, PartialEq, Eq)]
pub(super) struct HostList {
    /// Row keys: whether a row stands for several hosts, and its first host.
    pub(super) rows: SelectableList<(bool, u32)>,
    /// Expanded groups of equal hosts, by group key.
    pub(super) expanded: BTreeSet<String>,
    /// Group and first host of every grouped host, as of the last frame.
    pub(super) groups: BTreeMap<u32, (String, u32)>,
}

impl HostList {
    pub(super) fn selected_host(&self) -> Option<u32> {
        self.rows.selected().map(|(_, host)| host)
    }

    /// Expands or collapses the group of a host.
    pub(super) fn fold(&mut self, host: u32, cmd: UiCommand) {
        let Some((group, first)) = self.groups.get(&host).cloned() else { return };
        if cmd == UiCommand::Right {
            self.expanded.insert(group);
        } else if self.expanded.remove(&group) {
            self.rows.select((true, first));
        }
    }
}
