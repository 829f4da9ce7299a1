//! The listing that `assets/transfer.sh` prints of a host's tree. The host is not trusted: every name passes the grammar of [`TreeName`],
//! and the count is bounded.

use std::collections::HashMap;

use super::entry::{EntryKind, TreeEntry, TreeName, printable_bytes};

/// More entries are refused: a listing must fit into memory.
const MAX_ENTRIES: usize = 1_000_000;
/// A longer listing is refused.
const MAX_LISTING_BYTES: usize = 256 << 20;
/// Bytes of one record: a name and its numbers.
const MAX_RECORD_BYTES: usize = 8 << 10;

/// Reads a listing as it arrives. Records stand between `\n<nonce> `, which names cannot contain by chance.
pub(crate) struct ListingReader {
    separator: Vec<u8>,
    pending: Vec<u8>,
    received: usize,
    started: bool,
    ended: bool,
    link_texts: HashMap<Vec<u8>, Vec<u8>>,
    link_name: Option<Vec<u8>>,
    listing: HostListing,
}

/// A host's tree.
#[derive(Debug, Default)]
pub(crate) struct HostListing {
    pub(crate) entries: Vec<TreeEntry>,
    /// Names that break the grammar, at most 8, and how many there are.
    pub(crate) refused: Vec<String>,
    pub(crate) refused_count: usize,
    /// What the host could not list, the first of it.
    pub(crate) complaint: Option<String>,
}

impl HostListing {
    fn refuse(&mut self, line: String) {
        self.refused_count += 1;
        if self.refused.len() < 8 {
            self.refused.push(line);
        }
    }
}

impl ListingReader {
    pub(crate) fn new(nonce: &str) -> Self {
        ListingReader {
            separator: format!("\n{nonce} ").into_bytes(),
            pending: Vec::new(),
            received: 0,
            started: false,
            ended: false,
            link_texts: HashMap::new(),
            link_name: None,
            listing: HostListing::default(),
        }
    }

    /// Takes received bytes; `true` once the listing is complete.
    ///
    /// # Errors
    /// How the host violates the protocol.
    pub(crate) fn push(&mut self, bytes: &[u8]) -> Result<bool, String> {
        self.received += bytes.len();
        if self.received > MAX_LISTING_BYTES {
            return Err(format!("the listing is larger than {} MiB", MAX_LISTING_BYTES >> 20));
        }
        self.pending.extend_from_slice(bytes);
        let pending = std::mem::take(&mut self.pending);
        let mut rest = &pending[..];
        while !self.ended
            && let Some(at) = memchr::memmem::find(rest, &self.separator)
        {
            let (record, after) = (rest.get(..at).unwrap_or_default(), rest.get(at + self.separator.len()..).unwrap_or_default());
            if record.len() > MAX_RECORD_BYTES {
                return Err("a record of the listing is too long".to_owned());
            }
            if self.started {
                self.read_record(record)?;
            } else if record.iter().any(|b| *b != b'\n') {
                return Err("the listing does not begin with its first record".to_owned());
            }
            self.started = true;
            rest = after;
        }
        self.pending = rest.to_vec();
        if self.pending.len() > MAX_RECORD_BYTES { Err("a record of the listing is too long".to_owned()) } else { Ok(self.ended) }
    }

    fn read_record(&mut self, record: &[u8]) -> Result<(), String> {
        match record {
            b"E" => self.ended = true,
            [b'!', b' ', complaint @ ..] => {
                let complaint = printable_bytes(complaint.get(..300).unwrap_or(complaint));
                self.listing.refuse(format!("not listed: {complaint}"));
                self.listing.complaint.get_or_insert(complaint);
            }
            [b'L', b' ', name @ ..] => self.link_name = Some(name.strip_prefix(b"./").unwrap_or(name).to_vec()),
            [b'>', b' ', text @ ..] => {
                let Some(name) = self.link_name.take() else { return Err("a link's text without its name".to_owned()) };
                if self.link_texts.len() >= MAX_ENTRIES {
                    return Err(format!("the tree has more than {MAX_ENTRIES} links"));
                }
                self.link_texts.insert(name, text.to_vec());
            }
            _ => self.read_entry(record)?,
        }
        Ok(())
    }

    /// `<mode, hex> <size> <mtime> ./name`
    fn read_entry(&mut self, record: &[u8]) -> Result<(), String> {
        let mut fields = record.splitn(4, |b| *b == b' ');
        let mut number = || fields.next().and_then(|field| std::str::from_utf8(field).ok());
        let mode = number().and_then(|text| u32::from_str_radix(text, 16).ok());
        let (size, mtime) = (number().and_then(|text| text.parse::<u64>().ok()), number().and_then(|text| text.parse::<i64>().ok()));
        let (Some(mode), Some(size), Some(mtime), Some(name)) = (mode, size, mtime, fields.next()) else {
            return Err(format!("an unknown record in the listing: {}", shorten(record)));
        };
        let name = name.strip_prefix(b"./").unwrap_or(name);
        if name == b"." {
            return Ok(());
        }
        if self.listing.entries.len() + self.listing.refused_count >= MAX_ENTRIES {
            return Err(format!("the tree has more than {MAX_ENTRIES} entries"));
        }
        match TreeName::parse(name) {
            Ok(name) => self.listing.entries.push(TreeEntry { name, kind: EntryKind::from_mode(mode, size), mode: mode & 0o777, mtime }),
            Err(reason) => self.listing.refuse(format!("{}: {reason}", shorten(name))),
        }
        Ok(())
    }

