//! What goes to a host and what comes back: [`Command`] and [`Output`], and the only shell quoting in the house.
//!
//! Uses nothing. Knows nothing of SSH: how a script travels is `remote`'s business, how it is framed is said here so that both
//! ends of the wire can be tested without a wire.

use std::fmt;
use std::time::Duration;

/// The most bytes of standard output or error that [`Output`] keeps of one command unless it says less; the rest is counted, not kept.
pub const OUTPUT_LIMIT: usize = 8 << 20;

/// No exit status is longer.
const MAX_EXIT_DIGITS: usize = 4;

/// A script for one host's `/bin/sh`, with the time it may take.
///
/// The script is POSIX sh, runs in a subshell with `/dev/null` as its input, and may not rely on the user's login shell, its rc files or a
/// terminal. Whatever must outlive the connection has to put itself in the background and bound itself.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct RemoteCommand {
    /// What it does, for people: `start the container`.
    pub title: String,
    /// The POSIX-sh text.
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

    /// Makes a command out of an argument vector: every argument arrives byte for byte.
    pub fn from_argv<S: AsRef<str>>(title: impl Into<String>, argv: &[S], timeout: Duration) -> Self {
        RemoteCommand::from_script(title, join_quoted(argv), timeout)
    }

    /// Hides `values` wherever this command is shown.
    #[must_use]
    pub fn with_secrets(mut self, values: impl IntoIterator<Item = String>) -> Self {
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

impl fmt::Display for RemoteCommand {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.write_str(&self.masked_script())
    }
}

/// Replaces every secret in `text` by `***`, the longest first, in its plain and its quoted form.
pub fn mask_secrets(text: &str, secrets: &[String]) -> String {
    let mut sorted: Vec<&String> = secrets.iter().filter(|s| !s.is_empty()).collect();
    sorted.sort_by_key(|s| std::cmp::Reverse(s.len()));
    sorted.iter().fold(text.to_owned(), |text, secret| {
        let quoted = quote(secret);
        let inner = quoted.trim_matches('\'');
        let text = text.replace(secret.as_str(), "***");
        if inner.is_empty() || inner == secret.as_str() { text } else { text.replace(inner, "***") }
    })
}

/// What a command answered.
#[derive(Debug, Clone, PartialEq, Eq, Default)]
pub struct CommandOutput {
    /// The script's exit status as its shell saw it (128 + n: ended by signal n).
    pub exit_code: i32,
    /// Its standard output, without login noise and markers; at most [`Command::limit`] bytes.
    pub stdout: Vec<u8>,
    /// Its standard error, login noise included; at most [`Command::limit`] bytes.
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

    /// The last telling line of standard error, else of standard output: what a person would quote. Docker's pointer to its help tells nothing.
    pub fn error_line(&self) -> String {
        let telling = |l: &&str| !l.is_empty() && !(l.contains("--help'") && (l.starts_with("See '") || l.starts_with("Run '")));
        let last = |bytes: &[u8]| String::from_utf8_lossy(bytes).lines().rev().map(str::trim).find(telling).map(str::to_owned);
        last(&self.stderr).or_else(|| last(&self.stdout)).unwrap_or_else(|| format!("exit status {}", self.exit_code))
    }
}

/// Quotes one word for POSIX sh; plain words stay as they are. A NUL byte cannot be passed to a process and is dropped by the kernel's own
/// rules, so callers refuse it earlier.
pub fn quote(word: &str) -> String {
    let plain = |b: u8| b.is_ascii_alphanumeric() || b"_@%+=:,./-".contains(&b);
    if !word.is_empty() && word.bytes().all(plain) && !word.starts_with('=') {
        return word.to_owned();
    }
    let mut quoted = String::with_capacity(word.len() + 2);
    quoted.push('\'');
    for c in word.chars() {
        if c == '\'' {
            quoted.push_str("'\\''");
        } else {
            quoted.push(c);
        }
    }
    quoted.push('\'');
    quoted
}

