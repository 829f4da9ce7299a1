//! What is refused before anything is changed: each with its own words, its exit code, and nothing left.

use orchestrate::event::EventKind;
use orchestrate::sandbox::Faults;

use crate::support::{Bench, Job, Laptop, word};

fn fault(change: impl FnOnce(&mut Faults)) -> Faults {
    let mut faults = Faults::default();
    change(&mut faults);
    faults
}

async fn refused(bench: &Bench, laptop: &Laptop, job: &Job, code: i32, words: &[&str]) {
    let file = bench.inventory("refused", job);
    let ended = laptop.run(&["up", word(&file)]).await;
    ended.code(code);
    for text in words {
        ended.says(text);
    }
    bench.nothing_left().await;
}

#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn a_host_that_cannot_do_its_part_is_named_with_the_remedy() {
    let bench = Bench::hosts(2).await;
    let laptop = bench.laptop("laptop");
    let cases = [
        (fault(|f| f.docker_missing = true), 3, ["there is no docker on gpu02", "install docker there"]),
        (fault(|f| f.docker_down = true), 3, ["the docker daemon on gpu02 does not answer", "systemctl start docker"]),
        (fault(|f| f.docker_permission_denied = true), 3, ["may not use docker on gpu02", "usermod -aG docker"]),
        (fault(|f| f.no_gpu_runtime = true), 3, ["could not select device driver", "nvidia-container-toolkit"]),
        (fault(|f| f.run_fails = Some("no space left on device".to_owned())), 3, ["no space left on device", "docker system df"]),
        (fault(|f| f.refuse_key = true), 4, ["gpu02", "nothing was changed"]),
    ];
    for (faults, code, words) in cases {
        bench.faults("gpu02", &faults);
        refused(&bench, &laptop, &Job::default(), code, &words).await;
    }
    bench.done().await;
}

#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn sudo_is_used_where_it_is_asked_for() {
    let bench = Bench::hosts(1).await;
    let laptop = bench.laptop("laptop");
    let job = |launch: &str| Job { launch: launch.to_owned(), top: String::new(), ..Job::default() };
    bench.faults("gpu01", &fault(|f| (f.docker_permission_denied, f.sudo_refused) = (true, true)));
    let file = bench.inventory("sudo", &job(""));
    laptop
        .run(&["up", word(&file), "--set", "ssh.become=sudo"])
        .await
        .code(3)
        .says("may not run docker through `sudo -n` on gpu01")
        .says("NOPASSWD");
    bench.nothing_left().await;
    bench.faults("gpu01", &fault(|f| f.docker_permission_denied = true));
    bench.end(None, 0);
    laptop.run(&["up", word(&file), "--set", "ssh.become=sudo"]).await.code(0).recap("OK");
    bench.done().await;
}

#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn an_inventory_that_does_not_fit_the_hosts_is_refused() {
    let bench = Bench::new("{hosts: 2, gpus: 2, registry: ['far/away:1']}").await;
    let laptop = bench.laptop("laptop");
    refused(&bench, &laptop, &Job { nproc: 3, ..Job::default() }, 2, &["launch.nproc_per_node: 3 processes a host, but gpu01 gives 2"])
        .await;
    // The inventory promises what the hosts do not have.
    let file = bench.inventory("gpus", &Job { nproc: 3, ..Job::default() });
    let text = std::fs::read_to_string(&file).expect("an inventory").replace("gpus: 2", "gpus: 4");
    let file = bench.write("gpus", &text);
    laptop.run(&["up", word(&file)]).await.code(3).says("2 GPUs on gpu01, 4 needed").says("lower launch.nproc_per_node");
    bench.nothing_left().await;
    let file = bench.inventory("mount", &Job::default());
    let ended = laptop.run(&["up", word(&file), "--set", "container.mounts=[/no/such/folder:/data]"]).await;
    ended.code(3).says("/no/such/folder is not on gpu").says("create: true");
    bench.nothing_left().await;
    let file = bench.inventory("image", &Job::default());
    for (image, pull, code, words) in [
        ("nobody/has:1", "missing", 3, ["could not pull nobody/has:1", "docker login"]),
        ("nobody/has:1", "never", 3, ["the image nobody/has:1 is not on gpu", "container.pull: missing"]),
    ] {
        let (image, pull) = (format!("container.image={image}"), format!("container.pull={pull}"));
        let ended = laptop.run(&["up", word(&file), "--set", &image, "--set", &pull]).await;
        ended.code(code).says(words[0]).says(words[1]);
        bench.nothing_left().await;
    }
    bench.faults("gpu01", &fault(|f| f.pull_fails = true));
    let ended = laptop.run(&["up", word(&file), "--set", "container.image=far/away:1"]).await;
    ended.code(3).says("could not pull far/away:1").says("gpu01");
    bench.nothing_left().await;
    bench.faults("gpu01", &Faults::default());
    bench.end(None, 0);
    laptop.run(&["up", word(&file), "--set", "container.image=far/away:1"]).await.code(0);
    bench.done().await;
}

