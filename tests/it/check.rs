//! Preflight: what is wrong with a host is found before anything begins, and nothing else is.

use std::collections::BTreeMap;
use std::path::Path;

use orchestrate::event::EventKind;
use orchestrate::sandbox::Faults;
use serde_json::Value;

use crate::support::{Bench, Ended, Job, Laptop, word};

/// Hosts of a size that this machine can pass for.
async fn bench(hosts: usize) -> Bench {
    Bench::new(&format!("{{hosts: {hosts}, gpus: 1}}")).await
}

fn job(top: &str) -> Job {
    Job { container: "shm_size: 2g\n".to_owned(), top: top.to_owned(), ..Job::default() }
}

/// Without what this machine may lack: it is no host of a fleet.
const HERE: &str = "checks: { skip: [disk, docker-disk, inodes, memory, cpus] }\n";

/// What `check --json` says, by the check's name: its level and all its words.
async fn check(laptop: &Laptop, file: &Path, code: i32, more: &[&str]) -> BTreeMap<String, (String, String)> {
    let mut words = vec!["check", word(file), "--json"];
    words.extend(more);
    let ended = laptop.run(&words).await;
    ended.code(code);
    let value: Value = serde_json::from_str(&ended.out).unwrap_or_else(|e| panic!("{e}: {}", ended.out));
    let text = |v: &Value| v.as_str().unwrap_or_default().to_owned();
    let list = value["checks"].as_array().expect("checks");
    list.iter().map(|c| (text(&c["name"]), (text(&c["level"]), c["results"].to_string()))).collect()
}

#[track_caller]
fn found(all: &BTreeMap<String, (String, String)>, name: &str, level: &str, words: &[&str]) {
    let (is, text) = all.get(name).unwrap_or_else(|| panic!("no {name}"));
    assert_eq!(is, level, "{name}: {text}");
    for words in words {
        assert!(text.contains(words), "{name} does not say {words:?}: {text}");
    }
}

/// Whether a clock is told to be so many seconds ahead, by a measurement with its uncertainty: `+4.99 s ± 0.01 s from gpu01`.
fn ahead(text: &str, seconds: f64) -> bool {
    let number = |words: &str| words.split(' ').next().and_then(|w| w.parse::<f64>().ok());
    let apart = text.split('"').filter_map(|words| words.split_once(" s ± ")).filter_map(|(a, b)| Some((number(a)?, number(b)?)));
    apart.into_iter().any(|(apart, uncertain)| (apart - seconds).abs() <= uncertain + 0.05)
}

fn programs(list: &[(&str, &str)]) -> Faults {
    Faults { programs: list.iter().map(|(n, s)| ((*n).to_owned(), (*s).to_owned())).collect(), ..Faults::default() }
}

#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn a_healthy_fleet_gives_no_warning() {
    let bench = bench(3).await;
    let laptop = bench.laptop("laptop");
    let file = bench.inventory("healthy", &job(HERE));
    let all = check(&laptop, &file, 0, &[]).await;
    let of = |level: &str| all.values().filter(|(is, _)| is == level).count();
    assert_eq!((of("warn"), of("fail")), (0, 0), "{all:#?}");
    // A check that did not run proves nothing.
    for name in [
        "clock",
        "arch",
        "limits",
        "shm",
        "leftovers",
        "docker",
        "container-name",
        "cgroup",
        "image",
        "image-versions",
        "nvidia-runtime",
        "gpu-count",
        "gpu-model",
        "gpu-capability",
        "driver",
        "mig",
        "ecc",
        "persistence",
        "gpu-idle",
        "mounts",
        "mount-system",
        "mount-write",
        "master-address",
        "nic",
        "mtu",
        "nccl-conf",
        "master-port",
        "reach-master",
        "reach-ephemeral",
    ] {
        found(&all, name, "pass", &[]);
    }
    // The page for people: 80 columns.
    let page = laptop.run(&["check", word(&file)]).await;
    page.code(0).says("CHECK  healthy  3 hosts").says("gpu[01-03]").says("reach-ephemeral");
    assert!(page.out.lines().all(|line| line.chars().count() <= 80), "{}", page.out);
    bench.done().await;
}

