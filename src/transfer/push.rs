//! To hosts, from the laptop or from another host: every file is read once, and each host gets what it lacks. The slowest host sets the pace.

use std::collections::BTreeMap;

use bytes::Bytes;
use futures_util::future::join_all;
use sha2::{Digest as _, Sha256};

use super::compare::Change;
use super::content_pieces::{as_u64, ended_early};
use super::digest::hex;
use super::entry::{BATCH_BYTES, BIG_FILE, EntryKind, TreeEntry};
use super::error::TransferError;
use super::host_hello::DirectoryState;
use super::progress::TransferProgress;
use super::push_big_file::push_big_file;
use super::survey::{SurveyedHost, name_list};
use super::tar_writer::{TAR_RECORD, archive_length, entry_header, entry_length, padding};
use super::tree_source::TreeSource;
use super::upload::Upload;

/// Entries of a batch.
const BATCH_FILES: usize = 20_000;

/// Names of one command.
const DELETED_AT_ONCE: usize = 1_000;

/// The result of each host, by its number.
pub(crate) type PushResults = Vec<(usize, Result<(), TransferError>)>;

/// Sends every difference; a failed host does not stop the others.
///
/// # Errors
/// A file of the source cannot be read, or changed meanwhile: what no batch has completed is on no host under its name.
pub(crate) async fn push_tree(
    tree: &TreeSource,
    hosts: Vec<SurveyedHost>,
    progress: &TransferProgress,
) -> Result<PushResults, TransferError> {
    let mut uploads = Vec::new();
    for surveyed in hosts {
        progress.add_total(surveyed.host, surveyed.changes.bytes);
        let (missing, mark) = (surveyed.hello.state == DirectoryState::Missing, surveyed.mark);
        let mut upload = Upload::new(surveyed, tree.entries().len(), progress);
        if missing {
            let made = upload.stream.command("M", "M").await;
            upload.note(made);
        }
        if mark && upload.error.is_none() {
            let marked = upload.stream.command("W", "W").await;
            upload.note(marked);
        }
        uploads.push(upload);
    }
    let (mut batch, mut batch_bytes) = (Vec::new(), 0);
    for (index, entry) in tree.entries().iter().enumerate() {
        if !uploads.iter().any(|upload| upload.wants(index, entry)) {
            continue;
        }
        if entry.size() > BIG_FILE {
            push_big_file(tree, &mut uploads, index).await?;
            continue;
        }
        batch.push(index);
        batch_bytes += entry.size();
        if batch_bytes >= BATCH_BYTES || batch.len() >= BATCH_FILES {
            push_batch(tree, &mut uploads, &std::mem::take(&mut batch)).await?;
            batch_bytes = 0;
        }
    }
    if !batch.is_empty() {
        push_batch(tree, &mut uploads, &batch).await?;
    }
    Ok(join_all(uploads.into_iter().map(|upload| finish_upload(upload, tree.entries()))).await)
}

async fn finish_upload(upload: Upload<'_>, entries: &[TreeEntry]) -> (usize, Result<(), TransferError>) {
    let (host, progress) = (upload.host, upload.progress);
    let result = complete_upload(upload, entries).await;
    if let Err(error) = &result {
        progress.record_failure(host, error);
    }
    (host, result)
}

/// Removes what is to go, sets the modes that alone differ, and ends the session.
async fn complete_upload(mut upload: Upload<'_>, entries: &[TreeEntry]) -> Result<(), TransferError> {
    if let Some(error) = upload.error.take() {
        return Err(error);
    }
    for names in std::mem::take(&mut upload.deletions).chunks(DELETED_AT_ONCE).map(|entries| name_list(entries.iter())) {
        upload.send_names(&format!("D {}", names.len()), "D", &names).await?;
    }
    let mut by_mode: BTreeMap<u32, Vec<&TreeEntry>> = BTreeMap::new();
    for (entry, change) in entries.iter().zip(&upload.changes) {
        // A new directory was made writable for its files.
        let unwritable = entry.kind == EntryKind::Directory && *change == Some(Change::New) && entry.mode & 0o700 != 0o700;
        if unwritable || *change == Some(Change::Mode) {
            by_mode.entry(entry.mode).or_default().push(entry);
        }
    }
    for (mode, mut entries) in by_mode {
        // What is in a directory first.
        entries.reverse();
        let names = name_list(entries.into_iter());
        upload.send_names(&format!("C {mode:o} {}", names.len()), "C", &names).await?;
    }
    upload.stream.finish().await
}

