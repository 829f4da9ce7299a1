//! Launches that are refused before anything changes: each with its message and exit code, and nothing left over.

use orchestrate::event::EventKind;
use orchestrate::sandbox::Faults;

use crate::support::{JobSpec, Laptop, SandboxFixture, path_str};

fn faults_with(change: impl FnOnce(&mut Faults)) -> Faults {
    let mut faults = Faults::default();
    change(&mut faults);
    faults
}

async fn assert_refused(fixture: &SandboxFixture, laptop: &Laptop, job: &JobSpec, code: i32, words: &[&str]) {
    let file = fixture.write_inventory("refused", job);
    let ended = laptop.run(&["up", path_str(&file)]).await;
    ended.assert_exit_code(code);
    for text in words {
        ended.assert_contains(text);
    }
    fixture.assert_no_leftovers().await;
}

#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn unfit_host_is_named_with_the_fix() {
    let fixture = SandboxFixture::with_hosts(2).await;
    let laptop = fixture.new_laptop("laptop");
    let cases = [
        (faults_with(|f| f.docker_missing = true), 3, ["docker is not installed on gpu02", "install docker on that host"]),
        (faults_with(|f| f.docker_down = true), 3, ["the docker daemon on gpu02 does not respond", "systemctl start docker"]),
        (faults_with(|f| f.docker_permission_denied = true), 3, ["may not use docker on gpu02", "usermod -aG docker"]),
        (faults_with(|f| f.no_gpu_runtime = true), 3, ["could not select device driver", "nvidia-container-toolkit"]),
        (faults_with(|f| f.run_fails = Some("no space left on device".to_owned())), 3, ["no space left on device", "docker system df"]),
        (faults_with(|f| f.refuse_key = true), 4, ["gpu02", "nothing was changed"]),
    ];
    for (faults, code, words) in cases {
        fixture.set_faults("gpu02", &faults);
        assert_refused(&fixture, &laptop, &JobSpec::default(), code, &words).await;
    }
    fixture.assert_clean_and_stop().await;
}

#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn sudo_is_used_where_configured() {
    let fixture = SandboxFixture::with_hosts(1).await;
    let laptop = fixture.new_laptop("laptop");
    let job = |launch: &str| JobSpec { launch: launch.to_owned(), top_level: String::new(), ..JobSpec::default() };
    fixture.set_faults("gpu01", &faults_with(|f| (f.docker_permission_denied, f.sudo_refused) = (true, true)));
    let file = fixture.write_inventory("sudo", &job(""));
    laptop
        .run(&["up", path_str(&file), "--set", "ssh.become=sudo"])
        .await
        .assert_exit_code(3)
        .assert_contains("may not run docker through `sudo -n` on gpu01")
        .assert_contains("NOPASSWD");
    fixture.assert_no_leftovers().await;
    fixture.set_faults("gpu01", &faults_with(|f| f.docker_permission_denied = true));
    fixture.end_ranks(None, 0);
    laptop.run(&["up", path_str(&file), "--set", "ssh.become=sudo"]).await.assert_exit_code(0).assert_recap("OK");
    fixture.assert_clean_and_stop().await;
}

#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn inventory_not_fitting_the_hosts_is_refused() {
    let fixture = SandboxFixture::start("{hosts: 2, gpus: 2, registry: ['far/away:1']}").await;
    let laptop = fixture.new_laptop("laptop");
    assert_refused(
        &fixture,
        &laptop,
        &JobSpec { nproc_per_node: 3, ..JobSpec::default() },
        2,
        &["launch.nproc_per_node: 3 processes per host, but gpu01 has 2"],
    )
    .await;
    // The inventory requires more than the hosts have.
    let file = fixture.write_inventory("gpus", &JobSpec { nproc_per_node: 3, ..JobSpec::default() });
    let text = std::fs::read_to_string(&file).expect("an inventory").replace("gpus: 2", "gpus: 4");
    let file = fixture.write_yaml("gpus", &text);
    laptop
        .run(&["up", path_str(&file)])
        .await
        .assert_exit_code(3)
        .assert_contains("2 GPUs on gpu01, 4 needed")
        .assert_contains("lower launch.nproc_per_node");
    fixture.assert_no_leftovers().await;
    let file = fixture.write_inventory("mount", &JobSpec::default());
    let ended = laptop.run(&["up", path_str(&file), "--set", "container.mounts=[/no/such/folder:/data]"]).await;
    ended.assert_exit_code(3).assert_contains("/no/such/folder is missing").assert_contains("create: true");
    fixture.assert_no_leftovers().await;
    let file = fixture.write_inventory("image", &JobSpec::default());
    for (image, pull, code, words) in [
        ("nobody/has:1", "missing", 3, ["could not pull nobody/has:1", "docker login"]),
        ("nobody/has:1", "never", 3, ["the image nobody/has:1 is missing", "container.pull: missing"]),
    ] {
        let (image, pull) = (format!("container.image={image}"), format!("container.pull={pull}"));
        let ended = laptop.run(&["up", path_str(&file), "--set", &image, "--set", &pull]).await;
        ended.assert_exit_code(code).assert_contains(words[0]).assert_contains(words[1]);
        fixture.assert_no_leftovers().await;
    }
    fixture.set_faults("gpu01", &faults_with(|f| f.pull_fails = true));
    let ended = laptop.run(&["up", path_str(&file), "--set", "container.image=far/away:1"]).await;
    ended.assert_exit_code(3).assert_contains("could not pull far/away:1").assert_contains("gpu01");
    fixture.assert_no_leftovers().await;
    fixture.set_faults("gpu01", &Faults::default());
    fixture.end_ranks(None, 0);
    laptop.run(&["up", path_str(&file), "--set", "container.image=far/away:1"]).await.assert_exit_code(0);
    fixture.assert_clean_and_stop().await;
}

