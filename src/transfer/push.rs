//! To hosts, from the laptop or from another host: every file is read once, and each host gets what it lacks. The slowest host sets the pace.

use std::borrow::Borrow;
use std::collections::BTreeMap;

use bytes::Bytes;
use futures_util::future::join_all;
use sha2::{Digest as _, Sha256};

use super::compare::Change;
use super::content_pieces::ended_early;
use super::digest::hex;
use super::entry::{EntryKind, TreeEntry};
use super::error::TransferError;
use super::host_hello::DirectoryState;
use super::progress::TransferProgress;
use super::push_big_file::push_big_file;
use super::survey::{SurveyedHost, name_list};
use super::tar_writer::{TAR_RECORD, archive_length, entry_header, entry_length, padding};
use super::tree_source::TreeSource;
use super::upload::{Upload, length_of};

/// Larger files are sent alone and continue after an interruption.
const BIG_FILE: u64 = 8 << 20;
/// A batch of small files is proven, synced and renamed as a whole.
const BATCH_BYTES: u64 = 64 << 20;
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
}

fn group_uploads(tree: &TreeSource, uploads: &[Upload<'_>], batch: &[usize]) -> Vec<BatchGroup> {
    let mut groups: Vec<BatchGroup> = Vec::new();
    for (member, upload) in uploads.iter().enumerate() {
        let wants = |index: &usize| tree.entries().get(*index).is_some_and(|entry| upload.wants(*index, entry));
        let wanted: Vec<usize> = batch.iter().copied().filter(wants).collect();
        match groups.iter_mut().find(|group| group.wanted == wanted) {
            _ if wanted.is_empty() => {}
            Some(group) => group.members.push(member),
            None => groups.push(BatchGroup { wanted, members: vec![member], digest: Sha256::new() }),
        }
    }
    groups
}

async fn push_batch(tree: &TreeSource, uploads: &mut [Upload<'_>], batch: &[usize]) -> Result<(), TransferError> {
    let mut groups = group_uploads(tree, uploads, batch);
    let entries = |group: &BatchGroup| group.wanted.iter().filter_map(|index| tree.entries().get(*index)).collect::<Vec<_>>();
    for group in &groups {
        let entries = entries(group);
        let length: u64 = entries.iter().map(|entry| entry_length(entry)).sum();
        let names = name_list(files(&entries)).len();
        let line = format!("A {} {names}", archive_length(length) / TAR_RECORD);
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
        send_to(uploads, &takers, &entry_header(entry).into()).await;
        let mut left = entry.size();
        while left > 0 {
            let piece = pieces.recv().await.ok_or_else(|| ended_early(entry))??;
            left = left.saturating_sub(length_of(&piece));
            for group in &mut takers {
                group.digest.update(&piece);
            }
            send_content_to(uploads, &takers, &piece).await;
        }
        send_to(uploads, &takers, &Bytes::from_static(&[0; 512]).slice(..padding(entry.size()))).await;
    }
    // Whether the last file changed while it was read. Without a proof no host renames anything.
    if let Some(Err(problem)) = pieces.recv().await {
        return Err(problem);
    }
    for group in &groups {
        let entries = entries(group);
        let length: u64 = entries.iter().map(|entry| entry_length(entry)).sum();
        let end = usize::try_from(archive_length(length) - length).unwrap_or(0);
        let proof = format!("V {}\n", hex(group.digest.clone()));
        let tail = [&vec![0; end][..], &name_list(files(&entries)), proof.as_bytes()].concat();
        send_to(uploads, &[group], &tail.into()).await;
    }
    Ok(())
}

fn files<'a>(entries: &'a [&TreeEntry]) -> impl Iterator<Item = &'a TreeEntry> {
    entries.iter().copied().filter(|entry| matches!(entry.kind, EntryKind::File { .. }))
}

async fn send_to(uploads: &mut [Upload<'_>], groups: &[impl Borrow<BatchGroup>], bytes: &Bytes) {
    for member in groups.iter().flat_map(|group| &group.borrow().members) {
        if let Some(upload) = uploads.get_mut(*member).filter(|upload| upload.error.is_none()) {
            let sent = upload.stream.send_shared(bytes.clone()).await;
            upload.note(sent);
        }
    }
}

async fn send_content_to(uploads: &mut [Upload<'_>], groups: &[impl Borrow<BatchGroup>], bytes: &Bytes) {
    for member in groups.iter().flat_map(|group| &group.borrow().members) {
        if let Some(upload) = uploads.get_mut(*member).filter(|upload| upload.error.is_none()) {
            upload.send_content(bytes.clone()).await;
        }
    }
}
