//! `push`, `pull` and `sync` tasks over OpenSSH, with GNU tools and with busybox: every kind of name arrives, a rerun sends only
//! differences, and a sync continues after its laptop died.

use std::path::Path;
use std::process::Command;

use crate::laptop::{Laptop, path_str, wait_until};
use crate::support::{Cluster, JobSpec};

/// Every kind of name, many small files, and one file of more than one segment.
const MAKE_TREE: &str = r#"
set -eu
mkdir -p "$1/d/e" "$1/empty" "$1/many" && cd "$1"
long=$(printf '%0255d' 0)
for dir in . d d/e; do
  for name in plain "new
line" "$(printf '\377\376 no utf-8')" '-rf' ' lead and trail ' "$long"; do echo "$dir/$name" >"$dir/$name"; done
done
i=0
while [ $i -lt 2000 ]; do echo $i >many/$i; i=$((i + 1)); done
head -c 30000000 /dev/urandom >big
chmod 750 plain; chmod 600 d/plain
ln -s d/plain link
"#;

/// Names, kinds, modes, link targets and contents, one digest each.
const MANIFEST: &str = r#"
export LC_ALL=C
cd "$1" && find . -mindepth 1 ! -name .orchestrate-sync -printf '%y %m %l %P\0' | sort -z | sha256sum && find . -type f ! -name .orchestrate-sync -print0 | sort -z | xargs -0 sha256sum | sha256sum
"#;

fn run_here(script: &str, dir: &Path) -> String {
    let output = Command::new("sh").args(["-c", script, "sh"]).arg(dir).output().expect("a shell");
    assert!(output.status.success(), "{}", String::from_utf8_lossy(&output.stderr));
    String::from_utf8_lossy(&output.stdout).into_owned()
}

fn manifest_on(cluster: &Cluster, host: &str, dir: &str) -> String {
    cluster.exec_on(host, &format!("set -- {dir}; {MANIFEST}"))
}

