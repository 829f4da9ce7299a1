//! Reads the tar archives that a host's tar writes, as they arrive: ustar, GNU long names, pax names and sizes. A name that the
//! host sends is only returned for comparison with the requested names.

use bytes::BytesMut;
use sha2::{Digest as _, Sha256};

use super::content_pieces::as_u64;
use super::digest::hex;
use super::tar_writer::{TAR_BLOCK, padding};

/// A long name or a pax header is not longer.
const MAX_EXTENSION_BYTES: u64 = 64 << 10;
/// Headers and empty blocks in a row without a file. An archive that has more does not end.
const MAX_OVERHEAD_BYTES: usize = 16 << 20;

/// What an archive holds, piece by piece.
#[derive(Debug, PartialEq, Eq)]
pub(crate) enum TarEvent {
    /// A regular file begins; `size` bytes of content follow.
    File { name: Vec<u8>, size: u64 },
    /// The same content as a file that came before.
    HardLink { name: Vec<u8>, target: Vec<u8> },
    /// Bytes of the file that began last.
    Content(Vec<u8>),
    /// The block that ends everything: it begins with the marker.
    End(Vec<u8>),
}

/// Where the reader is.
#[derive(Debug)]
enum Expecting {
    Header,
    /// Content left, then padding.
    Content(u64, usize),
    /// The body of an extension header of this type, left and padding.
    Extension(u8, u64, usize),
}

pub(crate) struct TarReader {
    marker: Vec<u8>,
    pending: BytesMut,
    expecting: Expecting,
    digest: Sha256,
    long_name: Option<Vec<u8>>,
    long_link: Option<Vec<u8>>,
    pax_size: Option<u64>,
    /// Bytes of headers and empty blocks since the last file.
    overhead: usize,
    ended: bool,
}

impl TarReader {
    /// `marker`: how the block that ends everything begins; no tar header begins so.
    pub(crate) fn new(marker: &str) -> Self {
        TarReader {
            marker: marker.as_bytes().to_vec(),
            pending: BytesMut::new(),
            expecting: Expecting::Header,
            digest: Sha256::new(),
            long_name: None,
            long_link: None,
            pax_size: None,
            overhead: 0,
            ended: false,
        }
    }

    pub(crate) fn push(&mut self, bytes: &[u8]) {
        self.pending.extend_from_slice(bytes);
    }

    /// SHA-256 of everything before the end.
    pub(crate) fn digest(&self) -> String {
        hex(self.digest.clone())
    }

    /// Bytes that came after the end.
    pub(crate) fn into_rest(self) -> Vec<u8> {
        self.pending.to_vec()
    }

    /// The next event; `None`: more bytes are needed.
    ///
    /// # Errors
    /// What is no archive.
    pub(crate) fn next(&mut self) -> Result<Option<TarEvent>, String> {
        while !self.ended {
            match self.expecting {
                Expecting::Header => {
                    if self.pending.starts_with(&self.marker) && self.pending.len() >= TAR_BLOCK {
                        self.ended = true;
                        return Ok(Some(TarEvent::End(self.pending.split_to(TAR_BLOCK).to_vec())));
                    }
                    let Some(block) = self.take(TAR_BLOCK) else { return Ok(None) };
                    self.count_overhead(TAR_BLOCK)?;
                    if block.iter().any(|byte| *byte != 0)
                        && let Some(event) = self.read_header(&block)?
                    {
                        self.overhead = 0;
                        return Ok(Some(event));
                    }
                }
                Expecting::Content(0, padding) => {
                    if self.take(padding).is_none() {
                        return Ok(None);
                    }
                    self.expecting = Expecting::Header;
                }
                Expecting::Content(left, padding) => {
                    let most = usize::try_from(left).unwrap_or(usize::MAX).min(self.pending.len());
                    let Some(content) = self.take(most).filter(|content| !content.is_empty()) else { return Ok(None) };
                    self.expecting = Expecting::Content(left - as_u64(content.len()), padding);
                    return Ok(Some(TarEvent::Content(content)));
                }
                Expecting::Extension(kind, length, padding) => {
                    let length = usize::try_from(length).unwrap_or(usize::MAX);
                    let Some(mut body) = self.take(length.saturating_add(padding)) else { return Ok(None) };
                    self.count_overhead(body.len())?;
                    body.truncate(length);
                    self.read_extension(kind, body)?;
                    self.expecting = Expecting::Header;
                }
            }
        }
        Ok(None)
    }

    fn count_overhead(&mut self, bytes: usize) -> Result<(), String> {
        self.overhead += bytes;
        if self.overhead > MAX_OVERHEAD_BYTES { Err("the archive has no end".to_owned()) } else { Ok(()) }
    }

