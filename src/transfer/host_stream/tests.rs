//! Ends of a session, and the script that starts one.

use super::*;

/// What waits to be read is a file's, with a line end in each byte: the reason comes after it.
#[tokio::test]
async fn lost_connection_amid_bulk_data_is_reported_as_lost() {
    let (sender, output) = crate::remote::byte_channel::byte_channel(OUTPUT_LIMIT);
    for _ in 0..5 {
        assert!(sender.send(Bytes::from(vec![b'\n'; 1 << 20]), |_| unreachable!()));
    }
    sender.fail(RemoteError::lost("the connection was lost", "", true));
    drop(sender);
    let mut stream = HostStream::new(mpsc::channel(1).0, output, "ab", None);
    for _ in 0..5 {
        assert_eq!(stream.read_bulk().await.expect("what had arrived").len(), 1 << 20);
    }
    let error = stream.read_bulk().await.expect_err("no more");
    assert!(error.unreachable && error.what.contains("the connection was lost"), "{error:?}");
}

#[tokio::test]
async fn connection_lost_while_nothing_is_taken_is_reported_as_lost() {
    let (sender, output) = crate::remote::byte_channel::byte_channel(OUTPUT_LIMIT);
    let (input, _open) = mpsc::channel(1);
    input.try_send(Bytes::new()).expect("room for one");
    let mut stream = HostStream::new(input, output, "ab", None);
    stream.stall_limit = Duration::from_millis(20);
    sender.fail(RemoteError::lost("the connection was lost", "", true));
    let error = stream.send_now(Bytes::from_static(b"x")).await.expect_err("the session has ended");
    assert!(error.what.contains("the connection was lost"), "{error:?}");
}

#[test]
fn home_is_expanded_by_the_host_and_the_rest_is_quoted() {
    let script = |path: &str| HostDirectory::on_host(path).script("ab");
    assert!(script("~/my dir").starts_with("root=\"$HOME\"/'my dir' nonce=ab\n"));
    assert!(script("/a/$(b)").starts_with("root='/a/$(b)' nonce=ab\n"));
    let inside = HostDirectory { path: "/w".to_owned(), enter: ["docker", "exec", "-i", "c 1"].map(str::to_owned).to_vec() };
    assert!(inside.script("ab").contains("\nexec docker exec -i 'c 1' sh -c 'root=/w nonce=ab\n"));
}
