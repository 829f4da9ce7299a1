//! Carries out a `sync` task: each host is compared with the laptop's directory, then all that lack something get it while each file is read once.

use std::collections::BTreeMap;
use std::sync::Arc;

use tokio::sync::{OwnedSemaphorePermit, mpsc, oneshot};
use tokio::task::JoinSet;

use crate::engine::host_connection::HostConnection;
use crate::plan::action::ActionResult;
use crate::plan::action::sync::SyncFiles;
use crate::text::byte_size::format_bytes;
use crate::transfer::compare::{Change, TreeChanges};
use crate::transfer::error::TransferError;
use crate::transfer::host_stream::HostDirectory;
use crate::transfer::local_tree::LocalTree;
use crate::transfer::progress::TransferProgress;
use crate::transfer::push::push_tree;
use crate::transfer::survey::{SurveyedHost, survey_host};

/// What the `sync` tasks of a plan send.
#[derive(Debug, Clone, Default)]
pub(crate) struct SyncInputs {
    /// By the number of the task.
    pub(crate) trees: BTreeMap<u32, Arc<LocalTree>>,
    /// Random hex, for the sessions with the hosts.
    pub(crate) nonce: String,
}

/// A host that lacks something, and where it learns how its transfer ended.
type WaitingHost = (SurveyedHost, oneshot::Sender<Result<(), TransferError>>);

/// One host's place among the hosts of a task. The files are sent once every place is taken or given up.
#[derive(Clone)]
pub(super) struct SyncPlace {
    tree: Arc<LocalTree>,
    nonce: String,
    waiting: mpsc::Sender<WaitingHost>,
}

impl SyncPlace {
    /// For the hosts of one task, `count` at most; what `senders` gets ends after the last place.
    pub(super) fn open(inputs: &SyncInputs, number: u32, count: usize, senders: &mut JoinSet<()>) -> Option<SyncPlace> {
        let tree = inputs.trees.get(&number)?.clone();
        let (waiting, hosts) = mpsc::channel(count.max(1));
        senders.spawn(send_together(tree.clone(), hosts, count));
        Some(SyncPlace { tree, nonce: inputs.nonce.clone(), waiting })
    }
}

async fn send_together(tree: Arc<LocalTree>, mut waiting: mpsc::Receiver<WaitingHost>, count: usize) {
    let (mut hosts, mut ends) = (Vec::new(), BTreeMap::new());
    while let Some((host, end)) = waiting.recv().await {
        ends.insert(host.host, end);
        hosts.push(host);
    }
    let progress = TransferProgress::new(count);
    let results = tokio::select! {
        results = push_tree(&tree, hosts, &progress) => results,
        // Every host's step was broken off.
        () = all_closed(&mut ends) => return,
    };
    let mut report = |host: usize, result: Result<(), TransferError>| {
        // A step that was broken off wants no answer.
        if let Some(end) = ends.remove(&host)
            && end.send(result).is_err()
        {
            tracing::debug!(host, "its step has ended");
        }
    };
    match results {
        Ok(results) => results.into_iter().for_each(|(host, result)| report(host, result)),
        Err(problem) => {
            let error = TransferError::new(problem, "run the command again: what was complete before stays on the hosts");
            (0..count).for_each(|host| report(host, Err(error.clone())));
        }
    }
}

async fn all_closed(ends: &mut BTreeMap<usize, oneshot::Sender<Result<(), TransferError>>>) {
    futures_util::future::join_all(ends.values_mut().map(oneshot::Sender::closed)).await;
    if ends.is_empty() {
        std::future::pending::<()>().await;
    }
}

/// Sends what one host lacks. `turn` is given back before it waits for the other hosts.
pub(super) async fn sync_files(
    connection: &HostConnection,
    sync: &SyncFiles,
    place: SyncPlace,
    turn: Option<OwnedSemaphorePermit>,
) -> Result<ActionResult, TransferError> {
    let remote = connection.get_or_connect().await?;
    let SyncPlace { tree, nonce, waiting } = place;
    let surveyed = survey_host((connection.host_index(), &*remote), &HostDirectory::on_host(&sync.to), &tree, &nonce).await?;
    let note = describe_changes(&surveyed.changes);
    if surveyed.changes.changes.is_empty() {
        surveyed.stream.finish().await?;
        return Ok(ActionResult::unchanged(note));
    }
    let (end, ended) = oneshot::channel();
    let interrupted = |_| TransferError::new("the transfer was interrupted", "run the command again");
    waiting.send((surveyed, end)).await.map_err(|_| interrupted(()))?;
    drop((waiting, turn));
    ended.await.map_err(|_| interrupted(()))??;
    Ok(ActionResult::changed(note))
}

/// `2 new, 1 changed, 7 B (3 unchanged)`
fn describe_changes(changes: &TreeChanges) -> String {
    let count = |wanted: Change| changes.changes.iter().filter(|(_, change)| *change == wanted).count();
    let counts = [(count(Change::New), "new"), (count(Change::Content), "changed"), (count(Change::Mode), "mode")];
    let counts: Vec<String> = counts.iter().filter(|(n, _)| *n > 0).map(|(n, word)| format!("{n} {word}")).collect();
    let unchanged = format!("{} unchanged", changes.unchanged);
    if counts.is_empty() { unchanged } else { format!("{}, {} ({unchanged})", counts.join(", "), format_bytes(changes.bytes)) }
}
