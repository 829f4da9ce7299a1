//! Runs a task of `prepare` on one host: start, then wait.

use std::sync::Arc;
use std::time::Duration;

use tokio_util::sync::CancellationToken;

use crate::engine::host_connection::HostConnection;
use crate::model::remote_command::CommandOutput;
use crate::plan::action::task::RunTask;
use crate::remote::RemoteError;

const RETRY_PAUSE: Duration = Duration::from_secs(4);

/// Starts a task and waits for its end, however long the network is away; `None`: cancelled. The start is not interrupted: it would leave secrets,
/// and a wrapper for which a stop comes too early.
pub(super) async fn run_task(
    connection: &Arc<HostConnection>,
    step: u32,
    run: &RunTask,
    cancel_token: &CancellationToken,
) -> Option<Result<CommandOutput, RemoteError>> {
    while !cancel_token.is_cancelled() {
        let ended = match connection.exec(&run.start_command()).await {
            Ok(started) if started.is_success() => cancel_token.run_until_cancelled(connection.exec(&run.wait_command())).await?,
            other => other,
        };
        let error = match ended {
            Err(error) if error.is_retryable() && !matches!(error, RemoteError::Timeout { .. }) => error,
            ended => return Some(ended),
        };
        connection.emit_step_retry(step, &error);
        cancel_token.run_until_cancelled(tokio::time::sleep(RETRY_PAUSE)).await?;
    }
    None
}
