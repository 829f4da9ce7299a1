//! How a script travels to a remote shell: between two markers, so that both ends can be tested without a connection.

/// No exit status is longer.
const MAX_EXIT_DIGITS: usize = 4;

/// A script between two marks, so that a message of the day, rc-file noise and a cut connection cannot be taken for an answer.
///
/// The whole is one brace group: a shell parses it to the end before it runs any of it, so a script that was cut on the way does nothing.
/// A caller that writes more to the shell's input must wait for the begin mark first: some shells read ahead.
#[derive(Debug, Clone)]
pub(crate) struct ScriptFrame {
    nonce: String,
}

/// What the bytes of an answer hold of its end mark.
#[derive(Debug, PartialEq, Eq)]
pub(crate) enum EndMarker {
    /// Nothing: all of them belong to the answer.
    None,
    /// From this place on they may be a mark that is not whole yet.
    Partial(usize),
    /// The answer ended at this place, with this exit status.
    Complete(usize, i32),
}

impl ScriptFrame {
    /// A frame whose marks carry `nonce`, which the remote side cannot guess beforehand.
    pub(crate) fn new(nonce: impl Into<String>) -> Self {
        ScriptFrame { nonce: nonce.into() }
    }

    /// The text to write to `/bin/sh -s`.
    pub(crate) fn wrap(&self, script: &str) -> String {
        let nonce = &self.nonce;
        format!("{{ printf '\\036begin-{nonce}\\n'; (\n{script}\n) </dev/null; printf '\\036end-{nonce} %d\\n' \"$?\"; exit; }}\n")
    }

    /// The text to write to `/bin/sh -s` for a script that keeps reading the shell's input (only after the begin mark was seen) and
    /// whose output has no end mark.
    pub(crate) fn wrap_streaming(&self, script: &str) -> String {
        let nonce = &self.nonce;
        format!("{{ printf '\\036begin-{nonce}\\n'; {{\n{script}\n}}; exit; }}\n")
    }

    /// The line before the script's first byte.
    pub(crate) fn begin_marker(&self) -> Vec<u8> {
        format!("\u{1e}begin-{}\n", self.nonce).into_bytes()
    }

    /// Looks for the end mark in bytes that came after the begin mark.
    pub(crate) fn find_end_marker(&self, bytes: &[u8]) -> EndMarker {
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
mod tests {
    use super::*;

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
}
