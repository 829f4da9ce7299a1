//! What systemd-logind does when the session of our connection ends, and how a launch on a bare host outlives that.
//!
//! `setsid` does not leave the session's cgroup. Where logind ends the processes of a session with it (`KillUserProcesses=yes`), ranks need
//! a scope of their own; a user's one lasts as long as the user's manager, which is for ever only with linger.

/// logind's answers, as the facts script passes them on.
#[derive(Debug, Clone, PartialEq, Eq, Default)]
pub struct LogindSettings {
    /// Whether the connection's processes are in the scope of a session.
    pub in_session: bool,
    /// `KillUserProcesses`; `None`: unknown.
    pub kill_user_processes: Option<bool>,
    /// `KillOnlyUsers`; empty: all.
    pub kill_only_users: Vec<String>,
    /// `KillExcludeUsers`.
    pub kill_exclude_users: Vec<String>,
    /// Whether the user's manager stays without a session; `None`: unknown.
    pub linger: Option<bool>,
    /// Where the ssh user's own dockerd runs; `None`: there is none to be seen.
    pub dockerd_unit: Option<SystemdUnitKind>,
}

/// The kind of unit that a process belongs to.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub enum SystemdUnitKind {
    /// The scope of a session.
    Session,
    /// A unit of the user's manager.
    UserManager,
    Other,
}

/// The scope in which the ranks of a bare host start.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Default)]
pub enum SystemdScope {
    /// The session's own: it outlives the log-out, or nothing better is to be had.
    #[default]
    Inherited,
    /// One of the system's.
    System,
    /// One of the user's manager.
    User,
}

impl LogindSettings {
    /// Takes one line of the facts script: `KillUserProcesses=yes`.
    pub fn apply_line(&mut self, line: &str) {
        let Some((key, value)) = line.trim().split_once('=') else { return };
        let flag = match value {
            "yes" => Some(true),
            "no" => Some(false),
            _ => None,
        };
        let list = || value.split_whitespace().map(str::to_owned).collect();
        match key {
            "session" => self.in_session = flag == Some(true),
            "KillUserProcesses" => self.kill_user_processes = flag,
            "KillOnlyUsers" => self.kill_only_users = list(),
            "KillExcludeUsers" => self.kill_exclude_users = list(),
            "Linger" => self.linger = flag,
            "engine" => {
                self.dockerd_unit = match value {
                    "session" => Some(SystemdUnitKind::Session),
                    "manager" => Some(SystemdUnitKind::UserManager),
                    _ => Some(SystemdUnitKind::Other),
                };
            }
            _ => {}
        }
    }

    /// Whether the processes of a session of this user end with it; `None`: unknown.
    pub fn kills_processes_of(&self, user: &str) -> Option<bool> {
        let named = |list: &[String]| list.iter().any(|name| name == user);
        self.kill_user_processes
            .map(|kill| kill && !named(&self.kill_exclude_users) && (self.kill_only_users.is_empty() || named(&self.kill_only_users)))
    }

    /// The scope in which ranks of this user outlive the connection; `None`: there is none.
    pub fn scope_for(&self, user: &str, uid: u32) -> Option<SystemdScope> {
        if !self.in_session || self.kills_processes_of(user) != Some(true) {
            return Some(SystemdScope::Inherited);
        }
        match (uid, self.linger) {
            (0, _) => Some(SystemdScope::System),
            (_, Some(true)) => Some(SystemdScope::User),
            _ => None,
        }
    }
}

/// The exit status where no scope can be made.
pub const EXIT_NO_SCOPE: i32 = 77;

impl SystemdScope {
    /// The words before a command that start it in the scope; with a blank at the end.
    pub fn command_prefix(self) -> &'static str {
        match self {
            SystemdScope::Inherited => "",
            SystemdScope::System => "systemd-run --scope --slice=system.slice ",
            SystemdScope::User => "systemd-run --user --scope ",
        }
    }

    /// sh, before the first use of the words: tries whether the scope can be made. One that cannot ends the script, with what systemd says.
    pub fn probe_script(self) -> String {
        let runtime = "export XDG_RUNTIME_DIR=\"${XDG_RUNTIME_DIR:-/run/user/$(id -u)}\"\n";
        match self {
            SystemdScope::Inherited => String::new(),
            SystemdScope::System => format!("{}true || exit {EXIT_NO_SCOPE}\n", self.command_prefix()),
            SystemdScope::User => format!("{runtime}{}true || exit {EXIT_NO_SCOPE}\n", self.command_prefix()),
        }
    }

    /// What to do where it cannot be made.
    pub fn hint(self, host: &str) -> String {
        match self {
            SystemdScope::Inherited => String::new(),
            SystemdScope::System | SystemdScope::User => format!(
                "`{}true` must work on {host}, since logind ends processes at logout there: fix that, or set KillUserProcesses=no in /etc/systemd/logind.conf",
                self.command_prefix()
            ),
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    fn parse_logind(lines: &str) -> LogindSettings {
        let mut logind = LogindSettings::default();
        lines.lines().for_each(|line| logind.apply_line(line));
        logind
    }

    #[test]
    fn own_scope_only_where_logind_kills_sessions() {
        let root = "KillExcludeUsers=root";
        for (lines, user, scope) in [
            ("", "li", Some(SystemdScope::Inherited)),
            // Docker's container, a host without PAM, or one without systemd.
            ("KillUserProcesses=yes\nLinger=no", "li", Some(SystemdScope::Inherited)),
            ("session=yes", "li", Some(SystemdScope::Inherited)),
            ("session=yes\nKillUserProcesses=no\nLinger=no", "li", Some(SystemdScope::Inherited)),
            ("session=yes\nKillUserProcesses=yes\nLinger=no", "li", None),
            ("session=yes\nKillUserProcesses=yes", "li", None),
            ("session=yes\nKillUserProcesses=yes\nLinger=yes", "li", Some(SystemdScope::User)),
            ("session=yes\nKillUserProcesses=yes\nKillExcludeUsers=li root\nLinger=no", "li", Some(SystemdScope::Inherited)),
            ("session=yes\nKillUserProcesses=yes\nKillOnlyUsers=wu\nLinger=no", "li", Some(SystemdScope::Inherited)),
            ("session=yes\nKillUserProcesses=yes\nKillOnlyUsers=wu li\nLinger=no", "li", None),
            ("session=yes\nKillUserProcesses=yes\nKillExcludeUsers=\nLinger=no", "root", Some(SystemdScope::System)),
            (&format!("session=yes\nKillUserProcesses=yes\n{root}\nLinger=no"), "root", Some(SystemdScope::Inherited)),
        ] {
            assert_eq!(parse_logind(lines).scope_for(user, if user == "root" { 0 } else { 1000 }), scope, "{lines:?} {user}");
        }
    }
}
