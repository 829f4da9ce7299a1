//! Sessions with hosts that end, lie or never come to an end.

use super::error::TransferError;
use super::host_stream::{HostDirectory, HostStream};
use super::scripted_host::{HELLO, ScriptedHost};
use crate::remote::RemoteError;

async fn open(host: &ScriptedHost, directory: &HostDirectory) -> Result<HostStream, TransferError> {
    HostStream::open(host, directory, "ab").await.map(|(stream, _)| stream)
}

/// A container that is gone before or during the session is a failure on a host that was reached; a shell that dies on the host itself is not.
#[tokio::test]
async fn a_container_that_is_gone_is_no_unreachable_host() {
    let gone = || RemoteError::Truncated {
        title: "transfer files".to_owned(),
        what: "its shell exited with status 1: Error response from daemon: No such container: orch-n-gpu01".to_owned(),
    };
    let inside = HostDirectory { path: "/w".to_owned(), enter: ["docker", "exec", "-i", "orch-n-gpu01"].map(str::to_owned).to_vec() };
    for output in ["", HELLO] {
        let host = ScriptedHost { end: Some(gone()), ..ScriptedHost::saying(output) };
        for (directory, unreachable) in [(&inside, false), (&HostDirectory::on_host("/w"), true)] {
            let error = match open(&host, directory).await {
                Ok(mut stream) => stream.read_line().await.map(drop),
                Err(error) => Err(error),
            };
            let error = error.expect_err("it is gone");
            assert_eq!(error.unreachable, unreachable, "{output}: {error:?}");
            assert!(unreachable || error.what.starts_with("the session in the container orch-n-gpu01 ended early: its shell"), "{error:?}");
            assert!(unreachable || error.hint.contains("docker ps -a"), "{error:?}");
        }
    }
}
