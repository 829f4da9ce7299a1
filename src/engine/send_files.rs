//! Carries out a `sync` or `copy` task: each host is compared with the source, then all that lack something get it while each file is read once.

use std::collections::BTreeMap;
use std::sync::Arc;
use std::time::Duration;

use tokio::sync::{OnceCell, OwnedSemaphorePermit, mpsc, oneshot};
use tokio::task::JoinSet;

use crate::engine::host_connection::HostConnection;
use crate::event::EventKind;
use crate::plan::action::send_files::SendFiles;
use crate::plan::action::task::check_lock_command;
use crate::plan::action::{ActionResult, EXIT_LOCK_LOST};
use crate::plan::host_context::HostContext;
use crate::text::byte_size::format_bytes;
use crate::transfer::compare::TreeChanges;
use crate::transfer::error::TransferError;
use crate::transfer::host_files::{HostFiles, HostFilesQuery};
use crate::transfer::host_stream::HostDirectory;
use crate::transfer::progress::TransferProgress;
use crate::transfer::push::push_tree;
use crate::transfer::survey::{SurveyedHost, survey_host};
use crate::transfer::tree_source::{SyncMode, TreeSource};

/// How often a host's bytes are reported.
const PROGRESS_INTERVAL: Duration = Duration::from_millis(500);

/// What the tasks of a plan send.
#[derive(Clone, Default)]
pub(crate) struct FileInputs {
    /// By the number of the task.
    pub(crate) sources: BTreeMap<u32, FileInput>,
    /// Random hex, for the sessions with the hosts.
    pub(crate) nonce: String,
}

/// What one task sends.
#[derive(Clone)]
pub(crate) enum FileInput {
    /// Files of the laptop, which has listed them.
    Local(Arc<TreeSource>, SyncMode),
    /// Files of this host of the plan, which is asked when the task begins.
    OnHost(usize, HostFilesQuery),
}

/// The source of one task, opened by the first host that needs it.
struct SharedSource {
    input: FileInput,
    /// Of the host that has the files.
    connection: Option<Arc<HostConnection>>,
    nonce: String,
    found: OnceCell<Result<Arc<TreeSource>, TransferError>>,
}

impl SharedSource {
    async fn get(&self) -> Result<Arc<TreeSource>, TransferError> {
        match &self.input {
            FileInput::Local(tree, _) => Ok(tree.clone()),
            FileInput::OnHost(_, query) => self.found.get_or_init(|| self.find(query)).await.clone(),
        }
    }

    async fn find(&self, query: &HostFilesQuery) -> Result<Arc<TreeSource>, TransferError> {
        let Some(connection) = &self.connection else { return Err(TransferError::protocol("no such host")) };
        let remote = connection.get_or_connect().await.map_err(|error| query.named(error.into()))?;
        HostFiles::find(&*remote, query.clone(), &self.nonce).await.map(|files| Arc::new(TreeSource::Host(files)))
    }
}

/// Why files did not arrive on a host.
pub(super) enum SendFailure {
    /// Another operator took the lock: nothing was sent.
    LockLost,
    NotSent(TransferError),
}

impl From<TransferError> for SendFailure {
    fn from(error: TransferError) -> SendFailure {
        SendFailure::NotSent(error)
    }
}

type SendEnd = oneshot::Sender<Result<(), SendFailure>>;

/// A host that lacks something of the source, and where it learns how its transfer ended.
struct WaitingHost {
    host: SurveyedHost,
    source: Arc<TreeSource>,
    target: SendTarget,
    end: SendEnd,
}

/// A host that gets files, by this step.
pub(super) struct SendTarget {
    pub(super) step: u32,
    pub(super) connection: Arc<HostConnection>,
    pub(super) context: HostContext,
}

impl SendTarget {
    /// Whether the name is still locked by this command.
    async fn check_lock(&self) -> Result<(), SendFailure> {
        match self.connection.exec(&check_lock_command(&self.context)).await {
            Ok(output) if output.is_success() => Ok(()),
            Ok(output) if output.exit_code == EXIT_LOCK_LOST => Err(SendFailure::LockLost),
            Ok(output) => {
                Err(TransferError::new(format!("its lock cannot be read: {}", output.error_line()), "look at run_dir there").into())
            }
            Err(error) => Err(TransferError::from(error).into()),
        }
    }
}

/// One host's place among the hosts of a task. The files are sent once every place is taken or given up.
#[derive(Clone)]
pub(super) struct SendPlace {
    source: Arc<SharedSource>,
    waiting: mpsc::Sender<WaitingHost>,
}

impl SendPlace {
    /// For the hosts of one task; `senders` end after the last place.
    pub(super) fn open(
        inputs: &FileInputs,
        number: u32,
        connections: &[Arc<HostConnection>],
        senders: &mut JoinSet<()>,
    ) -> Option<SendPlace> {
        let input = inputs.sources.get(&number)?.clone();
        let connection = match &input {
            FileInput::OnHost(host, _) => connections.get(*host).cloned(),
            FileInput::Local(..) => None,
        };
        let count = connections.len();
        let (waiting, hosts) = mpsc::channel(count.max(1));
        senders.spawn(send_together(hosts, count));
        let source = SharedSource { input, connection, nonce: inputs.nonce.clone(), found: OnceCell::new() };
        Some(SendPlace { source: Arc::new(source), waiting })
    }
}

