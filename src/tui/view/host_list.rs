//! The hosts of the overview as a list: the cursor, and which hosts are shown, and which groups are expanded.
//!
//! The cursor follows its host when rows move.

use std::collections::{BTreeMap, BTreeSet};
use std::sync::Arc;

use crate::tui::keymap::UiCommand;

use super::host_selection::HostSelection;
use super::selectable_list::SelectableList;

#[derive(Debug, Clone, Default, PartialEq)]
pub(super) struct HostList {
    pub(super) selection: HostSelection,
    /// Row keys: whether a row represents several hosts, and its first host.
    pub(super) rows: SelectableList<(bool, u32)>,
    /// Expanded groups of equal hosts, by group key.
    pub(super) expanded: BTreeSet<String>,
    /// Group and first host of every grouped host, as of the last frame.
    pub(super) groups: BTreeMap<u32, (Arc<str>, u32)>,
}

impl HostList {
    pub(super) fn selected_host(&self) -> Option<u32> {
        self.rows.selected().map(|(_, host)| host)
    }

    /// Updates the row keys, as [`SelectableList::set_rows`] does; the cursor follows its host into a group and out of it.
    pub(super) fn set_rows(&mut self, keys: Vec<(bool, u32)>, room: usize) -> (usize, usize) {
        if let Some((folded, host)) = self.rows.selected_key().copied()
            && !keys.contains(&(folded, host))
        {
            let group = self.groups.get(&host).map(|(_, first)| (true, *first));
            let moved = [Some((!folded, host)), group].into_iter().flatten().find(|key| keys.contains(key));
            moved.into_iter().for_each(|key| self.rows.select(key));
        }
        self.rows.set_rows(keys, room)
    }

    /// Expands or collapses the group of a host.
    pub(super) fn expand_or_collapse(&mut self, host: u32, cmd: UiCommand) {
        let Some((group, first)) = self.groups.get(&host).cloned() else { return };
        if cmd == UiCommand::Right {
            self.expanded.insert(group.to_string());
        } else if self.expanded.remove(&*group) {
            self.rows.select((true, first));
        }
    }
}

/// Group and first host for every host of a folded row; none for a row of one host.
pub(super) fn group_entries(hosts: &[u32], key: &str) -> Vec<(u32, (Arc<str>, u32))> {
    let (several, key) = (hosts.len() > 1, Arc::<str>::from(key));
    hosts.iter().filter(|_| several).map(|host| (*host, (Arc::clone(&key), hosts[0]))).collect()
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn cursor_follows_its_host_into_a_group_and_out_of_it() {
        let mut list = HostList::default();
        list.set_rows(vec![(false, 0), (false, 33)], 2);
        list.rows.select((false, 33));
        list.groups.insert(33, ("equal".into(), 5));
        list.set_rows(vec![(false, 0), (true, 5)], 2);
        assert_eq!(list.rows.selected(), Some((true, 5)));
        list.set_rows(vec![(false, 0), (false, 5), (false, 33)], 3);
        assert_eq!(list.selected_host(), Some(5));
    }

    #[test]
    fn pinned_cursor_stays_with_its_host() {
        let mut list = HostList::default();
        list.set_rows(vec![(false, 0), (false, 1)], 2);
        list.rows.pin_cursor();
        list.set_rows(vec![(false, 1), (false, 0)], 2);
        assert_eq!(list.selected_host(), Some(0));
    }
}
