//! `copy` tasks of `prepare`: files from the laptop or from a host, to hosts.

use std::os::unix::fs::{MetadataExt as _, PermissionsExt as _, symlink};
use std::path::{Path, PathBuf};

use orchestrate::sandbox::Faults;

use crate::prepare::job_with_tasks;
use crate::support::{CliOutput, Laptop, SandboxFixture, path_str, sha256_hex, wait_until};

struct CopyFixture {
    fixture: SandboxFixture,
    laptop: Laptop,
    inventory: PathBuf,
}

impl CopyFixture {
    async fn new(hosts: usize, in_container: bool, tasks: &str) -> CopyFixture {
        let fixture = SandboxFixture::with_hosts(hosts).await;
        let (laptop, inventory) =
            (fixture.new_laptop("laptop"), fixture.write_inventory("copied", &job_with_tasks(&fixture, in_container, tasks)));
        CopyFixture { fixture, laptop, inventory }
    }

    async fn prepare(&self, more: &[&str]) -> CliOutput {
        self.laptop.run(&[&["prepare", path_str(&self.inventory), "--progress", "plain"], more].concat()).await
    }

    /// A file beside the inventory.
    fn beside(&self, name: &str) -> PathBuf {
        self.inventory.parent().expect("a folder").join(name)
    }

    fn remote(&self, host: usize, name: &str) -> PathBuf {
        self.fixture.host_home(host).join(name)
    }

    async fn end(self) {
        self.laptop.run(&["down", path_str(&self.inventory)]).await.assert_exit_code(0);
        self.fixture.assert_clean_and_stop().await;
    }
}

fn write(path: &Path, content: &[u8]) {
    std::fs::create_dir_all(path.parent().expect("a folder")).expect("made");
    std::fs::write(path, content).expect("written");
}

