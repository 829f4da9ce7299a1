//! Preflight finds each fault before the launch, and reports nothing on healthy hosts.

use std::collections::BTreeMap;
use std::path::Path;

use orchestrate::event::EventKind;
use orchestrate::sandbox::Faults;
use serde_json::Value;

use crate::support::{CliOutput, JobSpec, Laptop, SandboxFixture, path_str};

/// Hosts of a size that this machine can fake.
async fn one_gpu_fixture(hosts: usize) -> SandboxFixture {
    SandboxFixture::start(&format!("{{hosts: {hosts}, gpus: 1}}")).await
}

fn job_with_top_level(top: &str) -> JobSpec {
    JobSpec { container: "shm_size: 2g\n".to_owned(), top_level: top.to_owned(), ..JobSpec::default() }
}

/// Checks of capacity that the test machine may fail.
const LOCAL_CAPACITY_CHECKS: &str = "disk,docker-disk,inodes,memory,cpus";

/// The inventory's `checks` without those.
fn checks_block(more: &str) -> String {
    format!("checks: {{ skip: [{LOCAL_CAPACITY_CHECKS}]{more} }}\n")
}

/// The results of `check --json` by check name: the level and all texts.
async fn run_check(laptop: &Laptop, file: &Path, code: i32, more: &[&str]) -> BTreeMap<String, (String, String)> {
    let mut words = vec!["check", path_str(file), "--json"];
    words.extend(more);
    let ended = laptop.run(&words).await;
    ended.assert_exit_code(code);
    parse_results(&ended)
}

fn parse_results(ended: &CliOutput) -> BTreeMap<String, (String, String)> {
    let value: Value = serde_json::from_str(&ended.stdout).unwrap_or_else(|e| panic!("{e}: {}", ended.stdout));
    let text = |v: &Value| v.as_str().unwrap_or_default().to_owned();
    let list = value["checks"].as_array().expect("checks");
    list.iter().map(|c| (text(&c["name"]), (text(&c["level"]), c["results"].to_string()))).collect()
}

#[track_caller]
fn assert_check(all: &BTreeMap<String, (String, String)>, name: &str, level: &str, words: &[&str]) {
    let (is, text) = all.get(name).unwrap_or_else(|| panic!("no {name}"));
    assert_eq!(is, level, "{name}: {text}");
    for words in words {
        assert!(text.contains(words), "{name} does not say {words:?}: {text}");
    }
}

/// Whether `text` reports a clock this many seconds ahead, with an uncertainty: `+4.99 s ± 0.01 s from gpu01`.
fn is_clock_ahead(text: &str, seconds: f64) -> bool {
    let number = |words: &str| words.split(' ').next().and_then(|w| w.parse::<f64>().ok());
    let apart = text.split('"').filter_map(|words| words.split_once(" s ± ")).filter_map(|(a, b)| Some((number(a)?, number(b)?)));
    apart.into_iter().any(|(apart, uncertain)| (apart - seconds).abs() <= uncertain + 0.05)
}

fn program_faults(list: &[(&str, &str)]) -> Faults {
    Faults { programs: list.iter().map(|(n, s)| ((*n).to_owned(), (*s).to_owned())).collect(), ..Faults::default() }
}

#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn healthy_sandbox_gives_no_warning() {
    let fixture = one_gpu_fixture(3).await;
    let laptop = fixture.new_laptop("laptop");
    let file = fixture.write_inventory("healthy", &job_with_top_level(&checks_block("")));
    let all = run_check(&laptop, &file, 0, &[]).await;
    let of = |level: &str| all.values().filter(|(is, _)| is == level).count();
    assert_eq!((of("warn"), of("fail")), (0, 0), "{all:#?}");
    // These checks can run on sandbox hosts on every machine, so they must not be skipped. The list is not derived from the program's own
    // list: that also has checks that depend on this machine (kernel log, logind, InfiniBand) or on keys that this inventory lacks.
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
        assert_check(&all, name, "pass", &[]);
    }
    // What this machine may fail is asked for and answered all the same.
    let capacity = parse_results(&laptop.run(&["check", path_str(&file), "--json", "--only", LOCAL_CAPACITY_CHECKS]).await);
    let skipped: Vec<_> = capacity.iter().filter(|(_, (level, _))| level == "skipped").collect();
    assert!(capacity.len() == 5 && skipped.is_empty(), "{capacity:#?}");
    // Where there is no terminal, the text report is 120 columns wide.
    let page = laptop.run(&["check", path_str(&file)]).await;
    page.assert_exit_code(0).assert_contains("CHECK  healthy  3 hosts").assert_contains("gpu[01-03]").assert_contains("reach-ephemeral");
    assert!(page.stdout.lines().all(|line| line.chars().count() <= 120), "{}", page.stdout);
    fixture.assert_clean_and_stop().await;
}

