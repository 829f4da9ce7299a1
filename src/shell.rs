//! What goes to a host and what comes back: [`Command`] and [`Output`], and the only shell quoting in the house.
//!
//! Uses nothing. Knows nothing of SSH: how a script travels is `remote`'s business, how it is framed is said here so that both
//! ends of the wire can be tested without a wire.

use std::fmt;
use std::time::Duration;

/// The most bytes of standard output or error that [`Output`] keeps of one command unless it says less; the rest is counted, not kept.
pub const OUTPUT_LIMIT: usize = 8 << 20;

/// No exit status is longer.
const DIGITS: usize = 4;

/// A script for one host's `/bin/sh`, with the time it may take.
///
/// The script is POSIX sh, runs in a subshell with `/dev/null` as its input, and may not rely on the user's login shell, its rc files or a
/// terminal. Whatever must outlive the connection has to put itself in the background and bound itself.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct Command {
    /// What it does, for people: `start the container`.
    pub title: String,
    /// The POSIX-sh text.
    pub script: String,
    /// How long the answer may take, from the moment it is sent.
    pub timeout: Duration,
    /// Values that no display, journal or error may show.
    pub masks: Vec<String>,
    /// How many bytes of standard output, and as many of standard error, are kept.
    pub limit: usize,
}

impl Command {
    /// Makes a command out of sh text.
    pub fn sh(title: impl Into<String>, script: impl Into<String>, timeout: Duration) -> Self {
        Command { title: title.into(), script: script.into(), timeout, masks: Vec::new(), limit: OUTPUT_LIMIT }
    }

    /// Makes a command out of an argument vector: every argument arrives byte for byte.
    pub fn argv<S: AsRef<str>>(title: impl Into<String>, argv: &[S], timeout: Duration) -> Self {
        Command::sh(title, join(argv), timeout)
    }

    /// Hides `values` wherever this command is shown.
    #[must_use]
    pub fn masking(mut self, values: impl IntoIterator<Item = String>) -> Self {
        self.masks.extend(values.into_iter().filter(|v| !v.is_empty()));
        self
    }

    /// Keeps at most `limit` bytes of what it answers, and never more than [`OUTPUT_LIMIT`].
    #[must_use]
    pub fn keeping(mut self, limit: usize) -> Self {
        self.limit = limit.min(OUTPUT_LIMIT);
        self
    }

    /// The script with its secrets replaced by `***`.
    pub fn shown(&self) -> String {
        mask(&self.script, &self.masks)
    }
}

impl fmt::Display for Command {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.write_str(&self.shown())
    }
}

