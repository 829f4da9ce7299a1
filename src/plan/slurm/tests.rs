//! Every launcher in every kind of container: the script without the wrappers, in `tests/data/slurm`; the whole one goes through bash and
//! shellcheck. The rules are those of docs/slurm.md.

use std::path::{Path, PathBuf};
use std::process::Command;

use super::*;
use crate::inventory::{InventorySource, Launcher};
use crate::text::golden::matches_golden;

const LAUNCHERS: [(&str, &str); 9] = [
    ("torchrun", "with: torchrun\n  command: [train.py, --lr, \"1e-3\", \"a 'b' $c\", \"{{ run.stamp }}\"]"),
    ("accelerate", "with: accelerate\n  args: [--mixed-precision, bf16]\n  command: [train.py]"),
    ("deepspeed", "with: deepspeed\n  command: [train.py, --deepspeed, ds_config.json]"),
    ("processes", "with: processes\n  setup: source ~/venv/bin/activate\n  command: [python3, train.py]"),
    ("script", "with: script\n  shell: |\n    set -euo pipefail\n    ./train.sh 8 h100"),
    ("torchrun-c10d", "with: torchrun\n  rendezvous: c10d\n  max_restarts: 3\n  min_nodes: 1\n  command: [-m, pkg.train]"),
    ("accelerate-config", "with: accelerate\n  args: [--config_file, ds.yaml]\n  command: [train.py]"),
    ("deepspeed-hostfile", "with: deepspeed\n  rendezvous: hostfile\n  command: [train.py]"),
    ("processes-own", "with: processes\n  gpu_visibility: own\n  shell: exec python3 train.py"),
];

const CONTAINER: &str = "container:\n  image: reg.lan:5000/team/train:1\n  env: { NCCL_DEBUG: WARN }\n  mounts:\n    - /data:/data:ro\n    \
                         - { from: ~/output, to: /workspace/output, create: true }\n";

fn inventory_text(launch: &str, mode: SlurmContainer) -> String {
    let container = if mode == SlurmContainer::None { "" } else { CONTAINER };
    let image = if mode == SlurmContainer::Apptainer { ", image: /shared/train.sif" } else { "" };
    format!(
        "name: train\n{container}env: {{ OMP_NUM_THREADS: 8 }}\nlaunch:\n  {launch}\nslurm: {{ nodes: 2, gpus_per_node: 8, partition: gpu, time: \"20:00:00\", \
         cpus_per_task: 10, container: {}{image}, args: [--account=lab, --exclusive] }}\n",
        mode.as_str()
    )
}

fn render(text: &str) -> String {
    let source = InventorySource { name: "inventory.yaml".to_owned(), text: text.to_owned() };
    let inventory = Inventory::load(&[source], &[]).unwrap_or_else(|problems| panic!("{text}\n{problems:#?}"));
    let job = inventory.slurm_job().unwrap_or_else(|problems| panic!("{text}\n{problems:#?}"));
    render_batch_script(&inventory, &job, &[("CODE_COMMIT".to_owned(), "it's 3f2a".to_owned())]).expect("a script")
}

fn simple(more: &str) -> String {
    render(&format!("name: a\nlaunch: {{ nproc_per_node: 2, command: [t.py] }}\nslurm: {{ nodes: 2, gpus_per_node: 2{more} }}\n"))
}

/// The parts that are the same in every script are in `assets`.
fn without_assets(script: &str) -> String {
    let assets = [
        ("slurm/batch", include_str!("../../../assets/slurm/batch.sh")),
        ("slurm/look", include_str!("../../../assets/slurm/look.sh")),
        ("slurm/task", include_str!("../../../assets/slurm/task.sh")),
        ("slurm/start", include_str!("../../../assets/slurm/start.sh")),
        ("slurm/stop", include_str!("../../../assets/slurm/stop.sh")),
        ("slurm/docker", include_str!("../../../assets/slurm/docker.sh")),
        ("slurm/steps", include_str!("../../../assets/slurm/steps.sh")),
        ("slurm/step", include_str!("../../../assets/slurm/step.sh")),
        ("slurm/enter", include_str!("../../../assets/slurm/enter.sh")),
        ("slurm/run", include_str!("../../../assets/slurm/run.sh")),
        ("slurm/hold", include_str!("../../../assets/slurm/hold.sh")),
        ("slurm/exec", include_str!("../../../assets/slurm/exec.sh")),
        ("slurm/idle", include_str!("../../../assets/slurm/idle.sh")),
        ("slurm/remove-pyxis", include_str!("../../../assets/slurm/remove-pyxis.sh")),
        ("read", include_str!("../../../assets/read.sh")),
        ("task", include_str!("../../../assets/task.sh")),
        ("keeper", include_str!("../../../assets/keeper.sh")),
        ("node", include_str!("../../../assets/node.sh")),
        ("worker", include_str!("../../../assets/worker.sh")),
        ("lib", include_str!("../../../assets/lib.sh")),
        ("reap", include_str!("../../../assets/reap.sh")),
        ("pipe", include_str!("../../../assets/pipe.sh")),
        ("append", include_str!("../../../assets/append.sh")),
        ("processes", include_str!("../../../assets/processes.sh")),
        ("setup", include_str!("../../../assets/setup.sh")),
    ];
    // Not a script for shellcheck, because of the line before `#!`.
    let script = format!("The script for sbatch without the wrappers: (assets/NAME.sh) stands for that file.\n{script}");
    assets.iter().fold(script, |text, (name, asset)| {
        let body = if asset.starts_with("# shellcheck shell=") && name.starts_with("slurm") {
            asset.split_once('\n').map_or(*asset, |(_, rest)| rest)
        } else {
            asset
        };
        text.replace(body, &format!("(assets/{name}.sh)\n"))
    })
}