async fn send_together(mut waiting: mpsc::Receiver<WaitingHost>, count: usize) {
    let mut all = Vec::new();
    while let Some(next) = waiting.recv().await {
        all.push(next);
    }
    let Some(source) = all.first().map(|first| first.source.clone()) else { return };
    let (hosts, targets, mut ends) = keep_locked(all).await;
    let progress = TransferProgress::new(count);
    let mut sent = TaskProgress { progress: &progress, reported: vec![None; targets.len()], targets };
    let mut pushed = std::pin::pin!(push_tree(&source, hosts, &progress));
    let results = loop {
        tokio::select! {
            results = &mut pushed => break results,
            () = tokio::time::sleep(PROGRESS_INTERVAL) => sent.report(&mut ends),
            // Every host's step has ended or was interrupted.
            () = all_closed(&mut ends) => return,
        }
    };
    for (host, end) in ends {
        let result = match &results {
            Ok(results) => results.iter().find(|(of, _)| *of == host).map(|(_, result)| result.clone()),
            Err(error) => Some(Err(error.clone())),
        };
        // A host without a result learns that it was interrupted.
        if let Some(result) = result {
            report_end(host, end, result.map_err(SendFailure::from));
        }
    }
}

/// The hosts whose lock is still held, right before anything is sent; if another operator took one, no host gets anything.
async fn keep_locked(all: Vec<WaitingHost>) -> (Vec<SurveyedHost>, Vec<SendTarget>, BTreeMap<usize, SendEnd>) {
    let checks = futures_util::future::join_all(all.iter().map(|waiting| waiting.target.check_lock())).await;
    let is_lost = checks.iter().any(|check| matches!(check, Err(SendFailure::LockLost)));
    let (mut hosts, mut targets, mut ends) = (Vec::new(), Vec::new(), BTreeMap::new());
    for (waiting, check) in all.into_iter().zip(checks) {
        let check = if is_lost { Err(SendFailure::LockLost) } else { check };
        match check {
            Ok(()) => {
                ends.insert(waiting.host.host, waiting.end);
                hosts.push(waiting.host);
                targets.push(waiting.target);
            }
            Err(failure) => report_end(waiting.host.host, waiting.end, Err(failure)),
        }
    }
    (hosts, targets, ends)
}

/// Reports how far a task is on each host.
struct TaskProgress<'a> {
    progress: &'a TransferProgress,
    targets: Vec<SendTarget>,
    /// The last report of each target.
    reported: Vec<Option<(u64, u64)>>,
}

impl TaskProgress<'_> {
    /// A host that has failed does not wait for the others: its step ends.
    fn report(&mut self, ends: &mut BTreeMap<usize, SendEnd>) {
        let counts = self.progress.counts();
        for (target, reported) in self.targets.iter().zip(&mut self.reported) {
            let host = target.connection.host_index();
            if let Some(error) = self.progress.failure(host) {
                if let Some(end) = ends.remove(&host) {
                    report_end(host, end, Err(error.clone().into()));
                }
                continue;
            }
            let Some((done, total)) = counts.get(host).copied().flatten().filter(|(_, total)| *total > 0) else { continue };
            // A host that waits for the others is reported, too: its rate falls.
            if reported.replace((done, total)) != Some((total, total)) {
                let host = target.connection.event_host_index();
                target.connection.emitter().send(EventKind::StepProgress { host, step: target.step, done, total });
            }
        }
    }
}

fn report_end(host: usize, end: SendEnd, result: Result<(), SendFailure>) {
    // An interrupted step has no receiver.
    if end.send(result).is_err() {
        tracing::debug!(host, "its step has ended");
    }
}

async fn all_closed(ends: &mut BTreeMap<usize, SendEnd>) {
    futures_util::future::join_all(ends.values_mut().map(oneshot::Sender::closed)).await;
}

/// Sends what one host lacks. `turn` is released before it waits for the other hosts.
pub(super) async fn send_files(
    target: SendTarget,
    task: &SendFiles,
    place: SendPlace,
    turn: Option<OwnedSemaphorePermit>,
) -> Result<ActionResult, SendFailure> {
    let SendPlace { source: shared, waiting } = place;
    let connection = target.connection.clone();
    let is_source = matches!(shared.input, FileInput::OnHost(host, _) if host == connection.host_index());
    let own = |error: TransferError| TransferError { of_source: error.of_source && !is_source, ..error };
    let mode = match &shared.input {
        FileInput::Local(_, mode) => *mode,
        FileInput::OnHost(..) => SyncMode::default(),
    };
    let remote = connection.get_or_connect().await.map_err(TransferError::from)?;
    let source = shared.get().await.map_err(own)?;
    let directory = HostDirectory { path: task.directory.clone(), enter: task.enter.clone() };
    let host = survey_host((connection.host_index(), &*remote), &directory, source.wanted_tree(mode), &shared.nonce).await?;
    let note = describe_changes(&host.changes);
    if host.changes.is_empty() {
        host.stream.finish().await?;
        return Ok(ActionResult::unchanged(note));
    }
    let (end, ended) = oneshot::channel();
    let interrupted = || TransferError::new("the transfer was interrupted", "run the command again");
    waiting.send(WaitingHost { host, source, target, end }).await.map_err(|_| interrupted())?;
    drop((waiting, turn));
    match ended.await.map_err(|_| interrupted())? {
        Ok(()) => Ok(ActionResult::changed(note)),
        Err(SendFailure::NotSent(error)) => Err(own(error).into()),
        Err(SendFailure::LockLost) => Err(SendFailure::LockLost),
    }
}

/// `2 new, 1 changed, 7 B (3 unchanged)`
fn describe_changes(changes: &TreeChanges) -> String {
    let counts = changes.counts().into_iter().zip(["new", "changed", "mode", "deleted"]).filter(|(count, _)| *count > 0);
    let counts: Vec<String> = counts.map(|(count, word)| format!("{count} {word}")).collect();
    let unchanged = format!("{} unchanged", changes.unchanged);
    if counts.is_empty() { unchanged } else { format!("{}, {} ({unchanged})", counts.join(", "), format_bytes(changes.bytes)) }
}
