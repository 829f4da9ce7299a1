//! `check` on real hosts: faults that real kernels, firewalls and engines make, each found by the check that is meant for it. What GPUs say
//! comes from the stand-in for nvidia-smi.

use std::collections::BTreeMap;
use std::path::Path;

use serde_json::Value;

use crate::laptop::{Laptop, word};
use crate::support::{Cluster, Job};

/// What this machine may lack, which is no fault of the hosts.
const HERE: &str = "checks: { skip: [disk, docker-disk, inodes, memory, cpus] }\n";

/// By the check's name: how it ended, and its results as JSON.
struct Found(BTreeMap<String, (String, Value)>);

impl Found {
    #[track_caller]
    fn is(&self, name: &str, level: &str, words: &[&str]) -> &Found {
        let (is, results) = self.0.get(name).unwrap_or_else(|| panic!("no {name} in {:?}", self.0.keys()));
        let text = results.to_string();
        assert_eq!(is, level, "{name}: {text}");
        for words in words {
            assert!(text.contains(words), "{name} does not say {words:?}: {text}");
        }
        // For the table of docs/checks.md.
        for told in results.as_array().expect("results").iter().filter(|told| told["level"] == level) {
            println!("{level} | `{name}` | {}: {} | {}", told["hosts"], told["what"], told["hint"]);
        }
        self
    }
}

#[track_caller]
fn check(laptop: &Laptop, file: &Path, code: i32, only: &str) -> Found {
    let ended = laptop.run(&["check", word(file), "--json", "--only", only]);
    ended.code(code);
    let value: Value = serde_json::from_str(&ended.out).unwrap_or_else(|e| panic!("{e}: {}", ended.out));
    let text = |v: &Value| v.as_str().unwrap_or_default().to_owned();
    let list = value["checks"].as_array().expect("checks").iter();
    Found(list.map(|c| (text(&c["name"]), (text(&c["level"]), c["results"].clone()))).collect())
}

/// Whether a clock is told to be 5 s ahead, by a measurement with its uncertainty: `+4.99 s ± 0.01 s from gpu01`.
fn five_ahead(text: &str) -> bool {
    let number = |words: &str| words.split(' ').next().and_then(|w| w.parse::<f64>().ok());
    let apart = text.split('"').filter_map(|words| words.split_once(" s ± ")).filter_map(|(a, b)| Some((number(a)?, number(b)?)));
    apart.into_iter().any(|(apart, uncertain)| (apart - 5.0).abs() <= uncertain + 0.05)
}

/// An inventory with enough shared memory, changed by `change`.
fn inventory(cluster: &Cluster, laptop: &Laptop, job: &Job, change: impl Fn(String) -> String) -> std::path::PathBuf {
    let file = cluster.inventory(laptop, job);
    let text = std::fs::read_to_string(&file).expect("an inventory").replace("shm_size: 64m", "shm_size: 2g");
    std::fs::write(&file, change(text)).expect("written");
    file
}

#[test]
#[ignore = "needs the test hosts: tests/run says how"]
fn healthy_hosts_give_no_warning() {
    let cluster = Cluster::take();
    let laptop = Laptop::new();
    let mut job = Job::torch("healthy").hosts(&["gpu01", "gpu02"]);
    job.top = HERE.to_owned();
    let file = inventory(&cluster, &laptop, &job, |text| text);
    let all = "host,docker,image,gpu,files,network";
    let found = check(&laptop, &file, 0, all);
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
        found.is(name, "pass", &[]);
    }
    let page = laptop.run(&["check", word(&file)]);
    page.code(0).says("gpu[01-02]");
    println!("{}", page.out);
    assert!(page.out.lines().all(|line| line.chars().count() <= 80), "{}", page.out);
    cluster.as_before();
}

