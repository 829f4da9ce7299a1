//! `logout-kills`: what runs on a host outlives the connection that started it.

use super::scene::{Place, Scene};
use super::{Area, Cell, Check};
use crate::plan::logind::{SystemdScope, Unit};

/// See its `looks`.
pub(super) const CHECK: Check = Check {
    name: "logout-kills",
    area: Area::Host,
    looks: "systemd-logind ends the ranks of a bare host (KillUserProcesses=yes) or a rootless docker when the ssh user logs out, and the user does not linger",
    // A fact of the host; whether docker is rootless is judged where docker was asked.
    needs: &[],
    judge,
};

fn judge(scene: &Scene<'_>) -> Vec<Cell> {
    scene.each(|host| if host.container().is_some() { contained(host) } else { bare(host) })
}

fn linger(host: &Place<'_>) -> String {
    format!("`loginctl enable-linger {}` there", host.facts.user)
}

fn bare(host: &Place<'_>) -> Cell {
    let (logind, user) = (&host.facts.logind, &host.facts.user);
    if !logind.session {
        return Cell::pass("the connection belongs to no session of systemd-logind");
    }
    match (logind.kills(user), host.facts.scope()) {
        (None, _) => Cell::skipped("systemd-logind does not say what it ends at log-out"),
        (Some(false), _) => Cell::pass(format!("systemd-logind ends nothing of {user} at log-out")),
        (Some(true), Some(SystemdScope::User)) => Cell::pass(format!("{user} lingers: ranks start in a scope of the user's manager")),
        (Some(true), Some(_)) => Cell::pass("ranks start in a scope of the system"),
        (Some(true), None) => Cell::fail(
            format!("systemd-logind ends all processes of {user} at log-out (KillUserProcesses=yes): ranks would end with the connection"),
            format!("{}; or KillUserProcesses=no in /etc/systemd/logind.conf", linger(host)),
        ),
    }
}

fn contained(host: &Place<'_>) -> Cell {
    let Some(info) = host.told.one("docker_info") else {
        return Cell::skipped(host.told.one("docker_error").unwrap_or("docker was not asked").to_owned());
    };
    if !info.rsplit('|').next().is_some_and(|options| options.contains("name=rootless")) {
        return Cell::pass("docker runs as a service of the system");
    }
    let (logind, user) = (&host.facts.logind, &host.facts.user);
    let ends = format!("rootless docker, and every container with it, ends when {user} logs out");
    match (logind.engine, logind.linger) {
        (Some(Unit::Session), _) if logind.kills(user) == Some(true) => {
            Cell::fail(ends, format!("run it by the user's manager (`systemctl --user enable --now docker`), and {}", linger(host)))
        }
        (Some(Unit::Other | Unit::Session), _) => Cell::pass(format!("rootless docker outlives a log-out of {user}")),
        (_, Some(true)) => Cell::pass(format!("rootless docker, and {user} lingers")),
        (Some(Unit::Manager), Some(false)) => Cell::fail(ends, linger(host)),
        (None, Some(false)) => {
            Cell::warn(format!("rootless docker, and {user} does not linger: it may end when {user} logs out"), linger(host))
        }
        (_, None) => Cell::skipped("systemd-logind does not say whether the user lingers"),
    }
}
