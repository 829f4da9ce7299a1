//! What the `sync` and `copy` tasks of a plan would send to each host now. Nothing is changed.

use std::collections::BTreeMap;
use std::sync::Arc;

use futures_util::future::join_all;
use tokio::sync::Semaphore;

use crate::engine::send_files::FileInput;
use crate::lifecycle::error::WorkflowError;
use crate::lifecycle::file_sources::{TaskFiles, read_file_inputs};
use crate::lifecycle::random::random_hex;
use crate::lifecycle::session::Session;
use crate::lifecycle::transfer_files::{TransferSummary, connect};
use crate::plan::Plan;
use crate::plan::action::Action;
use crate::plan::action::send_files::SendFiles;
use crate::plan::facts::HostFacts;
use crate::plan::task_preview::{PreviewRow, RowEffect, lacks_containers};
use crate::text::byte_size::format_bytes;
use crate::text::translation::Lang;
use crate::transfer::NONCE_DIGITS;
use crate::transfer::error::TransferError;
use crate::transfer::host_files::HostFiles;
use crate::transfer::host_stream::HostDirectory;
use crate::transfer::survey::survey_host;
use crate::transfer::tree_source::{SyncMode, TreeSource};

/// More names are counted.
const MAX_NAMES: usize = 200;

/// The source of one task, or why it is not there.
type FoundSource = Result<(Arc<TreeSource>, SyncMode), TransferError>;

/// What one task would do to one host now.
enum FileForecast {
    /// Its container is made first: nothing can be compared with it.
    NewContainer,
    Compared(TransferSummary),
}

/// One row for each task and host. `names`: with the files that differ.
///
/// # Errors
/// What cannot be read on this laptop.
pub(crate) async fn preview_files(
    session: &Session,
    (plan, facts): (&Plan, &[HostFacts]),
    sources: &BTreeMap<u32, TaskFiles>,
    names: bool,
) -> Result<Vec<PreviewRow>, WorkflowError> {
    let forks = Semaphore::new(session.local.forks.max(1));
    let lacks_container = lacks_containers(plan, facts);
    let mut rows = Vec::new();
    // One task after the other: a host has few sessions.
    for (number, input) in read_file_inputs(sources)? {
        let source = find_source(session, input).await;
        let steps = plan.steps.iter().filter_map(|step| match &step.action {
            Action::SendFiles(task) if task.number == number => Some((step.host, task)),
            _ => None,
        });
        let (forks, source, lacks_container) = (&forks, &source, &lacks_container);
        let compare = |(host, task)| async move {
            let _turn = forks.acquire().await;
            describe(session, (host, task), forecast_host(session, (host, task), (source, lacks_container), names).await)
        };
        rows.extend(join_all(steps.map(compare)).await);
    }
    Ok(rows)
}

async fn find_source(session: &Session, input: FileInput) -> FoundSource {
    match input {
        FileInput::Local(tree, mode) => Ok((tree, mode)),
        FileInput::OnHost(host, query) => {
            let remote = connect(session, host).await.map_err(|error| query.named(error))?;
            let files = HostFiles::find(&*remote, query, &random_hex(NONCE_DIGITS)).await?;
            Ok((Arc::new(TreeSource::Host(files)), SyncMode::default()))
        }
    }
}

async fn forecast_host(
    session: &Session,
    (host, task): (usize, &SendFiles),
    (source, lacks_container): (&FoundSource, &[bool]),
    names: bool,
) -> Result<FileForecast, TransferError> {
    let source = source.as_ref().map_err(Clone::clone)?;
    if !task.enter.is_empty() && lacks_container.get(host) == Some(&true) {
        return Ok(FileForecast::NewContainer);
    }
    compare_host(session, (host, task), source, names).await.map(FileForecast::Compared)
}

async fn compare_host(
    session: &Session,
    (host, task): (usize, &SendFiles),
    (source, mode): &(Arc<TreeSource>, SyncMode),
    names: bool,
) -> Result<TransferSummary, TransferError> {
    let remote = connect(session, host).await?;
    let directory = HostDirectory { path: task.directory.clone(), enter: task.enter.clone() };
    let surveyed = survey_host((host, &*remote), &directory, source.wanted_tree(*mode), &random_hex(NONCE_DIGITS)).await?;
    let summary = TransferSummary::new(&surveyed.changes, source.entries(), names);
    surveyed.stream.finish().await?;
    Ok(summary)
}

fn describe(session: &Session, (host, task): (usize, &SendFiles), forecast: Result<FileForecast, TransferError>) -> PreviewRow {
    let (text, effect, names) = match forecast {
        Ok(FileForecast::Compared(summary)) if !summary.is_change() => ("nothing differs".to_owned(), RowEffect::None, Vec::new()),
        Ok(FileForecast::Compared(summary)) => {
            (format!("would send {}", describe_counts(&summary, session.reporter.lang())), RowEffect::Changes, summary.names)
        }
        Ok(FileForecast::NewContainer) => ("would send its files, if the container lacks them".to_owned(), RowEffect::Changes, Vec::new()),
        Err(error) => {
            let what = session.reporter.sanitizer().sanitize_line(&error.what).to_string();
            // What an earlier task makes is not there before it has run.
            let text = if task.number > 1 && !error.unreachable {
                format!("unknown before the earlier tasks have run: {what}")
            } else {
                format!("unknown: {what}")
            };
            (text, RowEffect::None, Vec::new())
        }
    };
    let mut details: Vec<String> = names.iter().take(MAX_NAMES).map(|(mark, name)| format!("{mark} {name}")).collect();
    if names.len() > MAX_NAMES {
        details.push(format!("… {} more", names.len() - MAX_NAMES));
    }
    let hosts = session.host_names().get(host).cloned().into_iter().collect();
    PreviewRow { number: task.number, name: task.name.clone(), text, effect, hosts, details }
}

/// `2 new, 1 changed, 7 B`
pub(crate) fn describe_counts(summary: &TransferSummary, lang: Lang) -> String {
    let counts = [(summary.new, "new"), (summary.changed, "changed"), (summary.modes, "mode"), (summary.deleted, "deleted")];
    let counts: Vec<String> = counts.iter().filter(|(n, _)| *n > 0).map(|(n, word)| format!("{n} {}", lang.term(word))).collect();
    format!("{}{}{}", counts.join(lang.comma()), lang.comma(), format_bytes(summary.bytes))
}
