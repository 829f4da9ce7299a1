//! `logout-kills`: what runs on a host outlives the connection that started it.

use super::context::{CheckContext, CheckedHost};
use super::{CheckArea, CheckResult, PreflightCheck};
use crate::plan::logind::{SystemdScope, SystemdUnitKind};

/// See its `looks`.
pub(crate) const CHECK: PreflightCheck = PreflightCheck {
    name: "logout-kills",
    area: CheckArea::Host,
    description: "systemd-logind ends the ranks of a bare host (KillUserProcesses=yes) or a rootless docker when the ssh user logs out, and the user does not linger",
    // A fact of the host; whether docker is rootless is judged where docker was asked.
    probes: &[],
    judge,
};

fn judge(context: &CheckContext<'_>) -> Vec<CheckResult> {
    context.check_each_host(|host| if host.container().is_some() { judge_docker_host(host) } else { judge_bare_host(host) })
}

fn linger_hint(host: &CheckedHost<'_>) -> String {
    format!("`loginctl enable-linger {}` there", host.facts.user)
}

fn judge_bare_host(host: &CheckedHost<'_>) -> CheckResult {
    let (logind, user) = (&host.facts.logind, &host.facts.user);
    if !logind.in_session {
        return CheckResult::pass("the connection belongs to no session of systemd-logind");
    }
    match (logind.kills_processes_of(user), host.facts.systemd_scope()) {
        (None, _) => CheckResult::skipped("systemd-logind does not say what it ends at log-out"),
        (Some(false), _) => CheckResult::pass(format!("systemd-logind ends nothing of {user} at log-out")),
        (Some(true), Some(SystemdScope::User)) => {
            CheckResult::pass(format!("{user} lingers: ranks start in a scope of the user's manager"))
        }
        (Some(true), Some(_)) => CheckResult::pass("ranks start in a scope of the system"),
        (Some(true), None) => CheckResult::fail(
            format!("systemd-logind ends all processes of {user} at log-out (KillUserProcesses=yes): ranks would end with the connection"),
            format!("{}; or KillUserProcesses=no in /etc/systemd/logind.conf", linger_hint(host)),
        ),
    }
}

fn judge_docker_host(host: &CheckedHost<'_>) -> CheckResult {
    let Some(info) = host.probe_output.last_value("docker_info") else {
        return CheckResult::skipped(host.probe_output.last_value("docker_error").unwrap_or("docker was not asked").to_owned());
    };
    if !info.rsplit('|').next().is_some_and(|options| options.contains("name=rootless")) {
        return CheckResult::pass("docker runs as a service of the system");
    }
    let (logind, user) = (&host.facts.logind, &host.facts.user);
    let ends = format!("rootless docker, and every container with it, ends when {user} logs out");
    match (logind.dockerd_unit, logind.linger) {
        (Some(SystemdUnitKind::Session), _) if logind.kills_processes_of(user) == Some(true) => CheckResult::fail(
            ends,
            format!("run it by the user's manager (`systemctl --user enable --now docker`), and {}", linger_hint(host)),
        ),
        (Some(SystemdUnitKind::Other | SystemdUnitKind::Session), _) => {
            CheckResult::pass(format!("rootless docker outlives a log-out of {user}"))
        }
        (_, Some(true)) => CheckResult::pass(format!("rootless docker, and {user} lingers")),
        (Some(SystemdUnitKind::UserManager), Some(false)) => CheckResult::fail(ends, linger_hint(host)),
        (None, Some(false)) => {
            CheckResult::warn(format!("rootless docker, and {user} does not linger: it may end when {user} logs out"), linger_hint(host))
        }
        (_, None) => CheckResult::skipped("systemd-logind does not say whether the user lingers"),
    }
}
