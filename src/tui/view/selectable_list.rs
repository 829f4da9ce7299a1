//! A list with a cursor that follows its row by key while rows come, go and move.
//!
//! The pane passes its row keys on each draw; keys move among those.

use crate::tui::keymap::UiCommand;

#[derive(Debug, Clone, Default, PartialEq, Eq)]
pub(super) struct SelectableList<K> {
    selected: Option<K>,
    first_visible: usize,
    keys: Vec<K>,
    /// First row on the terminal, and number of rows.
    screen_rows: (u16, usize),
}

impl<K: Clone + PartialEq> SelectableList<K> {
    /// Moves the cursor; `false` if the command is not a movement.
    pub(super) fn move_cursor(&mut self, cmd: UiCommand, page: usize) -> bool {
        let Some(to) = cmd.target_row(self.cursor_index(), page, self.keys.len().saturating_sub(1)) else { return false };
        self.selected = self.keys.get(to).cloned();
        true
    }

    /// Moves the cursor a row up or down where `columns` keys are side by side; at the edge it stays.
    pub(super) fn move_by_row(&mut self, cmd: UiCommand, columns: usize) {
        let at = self.cursor_index();
        let to = if cmd == UiCommand::Up { at.checked_sub(columns) } else { Some(at + columns) };
        if let Some(key) = to.and_then(|to| self.keys.get(to)).cloned() {
            self.selected = Some(key);
        }
    }

    #[cfg(test)]
    pub(super) fn keys(&self) -> &[K] {
        &self.keys
    }

    pub(super) fn select(&mut self, key: K) {
        self.selected = Some(key);
    }

    /// The cursor stays on its row's key, also where it was never moved.
    pub(super) fn pin_cursor(&mut self) {
        self.selected = self.selected();
    }

    /// The key that was selected, whether or not it has a row.
    pub(super) fn selected_key(&self) -> Option<&K> {
        self.selected.as_ref()
    }

    /// The key under the cursor.
    pub(super) fn selected(&self) -> Option<K> {
        self.keys.get(self.cursor_index()).cloned()
    }

    /// Records where the rows are drawn, for clicks.
    pub(super) fn set_screen_rows(&mut self, y: u16, room: usize) {
        self.screen_rows = (y, room);
    }

    /// Moves the cursor to this row of the terminal; `false` if nothing is drawn there.
    pub(super) fn select_at(&mut self, y: u16) -> bool {
        let row = y.checked_sub(self.screen_rows.0).map(usize::from).filter(|row| *row < self.screen_rows.1);
        let Some(key) = row.and_then(|row| self.keys.get(self.first_visible + row)).cloned() else { return false };
        self.selected = Some(key);
        true
    }

    fn cursor_index(&self) -> usize {
        self.selected.as_ref().and_then(|key| self.keys.iter().position(|known| known == key)).unwrap_or(0)
    }

    /// Updates the row keys; returns the index of the cursor and of the first visible row for `room` rows.
    pub(super) fn set_rows(&mut self, keys: Vec<K>, room: usize) -> (usize, usize) {
        self.keys = keys;
        let room = room.max(1);
        let at = self.cursor_index();
        let top = self.first_visible.min(self.keys.len().saturating_sub(room));
        self.first_visible = if at < top {
            at
        } else if at >= top + room {
            (at + 1).saturating_sub(room)
        } else {
            top
        };
        (at, self.first_visible)
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn cursor_stays_with_its_row() {
        let mut list = SelectableList::default();
        assert_eq!((list.set_rows(vec![1, 2, 3, 4], 2), list.selected()), ((0, 0), Some(1)));
        assert!(list.move_cursor(UiCommand::Down, 2) && list.move_cursor(UiCommand::PageDown, 2) && !list.move_cursor(UiCommand::Wrap, 2));
        assert_eq!((list.set_rows(vec![1, 2, 3, 4], 2), list.selected()), ((3, 2), Some(4)));
        assert_eq!((list.set_rows(vec![4, 1, 2, 3], 2), list.selected()), ((0, 0), Some(4)), "it was moved to the front");
        assert_eq!((list.set_rows(vec![], 2), list.selected()), ((0, 0), None::<i32>));
        assert!(list.move_cursor(UiCommand::Bottom, 2));
        list.set_rows(vec![1, 2, 3], 2);
        list.set_screen_rows(5, 2);
        assert!(!list.select_at(4) && list.select_at(6) && !list.select_at(7));
        assert_eq!(list.selected(), Some(2));
        assert_eq!((list.set_rows(vec![7], 0), list.selected()), ((0, 0), Some(7)));
    }
}
