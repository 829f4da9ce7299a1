//! Records how real runs fail: `ORCHESTRATE_RECORD=<name or all> cargo test --test cluster record:: -- --ignored`.
//!
//! Each case runs on the test hosts; its journal and logs go to `tests/data/diagnosis/recorded/<case>/`, and the injected fault to
//! `truth.txt`. A recorded case is skipped: remove its directory to record it again.

use std::path::{Path, PathBuf};

use crate::laptop::{Laptop, path_str};
use crate::support::{Cluster, JobSpec};

/// A case: one way to fail.
struct FailureCase {
    /// The directory's name.
    name: &'static str,
    launcher: &'static str,
    /// The command; one word means `fail.py KIND`.
    command: &'static [&'static str],
    /// Lines under `container:`.
    container: &'static str,
    /// Lines under `launch:`.
    launch: &'static str,
    /// The first failure and the injected fault: `rank 2`, `all`, `host gpu02`.
    expected_cause: &'static str,
}

const fn torch_case(name: &'static str, command: &'static [&'static str], truth: &'static str) -> FailureCase {
    FailureCase { name, launcher: "torchrun", command, container: "", launch: "", expected_cause: truth }
}

const fn case_with_launcher(name: &'static str, with: &'static str, command: &'static [&'static str], truth: &'static str) -> FailureCase {
    FailureCase { name, launcher: with, command, container: "", launch: "", expected_cause: truth }
}

/// Recorded before the rules were written.
const CASES_BEFORE_RULES: &[FailureCase] = &[
    torch_case("value-error", &["value-error"], "rank 2: raises ValueError in the midst of training"),
    torch_case("silent-exit", &["silent-exit"], "rank 2: leaves with code 3 and without a word"),
    torch_case("killed", &["killed"], "rank 2: is killed by signal 9"),
    torch_case("segfault", &["segfault"], "rank 2: reads address 0"),
    torch_case("missing-module", &["missing-module"], "rank 2: imports a module that is not installed"),
    torch_case("hung-before-init", &["hung-before-init"], "rank 2: sleeps and never joins; the others give up after 15 s"),
    FailureCase { container: "args: [--tmpfs=/small:size=8m]", ..torch_case("disk-full", &["disk-full"], "rank 2: fills a disk of 8 MiB") },
    torch_case("read-only", &["read-only"], "rank 0: writes into a mount that is read-only"),
    torch_case("dataset-missing", &["dataset-missing"], "rank 2: opens a file that is not there"),
    torch_case("no-cuda", &["no-cuda"], "all: ask for a GPU with a torch that has no CUDA"),
    FailureCase {
        container: "shm_size: 16m",
        ..torch_case("shm-too-small", &["shm-too-small"], "rank 2: its data loaders need more shared memory than there is")
    },
    torch_case("unknown-flag", &["unknown-flag"], "all: the script does not know a flag that it is given"),
    torch_case("nan", &["nan"], "rank 2: asserts that the loss is a number"),
    torch_case("state-dict", &["state-dict"], "all: load a checkpoint of another model"),
    torch_case("memory", &["memory"], "rank 2: asks for more memory than there is"),
    torch_case("open-files", &["open-files"], "rank 2: opens more files than it may"),
    torch_case("wrong-address", &["wrong-address"], "all: the master's address belongs to no machine"),
    torch_case("wrong-name", &["wrong-name"], "all: the master's name cannot be resolved"),
    torch_case("port-taken", &["port-taken"], "rank 2: listens at a port that is taken"),
    torch_case("nccl-without-gpu", &["nccl-without-gpu"], "all: ask for NCCL with a torch that has none"),
    torch_case("straggler", &["straggler"], "rank 2: stops in the midst of training; the others time out after 10 s"),
    torch_case("divisible", &["divisible"], "all: the number of heads is not divisible by the number of ranks"),
    case_with_launcher("jax-killed", "processes", &["/mnt/fail-jax.py", "killed"], "rank 2: is killed by signal 9"),
    case_with_launcher(
        "jax-stays-away",
        "processes",
        &["/mnt/fail-jax.py", "stays-away"],
        "rank 2: sleeps and never joins; the others give up after 15 s",
    ),
    case_with_launcher("no-such-command", "script", &["/mnt/no-such-program", "--train"], "all: the program is not there"),
    case_with_launcher("not-executable", "script", &["/mnt/train.py"], "all: the program may not be executed"),
];

