//! One host's place in a run: its directories, its container's name, and the sh fragments that every script begins with.
//!
//! Uses `shell`. The layout on a host is said here and in `assets/*.sh`, nowhere else:
//! `<run_dir>/<name>/<host>/` holds `keeper`, `current`, `keep`, `lock`, and a directory for each run with its files.

use crate::shell::quote;

/// Where on a host a run lives and how its processes are reached.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct Site {
    /// The inventory's name.
    pub name: String,
    /// The host's name in the inventory.
    pub host: String,
    /// The run's id; empty where there is none.
    pub run: String,
    /// `<run_dir>` on that host, absolute.
    pub base: String,
    /// Whether docker goes through `sudo -n`.
    pub sudo: bool,
    /// `DOCKER_HOST`.
    pub engine: Option<String>,
    /// Whether the ranks run in a container.
    pub contained: bool,
    /// The token of the lock that changing scripts check; `None`: nothing is changed.
    pub token: Option<String>,
}

impl Site {
    /// The container's name: one per name and host, so that a clash is noticed and hosts may share an engine.
    pub fn container(&self) -> String {
        format!("orch-{}-{}", self.name, self.host.replace(|c: char| !c.is_ascii_alphanumeric() && !"_.-".contains(c), "-"))
    }

    /// `<run_dir>/<name>/<host>`: mounted into the container at the same path.
    pub fn dir(&self) -> String {
        format!("{}/{}/{}", self.base, self.name, self.host)
    }

    /// Folders in memory that may hold a secret for a moment, as words of a script.
    pub const MEMORY: &str = "/dev/shm \"/run/user/$(id -u)\"";

    /// How the folder of a login begins that lives as long as a pull; a dot and six characters follow. Safe in a script as it stands.
    pub fn login(&self) -> String {
        format!(".orch-login.{}", self.container())
    }

    /// Removes what killed logins left in memory. Needs the lock: a login of this name and host that is under way would lose its folder.
    pub fn forget_logins(&self) -> String {
        format!(
            "for m in {}; do for l in \"$m\"/{}.??????; do [ -d \"$l\" ] && [ ! -L \"$l\" ] && [ -O \"$l\" ] && rm -rf \"$l\"; done; done\n",
            Site::MEMORY,
            self.login()
        )
    }

    /// The run's directory.
    pub fn run_dir(&self) -> String {
        format!("{}/{}", self.dir(), self.run)
    }

    /// The words that run docker on this host.
    pub fn docker(&self) -> String {
        let mut words = if self.sudo { "sudo -n docker".to_owned() } else { "docker".to_owned() };
        if let Some(host) = &self.engine {
            words.push_str(" -H ");
            words.push_str(&quote(host));
        }
        words
    }

    /// What begins every script: a path that finds docker and nvidia-smi without rc files, and the names the rest uses.
    pub fn preamble(&self) -> String {
        format!(
            "PATH=$PATH:/usr/local/sbin:/usr/local/bin:/usr/sbin:/usr/bin:/sbin:/bin:/usr/local/nvidia/bin; export PATH\n\
             umask 077\nH={}\nD() {{ {} \"$@\"; }}\n",
            quote(&self.dir()),
            self.docker()
        )
    }

    /// What begins a script that changes something: ends with 75 unless the name is locked by us.
    pub fn guard(&self) -> String {
        let mut text = self.preamble();
        if let Some(token) = &self.token {
            text.push_str(&format!(
                "case $(readlink \"$H/lock\" 2>/dev/null) in {}:*) ;; *) echo 'the lock is not ours' >&2; exit 75 ;; esac\n",
                quote(token)
            ));
        }
        text
    }

    /// Words that run `sh <argument words>` where the ranks are: inside the container, or on the bare host.
    pub fn inside(&self, words: &str) -> String {
        if self.contained { format!("D exec {} /bin/sh {words}", quote(&self.container())) } else { format!("/bin/sh {words}") }
    }
}

/// Text for a file, in a script: `name` is written whole or not at all, with the given octal mode.
pub fn file(path: &str, text: &str, mode: &str) -> String {
    let path = quote(path);
    format!("printf %s {} >{path}.new && chmod {mode} {path}.new && mv -f {path}.new {path} || exit 73\n", quote(text))
}
