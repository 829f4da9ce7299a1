//! The wait for the master's port.

use std::os::unix::fs::symlink;
use std::process::Command;
use std::time::Duration;

use orchestrate::plan::action::Action;
use orchestrate::plan::action::launch::WaitForMaster;

use crate::{TestHost, run_action};

/// Only a regular file with a status says that a rank has failed: a rank may write anything there.
#[test]
fn failed_rank_is_read_from_a_regular_file_alone() {
    let host = TestHost::new();
    let wait = |fails_with_a_rank| {
        // Nothing listens on port 1.
        let action = WaitForMaster { context: host.host_context(), port: 1, timeout: Duration::from_secs(1), fails_with_a_rank };
        run_action(&host, &Action::WaitForMaster(action)).exit_code
    };
    assert_eq!(wait(true), 70, "no rank has ended");
    host.write_file("a status", "1 1000.5\n");
    symlink(host.path("a status"), host.path("h.out/run1.rank-0.0.rc")).expect("a link");
    let made = Command::new("mkfifo").arg(host.path("h.out/run1.rank-1.0.rc")).status().expect("mkfifo");
    assert!(made.success());
    host.write_file("h.out/run1.rank-2.0.rc", "0 1000.5\n");
    host.write_file("h.out/run1.rank-3.0.rc", "$(touch ran) 1\n");
    assert_eq!(wait(true), 70, "none of them is a failed rank's status");
    assert!(!host.path("h.out/ran").exists() && !host.path("ran").exists(), "what a rank wrote is not run");
    host.write_file("h.out/run1.rank-4.0.rc", "1 1000.5\n");
    assert_eq!((wait(true), wait(false)), (72, 70), "other launchers end or restart the ranks themselves");
}
