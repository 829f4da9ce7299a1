//! Watches what a host does while a run is followed: one stream a host, begun again when it breaks.

use std::sync::Arc;
use std::time::Duration;

use tokio::time::Instant;
use tokio_util::sync::CancellationToken;

use crate::engine::host_connection::HostConnection;
use crate::event::EventKind;
use crate::model::remote_command::RemoteCommand;
use crate::plan::host_context::HostContext;
use crate::plan::protocol::host_metrics;
use crate::plan::protocol::host_metrics::{MetricsEvent, MetricsReader};
use crate::plan::slurm::node_metrics::node_metrics_command;
use crate::remote::RemoteError;

/// A stream that is silent for this time is dead: the machine's values come every few seconds, even if nvidia-smi hangs.
const SILENCE_TIMEOUT: Duration = Duration::from_secs(30);
/// Before another try; doubled each time.
const RETRY_PAUSE: Duration = Duration::from_secs(2);
const MAX_RETRY_PAUSE: Duration = Duration::from_secs(60);

/// The most events taken from a host in a second; a few every two seconds are requested.
const MAX_EVENTS_PER_SECOND: usize = 100;

/// Samples one of `hosts` hosts until it is stopped. A failure to sample does not fail the run: it is tried again, and the age of the values shows it.
pub(crate) async fn stream_host_metrics(connection: Arc<HostConnection>, context: HostContext, hosts: usize, end: CancellationToken) {
    let command = match context.cluster_job {
        Some(job) => node_metrics_command(&context, job, hosts),
        None => host_metrics::metrics_command(&context, hosts),
    };
    let (mut pause, mut unread) = (RETRY_PAUSE, None);
    loop {
        let begun = Instant::now();
        let Some(error) = end.run_until_cancelled(read_stream_until_lost(&connection, &command, &mut unread)).await else { return };
        tracing::debug!(%error, host = connection.host_index(), "the host is not watched any more");
        if begun.elapsed() > MAX_RETRY_PAUSE {
            pause = RETRY_PAUSE;
        }
        if end.run_until_cancelled(tokio::time::sleep(pause)).await.is_none() {
            return;
        }
        pause = (pause * 2).min(MAX_RETRY_PAUSE);
    }
}

/// Requests the output of nvidia-smi from one host and emits the answer, or the error, as an event.
pub(crate) async fn query_nvidia_smi(connection: &HostConnection) {
    let (text, error) = match connection.exec(&host_metrics::nvidia_smi_command()).await {
        Ok(output) if output.is_success() => (output.stdout_text(), String::new()),
        // The exit status of `timeout` when the time is over.
        Ok(output) if output.exit_code == 124 => (output.stdout_text(), "nvidia-smi did not answer within 15 s".to_owned()),
        Ok(output) => (output.stdout_text(), output.error_line()),
        Err(error) => (String::new(), error.to_string()),
    };
    connection.emitter().send(EventKind::NvidiaSmi { host: connection.event_host_index(), text, error });
}

/// One stream, until it breaks. `unread`: the last reported output of nvidia-smi that is not values; it is reported once.
async fn read_stream_until_lost(connection: &HostConnection, command: &RemoteCommand, unread: &mut Option<String>) -> RemoteError {
    let lost = |what: &str| RemoteError::Lost { what: what.to_owned(), hint: String::new(), retry: true };
    let mut stream = match connection.open_stream(command).await {
        Ok(stream) => stream,
        Err(error) => return error,
    };
    let (mut reader, begun) = (MetricsReader::default(), Instant::now());
    let mut reported = (0, 0);
    loop {
        let bytes = match tokio::time::timeout(SILENCE_TIMEOUT, stream.output.recv()).await {
            Ok(Some(Ok(bytes))) => bytes,
            Ok(Some(Err(error))) => return error,
            Ok(None) => return lost("the values ended"),
            Err(_) => return lost("the values stayed away"),
        };
        let at = i64::try_from(begun.elapsed().as_millis()).unwrap_or(i64::MAX);
        let host = connection.event_host_index();
        for news in reader.push(&bytes, at) {
            reported = if reported.0 == at / 1000 { (reported.0, reported.1 + 1) } else { (at / 1000, 1) };
            if reported.1 > MAX_EVENTS_PER_SECOND {
                continue;
            }
            connection.emitter().send(match news {
                MetricsEvent::Gpus(gpus) => {
                    *unread = None;
                    EventKind::Gpus { host, gpus: gpus.into() }
                }
                MetricsEvent::GpuError(error) if unread.as_ref() == Some(&error) => continue,
                MetricsEvent::GpuError(error) => {
                    *unread = Some(error.clone());
                    EventKind::GpusUnavailable { host, error }
                }
                MetricsEvent::Processes(processes) => EventKind::GpuProcesses { host, processes },
                MetricsEvent::Host(metrics) => EventKind::HostMetrics { host, metrics },
            });
        }
    }
}
