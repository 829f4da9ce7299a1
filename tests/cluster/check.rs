//! `check` on real hosts: faults of real kernels, firewalls and engines, each found by the check that is meant for it. GPU values come from
//! the nvidia-smi stand-in.

use std::collections::BTreeMap;
use std::path::Path;

use serde_json::Value;

use crate::laptop::{Laptop, path_str};
use crate::support::{Cluster, JobSpec};

/// This machine may lack these; that is no fault of the hosts.
const SKIP_LOCAL_CAPACITY_CHECKS: &str = "checks: { skip: [disk, docker-disk, inodes, memory, cpus] }\n";

/// The outcome and the JSON results of each check, by its name.
struct JsonCheckResults(BTreeMap<String, (String, Value)>);

impl JsonCheckResults {
    #[track_caller]
    fn assert_check(&self, name: &str, level: &str, words: &[&str]) -> &JsonCheckResults {
        let (is, results) = self.0.get(name).unwrap_or_else(|| panic!("no {name} in {:?}", self.0.keys()));
        let text = results.to_string();
        assert_eq!(is, level, "{name}: {text}");
        for words in words {
            assert!(text.contains(words), "{name}: {words:?} is missing in {text}");
        }
        // Feeds the table of docs/checks.md.
        for output in results.as_array().expect("results").iter().filter(|output| output["level"] == level) {
            println!("{level} | `{name}` | {}: {} | {}", output["hosts"], output["message"], output["hint"]);
        }
        self
    }
}

#[track_caller]
fn run_check(laptop: &Laptop, file: &Path, code: i32, only: &str) -> JsonCheckResults {
    let ended = laptop.run(&["check", path_str(file), "--json", "--only", only]);
    ended.assert_exit_code(code);
    let value: Value = serde_json::from_str(&ended.stdout).unwrap_or_else(|e| panic!("{e}: {}", ended.stdout));
    let text = |v: &Value| v.as_str().unwrap_or_default().to_owned();
    let list = value["checks"].as_array().expect("checks").iter();
    JsonCheckResults(list.map(|c| (text(&c["name"]), (text(&c["level"]), c["results"].clone()))).collect())
}

/// Whether `text` reports a clock 5 s ahead, with an uncertainty: `+4.99 s ± 0.01 s from gpu01`.
fn is_five_seconds_ahead(text: &str) -> bool {
    let number = |words: &str| words.split(' ').next().and_then(|w| w.parse::<f64>().ok());
    let apart = text.split('"').filter_map(|words| words.split_once(" s ± ")).filter_map(|(a, b)| Some((number(a)?, number(b)?)));
    apart.into_iter().any(|(apart, uncertain)| (apart - 5.0).abs() <= uncertain + 0.05)
}

/// An inventory with enough shared memory, changed by `change`.
fn write_modified_inventory(cluster: &Cluster, laptop: &Laptop, job: &JobSpec, change: impl Fn(String) -> String) -> std::path::PathBuf {
    let file = cluster.write_inventory(laptop, job);
    let text = std::fs::read_to_string(&file).expect("an inventory").replace("shm_size: 64m", "shm_size: 2g");
    std::fs::write(&file, change(text)).expect("written");
    file
}

#[test]
#[ignore = "needs the test hosts: tests/run says how"]
fn healthy_hosts_give_no_warning() {
    let cluster = Cluster::acquire();
    let laptop = Laptop::new();
    let mut job = JobSpec::torch("healthy").with_hosts(&["gpu01", "gpu02"]);
    job.top_level = SKIP_LOCAL_CAPACITY_CHECKS.to_owned();
    let file = write_modified_inventory(&cluster, &laptop, &job, |text| text);
    let all = "host,docker,env,gpu,files,network";
    let found = run_check(&laptop, &file, 0, all);
    let wrong: Vec<_> = found.0.iter().filter(|(_, (level, _))| matches!(level.as_str(), "warn" | "fail")).collect();
    assert!(wrong.is_empty(), "{wrong:#?}");
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
        "gpu-idle",
        "mounts",
        "mount-system",
        "mount-content",
        "master-address",
        "nic",
        "mtu",
        "nccl-conf",
        "master-port",
        "reach-master",
        "reach-ephemeral",
    ] {
        found.assert_check(name, "pass", &[]);
    }
    let page = laptop.run(&["check", path_str(&file)]);
    page.assert_exit_code(0).assert_contains("gpu[01-02]");
    println!("{}", page.stdout);
    assert!(page.stdout.lines().all(|line| line.chars().count() <= 120), "{}", page.stdout);
}