    /// The listing, sorted by name: a directory comes before what is in it.
    pub(crate) fn finish(mut self) -> HostListing {
        let entries = &mut self.listing.entries;
        for entry in entries.iter_mut() {
            if let EntryKind::Link(text) = &mut entry.kind {
                *text = self.link_texts.remove(entry.name.as_bytes()).unwrap_or_default();
            }
        }
        entries.sort_by(|a, b| a.name.cmp(&b.name));
        entries.dedup_by(|a, b| a.name == b.name);
        self.listing
    }
}

fn shorten(bytes: &[u8]) -> String {
    printable_bytes(bytes.get(..80).unwrap_or(bytes))
}

#[cfg(test)]
mod tests {
    use super::*;
    use proptest::prelude::*;

    fn record(name: &[u8], mode: &str) -> Vec<u8> {
        [format!("\nabc {mode} 7 1700000000 ./").as_bytes(), name].concat()
    }

    fn read(bytes: &[u8], cut: usize) -> Result<HostListing, String> {
        let mut reader = ListingReader::new("abc");
        let mut done = false;
        for chunk in bytes.chunks(cut) {
            done = reader.push(chunk)?;
        }
        if done { Ok(reader.finish()) } else { Err("it does not end".to_owned()) }
    }

    #[test]
    fn hostile_names_are_refused_and_the_rest_is_read() {
        let names: [&[u8]; 6] = [b"good", b"../evil", b"/etc/passwd", b"a/../b", b"new\nline", b"x//y"];
        let mut text: Vec<u8> = names.iter().flat_map(|name| record(name, "81a4")).collect();
        text.extend_from_slice(b"\nabc 41ed 4096 1 .\nabc E\nabc ");
        let listing = read(&text, 7).expect("a listing");
        let names: Vec<String> = listing.entries.iter().map(|e| e.name.display()).collect();
        assert_eq!((names, listing.refused_count), (vec!["good".to_owned(), "new?line".to_owned()], 4));
        assert_eq!(listing.entries[0], TreeEntry { mode: 0o644, mtime: 1_700_000_000, ..listing.entries[0].clone() });
    }

    #[test]
    fn link_texts_join_their_entries() {
        let mut text = record(b"l", "a1ff");
        text.extend_from_slice(b"\nabc L ./l\nabc > d/with\nnewline\nabc E\nabc ");
        let listing = read(&text, 1).expect("a listing");
        assert_eq!(listing.entries[0].kind, EntryKind::Link(b"d/with\nnewline".to_vec()));
    }

    #[test]
    fn unlisted_entries_are_named() {
        let listing = read(b"\nabc ! find: './d': Permission denied\nabc E\nabc ", 3).expect("a listing");
        assert_eq!((listing.refused, listing.refused_count), (vec!["not listed: find: './d': Permission denied".to_owned()], 1));
        assert_eq!(listing.complaint.as_deref(), Some("find: './d': Permission denied"));
    }

    #[test]
    fn broken_listings_are_errors() {
        for bad in
            [&b"noise\nabc E\nabc "[..], b"\nabc zz 1 1 ./x\nabc E\nabc ", b"\nabc 81a4 -1 1 ./x\nabc E\nabc ", b"\nabc > x\nabc E\nabc "]
        {
            assert!(read(bad, 5).is_err(), "{bad:?}");
        }
        let endless = [&b"\nabc 81a4 1 1 ./"[..], &[b'x'; 20_000]].concat();
        assert!(read(&endless, 4096).is_err());
    }

    #[test]
    fn floods_are_refused() {
        let mut reader = ListingReader::new("abc");
        let mut flood = (0..MAX_ENTRIES + 2).map(|n| format!("\nabc L ./{n}\nabc > x"));
        let refused = loop {
            let chunk: String = flood.by_ref().take(1000).collect();
            if let Err(refused) = reader.push(chunk.as_bytes()) {
                break refused;
            }
            assert!(!chunk.is_empty(), "all of it was taken");
        };
        assert_eq!(refused, "the tree has more than 1000000 links");
        let mut reader = ListingReader { received: MAX_LISTING_BYTES, ..ListingReader::new("abc") };
        assert_eq!(reader.push(b"x"), Err("the listing is larger than 256 MiB".to_owned()));
        let whole = [&b"\nabc 81a4 1 1 ./"[..], &[b'x'; MAX_RECORD_BYTES], b"\nabc E\nabc "].concat();
        assert!(read(&whole, whole.len()).is_err(), "a long record in one piece");
    }

    proptest! {
        #[test]
        fn any_name_survives_any_chunking(names in prop::collection::btree_set(prop::collection::vec(1..=255_u8, 1..20), 0..20), cut in 1_usize..50) {
            let names: Vec<Vec<u8>> = names.into_iter().filter(|name| TreeName::parse(name).is_ok()).collect();
            let mut text: Vec<u8> = names.iter().flat_map(|name| record(name, "81a4")).collect();
            text.extend_from_slice(b"\nabc E\nabc ");
            let listing = read(&text, cut).expect("a listing");
            prop_assert_eq!(listing.entries.into_iter().map(|e| e.name.as_bytes().to_vec()).collect::<Vec<_>>(), names);
        }

        #[test]
        fn any_bytes_are_read_without_panic(bytes in prop::collection::vec(any::<u8>(), 0..500), cut in 1_usize..50) {
            // The verdict does not matter here.
            drop(read(&[&b"\nabc "[..], &bytes, b"\nabc E\nabc "].concat(), cut));
        }
    }
}