#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn what_is_not_ours_is_not_touched() {
    let bench = Bench::hosts(2).await;
    let (laptop, file) = (bench.laptop("laptop"), bench.inventory("taken", &Job::default()));
    // A busy port.
    let listener = std::net::TcpListener::bind(("127.0.0.1", bench.port)).expect("a port");
    let ended = laptop.run(&["up", word(&file)]).await;
    ended.code(3).says(&format!("port {} is already in use on the master gpu01", bench.port)).says("choose another launch.master_port");
    drop(listener);
    bench.nothing_left().await;
    // A container of another that has our container's name.
    let make = "docker run -d --name orch-taken-gpu02 --entrypoint /bin/sh demo/train:1 -c 'while :; do sleep 1; done'";
    laptop.run(&["exec", word(&file), "--limit", "gpu02", "--", make]).await.code(0);
    let theirs = bench.containers(1);
    let ended = laptop.run(&["up", word(&file)]).await;
    ended.code(3).says("orch-taken-gpu02 is taken on gpu02 by a container that is not ours").says("docker inspect orch-taken-gpu02");
    laptop.run(&["down", word(&file), "--yes"]).await.code(0);
    assert_eq!(bench.containers(1), theirs, "it is still there");
    assert!(bench.containers(0).is_empty() && !bench.home(0).join(".orchestrate").exists());
    laptop.run(&["exec", word(&file), "--limit", "gpu02", "--", "docker rm -f orch-taken-gpu02"]).await.code(0);
    bench.done().await;
}

#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn a_host_key_that_is_unknown_or_changed_is_refused() {
    let bench = Bench::hosts(2).await;
    let (laptop, file) = (bench.laptop("laptop"), bench.inventory("keys", &Job::default()));
    let known = std::fs::read_to_string(bench.sandbox.known_hosts()).expect("keys");
    let lines: Vec<&str> = known.lines().collect();
    let key = |line: &str| line.split_once(' ').expect("a line").1.to_owned();
    let place = |line: &str| line.split_once(' ').expect("a line").0.to_owned();
    let unknown = bench.path().join("unknown");
    std::fs::write(&unknown, format!("{}\n", lines[0])).expect("written");
    let set = |path: &std::path::Path| format!("ssh.known_hosts={}", path.display());
    let ended = laptop.run(&["up", word(&file), "--set", &set(&unknown)]).await;
    ended.code(4).says("gpu02").says("host key").says("nothing was changed");
    let changed = bench.path().join("changed");
    std::fs::write(&changed, format!("{}\n{} {}\n", lines[0], place(lines[1]), key(lines[0]))).expect("written");
    let ended = laptop.run(&["up", word(&file), "--set", &set(&changed)]).await;
    ended.code(4).says("gpu02").says("changed");
    bench.done().await;
}

#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn a_docker_that_refuses_unlimited_locked_memory_starts_the_container_with_less() {
    let bench = Bench::hosts(1).await;
    let (laptop, file) = (bench.laptop("laptop"), bench.inventory("locked", &Job::default()));
    let file = word(&file);
    // As runc says it through a dockerd without CAP_SYS_RESOURCE; the container that was created stays.
    let refuses = "case \"$1 $*\" in *' run '*--ulimit=memlock=-1*) echo 'docker: Error response from daemon: failed to create task for container: \
                   error during container init: error setting rlimits for ready process: error setting rlimit type 8: operation not permitted: \
                   unknown.' >&2; exit 126 ;; esac\nexec \"$SANDBOX_HOST/bin/docker\" \"$@\"";
    bench.faults("gpu01", &fault(|f| f.programs = [("docker".to_owned(), refuses.to_owned())].into()));
    let up = laptop.run(&["up", "-d", file, "--preflight", "full"]).await;
    up.code(0).silent_about("setting rlimit");
    bench.ranks_up(1).await;
    let note = laptop.kinds().into_iter().find_map(|kind| match kind {
        EventKind::StepDone { note, .. } if note.contains("locked memory") => Some(note),
        _ => None,
    });
    assert!(note.as_deref().is_some_and(|note| note.starts_with("pid ") && note.contains("docker refused")), "{note:?}");
    laptop.run(&["down", file]).await.code(0);
    bench.done().await;
}