/// Quotes and joins an argument vector.
pub fn join_quoted<S: AsRef<str>>(argv: &[S]) -> String {
    argv.iter().map(|word| quote(word.as_ref())).collect::<Vec<_>>().join(" ")
}

/// A script as the one line that any login shell hands to `/bin/sh` unchanged: whatever some shell may take for its own (quotes, `!`, line
/// ends) is an octal number. The shell's input stays the person's.
pub(crate) fn one_line_command(script: &str) -> String {
    use std::fmt::Write as _;
    let mut text = String::with_capacity(script.len() * 2);
    for byte in script.bytes() {
        if byte.is_ascii_alphanumeric() || b" _./:=,+-".contains(&byte) {
            text.push(char::from(byte));
        } else if write!(text, "\\{byte:03o}").is_err() {
            break;
        }
    }
    format!("exec /bin/sh -c 'eval \"$(printf \"{text}\")\"'")
}

/// Whether `name` can be a shell variable: `[A-Za-z_][A-Za-z0-9_]*`.
pub fn is_variable(name: &str) -> bool {
    let mut bytes = name.bytes();
    bytes.next().is_some_and(|b| b.is_ascii_alphabetic() || b == b'_') && bytes.all(|b| b.is_ascii_alphanumeric() || b == b'_')
}

/// A script between two marks, so that a message of the day, rc-file noise and a cut connection cannot be taken for an answer.
///
/// The whole is one brace group: a shell parses it to the end before it runs any of it, so a script that was cut on the way does nothing.
/// A caller that writes more to the shell's input must wait for the begin mark first: some shells read ahead.
#[derive(Debug, Clone)]
pub struct ScriptFrame {
    nonce: String,
}

/// What the bytes of an answer hold of its end mark.
#[derive(Debug, PartialEq, Eq)]
pub enum EndMarker {
    /// Nothing: all of them belong to the answer.
    None,
    /// From this place on they may be a mark that is not whole yet.
    Partial(usize),
    /// The answer ended at this place, with this exit status.
    Complete(usize, i32),
}

impl ScriptFrame {
    /// A frame whose marks carry `nonce`, which the remote side cannot guess beforehand.
    pub fn new(nonce: impl Into<String>) -> Self {
        ScriptFrame { nonce: nonce.into() }
    }

    /// The text to write to `/bin/sh -s`.
    pub fn wrap(&self, script: &str) -> String {
        let nonce = &self.nonce;
        format!("{{ printf '\\036begin-{nonce}\\n'; (\n{script}\n) </dev/null; printf '\\036end-{nonce} %d\\n' \"$?\"; exit; }}\n")
    }

    /// The text to write to `/bin/sh -s` for a script that goes on reading the shell's input (only after the begin mark was seen) and
    /// whose output has no end mark.
    pub fn wrap_streaming(&self, script: &str) -> String {
        let nonce = &self.nonce;
        format!("{{ printf '\\036begin-{nonce}\\n'; {{\n{script}\n}}; exit; }}\n")
    }

    /// The line that stands before the script's first byte.
    pub fn begin_marker(&self) -> Vec<u8> {
        format!("\u{1e}begin-{}\n", self.nonce).into_bytes()
    }

    /// Looks for the end mark in bytes that came after the begin mark.
    pub fn find_end_marker(&self, bytes: &[u8]) -> EndMarker {
        let Some(last) = memchr::memrchr(0x1e, bytes) else { return EndMarker::None };
        let mark = format!("\u{1e}end-{} ", self.nonce);
        let at = memchr::memmem::find(bytes, mark.as_bytes()).unwrap_or(last);
        let rest = bytes.get(at..).unwrap_or_default();
        let Some(code) = rest.strip_prefix(mark.as_bytes()) else {
            return if mark.as_bytes().starts_with(rest) { EndMarker::Partial(at) } else { EndMarker::None };
        };
        match code.iter().position(|b| *b == b'\n') {
            Some(end) => {
                let digits = code.get(..end).and_then(|c| std::str::from_utf8(c).ok());
                digits.and_then(|d| d.parse().ok()).map_or(EndMarker::None, |code| EndMarker::Complete(at, code))
            }
            None if code.len() < MAX_EXIT_DIGITS => EndMarker::Partial(at),
            None => EndMarker::None,
        }
    }
}