/// Files of the laptop and of the master arrive on all hosts, with their times and the mode of the task; a second run changes nothing.
#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn copies_arrive_once() {
    let tasks = r#"
  - { name: config, copy: { from: ./conf/one.json, to: "~/etc/{{ name }}.json", mode: "0600" } }
  - { name: scripts, hosts: workers, copy: { from: ./conf/*.sh, to: ~/bin/ } }
  - { name: wheel, copy: { from: "master:~/dist/x-*.whl", to: ~/wheels/ } }
  - { name: rename, hosts: workers, copy: { from: "gpu02:~/only-here", to: ~/renamed } }
"#;
    let fixture = CopyFixture::new(3, false, tasks).await;
    let missing = fixture.prepare(&[]).await;
    missing.assert_exit_code(2).assert_contains("task `config`: ").assert_contains("conf/one.json: no such file or directory");
    missing.assert_contains("task `scripts`: ");
    assert!(fixture.laptop.run_dirs().is_empty(), "no host was contacted");
    write(&fixture.beside("conf/one.json"), b"{}");
    for name in ["a.sh", "b.sh", ".hidden.sh", "c.txt"] {
        write(&fixture.beside("conf").join(name), name.as_bytes());
    }
    let wheel: Vec<u8> = (0..2_700_001_u32).flat_map(|n| n.wrapping_mul(2_654_435_761).to_be_bytes()).collect();
    write(&fixture.remote(0, "dist/x-1.whl"), &wheel);
    write(&fixture.remote(0, "dist/x-2.whl"), b"small");
    write(&fixture.remote(0, "dist/x-1.tar.gz"), b"other");
    write(&fixture.remote(0, "dist/.x-3.whl"), b"hidden");
    write(&fixture.remote(1, "only-here"), b"of gpu02");
    std::fs::set_permissions(fixture.remote(1, "only-here"), std::fs::Permissions::from_mode(0o711)).expect("a mode");
    let first = fixture.prepare(&[]).await;
    first
        .assert_exit_code(0)
        .assert_contains("config: changed gpu[01-03]")
        .assert_contains("scripts: changed gpu[02-03]")
        .assert_contains("wheel: changed gpu[01-03]")
        .assert_contains("tasks     changed 10");
    let names = |host: usize, dir: &str| {
        let mut names: Vec<_> =
            std::fs::read_dir(fixture.remote(host, dir)).expect("a folder").map(|e| e.expect("an entry").file_name()).collect();
        names.sort();
        names
    };
    for host in 0..3 {
        let config = fixture.remote(host, "etc/copied.json").metadata().expect("the config");
        let source = fixture.beside("conf/one.json").metadata().expect("its source");
        assert_eq!((config.mode() & 0o777, config.mtime()), (0o600, source.mtime()), "host {host}");
        assert_eq!(names(host, "wheels"), ["x-1.whl", "x-2.whl"], "host {host}");
        let copy = std::fs::read(fixture.remote(host, "wheels/x-1.whl")).expect("read");
        assert_eq!(sha256_hex(&copy), sha256_hex(&wheel), "host {host}");
        if host > 0 {
            assert_eq!(names(host, "bin"), ["a.sh", "b.sh"], "host {host}");
            let renamed = fixture.remote(host, "renamed");
            assert_eq!(
                (std::fs::read(&renamed).expect("read"), renamed.metadata().expect("it").mode() & 0o777),
                (b"of gpu02".to_vec(), 0o711)
            );
        }
    }
    let second = fixture.prepare(&[]).await;
    second.assert_exit_code(0).assert_contains("wheel: ok gpu[01-03]").assert_contains("tasks     changed 0  ok 10");
    write(&fixture.remote(0, "dist/x-2.whl"), b"built again");
    let third = fixture.prepare(&[]).await;
    third.assert_exit_code(0).assert_contains("wheel: changed gpu[01-03]").assert_contains("tasks     changed 3");
    assert_eq!(std::fs::read(fixture.remote(2, "wheels/x-2.whl")).expect("read"), b"built again");
    fixture.end().await;
}

/// Each problem is reported with its host and the next step, and no file gets its final name.
#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn problems_of_copies_are_named() {
    let tasks = r#"
  - { name: wheel, copy: { from: "master:~/dist/x-*.whl", to: ~/wheels/ } }
"#;
    let fixture = CopyFixture::new(2, false, tasks).await;
    let without = fixture.prepare(&[]).await;
    without
        .assert_exit_code(1)
        .assert_contains("task `wheel` failed on gpu[01-02]")
        .assert_contains("host gpu01: ~/dist/x-*.whl: no file matches")
        .assert_contains("run the task that makes it first");
    write(&fixture.fixture.host_home(0).join("secret"), b"secret");
    std::fs::create_dir_all(fixture.remote(0, "dist")).expect("made");
    symlink("../secret", fixture.remote(0, "dist/x-1.whl")).expect("a link");
    let link = fixture.prepare(&[]).await;
    link.assert_exit_code(1).assert_contains("x-1.whl is a link, not a file").assert_contains("follows no link");
    std::fs::remove_file(fixture.remote(0, "dist/x-1.whl")).expect("removed");
    write(&fixture.remote(0, "dist/x-1.whl"), b"wheel");
    std::fs::create_dir_all(fixture.remote(1, "wheels/x-1.whl")).expect("made");
    let directory = fixture.prepare(&[]).await;
    directory
        .assert_exit_code(1)
        .assert_contains("task `wheel` failed on gpu02")
        .assert_contains("wheels/x-1.whl is a directory, not a file");
    std::fs::remove_dir(fixture.remote(1, "wheels/x-1.whl")).expect("removed");
    let programs = |name: &str, script: String| Faults { programs: [(name.to_owned(), script)].into(), ..Faults::default() };
    let at_target =
        |name: &str, script: &str| programs(name, format!("case \"$*\" in *wheels*) {script} ;; *) exec /usr/bin/{name} \"$@\" ;; esac"));
    fixture.fixture.set_faults("gpu02", &at_target("df", "echo header; echo 'dev 100 100 3 97% /'"));
    let space = fixture.prepare(&[]).await;
    space.assert_exit_code(1).assert_contains("no space: 17 MiB are needed, 0 MiB are free").assert_contains("free space there");
    fixture.fixture.set_faults("gpu02", &at_target("mkdir", "echo 'mkdir: cannot create directory: Permission denied' >&2; exit 1"));
    std::fs::remove_dir_all(fixture.remote(1, "wheels")).expect("removed");
    let refused = fixture.prepare(&[]).await;
    refused.assert_exit_code(1).assert_contains("Permission denied").assert_contains("choose a directory that the ssh user can write");
    fixture.fixture.set_faults("gpu02", &Faults::default());
    // A hostile source: names that lead out of the directory are rejected.
    let evil = "case \"$*\" in *stat*) printf '%s 81a4 4 1 %s\\n' \"$nonce\" './../../x-evil.whl' ;; esac; exec /usr/bin/find \"$@\"";
    fixture.fixture.set_faults("gpu01", &programs("find", evil.to_owned()));
    fixture.prepare(&[]).await.assert_exit_code(0);
    assert_eq!(std::fs::read_dir(fixture.remote(1, "wheels")).expect("a folder").count(), 1);
    let deeper = evil.replace("./../../x-evil.whl", "./d/x-evil.whl");
    fixture.fixture.set_faults("gpu01", &programs("find", deeper));
    fixture.prepare(&[]).await.assert_exit_code(1).assert_contains("source host gpu01: the host's answer is invalid");
    fixture.fixture.set_faults("gpu01", &Faults::default());
    fixture.end().await;
}

/// A source file that becomes a link after the listing is not read, and reaches no host.
#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn source_that_becomes_a_link_is_not_followed() {
    let tasks = r#"
  - { name: file, hosts: workers, copy: { from: "master:~/dist/file", to: ~/file } }
"#;
    let fixture = CopyFixture::new(2, false, tasks).await;
    write(&fixture.remote(0, "dist/file"), b"public");
    write(&fixture.remote(0, "dist/kept"), b"public");
    write(&fixture.remote(0, "secret"), b"secret");
    let time = std::time::UNIX_EPOCH + std::time::Duration::from_secs(1_000_000);
    for name in ["dist/file", "dist/kept"] {
        std::fs::File::options().write(true).open(fixture.remote(0, name)).and_then(|file| file.set_modified(time)).expect("a time");
    }
    // Replaces the file by a link to the secret right after the listing, and restores it after it was read.
    let stat = "case \"$*\" in '-c %s %Y ./file') cp -p kept file.new; mv -f file.new file ;; esac; /usr/bin/stat \"$@\"; status=$?; \
                case \"$*\" in *%n*./file) ln -s ../secret file.new; mv -f file.new file ;; esac; exit $status";
    fixture.fixture.set_faults("gpu01", &Faults { programs: [("stat".to_owned(), stat.to_owned())].into(), ..Faults::default() });
    let copy = fixture.prepare(&[]).await;
    copy.assert_exit_code(1).assert_contains("source host gpu01: file: it changed while it was read");
    assert!(!fixture.remote(1, "file").exists());
    fixture.fixture.set_faults("gpu01", &Faults::default());
    fixture.prepare(&[]).await.assert_exit_code(0);
    assert_eq!(std::fs::read(fixture.remote(1, "file")).expect("read"), b"public");
    fixture.end().await;
}

/// After a lost connection a big file resumes where it was cut, with the other host's file; a lost source is reported for each host.
#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn copy_resumes_where_it_was_cut() {
    let tasks = r#"
  - { name: image, hosts: workers, copy: { from: "master:~/image.bin", to: ~/data/ } }
"#;
    let fixture = CopyFixture::new(3, false, tasks).await;
    let content: Vec<u8> = (0..10_000_003_u32).flat_map(|n| n.wrapping_mul(2_654_435_761).to_be_bytes()).collect();
    write(&fixture.remote(0, "image.bin"), &content);
    let parts = fixture.remote(1, "data").join(format!(".orchestrate-part.{}", rustix::process::geteuid().as_raw()));
    let part = async || {
        wait_until("a part of the file", async || {
            let entries = std::fs::read_dir(&parts).ok()?;
            entries.flatten().map(|e| e.path()).find(|p| p.is_file() && p.metadata().is_ok_and(|m| m.len() > 1 << 20))
        })
        .await
    };
    let first = fixture.laptop.start(&["prepare", path_str(&fixture.inventory), "--progress", "plain"]);
    part().await;
    fixture.fixture.sandbox.drop_connections("gpu02").expect("a host");
    let cut = first.wait_for_exit().await;
    cut.assert_exit_code(4).assert_contains("task `image` failed on gpu02");
    assert!(!fixture.remote(1, "data/image.bin").exists(), "nothing is half-written under its final name");
    assert_eq!(sha256_hex(&std::fs::read(fixture.remote(2, "data/image.bin")).expect("read")), sha256_hex(&content));
    let inode = part().await.metadata().expect("a part").ino();
    fixture.prepare(&[]).await.assert_exit_code(0).assert_contains("tasks     changed 1  ok 1");
    let copied = fixture.remote(1, "data/image.bin");
    assert_eq!(copied.metadata().expect("the file").ino(), inode, "its beginning was not sent again");
    assert_eq!(sha256_hex(&std::fs::read(&copied).expect("read")), sha256_hex(&content));
    // The connection to the source is lost.
    for host in [1, 2] {
        std::fs::remove_dir_all(fixture.remote(host, "data")).expect("removed");
    }
    let second = fixture.laptop.start(&["prepare", path_str(&fixture.inventory), "--progress", "plain"]);
    part().await;
    fixture.fixture.sandbox.drop_connections("gpu01").expect("a host");
    let lost = second.wait_for_exit().await;
    lost.assert_exit_code(4).assert_contains("source host gpu01: ").assert_contains("task `image` failed on gpu");
    assert!([1, 2].iter().all(|host| !fixture.remote(*host, "data/image.bin").exists()));
    fixture.prepare(&[]).await.assert_exit_code(0).assert_contains("tasks     changed 2");
    fixture.end().await;
}

/// Files for the container pass through its engine, and a second run changes nothing.
#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn copies_and_syncs_go_into_the_container() {
    let tasks = r#"
  - { name: wheel, in: container, copy: { from: "master:~/x.whl", to: "$BENCH/in.{{ host.name }}/" } }
  - { name: code, in: container, sync: { from: ./src, to: "$BENCH/src.{{ host.name }}" } }
"#;
    let fixture = CopyFixture::new(2, true, tasks).await;
    write(&fixture.remote(0, "x.whl"), b"wheel");
    write(&fixture.beside("src/d/a.py"), b"code");
    fixture.prepare(&[]).await.assert_exit_code(0).assert_contains("tasks     changed 4");
    for host in ["gpu01", "gpu02"] {
        let inside = fixture.fixture.control_dir();
        assert_eq!(std::fs::read(inside.join(format!("in.{host}/x.whl"))).expect("read"), b"wheel");
        assert_eq!(std::fs::read(inside.join(format!("src.{host}/d/a.py"))).expect("read"), b"code");
    }
    fixture.prepare(&[]).await.assert_exit_code(0).assert_contains("tasks     changed 0  ok 4");
    fixture.end().await;
}

/// The logs of the tasks of host and container are followed while a host sends a file and gets it itself.
#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn host_with_tasks_beside_its_container_hands_out_a_file() {
    let tasks = r#"
  - { name: build, in: host, hosts: master, run: "echo wheel >~/x.whl", creates: ~/x.whl }
  - { name: look, run: "true" }
  - { name: hand it out, in: host, copy: { from: "master:~/x.whl", to: ~/wheels/ } }
"#;
    let fixture = CopyFixture::new(2, true, tasks).await;
    fixture.prepare(&[]).await.assert_exit_code(0).assert_contains("tasks     changed 5");
    for host in [0, 1] {
        assert_eq!(std::fs::read(fixture.remote(host, "wheels/x.whl")).expect("read"), b"wheel\n");
    }
    fixture.end().await;
}

/// A docker that fails with this message when a file is sent into a container.
fn docker_that_fails(text: &str) -> Faults {
    let script = format!("case \"$1 $2\" in 'exec -i') echo '{text}' >&2; exit 1 ;; esac; exec \"$SANDBOX_HOST/bin/docker\" \"$@\"");
    Faults { programs: [("docker".to_owned(), script)].into(), ..Faults::default() }
}

/// A vanished container fails the task, while its host stays reachable; a dry run reports the reason.
#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn vanished_container_fails_the_task() {
    let tasks = r#"
  - { name: code, in: container, sync: { from: ./src, to: "$BENCH/src.{{ host.name }}" } }
"#;
    let fixture = CopyFixture::new(2, true, tasks).await;
    write(&fixture.beside("src/a.py"), b"code");
    let forecast = fixture.prepare(&["--dry-run"]).await;
    forecast.assert_exit_code(0).assert_contains("code  gpu[01-02]  would send its files, if the container lacks them");
    fixture.fixture.set_faults("gpu02", &docker_that_fails("Error response from daemon: No such container: orch-copied-gpu02"));
    let gone = fixture.prepare(&[]).await;
    gone.assert_exit_code(1)
        .assert_contains("task `code` failed on gpu02")
        .assert_contains("the session in the container orch-copied-gpu02 ended early: ")
        .assert_contains("No such container")
        .assert_contains("see on that host with `docker ps -a`")
        .assert_not_contains("unreachable 1");
    fixture.fixture.set_faults("gpu02", &Faults::default());
    fixture.prepare(&[]).await.assert_exit_code(0);
    fixture.fixture.set_faults("gpu02", &docker_that_fails("OCI runtime exec failed: exec failed: unable to start container process"));
    let forecast = fixture.prepare(&["--dry-run"]).await;
    forecast
        .assert_exit_code(0)
        .assert_contains("code  gpu01  nothing differs")
        .assert_contains("code  gpu02  unknown: the session in the container orch-copied-gpu02 ended early: ")
        .assert_contains("OCI runtime exec failed");
    fixture.fixture.set_faults("gpu02", &Faults::default());
    fixture.end().await;
}

/// During the comparison another operator takes the lock of one host: no file is written anywhere.
#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn nothing_is_sent_after_the_lock_was_lost() {
    let tasks = r#"
  - { name: code, sync: { from: ./src, to: ~/code } }
"#;
    let fixture = CopyFixture::new(2, false, tasks).await;
    write(&fixture.beside("src/a.py"), b"code");
    // The session runs `df` first, before any comparison.
    let lock = fixture.fixture.private_dir("copied", 1).join("lock");
    let df = format!(
        "if [ -n \"$nonce\" ] && [ -L '{lock}' ]; then rm -f '{lock}'; ln -s 'other:1 1 lap li@lap' '{lock}'; fi; exec /usr/bin/df \"$@\"",
        lock = lock.display()
    );
    fixture.fixture.set_faults("gpu02", &Faults { programs: [("df".to_owned(), df)].into(), ..Faults::default() });
    let lost = fixture.prepare(&[]).await;
    lost.assert_contains("another operator took the lock");
    for host in 0..2 {
        assert!(!fixture.remote(host, "code").exists(), "host {host}");
    }
    fixture.fixture.set_faults("gpu02", &Faults::default());
    std::fs::remove_file(&lock).expect("removed");
    fixture.prepare(&[]).await.assert_exit_code(0);
    fixture.end().await;
}

/// While a host receives files its bytes are reported, and the failure of another one at once.
#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn bytes_and_failures_are_reported_while_a_task_sends() {
    let tasks = r#"
  - { name: code, sync: { from: ./src, to: ~/code } }
"#;
    let fixture = CopyFixture::new(2, false, tasks).await;
    write(&fixture.beside("src/a.py"), b"code");
    // All bytes have arrived; the test delays their writing to the disk.
    let go = fixture.fixture.control_dir().join("go");
    let sync = format!("while [ ! -e '{}' ]; do sleep 0.1; done; exec /usr/bin/sync \"$@\"", go.display());
    fixture.fixture.set_faults("gpu02", &Faults { programs: [("sync".to_owned(), sync)].into(), ..Faults::default() });
    let no_tar = "case $* in --version) ;; *) echo 'tar: broken' >&2; exit 3 ;; esac";
    fixture.fixture.set_faults("gpu01", &Faults { programs: [("tar".to_owned(), no_tar.to_owned())].into(), ..Faults::default() });
    let mut running = fixture.laptop.start(&["prepare", path_str(&fixture.inventory), "--progress", "json"]);
    running.wait_for_output("\"kind\":\"step-progress\"").await;
    running.wait_for_output("\"kind\":\"step-failed\"").await;
    std::fs::write(&go, "").expect("written");
    let ended = running.wait_for_exit().await;
    ended.assert_exit_code(1).assert_contains("\"done\":4,\"total\":4").assert_contains("tar: broken");
    for host in ["gpu01", "gpu02"] {
        fixture.fixture.set_faults(host, &Faults::default());
    }
    fixture.prepare(&[]).await.assert_exit_code(0).assert_contains("code: changed gpu01; ok gpu02");
    fixture.end().await;
}