#[test]
#[ignore = "needs the test hosts: tests/run says how"]
fn network_faults_are_found() {
    let cluster = Cluster::acquire();
    let laptop = Laptop::new();
    let file = write_modified_inventory(&cluster, &laptop, &JobSpec::busybox("ways"), |text| text);
    let network = "master-port,reach-master,reach-ephemeral";
    cluster.inject_fault("gpu01", &["busy-port", "29500"]);
    run_check(&laptop, &file, 3, network).assert_check("master-port", "fail", &["gpu01", "port 29500 is already in use"]).assert_check(
        "reach-ephemeral",
        "pass",
        &[],
    );
    cluster.inject_fault("gpu01", &["free-port", "29500"]);
    cluster.inject_fault("gpu01", &["drop-port", "29500"]);
    run_check(&laptop, &file, 3, network)
        .assert_check("reach-master", "fail", &["gpu02", "no answer from gpu01:29500", "DROP"])
        .assert_check("reach-ephemeral", "pass", &[]);
    cluster.inject_fault("gpu01", &["undrop-port", "29500"]);
    cluster.inject_fault("gpu01", &["reject-port", "29500"]);
    run_check(&laptop, &file, 3, network).assert_check(
        "reach-master",
        "fail",
        &["gpu01:29500 is refused although it listens (firewall REJECT?)"],
    );
    cluster.inject_fault("gpu01", &["unreject-port", "29500"]);
    // Blocks ephemeral ports only: the rendezvous works, NCCL would not.
    cluster.mark_for_healing("gpu02");
    cluster.exec_on("gpu02", "iptables -w -I INPUT ! -i lo -p tcp --syn --dport 32768:60999 -j DROP");
    run_check(&laptop, &file, 3, network).assert_check("reach-master", "pass", &[]).assert_check(
        "reach-ephemeral",
        "fail",
        &["gpu01", "cannot connect to gpu02 on an ephemeral port", "DROP"],
    );
    cluster.heal_faults();
    // On one host the name resolves to another machine.
    let named = write_modified_inventory(
        &cluster,
        &laptop,
        &JobSpec::busybox("named").with_hosts(&["{ name: gpu01, fabric_address: gpu01 }", "gpu02"]),
        |text| text,
    );
    run_check(&laptop, &named, 0, "master-address").assert_check("master-address", "pass", &[]);
    cluster.exec_on("gpu02", "cp /etc/hosts /root/hosts.kept; { echo 127.0.1.1 gpu01; grep -v gpu01 /root/hosts.kept; } >/etc/hosts");
    let found = run_check(&laptop, &named, 3, "master-address");
    cluster.exec_on("gpu02", "cat /root/hosts.kept >/etc/hosts; rm /root/hosts.kept");
    found.assert_check("master-address", "fail", &["gpu02", "gpu01 resolves to 127.0.1.1"]);
}

/// Installs a `date` on a host whose clock is ahead; it is slow in both directions, like a slow link.
fn install_slow_date(cluster: &Cluster, host: &str, ahead: &str, delay: &str) {
    let time = format!("$(/bin/date +%s.%N | awk '{{ printf \"%.9f\", $1 + {ahead} }}')");
    let script = format!("#!/bin/sh\nsleep {delay}\n/bin/date -d \"@{time}\" \"$@\"\nsleep {delay}\n");
    cluster.exec_on(host, &format!("cat >/usr/local/bin/date <<'END'\n{script}END\nchmod 755 /usr/local/bin/date"));
}

