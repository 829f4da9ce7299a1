//! What a tree must become and what is there: which entries differ. Size and time decide; content is not read.

use std::collections::{HashMap, HashSet};

use super::entry::{EntryKind, TreeEntry};

/// How an entry differs from what is there.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(crate) enum Change {
    New,
    /// Another size, time or link text.
    Content,
    /// Only the mode differs.
    Mode,
}

/// The differences between a tree and what is there, as indexes into the tree's entries.
#[derive(Debug, Clone, Default, PartialEq, Eq)]
pub(crate) struct TreeChanges {
    pub(crate) changes: Vec<(usize, Change)>,
    /// Bytes of the files that must travel.
    pub(crate) bytes: u64,
    pub(crate) unchanged: usize,
    /// Entries whose name is something else there, with what it is.
    pub(crate) conflicts: Vec<(usize, &'static str)>,
    /// What is removed there, what is in a directory before the directory.
    pub(crate) deletions: Vec<TreeEntry>,
}

impl TreeChanges {
    /// Whether nothing differs.
    pub(crate) fn is_empty(&self) -> bool {
        self.changes.is_empty() && self.deletions.is_empty()
    }

    /// How many are new, have another content, have another mode alone, and are removed.
    pub(crate) fn counts(&self) -> [usize; 4] {
        let count = |wanted: Change| self.changes.iter().filter(|(_, change)| *change == wanted).count();
        [count(Change::New), count(Change::Content), count(Change::Mode), self.deletions.len()]
    }

    /// Whether an entry's content must travel.
    pub(crate) fn must_send(change: Change, kind: &EntryKind) -> bool {
        match kind {
            EntryKind::Directory => change == Change::New,
            EntryKind::Special(_) => false,
            EntryKind::File { .. } | EntryKind::Link(_) => change != Change::Mode,
        }
    }
}

/// Compares `wanted` with the entries that are there.
pub(crate) fn compare_trees(wanted: &[TreeEntry], found: &[TreeEntry]) -> TreeChanges {
    let found: HashMap<&[u8], &TreeEntry> = found.iter().map(|entry| (entry.name.as_bytes(), entry)).collect();
    let mut result = TreeChanges::default();
    for (index, entry) in wanted.iter().enumerate() {
        match change_of(entry, found.get(entry.name.as_bytes()).copied()) {
            Ok(None) => result.unchanged += 1,
            Ok(Some(change)) => {
                if TreeChanges::must_send(change, &entry.kind) {
                    result.bytes = result.bytes.saturating_add(entry.size());
                }
                result.changes.push((index, change));
            }
            Err(noun) => result.conflicts.push((index, noun)),
        }
    }
    result
}

/// What `found` has beyond `wanted`, what is in a directory before the directory. A directory stays if something in it stays.
pub(crate) fn find_deletions(wanted: &[TreeEntry], found: &[TreeEntry], is_kept: impl Fn(&TreeEntry) -> bool) -> Vec<TreeEntry> {
    let wanted: HashSet<&[u8]> = wanted.iter().map(|entry| entry.name.as_bytes()).collect();
    let mut occupied: HashSet<&[u8]> = HashSet::new();
    let mut deletions = Vec::new();
    // Sorted by name: what is in a directory comes after it.
    for entry in found.iter().rev() {
        let name = entry.name.as_bytes();
        if !wanted.contains(name) && !occupied.contains(name) && !is_kept(entry) {
            deletions.push(entry.clone());
            continue;
        }
        let mut above = name;
        while let Some(end) = memchr::memrchr(b'/', above) {
            above = above.get(..end).unwrap_or_default();
            occupied.insert(above);
        }
    }
    deletions
}

/// # Errors
/// What is there instead of such an entry.
fn change_of(entry: &TreeEntry, there: Option<&TreeEntry>) -> Result<Option<Change>, &'static str> {
    let Some(there) = there else { return Ok(Some(Change::New)) };
    let same = match (&entry.kind, &there.kind) {
        (EntryKind::File { size }, EntryKind::File { size: other }) => size == other && entry.mtime == there.mtime,
        (EntryKind::Link(text), EntryKind::Link(other)) => text == other,
        (EntryKind::Directory, EntryKind::Directory) => true,
        // A rename replaces a link; it is never followed.
        (EntryKind::File { .. }, EntryKind::Link(_)) | (EntryKind::Link(_), EntryKind::File { .. }) => false,
        (_, other) => return Err(other.noun()),
    };
    let links = matches!(entry.kind, EntryKind::Link(_));
    Ok(match same {
        false => Some(Change::Content),
        true if !links && entry.mode != there.mode => Some(Change::Mode),
        true => None,
    })
}