#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn faulty_host_is_named_with_evidence() {
    let fixture = one_gpu_fixture(3).await;
    let laptop = fixture.new_laptop("laptop");
    let file = fixture.write_inventory("faulty", &job_with_top_level(&checks_block(", same: ['hostname']")));
    // The fake nvidia-smi reports what a real one would.
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
    let mut faults = program_faults(&[("nvidia-smi", smi), ("dmesg", dmesg), ("docker", docker)]);
    faults.clock_skew = 5.0;
    fixture.set_faults("gpu03", &faults);
    let all = run_check(&laptop, &file, 3, &[]).await;
    assert_check(&all, "clock", "warn", &["gpu03", " s ± ", "from gpu01"]);
    assert!(is_clock_ahead(&all["clock"].1, 5.0), "{}", all["clock"].1);
    assert_check(&all, "driver", "warn", &["535.129 instead of 550.127.05", "\"agree\":2"]);
    assert_check(&all, "gpu-model", "warn", &["A100 instead of"]);
    assert_check(&all, "gpu-capability", "warn", &["8.0 instead of 9.0"]);
    assert_check(&all, "persistence", "warn", &["off on GPU 0"]);
    assert_check(&all, "mig", "warn", &["on, on GPU 0"]);
    assert_check(&all, "ecc", "warn", &["uncorrected memory errors on GPU 0"]);
    assert_check(&all, "row-remap", "warn", &["need a reset to be remapped"]);
    assert_check(&all, "gpu-idle", "fail", &["GPU 0", "4096 MiB", "runs `"]);
    assert_check(&all, "xid", "fail", &["Xid 79: the GPU fell off the bus", "fallen off the bus."]);
    assert_check(&all, "image", "fail", &["0123456789ab instead of", "\"agree\":2"]);
    assert_check(&all, "cgroup", "warn", &["daemon-reload"]);
    assert_check(&all, "same", "fail", &["`hostname`"]);
    let page = laptop.run(&["check", path_str(&file), "--only", "driver"]).await;
    page.assert_exit_code(0).assert_contains("2 hosts agree, gpu03 differs: 535.129 instead of 550.127.05");
    assert!(page.stdout.lines().all(|line| line.chars().count() <= 120), "{}", page.stdout);
    // Skipped checks, by flag or by inventory, are not reported.
    let all = run_check(&laptop, &file, 0, &["--skip", "gpu,env,same,clock"]).await;
    assert!(!all.contains_key("driver") && !all.contains_key("disk") && !all.contains_key("clock") && all.contains_key("mtu"));
    fixture.assert_clean_and_stop().await;
}

