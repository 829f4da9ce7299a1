//! Records how real runs fail: `ORCHESTRATE_RECORD=<name or all> cargo test --test cluster record:: -- --ignored`.
//!
//! Each case runs on the test hosts, and its journal and logs go to `tests/data/diagnosis/recorded/<case>/`, with what was done to it in
//! `truth.txt`. What is recorded once is not recorded again: to record anew, remove the folder.

use std::path::{Path, PathBuf};

use crate::laptop::{Laptop, word};
use crate::support::{Cluster, Job};

/// A way to fail.
struct Case {
    /// The folder.
    name: &'static str,
    /// The launcher.
    with: &'static str,
    /// The command; `fail.py KIND` where it is one word.
    command: &'static [&'static str],
    /// Lines under `container:`.
    container: &'static str,
    /// Lines under `launch:`.
    launch: &'static str,
    /// Who fails first: `rank 2`, `all`, `host gpu02`, and what was done.
    truth: &'static str,
}

const fn torch(name: &'static str, command: &'static [&'static str], truth: &'static str) -> Case {
    Case { name, with: "torchrun", command, container: "", launch: "", truth }
}

const fn with(name: &'static str, with: &'static str, command: &'static [&'static str], truth: &'static str) -> Case {
    Case { name, with, command, container: "", launch: "", truth }
}

/// Recorded before any rule was written.
const FIRST: &[Case] = &[
    torch("value-error", &["value-error"], "rank 2: raises ValueError in the midst of training"),
    torch("silent-exit", &["silent-exit"], "rank 2: leaves with code 3 and without a word"),
    torch("killed", &["killed"], "rank 2: is killed by signal 9"),
    torch("segfault", &["segfault"], "rank 2: reads address 0"),
    torch("missing-module", &["missing-module"], "rank 2: imports a module that is not installed"),
    torch("hung-before-init", &["hung-before-init"], "rank 2: sleeps and never joins; the others give up after 15 s"),
    Case { container: "args: [--tmpfs=/small:size=8m]", ..torch("disk-full", &["disk-full"], "rank 2: fills a disk of 8 MiB") },
    torch("read-only", &["read-only"], "rank 0: writes into a mount that is read-only"),
    torch("dataset-missing", &["dataset-missing"], "rank 2: opens a file that is not there"),
    torch("no-cuda", &["no-cuda"], "all: ask for a GPU with a torch that has no CUDA"),
    Case {
        container: "shm_size: 16m",
        ..torch("shm-too-small", &["shm-too-small"], "rank 2: its data loaders need more shared memory than there is")
    },
    torch("unknown-flag", &["unknown-flag"], "all: the script does not know a flag that it is given"),
    torch("nan", &["nan"], "rank 2: asserts that the loss is a number"),
    torch("state-dict", &["state-dict"], "all: load a checkpoint of another model"),
    torch("memory", &["memory"], "rank 2: asks for more memory than there is"),
    torch("open-files", &["open-files"], "rank 2: opens more files than it may"),
    torch("wrong-address", &["wrong-address"], "all: the master's address belongs to no machine"),
    torch("wrong-name", &["wrong-name"], "all: the master's name cannot be resolved"),
    torch("port-taken", &["port-taken"], "rank 2: listens at a port that is taken"),
    torch("nccl-without-gpu", &["nccl-without-gpu"], "all: ask for NCCL with a torch that has none"),
    torch("straggler", &["straggler"], "rank 2: stops in the midst of training; the others time out after 10 s"),
    torch("divisible", &["divisible"], "all: the number of heads is not divisible by the number of ranks"),
    with("jax-killed", "processes", &["/mnt/fail-jax.py", "killed"], "rank 2: is killed by signal 9"),
    with(
        "jax-stays-away",
        "processes",
        &["/mnt/fail-jax.py", "stays-away"],
        "rank 2: sleeps and never joins; the others give up after 15 s",
    ),
    with("no-such-command", "script", &["/mnt/no-such-program", "--train"], "all: the program is not there"),
    with("not-executable", "script", &["/mnt/train.py"], "all: the program may not be executed"),
];