    fn take(&mut self, count: usize) -> Option<Vec<u8>> {
        let taken: Option<Vec<u8>> = (self.pending.len() >= count).then(|| self.pending.split_to(count).to_vec());
        self.digest.update(taken.as_deref().unwrap_or_default());
        taken
    }

    fn read_header(&mut self, block: &[u8]) -> Result<Option<TarEvent>, String> {
        check_sum(block)?;
        let kind = block.get(156).copied().unwrap_or(0);
        let mut size = read_number(block.get(124..136).unwrap_or_default())?;
        if matches!(kind, b'L' | b'K' | b'x' | b'g') {
            if size > MAX_EXTENSION_BYTES {
                return Err("a header of the archive is too long".to_owned());
            }
            self.expecting = Expecting::Extension(kind, size, padding(size));
            return Ok(None);
        }
        size = self.pax_size.take().unwrap_or(size);
        let name = self.long_name.take().unwrap_or_else(|| ustar_name(block));
        let link = self.long_link.take().unwrap_or_else(|| until_nul(block.get(157..257).unwrap_or_default()));
        match kind {
            0 | b'0' | b'7' => {
                self.expecting = Expecting::Content(size, padding(size));
                Ok(Some(TarEvent::File { name, size }))
            }
            b'1' => Ok(Some(TarEvent::HardLink { name, target: link })),
            // A file that became something else is missing.
            b'2'..=b'6' => Ok(None),
            other => Err(format!("the archive holds an entry of an unknown type ({other})")),
        }
    }

    fn read_extension(&mut self, kind: u8, body: Vec<u8>) -> Result<(), String> {
        match kind {
            b'L' => self.long_name = Some(until_nul(&body)),
            b'K' => self.long_link = Some(until_nul(&body)),
            b'x' => self.read_pax(&body)?,
            _ => {}
        }
        Ok(())
    }

    /// `<length> <key>=<value>\n`, again and again.
    fn read_pax(&mut self, body: &[u8]) -> Result<(), String> {
        let mut rest = body;
        while !rest.is_empty() {
            let broken = || "a pax header of the archive is broken".to_owned();
            let space = memchr::memchr(b' ', rest).ok_or_else(broken)?;
            let length: usize =
                std::str::from_utf8(rest.get(..space).unwrap_or_default()).ok().and_then(|t| t.parse().ok()).ok_or_else(broken)?;
            let record = rest.get(space + 1..length.saturating_sub(1)).ok_or_else(broken)?;
            let equals = memchr::memchr(b'=', record).ok_or_else(broken)?;
            let (key, value) = (record.get(..equals).unwrap_or_default(), record.get(equals + 1..).unwrap_or_default());
            match key {
                b"path" => self.long_name = Some(value.to_vec()),
                b"linkpath" => self.long_link = Some(value.to_vec()),
                b"size" => self.pax_size = Some(std::str::from_utf8(value).ok().and_then(|t| t.parse().ok()).ok_or_else(broken)?),
                _ => {}
            }
            rest = rest.get(length..).ok_or_else(broken)?;
        }
        Ok(())
    }
}

fn check_sum(block: &[u8]) -> Result<(), String> {
    let sum: u64 = block.iter().enumerate().map(|(at, byte)| if (148..156).contains(&at) { 32 } else { u64::from(*byte) }).sum();
    match read_number(block.get(148..156).unwrap_or_default()) {
        Ok(stated) if stated == sum => Ok(()),
        _ => Err("this is no tar archive".to_owned()),
    }
}

/// Octal digits, or base-256 if the first bit is set.
fn read_number(field: &[u8]) -> Result<u64, String> {
    let broken = || "a number in the archive is broken".to_owned();
    if let [first, rest @ ..] = field
        && first & 0x80 != 0
    {
        let lead = u64::from(first & 0x7f);
        return rest.iter().try_fold(lead, |all, byte| all.checked_mul(256)?.checked_add(u64::from(*byte))).ok_or_else(broken);
    }
    let digits: Vec<u8> = field.iter().copied().filter(|byte| !matches!(byte, b' ' | 0)).collect();
    let text = std::str::from_utf8(&digits).map_err(|_| broken())?;
    if text.is_empty() { Ok(0) } else { u64::from_str_radix(text, 8).map_err(|_| broken()) }
}

fn ustar_name(block: &[u8]) -> Vec<u8> {
    let name = until_nul(block.get(..100).unwrap_or_default());
    let prefix = until_nul(block.get(345..500).unwrap_or_default());
    // GNU's own format keeps times where ustar has the prefix.
    if block.get(257..263) == Some(b"ustar\0") && !prefix.is_empty() { [&prefix[..], b"/", &name].concat() } else { name }
}

fn until_nul(bytes: &[u8]) -> Vec<u8> {
    bytes.split(|byte| *byte == 0).next().unwrap_or_default().to_vec()
}

#[cfg(test)]
mod tests {
    use super::super::entry::{EntryKind, TreeEntry, TreeName};
    use super::super::tar_writer::entry_header;
    use super::*;
    use proptest::prelude::*;