#[test]
#[ignore = "needs the test hosts: tests/run says how"]
fn firewalls_ports_and_names() {
    let cluster = Cluster::take();
    let laptop = Laptop::new();
    let file = inventory(&cluster, &laptop, &Job::quick("ways"), |text| text);
    let network = "master-port,reach-master,reach-ephemeral";
    cluster.fault("gpu01", &["busy-port", "29500"]);
    check(&laptop, &file, 3, network).is("master-port", "fail", &["gpu01", "port 29500 is already in use"]).is(
        "reach-ephemeral",
        "pass",
        &[],
    );
    cluster.fault("gpu01", &["free-port", "29500"]);
    cluster.fault("gpu01", &["drop-port", "29500"]);
    check(&laptop, &file, 3, network).is("reach-master", "fail", &["gpu02", "no answer from gpu01:29500", "DROP"]).is(
        "reach-ephemeral",
        "pass",
        &[],
    );
    cluster.fault("gpu01", &["undrop-port", "29500"]);
    cluster.fault("gpu01", &["reject-port", "29500"]);
    check(&laptop, &file, 3, network).is("reach-master", "fail", &["gpu01:29500 is refused though it listens (REJECT)"]);
    cluster.fault("gpu01", &["unreject-port", "29500"]);
    // Only ports of the kernel's choice: the rendezvous works, NCCL would not.
    cluster.mend("gpu02");
    cluster.on("gpu02", "iptables -w -I INPUT ! -i lo -p tcp --syn --dport 32768:60999 -j DROP");
    check(&laptop, &file, 3, network).is("reach-master", "pass", &[]).is(
        "reach-ephemeral",
        "fail",
        &["gpu01", "no way to gpu02 on a port of the kernel's choice", "DROP"],
    );
    cluster.heal();
    // A name that means another machine on one host.
    let named = inventory(&cluster, &laptop, &Job::quick("named").hosts(&["{ name: gpu01, fabric_address: gpu01 }", "gpu02"]), |text| text);
    check(&laptop, &named, 0, "master-address").is("master-address", "pass", &[]);
    cluster.on("gpu02", "cp /etc/hosts /root/hosts.kept; { echo 127.0.1.1 gpu01; grep -v gpu01 /root/hosts.kept; } >/etc/hosts");
    let found = check(&laptop, &named, 3, "master-address");
    cluster.on("gpu02", "cat /root/hosts.kept >/etc/hosts; rm /root/hosts.kept");
    found.is("master-address", "fail", &["gpu02", "gpu01 resolves to 127.0.1.1"]);
    cluster.as_before();
}

/// Puts a `date` on a host whose time is ahead, and which takes its time both ways, as behind a slow link.
fn date(cluster: &Cluster, host: &str, ahead: &str, way: &str) {
    let time = format!("$(/bin/date +%s.%N | awk '{{ printf \"%.9f\", $1 + {ahead} }}')");
    let script = format!("#!/bin/sh\nsleep {way}\n/bin/date -d \"@{time}\" \"$@\"\nsleep {way}\n");
    cluster.on(host, &format!("cat >/usr/local/bin/date <<'END'\n{script}END\nchmod 755 /usr/local/bin/date"));
}

#[test]
#[ignore = "needs the test hosts: tests/run says how"]
fn clocks_images_and_engines() {
    let cluster = Cluster::take();
    let laptop = Laptop::new();
    let mut job = Job::quick("engines");
    job.container = "args: [--ulimit=nofile=256]".to_owned();
    job.image = Some("orchestrate-tag:test".to_owned());
    let file = inventory(&cluster, &laptop, &job, |text| text.replace("shm_size: 2g", "shm_size: 64m"));
    date(&cluster, "gpu02", "5", "0");
    cluster.on("gpu01", "docker tag orchestrate-busybox:test orchestrate-tag:test");
    cluster.on("gpu02", "docker tag orchestrate-torch:test orchestrate-tag:test");
    let found = check(&laptop, &file, 3, "clock,image,limits,shm");
    cluster.on("gpu02", "rm /usr/local/bin/date");
    found.is("clock", "warn", &["gpu02", " s ± ", "from gpu01"]);
    assert!(five_ahead(&found.0["clock"].1.to_string()), "{}", found.0["clock"].1);
    found.is("image", "fail", &["gpu02", " instead of "]);
    found.is("limits", "warn", &["256 open files", "gpu01"]);
    found.is("shm", "warn", &["64 MiB of shared memory"]);
    cluster.on("gpu01", "docker rmi orchestrate-tag:test >/dev/null");
    cluster.on("gpu02", "docker rmi orchestrate-tag:test >/dev/null");
    let file = inventory(&cluster, &laptop, &Job::quick("engines"), |text| text);
    // What an earlier run left.
    let labels = "--label orchestrate.name=engines --label orchestrate.host=gpu02 --name orch-engines-gpu02";
    cluster.on("gpu02", &format!("docker run --network host {labels} --entrypoint true orchestrate-busybox:test"));
    check(&laptop, &file, 0, "leftovers").is("leftovers", "warn", &["gpu02", "orch-engines-gpu02 (exited)", "orchestrate down"]);
    cluster.on("gpu02", "docker rm orch-engines-gpu02 >/dev/null");
    cluster.mend("gpu02");
    cluster.hosts(&["gpu-runtime", "gpu02", "off"]);
    check(&laptop, &file, 3, "nvidia-runtime").is(
        "nvidia-runtime",
        "fail",
        &["gpu02", "could not select device driver", "nvidia-container-toolkit"],
    );
    cluster.hosts(&["gpu-runtime", "gpu02", "on"]);
    cluster.fault("gpu02", &["stop-dockerd"]);
    let found = check(&laptop, &file, 3, "docker,image");
    found.is("docker", "fail", &["gpu02", "does not answer", "systemctl start docker"]);
    cluster.as_before();
}

