//! Whether a task failed because it asked for input: a task has no terminal, and its input is empty.

use std::sync::LazyLock;

use regex::Regex;

/// What to do about it.
pub(super) const HINT: &str = "it seems to have asked for input, and a task has no terminal: answer in the script (-y, --yes, \
                               DEBIAN_FRONTEND=noninteractive, `sudo -n`, a token in `secrets`), then run the command again";

/// How many of the last lines are looked at.
const LINES: usize = 8;

/// What programs write when they find no terminal or the end of their input, and how questions end.
static QUESTION: LazyLock<Option<Regex>> = LazyLock::new(|| {
    let patterns = [
        r"EOFError|EOF when reading a line",
        r"(?i)inappropriate ioctl for device",
        r"(?i)(input device|stdin|standard input) is not a (tty|terminal)",
        r"(?i)a terminal is required",
        r"(?i)no tty present",
        r"/dev/tty: (No such device|Inappropriate)",
        r"could not read (Username|Password) for",
        r"\[[yY]/[nN]\](: )?( ?Abort\.)?\s*$",
        r"\((yes/no|y/n)(/\[fingerprint\])?\)\??:?\s*$",
        r"(?i)^\[?(sudo\]? )?password( for \S+)?:\s*$",
        r"Would you like to .*\?\s*$",
    ];
    Regex::new(&format!("(?m){}", patterns.map(|pattern| format!("(?:{pattern})")).join("|"))).ok()
});

/// Whether the end of a log looks like a prompt for input.
pub(super) fn asked_for_input(log: &str) -> bool {
    let mut last: Vec<&str> = log.lines().rev().filter(|line| !line.trim().is_empty()).take(LINES).collect();
    last.reverse();
    QUESTION.as_ref().is_some_and(|question| question.is_match(&last.join("\n")))
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn questions_without_an_answer_are_recognized() {
        for log in [
            "Traceback (most recent call last):\n  File \"<stdin>\"\nEOFError: EOF when reading a line\n",
            "After this operation, 3 MB will be used.\nDo you want to continue? [Y/n] Abort.\n",
            "sudo: a terminal is required to read the password; either use the -S option\n",
            "fatal: could not read Username for 'https://github.com': No such device or address\n",
            "the input device is not a TTY\n",
            "stty: 'standard input': Inappropriate ioctl for device\n",
            "Proceed (y/n)? ",
        ] {
            assert!(asked_for_input(log), "{log}");
        }
        for log in
            ["", "error: no space left on device\n", "ERROR: No matching distribution found for x\n", "expected [y] / [n] in a config\n"]
        {
            assert!(!asked_for_input(log), "{log}");
        }
        let earlier = format!("Proceed? [y/N]\n{}", "compiling\n".repeat(20));
        assert!(!asked_for_input(&earlier), "it went on after that");
    }
}
