//! The lock of a run name, taken by several laptops.

use std::os::unix::fs::symlink;

use orchestrate::plan::action::lock::{EXIT_LOCK_HELD, acquire_lock_command, break_lock_command};
use orchestrate::plan::host_context::HostContext;
use orchestrate::plan::protocol::lock_record::LockRecord;

use crate::{ChildGuard, TestHost, wait_until, write_program};

/// Two laptops find the same stale lock. The first takes it over after the second has read it.
#[test]
fn only_one_of_two_takers_gets_a_stale_lock() {
    let host = TestHost::new();
    let site = host.host_context();
    symlink("old:1:2:elsewhere:wu", host.path("h.private/lock")).expect("linked");
    let stale =
        LockRecord { token: "old".to_owned(), owner: "wu".to_owned(), laptop_id: "elsewhere".to_owned(), pid: 2, heartbeat_age: 100 };
    let start = |script: &str| ChildGuard(host.shell_command().args(["-c", script]).spawn().expect("a shell"));
    let ended = |mut child: ChildGuard| wait_until("the script ends", || child.0.try_wait().expect("a child")).code();
    // The second laptop's read of the lock takes long.
    let pause = format!(
        "#!/bin/sh\nl=$(command -p readlink \"$1\") && echo \"$l\"\ncase $l in old:*) : >'{0}/looked'; until [ -e '{0}/go' ] || [ ! -d '{0}' ]; do /bin/sleep 0.01; done ;; esac\n",
        host.dir.path().display()
    );
    write_program(&host.path("bin/readlink"), &pause);
    let second = start(&break_lock_command(&site, &stale).script);
    wait_until("the second laptop has read the lock", || host.path("looked").exists().then_some(()));
    std::fs::remove_file(host.path("bin/readlink")).expect("removed");
    assert_eq!(ended(start(&break_lock_command(&site, &stale).script)), Some(0));
    assert_eq!(ended(start(&acquire_lock_command(&site, "one:1:2:desk:li").script)), Some(0));
    host.write_file("go", "");
    assert_eq!(ended(second), Some(0));
    assert_eq!(ended(start(&acquire_lock_command(&site, "two:1:2:laptop:zhao").script)), Some(EXIT_LOCK_HELD));
    let holder = || std::fs::read_link(host.path("h.private/lock")).expect("the lock").display().to_string();
    assert_eq!(holder(), "one:1:2:desk:li");
    assert!(host.path("h.private/lock.beat").exists(), "the first laptop's heartbeat stays");
    let left: Vec<_> = std::fs::read_dir(host.path("h.private")).expect("a folder").map(|e| e.expect("an entry").file_name()).collect();
    assert!(!left.iter().any(|name| name.display().to_string().contains("lock.old")), "{left:?}");
}

/// Another process releases its lock, and with it the empty base directory, while this one makes the directories below it.
#[test]
fn base_directory_removed_meanwhile_is_made_again() {
    let host = TestHost::new();
    let base = host.path("base");
    let remove_once = format!(
        "#!/bin/sh\nfor last; do :; done\ncase $last in {0}/train) [ -e {0}.removed ] || {{ : >{0}.removed; rmdir {0}; }} ;; esac\nexec /bin/mkdir \"$@\"\n",
        base.display()
    );
    write_program(&host.path("bin/mkdir"), &remove_once);
    let context = HostContext::new("train", "h", base.to_str().expect("text").to_owned());
    let output = host.shell_command().args(["-c", &acquire_lock_command(&context, "one:1:2:desk:li").script]).output().expect("a shell");
    assert_eq!((output.status.code(), String::from_utf8_lossy(&output.stderr).as_ref()), (Some(0), ""));
    assert!(host.path("base.removed").exists());
    assert!(base.join("train/h.private/lock").symlink_metadata().is_ok());
}