/// Tasks on the login node, then two in the container.
fn with_tasks(mode: SlurmContainer) -> String {
    let tasks = "prepare:\n  - { name: code, sync: { from: ., to: ~/src } }\n  \
                 - { name: which commit, hosts: master, in: host, run: cat ~/src/COMMIT, register: CODE_COMMIT }\n";
    let steps = "  - { name: install it, run: pip install /data/x.whl, unless: \"python3 -c 'import x'\", env: { A: \"b $c\" }, retries: 2 }\n  \
                 - { name: version, hosts: workers, once: true, run: python3 -V, register: PY_VERSION }\n";
    let steps = if mode == SlurmContainer::None { "" } else { steps };
    format!("{}{tasks}{steps}", inventory_text(LAUNCHERS[0].1, mode))
}

fn all_scripts() -> Vec<(String, String)> {
    let tasks = [SlurmContainer::None, SlurmContainer::Docker, SlurmContainer::Pyxis]
        .map(|mode| (format!("torchrun-tasks-{}", mode.as_str()), mode));
    let mut all: Vec<(String, String)> = tasks.into_iter().map(|(name, mode)| (name, render(&with_tasks(mode)))).collect();
    assert!(Launcher::ALL.iter().all(|launcher| LAUNCHERS.iter().any(|(name, _)| *name == launcher.as_str())));
    for (name, launch) in LAUNCHERS {
        for mode in SlurmContainer::ALL {
            // The forms of a launcher differ in their words alone.
            if mode == SlurmContainer::None || !name.contains('-') || (name == "processes-own" && mode == SlurmContainer::Docker) {
                all.push((format!("{name}-{}", mode.as_str()), render(&inventory_text(launch, mode))));
            }
        }
    }
    all
}

/// `BLESS=1` rewrites them for review.
#[test]
fn scripts_match_golden_files() {
    let mut wrong = Vec::new();
    for (name, script) in all_scripts() {
        let found = without_assets(&script);
        assert!(!found.contains('\0') && found.matches("(assets/").count() >= 12, "{name}");
        if !matches_golden(&format!("tests/data/slurm/{name}.txt"), &found) {
            wrong.push(name);
        }
    }
    assert!(wrong.is_empty(), "{wrong:?} differ from tests/data/slurm; BLESS=1 rewrites them for review");
}

fn run_on(program: &str, args: &[&str], files: &[PathBuf]) {
    match Command::new(program).args(args).args(files).output() {
        Ok(out) => assert!(out.status.success(), "{}{}", String::from_utf8_lossy(&out.stdout), String::from_utf8_lossy(&out.stderr)),
        Err(error) => eprintln!("{program} was not run: {error}"),
    }
}

/// The files that a script writes, written by bash itself.
fn extract_files(script: &str, dir: &Path) -> Vec<PathBuf> {
    std::fs::create_dir_all(dir.join("files")).expect("made");
    let functions = script.trim_end().strip_suffix("main \"$@\"").expect("main is the last line");
    // Nothing above `write_files` runs anything but settings.
    let out = Command::new("bash")
        .args(["-c", &format!("{functions}\ndir=$1\nwrite_files"), "bash", &dir.display().to_string()])
        .env("SLURM_JOB_ID", "7")
        .output()
        .expect("bash");
    assert!(out.status.success(), "{}", String::from_utf8_lossy(&out.stderr));
    let names = ["env", "argv", "worker.argv", "look", "task", "start", "stop-node", "remove", "step", "hold", "task-3.env", "task-3"];
    names.iter().map(|name| dir.join("files").join(name)).filter(|file| file.exists()).collect()
}

