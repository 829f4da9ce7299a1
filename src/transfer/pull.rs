//! From one host to the laptop. The host is not trusted: names pass the grammar, content is only taken for files that were asked for, and no more
//! of it than was announced.

use std::path::Path;

use super::compare::Change;
use super::content_pieces::as_u64;
use super::digest::{hex, part_id};
use super::entry::{BATCH_BYTES, BIG_FILE, EntryKind, TreeEntry, printable_bytes};
use super::error::TransferError;
use super::host_file_reader::{BLOCK, FileEnd, HostFileReader, ask_prefix_digest};
use super::host_stream::HostStream;
use super::local_dir::LocalDir;
use super::part_file::PartFile;
use super::progress::TransferProgress;
use super::pull_survey::{MAX_SKIPPED, PullSurvey, local_error};
use super::survey::{name_list, read_records};
use super::tar_reader::{TarEvent, TarReader};

/// Bytes of the names in one request.
const BATCH_NAMES: usize = 512 << 10;
/// A file may grow while it is read; what is beyond its announced size is dropped.
const MAX_GROWTH: u64 = 1 << 30;

/// Fetches every difference to `destination/name`; returns what was skipped.
///
/// # Errors
/// The host was lost or sent something invalid, or the laptop cannot write.
pub(crate) async fn pull_tree(
    survey: PullSurvey,
    (destination, name): (&Path, &str),
    (host, progress): (usize, &TransferProgress),
) -> Result<Vec<String>, TransferError> {
    let PullSurvey { changes, entries, skipped, stream, local } = survey;
    let local = match local {
        Some(local) => local,
        None => {
            let made = LocalDir::open(destination, name, stream.nonce(), true).map_err(local_error)?;
            made.ok_or_else(|| local_error(format!("{}: it cannot be made", destination.display())))?
        }
    };
    progress.add_total(host, changes.bytes);
    let mut pull = Pull { stream, local, skipped, host, progress };
    let all = &entries;
    let changed = |wanted: fn(&TreeEntry, Change) -> bool| {
        changes.changes.iter().filter_map(move |(index, change)| all.get(*index).filter(|entry| wanted(entry, *change)))
    };
    for entry in changed(|entry, change| entry.kind == EntryKind::Directory && change == Change::New) {
        pull.local.make_dir(entry).map_err(local_error)?;
    }
    let (mut batch, mut bytes, mut names) = (Vec::new(), 0, 0);
    for entry in changed(|entry, change| matches!(entry.kind, EntryKind::File { .. }) && change != Change::Mode) {
        if entry.size() > BIG_FILE {
            pull.fetch_big_file(entry).await?;
            continue;
        }
        if bytes + entry.size() > BATCH_BYTES || names > BATCH_NAMES {
            pull.fetch_batch(&std::mem::take(&mut batch)).await?;
            (bytes, names) = (0, 0);
        }
        bytes += entry.size();
        names += entry.name.as_bytes().len() + 3;
        batch.push(entry);
    }
    if !batch.is_empty() {
        pull.fetch_batch(&batch).await?;
    }
    for entry in changed(|_, change| change != Change::Mode) {
        if let EntryKind::Link(text) = &entry.kind {
            pull.local.put_link(&entry.name, text).map_err(local_error)?;
        }
    }
    let modes: Vec<&TreeEntry> =
        changed(|entry, change| change == Change::Mode || (entry.kind == EntryKind::Directory && change == Change::New)).collect();
    // What is in a directory first: it may become read-only.
    for entry in modes.into_iter().rev() {
        pull.local.set_mode(entry).map_err(local_error)?;
    }
    pull.local.sync().map_err(local_error)?;
    pull.local.close();
    pull.stream.finish().await?;
    Ok(pull.skipped)
}

struct Pull<'a> {
    stream: HostStream,
    local: LocalDir,
    skipped: Vec<String>,
    host: usize,
    progress: &'a TransferProgress,
}

/// A file of a batch that has arrived.
struct ArrivedFile {
    /// In the batch.
    index: usize,
    /// The name of its part; `None`: it is not what was announced.
    part: Option<String>,
}

type Arrived = Vec<ArrivedFile>;

