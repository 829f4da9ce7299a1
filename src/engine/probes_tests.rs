//! Listeners of hosts that do not keep to the order of their lines.

use bytes::Bytes;
use futures_util::future::BoxFuture;
use tokio::sync::mpsc;

use super::*;
use crate::engine::emitter::Emitter;
use crate::remote::byte_channel::byte_channel;
use crate::remote::stub_remote::StubRemote;
use crate::remote::{HostConnector, Remote};

/// A host whose streams repeat a line without end.
#[derive(Clone)]
struct EndlessLines;

impl StubRemote for EndlessLines {
    fn open_stream<'a>(&'a self, command: &'a RemoteCommand) -> BoxFuture<'a, Result<RemoteStream, RemoteError>> {
        let (sender, output) = byte_channel(command.output_limit);
        tokio::spawn(async move {
            while sender.send(Bytes::from_static(b"noise\n"), |_| RemoteError::Protocol { what: String::new() }) {
                tokio::time::sleep(Duration::from_millis(5)).await;
            }
        });
        let (input, _) = mpsc::channel(1);
        Box::pin(async { Ok(RemoteStream { output, input }) })
    }
}

impl HostConnector for EndlessLines {
    fn retry_window(&self, _: usize) -> Duration {
        Duration::MAX
    }

    fn connect(&self, _: usize) -> BoxFuture<'_, Result<Arc<dyn Remote>, RemoteError>> {
        Box::pin(async { Ok(Arc::new(EndlessLines) as Arc<dyn Remote>) })
    }
}

#[tokio::test]
async fn listener_that_talks_without_end_is_given_up() {
    let link = Arc::new(HostConnection::new(0, Arc::new(EndlessLines), Emitter::new().0));
    let command = probe::listener_command(&HostContext::new("n", "gpu01", "/r"), false, 0);
    let started = start_listeners(&link, &command, Duration::from_millis(50));
    let (listeners, _) = tokio::time::timeout(Duration::from_secs(20), started).await.expect("given up");
    assert_eq!(listeners.failure_reason, "its listener broke off");
}