#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn what_is_wrong_with_one_host_is_named_with_its_evidence() {
    let bench = bench(3).await;
    let laptop = bench.laptop("laptop");
    let same = "checks: { skip: [disk, docker-disk, inodes, memory, cpus], same: ['hostname'] }\n";
    let file = bench.inventory("faulty", &job(same));
    // Of GPUs the stand-in tells what a real one would.
    let smi = r#"out=$("$SANDBOX_HOST/bin/nvidia-smi" "$@"); rc=$?
case "$*" in
*query-gpu*) printf '%s\n' "$out" | sed 's/550.127.05/535.129/; s/H100 80GB HBM3/A100/; s/Enabled, Enabled, 0, Disabled/Disabled, Disabled, 7, Enabled/; s/, 9.0,/, 8.0,/' ;;
*query-remapped-rows*) "$SANDBOX_HOST/bin/nvidia-smi" -L | sed 's/.*UUID: \(.*\))/\1, 1, 0/' ;;
*query-compute-apps*) id=$("$SANDBOX_HOST/bin/nvidia-smi" -L | sed 's/.*UUID: \(.*\))/\1/'); echo "$PPID, $id, 4096, python3" ;;
*) printf '%s\n' "$out" ;;
esac
exit $rc"#;
    let dmesg = "echo '[  9.1] NVRM: Xid (PCI:0000:18:00): 79, pid=0, GPU has fallen off the bus.'";
    let docker = r#"case "$*" in *'image inspect'*) echo sha256:0123456789abcdef; exit 0 ;; esac
out=$("$SANDBOX_HOST/bin/docker" "$@"); rc=$?; case "$*" in *info*) out=$(printf '%s\n' "$out" | sed 's/^cgroupfs/systemd/') ;; esac
[ -z "$out" ] || printf '%s\n' "$out"; exit $rc"#;
    let mut faults = programs(&[("nvidia-smi", smi), ("dmesg", dmesg), ("docker", docker)]);
    faults.clock_skew = 5.0;
    bench.faults("gpu03", &faults);
    let all = check(&laptop, &file, 3, &[]).await;
    found(&all, "clock", "warn", &["gpu03", " s ± ", "from gpu01"]);
    assert!(ahead(&all["clock"].1, 5.0), "{}", all["clock"].1);
    found(&all, "driver", "warn", &["535.129 instead of 550.127.05", "\"agree\":2"]);
    found(&all, "gpu-model", "warn", &["A100 instead of"]);
    found(&all, "gpu-capability", "warn", &["8.0 instead of 9.0"]);
    found(&all, "persistence", "warn", &["off on GPU 0"]);
    found(&all, "mig", "warn", &["on, on GPU 0"]);
    found(&all, "ecc", "warn", &["uncorrected memory errors on GPU 0"]);
    found(&all, "row-remap", "warn", &["wait for a reset"]);
    found(&all, "gpu-idle", "fail", &["GPU 0", "4096 MiB", "runs `"]);
    found(&all, "xid", "fail", &["Xid 79: the GPU fell off the bus", "fallen off the bus."]);
    found(&all, "image", "fail", &["0123456789ab instead of", "\"agree\":2"]);
    found(&all, "cgroup", "warn", &["daemon-reload"]);
    found(&all, "same", "fail", &["`hostname`"]);
    // The line that people read.
    let page = laptop.run(&["check", word(&file), "--only", "driver"]).await;
    page.code(0).says("2 hosts agree, gpu03 differs: 535.129 instead of 550.127.05");
    assert!(page.out.lines().all(|line| line.chars().count() <= 80), "{}", page.out);
    // What is left out, by the flag or the inventory, is not told.
    let all = check(&laptop, &file, 0, &["--skip", "gpu,image,same,clock"]).await;
    assert!(!all.contains_key("driver") && !all.contains_key("disk") && !all.contains_key("clock") && all.contains_key("mtu"));
    bench.done().await;
}