impl Pull<'_> {
    /// Fetches small files in one archive; they are renamed into place once all of it is proven.
    async fn fetch_batch(&mut self, batch: &[&TreeEntry]) -> Result<(), TransferError> {
        let names = name_list(batch.iter().copied());
        self.stream.bulk_command(&format!("G {}", names.len()), &names).await?;
        let mut reader = TarReader::new(self.stream.nonce());
        let (mut arrived, mut open): (Arrived, Option<PartFile>) = (Vec::new(), None);
        let mut room = 0;
        loop {
            let bytes = self.stream.read_bulk().await?;
            reader.push(&bytes);
            while let Some(event) = reader.next().map_err(TransferError::protocol)? {
                match event {
                    TarEvent::File { name, size } => {
                        let index = next_index(batch, &arrived, &name)?;
                        room = batch.get(index).map_or(0, |entry| entry.size());
                        if size > room.saturating_add(MAX_GROWTH) {
                            return Err(TransferError::protocol("a file has become much larger than it was announced"));
                        }
                        open = if size == room { Some(self.local.new_part().map_err(local_error)?) } else { None };
                        arrived.push(ArrivedFile { index, part: open.as_ref().map(|part| part.name.clone()) });
                    }
                    TarEvent::HardLink { name, target } => self.copy_arrived(batch, &mut arrived, (&name, &target))?,
                    TarEvent::Content(content) => {
                        let kept = content.get(..usize::try_from(room).unwrap_or(usize::MAX).min(content.len())).unwrap_or_default();
                        room -= as_u64(kept.len());
                        self.progress.add_done(self.host, as_u64(kept.len()));
                        if let Some(part) = &mut open {
                            tokio::task::block_in_place(|| part.write(kept)).map_err(local_error)?;
                        }
                    }
                    TarEvent::End(block) => {
                        let complaint = parse_end(&block, &reader.digest())?;
                        self.stream.unread(&reader.into_rest());
                        if let Some(complaint) = complaint {
                            self.drop_changed(batch, &mut arrived, &complaint).await?;
                        }
                        return self.put_batch(batch, arrived);
                    }
                }
            }
        }
    }

    /// After tar failed: files whose size or time has changed are not kept.
    async fn drop_changed(&mut self, batch: &[&TreeEntry], arrived: &mut Arrived, complaint: &str) -> Result<(), TransferError> {
        let names = name_list(batch.iter().copied());
        self.stream.bulk_command(&format!("S {}", names.len()), &names).await?;
        let now = read_records(&mut self.stream).await?.entries;
        let mut explained = arrived.len() < batch.len();
        for file in arrived.iter_mut() {
            let Some(entry) = batch.get(file.index) else { continue };
            let same = now.binary_search_by(|found| found.name.cmp(&entry.name)).is_ok_and(|at| {
                now.get(at).is_some_and(|found| (found.size(), found.mtime, &found.kind) == (entry.size(), entry.mtime, &entry.kind))
            });
            if !same {
                file.part = None;
            }
            explained |= file.part.is_none();
        }
        if !explained && self.skipped.len() < MAX_SKIPPED {
            self.skipped.push(format!("a file changed while it was read: {}", printable_bytes(complaint.as_bytes())));
        }
        Ok(())
    }

    fn copy_arrived(&mut self, batch: &[&TreeEntry], arrived: &mut Arrived, (name, target): (&[u8], &[u8])) -> Result<(), TransferError> {
        let index = next_index(batch, arrived, name)?;
        let target = target.strip_prefix(b"./").unwrap_or(target);
        let is_target = |file: &&ArrivedFile| batch.get(file.index).is_some_and(|entry| entry.name.as_bytes() == target);
        let Some(from) = arrived.iter().find(is_target) else {
            return Err(TransferError::protocol("a hard link to a file that was not sent"));
        };
        let Some(from) = from.part.as_deref() else {
            arrived.push(ArrivedFile { index, part: None });
            return Ok(());
        };
        let mut from = self.local.reopen_part(from).map_err(local_error)?;
        let length = from.len();
        if batch.get(index).is_none_or(|entry| entry.size() != length) {
            // No more is copied than was announced: the laptop's space was compared with that.
            arrived.push(ArrivedFile { index, part: None });
            return Ok(());
        }
        let mut part = self.local.new_part().map_err(local_error)?;
        from.copy_prefix(length, |bytes| part.write(bytes)).map_err(local_error)?;
        self.progress.add_done(self.host, length);
        arrived.push(ArrivedFile { index, part: Some(part.name) });
        Ok(())
    }

    fn put_batch(&mut self, batch: &[&TreeEntry], arrived: Arrived) -> Result<(), TransferError> {
        tokio::task::block_in_place(|| self.local.sync()).map_err(local_error)?;
        let mut next = 0;
        for ArrivedFile { index, part } in arrived {
            for entry in batch.get(next..index).unwrap_or_default() {
                self.skip(entry, "it vanished, or cannot be read there");
            }
            next = index + 1;
            match (batch.get(index), part) {
                (Some(entry), Some(part)) => {
                    let part = self.local.reopen_part(&part).map_err(local_error)?;
                    self.local.put_part(part, entry).map_err(local_error)?;
                }
                (Some(entry), None) => self.skip(entry, "it changed while it was read"),
                (None, _) => {}
            }
        }
        for entry in batch.get(next..).unwrap_or_default() {
            self.skip(entry, "it vanished, or cannot be read there");
        }
        Ok(())
    }

    fn skip(&mut self, entry: &TreeEntry, reason: &str) {
        if self.skipped.len() < MAX_SKIPPED {
            self.skipped.push(format!("{}: {reason}", entry.name.display()));
        }
    }

    /// Fetches one file from the byte on that an earlier transfer has proven.
    async fn fetch_big_file(&mut self, entry: &TreeEntry) -> Result<(), TransferError> {
        let mut part = self.local.open_resumable_part(&part_id(entry)).map_err(local_error)?;
        let mut blocks = part.len().min(entry.size()) / BLOCK;
        if blocks > 0 {
            ask_prefix_digest(&mut self.stream, entry, blocks * BLOCK).await?;
            let own = tokio::task::block_in_place(|| part.prefix_digest(blocks * BLOCK)).map_err(local_error)?;
            if self.stream.answer().await? != hex(own) {
                blocks = 0;
            }
        }
        part.resize(blocks * BLOCK).map_err(local_error)?;
        self.progress.subtract_total(self.host, blocks * BLOCK);
        let mut reader = HostFileReader::start(&mut self.stream, entry, blocks).await?;
        while let Some(bytes) = reader.next().await? {
            self.progress.add_done(self.host, as_u64(bytes.len()));
            tokio::task::block_in_place(|| part.write_sparse(&bytes)).map_err(local_error)?;
        }
        match reader.finish().await? {
            FileEnd::Unchanged => {}
            FileEnd::Changed => {
                self.local.discard(&part);
                self.skip(entry, "it changed while it was read, vanished, or cannot be read there");
                return Ok(());
            }
            FileEnd::Damaged => {
                self.local.discard(&part);
                return Err(TransferError::new(
                    format!("{}: what arrived is not what was sent (SHA-256 differs)", entry.name.display()),
                    "run the same command again",
                ));
            }
        }
        part.resize(entry.size()).map_err(local_error)?;
        tokio::task::block_in_place(|| part.sync()).map_err(local_error)?;
        self.local.put_part(part, entry).map_err(local_error)
    }
}

/// `NONCE SHA256 STATUS COMPLAINT`: returns the complaint of a tar that failed.
fn parse_end(block: &[u8], digest: &str) -> Result<Option<String>, TransferError> {
    let text = String::from_utf8_lossy(block);
    let mut words = text.trim_end().splitn(4, ' ').skip(1);
    if words.next() != Some(digest) {
        return Err(TransferError::new("what arrived is not what was sent (SHA-256 differs)", "run the same command again"));
    }
    match (words.next(), words.next()) {
        (Some("0"), None) => Ok(None),
        (Some("1"), complaint) => Ok(Some(complaint.unwrap_or_default().to_owned())),
        _ => Err(TransferError::protocol("an archive without its status")),
    }
}

/// The index of a file that the host names: one that was asked for, after those that have arrived.
fn next_index(batch: &[&TreeEntry], arrived: &Arrived, name: &[u8]) -> Result<usize, TransferError> {
    let name = name.strip_prefix(b"./").unwrap_or(name);
    let from = arrived.last().map_or(0, |file| file.index + 1);
    let found = batch.iter().skip(from).position(|entry| entry.name.as_bytes() == name);
    found.map(|at| from + at).ok_or_else(|| TransferError::protocol("a file that was not asked for"))
}