#[test]
#[ignore = "needs the test hosts: tests/run says how"]
fn clock_image_and_engine_faults_are_found() {
    let cluster = Cluster::acquire();
    let laptop = Laptop::new();
    let mut job = JobSpec::busybox("engines");
    job.container = "args: [--ulimit=nofile=256]".to_owned();
    job.image = Some("orchestrate-tag:test".to_owned());
    let file = write_modified_inventory(&cluster, &laptop, &job, |text| text.replace("shm_size: 2g", "shm_size: 64m"));
    install_slow_date(&cluster, "gpu02", "5", "0");
    cluster.exec_on("gpu01", "docker tag orchestrate-busybox:test orchestrate-tag:test");
    cluster.exec_on("gpu02", "docker tag orchestrate-torch:test orchestrate-tag:test");
    let found = run_check(&laptop, &file, 3, "clock,env,limits,shm");
    cluster.exec_on("gpu02", "rm /usr/local/bin/date");
    found.assert_check("clock", "warn", &["gpu02", " s ± ", "from gpu01"]);
    assert!(is_five_seconds_ahead(&found.0["clock"].1.to_string()), "{}", found.0["clock"].1);
    found.assert_check("image", "fail", &["gpu02", " instead of "]);
    found.assert_check("limits", "warn", &["256 open files", "gpu01"]);
    found.assert_check("shm", "warn", &["64 MiB of shared memory"]);
    cluster.exec_on("gpu01", "docker rmi orchestrate-tag:test >/dev/null");
    cluster.exec_on("gpu02", "docker rmi orchestrate-tag:test >/dev/null");
    let file = write_modified_inventory(&cluster, &laptop, &JobSpec::busybox("engines"), |text| text);
    // Leftovers of an earlier run.
    let labels = "--label orchestrate.name=engines --label orchestrate.host=gpu02 --name orch-engines-gpu02";
    cluster.exec_on("gpu02", &format!("docker run --network host {labels} --entrypoint true orchestrate-busybox:test"));
    run_check(&laptop, &file, 0, "leftovers").assert_check(
        "leftovers",
        "warn",
        &["gpu02", "orch-engines-gpu02 (exited)", "orchestrate down"],
    );
    cluster.exec_on("gpu02", "docker rm orch-engines-gpu02 >/dev/null");
    cluster.mark_for_healing("gpu02");
    cluster.run_hosts_script(&["gpu-runtime", "gpu02", "off"]);
    run_check(&laptop, &file, 3, "nvidia-runtime").assert_check(
        "nvidia-runtime",
        "fail",
        &["gpu02", "could not select device driver", "nvidia-container-toolkit"],
    );
    cluster.run_hosts_script(&["gpu-runtime", "gpu02", "on"]);
    cluster.inject_fault("gpu02", &["stop-dockerd"]);
    let found = run_check(&laptop, &file, 3, "docker,image");
    found.assert_check("docker", "fail", &["gpu02", "does not respond", "systemctl start docker"]);
}