#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn a_slow_link_raises_no_false_alarm_and_words_are_checked() {
    let bench = bench(2).await;
    let laptop = bench.laptop("laptop");
    let file = bench.inventory("words", &job("checks: { max_clock_skew: 150ms }\n"));
    // 0.2 s apart behind 0.4 s of round trip: it cannot be told, so it is not.
    bench.faults("gpu02", &Faults { clock_skew: 0.2, round_trip: 0.4, ..Faults::default() });
    let all = check(&laptop, &file, 0, &["--only", "clock"]).await;
    found(&all, "clock", "pass", &[" s ± "]);
    // What no link explains is a failure, since the inventory sets the bound.
    bench.faults("gpu02", &Faults { clock_skew: 20.5, ..Faults::default() });
    let all = check(&laptop, &file, 3, &["--only", "clock"]).await;
    found(&all, "clock", "fail", &["gpu02", " s ± ", "from gpu01"]);
    assert!(ahead(&all["clock"].1, 20.5), "{}", all["clock"].1);
    // A date that knows no fractions, as busybox's.
    let mut faults = programs(&[("date", "case $* in *%N*) echo \"$(/bin/date +%s).%N\" ;; *) exec /bin/date \"$@\" ;; esac")]);
    bench.faults("gpu02", &faults);
    let all = check(&laptop, &file, 0, &["--only", "clock"]).await;
    found(&all, "clock", "pass", &[]);
    // nvidia-smi that answers rubbish, and one that fails.
    faults.programs.insert(
        "nvidia-smi".to_owned(),
        "echo 'Unable to determine the device handle for GPU0000:3B:00.0: GPU is lost.'; exit 15".to_owned(),
    );
    bench.faults("gpu02", &faults);
    let all = check(&laptop, &file, 3, &["--only", "gpu"]).await;
    found(&all, "gpu-count", "fail", &["0 of 1 GPUs are there", "GPU is lost"]);
    found(&all, "driver", "pass", &["GPU is lost"]);
    // Unknown words.
    laptop.run(&["check", word(&file), "--only", "gpu-idel"]).await.code(2).says("no check `gpu-idel`").says("did you mean `gpu-idle`?");
    laptop.run(&["check", word(&file), "--skip", "nonsense"]).await.code(2).says("check --list");
    laptop.run(&["check", "--list"]).await.code(0).says("reach-ephemeral").says("NVSwitch");
    // A host that is away is told beside what the others answer.
    bench.faults("gpu02", &Faults { refuse_key: true, ..Faults::default() });
    let away = laptop.run(&["check", word(&file), "--only", "docker"]).await;
    away.code(4).says("1 unreachable").says("AWAY  gpu02").says("7 passed");
    bench.done().await;
}

/// The kinds of event of a finished command's only run.
fn checked(laptop: &Laptop) -> Vec<(String, String)> {
    let kinds = laptop.kinds().into_iter();
    kinds
        .filter_map(|k| match k {
            EventKind::Checked { check, level, .. } => Some((check, level.word().to_owned())),
            _ => None,
        })
        .collect()
}

#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn up_looks_before_it_launches() {
    let bench = bench(2).await;
    let laptop = bench.laptop("first");
    let file = bench.inventory("looks", &job(HERE));
    bench.faults("gpu02", &programs(&[("nvidia-smi", "\"$SANDBOX_HOST/bin/nvidia-smi\" \"$@\" | sed 's/550.127.05/535.129/'")]));
    bench.end(None, 0);
    let up: Ended = laptop.run(&["up", word(&file), "--preflight", "fast", "--progress", "plain"]).await;
    up.code(0).recap("OK").says("driver: 535.129 instead of 550.127.05").says("to look at");
    let told = checked(&laptop);
    assert!(told.contains(&("driver".to_owned(), "warn".to_owned())) && told.contains(&("reach-ephemeral".to_owned(), "pass".to_owned())));
    assert!(!told.iter().any(|(name, _)| name == "nvidia-runtime"), "that is not a fast one");
    bench.nothing_left().await;
    // A failure refuses the launch; nothing is begun.
    let dmesg = "echo 'NVRM: Xid (PCI:0000:18:00): 79, pid=0, GPU has fallen off the bus.'";
    bench.faults("gpu02", &programs(&[("dmesg", dmesg)]));
    let second = bench.laptop("second");
    let up = second.run(&["up", word(&file), "--preflight", "full"]).await;
    up.code(3).says("gpu02").says("Xid 79: the GPU fell off the bus").says("reboot the host");
    bench.nothing_left().await;
    // As the person wants it.
    bench.laptop("third").run(&["up", word(&file), "--preflight", "off"]).await.code(0).recap("OK");
    bench.done().await;
}
