//! A script for one host, and what the host answered.

use std::time::Duration;

use crate::text::mask::mask_secrets;

/// The most bytes of standard output or error that [`CommandOutput`] keeps of one command unless it says less; the rest is counted, not kept.
pub const OUTPUT_LIMIT: usize = 8 << 20;

/// A script for one host's `/bin/sh`, with the time it may take.
///
/// The script is POSIX sh, runs in a subshell with `/dev/null` as its input, and may not rely on the user's login shell, its rc files or a
/// terminal. A process that must outlive the connection has to go to the background and limit its own lifetime.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct RemoteCommand {
    /// What it does, for people: `start the container`.
    pub title: String,
    pub script: String,
    /// How long the answer may take, from the moment it is sent.
    pub timeout: Duration,
    /// Values that no display, journal or error may show.
    pub secrets: Vec<String>,
    /// How many bytes of standard output, and as many of standard error, are kept.
    pub output_limit: usize,
}

impl RemoteCommand {
    /// Makes a command out of sh text.
    pub fn from_script(title: impl Into<String>, script: impl Into<String>, timeout: Duration) -> Self {
        RemoteCommand { title: title.into(), script: script.into(), timeout, secrets: Vec::new(), output_limit: OUTPUT_LIMIT }
    }

    /// Hides `values` wherever this command is shown.
    #[must_use]
    pub fn with_masked_values(mut self, values: impl IntoIterator<Item = String>) -> Self {
        self.secrets.extend(values.into_iter().filter(|v| !v.is_empty()));
        self
    }

    /// Keeps at most `limit` bytes of what it answers, and never more than [`OUTPUT_LIMIT`].
    #[must_use]
    pub fn with_output_limit(mut self, limit: usize) -> Self {
        self.output_limit = limit.min(OUTPUT_LIMIT);
        self
    }

    /// The script with its secrets replaced by `***`.
    pub fn masked_script(&self) -> String {
        mask_secrets(&self.script, &self.secrets)
    }
}

/// What a command answered.
#[derive(Debug, Clone, PartialEq, Eq, Default)]
pub struct CommandOutput {
    /// The script's exit status as its shell saw it (128 + n: ended by signal n).
    pub exit_code: i32,
    /// Its standard output, without login noise and markers; at most [`RemoteCommand::output_limit`] bytes.
    pub stdout: Vec<u8>,
    /// Its standard error, login noise included; at most [`RemoteCommand::output_limit`] bytes.
    pub stderr: Vec<u8>,
    /// Bytes that were beyond the limit and thrown away.
    pub dropped_bytes: u64,
    /// From sending to the end of the answer.
    pub elapsed: Duration,
}

impl CommandOutput {
    /// Whether the script ended with status 0.
    pub fn is_success(&self) -> bool {
        self.exit_code == 0
    }

    /// Standard output as text, bytes that are no UTF-8 replaced.
    pub fn stdout_text(&self) -> String {
        String::from_utf8_lossy(&self.stdout).into_owned()
    }

    /// The last meaningful line of standard error, else of standard output: what a person would quote. Docker's pointer to its help is skipped.
    pub fn error_line(&self) -> String {
        let is_meaningful = |l: &&str| !l.is_empty() && !(l.contains("--help'") && (l.starts_with("See '") || l.starts_with("Run '")));
        let last = |bytes: &[u8]| String::from_utf8_lossy(bytes).lines().rev().map(str::trim).find(is_meaningful).map(str::to_owned);
        last(&self.stderr).or_else(|| last(&self.stdout)).unwrap_or_else(|| format!("exit status {}", self.exit_code))
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::text::shell_quote::quote;

    #[test]
    fn secrets_are_masked_plain_and_quoted() {
        let command = RemoteCommand::from_script("t", format!("export T={} U=pa", quote("pa'ss")), Duration::from_secs(1))
            .with_masked_values(["pa'ss".to_owned()]);
        assert_eq!(command.masked_script(), "export T='***' U=pa");
    }
}
