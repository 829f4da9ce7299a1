//! What systemd-logind does when the session of our connection ends, and how a launch on a bare host outlives that.
//!
//! Uses nothing. `setsid` does not leave the session's cgroup. Where logind ends the processes of a session with it
//! (`KillUserProcesses=yes`), ranks need a scope of their own; a user's one lasts as long as the user's manager, which is for ever only with
//! linger.

/// logind's answers, as the facts script passes them on.
#[derive(Debug, Clone, PartialEq, Eq, Default)]
pub struct Logind {
    /// Whether the connection's processes are in the scope of a session.
    pub session: bool,
    /// `KillUserProcesses`; `None`: it did not say.
    pub kill: Option<bool>,
    /// `KillOnlyUsers`; empty: all.
    pub only: Vec<String>,
    /// `KillExcludeUsers`.
    pub exclude: Vec<String>,
    /// Whether the user's manager stays without a session; `None`: it did not say.
    pub linger: Option<bool>,
    /// Where the ssh user's own dockerd runs; `None`: there is none to be seen.
    pub engine: Option<Unit>,
}

/// The kind of unit that a process belongs to.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub enum Unit {
    /// The scope of a session.
    Session,
    /// A unit of the user's manager.
    Manager,
    /// Neither.
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

impl Logind {
    /// Takes one line of the facts script: `KillUserProcesses=yes`.
    pub fn take(&mut self, line: &str) {
        let Some((key, value)) = line.trim().split_once('=') else { return };
        let flag = match value {
            "yes" => Some(true),
            "no" => Some(false),
            _ => None,
        };
        let list = || value.split_whitespace().map(str::to_owned).collect();
        match key {
            "session" => self.session = flag == Some(true),
            "KillUserProcesses" => self.kill = flag,
            "KillOnlyUsers" => self.only = list(),
            "KillExcludeUsers" => self.exclude = list(),
            "Linger" => self.linger = flag,
            "engine" => {
                self.engine = match value {
                    "session" => Some(Unit::Session),
                    "manager" => Some(Unit::Manager),
                    _ => Some(Unit::Other),
                };
            }
            _ => {}
        }
    }

    /// Whether the processes of a session of this user end with it; `None`: logind did not say.
    pub fn kills(&self, user: &str) -> Option<bool> {
        let named = |list: &[String]| list.iter().any(|name| name == user);
        self.kill.map(|kill| kill && !named(&self.exclude) && (self.only.is_empty() || named(&self.only)))
    }

    /// The scope in which ranks of this user outlive the connection; `None`: there is none.
    pub fn scope(&self, user: &str, uid: u32) -> Option<SystemdScope> {
        if !self.session || self.kills(user) != Some(true) {
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
pub const NO_SCOPE: i32 = 77;

impl SystemdScope {
    /// The words before a command that start it in the scope; with a blank at the end.
    pub fn words(self) -> &'static str {
        match self {
            SystemdScope::Inherited => "",
            SystemdScope::System => "systemd-run --scope --slice=system.slice ",
            SystemdScope::User => "systemd-run --user --scope ",
        }
    }

    /// sh, before the first use of the words: tries whether the scope can be made. One that cannot ends the script, with what systemd says.
    pub fn tried(self) -> String {
        let runtime = "export XDG_RUNTIME_DIR=\"${XDG_RUNTIME_DIR:-/run/user/$(id -u)}\"\n";
        match self {
            SystemdScope::Inherited => String::new(),
            SystemdScope::System => format!("{}true || exit {NO_SCOPE}\n", self.words()),
            SystemdScope::User => format!("{runtime}{}true || exit {NO_SCOPE}\n", self.words()),
        }
    }

    /// What to do where it cannot be made.
    pub fn hint(self, host: &str) -> String {
        match self {
            SystemdScope::Inherited => String::new(),
            SystemdScope::System | SystemdScope::User => format!(
                "`{}true` must work on {host}, since logind ends what a log-out leaves there: mend that, or set KillUserProcesses=no in /etc/systemd/logind.conf",
                self.words()
            ),
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    fn logind(lines: &str) -> Logind {
        let mut logind = Logind::default();
        lines.lines().for_each(|line| logind.take(line));
        logind
    }

    #[test]
    fn a_launch_gets_a_scope_of_its_own_only_where_logind_ends_the_session_s() {
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
            assert_eq!(logind(lines).scope(user, if user == "root" { 0 } else { 1000 }), scope, "{lines:?} {user}");
        }
    }
}
