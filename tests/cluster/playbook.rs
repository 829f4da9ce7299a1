//! The steps of guide 004 as tasks: the master builds a wheel once with the variables of its compiler, all hosts get it and install it; a rerun
//! changes nothing, and a changed source file changes only what depends on it. A small C++ extension replaces DeepSpeed.

use std::path::{Path, PathBuf};
use std::process::Command;

use crate::laptop::{CliOutput, CliProcess, Laptop, path_str, sha256_hex};
use crate::support::{Cluster, JobSpec};

/// The extension; a `sync` task sends its files to the hosts.
const SOURCES: [(&str, &str); 3] = [
    ("setup.py", include_str!("payload/tinyops/setup.py")),
    ("kernels.cpp", include_str!("payload/tinyops/kernels.cpp")),
    ("tinyops.py", include_str!("payload/tinyops/tinyops.py")),
];

/// Where the wheel is built and installed.
struct Place {
    name: &'static str,
    hosts: [&'static str; 2],
    /// The inventory's `container` block, or empty.
    container: &'static str,
    /// The parent of the task directories: `~`, or its path in the container.
    root: &'static str,
    python: &'static str,
    /// The command that installs the wheel `"$wheel"`.
    install: &'static str,
}

const BARE: Place = Place {
    name: "wheel-bare",
    hosts: ["gpu02", "gpu03"],
    container: "",
    root: "~",
    python: "python3",
    // The hosts have no pip.
    install: "python3 -m zipfile -e \"$wheel\" \"$(python3 -m site --user-site)\"",
};

const CONTAINER: Place = Place {
    name: "wheel-container",
    hosts: ["gpu01", "gpu02"],
    container: "container:\n  image: orchestrate-ml:test\n  pull: never\n  shm_size: 64m\n  mounts:\n\
                \x20   - { from: ~/toolchain, to: /w/toolchain, create: true }\n\
                \x20   - { from: ~/tinyops, to: /w/tinyops, create: true }\n\
                \x20   - { from: ~/wheels, to: /w/wheels, create: true }\n",
    root: "/w",
    python: "/opt/ml/bin/python",
    install: "/opt/ml/bin/python -m pip install --no-deps --no-index --force-reinstall \"$wheel\"",
};

impl Place {
    fn inventory(&self, cluster: &Cluster) -> String {
        let Place { name, hosts, container, root, python, install } = self;
        let config = cluster.client_file("ssh_config");
        let config = config.display();
        format!(
            r#"
name: {name}
hosts: [{}]
ssh: {{ config: {config}, user: dev }}
teardown: never
{container}prepare:
  - {{ name: compiler, hosts: master, sync: {{ from: ./toolchain, to: ~/toolchain }}, tags: [wheel] }}
  - {{ name: code, hosts: master, sync: {{ from: ./tinyops, to: ~/tinyops }}, tags: [wheel] }}
  - name: build the wheel
    hosts: master
    chdir: {root}/tinyops
    env: {{ TORCH_CUDA_ARCH_LIST: "9.0", DS_BUILD_CPU_ADAM: 1, CXXFLAGS: "-O2 -g0" }}
    run: |
      set -e
      export CC={root}/toolchain/c++ CXX={root}/toolchain/c++ LDSHARED="{root}/toolchain/c++ -shared" LDCXXSHARED="{root}/toolchain/c++ -shared"
      rm -rf build dist
      {python} setup.py build_ext -j8 bdist_wheel
      sha256sum setup.py *.cpp *.py >dist/sources
    unless: sha256sum -c --status dist/sources
    tags: [wheel]
  - {{ name: hand the wheel out, copy: {{ from: "master:~/tinyops/dist/*.whl", to: ~/wheels/ }}, tags: [install] }}
  - name: install it
    run: |
      set -e
      wheel=$(echo {root}/wheels/*.whl)
      {install}
      sha256sum "$wheel" >~/tinyops.installed
    unless: sha256sum {root}/wheels/*.whl | cmp -s - ~/tinyops.installed
    tags: [install]
launch:
  with: script
  nproc_per_node: 1
  command: [{python}, -c, "import os, tinyops; print('rank', os.environ['RANK'], 'got', tinyops.scale(3))"]
"#,
            hosts.join(", ")
        )
    }
}

/// A laptop with the sources, a compiler for the hosts and the inventory.
fn laptop_with_sources(cluster: &Cluster, place: &Place) -> (Laptop, PathBuf) {
    let laptop = Laptop::new();
    let sources = laptop.home().join("tinyops");
    std::fs::create_dir(&sources).expect("made");
    for (name, text) in SOURCES {
        std::fs::write(sources.join(name), text).expect("written");
    }
    copy_compiler(&laptop.home().join("toolchain"));
    let file = laptop.write_file(&format!("{}.yaml", place.name), &place.inventory(cluster));
    clear_directories(cluster, place);
    (laptop, file)
}

/// The task directories, which `down` does not remove.
fn clear_directories(cluster: &Cluster, place: &Place) {
    for host in place.hosts {
        cluster.exec_on(host, "cd /home/dev && rm -rf toolchain tinyops wheels tinyops.installed .local");
    }
}

/// This machine's g++ with its programs and libraries.
fn copy_compiler(to: &Path) {
    let script = r#"
        set -eu
        mkdir "$1"
        cp -L "$(command -v g++)" "$(command -v as)" "$(command -v ld)" "$(g++ -print-prog-name=cc1plus)" "$(g++ -print-prog-name=collect2)" "$1"
        ldd "$1"/* | awk '/=> \//{print $3}' | sort -u | grep -vE '/lib(c|m|dl|pthread)\.so' | xargs -I{} cp -L {} "$1"
    "#;
    let status = Command::new("sh").args(["-c", script, "sh"]).arg(to).status().expect("a shell");
    assert!(status.success(), "g++ cannot be copied: the package g++ is needed");
    let wrapper = to.join("c++");
    std::fs::write(&wrapper, include_str!("payload/tinyops/compiler.sh")).expect("written");
    std::fs::set_permissions(&wrapper, std::os::unix::fs::PermissionsExt::from_mode(0o755)).expect("executable");
}

/// The task row of the recap.
#[track_caller]
fn tasks_row(ended: &CliOutput) -> String {
    let row = ended.stderr.lines().find(|line| line.trim_start().starts_with("tasks "));
    row.unwrap_or_else(|| panic!("no row of tasks\n{}", ended.transcript())).split_whitespace().collect::<Vec<_>>().join(" ")
}

struct WheelJob {
    laptop: Laptop,
    file: PathBuf,
}

impl WheelJob {
    #[track_caller]
    fn run(&self, words: &[&str]) -> CliOutput {
        let ended = self.laptop.run(&[words, &["-i", path_str(&self.file), "--progress", "plain"]].concat());
        ended.assert_exit_code(0);
        ended
    }

    #[track_caller]
    fn assert_ranks_got(&self, value: u32) {
        for rank in 0..2 {
            let text = self.laptop.read_log_text(&format!("rank-{rank}.log"));
            assert!(text.contains(&format!("rank {rank} got {value}")), "log of rank {rank}:\n{text}");
        }
    }
}

/// The first, second and third run.
#[track_caller]
fn wheel_is_built_handed_out_and_installed(place: &Place) {
    let cluster = Cluster::acquire();
    let (laptop, file) = laptop_with_sources(&cluster, place);
    let job = WheelJob { laptop, file };
    assert_eq!(tasks_row(&job.run(&["prepare"])), "tasks changed 7 on 2 hosts");
    let log = job.laptop.read_log_text(&format!("task-3-{}.log", place.hosts[0]));
    for line in
        ["setup.py sees TORCH_CUDA_ARCH_LIST=9.0 DS_BUILD_CPU_ADAM=1", "the compiler sees CXXFLAGS=-O2 -g0 TORCH_CUDA_ARCH_LIST=9.0"]
    {
        assert!(log.contains(line), "{line:?} is missing in the build log:\n{log}");
    }
    assert_eq!(tasks_row(&job.run(&["prepare"])), "tasks changed 0 ok 4 skipped 3 on 2 hosts");
    for _ in 0..2 {
        assert_eq!(tasks_row(&job.run(&["up"])), "tasks changed 0 ok 4 skipped 3 on 2 hosts");
        job.assert_ranks_got(270);
    }
    let kernels = job.laptop.home().join("tinyops/kernels.cpp");
    let text = std::fs::read_to_string(&kernels).expect("the source").replace("+ 0", "+ 1");
    std::fs::write(&kernels, text).expect("written");
    let preview = job.run(&["prepare", "--dry-run", "--diff"]);
    assert_eq!(
        preview
            .stdout
            .lines()
            .skip_while(|line| *line != "tasks")
            .filter(|line| line.trim_start().starts_with(['~', '+', '-']))
            .collect::<Vec<_>>(),
        ["         ~ kernels.cpp"]
    );
    assert_eq!(tasks_row(&job.run(&["prepare", "--tags", "wheel"])), "tasks changed 2 ok 1", "the code and the build");
    assert_eq!(tasks_row(&job.run(&["prepare", "--start-at", "hand the wheel out"])), "tasks changed 4 on 2 hosts");
    assert_eq!(tasks_row(&job.run(&["up"])), "tasks changed 0 ok 4 skipped 3 on 2 hosts");
    job.assert_ranks_got(271);
    job.run(&["down", "--yes"]);
    clear_directories(&cluster, place);
}

#[test]
#[ignore = "needs the test hosts: tests/run says how"]
fn wheel_is_built_once_and_installed_on_bare_hosts() {
    wheel_is_built_handed_out_and_installed(&BARE);
}

/// Kills the laptop while a task runs: the task continues, a second laptop follows it to its end, a third one fetches its whole log.
#[track_caller]
fn task_outlives_its_laptop(job: JobSpec) {
    let cluster = Cluster::acquire();
    let [first, second, third] = [(), (), ()].map(|()| Laptop::new());
    let (name, suite) = (job.name, if job.image.is_some() { "/mnt" } else { "/srv/suite" });
    let tasks = format!(
        "teardown: never\nprepare:\n  - name: wait\n    run: |\n      seq 1 200000\n      echo waiting on $ORCH_HOST\n      \
         until [ -e {suite}/ctl/{name}/go ]; do sleep 0.1; done\n      seq 1 200000\n      echo done on $ORCH_HOST\n"
    );
    let job = JobSpec { top_level: tasks, ..job };
    let hosts: Vec<&str> = job.hosts.iter().map(String::as_str).collect();
    let file = cluster.write_inventory(&first, &job);
    let mut prepare = first.start(&["prepare", path_str(&file)]);
    for host in &hosts {
        let log = format!("task-1-{host}.log");
        prepare.wait_until("the task runs", || first.read_log_text(&log).contains(&format!("waiting on {host}")).then_some(()));
    }
    prepare.kill();
    let file = cluster.write_inventory(&second, &job);
    let mut attach = second.start(&["attach", path_str(&file), "--progress", "plain"]);
    for host in &hosts {
        attach.wait_for_output(&format!("waiting on {host}"));
    }
    cluster.write_control_file(&hosts, name, "go", "0");
    let attached = attach.wait_for_exit();
    attached.assert_exit_code(0).assert_contains(&format!("wait: ok {}", hosts.join(", ").replace("gpu01, gpu02", "gpu[01-02]")));
    let sums: Vec<(String, String)> = hosts
        .iter()
        .map(|host| {
            let log = format!("{}task-1.log", cluster.run_file_prefix(host, job.user, name));
            (format!("task-1-{host}.log"), cluster.remote_sha256(host, &log))
        })
        .collect();
    let file = cluster.write_inventory(&third, &job);
    third.run(&["down", "--yes", path_str(&file)]).assert_exit_code(0);
    for (log, sum) in sums {
        assert_eq!(sha256_hex(&third.read_log(&log)), sum, "{log}, {} bytes", third.read_log(&log).len());
    }
}

#[test]
#[ignore = "needs the test hosts: tests/run says how"]
fn task_in_a_container_outlives_its_laptop() {
    task_outlives_its_laptop(JobSpec::torch("outlive"));
}

/// Removes what these tasks leave in a home.
const CLEAR: &str = "cd /home/dev && rm -rf data copied image.bin script.done";

/// The laptop is killed in a script, in a `sync` and in a `copy` in turn. Each time another laptop says by `attach` what did not run, and the next
/// `prepare` goes on there. After the last kill `down` leaves nothing, and no file is half-written under its final name.
#[track_caller]
fn laptop_is_killed_in_each_kind_of_task(job: JobSpec, root: &str, run_there: &dyn Fn(&Cluster, &str, &str) -> String) {
    let cluster = Cluster::acquire();
    let (name, hosts) = (job.name, ["gpu01", "gpu02"]);
    let (place, suite) = if job.image.is_some() { ("container", "/mnt") } else { ("host", "/srv/suite") };
    let tasks = format!(
        "teardown: never\nprepare:\n  - name: script\n    creates: ~/script.done\n    run: |\n      seq 1 200000\n      echo waiting on $ORCH_HOST\n      \
         until [ -e {suite}/ctl/{name}/go ]; do sleep 0.1; done\n      seq 1 200000\n      touch ~/script.done\n  \
         - {{ name: data, in: {place}, sync: {{ from: ./data, to: {root}/data }} }}\n  \
         - {{ name: image, in: {place}, copy: {{ from: \"master:~/image.bin\", to: {root}/copied/ }} }}\n"
    );
    let job = JobSpec { top_level: tasks, ..job };
    let laptop = Laptop::new();
    let file = cluster.write_inventory(&laptop, &job);
    std::fs::create_dir(laptop.home().join("data")).expect("made");
    std::fs::File::create_new(laptop.home().join("data/big")).and_then(|big| big.set_len(400 << 20)).expect("made");
    for host in hosts {
        cluster.exec_on(host, CLEAR);
    }
    cluster.exec_on("gpu01", "head -c 400000000 /dev/urandom >/home/dev/image.bin; chmod 644 /home/dev/image.bin");
    let prepare = || laptop.start(&["prepare", path_str(&file), "--progress", "plain"]);
    let attach = |laptop: &Laptop| laptop.start(&["attach", path_str(&cluster.write_inventory(laptop, &job)), "--progress", "plain"]);
    let assert_left = |attach: CliProcess, what: &str| {
        attach.wait_for_exit().assert_exit_code(1).assert_contains(&format!(": {what} did not run; continue with"));
    };
    let mut script = prepare();
    for host in hosts {
        script.wait_until("the script runs", || laptop.read_log_text(&format!("task-1-{host}.log")).contains("waiting").then_some(()));
    }
    script.kill();
    let follower = Laptop::new();
    let mut attached = attach(&follower);
    for host in hosts {
        attached.wait_for_output(&format!("waiting on {host}"));
    }
    cluster.write_control_file(&hosts, name, "go", "0");
    assert_left(attached, "`data`, `image`");
    for host in hosts {
        let log = format!("{}task-1.log", cluster.run_file_prefix(host, job.user, name));
        assert_eq!(sha256_hex(&follower.read_log(&format!("task-1-{host}.log"))), cluster.remote_sha256(host, &log), "log of {host}");
    }
    for (left, directory) in [("`data`, `image`", "data"), ("`image`", "copied")] {
        let mut prepare = prepare();
        for host in hosts {
            let part = format!("cat {root}/{directory}/.orchestrate-part.*/[0-9a-f]* 2>/dev/null | wc -c");
            let arrived = || (run_there(&cluster, host, &part).trim().parse::<u64>().unwrap_or(0) > 1 << 20).then_some(());
            prepare.wait_until("a part of the file has arrived", arrived);
        }
        prepare.kill();
        assert_left(attach(&Laptop::new()), left);
        for host in hosts {
            assert_eq!(run_there(&cluster, host, &format!("ls {root}/{directory}")), "", "no file has its final name on {host}");
        }
    }
    let last = Laptop::new();
    last.run(&["down", "--yes", path_str(&cluster.write_inventory(&last, &job))]).assert_exit_code(0);
    for host in hosts {
        cluster.exec_on(host, CLEAR);
    }
}

/// Tier 2.
mod whole {
    use super::*;