#[test]
#[ignore = "needs the test hosts: tests/run says how"]
fn file_disk_and_gpu_faults_are_found() {
    let cluster = Cluster::acquire();
    let laptop = Laptop::new();
    let mut job = JobSpec::busybox("files").with_hosts(&["{ name: gpu01, gpus: 8 }", "{ name: gpu02, gpus: 8 }"]);
    job.top_level = "checks: { paths: [/srv/check/models] }\n".to_owned();
    let file = write_modified_inventory(&cluster, &laptop, &job, |text| {
        let more = "\"/srv/suite:/mnt:ro\", \"/srv/check/data:/data:ro\", \"/srv/check/out:/out\", \"/srv/check/only:/only:ro\"";
        text.replace("\"/srv/suite:/mnt:ro\"", more)
    });
    for (host, size) in [("gpu01", "5"), ("gpu02", "6")] {
        let make = "d=/srv/check; rm -rf $d; mkdir -p $d/data $d/out $d/models; chmod 777 $d/out; echo same >$d/models/a";
        cluster.exec_on(host, &format!("{make}; head -c {size} /dev/zero >$d/data/shard-0"));
    }
    cluster.exec_on("gpu01", "mkdir -p /srv/check/only");
    cluster.exec_on("gpu02", "echo more >/srv/check/models/b");
    cluster.inject_fault("gpu01", &["gpus", "8"]);
    cluster.inject_fault("gpu02", &["gpus", "7"]);
    let app = "setsid sleep 600 </dev/null >/dev/null 2>&1 & u=$(head -n 1 /usr/local/lib/nvidia-stand-in/gpus | cut -d, -f2)\n\
               echo \"$u,$!,python3,4096\" >/usr/local/lib/nvidia-stand-in/apps; echo $! >/srv/check/app.pid";
    cluster.exec_on("gpu02", app);
    let found = run_check(&laptop, &file, 3, "mounts,mount-content,paths,gpu-count,gpu-idle");
    cluster.exec_on("gpu02", "kill $(cat /srv/check/app.pid); rm -f /srv/check/app.pid");
    found.assert_check("mounts", "fail", &["gpu02", "/srv/check/only is missing"]);
    found.assert_check("mount-content", "warn", &["/data: 1 files"]);
    found.assert_check("paths", "fail", &["gpu02", "/srv/check/models: 2 files", "has b 5"]);
    found.assert_check("gpu-count", "fail", &["gpu02", "7 of 8 GPUs found"]);
    found.assert_check("gpu-idle", "fail", &["gpu02", "GPU 0: root runs `sleep 600`", "4096 MiB"]);
    // Nothing is writable: neither the results nor the logs.
    cluster.exec_on("gpu02", "mkdir -p /srv/check/only; mount -t tmpfs -o ro,size=1m orch-small /srv/check/out");
    cluster.inject_fault("gpu02", &["small-disk", "/home/dev", "1m"]);
    let found = run_check(&laptop, &file, 3, "disk,mount-write");
    found.assert_check("disk", "fail", &["gpu02", "MiB free under /home/dev", "1 GiB needed"]);
    found.assert_check("mount-write", "fail", &["gpu02", "0:0 cannot write to /out inside the container", "Read-only file system"]);
    cluster.heal_faults();
    for host in ["gpu01", "gpu02"] {
        cluster.exec_on(host, "rm -rf /srv/check");
    }
}

/// Tier 2.
mod whole {
    use super::*;

    #[test]
    #[ignore = "needs the test hosts: tests/run says how"]
    fn slow_link_raises_no_clock_alarm() {
        let cluster = Cluster::acquire();
        let laptop = Laptop::new();
        let mut job = JobSpec::busybox("clocks");
        job.top_level = "checks: { max_clock_skew: 100ms }\n".to_owned();
        let file = write_modified_inventory(&cluster, &laptop, &job, |text| text);
        install_slow_date(&cluster, "gpu02", "0.2", "0.3");
        let slow = run_check(&laptop, &file, 0, "clock");
        install_slow_date(&cluster, "gpu02", "5", "0.3");
        let far = run_check(&laptop, &file, 3, "clock");
        cluster.exec_on("gpu02", "rm /usr/local/bin/date");
        slow.assert_check("clock", "pass", &["gpu02", "s ± "]);
        far.assert_check("clock", "fail", &["gpu02", "s ± ", "from gpu01"]);
        assert!(is_five_seconds_ahead(&far.0["clock"].1.to_string()), "{}", far.0["clock"].1);
        cluster.assert_hosts_unchanged();
    }
}