#[cfg(test)]
#[expect(clippy::disallowed_methods, reason = "the proof is a real shell")]
mod tests {
    use super::*;
    use proptest::prelude::*;

    fn run_sh(script: &str) -> Vec<u8> {
        let out = std::process::Command::new("/bin/sh").arg("-c").arg(script).output().expect("a shell");
        out.stdout
    }

    proptest! {
        #[test]
        fn quoted_text_survives_the_shell(words in prop::collection::vec("[^\0]{0,40}", 1..6)) {
            let out = run_sh(&format!("printf '%s\\0' {}", join_quoted(&words)));
            let expected: Vec<u8> = words.iter().flat_map(|w| w.bytes().chain([0])).collect();
            prop_assert_eq!(out, expected);
        }
    }

    #[test]
    fn end_marker_is_found_whole_and_partial() {
        let frame = ScriptFrame::new("n1");
        assert_eq!(frame.find_end_marker(b"body\n\x1eend-n1 7\nlogout"), EndMarker::Complete(5, 7));
        assert_eq!(frame.find_end_marker(b"x\x1ey\x1eend-n1 0\n\x1e"), EndMarker::Complete(3, 0));
        for part in ["\x1e", "\x1eend-", "\x1eend-n1 ", "\x1eend-n1 12"] {
            assert_eq!(frame.find_end_marker(format!("half{part}").as_bytes()), EndMarker::Partial(4), "{part:?}");
        }
        for other in ["half", "\x1eend-n2 7\n", "\x1eend\n", "a\x1e\n"] {
            assert_eq!(frame.find_end_marker(other.as_bytes()), EndMarker::None, "{other:?}");
        }
    }

    #[test]
    fn truncated_script_runs_nothing() {
        let text = ScriptFrame::new("n").wrap("echo one; echo two");
        let cut = &text[..text.len() - 12];
        let mut child = std::process::Command::new("/bin/sh")
            .arg("-s")
            .stdin(std::process::Stdio::piped())
            .stdout(std::process::Stdio::piped())
            .stderr(std::process::Stdio::null())
            .spawn()
            .expect("a shell");
        std::io::Write::write_all(&mut child.stdin.take().expect("piped"), cut.as_bytes()).expect("written");
        let out = child.wait_with_output().expect("ended");
        assert_eq!(out.stdout, b"");
    }

    #[test]
    fn secrets_are_masked_plain_and_quoted() {
        let command = RemoteCommand::from_script("t", format!("export T={} U=pa", quote("pa'ss")), Duration::from_secs(1))
            .with_secrets(["pa'ss".to_owned()]);
        assert_eq!(command.masked_script(), "export T='***' U=pa");
    }

    #[test]
    fn one_line_command_preserves_script_and_stdin() {
        use std::io::Write as _;
        use std::process::{Command, Stdio};
        let script = "printf '%s|' 'it'\\''s 100% \\ \"$5\" !x' 'é\nnext'\nread -r word\necho \"<$word>\"\nexit 7";
        let line = one_line_command(script);
        assert!(!line.contains(['\n', '!', '`', '%', '#']), "{line}");
        let mut child = Command::new("/bin/sh").args(["-c", &line]).stdin(Stdio::piped()).stdout(Stdio::piped()).spawn().expect("a shell");
        child.stdin.take().expect("piped").write_all(b"typed\n").expect("written");
        let out = child.wait_with_output().expect("ended");
        assert_eq!(String::from_utf8_lossy(&out.stdout), "it's 100% \\ \"$5\" !x|é\nnext|<typed>\n");
        assert_eq!(out.status.code(), Some(7));
    }
}
