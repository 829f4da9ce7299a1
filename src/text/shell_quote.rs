//! Quoting for POSIX sh: the only shell quoting of the program.

/// Quotes one word for POSIX sh; plain words stay as they are. A NUL byte cannot be passed to a process and is dropped by the kernel's own
/// rules, so callers refuse it earlier.
pub(crate) fn quote(word: &str) -> String {
    let plain = |b: u8| b.is_ascii_alphanumeric() || b"_@%+=:,./-".contains(&b);
    if !word.is_empty() && word.bytes().all(plain) && !word.starts_with('=') {
        return word.to_owned();
    }
    format!("'{}'", word.replace('\'', r"'\''"))
}

/// Quotes a path; `~/` at its beginning stays the home directory, which a shell would not expand within quotes.
pub(crate) fn quote_path(path: &str) -> String {
    match path.strip_prefix("~/") {
        Some(rest) => format!("~/{}", quote(rest)),
        None => quote(path),
    }
}

/// A path as a word of a script; `~/` is the home of the user who runs the script.
pub(crate) fn quote_home(path: &str, quoted: impl Fn(&str) -> String) -> String {
    match path.strip_prefix("~/") {
        Some(rest) => format!("\"$HOME\"/{}", quoted(rest)),
        None if path == "~" => "\"$HOME\"".to_owned(),
        None => quoted(path),
    }
}

/// Quotes and joins an argument vector.
pub(crate) fn join_quoted<S: AsRef<str>>(argv: &[S]) -> String {
    argv.iter().map(|word| quote(word.as_ref())).collect::<Vec<_>>().join(" ")
}

/// A script as the one line that any login shell hands to `/bin/sh` unchanged: each character that a shell may interpret (quotes, `!`, line
/// ends) is an octal number. The shell's input stays the user's.
pub(crate) fn encode_for_login_shell(script: &str) -> String {
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
pub(crate) fn is_variable_name(name: &str) -> bool {
    let mut bytes = name.bytes();
    bytes.next().is_some_and(|b| b.is_ascii_alphabetic() || b == b'_') && bytes.all(|b| b.is_ascii_alphanumeric() || b == b'_')
}

#[cfg(test)]
mod tests {
    use super::*;
    use proptest::prelude::*;

    fn run_sh(script: &str) -> Vec<u8> {
        let out = std::process::Command::new("/bin/sh").arg("-c").arg(script).output().expect("a shell");
        out.stdout
    }

    #[test]
    fn home_directory_of_a_path_stays_unquoted() {
        let cases = [("~/a b", "~/'a b'"), ("~/run", "~/run"), ("/a b", "'/a b'"), ("~user/x", "'~user/x'"), ("a~/b", "'a~/b'")];
        for (path, wanted) in cases {
            assert_eq!(quote_path(path), wanted);
        }
        assert_eq!(quote("~/run"), "'~/run'", "what is no path is literal");
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
    fn one_line_command_preserves_script_and_stdin() {
        use std::io::Write as _;
        use std::process::{Command, Stdio};
        let script = "printf '%s|' 'it'\\''s 100% \\ \"$5\" !x' 'é\nnext'\nread -r word\necho \"<$word>\"\nexit 7";
        let line = encode_for_login_shell(script);
        assert!(!line.contains(['\n', '!', '`', '%', '#']), "{line}");
        let mut child = Command::new("/bin/sh").args(["-c", &line]).stdin(Stdio::piped()).stdout(Stdio::piped()).spawn().expect("a shell");
        child.stdin.take().expect("piped").write_all(b"typed\n").expect("written");
        let out = child.wait_with_output().expect("ended");
        assert_eq!(String::from_utf8_lossy(&out.stdout), "it's 100% \\ \"$5\" !x|é\nnext|<typed>\n");
        assert_eq!(out.status.code(), Some(7));
    }
}