    fn read_all(bytes: &[u8], cut: usize) -> Result<Vec<TarEvent>, String> {
        let mut reader = TarReader::new("\u{1}end");
        let mut events: Vec<TarEvent> = Vec::new();
        for chunk in bytes.chunks(cut) {
            reader.push(chunk);
            while let Some(event) = reader.next()? {
                match (events.last_mut(), event) {
                    (Some(TarEvent::Content(all)), TarEvent::Content(more)) => all.extend(more),
                    (_, event) => events.push(event),
                }
            }
        }
        Ok(events)
    }

    fn end_block() -> Vec<u8> {
        let mut block = b"\x01end".to_vec();
        block.resize(TAR_BLOCK, b' ');
        block
    }

    proptest! {
        #[test]
        fn what_is_written_is_read(
            files in prop::collection::vec((prop::collection::vec("[a-z\u{e9}\n]{1,60}", 1..6), prop::collection::vec(any::<u8>(), 0..2000)), 0..5),
            cut in 1_usize..3000,
        ) {
            let (mut archive, mut expected) = (Vec::new(), Vec::new());
            for (name, content) in files {
                let name = TreeName::parse(name.join("/").as_bytes()).expect("a name");
                let size = as_u64(content.len());
                let entry = TreeEntry { name, kind: EntryKind::File { size }, mode: 0o644, mtime: 7 };
                archive.extend(entry_header(&entry));
                archive.extend(&content);
                archive.resize(archive.len() + padding(size), 0);
                expected.push(TarEvent::File { name: entry.name.as_bytes().to_vec(), size });
                if !content.is_empty() {
                    expected.push(TarEvent::Content(content));
                }
            }
            archive.resize(archive.len() + 1024, 0);
            archive.extend(end_block());
            expected.push(TarEvent::End(end_block()));
            prop_assert_eq!(read_all(&archive, cut), Ok(expected));
        }

        #[test]
        fn any_bytes_are_read_without_panic(bytes in prop::collection::vec(any::<u8>(), 0..2000), cut in 1_usize..700) {
            drop(read_all(&bytes, cut));
        }
    }

    #[test]
    fn archives_without_end_are_refused() {
        let mut extension = entry_header(&TreeEntry {
            name: TreeName::parse(b"x").expect("a name"),
            kind: EntryKind::File { size: 0 },
            mode: 0o644,
            mtime: 7,
        });
        extension[156] = b'K';
        let sum: u32 = extension.iter().enumerate().map(|(at, byte)| if (148..156).contains(&at) { 32 } else { u32::from(*byte) }).sum();
        extension[148..156].copy_from_slice(format!("{sum:06o}\0 ").as_bytes());
        for block in [vec![0; TAR_BLOCK], extension] {
            let mut reader = TarReader::new("\u{1}end");
            let chunk = block.repeat(1024);
            let refused = (0..=MAX_OVERHEAD_BYTES / chunk.len()).find_map(|_| {
                reader.push(&chunk);
                reader.next().err()
            });
            assert_eq!(refused.as_deref(), Some("the archive has no end"));
        }
    }

    #[test]
    fn archives_of_gnu_and_busybox_tar_are_read() {
        let dir = tempfile::tempdir().expect("a folder");
        let long = format!("{}/{}", "d".repeat(120), "f".repeat(200));
        std::fs::create_dir_all(dir.path().join("d".repeat(120))).expect("made");
        for (name, content) in [("a\nb", "one"), (long.as_str(), "two"), ("empty", "")] {
            std::fs::write(dir.path().join(name), content).expect("written");
        }
        std::fs::hard_link(dir.path().join("a\nb"), dir.path().join("same")).expect("a link");
        for tar in
            [&["tar", "--format=gnu"][..], &["tar", "--format=pax"], &["tar", "--format=gnu", "--hard-dereference"], &["busybox", "tar"]]
        {
            let mut command = std::process::Command::new(tar[0]);
            command.args(&tar[1..]).args(["-cf", "-", "./a\nb", &format!("./{long}"), "./empty", "./same"]).current_dir(dir.path());
            let Ok(output) = command.output() else { continue };
            let events = read_all(&[output.stdout, end_block()].concat(), 1000).expect("an archive");
            let names: Vec<&[u8]> = events
                .iter()
                .filter_map(|event| match event {
                    TarEvent::File { name, .. } | TarEvent::HardLink { name, .. } => Some(name.as_slice()),
                    TarEvent::Content(_) | TarEvent::End(_) => None,
                })
                .collect();
            assert_eq!(names, [b"./a\nb", format!("./{long}").as_bytes(), b"./empty", b"./same"], "{tar:?}");
            assert!(events.contains(&TarEvent::Content(b"two".to_vec())), "{tar:?}");
        }
    }
}
