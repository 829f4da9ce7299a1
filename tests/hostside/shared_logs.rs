//! Logs on a file system that the machines of a cluster share.

use std::io::Write as _;
use std::mem::MaybeUninit;
use std::path::Path;
use std::process::Stdio;

use orchestrate::model::log_file::LogFile;
use orchestrate::plan::host_context::HostContext;
use orchestrate::plan::protocol::log_frames::{LogStreamPurpose, log_stream_command};
use rustix::fs::inotify;

use crate::{TestHost, wait_until, write_program};

/// Answers the `ls` of the test below, once: whether a log was opened before it. Events come in order: what was opened before is known.
fn answer_whether_opened(watch: &rustix::fd::OwnedFd, answer: &Path) {
    let mut buffer = [MaybeUninit::uninit(); 4096];
    let mut reader = inotify::Reader::new(watch, &mut buffer);
    let mut opened = false;
    loop {
        let event = reader.next().expect("an event");
        match event.file_name().map(|name| name.to_string_lossy().into_owned()).as_deref() {
            Some("asks") => return std::fs::write(answer, if opened { "opened" } else { "not opened" }).expect("written"),
            Some(name) => opened |= name.ends_with(".log"),
            None => {}
        }
    }
}

/// A client of NFS keeps a size for up to a minute, and asks the server again when the file is opened.
#[test]
fn file_is_opened_before_its_size_is_believed() {
    let host = TestHost::new();
    host.prepare_run("run1", "");
    std::fs::remove_file(host.path("h.out/run1.node.log")).expect("removed");
    host.write_file("h.out/run1.rank-0.0.log", "old\nnew bytes\n");
    for (end, text) in [("pid", "1 1 1.5 b\n"), ("rc", "0 2.5\n"), ("end", "")] {
        host.write_file(&format!("h.out/run1.rank-0.0.{end}"), text);
    }
    // It tells the size of a minute ago unless the log was opened.
    let stale = format!(
        "#!/bin/sh\ncase \"$*\" in *run1.rank*) ;; *) exec /bin/ls \"$@\" ;; esac\n\
         : >'{0}/h.out/asks'\nwhile [ ! -s '{0}/answer' ]; do /bin/sleep 0.02; done\n\
         case $(cat '{0}/answer') in opened) exec /bin/ls \"$@\" ;; esac\n\
         echo '-rw------- 1 0 0 4 Jan 1 00:00 run1.rank-0.0.log'\n",
        host.path("").display()
    );
    write_program(&host.path("bin/ls"), &stale);
    let watch = inotify::init(inotify::CreateFlags::CLOEXEC).expect("inotify");
    inotify::add_watch(&watch, host.path("h.out"), inotify::WatchFlags::OPEN).expect("watched");
    let answer = host.path("answer");
    let reader = std::thread::spawn(move || answer_whether_opened(&watch, &answer));
    let context = HostContext { cluster_job: Some(7), ..host.host_context() };
    let had = [(LogFile::Rank { rank: 0, restart: 0 }, 4)];
    let script = log_stream_command(&context, &had, 1, LogStreamPurpose::Fetch, true).script;
    let output = std::fs::File::create(host.path("said")).expect("a file");
    let mut child =
        crate::ChildGuard(host.shell_command().args(["-c", &script]).stdin(Stdio::piped()).stdout(output).spawn().expect("a shell"));
    child.0.stdin.as_mut().expect("its input").write_all(b"100000000 100000000\n").expect("acknowledged");
    wait_until("the fetch ends", || child.0.try_wait().expect("a child"));
    reader.join().expect("an answer");
    let said = std::fs::read_to_string(host.path("said")).expect("its output");
    assert!(said.contains("F rank-0.0 4 10 0\nnew bytes\n"), "{said}");
}

/// A busy login node or file system makes each pass over the logs take seconds.
#[test]
fn end_is_reported_although_each_pass_takes_seconds() {
    let host = TestHost::new();
    host.prepare_run("run1", "");
    write_program(&host.path("bin/ls"), "#!/bin/sh\n/bin/sleep 2\nexec /bin/ls \"$@\"\n");
    let context = HostContext { cluster_job: Some(7), ..host.host_context() };
    let script = log_stream_command(&context, &[], 1, LogStreamPurpose::Read, true).script;
    let output = std::fs::File::create(host.path("said")).expect("a file");
    let mut child =
        crate::ChildGuard(host.shell_command().args(["-c", &script]).stdin(Stdio::piped()).stdout(output).spawn().expect("a shell"));
    child.0.stdin.as_mut().expect("its input").write_all(b"100000000 100000000\n").expect("acknowledged");
    let said = || std::fs::read_to_string(host.path("said")).expect("its output");
    wait_until("the first pass has ended", || said().contains("H ").then_some(()));
    for (end, text) in [("log", "all\n"), ("pid", "1 1 1.5 b\n"), ("end", ""), ("rc", "0 2.5\n")] {
        host.write_file(&format!("h.out/run1.rank-0.0.{end}"), text);
    }
    wait_until("the end of the rank is reported", || said().contains("all\nX rank-0.0 0 2.5\n").then_some(()));
}