#[track_caller]
fn tree_travels_there_and_back(cluster: &Cluster, name: &'static str, user: &'static str, hosts: &[&'static str]) {
    let laptop = Laptop::new();
    let file = cluster.write_inventory(&laptop, &JobSpec::busybox(name).without_container().with_user(user).with_hosts(hosts));
    let tree = laptop.home().join("tree");
    run_here(MAKE_TREE, &tree);
    let run = |words: &[&str]| {
        let ended = laptop.run(&[&words[..1], &["-i", path_str(&file)], &words[1..]].concat());
        ended.assert_exit_code(0);
        ended
    };
    let all = hosts.len();
    run(&["push", "tree", "~/pushed"]).assert_contains(&format!("ok 0  changed {all}  failed 0"));
    run(&["push", "tree", "~/pushed"]).assert_contains(&format!("ok {all}  changed 0  failed 0"));
    std::fs::write(tree.join("many/7"), "seven\n").expect("written");
    run(&["push", "--diff", "tree", "~/pushed"]).assert_contains("1 changed, 6 B").assert_contains("\n  ~ many/7\n");
    run(&["pull", "~/pushed", "pulled"]).assert_contains(&format!("copied {all}"));
    run(&["pull", "~/pushed", "pulled"]).assert_contains(&format!("ok {all}"));
    let wanted = run_here(MANIFEST, &tree);
    for host in hosts {
        let there = format!("/home/{user}/pushed");
        assert_eq!(manifest_on(cluster, host, &there), wanted, "what {host} has");
        assert_eq!(run_here(MANIFEST, &laptop.home().join("pulled").join(host)), wanted, "what came back from {host}");
        assert!(cluster.exec_on(host, &format!("ls -A {there} | grep orchestrate || true")).is_empty(), "no part is left");
        cluster.exec_on(host, &format!("rm -rf {there}"));
    }
}

#[test]
#[ignore = "needs the test hosts: tests/run says how"]
fn trees_travel_to_a_busybox_host() {
    let cluster = Cluster::acquire();
    // bash reads this file for every command over SSH.
    cluster.exec_on(
        "gpu02",
        "set -e; mkdir -p /opt/bb; docker run --rm --network none -v /opt/bb:/bb orchestrate-busybox:test cp /bin/busybox /bb/;
         for a in $(/opt/bb/busybox --list); do [ $a = busybox ] || ln -sf busybox /opt/bb/$a; done; echo 'PATH=/opt/bb' >/home/ops/.bashrc",
    );
    tree_travels_there_and_back(&cluster, "bb", "ops", &["gpu02"]);
    let laptop = Laptop::new();
    let file = cluster.write_inventory(&laptop, &JobSpec::busybox("bb").without_container().with_user("ops").with_hosts(&["gpu02"]));
    let tools = laptop.run(&["exec", path_str(&file), "--", "for tool in tar find sh; do readlink -f $(command -v $tool); done"]);
    tools.assert_exit_code(0).assert_contains("/opt/bb/busybox\n/opt/bb/busybox\n/opt/bb/busybox\n");
    cluster.exec_on("gpu02", "rm -rf /opt/bb /home/ops/.bashrc");
}

#[test]
#[ignore = "needs the test hosts: tests/run says how"]
fn sync_task_is_continued_after_its_laptop_died() {
    let cluster = Cluster::acquire();
    let laptop = Laptop::new();
    let mut job = JobSpec::busybox("cut").without_container();
    job.top_level = "teardown: never\nprepare:\n  - { name: data, sync: { from: ./data, to: ~/data } }\n".to_owned();
    let file = cluster.write_inventory(&laptop, &job);
    let data = laptop.home().join("data");
    run_here("mkdir \"$1\" && head -c 400000000 /dev/urandom >\"$1/big\" && echo small >\"$1/small\"", &data);
    let prepare = laptop.start(&["prepare", path_str(&file)]);
    let parts = "cat /home/dev/data/.orchestrate-part.*/* 2>/dev/null | wc -c";
    for host in ["gpu01", "gpu02"] {
        wait_until("part of the file has arrived", || (cluster.exec_on(host, parts).trim() != "0").then_some(()));
    }
    prepare.kill();
    for host in ["gpu01", "gpu02"] {
        assert!(cluster.exec_on(host, "ls /home/dev/data").lines().all(|name| name != "big"), "no partial file has the final name");
    }
    let attach = laptop.run(&["attach", path_str(&file)]);
    attach.assert_exit_code(1).assert_contains("`data` did not run");
    laptop.run(&["prepare", path_str(&file)]).assert_exit_code(0).assert_contains("changed 2");
    laptop.run(&["prepare", path_str(&file)]).assert_exit_code(0).assert_contains("changed 0");
    let wanted = run_here(MANIFEST, &data);
    laptop.run(&["down", "--yes", path_str(&file)]).assert_exit_code(0);
    for host in ["gpu01", "gpu02"] {
        assert_eq!(manifest_on(&cluster, host, "/home/dev/data"), wanted);
        cluster.exec_on(host, "rm -rf /home/dev/data");
    }
}

/// Tier 2.
mod whole {
    use super::*;

    #[test]
    #[ignore = "needs the test hosts: tests/run says how"]
    fn trees_travel_between_gnu_hosts() {
        let cluster = Cluster::acquire();
        tree_travels_there_and_back(&cluster, "gnu", "dev", &["gpu01", "gpu03"]);
        cluster.assert_hosts_unchanged();
    }

    const GIB: u64 = 1 << 30;
    /// A `dd` on the user's path notes how much of a big file it has taken from the connection.
    const COUNTING_DD: &str = r#"
set -e
mkdir -p /opt/count && : >/opt/count/log && chmod 666 /opt/count/log
cat >/opt/count/dd <<'EOF'
#!/bin/sh
# Listings and single blocks are no content of a big file.
case $* in 'bs=65536 count=32 '* | *' count=1 '*) exec /usr/bin/dd "$@" ;; esac
exec /usr/bin/dd "$@" 2>>/opt/count/log
EOF
chmod 755 /opt/count/dd
echo 'PATH=/opt/count:$PATH' >/home/ops/.bashrc
"#;
    const BYTES_TAKEN: &str = r#"awk '/bytes/ { sum += $1 } END { printf "%d", sum }' /opt/count/log; rm -rf /opt/count /home/ops/.bashrc"#;

    /// The connection is cut three times in the middle of 1 GiB: each run goes on where the last was cut, so that the host takes hardly more than
    /// the file.
    #[test]
    #[ignore = "needs the test hosts: tests/run says how"]
    fn copy_that_is_cut_sends_no_byte_twice() {
        let cluster = Cluster::acquire();
        let laptop = Laptop::new();
        let mut job = JobSpec::busybox("cut-copy").without_container().with_user("ops");
        job.top_level = "teardown: never\nprepare:\n  - { name: image, copy: { from: ./image, to: ~/data/ } }\n".to_owned();
        let file = cluster.write_inventory(&laptop, &job);
        cluster.exec_on("gpu02", COUNTING_DD);
        run_here("head -c 1073741824 /dev/urandom >\"$1\"", &laptop.home().join("image"));
        let size_of_part = || {
            let part = cluster.exec_on("gpu02", "cat /home/ops/data/.orchestrate-part.*/[0-9a-f]* 2>/dev/null | wc -c");
            part.trim().parse::<u64>().expect("a number")
        };
        for quarter in 1..4 {
            let mut prepare = laptop.start(&["prepare", path_str(&file), "--progress", "plain"]);
            prepare.wait_until("the next quarter arrives", || (size_of_part() > quarter * GIB / 4).then_some(()));
            cluster.inject_fault("gpu02", &["cut-ssh"]);
            prepare.wait_for_exit().assert_exit_code(4).assert_contains("task `image` failed on gpu02");
            assert_eq!(cluster.exec_on("gpu02", "ls /home/ops/data"), "", "nothing has the final name");
        }
        laptop.run(&["prepare", path_str(&file)]).assert_exit_code(0);
        let wanted = run_here("sha256sum <\"$1\"", &laptop.home().join("image"));
        for host in ["gpu01", "gpu02"] {
            assert!(wanted.starts_with(&cluster.remote_sha256(host, "/home/ops/data/image")), "{host}");
            cluster.exec_on(host, "rm -rf /home/ops/data");
        }
        let taken: u64 = cluster.exec_on("gpu02", BYTES_TAKEN).trim().parse().expect("a number");
        // At each cut, less than a frame had been taken and not been written.
        assert!((GIB - (64 << 10)..GIB + 3 * (2 << 20)).contains(&taken), "{taken} bytes of {GIB} were taken");
        laptop.run(&["down", "--yes", path_str(&file)]).assert_exit_code(0);
        cluster.assert_hosts_unchanged();
    }
}