#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn slow_link_raises_no_false_alarm() {
    let fixture = one_gpu_fixture(2).await;
    let laptop = fixture.new_laptop("laptop");
    let file = fixture.write_inventory("words", &job_with_top_level("checks: { max_clock_skew: 150ms }\n"));
    // 0.2 s apart behind 0.4 s of round trip: within the uncertainty, so not reported.
    fixture.set_faults("gpu02", &Faults { clock_skew: 0.2, round_trip: 0.4, ..Faults::default() });
    let all = run_check(&laptop, &file, 0, &["--only", "clock"]).await;
    assert_check(&all, "clock", "pass", &[" s ± "]);
    // A difference beyond the uncertainty fails, since the inventory sets the limit.
    fixture.set_faults("gpu02", &Faults { clock_skew: 20.5, ..Faults::default() });
    let all = run_check(&laptop, &file, 3, &["--only", "clock"]).await;
    assert_check(&all, "clock", "fail", &["gpu02", " s ± ", "from gpu01"]);
    assert!(is_clock_ahead(&all["clock"].1, 20.5), "{}", all["clock"].1);
    // A `date` without fractions, like busybox's.
    let mut faults = program_faults(&[("date", "case $* in *%N*) echo \"$(/bin/date +%s).%N\" ;; *) exec /bin/date \"$@\" ;; esac")]);
    fixture.set_faults("gpu02", &faults);
    let all = run_check(&laptop, &file, 0, &["--only", "clock"]).await;
    assert_check(&all, "clock", "pass", &[]);
    // An nvidia-smi that prints garbage, and one that fails.
    faults.programs.insert(
        "nvidia-smi".to_owned(),
        "echo 'Unable to determine the device handle for GPU0000:3B:00.0: GPU is lost.'; exit 15".to_owned(),
    );
    fixture.set_faults("gpu02", &faults);
    let all = run_check(&laptop, &file, 3, &["--only", "gpu"]).await;
    assert_check(&all, "gpu-count", "fail", &["0 of 1 GPUs found", "GPU is lost"]);
    assert_check(&all, "driver", "pass", &["GPU is lost"]);
    // Unknown check names.
    laptop
        .run(&["check", path_str(&file), "--only", "gpu-idel"])
        .await
        .assert_exit_code(2)
        .assert_contains("unknown check `gpu-idel`")
        .assert_contains("did you mean `gpu-idle`?");
    laptop.run(&["check", path_str(&file), "--skip", "nonsense"]).await.assert_exit_code(2).assert_contains("words.yaml --list`");
    laptop.run(&["check", "--list"]).await.assert_exit_code(0).assert_contains("reach-ephemeral").assert_contains("NVSwitch");
    // An unreachable host is reported beside the results of the others.
    fixture.set_faults("gpu02", &Faults { refuse_key: true, ..Faults::default() });
    let away = laptop.run(&["check", path_str(&file), "--only", "docker"]).await;
    away.assert_exit_code(4).assert_contains("1 unreachable").assert_contains("UNREACHABLE gpu02").assert_contains("5 passed");
    fixture.assert_clean_and_stop().await;
}

/// The kinds of event of a finished command's only run.
fn journal_checks(laptop: &Laptop) -> Vec<(String, String)> {
    let kinds = laptop.journal_kinds().into_iter();
    kinds
        .filter_map(|k| match k {
            EventKind::CheckFinished { check, level, .. } => Some((check, level.as_str().to_owned())),
            _ => None,
        })
        .collect()
}

#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn up_runs_preflight_before_launch() {
    let fixture = one_gpu_fixture(2).await;
    let laptop = fixture.new_laptop("first");
    let file = fixture.write_inventory("looks", &job_with_top_level(&checks_block("")));
    fixture
        .set_faults("gpu02", &program_faults(&[("nvidia-smi", "\"$SANDBOX_HOST/bin/nvidia-smi\" \"$@\" | sed 's/550.127.05/535.129/'")]));
    fixture.end_ranks(None, 0);
    let up: CliOutput = laptop.run(&["up", path_str(&file), "--preflight", "fast", "--progress", "plain"]).await;
    up.assert_exit_code(0).assert_recap("OK").assert_contains("driver: 535.129 instead of 550.127.05").assert_contains("1 warning");
    let output = journal_checks(&laptop);
    assert!(
        output.contains(&("driver".to_owned(), "warn".to_owned())) && output.contains(&("reach-ephemeral".to_owned(), "pass".to_owned()))
    );
    assert!(!output.iter().any(|(name, _)| name == "nvidia-runtime"), "that is not a fast one");
    fixture.assert_no_leftovers().await;
    // A failed check refuses the launch, and nothing is started.
    let dmesg = "echo 'NVRM: Xid (PCI:0000:18:00): 79, pid=0, GPU has fallen off the bus.'";
    fixture.set_faults("gpu02", &program_faults(&[("dmesg", dmesg)]));
    let second = fixture.new_laptop("second");
    let up = second.run(&["up", path_str(&file), "--preflight", "full"]).await;
    up.assert_exit_code(3).assert_contains("gpu02").assert_contains("Xid 79: the GPU fell off the bus").assert_contains("reboot the host");
    fixture.assert_no_leftovers().await;
    // `--preflight off` launches anyway.
    fixture.new_laptop("third").run(&["up", path_str(&file), "--preflight", "off"]).await.assert_exit_code(0).assert_recap("OK");
    fixture.assert_clean_and_stop().await;
}
