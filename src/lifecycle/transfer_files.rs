//! `push` and `pull`: opens a session with each host, and moves the files.

use std::path::Path;
use std::sync::Arc;

use futures_util::future::join_all;
use tokio::sync::Semaphore;
use tokio::task::JoinSet;

use crate::lifecycle::random::random_hex;
use crate::lifecycle::session::Session;
use crate::remote::Remote;
use crate::transfer::NONCE_DIGITS;
use crate::transfer::compare::{Change, TreeChanges};
use crate::transfer::entry::TreeEntry;
use crate::transfer::error::TransferError;
use crate::transfer::host_stream::HostDirectory;
use crate::transfer::progress::TransferProgress;
use crate::transfer::pull::pull_tree;
use crate::transfer::pull_survey::{PullSource, end_survey, survey_pull};
use crate::transfer::push::push_tree;
use crate::transfer::survey::{SurveyedHost, survey_host};
use crate::transfer::tree_source::{SyncMode, TreeSource};

/// What a transfer changed on one side, or would change.
#[derive(Debug, Clone, Default, PartialEq, Eq)]
pub(crate) struct TransferSummary {
    pub(crate) new: usize,
    pub(crate) changed: usize,
    /// Entries whose mode alone differs.
    pub(crate) modes: usize,
    pub(crate) deleted: usize,
    pub(crate) unchanged: usize,
    pub(crate) bytes: u64,
    /// The names of `--diff`: `+` new, `~` changed, `m` mode, `-` deleted.
    pub(crate) names: Vec<(char, String)>,
    /// What was left out, and why.
    pub(crate) skipped: Vec<String>,
}

impl TransferSummary {
    pub(crate) fn new(changes: &TreeChanges, entries: &[TreeEntry], with_names: bool) -> TransferSummary {
        let [new, changed, modes, deleted] = changes.counts();
        let mut names = Vec::new();
        if with_names {
            let mark = |change: &Change| match change {
                Change::New => '+',
                Change::Content => '~',
                Change::Mode => 'm',
            };
            names.extend(changes.changes.iter().filter_map(|(index, change)| Some((mark(change), entries.get(*index)?.name.display()))));
            names.extend(changes.deletions.iter().map(|entry| ('-', entry.name.display())));
        }
        TransferSummary { new, changed, modes, deleted, unchanged: changes.unchanged, bytes: changes.bytes, names, skipped: Vec::new() }
    }

    /// Whether anything differs.
    pub(crate) fn is_change(&self) -> bool {
        self.new + self.changed + self.modes + self.deleted > 0
    }
}

/// How a transfer is carried out.
#[derive(Debug, Clone, Copy)]
pub(crate) struct TransferMode {
    pub(crate) dry_run: bool,
    /// Collects the names of what differs.
    pub(crate) names: bool,
    /// Of a push.
    pub(crate) sync: SyncMode,
}

pub(crate) type HostTransfers = Vec<Result<TransferSummary, TransferError>>;

/// Connects to a host; takes none of the session's forks.
pub(crate) async fn connect(session: &Session, host: usize) -> Result<Arc<dyn Remote>, TransferError> {
    match session.engine.connections().get(host) {
        Some(connection) => Ok(connection.get_or_connect().await?),
        None => Err(TransferError::protocol("no such host")),
    }
}

/// Pushes `tree` into `directory` of every host.
///
/// # Errors
/// A file of the laptop that cannot be read.
pub(crate) async fn push_files(
    session: &Session,
    tree: &TreeSource,
    directory: &HostDirectory,
    mode: TransferMode,
    progress: &TransferProgress,
) -> Result<HostTransfers, TransferError> {
    let forks = Semaphore::new(session.local.forks.max(1));
    let surveys = (0..session.inventory.hosts.len()).map(|host| {
        let forks = &forks;
        async move {
            let _turn = forks.acquire().await;
            let survey = async {
                let remote = connect(session, host).await?;
                survey_host((host, &*remote), directory, tree.wanted_tree(mode.sync), &random_hex(NONCE_DIGITS)).await
            };
            // At once, and not when the slowest host has answered.
            survey.await.inspect_err(|error| progress.record_failure(host, error))
        }
    });
    let mut surveyed: Vec<SurveyedHost> = Vec::new();
    let mut results: HostTransfers = Vec::new();
    for survey in join_all(surveys).await {
        results.push(survey.map(|host| {
            let summary = TransferSummary::new(&host.changes, tree.entries(), mode.names);
            surveyed.push(host);
            summary
        }));
    }
    if mode.dry_run {
        return Ok(results);
    }
    surveyed.retain(|host| !host.changes.is_empty());
    for (host, pushed) in push_tree(tree, surveyed, progress).await? {
        if let (Err(error), Some(result)) = (pushed, results.get_mut(host)) {
            *result = Err(error);
        }
    }
    Ok(results)
}

/// Pulls from every host into `destination/<host>`.
pub(crate) async fn pull_files(
    session: &Session,
    source: PullSource,
    destination: &Path,
    mode: TransferMode,
    progress: &Arc<TransferProgress>,
) -> HostTransfers {
    let (forks, source) = (Arc::new(Semaphore::new(session.local.forks.max(1))), Arc::new(source));
    let mut tasks = JoinSet::new();
    for (host, name) in session.host_names().into_iter().enumerate() {
        let (forks, source, progress) = (forks.clone(), source.clone(), progress.clone());
        let (connection, destination) = (session.engine.connections().get(host).cloned(), destination.to_owned());
        tasks.spawn(async move {
            let _turn = forks.acquire().await;
            let pulled = async {
                let Some(connection) = connection else { return Err(TransferError::protocol("no such host")) };
                let remote = connection.get_or_connect().await?;
                let survey = survey_pull(&*remote, &source, (&destination, &name), &random_hex(NONCE_DIGITS)).await?;
                let mut summary = TransferSummary::new(&survey.changes, &survey.entries, mode.names);
                summary.skipped = if mode.dry_run || !summary.is_change() {
                    end_survey(survey).await?
                } else {
                    pull_tree(survey, (&destination, &name), (host, &progress)).await?
                };
                Ok(summary)
            };
            let pulled = pulled.await;
            if let Err(error) = &pulled {
                progress.record_failure(host, error);
            }
            (host, pulled)
        });
    }
    let mut results = tasks.join_all().await;
    results.sort_by_key(|(host, _)| *host);
    results.into_iter().map(|(_, result)| result).collect()
}
