//! Carries out the pull of an image: its output is read as it comes, and how far it is becomes events.

use std::time::Duration;

use tokio::sync::mpsc;
use tokio::time::Instant;

use crate::engine::host_connection::HostConnection;
use crate::event::{EventKind, LayerCounts};
use crate::model::remote_command::{CommandOutput, RemoteCommand};
use crate::plan::protocol::pull_output::PullOutputReader;
use crate::remote::{OutputChunk, RemoteError};

/// The least time between two reports of a host.
const REPORT_INTERVAL: Duration = Duration::from_millis(500);
/// Chunks (at most 32 KiB each) that wait to be read.
const MAX_QUEUED_CHUNKS: usize = 16;
/// The end of standard output and of standard error that is kept: the id and the reason of a failure.
const KEPT_BYTES: usize = 64 << 10;

/// What a pull has printed.
#[derive(Default)]
struct PullOutput {
    layers: PullOutputReader,
    reported: LayerCounts,
    stdout: Vec<u8>,
    stderr: Vec<u8>,
    dropped_bytes: u64,
}

/// Runs the script of a pull until it ends; its layers are reported as events of `step`.
///
/// # Errors
/// Why it did not complete.
pub(super) async fn pull_image(connection: &HostConnection, step: u32, command: &RemoteCommand) -> Result<CommandOutput, RemoteError> {
    let began = Instant::now();
    let report = |counts| connection.emitter().send(EventKind::PullProgress { step, counts });
    let (sender, chunks) = mpsc::channel(MAX_QUEUED_CHUNKS);
    // The reader waits for nothing but output: the connection is never held up.
    let (ended, output) = tokio::join!(connection.exec_streaming(command, sender), read_output(chunks, report));
    let exit_code = ended?;
    if exit_code == 0 {
        output.report_end(report);
    }
    let PullOutput { stdout, stderr, dropped_bytes, .. } = output;
    Ok(CommandOutput { exit_code, stdout, stderr, dropped_bytes, elapsed: began.elapsed() })
}

/// Reads to the end of the output.
async fn read_output(mut chunks: mpsc::Receiver<OutputChunk>, report: impl Fn(LayerCounts)) -> PullOutput {
    let mut output = PullOutput::default();
    let mut next_report = Instant::now() + REPORT_INTERVAL;
    loop {
        let counts = output.layers.counts();
        tokio::select! {
            biased;
            () = tokio::time::sleep_until(next_report), if counts != output.reported => {
                report(counts);
                output.reported = counts;
                next_report = Instant::now() + REPORT_INTERVAL;
            }
            chunk = chunks.recv() => match chunk {
                Some(chunk) => output.push(&chunk),
                None => return output,
            },
        }
    }
}

impl PullOutput {
    fn push(&mut self, chunk: &OutputChunk) {
        let (kept, bytes) = match chunk {
            OutputChunk::Stdout(bytes) => {
                self.layers.push(bytes);
                (&mut self.stdout, bytes)
            }
            OutputChunk::Stderr(bytes) => (&mut self.stderr, bytes),
        };
        kept.extend_from_slice(bytes);
        let excess = kept.len().saturating_sub(KEPT_BYTES);
        kept.drain(..excess);
        self.dropped_bytes = self.dropped_bytes.saturating_add(excess as u64);
    }

    /// After a successful pull every layer is complete, even if its last line is still unread.
    fn report_end(&self, report: impl Fn(LayerCounts)) {
        let counts = self.layers.final_counts();
        if counts != self.reported {
            report(counts);
        }
    }
}

#[cfg(test)]
mod tests {
    use std::cell::RefCell;

    use bytes::Bytes;

    use super::*;

    fn stdout(text: &str) -> OutputChunk {
        OutputChunk::Stdout(Bytes::copy_from_slice(text.as_bytes()))
    }

    fn counts(layers: u32, downloaded: u32, complete: u32) -> LayerCounts {
        LayerCounts { layers, downloaded, complete }
    }

