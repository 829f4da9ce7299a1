//! A host that attacks the terminal: its login shell writes OSC 52, control sequences, half of a UTF-8 character and shell commands to stdout
//! and stderr before every answer (`hostile-shell`). Every command prints sanitized text, and no shell runs any of it.

use std::collections::BTreeMap;
use std::path::{Path, PathBuf};

use crate::hostile_ranks::list_foreign_files;
use crate::laptop::{Laptop, path_str, wait_until};
use crate::support::{Cluster, JobSpec};
use crate::terminal::PtyTerminal;

/// Sequences that hostile-shell and the ranks write and this program does not: none may reach the terminal.
const PLANTED_SEQUENCES: [&str; 6] = ["\x1b]52", "\x1b]0;$(", "\x1b[6n", "\x1b[38;5;201m", "\u{9b}", "\u{9d}"];

/// The ranks write the same sequences, and each reports that it is up.
const RANK_COMMAND: &str =
    "printf '\\033]52;c;cHduZWQ=\\007\\033[6n\\033[38;5;201m\\302\\233201m\\360\\237\\n'; echo rank $RANK is up; exec sleep 600";

/// A user at a terminal.
struct TerminalUser<'a> {
    laptop: &'a Laptop,
    file: &'a str,
}

impl TerminalUser<'_> {
    /// Starts a command with the inventory.
    fn start(&self, words: &[&str]) -> PtyTerminal {
        let home = self.laptop.home();
        let text = |path: &Path| path.display().to_string();
        let own = [("HOME", text(home)), ("XDG_STATE_HOME", text(&home.join("state"))), ("USER", "tester".to_owned())];
        let variables: BTreeMap<String, String> = own.into_iter().map(|(name, value)| (name.to_owned(), value)).collect();
        let words: Vec<&str> = words[..1].iter().chain(&["-i", self.file]).chain(&words[1..]).copied().collect();
        PtyTerminal::start(Path::new(env!("CARGO_BIN_EXE_orchestrate")), &words, home, &variables, (120, 40))
    }

    /// Runs a command until it ends.
    #[track_caller]
    fn run_expecting_code(&self, code: u32, words: &[&str]) -> String {
        let mut terminal = self.start(words);
        let ended = terminal.wait_for_exit();
        assert_eq!(ended, code, "{words:?}: {}", terminal.raw_text());
        assert_no_escapes(&terminal, words)
    }
}

/// No planted sequence is in the output, and all of it is UTF-8.
#[track_caller]
fn assert_no_escapes(terminal: &PtyTerminal, words: &[&str]) -> String {
    let raw = terminal.raw_bytes();
    let text = String::from_utf8(raw).unwrap_or_else(|error| panic!("{words:?}: {error}: {}", terminal.raw_text()));
    for planted in PLANTED_SEQUENCES {
        assert!(!text.contains(planted), "{words:?}: {planted:?} reached the terminal: {text:?}");
    }
    text
}

/// While this value lives, the shell of `hostile` on one host does not answer.
struct BrokenShell(PathBuf);

impl BrokenShell {
    fn new(cluster: &Cluster, host: &str) -> BrokenShell {
        let file = cluster.counting_shell_dir(host).join("broken");
        std::fs::write(&file, "").expect("written");
        BrokenShell(file)
    }
}

impl Drop for BrokenShell {
    fn drop(&mut self) {
        let removed = std::fs::remove_file(&self.0);
        assert!(removed.is_ok() || std::thread::panicking(), "the shell answers again");
    }
}

#[test]
#[ignore = "needs the test hosts: tests/run says how"]
fn commands_filter_escapes_from_hostile_hosts() {
    let cluster = Cluster::acquire();
    let laptop = Laptop::new();
    let job =
        JobSpec::busybox("escapes").with_user("hostile").with_hosts(&["gpu02", "gpu03"]).with_command(&["/bin/sh", "-c", RANK_COMMAND]);
    let file = cluster.write_inventory(&laptop, &job);
    let person = TerminalUser { laptop: &laptop, file: path_str(&file) };
    let before = ["gpu02", "gpu03"].map(|host| list_foreign_files(&cluster, host));

    person.run_expecting_code(0, &["plan", "--facts"]);
    person.run_expecting_code(0, &["up", "--dry-run", "--preflight", "off"]);
    person.run_expecting_code(0, &["check", "--progress", "plain"]);
    person.run_expecting_code(0, &["up", "-d", "--preflight", "off"]);
    let ps = person.run_expecting_code(0, &["ps"]);
    assert!(ps.contains("running"), "{ps}");
    wait_until("both ranks have written", || {
        let logs = person.run_expecting_code(0, &["logs"]);
        (logs.contains("rank 0 is up") && logs.contains("rank 1 is up")).then_some(())
    });
    person.run_expecting_code(0, &["stacks"]);
    let exec = person.run_expecting_code(1, &["exec", "--", "printf 'an answer\\n\\033]52;c;eA==\\007'; echo more >&2; exit 7"]);
    assert!(exec.contains("an answer"), "{exec}");
    for words in [&["attach", "--progress", "plain"][..], &["attach", "--progress", "bars"], &["attach", "--progress", "tui"], &["tui"]] {
        let mut terminal = person.start(words);
        terminal.wait_for_text("is up");
        if words.contains(&"tui") {
            terminal.press("q");
            terminal.wait_for_text("Detach");
            terminal.press("d");
        } else {
            terminal.press("\x03");
        }
        terminal.wait_for_exit();
        assert_no_escapes(&terminal, words);
    }
    person.run_expecting_code(0, &["down", "--dry-run"]);

    // A shell that does not answer: its last output is part of the error.
    let broken = BrokenShell::new(&cluster, "gpu03");
    for words in [&["ps"][..], &["logs"], &["stacks"], &["check"], &["plan", "--facts"], &["exec", "--", "true"], &["down", "--yes"]] {
        let mut terminal = person.start(words);
        let code = terminal.wait_for_exit();
        assert_ne!(code, 0, "{words:?}: {}", terminal.raw_text());
        let output = assert_no_escapes(&terminal, words);
        assert!(output.contains("gpu03"), "{words:?}: {output}");
    }
    drop(broken);

    person.run_expecting_code(0, &["down", "--yes"]);
    assert_eq!(["gpu02", "gpu03"].map(|host| list_foreign_files(&cluster, host)), before, "no foreign file changed");
}