/// Recorded once the rules were written.
const SECOND: &[Case] = &[
    torch("abort", &["abort"], "rank 2: aborts"),
    torch("loader-error", &["loader-error"], "rank 2: a data loader gets an input/output error"),
    torch("bad-json", &["bad-json"], "all: read a config that is no JSON"),
    torch("weights-only", &["weights-only"], "all: load a checkpoint that holds more than weights"),
    torch("truncated-checkpoint", &["truncated-checkpoint"], "rank 2: loads a checkpoint that was cut off"),
    torch("no-hub", &["no-hub"], "all: fetch a model where there is no internet"),
    torch("monitored-barrier", &["monitored-barrier"], "rank 2: does not come to a barrier"),
    torch("uneven-sizes", &["uneven-sizes"], "rank 2: reduces a tensor of another size"),
    torch("unused-parameters", &["unused-parameters"], "all: a parameter takes no part in the loss"),
    torch("differing-models", &["differing-models"], "rank 2: has another model than the others"),
    torch("shapes", &["shapes"], "all: multiply matrices that do not fit"),
    torch("closed-port", &["closed-port"], "all: connect to a port where nobody listens"),
    Case {
        container: "args: [--memory=700m, --memory-swap=700m]",
        ..torch("host-memory", &["host-memory"], "rank 2: takes memory until the kernel kills it")
    },
    torch("deepspeed-batch", &["deepspeed-batch"], "all: batch sizes that do not fit together"),
    torch("deepspeed-config", &["deepspeed-config"], "all: a stage of ZeRO that does not exist"),
    torch("deepspeed-build", &["deepspeed-build"], "all: build an operator where there is no compiler"),
    with("accelerate-module", "accelerate", &["missing-module"], "rank 2: imports a module that is not installed"),
    with("deepspeed-killed", "deepspeed", &["killed"], "rank 2: is killed by signal 9"),
    with("processes-disk", "processes", &["dataset-missing"], "rank 2: opens a file that is not there"),
    with("jax-no-arguments", "processes", &["/mnt/fail-jax.py", "no-arguments"], "all: no coordinator is given"),
    with("jax-too-late", "processes", &["/mnt/fail-jax.py", "too-late"], "all: JAX is used before it is initialised"),
    with("shell-not-found", "script", &["/bin/sh", "-c", "nvcc --version"], "all: a command in the script is not there"),
    with("shell-exit", "script", &["/bin/sh", "-c", "echo preparing; exit 5"], "all: leave with code 5"),
    with("shell-syntax", "script", &["/bin/sh", "-c", "if true; then echo begun"], "all: a script with a wrong syntax"),
];

/// The folder of a case.
fn folder(case: &Case) -> PathBuf {
    Path::new(env!("CARGO_MANIFEST_DIR")).join("tests/data/diagnosis/recorded").join(case.name)
}

fn job(case: &Case) -> Job {
    let words: Vec<&str> = match case.command {
        [kind] if !kind.starts_with('/') => vec!["/mnt/fail.py", kind],
        words => words.to_vec(),
    };
    let mut job = Job::torch("fails").command(&words);
    job.image = Some("orchestrate-ml:test".to_owned());
    job.with = case.with;
    job.container = case.container.to_owned();
    job.launch = case.launch.to_owned();
    if case.with != "script" {
        job.launch.push_str("setup: source /opt/ml/bin/activate\n");
    }
    job
}

/// Runs it and keeps what a laptop keeps.
fn record(cluster: &Cluster, case: &Case) {
    let laptop = Laptop::new();
    let file = cluster.inventory(&laptop, &job(case));
    let ended = laptop.run(&["up", word(&file), "--set", "launch.master_port=auto"]);
    if !matches!(ended.code, Some(1 | 3)) {
        println!("{}: nothing is kept: {:?}\n{}", case.name, ended.code, ended.said());
        return;
    }
    let (from, to) = (laptop.run_dir(), folder(case));
    let new = to.with_extension("new");
    std::fs::create_dir_all(&new).expect("a folder");
    std::fs::write(new.join("truth.txt"), format!("{}\n", case.truth)).expect("written");
    std::fs::copy(from.join("journal.jsonl"), new.join("journal.jsonl")).expect("a journal");
    for entry in std::fs::read_dir(from.join("logs")).expect("logs").flatten() {
        if entry.path().extension().is_some_and(|end| end == "log") {
            std::fs::copy(entry.path(), new.join(entry.file_name())).expect("a log");
        }
    }
    std::fs::rename(&new, &to).expect("in its place");
    println!("{}: {:?} after {:.1} s", case.name, ended.code, ended.took.as_secs_f64());
}

#[test]
#[ignore = "records anew what the tests of the diagnosis read; see the head of this file"]
fn failures() {
    let wanted = std::env::var("ORCHESTRATE_RECORD").unwrap_or_else(|_| "all".to_owned());
    for case in FIRST.iter().chain(SECOND).filter(|case| (wanted == "all" || wanted == case.name) && !folder(case).exists()) {
        // Others may have the hosts in between.
        let cluster = Cluster::take();
        record(&cluster, case);
        cluster.as_before();
    }
}
