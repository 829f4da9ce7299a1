//! A file of a tree: its name below the tree's root, under a strict grammar, and what is compared about it.

/// The directory in which transfers keep what is not whole yet; no tree may contain one of this name.
pub(crate) const PART_DIR: &str = ".orchestrate-part";
/// The file in a directory that a sync has made: what is in it may be removed by `delete`.
pub(crate) const SYNC_MARKER: &str = ".orchestrate-sync";
/// Larger files are transferred alone and continue after an interruption.
pub(super) const BIG_FILE: u64 = 8 << 20;
/// A batch of smaller files is proven, synced and renamed as a whole.
pub(super) const BATCH_BYTES: u64 = 64 << 20;
const MAX_COMPONENT_BYTES: usize = 255;
const MAX_NAME_BYTES: usize = 4000;
const MAX_COMPONENTS: usize = 128;
const MAX_LINK_BYTES: usize = 4095;

/// A name below a tree's root: any bytes but NUL, no empty component, no `.` or `..`, at most 255 bytes a component.
#[derive(Debug, Clone, PartialEq, Eq, PartialOrd, Ord, Hash)]
pub(crate) struct TreeName(Vec<u8>);

impl TreeName {
    /// # Errors
    /// What is wrong with the name.
    pub(crate) fn parse(bytes: &[u8]) -> Result<TreeName, &'static str> {
        if bytes.is_empty() || bytes.len() > MAX_NAME_BYTES {
            return Err("a name has 1 to 4000 bytes");
        }
        if bytes.contains(&0) {
            return Err("a name holds no NUL byte");
        }
        if bytes.split(|b| *b == b'/').count() > MAX_COMPONENTS {
            return Err("the tree is deeper than 128 directories");
        }
        for component in bytes.split(|b| *b == b'/') {
            match component {
                b"" | b"." | b".." => return Err("a name is relative and holds no `.`, `..` or empty component"),
                long if long.len() > MAX_COMPONENT_BYTES => return Err("a component of a name has at most 255 bytes"),
                part if is_reserved(part) => return Err("`.orchestrate-part` and `.orchestrate-sync` belong to transfers"),
                _ => {}
            }
        }
        Ok(TreeName(bytes.to_vec()))
    }

    pub(crate) fn as_bytes(&self) -> &[u8] {
        &self.0
    }

    pub(crate) fn components(&self) -> impl DoubleEndedIterator<Item = &[u8]> {
        self.0.split(|b| *b == b'/')
    }

    /// For people: bytes that are not printable are shown as `?`.
    pub(crate) fn display(&self) -> String {
        printable_bytes(&self.0)
    }
}

/// Whether transfers own a name: [`PART_DIR`] on the laptop, `.orchestrate-part.<uid>` on a host, the marker of a sync.
pub(super) fn is_reserved(name: &[u8]) -> bool {
    name == SYNC_MARKER.as_bytes() || name.strip_prefix(PART_DIR.as_bytes()).is_some_and(|rest| rest.is_empty() || rest.starts_with(b"."))
}

/// Bytes for people: what is not printable is shown as `?`.
pub(crate) fn printable_bytes(bytes: &[u8]) -> String {
    String::from_utf8_lossy(bytes).chars().map(|c| if c.is_control() || c == '\u{fffd}' { '?' } else { c }).collect()
}

/// What an entry is.
#[derive(Debug, Clone, PartialEq, Eq)]
pub(crate) enum EntryKind {
    File {
        size: u64,
    },
    Directory,
    /// A symbolic link and its text.
    Link(Vec<u8>),
    /// A device, socket or fifo, which no transfer takes.
    Special(&'static str),
}

impl EntryKind {
    /// By the file type of `st_mode`; a link has no text yet.
    pub(crate) fn from_mode(mode: u32, size: u64) -> EntryKind {
        match mode & 0o170_000 {
            0o100_000 => EntryKind::File { size },
            0o040_000 => EntryKind::Directory,
            0o120_000 => EntryKind::Link(Vec::new()),
            0o010_000 => EntryKind::Special("a fifo"),
            0o140_000 => EntryKind::Special("a socket"),
            _ => EntryKind::Special("a device"),
        }
    }

