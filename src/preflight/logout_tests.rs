//! The checks of log-out and of file ownership, by the hosts' answers.

use super::tests::{TEST_INVENTORY, evaluate_with_changes};
use crate::model::level::Level;
use crate::model::level::Level::{Fail, Pass, Skipped, Warn};

/// The third host's cell, where the answers that it changes are these.
fn assert_third_host(inventory: &str, name: &str, changes: &[(&str, &str)], expected: (Level, &str)) {
    let found = evaluate_with_changes(inventory, name, changes);
    assert_eq!(found[2].level, expected.0, "{name} {changes:?}: {found:?}");
    assert!(found[2].message.contains(expected.1), "{name}: {:?} is not in {:?}", expected.1, found[2].message);
    assert!(expected.0 <= Pass || !found[2].hint.is_empty(), "{name}: what to do?");
    assert!(found[..2].iter().all(|c| c.level <= Pass), "{name} {changes:?}: {found:?}");
}

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