/// Replaces every secret in `text` by `***`, the longest first, in its plain and its quoted form.
pub fn mask(text: &str, secrets: &[String]) -> String {
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
pub struct Output {
    /// The script's exit status as its shell saw it (128 + n: ended by signal n).
    pub code: i32,
    /// Its standard output, without login noise and markers; at most [`Command::limit`] bytes.
    pub stdout: Vec<u8>,
    /// Its standard error, login noise included; at most [`Command::limit`] bytes.
    pub stderr: Vec<u8>,
    /// Bytes that were beyond the limit and thrown away.
    pub dropped: u64,
    /// From sending to the end of the answer.
    pub elapsed: Duration,
}

impl Output {
    /// Whether the script ended with status 0.
    pub fn ok(&self) -> bool {
        self.code == 0
    }

    /// Standard output as text, bytes that are no UTF-8 replaced.
    pub fn text(&self) -> String {
        String::from_utf8_lossy(&self.stdout).into_owned()
    }

    /// The last telling line of standard error, else of standard output: what a person would quote. Docker's pointer to its help tells nothing.
    pub fn complaint(&self) -> String {
        let telling = |l: &&str| !l.is_empty() && !(l.contains("--help'") && (l.starts_with("See '") || l.starts_with("Run '")));
        let last = |bytes: &[u8]| String::from_utf8_lossy(bytes).lines().rev().map(str::trim).find(telling).map(str::to_owned);
        last(&self.stderr).or_else(|| last(&self.stdout)).unwrap_or_else(|| format!("exit status {}", self.code))
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
pub fn join<S: AsRef<str>>(argv: &[S]) -> String {
    argv.iter().map(|word| quote(word.as_ref())).collect::<Vec<_>>().join(" ")
}

/// A script as the one line that any login shell hands to `/bin/sh` unchanged: whatever some shell may take for its own (quotes, `!`, line
/// ends) is an octal number. The shell's input stays the person's.
pub(crate) fn line(script: &str) -> String {
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
pub struct Frame {
    nonce: String,
}

/// What the bytes of an answer hold of its end mark.
#[derive(Debug, PartialEq, Eq)]
pub enum Mark {
    /// Nothing: all of them belong to the answer.
    None,
    /// From this place on they may be a mark that is not whole yet.
    Maybe(usize),
    /// The answer ended at this place, with this exit status.
    Ended(usize, i32),
}

impl Frame {
    /// A frame whose marks carry `nonce`, which the remote side cannot guess beforehand.
    pub fn new(nonce: impl Into<String>) -> Self {
        Frame { nonce: nonce.into() }
    }

    /// The text to write to `/bin/sh -s`.
    pub fn wrap(&self, script: &str) -> String {
        let nonce = &self.nonce;
        format!("{{ printf '\\036begin-{nonce}\\n'; (\n{script}\n) </dev/null; printf '\\036end-{nonce} %d\\n' \"$?\"; exit; }}\n")
    }

    /// The text to write to `/bin/sh -s` for a script that goes on reading the shell's input (only after the begin mark was seen) and
    /// whose output has no end mark.
    pub fn wrap_stream(&self, script: &str) -> String {
        let nonce = &self.nonce;
        format!("{{ printf '\\036begin-{nonce}\\n'; {{\n{script}\n}}; exit; }}\n")
    }

    /// The line that stands before the script's first byte.
    pub fn begin(&self) -> Vec<u8> {
        format!("\u{1e}begin-{}\n", self.nonce).into_bytes()
    }

    /// Looks for the end mark in bytes that came after the begin mark.
    pub fn end(&self, bytes: &[u8]) -> Mark {
        let Some(last) = memchr::memrchr(0x1e, bytes) else { return Mark::None };
        let mark = format!("\u{1e}end-{} ", self.nonce);
        let at = memchr::memmem::find(bytes, mark.as_bytes()).unwrap_or(last);
        let rest = bytes.get(at..).unwrap_or_default();
        let Some(code) = rest.strip_prefix(mark.as_bytes()) else {
            return if mark.as_bytes().starts_with(rest) { Mark::Maybe(at) } else { Mark::None };
        };
        match code.iter().position(|b| *b == b'\n') {
            Some(end) => {
                let digits = code.get(..end).and_then(|c| std::str::from_utf8(c).ok());
                digits.and_then(|d| d.parse().ok()).map_or(Mark::None, |code| Mark::Ended(at, code))
            }
            None if code.len() < DIGITS => Mark::Maybe(at),
            None => Mark::None,
        }
    }
}

#[cfg(test)]
#[expect(clippy::disallowed_methods, reason = "the proof is a real shell")]
mod tests {
    use super::*;
    use proptest::prelude::*;

    fn run(script: &str) -> Vec<u8> {
        let out = std::process::Command::new("/bin/sh").arg("-c").arg(script).output().expect("a shell");
        out.stdout
    }

    proptest! {
        #[test]
        fn any_text_survives_the_shell(words in prop::collection::vec("[^\0]{0,40}", 1..6)) {
            let out = run(&format!("printf '%s\\0' {}", join(&words)));
            let expected: Vec<u8> = words.iter().flat_map(|w| w.bytes().chain([0])).collect();
            prop_assert_eq!(out, expected);
        }
    }

    #[test]
    fn the_end_mark_is_found_whole_and_in_part() {
        let frame = Frame::new("n1");
        assert_eq!(frame.end(b"body\n\x1eend-n1 7\nlogout"), Mark::Ended(5, 7));
        assert_eq!(frame.end(b"x\x1ey\x1eend-n1 0\n\x1e"), Mark::Ended(3, 0));
        for part in ["\x1e", "\x1eend-", "\x1eend-n1 ", "\x1eend-n1 12"] {
            assert_eq!(frame.end(format!("half{part}").as_bytes()), Mark::Maybe(4), "{part:?}");
        }
        for other in ["half", "\x1eend-n2 7\n", "\x1eend\n", "a\x1e\n"] {
            assert_eq!(frame.end(other.as_bytes()), Mark::None, "{other:?}");
        }
    }

    #[test]
    fn a_cut_script_runs_nothing() {
        let text = Frame::new("n").wrap("echo one; echo two");
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
        let command = Command::sh("t", format!("export T={} U=pa", quote("pa'ss")), Duration::from_secs(1)).masking(["pa'ss".to_owned()]);
        assert_eq!(command.shown(), "export T='***' U=pa");
    }

    #[test]
    fn any_script_arrives_whole_and_the_input_is_left_alone() {
        use std::io::Write as _;
        use std::process::{Command, Stdio};
        let script = "printf '%s|' 'it'\\''s 100% \\ \"$5\" !x' 'é\nnext'\nread -r word\necho \"<$word>\"\nexit 7";
        let line = line(script);
        assert!(!line.contains(['\n', '!', '`', '%', '#']), "{line}");
        let mut child = Command::new("/bin/sh").args(["-c", &line]).stdin(Stdio::piped()).stdout(Stdio::piped()).spawn().expect("a shell");
        child.stdin.take().expect("piped").write_all(b"typed\n").expect("written");
        let out = child.wait_with_output().expect("ended");
        assert_eq!(String::from_utf8_lossy(&out.stdout), "it's 100% \\ \"$5\" !x|é\nnext|<typed>\n");
        assert_eq!(out.status.code(), Some(7));
    }
}
