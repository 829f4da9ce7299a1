//! The task of a node in a SLURM job: what SLURM sees of the launcher's end.

use std::io::Read as _;

use super::*;

/// When the batch shell asks the node to stop its ranks.
#[derive(Clone, Copy)]
enum Stop {
    BeforeTheNodeBegins,
    AfterItSaysSo,
    Never,
}

/// The exit code that SLURM gets of a node whose launcher ends with 143, what it prints, and whether the launcher was started.
fn run_node(stop: Stop) -> (Option<i32>, String, bool) {
    let dir = tempfile::tempdir().expect("a folder");
    let run = dir.path().join("n0.in/20261126-000000-0001");
    std::fs::create_dir_all(&run).expect("made");
    std::fs::create_dir(dir.path().join("n0.out")).expect("made");
    std::fs::write(dir.path().join("n0.in/keeper"), "exit 0\n").expect("written");
    std::fs::write(run.join("node"), ": >\"${0%/*}/started\"\nexit 143\n").expect("written");
    std::fs::write(run.join("start"), read_asset("slurm/start.sh")).expect("written");
    // A short stand-in for `sleep`: without an answer the node sleeps 60 times.
    let sleep = dir.path().join("sleep");
    write_program(&sleep, "#!/bin/sh\nexec /bin/sleep 0.01\n");
    if matches!(stop, Stop::BeforeTheNodeBegins) {
        std::fs::write(run.join("stop"), "").expect("written");
    }
    let mut command = Command::new("sh");
    command.arg(run.join("start")).stdin(Stdio::null()).stdout(Stdio::piped());
    if matches!(stop, Stop::Never) {
        command.env("PATH", format!("{}:{}", dir.path().display(), std::env::var("PATH").expect("a path")));
    }
    let mut start = ChildGuard(command.spawn().expect("a shell"));
    let mut output = start.0.stdout.take().expect("a pipe");
    let mut said = String::new();
    if matches!(stop, Stop::AfterItSaysSo) {
        let mut byte = [0];
        while !said.ends_with('\n') && output.read(&mut byte).expect("read") > 0 {
            said.push(char::from(byte[0]));
        }
        std::fs::write(run.join("stop"), "").expect("written");
    }
    output.read_to_string(&mut said).expect("text");
    (start.0.wait().expect("its end").code(), said, run.join("started").exists())
}

/// SLURM ends the step on all nodes for a task that fails, ranks that still save included; the launcher's own code is in a file.
#[test]
fn node_that_was_asked_to_stop_has_not_failed() {
    let says = "orchestrate: the launcher ended with exit code 143: stopping all nodes\n".to_owned();
    assert_eq!(run_node(Stop::BeforeTheNodeBegins), (Some(0), String::new(), false));
    assert_eq!(run_node(Stop::AfterItSaysSo), (Some(0), says.clone(), true));
    assert_eq!(run_node(Stop::Never), (Some(143), says, true), "a batch shell that does not answer");
}
