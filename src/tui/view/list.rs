//! A list with a cursor: the row is remembered by what it is, so that it stays under the cursor while rows come, go and change places.
//!
//! Uses `keymap`. The pane says at each drawing what its rows are; keys move among those.

use crate::tui::keymap::Cmd;

/// What a list remembers.
#[derive(Debug, Clone, PartialEq, Eq)]
pub(super) struct List<K> {
    chosen: Option<K>,
    top: usize,
    drawn: Vec<K>,
    /// The row of the terminal in which the first one is drawn, and how many are.
    place: (u16, usize),
}

impl<K> Default for List<K> {
    fn default() -> Self {
        List { chosen: None, top: 0, drawn: Vec::new(), place: (0, 0) }
    }
}

impl<K: Clone + PartialEq> List<K> {
    /// Moves the cursor; `false`: the command is not one that moves.
    pub(super) fn go(&mut self, cmd: Cmd, page: usize) -> bool {
        let at = self.place();
        let last = self.drawn.len().saturating_sub(1);
        let page = page.max(1);
        let to = match cmd {
            Cmd::Up => at.saturating_sub(1),
            Cmd::Down => at + 1,
            Cmd::PageUp => at.saturating_sub(page),
            Cmd::PageDown => at + page,
            Cmd::HalfUp => at.saturating_sub(page.div_ceil(2)),
            Cmd::HalfDown => at + page.div_ceil(2),
            Cmd::Top => 0,
            Cmd::Bottom => last,
            _ => return false,
        };
        self.chosen = self.drawn.get(to.min(last)).cloned();
        true
    }

    /// Puts the cursor there.
    pub(super) fn choose(&mut self, key: K) {
        self.chosen = Some(key);
    }

    /// What is under the cursor.
    pub(super) fn at(&self) -> Option<K> {
        self.drawn.get(self.place()).cloned()
    }

    /// Says where the rows are drawn, so that a click finds them.
    pub(super) fn lies(&mut self, y: u16, room: usize) {
        self.place = (y, room);
    }

    /// Puts the cursor on what is drawn in this row of the terminal; `false`: nothing is.
    pub(super) fn touch(&mut self, y: u16) -> bool {
        let row = y.checked_sub(self.place.0).map(usize::from).filter(|row| *row < self.place.1);
        let Some(key) = row.and_then(|row| self.drawn.get(self.top + row)).cloned() else { return false };
        self.chosen = Some(key);
        true
    }

    fn place(&self) -> usize {
        self.chosen.as_ref().and_then(|key| self.drawn.iter().position(|known| known == key)).unwrap_or(0)
    }

    /// Takes the rows that are to be drawn in `room`; the place of the cursor, and the first row that is shown.
    pub(super) fn rows(&mut self, keys: Vec<K>, room: usize) -> (usize, usize) {
        self.drawn = keys;
        let room = room.max(1);
        let at = self.place();
        let top = self.top.min(self.drawn.len().saturating_sub(room));
        self.top = if at < top {
            at
        } else if at >= top + room {
            (at + 1).saturating_sub(room)
        } else {
            top
        };
        (at, self.top)
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn the_cursor_stays_with_its_row() {
        let mut list = List::default();
        assert_eq!((list.rows(vec![1, 2, 3, 4], 2), list.at()), ((0, 0), Some(1)));
        assert!(list.go(Cmd::Down, 2) && list.go(Cmd::PageDown, 2) && !list.go(Cmd::Wrap, 2));
        assert_eq!((list.rows(vec![1, 2, 3, 4], 2), list.at()), ((3, 2), Some(4)));
        assert_eq!((list.rows(vec![4, 1, 2, 3], 2), list.at()), ((0, 0), Some(4)), "it was moved to the front");
        assert_eq!((list.rows(vec![], 2), list.at()), ((0, 0), None::<i32>));
        assert!(list.go(Cmd::Bottom, 2));
        list.rows(vec![1, 2, 3], 2);
        list.lies(5, 2);
        assert!(!list.touch(4) && list.touch(6) && !list.touch(7));
        assert_eq!(list.at(), Some(2));
        assert_eq!((list.rows(vec![7], 0), list.at()), ((0, 0), Some(7)));
    }
}
