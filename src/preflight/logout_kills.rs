//! `logout-kills`: what runs on a host outlives the connection that started it.

use super::context::{CheckContext, CheckedHost};
use super::{CheckArea, CheckResult, PreflightCheck};
use crate::plan::logind::{SystemdScope, SystemdUnitKind};

pub(crate) const CHECK: PreflightCheck = PreflightCheck {
    name: "logout-kills",
    area: CheckArea::Host,
    description: "systemd-logind ends the ranks of a bare host (KillUserProcesses=yes) or a rootless docker when the ssh user logs out, and lingering is off for the user",
    // A fact of the host; whether docker is rootless is judged where docker was asked.
    probes: &[],
    judge,
};

fn judge(context: &CheckContext<'_>) -> Vec<CheckResult> {
    context.check_each_host(|host| if host.container().is_some() { judge_docker_host(host) } else { judge_bare_host(host) })
}

fn linger_hint(host: &CheckedHost<'_>) -> String {
    format!("run `loginctl enable-linger {}` on that host", host.facts.user)
}

fn judge_bare_host(host: &CheckedHost<'_>) -> CheckResult {
    let (logind, user) = (&host.facts.logind, &host.facts.user);
    if !logind.in_session {
        return CheckResult::pass("the connection is not in a systemd-logind session");
    }
    match (logind.kills_processes_of(user), host.facts.systemd_scope()) {
        (None, _) => CheckResult::skipped("systemd-logind does not report what it ends at logout"),
        (Some(false), _) => CheckResult::pass(format!("systemd-logind ends no processes of {user} at logout")),
        (Some(true), Some(SystemdScope::User)) => {
            CheckResult::pass(format!("lingering is on for {user}: ranks start in a scope of the user's systemd manager"))
        }
        (Some(true), Some(_)) => CheckResult::pass("ranks start in a system scope"),
        (Some(true), None) => CheckResult::fail(
            format!("systemd-logind ends all processes of {user} at logout (KillUserProcesses=yes): ranks would end with the connection"),
            format!("{}; or KillUserProcesses=no in /etc/systemd/logind.conf", linger_hint(host)),
        ),
    }
}

fn judge_docker_host(host: &CheckedHost<'_>) -> CheckResult {
    let info = match host.docker_info() {
        Ok(info) => info,
        Err(skipped) => return skipped,
    };
    if !info.rsplit('|').next().is_some_and(|options| options.contains("name=rootless")) {
        return CheckResult::pass("docker runs as a system service");
    }
    let (logind, user) = (&host.facts.logind, &host.facts.user);
    let ends = format!("rootless docker, and every container with it, ends when {user} logs out");
    match (logind.dockerd_unit, logind.linger) {
        (Some(SystemdUnitKind::Session), _) if logind.kills_processes_of(user) == Some(true) => {
            CheckResult::fail(ends, format!("run it as a user service (`systemctl --user enable --now docker`), and {}", linger_hint(host)))
        }
        (Some(SystemdUnitKind::Other | SystemdUnitKind::Session), _) => {
            CheckResult::pass(format!("rootless docker keeps running after {user} logs out"))
        }
        (_, Some(true)) => CheckResult::pass(format!("rootless docker, and lingering is on for {user}")),
        (Some(SystemdUnitKind::UserManager), Some(false)) => CheckResult::fail(ends, linger_hint(host)),
        (None, Some(false)) => CheckResult::warn(
            format!("rootless docker, and lingering is off for {user}: it may end when {user} logs out"),
            linger_hint(host),
        ),
        (_, None) => CheckResult::skipped("systemd-logind does not report whether lingering is on"),
    }
}
