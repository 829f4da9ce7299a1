//! The laptop's side of connections: directories, files, the ssh-agent, and the prompt for the user.
//!
//! `cli` builds it, `remote/ssh` reads it.

use std::ffi::OsString;
use std::path::{Path, PathBuf};
use std::sync::Arc;

use crate::ssh_config::EnvLookup;

/// Prompts and notices for the user at the terminal, one at a time.
pub trait UserPrompt: Send + Sync {
    /// Prompts for a secret, blocking; `None` without a terminal or if the user declined.
    fn ask_secret(&self, what: &str) -> Option<String>;
    /// Prompts for visible input, blocking; `None` as above.
    fn ask_line(&self, what: &str) -> Option<String> {
        self.ask_secret(what)
    }
    /// Shows a notice; does not stop the work.
    fn show_notice(&self, text: &str);
}

/// Everything a connection needs from the laptop.
#[derive(Clone)]
pub struct SshSettings {
    /// The user's home directory, for `~` and `%d`.
    pub home: PathBuf,
    /// The inventory's directory: its relative paths start here.
    pub inventory_dir: PathBuf,
    /// The ssh_config file used instead of the user's (`-F`).
    pub config_file: Option<PathBuf>,
    /// The ssh-agent's socket (`SSH_AUTH_SOCK`).
    pub agent_socket: Option<PathBuf>,
    /// `PATH`, to find `ssh`.
    pub search_path: Option<OsString>,
    /// The laptop's user name.
    pub local_user: String,
    pub prompt: Arc<dyn UserPrompt>,
    /// Maximum concurrent handshakes (`--forks`); never more than 64.
    pub max_handshakes: usize,
    /// Variables named by `ssh.password` and by `${…}` in ssh_config.
    pub env: EnvLookup,
}

impl SshSettings {
    /// Resolves a path of the inventory: `~` is the home directory, a relative path starts at the inventory's directory.
    pub fn resolve_path(&self, path: &str) -> PathBuf {
        let tilde = expand_tilde(path, &self.home);
        if tilde.is_absolute() { tilde } else { self.inventory_dir.join(tilde.strip_prefix(".").unwrap_or(&tilde)) }
    }
}

/// Replaces a leading `~` or `~/`.
pub(super) fn expand_tilde(path: &str, home: &Path) -> PathBuf {
    match path.strip_prefix('~') {
        Some("") => home.to_owned(),
        Some(rest) if rest.starts_with('/') => home.join(rest.trim_start_matches('/')),
        Some(_) | None => PathBuf::from(path),
    }
}

#[cfg(test)]
struct NoPrompt;

#[cfg(test)]
impl UserPrompt for NoPrompt {
    fn ask_secret(&self, _: &str) -> Option<String> {
        None
    }
    fn show_notice(&self, _: &str) {}
}

#[cfg(test)]
impl SshSettings {
    pub(super) fn for_test() -> SshSettings {
        SshSettings {
            home: "/home/li".into(),
            inventory_dir: "/srv/inv".into(),
            config_file: None,
            agent_socket: Some("/run/agent".into()),
            search_path: None,
            local_user: "li".to_owned(),
            prompt: Arc::new(NoPrompt),
            max_handshakes: 8,
            env: Arc::new(|name| (name == "SOCK").then(|| "/run/other".to_owned())),
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn tilde_expands_only_at_path_start() {
        let home = Path::new("/home/li");
        assert_eq!(expand_tilde("~", home), Path::new("/home/li"));
        assert_eq!(expand_tilde("~/.ssh/id", home), Path::new("/home/li/.ssh/id"));
        assert_eq!(expand_tilde("~eve/id", home), Path::new("~eve/id"));
        assert_eq!(expand_tilde("/a/~", home), Path::new("/a/~"));
    }
}
