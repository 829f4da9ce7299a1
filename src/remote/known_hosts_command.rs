//! Runs `KnownHostsCommand` for further known_hosts lines.

use std::path::PathBuf;
use std::sync::Arc;
use std::time::Duration;

use base64::Engine as _;
use base64::engine::general_purpose::STANDARD;

use super::RemoteError;
use super::local_process;
use super::presented_key::PresentedKey;
use crate::ssh_config::known_hosts;
use crate::ssh_config::known_hosts::KnownHostsFile;

/// Timeout of the command.
const COMMAND_TIMEOUT: Duration = Duration::from_secs(10);
/// Maximum output.
const MAX_OUTPUT_BYTES: u64 = 4 << 20;

/// A command that prints known_hosts lines, complete except for what only the handshake knows.
#[derive(Debug, Clone, PartialEq, Eq)]
pub(super) struct KnownHostsCommand {
    pub(super) program: String,
    /// Arguments before the handshake (`%I` is ORDER).
    pub(super) order_args: Vec<String>,
    /// Arguments once the host has presented its key (`%I` is HOSTNAME), with [`KEY_TYPE_PLACEHOLDER`], [`FINGERPRINT_PLACEHOLDER`] and
    /// [`KEY_PLACEHOLDER`] to replace.
    pub(super) key_args: Vec<String>,
    pub(super) origin: String,
}

/// Placeholders for `%t`, `%f` and `%K`; no value of ssh_config contains them.
pub(super) const KEY_TYPE_PLACEHOLDER: &str = "\u{1}";
pub(super) const FINGERPRINT_PLACEHOLDER: &str = "\u{2}";
pub(super) const KEY_PLACEHOLDER: &str = "\u{3}";

impl KnownHostsCommand {
    /// Whether its output may depend on the presented key: then it runs again once the key is known.
    pub(super) fn needs_presented_key(&self) -> bool {
        self.order_args != self.key_args
    }

    /// Runs it: before the handshake for the order of key types, and with the presented key.
    pub(super) async fn run(&self, offered: Option<&PresentedKey>) -> Result<KnownHostsFile, RemoteError> {
        let arguments: Vec<String> =
            offered.map_or_else(|| self.order_args.clone(), |o| self.key_args.iter().map(|w| substitute_key(w, o)).collect());
        let command_line = [std::slice::from_ref(&self.program), &arguments].concat().join(" ");
        let failed = |what: String| {
            RemoteError::invalid_config(
                format!("KnownHostsCommand `{command_line}` ({}) failed: {what}", self.origin),
                "run it by hand; it must print known_hosts lines and exit with status 0",
            )
        };
        let output = local_process::run_process(&self.program, &arguments, COMMAND_TIMEOUT, MAX_OUTPUT_BYTES).await.map_err(failed)?;
        if !output.status.success() {
            let last = local_process::last_lines(&output.stderr).map(|l| format!("; it printed “{l}”")).unwrap_or_default();
            return Err(failed(format!("{}{last}", local_process::describe_exit_status(output.status))));
        }
        let entries = Arc::new(known_hosts::parse_known_hosts(&String::from_utf8_lossy(&output.stdout)));
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