    /// `a directory`.
    pub(crate) fn noun(&self) -> &'static str {
        match self {
            EntryKind::File { .. } => "a file",
            EntryKind::Directory => "a directory",
            EntryKind::Link(_) => "a link",
            EntryKind::Special(noun) => noun,
        }
    }
}

#[derive(Debug, Clone, PartialEq, Eq)]
pub(crate) struct TreeEntry {
    pub(crate) name: TreeName,
    pub(crate) kind: EntryKind,
    /// Permission bits without setuid, setgid and sticky.
    pub(crate) mode: u32,
    /// Seconds since 1970.
    pub(crate) mtime: i64,
}

impl TreeEntry {
    /// The content's size; 0 for everything but files.
    pub(crate) fn size(&self) -> u64 {
        if let EntryKind::File { size } = self.kind { size } else { 0 }
    }
}

/// Whether a link stays inside its tree, independent of the tree's other links: `..` only at its beginning, and no more of them than there
/// are directories above it.
pub(crate) fn link_stays_inside(name: &TreeName, text: &[u8]) -> bool {
    if text.is_empty() || text.len() > MAX_LINK_BYTES || text.starts_with(b"/") || text.contains(&0) {
        return false;
    }
    let above = name.components().count() - 1;
    let mut ups = 0;
    let mut descended = false;
    for component in text.split(|b| *b == b'/') {
        match component {
            b"" | b"." => {}
            b".." if descended => return false,
            b".." => ups += 1,
            _ => descended = true,
        }
    }
    ups <= above
}

#[cfg(test)]
mod tests {
    use super::*;
    use proptest::prelude::*;

    fn name(text: &str) -> TreeName {
        TreeName::parse(text.as_bytes()).expect("a name")
    }

    #[test]
    fn names_are_relative_and_bounded() {
        for good in [&b"a"[..], b"a/b", b"new\nline", b"\xff\xfe", b"-rf", b"..a/...", &[b'x'; 255]] {
            assert!(TreeName::parse(good).is_ok(), "{good:?}");
        }
        let deep = vec!["d"; 129].join("/");
        for bad in [
            &b""[..],
            b"/etc",
            b"a//b",
            b"a/",
            b".",
            b"..",
            b"a/../b",
            b"a\0b",
            &[b'x'; 256],
            deep.as_bytes(),
            b"a/.orchestrate-part/x",
            b".orchestrate-part.0",
            b"a/.orchestrate-sync",
        ] {
            assert!(TreeName::parse(bad).is_err(), "{bad:?}");
        }
        assert_eq!(TreeName::parse(b"a\n\xff\x1b").expect("a name").display(), "a???");
    }

    #[test]
    fn only_files_directories_and_links_are_sent() {
        let nouns = [0o100_644, 0o040_755, 0o120_777, 0o010_644, 0o140_755, 0o020_666, 0o060_660, 0o170_000, 0]
            .map(|mode| EntryKind::from_mode(mode, 1).noun());
        assert_eq!(nouns, ["a file", "a directory", "a link", "a fifo", "a socket", "a device", "a device", "a device", "a device"]);
    }

    #[test]
    fn links_may_not_lead_out() {
        for (from, text) in [("l", "x"), ("d/l", "../x"), ("a/b/l", "../../x/y"), ("l", "./x"), ("l", "d/")] {
            assert!(link_stays_inside(&name(from), text.as_bytes()), "{from} -> {text}");
        }
        // `d/l/../..` leaves the tree if `d/l` is itself a link to the root.
        for (from, text) in [("l", "/etc"), ("l", ".."), ("d/l", "../.."), ("l", "d/../.."), ("l", "d/l/../x"), ("l", ""), ("l", "a\0b")] {
            assert!(!link_stays_inside(&name(from), text.as_bytes()), "{from} -> {text}");
        }
    }

    proptest! {
        #[test]
        fn accepted_names_cannot_leave_their_root(bytes in prop::collection::vec(prop_oneof![Just(b'/'), Just(b'.'), Just(0_u8), any::<u8>()], 0..40)) {
            if let Ok(name) = TreeName::parse(&bytes) {
                prop_assert!(name.components().all(|c| !c.is_empty() && c != b"." && c != b".." && !c.contains(&0) && c.len() <= 255));
                prop_assert_eq!(name.as_bytes(), &bytes[..]);
            }
        }
    }
}
