//! The task of a node in a SLURM job: what SLURM sees of the launcher's end.

use super::*;

/// The exit code that SLURM gets of a node whose launcher ends with 143.
fn exit_code_of_node(was_asked_to_stop: bool) -> Option<i32> {
    let dir = tempfile::tempdir().expect("a folder");
    let run = dir.path().join("n0.in/20261126-000000-0001");
    std::fs::create_dir_all(&run).expect("made");
    std::fs::create_dir(dir.path().join("n0.out")).expect("made");
    std::fs::write(dir.path().join("n0.in/keeper"), "exit 0\n").expect("written");
    std::fs::write(run.join("node"), "exit 143\n").expect("written");
    std::fs::write(run.join("start"), read_asset("slurm/start.sh")).expect("written");
    if was_asked_to_stop {
        std::fs::write(run.join("stop"), "").expect("written");
    }
    let mut start = ChildGuard(Command::new("sh").arg(run.join("start")).stdin(Stdio::null()).spawn().expect("a shell"));
    start.0.wait().expect("its end").code()
}

#[test]
fn node_that_was_asked_to_stop_has_not_failed() {
    // SLURM ends the step on all nodes for a task that fails, ranks that still save included; the launcher's own code is in a file.
    assert_eq!(exit_code_of_node(true), Some(0));
    assert_eq!(exit_code_of_node(false), Some(143));
}
