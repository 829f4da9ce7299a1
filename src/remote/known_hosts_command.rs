//! Asks `KnownHostsCommand` for further lines of known_hosts.
//!
//! Uses `process`, `known_hosts` and `presented_key`. Knows no files and no sockets.

use std::path::PathBuf;
use std::sync::Arc;
use std::time::Duration;

use base64::Engine as _;
use base64::engine::general_purpose::STANDARD;

use super::RemoteError;
use super::presented_key::PresentedKey;
use super::process;
use crate::ssh_config::known_hosts;
use crate::ssh_config::known_hosts::KnownHostsFile;

/// How long it may take.
const COMMAND_TIMEOUT: Duration = Duration::from_secs(10);
/// How much it may print.
const MAX_OUTPUT_BYTES: u64 = 4 << 20;

/// A command that prints lines of known_hosts, ready but for what only the handshake knows.
#[derive(Debug, Clone, PartialEq, Eq)]
pub(super) struct KnownHostsCommand {
    /// Its words before the handshake (`%I` is ORDER).
    pub(super) order_args: Vec<String>,
    /// Its words once the host has shown its key (`%I` is HOSTNAME), with [`KEY_TYPE_PLACEHOLDER`], [`FINGERPRINT_PLACEHOLDER`] and [`KEY_PLACEHOLDER`] to be replaced.
    pub(super) key_args: Vec<String>,
    pub(super) origin: String,
}

/// Stand for `%t`, `%f` and `%K`; no value of ssh_config holds them.
pub(super) const KEY_TYPE_PLACEHOLDER: &str = "\u{1}";
pub(super) const FINGERPRINT_PLACEHOLDER: &str = "\u{2}";
pub(super) const KEY_PLACEHOLDER: &str = "\u{3}";

impl KnownHostsCommand {
    /// Whether its answer may depend on the key that the host shows: then it is asked again once that is known.
    pub(super) fn needs_presented_key(&self) -> bool {
        self.order_args != self.key_args
    }

    /// Runs it: before the handshake for the order of key types, and with the key that the host shows.
    pub(super) async fn run(&self, offered: Option<&PresentedKey>) -> Result<KnownHostsFile, RemoteError> {
        let words = offered.map_or_else(|| self.order_args.clone(), |o| self.key_args.iter().map(|w| substitute_key(w, o)).collect());
        let shown = words.join(" ");
        let failed = |what: String| RemoteError::InvalidConfig {
            what: format!("KnownHostsCommand `{shown}` ({}) failed: {what}", self.origin),
            hint: "run it by hand; it must print known_hosts lines and exit with status 0".to_owned(),
        };
        let Some((program, arguments)) = words.split_first() else { return Err(failed("it is empty".to_owned())) };
        let arguments: Vec<&String> = arguments.iter().collect();
        let said = process::run_process(program, &arguments, COMMAND_TIMEOUT, MAX_OUTPUT_BYTES).await.map_err(failed)?;
        if !said.status.success() {
            let last = process::last_lines(&said.stderr).map(|l| format!("; it printed “{l}”")).unwrap_or_default();
            return Err(failed(format!("{}{last}", process::describe_exit_status(said.status))));
        }
        let entries = Arc::new(known_hosts::parse_known_hosts(&String::from_utf8_lossy(&said.stdout)));
        Ok(KnownHostsFile { path: PathBuf::from("KnownHostsCommand"), entries, from_command: true })
    }
}

fn substitute_key(word: &str, offered: &PresentedKey) -> String {
    let fingerprint = known_hosts::fingerprint(&offered.key);
    word.replace(KEY_TYPE_PLACEHOLDER, &offered.key_type)
        .replace(FINGERPRINT_PLACEHOLDER, &fingerprint)
        .replace(KEY_PLACEHOLDER, &STANDARD.encode(&offered.key))
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn key_tokens_are_substituted() {
        let offered = PresentedKey { key_type: "ssh-ed25519".to_owned(), key: b"key".to_vec(), certificate: None };
        let word = format!("{KEY_TYPE_PLACEHOLDER} {FINGERPRINT_PLACEHOLDER} {KEY_PLACEHOLDER}");
        assert_eq!(substitute_key(&word, &offered), format!("ssh-ed25519 {} a2V5", known_hosts::fingerprint(b"key")));
    }
}