    #[test]
    #[ignore = "needs the test hosts: tests/run says how"]
    fn laptop_is_killed_in_each_kind_of_task_on_bare_hosts() {
        let job = JobSpec::busybox("killed-bare").without_container();
        let run_there = |cluster: &Cluster, host: &str, script: &str| cluster.exec_on(host, &format!("HOME=/home/dev; {script}"));
        laptop_is_killed_in_each_kind_of_task(job, "~", &run_there);
    }

    #[test]
    #[ignore = "needs the test hosts: tests/run says how"]
    fn laptop_is_killed_in_each_kind_of_task_in_containers() {
        let mut job = JobSpec::busybox("killed");
        // Tasks are bash scripts, and the busybox image has no bash.
        job.image = Some("orchestrate-ml:test".to_owned());
        let run_there = |cluster: &Cluster, host: &str, script: &str| {
            cluster.exec_on(host, &format!("docker exec orch-killed-{host} sh -c '{script}'"))
        };
        laptop_is_killed_in_each_kind_of_task(job, "/data", &run_there);
    }

    #[test]
    #[ignore = "needs the test hosts: tests/run says how"]
    fn task_on_a_bare_host_outlives_its_laptop() {
        task_outlives_its_laptop(JobSpec::busybox("outlive-bare").without_container());
    }

