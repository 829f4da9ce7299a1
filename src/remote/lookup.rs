//! Asks `KnownHostsCommand` for further lines of known_hosts.
//!
//! Uses `process`, `known_hosts` and `presented_key`. Knows no files and no sockets.

use std::path::PathBuf;
use std::sync::Arc;
use std::time::Duration;

use base64::Engine as _;
use base64::engine::general_purpose::STANDARD;

use super::RemoteError;
use super::known_hosts::{self, File};
use super::presented_key::Offered;
use super::process;

/// How long it may take.
const PATIENCE: Duration = Duration::from_secs(10);
/// How much it may print.
const LARGEST: u64 = 4 << 20;

/// A command that prints lines of known_hosts, ready but for what only the handshake knows.
#[derive(Debug, Clone, PartialEq, Eq)]
pub(super) struct KnownHostsCommand {
    /// Its words before the handshake (`%I` is ORDER).
    pub(super) order: Vec<String>,
    /// Its words once the host has shown its key (`%I` is HOSTNAME), with [`KIND`], [`FINGERPRINT`] and [`KEY`] to be replaced.
    pub(super) key: Vec<String>,
    /// Where it stands.
    pub(super) place: String,
}

/// Stand for `%t`, `%f` and `%K`; no value of ssh_config holds them.
pub(super) const KIND: &str = "\u{1}";
pub(super) const FINGERPRINT: &str = "\u{2}";
pub(super) const KEY: &str = "\u{3}";

impl KnownHostsCommand {
    /// Whether its answer may depend on the key that the host shows: then it is asked again once that is known.
    pub(super) fn wants_key(&self) -> bool {
        self.order != self.key
    }

    /// Runs it: before the handshake for the order of key types, and with the key that the host shows.
    pub(super) async fn ask(&self, offered: Option<&Offered>) -> Result<File, RemoteError> {
        let words = offered.map_or_else(|| self.order.clone(), |o| self.key.iter().map(|w| with_key(w, o)).collect());
        let shown = words.join(" ");
        let failed = |what: String| RemoteError::Settings {
            what: format!("KnownHostsCommand `{shown}` ({}) failed: {what}", self.place),
            hint: "run it by hand; it must print lines of known_hosts and end with status 0".to_owned(),
        };
        let Some((program, arguments)) = words.split_first() else { return Err(failed("it is empty".to_owned())) };
        let arguments: Vec<&String> = arguments.iter().collect();
        let said = process::run(program, &arguments, PATIENCE, LARGEST).await.map_err(failed)?;
        if !said.status.success() {
            let last = process::last_words(&said.err).map(|l| format!("; it said “{l}”")).unwrap_or_default();
            return Err(failed(format!("{}{last}", process::words(said.status))));
        }
        let entries = Arc::new(known_hosts::parse(&String::from_utf8_lossy(&said.out)));
        Ok(File { path: PathBuf::from("KnownHostsCommand"), entries, printed: true })
    }
}

fn with_key(word: &str, offered: &Offered) -> String {
    let fingerprint = known_hosts::fingerprint(&offered.key);
    word.replace(KIND, &offered.kind).replace(FINGERPRINT, &fingerprint).replace(KEY, &STANDARD.encode(&offered.key))
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn the_key_is_put_in_where_it_is_asked_for() {
        let offered = Offered { kind: "ssh-ed25519".to_owned(), key: b"key".to_vec(), certificate: None };
        let word = format!("{KIND} {FINGERPRINT} {KEY}");
        assert_eq!(with_key(&word, &offered), format!("ssh-ed25519 {} a2V5", known_hosts::fingerprint(b"key")));
    }
}