#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn foreign_ports_and_containers_are_untouched() {
    let fixture = SandboxFixture::with_hosts(2).await;
    let (laptop, file) = (fixture.new_laptop("laptop"), fixture.write_inventory("taken", &JobSpec::default()));
    // A port in use.
    let listener = std::net::TcpListener::bind(("127.0.0.1", fixture.master_port)).expect("a port");
    let ended = laptop.run(&["up", path_str(&file)]).await;
    ended
        .assert_exit_code(3)
        .assert_contains(&format!("port {} is already in use on the master gpu01", fixture.master_port))
        .assert_contains("choose another launch.master_port");
    drop(listener);
    fixture.assert_no_leftovers().await;
    // Another run of ours uses it: it is named.
    let other = fixture.write_inventory("other", &JobSpec::default());
    laptop.run(&["up", "-d", path_str(&other)]).await.assert_exit_code(0);
    let listener = std::net::TcpListener::bind(("127.0.0.1", fixture.master_port));
    let ended = laptop.run(&["check", path_str(&file), "--only", "master-port"]).await;
    ended.assert_exit_code(3).assert_contains("perhaps a live run:").assert_contains("other (");
    drop(listener);
    laptop.run(&["down", path_str(&other), "--yes"]).await.assert_exit_code(0);
    fixture.assert_no_leftovers().await;
    // A foreign container with our container's name.
    let make = "docker run -d --name orch-taken-gpu02 --entrypoint /bin/sh demo/train:1 -c 'while :; do sleep 1; done'";
    laptop.run(&["exec", path_str(&file), "--limit", "gpu02", "--", make]).await.assert_exit_code(0);
    let theirs = fixture.containers(1);
    let ended = laptop.run(&["up", path_str(&file)]).await;
    ended
        .assert_exit_code(3)
        .assert_contains("orch-taken-gpu02 is taken on gpu02 by a container that orchestrate did not create")
        .assert_contains("docker inspect orch-taken-gpu02");
    laptop.run(&["down", path_str(&file), "--yes"]).await.assert_exit_code(0);
    assert_eq!(fixture.containers(1), theirs, "it is still there");
    assert!(fixture.containers(0).is_empty() && !fixture.host_home(0).join(".orchestrate").exists());
    laptop.run(&["exec", path_str(&file), "--limit", "gpu02", "--", "docker rm -f orch-taken-gpu02"]).await.assert_exit_code(0);
    fixture.assert_clean_and_stop().await;
}

#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn unknown_or_changed_host_key_is_refused() {
    let fixture = SandboxFixture::with_hosts(2).await;
    let (laptop, file) = (fixture.new_laptop("laptop"), fixture.write_inventory("keys", &JobSpec::default()));
    let known = std::fs::read_to_string(fixture.sandbox.known_hosts_path()).expect("keys");
    let lines: Vec<&str> = known.lines().collect();
    let key = |line: &str| line.split_once(' ').expect("a line").1.to_owned();
    let location = |line: &str| line.split_once(' ').expect("a line").0.to_owned();
    let unknown = fixture.root().join("unknown");
    std::fs::write(&unknown, format!("{}\n", lines[0])).expect("written");
    let set = |path: &std::path::Path| format!("ssh.known_hosts={}", path.display());
    let ended = laptop.run(&["up", path_str(&file), "--set", &set(&unknown)]).await;
    ended.assert_exit_code(4).assert_contains("gpu02").assert_contains("host key").assert_contains("nothing was changed");
    let changed = fixture.root().join("changed");
    std::fs::write(&changed, format!("{}\n{} {}\n", lines[0], location(lines[1]), key(lines[0]))).expect("written");
    let ended = laptop.run(&["up", path_str(&file), "--set", &set(&changed)]).await;
    ended.assert_exit_code(4).assert_contains("gpu02").assert_contains("changed");
    fixture.assert_clean_and_stop().await;
}

#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn refused_memlock_limit_falls_back() {
    let fixture = SandboxFixture::with_hosts(1).await;
    let (laptop, file) = (fixture.new_laptop("laptop"), fixture.write_inventory("locked", &JobSpec::default()));
    let file = path_str(&file);
    // As runc reports it through a dockerd without CAP_SYS_RESOURCE; the created container stays.
    let refuses = "case \"$1 $*\" in *' run '*--ulimit=memlock=-1*) echo 'docker: Error response from daemon: failed to create task for container: \
                   error during container init: error setting rlimits for ready process: error setting rlimit type 8: operation not permitted: \
                   unknown.' >&2; exit 126 ;; esac\nexec \"$SANDBOX_HOST/bin/docker\" \"$@\"";
    fixture.set_faults("gpu01", &faults_with(|f| f.programs = [("docker".to_owned(), refuses.to_owned())].into()));
    let up = laptop.run(&["up", "-d", file, "--preflight", "full"]).await;
    up.assert_exit_code(0).assert_not_contains("setting rlimit");
    fixture.wait_for_ranks(1).await;
    let note = laptop.journal_kinds().into_iter().find_map(|kind| match kind {
        EventKind::StepDone { note, .. } if note.contains("locked memory") => Some(note),
        _ => None,
    });
    assert!(note.as_deref().is_some_and(|note| note.starts_with("pid ") && note.contains("docker refused")), "{note:?}");
    laptop.run(&["down", file]).await.assert_exit_code(0);
    fixture.assert_clean_and_stop().await;
}
