//! Carries out one step on one host, tried again where the connection and not the host was at fault.

use std::sync::Arc;
use std::time::Duration;

use tokio::sync::OwnedSemaphorePermit;

use crate::engine::host_connection::HostConnection;
use crate::engine::log_stream::{FetchedLogs, LogOffsets, LogStreamError, fetch_logs};
use crate::engine::pull_image::pull_image;
use crate::engine::send_files::{SendFailure, SendPlace, SendTarget, send_files};
use crate::model::remote_command::CommandOutput;
use crate::plan::PlanStep;
use crate::plan::action::send_files::SendFiles;
use crate::plan::action::task::{RunTask, record_sent_files_command};
use crate::plan::action::{Action, ActionResult, EXIT_LOCK_LOST, Execution, Issue};
use crate::plan::host_context::HostContext;
use crate::remote::RemoteError;
use crate::transfer::error::TransferError;

/// How often a step is tried on a new connection.
const MAX_TRIES: u32 = 4;
/// Before a wait is tried again after an error that no retry mends: a login that is refused too often is locked out.
const FATAL_ERROR_PAUSE: Duration = Duration::from_secs(60);

/// How a step ended.
pub(super) enum StepResult {
    Satisfied(String),
    Executed(ActionResult),
    /// With the variable that a task has registered.
    Registered(ActionResult, (String, String)),
    Impossible(Vec<Issue>),
    Unreachable(RemoteError),
    /// Files did not arrive.
    NotSent(TransferError),
    /// The execution was cancelled meanwhile.
    BrokenOff,
}

pub(super) async fn run_with_retries(connection: &Arc<HostConnection>, step: &PlanStep, offsets: &LogOffsets, hosts: usize) -> StepResult {
    let mut tries = 1;
    loop {
        let ended = run_step_once(connection, step, offsets, hosts).await;
        let StepResult::Unreachable(error) = &ended else { return ended };
        // A task continues meanwhile: its end is awaited until the caller gives its host up.
        let waits = matches!(step.action, Action::WaitForTask(_));
        if matches!(error, RemoteError::Timeout { .. }) || !waits && (!error.is_retryable() || tries >= MAX_TRIES) {
            return ended;
        }
        if !waits || tries == 1 {
            connection.emit_step_retry(step.id, error);
        }
        let pause = if error.is_retryable() { Duration::from_millis(500 << tries.min(MAX_TRIES)) } else { FATAL_ERROR_PAUSE };
        tokio::time::sleep(pause).await;
        tries += 1;
    }
}

/// Records on the host that a task has sent its files, for later attaches.
pub(super) async fn record_sent_files(
    connection: &HostConnection,
    context: Option<&HostContext>,
    number: u32,
    sent: StepResult,
) -> StepResult {
    let (StepResult::Executed(ActionResult::Done { .. }), Some(context)) = (&sent, context) else { return sent };
    match connection.exec(&record_sent_files_command(context, number)).await {
        Ok(output) if output.is_success() => sent,
        Ok(output) if output.exit_code == EXIT_LOCK_LOST => StepResult::Executed(ActionResult::LockLost),
        Ok(output) => {
            let message = format!("the files arrived, and the host could not note it: {}", output.error_line());
            StepResult::Executed(ActionResult::failed(message, "see whether the disk of run_dir is full"))
        }
        Err(error) => StepResult::Unreachable(error),
    }
}

pub(super) async fn send_task_files(
    target: Option<SendTarget>,
    task: &SendFiles,
    place: Option<SendPlace>,
    turn: Option<OwnedSemaphorePermit>,
) -> StepResult {
    let (Some(place), Some(target)) = (place, target) else {
        return StepResult::NotSent(TransferError::new("its files were not read on this laptop", "run the command again"));
    };
    match send_files(target, task, place, turn).await {
        Ok(result) => StepResult::Executed(result),
        Err(SendFailure::LockLost) => StepResult::Executed(ActionResult::LockLost),
        Err(SendFailure::NotSent(error)) => StepResult::NotSent(error),
    }
}

pub(super) fn judge_task(step: &PlanStep, run: &RunTask, output: &CommandOutput) -> StepResult {
    match (step.action.judge(output), run.registered_value(output)) {
        (result @ ActionResult::Done { .. }, Some(value)) => StepResult::Registered(result, value),
        (result, _) => StepResult::Executed(result),
    }
}

async fn run_step_once(connection: &Arc<HostConnection>, step: &PlanStep, offsets: &LogOffsets, hosts: usize) -> StepResult {
    match step.action.execution() {
        // `send_task_files` does it, for all hosts together.
        Execution::SendFiles { .. } | Execution::NoOp => StepResult::Satisfied(String::new()),
        Execution::Script(command) => match connection.exec(&command).await {
            Ok(output) => StepResult::Executed(step.action.judge(&output)),
            Err(error) => StepResult::Unreachable(error),
        },
        Execution::PullImage(command) => match pull_image(connection, step.id, &command).await {
            Ok(output) => StepResult::Executed(step.action.judge(&output)),
            Err(error) => StepResult::Unreachable(error),
        },
        Execution::Connect { address, port, timeout: within } => match connection.probe_tcp(&address, port, within).await {
            Ok(found) => step.action.judge_connection(&found).map_or_else(StepResult::Satisfied, StepResult::Executed),
            Err(error) => StepResult::Unreachable(error),
        },
        Execution::FetchLogs => fetch_logs_to_disk(connection, step, offsets, hosts).await,
    }
}

/// What came, and what came before it, is on this laptop's disk then: the host may delete it.
async fn fetch_logs_to_disk(connection: &Arc<HostConnection>, step: &PlanStep, offsets: &LogOffsets, hosts: usize) -> StepResult {
    let Action::FetchLogs(fetch) = &step.action else { return StepResult::Satisfied(String::new()) };
    StepResult::Executed(match fetch_logs(connection, &fetch.context, offsets, hosts).await {
        Ok(fetched) => match connection.emitter().sync_logs().await {
            Ok(()) => ActionResult::unchanged(describe_fetched_logs(&fetched)),
            Err(why) => ActionResult::failed(
                format!("this laptop's disk did not take the logs: {why}"),
                "look at the disk then `orchestrate down`: the host keeps them",
            ),
        },
        Err(LogStreamError::Remote(error)) => return StepResult::Unreachable(error),
        Err(LogStreamError::NotStored) => ActionResult::failed(
            "the logs could not be written on this laptop",
            "free space here then `orchestrate down`: the host keeps them",
        ),
    })
}

/// What a fetch brought, in words; a log that shrank is not complete.
fn describe_fetched_logs(fetched: &FetchedLogs) -> String {
    let names: Vec<String> = fetched.truncated_files.iter().map(ToString::to_string).collect();
    if names.is_empty() {
        return format!("{} bytes", fetched.bytes);
    }
    format!("{} bytes; not complete, since shorter on the host than before: {}", fetched.bytes, names.join(" "))
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::event::LogFile;

    #[test]
    fn truncated_logs_are_not_reported_complete() {
        let whole = FetchedLogs { bytes: 7, ..FetchedLogs::default() };
        assert_eq!(describe_fetched_logs(&whole), "7 bytes");
        let shrunk = FetchedLogs { truncated_files: [LogFile::Launcher, LogFile::Rank { rank: 3, restart: 0 }].into(), ..whole };
        assert_eq!(describe_fetched_logs(&shrunk), "7 bytes; not complete, since shorter on the host than before: node rank-3.0");
    }
}
