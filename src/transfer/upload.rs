//! One host of a push: its session, what it lacks, and whether it has failed.

use bytes::Bytes;

use super::compare::{Change, TreeChanges};
use super::content_pieces::as_u64;
use super::entry::TreeEntry;
use super::error::TransferError;
use super::host_stream::HostStream;
use super::progress::TransferProgress;
use super::survey::SurveyedHost;

/// Batches and segments that a host has not answered yet.
const MAX_OPEN_ANSWERS: usize = 1;

/// One host of a push.
pub(super) struct Upload<'a> {
    pub(super) host: usize,
    pub(super) stream: HostStream,
    pub(super) has_parts: bool,
    /// By entry.
    pub(super) changes: Vec<Option<Change>>,
    /// What is removed in the end.
    pub(super) deletions: Vec<TreeEntry>,
    pub(super) error: Option<TransferError>,
    pub(super) progress: &'a TransferProgress,
}

impl<'a> Upload<'a> {
    pub(super) fn new(surveyed: SurveyedHost, entries: usize, progress: &'a TransferProgress) -> Upload<'a> {
        let mut changes = vec![None; entries];
        for (index, change) in &surveyed.changes.changes {
            if let Some(slot) = changes.get_mut(*index) {
                *slot = Some(*change);
            }
        }
        Upload {
            host: surveyed.host,
            stream: surveyed.stream,
            has_parts: surveyed.hello.parts > 0,
            changes,
            deletions: surveyed.changes.deletions,
            error: None,
            progress,
        }
    }

    pub(super) fn wants(&self, index: usize, entry: &TreeEntry) -> bool {
        let change = self.changes.get(index).copied().flatten();
        self.error.is_none() && change.is_some_and(|change| TreeChanges::must_send(change, &entry.kind))
    }

    /// Sends a command once the host has answered enough of the earlier ones.
    pub(super) async fn begin(&mut self, line: &str, word: &'static str) {
        if self.error.is_some() {
            return;
        }
        let sent = async {
            self.stream.wait_for_answers(MAX_OPEN_ANSWERS).await?;
            self.stream.command(line, word).await
        };
        let sent = sent.await;
        self.note(sent);
    }

    /// A command with names.
    pub(super) async fn send_names(&mut self, line: &str, word: &'static str, names: &[u8]) -> Result<(), TransferError> {
        self.stream.wait_for_answers(MAX_OPEN_ANSWERS).await?;
        self.stream.command(line, word).await?;
        self.stream.send(names).await
    }

    /// Sends bytes, unless the host has failed; returns whether they were sent.
    pub(super) async fn send(&mut self, bytes: Bytes) -> bool {
        if self.error.is_some() {
            return false;
        }
        let sent = self.stream.send_shared(bytes).await;
        self.note(sent).is_some()
    }

    /// Content of files.
    pub(super) async fn send_content(&mut self, bytes: Bytes) {
        let count = as_u64(bytes.len());
        if self.send(bytes).await {
            self.progress.add_done(self.host, count);
        }
    }

    pub(super) fn note<T>(&mut self, result: Result<T, TransferError>) -> Option<T> {
        match result {
            Ok(value) => Some(value),
            Err(error) => {
                self.progress.record_failure(self.host, &error);
                self.error.get_or_insert(error);
                None
            }
        }
    }
}
