//! Tar archives for the hosts' tar, GNU or busybox: ustar headers, GNU long names, base-256 sizes.

use super::content_pieces::as_u64;
use super::entry::{EntryKind, TreeEntry};

/// What tar reads at a time: every archive is padded to a multiple.
pub(crate) const TAR_RECORD: u64 = 10_240;
pub(crate) const TAR_BLOCK: usize = 512;
const NAME_FIELD: usize = 100;
/// The largest size that eleven octal digits hold.
const MAX_OCTAL_SIZE: u64 = 0o77_777_777_777;

/// The headers of an entry; its content and [`padding`] follow.
pub(crate) fn entry_header(entry: &TreeEntry) -> Vec<u8> {
    let mut out = Vec::with_capacity(TAR_BLOCK);
    let name = entry.name.as_bytes();
    let (kind, size, link): (u8, u64, &[u8]) = match &entry.kind {
        EntryKind::File { size } => (b'0', *size, b""),
        EntryKind::Directory => (b'5', 0, b""),
        EntryKind::Link(text) => (b'2', 0, text),
        EntryKind::Special(_) => return out,
    };
    for (long, kind) in [(link, b'K'), (name, b'L')] {
        if long.len() > NAME_FIELD {
            let length = long.len() + 1;
            out.extend(header(b"././@LongLink", kind, &[], (as_u64(length), 0, 0)));
            out.extend_from_slice(long);
            out.resize(out.len() + 1 + padding(as_u64(length)), 0);
        }
    }
    // A directory stays writable until what is in it has been renamed.
    let mode = if entry.kind == EntryKind::Directory { entry.mode | 0o700 } else { entry.mode };
    out.extend(header(name, kind, link, (size, mode, entry.mtime)));
    out
}

/// How many bytes [`entry_header`] and the padded content take.
pub(crate) fn entry_length(entry: &TreeEntry) -> u64 {
    let long = |bytes: &[u8]| if bytes.len() > NAME_FIELD { TAR_BLOCK + bytes.len() + 1 + padding(as_u64(bytes.len() + 1)) } else { 0 };
    let link = if let EntryKind::Link(text) = &entry.kind { long(text) } else { 0 };
    let head = as_u64(TAR_BLOCK + long(entry.name.as_bytes()) + link);
    head + entry.size() + as_u64(padding(entry.size()))
}

/// Zero bytes after a content of this size.
pub(crate) fn padding(size: u64) -> usize {
    let over = usize::try_from(size % 512).unwrap_or(0);
    if over == 0 { 0 } else { TAR_BLOCK - over }
}

/// The length of an archive whose entries take `length` bytes: two zero blocks, then up to a whole record.
pub(crate) fn archive_length(length: u64) -> u64 {
    (length + 2 * as_u64(TAR_BLOCK)).div_ceil(TAR_RECORD) * TAR_RECORD
}

fn header(name: &[u8], kind: u8, link: &[u8], (size, mode, mtime): (u64, u32, i64)) -> [u8; TAR_BLOCK] {
    let mut block = [0_u8; TAR_BLOCK];
    let mut put = |at: usize, bytes: &[u8], most: usize| {
        for (slot, byte) in block.iter_mut().skip(at).take(most).zip(bytes) {
            *slot = *byte;
        }
    };
    put(0, name, NAME_FIELD);
    put(100, format!("{mode:07o}").as_bytes(), 8);
    put(108, b"0000000", 8);
    put(116, b"0000000", 8);
    if size > MAX_OCTAL_SIZE {
        put(124, &[0x80, 0, 0, 0], 4);
        put(128, &size.to_be_bytes(), 8);
    } else {
        put(124, format!("{size:011o}").as_bytes(), 12);
    }
    let mtime = u64::try_from(mtime).unwrap_or(0).min(MAX_OCTAL_SIZE);
    put(136, format!("{mtime:011o}").as_bytes(), 12);
    put(148, b"        ", 8);
    put(156, &[kind], 1);
    put(157, link, NAME_FIELD);
    put(257, b"ustar  \0", 8);
    let sum: u32 = block.iter().map(|b| u32::from(*b)).sum();
    for (slot, byte) in block.iter_mut().skip(148).zip(format!("{sum:06o}\0 ").bytes()) {
        *slot = byte;
    }
    block
}

#[cfg(test)]
mod tests {
    use super::super::entry::TreeName;
    use super::*;
    use proptest::prelude::*;

    proptest! {
        #[test]
        fn announced_length_is_the_length(name in prop::collection::vec("[a-z]{1,90}", 1..5), link in "[a-z]{1,300}", size in 0_u64..5000, kind in 0..3) {
            let kind = match kind {
                0 => EntryKind::File { size },
                1 => EntryKind::Directory,
                _ => EntryKind::Link(link.into_bytes()),
            };
            let entry = TreeEntry { name: TreeName::parse(name.join("/").as_bytes()).expect("a name"), kind, mode: 0o644, mtime: 0 };
            let head = as_u64(entry_header(&entry).len());
            prop_assert_eq!(head % 512, 0);
            prop_assert_eq!(head + entry.size() + as_u64(padding(entry.size())), entry_length(&entry));
        }
    }
}