#[test]
#[ignore = "needs the test hosts: tests/run says how"]
fn files_disks_and_gpus() {
    let cluster = Cluster::take();
    let laptop = Laptop::new();
    let mut job = Job::quick("files").hosts(&["{ name: gpu01, gpus: 8 }", "{ name: gpu02, gpus: 8 }"]);
    job.top = "checks: { paths: [/srv/check/models] }\n".to_owned();
    let file = inventory(&cluster, &laptop, &job, |text| {
        let more = "\"/srv/suite:/mnt:ro\", \"/srv/check/data:/data:ro\", \"/srv/check/out:/out\", \"/srv/check/only:/only:ro\"";
        text.replace("\"/srv/suite:/mnt:ro\"", more)
    });
    for (host, size) in [("gpu01", "5"), ("gpu02", "6")] {
        let make = "d=/srv/check; rm -rf $d; mkdir -p $d/data $d/out $d/models; chmod 777 $d/out; echo same >$d/models/a";
        cluster.on(host, &format!("{make}; head -c {size} /dev/zero >$d/data/shard-0"));
    }
    cluster.on("gpu01", "mkdir -p /srv/check/only");
    cluster.on("gpu02", "echo more >/srv/check/models/b");
    cluster.fault("gpu01", &["gpus", "8"]);
    cluster.fault("gpu02", &["gpus", "7"]);
    let app = "setsid sleep 600 </dev/null >/dev/null 2>&1 & u=$(head -n 1 /usr/local/lib/nvidia-stand-in/gpus | cut -d, -f2)\n\
               echo \"$u,$!,python3,4096\" >/usr/local/lib/nvidia-stand-in/apps; echo $! >/srv/check/app.pid";
    cluster.on("gpu02", app);
    let found = check(&laptop, &file, 3, "mounts,mount-content,paths,gpu-count,gpu-idle");
    cluster.on("gpu02", "kill $(cat /srv/check/app.pid); rm -f /srv/check/app.pid");
    found.is("mounts", "fail", &["gpu02", "/srv/check/only is not there"]);
    found.is("mount-content", "warn", &["/data: 1 files"]);
    found.is("paths", "fail", &["gpu02", "/srv/check/models: 2 files", "has b 5"]);
    found.is("gpu-count", "fail", &["gpu02", "7 of 8 GPUs are there"]);
    found.is("gpu-idle", "fail", &["gpu02", "GPU 0: root runs `sleep 600`", "4096 MiB"]);
    // Nothing can be written to: neither the results nor the logs.
    cluster.on("gpu02", "mkdir -p /srv/check/only; mount -t tmpfs -o ro,size=1m orch-small /srv/check/out");
    cluster.fault("gpu02", &["small-disk", "/home/dev", "1m"]);
    let found = check(&laptop, &file, 3, "disk,mount-write");
    found.is("disk", "fail", &["gpu02", "MiB free under /home/dev", "1 GiB needed"]);
    found.is("mount-write", "fail", &["gpu02", "/out cannot be written by 0:0 inside", "Read-only file system"]);
    cluster.heal();
    for host in ["gpu01", "gpu02"] {
        cluster.on(host, "rm -rf /srv/check");
    }
    cluster.as_before();
}

/// Tier 2.
mod whole {
    use super::*;

    #[test]
    #[ignore = "needs the test hosts: tests/run says how"]
    fn a_clock_behind_a_slow_link_raises_no_false_alarm() {
        let cluster = Cluster::take();
        let laptop = Laptop::new();
        let mut job = Job::quick("clocks");
        job.top = "checks: { max_clock_skew: 100ms }\n".to_owned();
        let file = inventory(&cluster, &laptop, &job, |text| text);
        date(&cluster, "gpu02", "0.2", "0.3");
        let slow = check(&laptop, &file, 0, "clock");
        date(&cluster, "gpu02", "5", "0.3");
        let far = check(&laptop, &file, 3, "clock");
        cluster.on("gpu02", "rm /usr/local/bin/date");
        slow.is("clock", "pass", &["gpu02", "s ± "]);
        far.is("clock", "fail", &["gpu02", "s ± ", "from gpu01"]);
        assert!(five_ahead(&far.0["clock"].1.to_string()), "{}", far.0["clock"].1);
        cluster.as_before();
    }
}