/// Hosts that want the same entries of a batch: one digest serves them all.
struct BatchGroup {
    wanted: Vec<usize>,
    members: Vec<usize>,
    digest: Sha256,
    /// Bytes of the entries in the archive.
    length: u64,
    /// Names of its files, each with a NUL.
    names: Vec<u8>,
}

fn group_uploads(tree: &TreeSource, uploads: &[Upload<'_>], batch: &[usize]) -> Vec<BatchGroup> {
    let mut groups: Vec<BatchGroup> = Vec::new();
    for (member, upload) in uploads.iter().enumerate() {
        let wants = |index: &usize| tree.entries().get(*index).is_some_and(|entry| upload.wants(*index, entry));
        let wanted: Vec<usize> = batch.iter().copied().filter(wants).collect();
        match groups.iter_mut().find(|group| group.wanted == wanted) {
            _ if wanted.is_empty() => {}
            Some(group) => group.members.push(member),
            None => {
                let entries = || wanted.iter().filter_map(|index| tree.entries().get(*index));
                let length = entries().map(entry_length).sum();
                let names = name_list(entries().filter(|entry| matches!(entry.kind, EntryKind::File { .. })));
                groups.push(BatchGroup { wanted, members: vec![member], digest: Sha256::new(), length, names });
            }
        }
    }
    groups
}

async fn push_batch(tree: &TreeSource, uploads: &mut [Upload<'_>], batch: &[usize]) -> Result<(), TransferError> {
    let mut groups = group_uploads(tree, uploads, batch);
    for group in &groups {
        let line = format!("A {} {}", archive_length(group.length) / TAR_RECORD, group.names.len());
        for member in &group.members {
            if let Some(upload) = uploads.get_mut(*member) {
                upload.begin(&line, "A").await;
            }
        }
    }
    let files_to_read = batch.iter().filter(|index| tree.entries().get(**index).is_some_and(|entry| entry.size() > 0));
    let mut pieces = tree.read_contents(files_to_read.map(|index| (*index, 0)).collect());
    for index in batch {
        let Some(entry) = tree.entries().get(*index) else { continue };
        let mut takers: Vec<&mut BatchGroup> = groups.iter_mut().filter(|group| group.wanted.binary_search(index).is_ok()).collect();
        let members: Vec<usize> = takers.iter().flat_map(|group| group.members.clone()).collect();
        send_to(uploads, &members, &entry_header(entry).into()).await;
        let mut left = entry.size();
        while left > 0 {
            let piece = pieces.recv().await.ok_or_else(|| ended_early(entry))??;
            left = left.saturating_sub(as_u64(piece.len()));
            takers.iter_mut().for_each(|group| group.digest.update(&piece));
            for member in &members {
                if let Some(upload) = uploads.get_mut(*member) {
                    upload.send_content(piece.clone()).await;
                }
            }
        }
        send_to(uploads, &members, &Bytes::from_static(&[0; 512]).slice(..padding(entry.size()))).await;
    }
    // Whether the last file changed while it was read. Without a proof no host renames anything.
    if let Some(Err(problem)) = pieces.recv().await {
        return Err(problem);
    }
    for group in groups {
        let end = usize::try_from(archive_length(group.length) - group.length).unwrap_or(0);
        let proof = format!("V {}\n", hex(group.digest));
        let tail = [&vec![0; end][..], &group.names, proof.as_bytes()].concat();
        send_to(uploads, &group.members, &tail.into()).await;
    }
    Ok(())
}

async fn send_to(uploads: &mut [Upload<'_>], members: &[usize], bytes: &Bytes) {
    for member in members {
        if let Some(upload) = uploads.get_mut(*member) {
            upload.send(bytes.clone()).await;
        }
    }
}