    #[test]
    #[ignore = "needs the test hosts: tests/run says how"]
    fn wheel_is_built_once_and_installed_in_containers_that_stay() {
        wheel_is_built_handed_out_and_installed(&CONTAINER);
    }
}

/// A container plants a link, a log and a status under the names of host tasks, in the directory that it can write.
const PLANTED: &str = "o=${ORCH_RUN_DIR%.in/*}.out/${ORCH_RUN_DIR##*/}; \
                       ln -s /home/ops/victim $o.task-2.log; echo planted >$o.task-3.log; echo 0 1 ran >$o.task-4.rc";

/// Tasks run on the host beside a container, also as root: files that the container plants under their names have no effect, and Ctrl-C ends
/// root's process, which ignores TERM.
#[test]
#[ignore = "needs the test hosts: tests/run says how"]
fn host_tasks_run_as_root_beside_a_container() {
    let cluster = Cluster::acquire();
    let laptop = Laptop::new();
    let mut job = JobSpec::busybox("host-tasks").with_user("ops").with_command(&["/bin/sh", "-c", "echo \"who: $WHO\""]);
    // Tasks are bash scripts, and the busybox image has no bash.
    job.image = Some("orchestrate-ml:test".to_owned());
    job.ssh = "become: sudo".to_owned();
    job.stop_grace = "1s";
    job.top_level = format!(
        r#"teardown: never
prepare:
  - {{ name: plant, run: "{PLANTED}" }}
  - {{ name: root, in: host, become: sudo, env: {{ X: "a 'b'" }}, run: "id -u; echo \"$X\"", changed: never }}
  - {{ name: host, in: host, run: "id -un >&2; id -un", register: WHO }}
  - {{ name: long, in: host, become: sudo, tags: [never, long], run: "trap '' TERM; sleep 3601 & wait" }}
"#
    );
    let file = cluster.write_inventory(&laptop, &job);
    let up = laptop.run(&["up", path_str(&file), "--progress", "plain"]);
    up.assert_exit_code(0).assert_recap("OK").assert_contains("root: ok gpu[01-02]");
    let logs = laptop.run_dirs().pop().expect("a run").join("logs");
    let log = |name: &str| std::fs::read_to_string(logs.join(name)).unwrap_or_else(|e| panic!("{name}: {e}"));
    assert_eq!(log("task-2-gpu01.log"), "0\na 'b'\n");
    assert_eq!(log("task-3-gpu02.log"), "ops\n");
    assert_eq!(log("rank-1.log"), "who: ops\n");
    assert_eq!(cluster.exec_on("gpu01", "ls /home/ops/victim 2>/dev/null; true"), "", "no link was followed");
    let sleepers = |host: &str| cluster.exec_on(host, "ps -C sleep -o user=,args= | grep -c 'root *sleep 3601' || true").trim().to_owned();
    let mut long = laptop.start(&["prepare", path_str(&file), "--tags", "long", "--progress", "plain"]);
    long.wait_until("root's process on both hosts", || (sleepers("gpu01") == "1" && sleepers("gpu02") == "1").then_some(()));
    long.send_signal("INT");
    long.wait_for_exit().assert_exit_code(130);
    assert_eq!([sleepers("gpu01"), sleepers("gpu02")], ["0", "0"], "ended by sudo");
    laptop.run(&["down", path_str(&file)]).assert_exit_code(0);
}
