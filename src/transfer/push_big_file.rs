//! A big file of a push: in segments that each host proves, from the byte on that it lacks.

use std::collections::BTreeMap;

use bytes::Bytes;
use futures_util::future::join_all;
use sha2::{Digest as _, Sha256};

use super::content_pieces::{ContentPieces, as_u64, ended_early};
use super::digest::{hex, part_id};
use super::entry::TreeEntry;
use super::error::TransferError;
use super::host_file_reader::script_name;
use super::tree_source::TreeSource;
use super::upload::Upload;

/// A big file is proven in segments. The host's programs for one take as long as some 15 MiB of data.
const SEGMENT_BYTES: u64 = 128 << 20;

/// The last segment: the file is complete.
const FINISH: u8 = 1;
/// The same, and its blocks of zeros become holes.
const FINISH_WITH_HOLES: u8 = 2;

/// A host that gets a big file, and from which byte on it lacks it.
type BigFileTaker<'a, 'p> = (&'a mut Upload<'p>, u64);

/// Sends one file, to each host from the byte on that it lacks.
pub(super) async fn push_big_file(tree: &TreeSource, uploads: &mut [Upload<'_>], index: usize) -> Result<(), TransferError> {
    let Some(entry) = tree.entries().get(index) else { return Ok(()) };
    // A source host must send a file to its end, for the other hosts that lack later ones.
    let may_stop = tree.is_local() || uploads.iter().all(|upload| upload.error.is_some() || upload.wants(index, entry));
    let mut takers: Vec<&mut Upload<'_>> = uploads.iter_mut().filter(|upload| upload.wants(index, entry)).collect();
    let id = part_id(entry);
    let offsets = find_offsets(tree, (index, entry), &mut takers, &id).await?;
    let mut takers: Vec<BigFileTaker<'_, '_>> = takers.into_iter().zip(offsets).collect();
    for (upload, offset) in &takers {
        upload.progress.subtract_total(upload.host, *offset);
    }
    let mut start = takers.iter().map(|(_, offset)| *offset).min().unwrap_or(0);
    let mut pieces = tree.read_contents(vec![(index, start)]);
    let finish = if tree.has_holes(index) { FINISH_WITH_HOLES } else { FINISH };
    loop {
        let end = start.saturating_add(SEGMENT_BYTES).min(entry.size());
        let segment = Segment { entry, id: &id, start, end, may_stop, finish };
        let sent = push_segment(segment, &mut takers, &mut pieces).await?;
        start = end;
        if !sent || start >= entry.size() {
            return Ok(());
        }
    }
}

/// A part of a file.
#[derive(Clone, Copy)]
struct Segment<'a> {
    entry: &'a TreeEntry,
    id: &'a str,
    start: u64,
    end: u64,
    /// Whether the rest need not be read once no host takes it.
    may_stop: bool,
    /// What follows the last segment.
    finish: u8,
}

/// Sends the bytes of a segment to the hosts that lack some of them; the last one goes to all. `false`: no host takes more.
async fn push_segment(
    Segment { entry, id, start, end, may_stop, finish }: Segment<'_>,
    takers: &mut [BigFileTaker<'_, '_>],
    pieces: &mut ContentPieces,
) -> Result<bool, TransferError> {
    let last = end >= entry.size();
    let name = Bytes::from(script_name(entry));
    let finish = if last { finish } else { 0 };
    let mut digests: BTreeMap<u64, Sha256> = BTreeMap::new();
    for (upload, offset) in takers.iter_mut().filter(|(_, offset)| *offset < end || last) {
        let from = (*offset).max(start);
        digests.entry(from).or_default();
        let (length, mode, mtime) = (end - from, entry.mode, entry.mtime);
        upload.begin(&format!("B {id} {from} {length} {finish} {mode:o} {mtime} {}", name.len()), "B").await;
        upload.send(name.clone()).await;
    }
    let mut at = start;
    while at < end {
        if may_stop && takers.iter().all(|(upload, _)| upload.error.is_some()) {
            return Ok(false);
        }
        let piece = pieces.recv().await.ok_or_else(|| ended_early(entry))??;
        let piece_end = at + as_u64(piece.len());
        for (from, digest) in &mut digests {
            digest.update(piece.slice(bytes_to_skip(at, piece_end, *from)..));
        }
        for (upload, offset) in takers.iter_mut() {
            let rest = piece.slice(bytes_to_skip(at, piece_end, *offset)..);
            if !rest.is_empty() {
                upload.send_content(rest).await;
            }
        }
        at = piece_end;
    }
    // Whether it changed while it was read. Without a proof of the last segment no host renames it.
    if last && let Some(Err(problem)) = pieces.recv().await {
        return Err(problem);
    }
    for (upload, offset) in takers.iter_mut() {
        if let Some(digest) = digests.get(&(*offset).max(start)).filter(|_| *offset < end || last) {
            upload.send(format!("V {}\n", hex(digest.clone())).into()).await;
        }
    }
    Ok(true)
}

/// How many bytes of a piece from `at` to `end` a host has already that lacks those from `offset` on.
fn bytes_to_skip(at: u64, end: u64, offset: u64) -> usize {
    usize::try_from(offset.clamp(at, end) - at).unwrap_or(0)
}

/// From where on each host lacks the file: what an earlier session left counts if its checksum proves it.
async fn find_offsets(
    tree: &TreeSource,
    (index, entry): (usize, &TreeEntry),
    takers: &mut [&mut Upload<'_>],
    id: &str,
) -> Result<Vec<u64>, TransferError> {
    let asked = takers.iter_mut().map(|upload| async {
        if !upload.has_parts || upload.error.is_some() {
            return (0, String::new());
        }
        let answer = async {
            upload.stream.command(&format!("Q {id}"), "Q").await?;
            upload.stream.answer().await
        };
        let answer = answer.await;
        let answer = upload.note(answer).unwrap_or_default();
        let (size, sum) = answer.split_once(' ').unwrap_or_default();
        (size.parse().ok().filter(|size| *size <= entry.size()).unwrap_or(0), sum.to_owned())
    });
    let parts: Vec<(u64, String)> = join_all(asked).await;
    let mut sizes: Vec<u64> = parts.iter().map(|(size, _)| *size).filter(|size| *size > 0).collect();
    sizes.sort_unstable();
    sizes.dedup();
    if sizes.is_empty() {
        return Ok(vec![0; parts.len()]);
    }
    let digests = tree.prefix_digests(index, sizes.clone()).await?;
    let proven: BTreeMap<u64, String> = sizes.into_iter().zip(digests).collect();
    Ok(parts.into_iter().map(|(size, sum)| if proven.get(&size).is_some_and(|own| *own == sum) { size } else { 0 }).collect())
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_host_skips_what_it_has() {
        assert_eq!(
            [(0, 10, 0), (0, 10, 4), (0, 10, 30), (10, 20, 4), (10, 20, 10)].map(|(a, b, c)| bytes_to_skip(a, b, c)),
            [0, 4, 10, 0, 0]
        );
    }
}