#[test]
fn scripts_and_their_files_are_clean() {
    let dir = tempfile::tempdir().expect("a folder");
    let (mut scripts, mut parts) = (Vec::new(), Vec::new());
    for (name, script) in all_scripts() {
        let file = dir.path().join(format!("{name}.sbatch"));
        std::fs::write(&file, &script).expect("written");
        run_on("bash", &["-n"], std::slice::from_ref(&file));
        if name.starts_with("torchrun-") || name.starts_with("processes-own") {
            scripts.push(file);
            parts.extend(extract_files(&script, &dir.path().join(&name)));
        }
    }
    run_on("shellcheck", &["-s", "bash"], &scripts);
    // What the argv needs is set by the files that are read before it, and a `$` of the user stays one.
    run_on("shellcheck", &["-s", "sh", "-e", "SC2154,SC2034,SC2016"], &parts);
}

#[test]
fn rules_of_resources_hold() {
    let text = simple(", cpus_per_task: 4, args: [--account=lab]");
    for line in
        ["--nodes=2", "--ntasks=2", "--ntasks-per-node=1", "--gpus-per-node=2", "--cpus-per-task=4", "--no-requeue", "--open-mode=append"]
    {
        assert!(text.contains(&format!("\n#SBATCH {line}\n")), "{line}");
    }
    assert!(!text.contains("--gpus=") && !text.contains("ntasks-per-gpu") && !text.contains("gpus-per-task"));
    assert!(text.contains("export SRUN_CPUS_PER_TASK=$SLURM_CPUS_PER_TASK"));
    let head = text.split("\nset -u\n").next().expect("a head");
    assert!(head.lines().skip(1).all(|line| line.is_empty() || line.starts_with('#')), "a command would end sbatch's options");
    assert!(!simple(", args: [--gres=gpu:h200:2]").contains("--gpus-per-node"), "the user's own request stands alone");
    assert!(simple(", requeue: true").contains("\n#SBATCH --requeue\n"));
}

#[test]
fn rules_of_rendezvous_and_steps_hold() {
    let text = simple("");
    assert!(text.contains("scontrol show hostnames \"$SLURM_JOB_NODELIST\") || fail"), "no `|| echo localhost`");
    for never in ["SLURM_LAUNCH_NODE_IPADDR", "hostname -", "--export=ALL,", "SLURM_PROCID\"", "$SLURM_NODEID"] {
        assert!(!text.contains(never), "{never}");
    }
    for step in text.lines().filter(|line| line.contains("srun \"${each_node[@]}\"")) {
        // One node that cannot be stopped or cleaned holds up no other.
        let on_failure = if step.contains("/files/stop-node") || step.contains("/files/remove") { 0 } else { 1 };
        assert!(step.contains(&format!("--kill-on-bad-exit={on_failure}")), "{step}");
        assert!(step.contains("--overlap") != step.starts_with("  ORCH_SECRETS="), "side steps overlap, the ranks' step does not: {step}");
    }
    assert!(text.contains("--wait=0"), "a node whose ranks have ended waits for the others");
    assert!(text.contains("master_port=$((10000 + SLURM_JOB_ID % 50000))"));
    let c10d = render(&inventory_text(LAUNCHERS[5].1, SlurmContainer::None));
    assert!(c10d.contains("\"--rdzv_id=$ORCH_RENDEZVOUS_ID\"") && c10d.contains("\"$SLURM_JOB_ID-$start\""), "a new one for each start");
    assert!(!c10d.contains("--node_rank"), "ranks are the rendezvous's");
}

#[test]
fn rules_of_containers_hold() {
    let pyxis = render(&inventory_text(LAUNCHERS[0].1, SlurmContainer::Pyxis));
    assert!(!pyxis.contains("#SBATCH --container"), "sbatch may not know pyxis");
    assert!(pyxis.contains("--container-image=reg.lan:5000#team/train:1") && pyxis.contains("--container-env="));
    assert!(pyxis.contains("/bin/sh -c 'exec /bin/sh \"$0\"'"), "srun looks for the command on the node");
    let docker = render(&inventory_text(LAUNCHERS[0].1, SlurmContainer::Docker));
    assert!(docker.contains("\"--gpus=\\\"device=$gpus\\\"\"") && !docker.contains("--gpus=all"));
    for flag in ["--rm", "--init", "\"--label=orchestrate.slurm_job=$SLURM_JOB_ID\"", "--cgroup-parent=", "trap 'docker rm -f"] {
        assert!(docker.contains(flag), "{flag}");
    }
    assert!(!docker.contains("--env="), "`docker inspect` shows no variable");
}

