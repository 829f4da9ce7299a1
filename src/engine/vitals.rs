//! Watches what a host does while a run is followed: one stream a host, begun again when it breaks.

use std::sync::Arc;
use std::time::Duration;

use tokio::time::Instant;
use tokio_util::sync::CancellationToken;

use crate::engine::link::Link;
use crate::event::EventKind;
use crate::plan::site::Site;
use crate::plan::vitals::{self, News, Reader};
use crate::remote::RemoteError;
use crate::shell::Command;

/// A stream that says nothing for so long is dead: the machine's values come every few seconds, whatever nvidia-smi does.
const SILENCE: Duration = Duration::from_secs(30);
/// Before another try; doubled each time.
const PAUSE: Duration = Duration::from_secs(2);
/// The longest pause.
const LONGEST: Duration = Duration::from_secs(60);

/// The most that a host is heard to say in a second: a few every two seconds are asked for.
const NEWS: usize = 100;

/// Watches one of so many hosts until told to stop. What cannot be seen is no trouble of the run: it is asked again, and its age shows.
pub async fn watch(link: Arc<Link>, site: Site, hosts: usize, end: CancellationToken) {
    let command = vitals::command(&site, hosts);
    let (mut pause, mut unread) = (PAUSE, None);
    loop {
        let begun = Instant::now();
        let error = tokio::select! {
            () = end.cancelled() => return,
            error = pass(&link, &command, &mut unread) => error,
        };
        tracing::debug!(%error, host = link.host(), "the host is not watched any more");
        if begun.elapsed() > LONGEST {
            pause = PAUSE;
        }
        tokio::select! {
            () = end.cancelled() => return,
            () = tokio::time::sleep(pause) => {}
        }
        pause = (pause * 2).min(LONGEST);
    }
}

/// Asks one host what nvidia-smi prints and tells the answer, whatever it is, as an event.
pub async fn look(link: &Link) {
    let (text, error) = match link.exec(&vitals::printed()).await {
        Ok(output) if output.ok() => (output.text(), String::new()),
        // The status with which `timeout` says that the time was over.
        Ok(output) if output.code == 124 => (output.text(), "nvidia-smi did not answer within 15 s".to_owned()),
        Ok(output) => (output.text(), output.complaint()),
        Err(error) => (String::new(), error.to_string()),
    };
    link.emitter().send(EventKind::NvidiaSmi { host: link.id(), text, error });
}

/// One stream, until it breaks. `unread`: what nvidia-smi was last said to say instead of values; it is told once.
async fn pass(link: &Link, command: &Command, unread: &mut Option<String>) -> RemoteError {
    let lost = |what: &str| RemoteError::Lost { what: what.to_owned(), hint: String::new(), retry: true };
    let mut stream = match link.stream(command).await {
        Ok(stream) => stream,
        Err(error) => return error,
    };
    let (mut reader, begun) = (Reader::default(), Instant::now());
    let mut told = (0, 0);
    loop {
        let bytes = match tokio::time::timeout(SILENCE, stream.output.recv()).await {
            Ok(Some(Ok(bytes))) => bytes,
            Ok(Some(Err(error))) => return error,
            Ok(None) => return lost("the values ended"),
            Err(_) => return lost("the values stayed away"),
        };
        let at = i64::try_from(begun.elapsed().as_millis()).unwrap_or(i64::MAX);
        let host = link.id();
        for news in reader.push(&bytes, at) {
            told = if told.0 == at / 1000 { (told.0, told.1 + 1) } else { (at / 1000, 1) };
            if told.1 > NEWS {
                continue;
            }
            link.emitter().send(match news {
                News::Gpus(gpus) => {
                    *unread = None;
                    EventKind::Gpus { host, gpus }
                }
                News::Unread(error) if unread.as_ref() == Some(&error) => continue,
                News::Unread(error) => {
                    *unread = Some(error.clone());
                    EventKind::GpusUnread { host, error }
                }
                News::Processes(processes) => EventKind::GpuProcesses { host, processes },
                News::Vitals(vitals) => EventKind::Vitals { host, vitals },
            });
        }
    }
}
