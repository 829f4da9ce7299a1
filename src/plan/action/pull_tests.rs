//! The script of a pull in real shells, with a docker that is a script itself.

use std::io::{BufRead, BufReader};
use std::path::Path;
use std::process::{Command, Stdio};
use std::time::Instant;

use super::*;
use crate::plan::protocol::pull_output::PullOutputReader;
use crate::plan::test_program::write_program;

const LAYERS: &str = "1: Pulling from x\n5f70bf18a086: Pulling fs layer\n5f70bf18a086: Pull complete\n";

/// Begins the script of a pull with a docker that does this for `pull`.
fn start_pull(dir: &Path, shell: &[&str], pull: &str) -> Command {
    let docker = format!("#!/bin/sh\ncase $1 in pull) {pull} ;; *) echo sha256:0123456789abcdef ;; esac\n");
    write_program(&dir.join("docker"), &docker);
    let pull = test_action();
    let Execution::PullImage(command) = pull.execution() else { panic!("a pull") };
    std::fs::write(dir.join("script"), &command.script).expect("written");
    let path = format!("{}:{}", dir.display(), std::env::var("PATH").expect("a PATH"));
    let mut start = Command::new(shell[0]);
    start.args(&shell[1..]).arg(dir.join("script")).env("PATH", path).stdin(Stdio::null());
    start
}

fn test_action() -> PullImage {
    let context = HostContext { in_container: true, ..HostContext::new("n", "gpu01", "/run") };
    PullImage { context, image: "x:1".to_owned(), policy: inventory::PullPolicy::Always, login: None }
}

fn run(shell: &[&str], pull: &str) -> (CommandOutput, ActionResult) {
    let dir = tempfile::tempdir().expect("a folder");
    let began = Instant::now();
    let ended = start_pull(dir.path(), shell, pull).output().expect("a shell");
    let output = CommandOutput {
        exit_code: ended.status.code().unwrap_or(-1),
        stdout: ended.stdout,
        stderr: ended.stderr,
        dropped_bytes: 0,
        elapsed: began.elapsed(),
    };
    let result = test_action().judge(&output);
    (output, result)
}

const SHELLS: [&[&str]; 3] = [&["dash"], &["bash", "--posix"], &["busybox", "sh"]];

fn shells() -> impl Iterator<Item = &'static [&'static str]> {
    let exists = |shell: &&[&str]| Command::new(shell[0]).arg("-c").arg(":").stderr(Stdio::null()).status().is_ok();
    SHELLS.into_iter().filter(exists).chain([["/bin/sh"].as_slice()])
}

#[test]
fn layers_precede_the_id() {
    for shell in shells() {
        let (output, result) = run(shell, &format!("printf '{}'", LAYERS.replace('\n', "\\n")));
        assert_eq!((output.exit_code, result), (0, ActionResult::changed("0123456789ab")), "{shell:?}");
        let mut reader = PullOutputReader::default();
        reader.push(&output.stdout);
        assert_eq!((reader.counts().layers, reader.counts().complete), (1, 1), "{shell:?}");
        assert_eq!(output.stderr, b"");
    }
}

#[test]
fn failed_pull_exits_77_with_docker_s_last_line() {
    for shell in shells() {
        for pull in
            ["printf 'a: Waiting\\n'; echo first >&2; echo 'denied: no' >&2; exit 1", "printf half; echo 'denied: no' >&2; exit 125"]
        {
            let (output, result) = run(shell, pull);
            let ActionResult::Failed(issue) = result else { panic!("{shell:?}: {result:?}") };
            assert_eq!((output.exit_code, issue.message.as_str()), (77, "could not pull x:1: denied: no"), "{shell:?} {pull}");
            assert!(issue.hint.contains("docker login"), "{}", issue.hint);
        }
    }
}

/// The lines of layers are no reason.
#[test]
fn layer_line_is_not_the_reason_of_a_failure() {
    let (output, result) = run(&["/bin/sh"], "echo '5f70bf18a086: Download complete'; exit 9");
    let ActionResult::Failed(issue) = result else { panic!("{result:?}") };
    assert_eq!((output.exit_code, issue.message.as_str()), (77, "could not pull x:1: docker gave no reason"));
}

/// What it has started keeps its output open.
#[test]
fn pull_ends_with_docker() {
    for shell in shells() {
        let (output, result) = run(shell, "while [ -e \"${0%/*}/script\" ]; do sleep 0.1; done 2>/dev/null & printf 'no newline'");
        assert_eq!((output.exit_code, result), (0, ActionResult::changed("0123456789ab")), "{shell:?}");
        assert!(output.elapsed < Duration::from_secs(30), "{shell:?}: {:?}", output.elapsed);
    }
}

/// A connection that is lost leaves the script without a reader.
#[test]
fn pull_continues_without_a_reader() {
    for shell in shells() {
        let dir = tempfile::tempdir().expect("a folder");
        let (gone, done) = (dir.path().join("gone"), dir.path().join("done"));
        let pull = format!(
            "echo 5f70bf18a086: Waiting; until [ -e {} ]; do sleep 0.02; done; for n in 1 2 3 4 5; do echo $n; sleep 0.02; done; : >{}",
            gone.display(),
            done.display()
        );
        let mut child = start_pull(dir.path(), shell, &pull).stdout(Stdio::piped()).stderr(Stdio::null()).spawn().expect("a shell");
        let mut lines = BufReader::new(child.stdout.take().expect("piped")).lines();
        assert_eq!(lines.next().expect("a line").expect("text"), "5f70bf18a086: Waiting", "{shell:?}: a line comes at once");
        drop(lines);
        std::fs::write(&gone, "").expect("written");
        child.wait().expect("ended");
        assert!(done.exists(), "{shell:?}: docker was not ended by the pipe");
    }
}

#[test]
fn reason_of_a_failed_pull_is_the_same_on_every_host() {
    let dial = |ports: &str| format!("dial tcp: lookup r.invalid on 127.0.0.1:53: {ports}connection refused");
    assert_eq!(drop_socket_addresses(&dial("read udp 127.0.0.1:52910->127.0.0.1:53: read: ")), dial("read: "));
    for kept in ["a -> b: c", "udp a->b: c", "no -> arrow"] {
        assert_eq!(drop_socket_addresses(kept), kept);
    }
}
