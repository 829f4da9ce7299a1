//! The worker wrappers pass every variable on unchanged, including those with the names of their own variables; a signal before the command leaves a status;
//! one that ends a rank or its launcher leaves nothing in their logs.

use std::os::unix::process::ExitStatusExt as _;
use std::process::Stdio;

use crate::{TestHost, read_asset, wait_until};

/// Variables that the wrappers use themselves.
const NAMES: [&str; 22] = [
    "R", "F", "n", "b", "i", "pid", "pids", "rc", "r", "first", "count", "life", "base", "mask", "signaled", "waited", "child", "status",
    "log_at", "log_mask", "log_max", "log_why",
];

/// A run directory with the wrappers and a worker that prints the variables.
fn host_with_worker() -> TestHost {
    let host = TestHost::new();
    std::fs::create_dir_all(host.path("h.in/run1")).expect("made");
    std::fs::create_dir_all(host.path("h.out")).expect("made");
    for (name, asset) in [("lib", "lib.sh"), ("append", "append.sh"), ("worker", "worker.sh"), ("processes", "processes.sh")] {
        host.write_file(&format!("h.in/run1/{name}"), &read_asset(asset));
    }
    host.write_file("h.in/run1/pipe", &format!("log_max=1000000\n{}", read_asset("pipe.sh")));
    let shown: String = NAMES.iter().map(|name| format!("{name}=${name} ")).collect();
    host.write_file("h.in/run1/worker.argv", &format!("set -- /bin/sh -c 'echo \"{shown}\"; echo \"$HARD\"; exit 3'\n"));
    host
}

const HARD_VALUE: &str = "it's \"$HOME\" `id` \\ 中\nnext line ";

fn assert_worker_has_its_environment(script: &str, arguments: &[&str]) {
    let host = host_with_worker();
    let mut shell = host.shell_command();
    shell.arg(host.path(&format!("h.in/run1/{script}"))).args(arguments).env("RANK", "0").env("HARD", HARD_VALUE);
    for name in NAMES {
        shell.env(name, format!("of {name}"));
    }
    let status = shell.stdin(Stdio::null()).status().expect("a shell");
    assert_eq!(status.code(), Some(3), "{script}: the worker's own status");
    let expected: String = NAMES.iter().map(|name| format!("{name}=of {name} ")).collect();
    wait_until("the log is complete", || host.path("h.out/run1.rank-0.0.end").exists().then_some(()));
    let log = std::fs::read_to_string(host.path("h.out/run1.rank-0.0.log")).expect("its log");
    assert_eq!(log, format!("{expected}\n{HARD_VALUE}\n"), "{script}");
}

#[test]
fn worker_gets_variables_that_are_named_like_the_wrappers_own() {
    assert_worker_has_its_environment("worker", &[]);
    assert_worker_has_its_environment("processes", &["0", "1"]);
}

/// A launcher whose other worker fails at once sends TERM while this one starts.
#[test]
fn worker_that_is_signaled_before_its_command_leaves_a_status() {
    let host = host_with_worker();
    let started = host.path("started");
    let command = format!("kill -TERM $$\nset -- /bin/sh -c ': >{}; exec /bin/sleep 1000'\n", started.display());
    host.write_file("h.in/run1/worker.argv", &command);
    let mut shell = host.shell_command();
    let status = shell.arg(host.path("h.in/run1/worker")).env("RANK", "0").stdin(Stdio::null()).status().expect("a shell");
    let rc = std::fs::read_to_string(host.path("h.out/run1.rank-0.0.rc")).expect("a status");
    assert_eq!((rc.split(' ').next(), status.signal(), started.exists()), (Some("143"), Some(15), false));
}

#[test]
fn log_of_what_a_signal_ended_has_only_what_it_wrote() {
    for (wrapper, argv, base) in [("worker", "worker.argv", "rank-0.0"), ("node", "argv", "node")] {
        let host = TestHost::new();
        host.prepare_run("run1", "");
        host.write_file("h.in/run1/node", &read_asset("node.sh"));
        host.write_file("h.in/run1/env", "");
        host.write_file("h.out/run1.node.log", "");
        host.write_file(&format!("h.in/run1/{argv}"), "set -- sh -c 'echo its line; echo its error >&2; kill -TERM $$'\n");
        let mut shell = host.shell_command();
        shell.arg(host.path(&format!("h.in/run1/{wrapper}"))).env("RANK", "0");
        assert!(!shell.status().expect("a shell").success(), "{wrapper}");
        let read = |end: &str| std::fs::read_to_string(host.path(&format!("h.out/run1.{base}.{end}"))).unwrap_or_default();
        wait_until("the log is whole", || host.path(&format!("h.out/run1.{base}.end")).exists().then_some(()));
        assert_eq!((read("log").as_str(), read("rc").split_whitespace().next()), ("its line\nits error\n", Some("143")), "{wrapper}");
    }
}