#[cfg(test)]
mod tests {
    use super::super::entry::TreeName;
    use super::*;

    fn entry(name: &str, kind: EntryKind, mode: u32, mtime: i64) -> TreeEntry {
        TreeEntry { name: TreeName::parse(name.as_bytes()).expect("a name"), kind, mode, mtime }
    }

    fn file(name: &str, size: u64, mode: u32, mtime: i64) -> TreeEntry {
        entry(name, EntryKind::File { size }, mode, mtime)
    }

    fn link(name: &str, text: &str) -> TreeEntry {
        entry(name, EntryKind::Link(text.as_bytes().to_vec()), 0o777, 1)
    }

    #[test]
    fn size_time_link_text_and_mode_decide() {
        let wanted = [
            entry("d", EntryKind::Directory, 0o755, 5),
            file("d/same", 10, 0o644, 5),
            file("d/longer", 11, 0o644, 5),
            file("d/newer", 10, 0o644, 6),
            file("d/mode", 10, 0o755, 5),
            link("l", "d"),
            link("m", "d/x"),
            file("new", 7, 0o644, 5),
        ];
        let found = [
            entry("d", EntryKind::Directory, 0o755, 99),
            file("d/same", 10, 0o644, 5),
            file("d/longer", 10, 0o644, 5),
            file("d/newer", 10, 0o644, 5),
            file("d/mode", 10, 0o644, 5),
            link("l", "d"),
            link("m", "d/y"),
            file("other", 1, 0o644, 5),
        ];
        let result = compare_trees(&wanted, &found);
        assert_eq!(result.changes, [(2, Change::Content), (3, Change::Content), (4, Change::Mode), (6, Change::Content), (7, Change::New)]);
        assert_eq!((result.bytes, result.unchanged, result.conflicts.len()), (28, 3, 0));
    }

    #[test]
    fn extra_entries_are_deleted_children_first() {
        let dir = |name: &str| entry(name, EntryKind::Directory, 0o755, 1);
        let wanted = [dir("d"), file("d/a", 1, 0o644, 1)];
        let found = [
            dir("d"),
            file("d/a", 1, 0o644, 1),
            dir("d/b"),
            file("d/b.txt", 1, 0o644, 1),
            dir("d/b/deep"),
            file("d/b/deep/x", 1, 0o644, 1),
            dir("kept"),
            file("kept/out.log", 1, 0o644, 1),
            file("kept/x", 1, 0o644, 1),
            link("l", "/etc"),
        ];
        let deletions = find_deletions(&wanted, &found, |entry| entry.name.as_bytes().ends_with(b".log"));
        let names: Vec<String> = deletions.iter().map(|entry| entry.name.display()).collect();
        assert_eq!(names, ["l", "kept/x", "d/b/deep/x", "d/b/deep", "d/b.txt", "d/b"]);
    }

    #[test]
    fn another_kind_is_a_conflict_but_links_are_replaced() {
        let wanted = [file("a", 1, 0o644, 1), entry("b", EntryKind::Directory, 0o755, 1), link("c", "x"), file("e", 1, 0o644, 1)];
        let found = [
            entry("a", EntryKind::Directory, 0o755, 1),
            link("b", "/etc"),
            entry("c", EntryKind::Special("a fifo"), 0o644, 1),
            link("e", "/etc/passwd"),
        ];
        let result = compare_trees(&wanted, &found);
        assert_eq!(result.conflicts, [(0, "a directory"), (1, "a link"), (2, "a fifo")]);
        assert_eq!(result.changes, [(3, Change::Content)]);
    }
}
