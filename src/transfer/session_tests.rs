//! Sessions with hosts that end, lie or never come to an end.

use super::error::TransferError;
use super::host_files::{HostFiles, HostFilesQuery};
use super::host_stream::{HostDirectory, HostStream};
use super::local_tree::LocalTree;
use super::progress::TransferProgress;
use super::push::push_tree;
use super::scripted_host::{HELLO, ScriptedHost};
use super::survey::survey_host;
use super::tree_source::{SyncMode, TreeSource};
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

fn query(pattern: &str) -> HostFilesQuery {
    HostFilesQuery { host: "gpu01".to_owned(), directory: "~/dist".to_owned(), pattern: pattern.to_owned(), rename: None, mode: None }
}

/// A directory of the source host that may not be read is not an empty one.
#[tokio::test]
async fn a_source_directory_without_permission_is_named() {
    let unlisted = format!("{HELLO}\nab ! find: '.': Permission denied\nab E\nab ");
    let partly = format!("{HELLO}\nab 81a4 1 1 ./x-1.whl\nab ! find: '.': Input/output error\nab E\nab ");
    let closed = HELLO.replace("H 1", "H 2");
    for (output, said) in [(unlisted, "Permission denied"), (partly, "Input/output error"), (closed, "permission is denied")] {
        let error = HostFiles::find(&ScriptedHost::saying(&output), query("x-*.whl"), "ab").await.err().expect("an error");
        assert!(error.what.starts_with("host gpu01: ~/dist/x-*.whl: its directory cannot be ") && error.what.contains(said), "{error:?}");
        assert!(error.hint.contains("ls -ld"), "{error:?}");
    }
    // What cannot be looked at beside the files is no reason.
    let beside = format!("{HELLO}\nab 81a4 1 1 ./x-1.whl\nab ! stat: cannot stat './mnt': Permission denied\nab E\nab ");
    let found = HostFiles::find(&ScriptedHost::saying(&beside), query("x-*.whl"), "ab").await.expect("a file");
    assert_eq!(found.entries().len(), 1);
}

/// The script reports a running step for an hour at most; a host that reports for ever ends the session.
#[tokio::test]
async fn reports_of_a_long_step_are_bounded() {
    let host_dir = HostDirectory::on_host("/w");
    let long_step = ScriptedHost::saying(format!("{HELLO}{}A\n{}A\n", "K\n".repeat(180), "K\n".repeat(180)));
    let mut stream = open(&long_step, &host_dir).await.expect("a session");
    for _ in 0..2 {
        assert_eq!(stream.read_line().await, Ok("A".to_owned()));
    }
    let endless = ScriptedHost::saying(format!("{HELLO}{}A\n", "K\n".repeat(181)));
    let mut stream = open(&endless, &host_dir).await.expect("a session");
    let error = stream.read_line().await.expect_err("too many");
    assert!(error.what.contains("for more than an hour") && !error.unreachable, "{error:?}");
}

/// A host that takes nothing is waited for while it reports, but not for ever.
#[tokio::test]
async fn a_host_that_only_reports_is_given_up() {
    let host = ScriptedHost::saying(HELLO);
    let mut stream = open(&host, &HostDirectory::on_host("/w")).await.expect("a session");
    stream.stall_limit = std::time::Duration::from_millis(20);
    let (reports, _input) = host.sessions.lock().expect("whole").pop().expect("a session");
    let send = async {
        loop {
            if let Err(error) = stream.send_shared(vec![0; 64 << 10].into()).await {
                return error;
            }
        }
    };
    let report = async {
        while reports.send(bytes::Bytes::from_static(b"K\n"), |_| RemoteError::Protocol { what: String::new() }) {
            tokio::time::sleep(std::time::Duration::from_millis(1)).await;
        }
    };
    let error = tokio::select! {
        error = send => error,
        () = report => panic!("the session takes no reports"),
    };
    assert!(error.what.contains("for more than an hour"), "{error:?}");
}

/// Once no host takes a big file, the rest of it is not read: here it would be missing.
#[tokio::test]
async fn a_big_file_is_not_read_on_after_every_host_has_failed() {
    let dir = tempfile::tempdir().expect("a folder");
    let path = dir.path().join("big");
    let file = std::fs::File::create_new(&path).expect("made");
    file.set_len(100 << 20).expect("a size");
    let tree = TreeSource::Local(LocalTree::single_file(&path, b"big").expect("a tree"));
    let host = ScriptedHost { is_deaf: true, ..ScriptedHost::saying(HELLO.replace("H 1", "H 0") + "F /to: the disk is full\n") };
    let surveyed =
        survey_host((0, &host), &HostDirectory::on_host("/to"), tree.wanted_tree(SyncMode::default()), "ab").await.expect("compared");
    file.set_len(60 << 20).expect("a size");
    let results = push_tree(&tree, vec![surveyed], &TransferProgress::new(1)).await.expect("no error of the source");
    assert!(matches!(&results[..], [(0, Err(error))] if error.what == "/to: the disk is full"), "{results:?}");
}
