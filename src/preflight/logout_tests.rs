//! The checks of log-out and of file ownership, by the hosts' answers.

use super::tests::{TEST_INVENTORY, assert_third_host};
use crate::model::level::Level::{Fail, Pass, Skipped, Warn};

#[test]
fn bare_host_killing_ranks_at_logout_fails() {
    let bare = TEST_INVENTORY.replace("container:\n  image: x\n  shm_size: 8g\n  mounts: ['/data:/data:ro', '/out:/out']\n", "");
    for (lines, level, expected) in [
        ("", Pass, "not in a systemd-logind session"),
        ("session=yes KillUserProcesses=yes Linger=no", Fail, "ends all processes of li at logout (KillUserProcesses=yes)"),
        ("session=yes KillUserProcesses=yes", Fail, "ends all processes of li"),
        ("session=yes KillUserProcesses=yes Linger=yes", Pass, "lingering is on for li"),
        ("session=yes KillUserProcesses=no Linger=no", Pass, "ends no processes of li"),
        ("session=yes", Skipped, "does not report"),
    ] {
        let lines: String = lines.split_whitespace().map(|line| format!("\nlogind {line}")).collect();
        assert_third_host(&bare, "logout-kills", &[("user li", &format!("user li\nuid 1000{lines}"))], (level, expected));
    }
}

#[test]
fn rootless_docker_ending_at_logout_fails() {
    for (lines, level, expected) in [
        ("engine=manager Linger=no", Fail, "rootless docker, and every container with it, ends when li logs out"),
        ("engine=manager Linger=yes", Pass, "lingering is on for li"),
        ("engine=session KillUserProcesses=no", Pass, "keeps running after"),
        ("engine=session KillUserProcesses=yes", Fail, "ends when li logs out"),
        ("engine=other Linger=no", Pass, "keeps running after"),
        ("Linger=no", Warn, "lingering is off"),
        ("", Skipped, "does not report whether lingering is on"),
    ] {
        let lines: String = lines.split_whitespace().map(|line| format!("\nlogind {line}")).collect();
        let reported = format!("user li{lines}");
        assert_third_host(TEST_INVENTORY, "logout-kills", &[("name=seccomp", "name=rootless"), ("user li", &reported)], (level, expected));
        assert_third_host(TEST_INVENTORY, "logout-kills", &[("user li", &reported)], (Pass, "system service"));
    }
}

#[test]
fn userns_remap_conflicts_with_host_network() {
    let remapped = &[("name=seccomp", "name=userns")][..];
    let with = |line: &str| TEST_INVENTORY.replace("  image: x", &format!("  image: x\n  {line}"));
    assert_third_host(TEST_INVENTORY, "userns-remap", remapped, (Fail, "refuses containers with the host's network"));
    assert_third_host(&with("args: [--userns=host]"), "userns-remap", remapped, (Pass, "--userns=host"));
    assert_third_host(&with("network: bridge"), "userns-remap", remapped, (Warn, "belong to other user ids"));
}