#[test]
fn secrets_are_in_no_script() {
    let text = "name: a\nsecrets: [HF_TOKEN]\nlaunch: { nproc_per_node: 2, command: [t.py] }\nslurm: { nodes: 2, secrets: file }\n";
    let script = render(text);
    assert!(script.contains("secrets_file=$root/$name/slurm-secrets\n"));
    let (read, look) = (script.find("  read_secrets\n").expect("read"), script.find("  look_at_nodes\n").expect("the first step"));
    assert!(read < look, "the file is gone before the first step");
}

#[test]
fn fixed_ports_and_addresses_are_kept() {
    let text = "name: a\nhosts: [{ name: gpu01, fabric_address: 10.1.0.1 }, gpu02]\nlaunch: { nproc_per_node: 2, master_port: 29511, command: [t.py] }\n\
                slurm: { gpus_per_node: 2 }\n";
    let script = render(text);
    assert!(script.contains("\nmaster_port=29511 ") || script.contains("\nmaster_port=29511\n"));
    assert!(script.contains("files/fabric\" <<'END'\ngpu01 10.1.0.1\nEND\n") && script.contains("#SBATCH --nodes=2\n"));
}

#[test]
fn file_name_of_a_rank_is_no_first_failure() {
    let dir = tempfile::tempdir().expect("a folder");
    let out = dir.path().join("train/n1.out");
    std::fs::create_dir_all(&out).expect("made");
    std::fs::write(dir.path().join("node-list"), "n1\n").expect("written");
    let ended = [("r1.rank-3.1.rc", "7 20.5 \n"), ("r1.rank-1\n1 99 forged n1\n.0.rc", "9 10 \n"), ("r1.rank-0 9.0.rc", "9 10 \n")];
    for (name, text) in ended {
        std::fs::write(out.join(name), text).expect("written");
    }
    let script = format!(
        "{}\nroot=$0 dir=$0 name=train run=r1 start=0 code=1 first=\nkeep_first_failure\nkeep_first_failure\necho \"exit $code\"",
        include_str!("../../../assets/slurm/batch.sh")
    );
    let shell = std::process::Command::new("bash").args(["-c", &script]).arg(dir.path()).output().expect("a shell");
    let text = String::from_utf8_lossy(&shell.stdout).into_owned();
    assert!(text.starts_with("orchestrate: rank 3 on n1 failed first, with exit code 7:"), "{text}");
    assert!(text.ends_with("exit 7\n") && text.matches("failed first").count() == 1, "{text}");
    let notes = std::fs::read_to_string(dir.path().join("status")).expect("notes");
    assert!(notes.ends_with(" 0 first 3 n1 7\n") && notes.lines().count() == 1, "{notes}");
}

/// What a task in the container printed is data: one line of text reaches later steps, byte for byte, and nothing else does.
#[test]
fn registered_value_of_a_step_is_one_line_of_text() {
    let step = include_str!("../../../assets/slurm/step.sh");
    let keep = step.find("# keep_value").zip(step.find("# ended")).map(|(from, to)| &step[from..to]).expect("a function");
    let read = crate::plan::host_context::SAFE_READ_SH;
    let script = format!(
        "fail() {{ echo \"fail: $*\"; exit 1; }}\ndir=$1 out=$1 host=n0 n=2 register=VALUE shared='' task=t\n{read}\n{keep}\nkeep_value\n\
         . \"$dir/registered/n0/2\"\nprintf '<%s>' \"$VALUE\""
    );
    let long = "x".repeat(4097);
    let cases: [(&[u8], &str); 7] = [
        (b"it's $(id) \"b\"\n", "<it's $(id) \"b\">"),
        ("版本 1".as_bytes(), "<版本 1>"),
        (b"", "<>"),
        (b"a\nb\n", "fail: task 2: it registers one line"),
        (b"a\x1b[2J\n", "fail: task 2: what it registers has a control character"),
        (b"a\xff\n", "fail: task 2: what it registers is not UTF-8"),
        (long.as_bytes(), "fail: task 2: what it registers is longer than 4 KiB"),
    ];
    for (printed, expected) in cases {
        let dir = tempfile::tempdir().expect("a folder");
        std::fs::write(dir.path().join("t.value"), printed).expect("written");
        let shell = std::process::Command::new("/bin/sh").args(["-c", &script, "sh"]).arg(dir.path()).output().expect("a shell");
        let said = String::from_utf8_lossy(&shell.stdout).into_owned();
        assert!(said.starts_with(expected), "{said:?} for {expected:?}");
    }
    let dir = tempfile::tempdir().expect("a folder");
    std::os::unix::fs::symlink("/etc/hostname", dir.path().join("t.value")).expect("linked");
    let shell = std::process::Command::new("/bin/sh").args(["-c", &script, "sh"]).arg(dir.path()).output().expect("a shell");
    assert!(shell.stdout.starts_with(b"fail: task 2: its output could not be kept"), "a link is not followed");
}