/// Recorded after the rules were written.
const CASES_AFTER_RULES: &[FailureCase] = &[
    torch_case("abort", &["abort"], "rank 2: aborts"),
    torch_case("loader-error", &["loader-error"], "rank 2: a data loader gets an input/output error"),
    torch_case("bad-json", &["bad-json"], "all: read a config that is no JSON"),
    torch_case("weights-only", &["weights-only"], "all: load a checkpoint that holds more than weights"),
    torch_case("truncated-checkpoint", &["truncated-checkpoint"], "rank 2: loads a checkpoint that was cut off"),
    torch_case("no-hub", &["no-hub"], "all: fetch a model where there is no internet"),
    torch_case("monitored-barrier", &["monitored-barrier"], "rank 2: does not come to a barrier"),
    torch_case("uneven-sizes", &["uneven-sizes"], "rank 2: reduces a tensor of another size"),
    torch_case("unused-parameters", &["unused-parameters"], "all: a parameter takes no part in the loss"),
    torch_case("differing-models", &["differing-models"], "rank 2: has another model than the others"),
    torch_case("shapes", &["shapes"], "all: multiply matrices that do not fit"),
    torch_case("closed-port", &["closed-port"], "all: connect to a port where nobody listens"),
    FailureCase {
        container: "args: [--memory=700m, --memory-swap=700m]",
        ..torch_case("host-memory", &["host-memory"], "rank 2: takes memory until the kernel kills it")
    },
    torch_case("deepspeed-batch", &["deepspeed-batch"], "all: batch sizes that do not fit together"),
    torch_case("deepspeed-config", &["deepspeed-config"], "all: a stage of ZeRO that does not exist"),
    torch_case("deepspeed-build", &["deepspeed-build"], "all: build an operator where there is no compiler"),
    case_with_launcher("accelerate-module", "accelerate", &["missing-module"], "rank 2: imports a module that is not installed"),
    case_with_launcher("deepspeed-killed", "deepspeed", &["killed"], "rank 2: is killed by signal 9"),
    case_with_launcher("processes-disk", "processes", &["dataset-missing"], "rank 2: opens a file that is not there"),
    case_with_launcher("jax-no-arguments", "processes", &["/mnt/fail-jax.py", "no-arguments"], "all: no coordinator is given"),
    case_with_launcher("jax-too-late", "processes", &["/mnt/fail-jax.py", "too-late"], "all: JAX is used before it is initialised"),
    case_with_launcher("shell-not-found", "script", &["/bin/sh", "-c", "nvcc --version"], "all: a command in the script is not there"),
    case_with_launcher("shell-exit", "script", &["/bin/sh", "-c", "echo preparing; exit 5"], "all: leave with code 5"),
    case_with_launcher("shell-syntax", "script", &["/bin/sh", "-c", "if true; then echo begun"], "all: a script with a wrong syntax"),
];

/// The directory of a case.
fn case_dir(case: &FailureCase) -> PathBuf {
    Path::new(env!("CARGO_MANIFEST_DIR")).join("tests/data/diagnosis/recorded").join(case.name)
}

fn case_job(case: &FailureCase) -> JobSpec {
    let words: Vec<&str> = match case.command {
        [kind] if !kind.starts_with('/') => vec!["/mnt/fail.py", kind],
        words => words.to_vec(),
    };
    let mut job = JobSpec::torch("fails").with_command(&words);
    job.image = Some("orchestrate-ml:test".to_owned());
    job.launcher = case.launcher;
    job.container = case.container.to_owned();
    job.launch = case.launch.to_owned();
    if case.launcher != "script" {
        job.launch.push_str("setup: source /opt/ml/bin/activate\n");
    }
    job
}

/// Runs the case and stores the laptop's journal and logs.
fn record_case(cluster: &Cluster, case: &FailureCase) {
    let laptop = Laptop::new();
    let file = cluster.write_inventory(&laptop, &case_job(case));
    let ended = laptop.run(&["up", path_str(&file), "--set", "launch.master_port=auto"]);
    if !matches!(ended.exit_code, Some(1 | 3)) {
        println!("{}: nothing is kept: {:?}\n{}", case.name, ended.exit_code, ended.transcript());
        return;
    }
    let (from, to) = (laptop.only_run_dir(), case_dir(case));
    let new = to.with_extension("new");
    std::fs::create_dir_all(&new).expect("a folder");
    std::fs::write(new.join("truth.txt"), format!("{}\n", case.expected_cause)).expect("written");
    std::fs::copy(from.join("journal.jsonl"), new.join("journal.jsonl")).expect("a journal");
    for entry in std::fs::read_dir(from.join("logs")).expect("logs").flatten() {
        if entry.path().extension().is_some_and(|end| end == "log") {
            std::fs::copy(entry.path(), new.join(entry.file_name())).expect("a log");
        }
    }
    std::fs::rename(&new, &to).expect("in its place");
    println!("{}: {:?} after {:.1} s", case.name, ended.exit_code, ended.elapsed.as_secs_f64());
}

#[test]
#[ignore = "records the data of the diagnosis tests again; see the head of this file"]
fn record_missing_failure_cases() {
    let wanted = std::env::var("ORCHESTRATE_RECORD").unwrap_or_else(|_| "all".to_owned());
    for case in CASES_BEFORE_RULES
        .iter()
        .chain(CASES_AFTER_RULES)
        .filter(|case| (wanted == "all" || wanted == case.name) && !case_dir(case).exists())
    {
        // Other tests may use the hosts in between.
        let cluster = Cluster::acquire();
        record_case(&cluster, case);
        cluster.assert_hosts_unchanged();
    }
}
