//! The hosts of the overview as a list: the cursor, and which rows that stand for several hosts are unfolded.
//!
//! Uses the list. The row under the cursor is remembered by its host, so that it stays while rows move.

use std::collections::{BTreeMap, BTreeSet};

use crate::tui::keymap::UiCommand;

use super::selectable_list::SelectableList;

/// What the list remembers.
#[derive(Debug, Clone, Default, PartialEq, Eq)]
pub(super) struct HostList {
    /// The rows: whether one stands for several hosts, and its first host.
    pub(super) rows: SelectableList<(bool, u32)>,
    /// The groups of equal hosts that are unfolded, by what their hosts have in common.
    pub(super) expanded: BTreeSet<String>,
    /// The group and the group's first host of every host that is in one, as it was drawn.
    pub(super) groups: BTreeMap<u32, (String, u32)>,
}

impl HostList {
    /// The host under the cursor.
    pub(super) fn selected_host(&self) -> Option<u32> {
        self.rows.selected().map(|(_, host)| host)
    }

    /// Unfolds the group of a host, or folds it.
    pub(super) fn fold(&mut self, host: u32, cmd: UiCommand) {
        let Some((group, first)) = self.groups.get(&host).cloned() else { return };
        if cmd == UiCommand::Right {
            self.expanded.insert(group);
        } else if self.expanded.remove(&group) {
            self.rows.select((true, first));
        }
    }
}