    /// Reports with their times while a docker prints a state of a layer every few milliseconds.
    async fn reports_of_busy_pull() -> (Vec<(Duration, LayerCounts)>, PullOutput) {
        let (began, reports) = (Instant::now(), RefCell::new(Vec::new()));
        let report = |counts| reports.borrow_mut().push((began.elapsed(), counts));
        let (sender, chunks) = mpsc::channel(MAX_QUEUED_CHUNKS);
        let docker = async {
            let sender = sender;
            for state in ["Pulling fs layer", "Download complete", "Pull complete"] {
                for layer in 0..60 {
                    sender.send(stdout(&format!("{layer:012x}: {state}\n"))).await.expect("read");
                    tokio::time::sleep(Duration::from_millis(10)).await;
                }
            }
        };
        let ((), output) = tokio::join!(docker, read_output(chunks, report));
        output.report_end(report);
        (reports.into_inner(), output)
    }

    #[tokio::test]
    async fn reports_are_rare_and_the_last_one_is_complete() {
        let (reports, output) = reports_of_busy_pull().await;
        assert!(reports.len() >= 3, "{reports:?}");
        let all_but_last = reports.split_last().expect("reports").1;
        assert!(all_but_last.windows(2).all(|pair| pair[1].0 - pair[0].0 >= REPORT_INTERVAL), "{reports:?}");
        assert!(reports.windows(2).all(|pair| pair[0].1 != pair[1].1), "each one differs: {reports:?}");
        assert_eq!(reports.last().map(|report| report.1), Some(counts(60, 60, 60)));
        assert_eq!(output.layers.counts(), counts(60, 60, 60));
    }

    /// A layer that takes minutes is reported before the next line comes.
    #[tokio::test]
    async fn quiet_pull_is_reported() {
        let (sender, chunks) = mpsc::channel(MAX_QUEUED_CHUNKS);
        let (seen, mut was_seen) = mpsc::unbounded_channel();
        let docker = async {
            sender.send(stdout("5f70bf18a086: Pulling fs layer\n5f70bf18a0")).await.expect("read");
            assert_eq!(was_seen.recv().await, Some(counts(1, 0, 0)));
            sender.send(stdout("86: Pull complete\n")).await.expect("read");
            assert_eq!(was_seen.recv().await, Some(counts(1, 1, 1)));
            drop(sender);
        };
        let report = |counts| seen.send(counts).expect("awaited");
        let both = async { tokio::join!(docker, read_output(chunks, report)).1 };
        let output = tokio::time::timeout(Duration::from_secs(60), both).await.expect("reported without another line");
        output.report_end(|counts| panic!("reported already: {counts:?}"));
    }

    #[tokio::test]
    async fn kept_output_is_the_end_and_bounded() {
        let (sender, chunks) = mpsc::channel(MAX_QUEUED_CHUNKS);
        let docker = async {
            let sender = sender;
            for _ in 0..200 {
                sender.send(stdout(&"x".repeat(4096))).await.expect("read");
                sender.send(OutputChunk::Stderr(Bytes::from(vec![b'y'; 4096]))).await.expect("read");
            }
            sender.send(stdout("\nsha256:0123\n")).await.expect("read");
            sender.send(OutputChunk::Stderr(Bytes::from_static(b"\ndenied\n"))).await.expect("read");
        };
        let ((), output) = tokio::join!(docker, read_output(chunks, |counts| panic!("no layer: {counts:?}")));
        assert_eq!((output.stdout.len(), output.stderr.len()), (KEPT_BYTES, KEPT_BYTES));
        assert!(output.stdout.ends_with(b"\nsha256:0123\n") && output.stderr.ends_with(b"\ndenied\n"));
        assert_eq!(output.dropped_bytes, 2 * (200 * 4096 - KEPT_BYTES as u64) + 13 + 8);
        output.report_end(|counts| panic!("no layer: {counts:?}"));
    }
}
