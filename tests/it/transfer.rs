//! `push` and `pull` against the sandbox: complete copies, reruns, resumed transfers, and hostile trees.

use std::collections::BTreeMap;
use std::ffi::OsStr;
use std::os::unix::ffi::OsStrExt as _;
use std::os::unix::fs::{MetadataExt as _, PermissionsExt as _, symlink};
use std::path::{Path, PathBuf};

use orchestrate::sandbox::Faults;

use crate::support::{CliOutput, JobSpec, Laptop, SandboxFixture, path_str, sha256_hex, wait_until};

struct TransferFixture {
    fixture: SandboxFixture,
    laptop: Laptop,
    inventory: PathBuf,
}

impl TransferFixture {
    async fn new(hosts: usize) -> TransferFixture {
        let fixture = SandboxFixture::with_hosts(hosts).await;
        let (laptop, inventory) = (fixture.new_laptop("laptop"), fixture.write_inventory("files", &JobSpec::default()));
        TransferFixture { fixture, laptop, inventory }
    }

    async fn run(&self, args: &[&str]) -> CliOutput {
        let (command, rest) = args.split_first().expect("a command");
        let all: Vec<&str> = [&[*command, "-i", path_str(&self.inventory)], rest].concat();
        self.laptop.run(&all).await
    }

    /// A path of the laptop.
    fn local(&self, name: &str) -> PathBuf {
        self.laptop.home.join(name)
    }

    /// A path in a host's home.
    fn remote(&self, host: usize, name: &str) -> PathBuf {
        self.fixture.host_home(host).join(name)
    }
}

/// The directory where a host keeps incomplete files.
fn part_dir() -> String {
    format!(".orchestrate-part.{}", rustix::process::geteuid().as_raw())
}

fn write(path: &Path, content: &[u8]) {
    std::fs::create_dir_all(path.parent().expect("a folder")).expect("made");
    std::fs::write(path, content).expect("written");
}

/// Bytes that are hard to compress and rarely repeat.
fn noise(size: usize) -> Vec<u8> {
    let mut state = 0x9e37_79b9_7f4a_7c15_u64;
    (0..size)
        .map(|_| {
            state = state.wrapping_mul(6_364_136_223_846_793_005).wrapping_add(1_442_695_040_888_963_407);
            state.to_be_bytes()[0]
        })
        .collect()
}

/// A directory with every kind of name.
fn make_odd_tree(root: &Path) {
    let long = "l".repeat(255);
    let names: [&[u8]; 7] =
        [b"plain", b"new\nline\n", b"\xff\xfe not utf8", b"-rf", b" lead and trail ", b"a'b\"c$(d)`e`\\", long.as_bytes()];
    for dir in ["", "d", "d/e", "-x"] {
        for name in names {
            let path = root.join(dir).join(OsStr::from_bytes(name));
            write(&path, &[dir.as_bytes(), b"/", name].concat());
        }
    }
    write(&root.join("empty"), b"");
    std::fs::create_dir_all(root.join("empty-dir")).expect("made");
    std::fs::set_permissions(root.join("plain"), std::fs::Permissions::from_mode(0o750)).expect("a mode");
    symlink("d/plain", root.join("link")).expect("a link");
    symlink("../d/e", root.join("d/up")).expect("a link");
    let deep = (0..20).fold(root.join("deep"), |path, n| path.join(format!("{n}-{}", "x".repeat(30))));
    write(&deep.join("file"), b"deep");
}

/// The entries of a tree by name: mode, time, and content, link target or `dir`.
fn tree_state(root: &Path) -> BTreeMap<PathBuf, (u32, i64, Vec<u8>)> {
    let mut found = BTreeMap::new();
    let mut open = vec![root.to_owned()];
    while let Some(dir) = open.pop() {
        for entry in std::fs::read_dir(&dir).expect("a folder") {
            let path = entry.expect("an entry").path();
            let stat = std::fs::symlink_metadata(&path).expect("it is there");
            let state = if stat.is_symlink() {
                (0, 0, std::fs::read_link(&path).expect("a link").as_os_str().as_bytes().to_vec())
            } else if stat.is_dir() {
                open.push(path.clone());
                (stat.mode(), 0, b"dir".to_vec())
            } else {
                (stat.mode(), stat.mtime(), std::fs::read(&path).expect("read"))
            };
            found.insert(path.strip_prefix(root).expect("below").to_owned(), state);
        }
    }
    found
}

#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn tree_arrives_everywhere_and_a_rerun_sends_only_what_differs() {
    let fixture = TransferFixture::new(3).await;
    let tree = fixture.local("tree");
    make_odd_tree(&tree);
    let dry = fixture.run(&["push", "--dry-run", path_str(&tree), "~/in/tree"]).await;
    dry.assert_exit_code(0)
        .assert_contains("would change  gpu[01-03]: ")
        .assert_contains("ok 0  would change 3  failed 0")
        .assert_contains("nothing was changed");
    assert!(!fixture.remote(0, "in").exists());
    let first = fixture.run(&["push", path_str(&tree), "~/in/tree"]).await;
    first.assert_exit_code(0).assert_contains("ok 0  changed 3  failed 0  unreachable 0");
    for host in 0..3 {
        assert_eq!(tree_state(&tree), tree_state(&fixture.remote(host, "in/tree")), "host {host}");
    }
    let second = fixture.run(&["push", path_str(&tree), "~/in/tree"]).await;
    second.assert_exit_code(0).assert_contains("ok 3  changed 0");
    // Changes one file, one mode and one link, and removes a file on one host.
    write(&tree.join("d/plain"), b"another length");
    std::fs::set_permissions(tree.join("d/-rf"), std::fs::Permissions::from_mode(0o711)).expect("a mode");
    std::fs::remove_file(tree.join("link")).expect("removed");
    symlink("d/-rf", tree.join("link")).expect("a link");
    std::fs::remove_file(fixture.remote(1, "in/tree/d/e/plain")).expect("removed");
    let third = fixture.run(&["push", "--diff", path_str(&tree), "~/in/tree"]).await;
    third.assert_exit_code(0).assert_contains("changed  gpu[01,03]: 2 changed, 1 mode, 14 B");
    third.assert_contains("\n  m d/-rf\n  ~ d/plain\n  ~ link\n").assert_contains("changed  gpu02: 1 new, 2 changed, 1 mode");
    for host in 0..3 {
        assert_eq!(tree_state(&tree), tree_state(&fixture.remote(host, "in/tree")), "host {host}");
    }
    fixture.fixture.assert_clean_and_stop().await;
}

#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn pulled_trees_are_equal_and_kept_apart_by_host() {
    let fixture = TransferFixture::new(2).await;
    for host in 0..2 {
        make_odd_tree(&fixture.remote(host, "out"));
        write(&fixture.remote(host, "out/big"), &noise((20 << 20) + 17 + host));
    }
    std::fs::hard_link(fixture.remote(0, "out/plain"), fixture.remote(0, "out/same")).expect("a link");
    let dest = fixture.local("got");
    fixture
        .run(&["pull", "--dry-run", "~/out", path_str(&dest)])
        .await
        .assert_exit_code(0)
        .assert_contains("would copy    gpu01: ")
        .assert_contains("would copy 2  failed 0");
    assert!(!dest.exists());
    fixture.run(&["pull", "~/out", path_str(&dest)]).await.assert_exit_code(0).assert_contains("copied 2  failed 0");
    for host in 0..2 {
        assert_eq!(tree_state(&fixture.remote(host, "out")), tree_state(&dest.join(format!("gpu0{}", host + 1))), "host {host}");
    }
    fixture.run(&["pull", "~/out", path_str(&dest)]).await.assert_exit_code(0).assert_contains("ok 2  copied 0");
    write(&fixture.remote(1, "out/d/plain"), b"other content");
    let third = fixture.run(&["pull", "--diff", "~/out", path_str(&dest)]).await;
    third.assert_exit_code(0).assert_contains("copied   gpu02: 1 changed, 13 B (").assert_contains("  ~ d/plain");
    // More files in one batch than a process may hold open.
    for n in 0..1_500 {
        write(&fixture.remote(0, &format!("many/{n}")), b"x");
    }
    fixture.run(&["pull", "--limit", "gpu01", "~/many", path_str(&fixture.local("many"))]).await.assert_exit_code(0);
    assert_eq!(std::fs::read_dir(fixture.local("many/gpu01")).expect("a directory").count(), 1_500);
    // A single file, and something that is not there.
    fixture.run(&["pull", "--limit", "gpu01", "~/out/d/plain", path_str(&fixture.local("one"))]).await.assert_exit_code(0);
    assert_eq!(std::fs::read(fixture.local("one/gpu01/plain")).expect("read"), b"d/plain");
    fixture.run(&["pull", "~/nowhere", path_str(&dest)]).await.assert_exit_code(1).assert_contains("no such file or directory");
    fixture.fixture.assert_clean_and_stop().await;
}

/// For every unsuitable target of a push the next step is named, and nothing has changed.
#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn bad_input_is_named_with_the_next_step() {
    let fixture = TransferFixture::new(2).await;
    let file = fixture.local("model.bin");
    write(&file, b"weights");
    fixture.run(&["push", "/no/such/file", "~/x"]).await.assert_exit_code(2).assert_contains("/no/such/file: no such file or directory");
    fixture
        .laptop
        .run(&["push", "train.yaml", "a b", "~/x"])
        .await
        .assert_exit_code(2)
        .assert_contains("name the inventory with -i: `orchestrate push -i train.yaml 'a b' '~/x'`");
    fixture.run(&["push", "a", "b", "~/x"]).await.assert_exit_code(2).assert_contains("SRC is one file or one directory");
    fixture.run(&["push", path_str(&file), "x"]).await.assert_exit_code(2).assert_contains("write an absolute path or `~/…`");
    std::fs::create_dir_all(fixture.remote(1, "models/model.bin")).expect("made");
    let directory = fixture.run(&["push", path_str(&file), "~/models/model.bin"]).await;
    directory.assert_exit_code(1).assert_contains("changed  gpu01: 1 new, 7 B").assert_contains("is a directory, not a file");
    directory.assert_contains("to put the file inside");
    assert_eq!(std::fs::read(fixture.remote(0, "models/model.bin")).expect("read"), b"weights");
    write(&fixture.remote(0, "file"), b"x");
    let below = fixture.run(&["push", "--limit", "gpu01", path_str(&file), "~/file/model.bin"]).await;
    below.assert_exit_code(1).assert_contains("it is no directory").assert_contains("help: ");
    symlink("/etc", fixture.local("tree-link")).expect("a link");
    let tree = fixture.local("tree");
    write(&tree.join("ok"), b"x");
    symlink("/etc/passwd", tree.join("out")).expect("a link");
    fixture
        .run(&["push", path_str(&tree), "~/t"])
        .await
        .assert_exit_code(2)
        .assert_contains("tree/out: the link leads out of the directory");
    assert!(!fixture.remote(0, "t").exists());
    let without = fixture.run(&["push", "--exclude", "out", path_str(&tree), "~/t"]).await;
    without.assert_exit_code(0);
    // A host without tar, and an unreachable one.
    let no_tar = BTreeMap::from([("tar".to_owned(), "echo 'tar: broken' >&2; exit 3".to_owned())]);
    fixture.fixture.set_faults("gpu01", &Faults { programs: no_tar, ..Faults::default() });
    fixture.fixture.set_faults("gpu02", &Faults { refuse_key: true, ..Faults::default() });
    let broken = fixture.run(&["push", "--exclude", "out", path_str(&tree), "~/t2"]).await;
    broken.assert_exit_code(4).assert_contains("gpu01: tar: tar: broken").assert_contains("failed 1  unreachable 1");
    assert!(!fixture.remote(0, "t2/ok").exists());
    fixture.fixture.set_faults("gpu01", &Faults::default());
    let full = BTreeMap::from([("df".to_owned(), "echo header; echo 'dev 100 100 3 97% /'".to_owned())]);
    fixture.fixture.set_faults("gpu01", &Faults { programs: full, ..Faults::default() });
    let space = fixture.run(&["push", "--limit", "gpu01", path_str(&file), "~/y"]).await;
    space.assert_exit_code(1).assert_contains("no space: 17 MiB are needed, 0 MiB are free").assert_contains("free space there");
    fixture.fixture.assert_clean_and_stop().await;
}

#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn a_big_file_resumes_where_it_was_cut() {
    let fixture = TransferFixture::new(2).await;
    let file = fixture.local("big.bin");
    let content = noise(96 << 20);
    write(&file, &content);
    // The connection to one host is cut in the middle; the other one has the whole file.
    let dir = fixture.remote(1, "data");
    let push = fixture.laptop.start(&["push", "-i", path_str(&fixture.inventory), path_str(&file), "~/data/big.bin"]);
    let part = wait_until("a part of the file", async || {
        let entries = std::fs::read_dir(dir.join(part_dir())).ok()?;
        entries.flatten().map(|e| e.path()).find(|p| p.is_file() && p.metadata().is_ok_and(|m| m.len() > 1 << 20))
    })
    .await;
    fixture.fixture.sandbox.drop_connections("gpu02").expect("a host");
    let cut = push.wait_for_exit().await;
    cut.assert_exit_code(4).assert_contains("gpu02: ").assert_contains("a big file goes on where it was cut");
    assert!(!dir.join("big.bin").exists(), "nothing is half-written under its final name");
    assert_eq!(sha256_hex(&std::fs::read(fixture.remote(0, "data/big.bin")).expect("read")), sha256_hex(&content));
    let kept = wait_until("the cut session has ended", async || {
        let before = part.metadata().ok()?.len();
        tokio::time::sleep(std::time::Duration::from_millis(200)).await;
        (part.metadata().ok()?.len() == before).then_some(before)
    })
    .await;
    assert!(kept < 96 << 20);
    // The existing beginning is verified and not sent again: it is still in the same file.
    let inode = part.metadata().expect("a part").ino();
    fixture.run(&["push", path_str(&file), "~/data/big.bin"]).await.assert_exit_code(0).assert_contains("ok 1  changed 1");
    let stat = dir.join("big.bin").metadata().expect("the file");
    assert_eq!((stat.ino(), stat.len()), (inode, 96 << 20));
    assert_eq!(sha256_hex(&std::fs::read(dir.join("big.bin")).expect("read")), sha256_hex(&content));
    // A beginning with other content is sent again.
    write(&file, &noise(10 << 20));
    let push = fixture.run(&["push", "--limit", "gpu01", path_str(&file), "~/other/big.bin"]).await;
    push.assert_exit_code(0);
    fixture.fixture.assert_clean_and_stop().await;
}

/// A rank may write to the target of a push: links that it plants are not followed, and nothing is written below them.
#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn links_in_the_target_are_not_followed() {
    let fixture = TransferFixture::new(1).await;
    let (tree, home) = (fixture.local("tree"), fixture.remote(0, ""));
    write(&tree.join("d/file"), b"pushed");
    write(&tree.join("top"), b"pushed");
    write(&home.join("precious/file"), b"mine");
    write(&home.join("precious/top"), b"mine");
    std::fs::create_dir_all(home.join("to")).expect("made");
    symlink("../precious", home.join("to/d")).expect("a link");
    let refused = fixture.run(&["push", path_str(&tree), "~/to"]).await;
    refused.assert_exit_code(1).assert_contains("is a link, not a directory").assert_contains("nothing is written through a link");
    std::fs::remove_file(home.join("to/d")).expect("removed");
    symlink("../precious/top", home.join("to/top")).expect("a link");
    symlink("../precious", home.join("to").join(part_dir())).expect("a link");
    let part = fixture.run(&["push", path_str(&tree), "~/to"]).await;
    part.assert_exit_code(1).assert_contains("this is no directory of orchestrate");
    std::fs::remove_file(home.join("to").join(part_dir())).expect("removed");
    // A link that has a file's name is replaced, not followed.
    fixture.run(&["push", path_str(&tree), "~/to"]).await.assert_exit_code(0);
    assert!(home.join("to/top").symlink_metadata().expect("a file").is_file());
    let mine = |name: &str| std::fs::read(home.join("precious").join(name)).expect("read");
    assert_eq!((mine("file"), mine("top")), (b"mine".to_vec(), b"mine".to_vec()));
    fixture.fixture.assert_clean_and_stop().await;
}

/// A host with hostile tools: names that lead out of the directory, files that were not requested, links, endless output.
#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn a_hostile_host_changes_nothing_outside_its_directory() {
    let fixture = TransferFixture::new(1).await;
    let (out, dest) = (fixture.remote(0, "out"), fixture.local("got"));
    write(&out.join("good"), b"good");
    symlink("/etc/passwd", out.join("absolute")).expect("a link");
    symlink("../../..", out.join("up")).expect("a link");
    let fifo = std::process::Command::new("mkfifo").arg(out.join("fifo")).status().expect("mkfifo");
    assert!(fifo.success());
    let skipped = fixture.run(&["pull", "~/out", path_str(&dest)]).await;
    skipped.assert_exit_code(1).assert_contains("absolute: the link leads out").assert_contains("fifo: a fifo is not copied");
    let names = |dir: &Path| tree_state(dir).keys().map(|p| p.display().to_string()).collect::<Vec<_>>();
    assert_eq!(names(&dest), ["gpu01", "gpu01/good"]);
    let lying = |name: &str, script: &str| Faults { programs: BTreeMap::from([(name.to_owned(), script.to_owned())]), ..Faults::default() };
    let real = "exec /usr/bin/find \"$@\"";
    for evil in ["../../evil", "/evil", "a/../../evil", "a//b"] {
        let script = format!("case \"$*\" in *stat*) printf '%s 81a4 4 1 %s\\n' \"$nonce\" './{evil}';; esac; {real}");
        fixture.fixture.set_faults("gpu01", &lying("find", &script));
        let pull = fixture.run(&["pull", "~/out", path_str(&dest)]).await;
        pull.assert_exit_code(1).assert_contains("a name is relative and holds no");
        assert_eq!(names(&dest), ["gpu01", "gpu01/good"], "{evil}");
    }
    // An archive with other members, and one with a link and a file below it.
    std::fs::remove_file(dest.join("gpu01/good")).expect("removed");
    write(&fixture.local("evil/good"), b"evil");
    let tar = format!("exec /usr/bin/env -i PATH=/usr/bin:/bin tar -cf - -C {} ./good ../evil/good -P", fixture.local("evil").display());
    fixture.fixture.set_faults("gpu01", &lying("tar", &tar));
    fixture.run(&["pull", "~/out", path_str(&dest)]).await.assert_exit_code(1).assert_contains("a file that was not asked for");
    fixture.fixture.set_faults("gpu01", &lying("tar", "case $* in --version) exit ;; esac; yes"));
    fixture.run(&["pull", "~/out", path_str(&dest)]).await.assert_exit_code(1).assert_contains("this is no tar archive");
    assert!(!dest.join("gpu01/good").exists());
    // The laptop's own links are not followed either.
    fixture.fixture.set_faults("gpu01", &Faults::default());
    write(&fixture.local("precious/file"), b"mine");
    write(&out.join("sub/file"), b"theirs");
    symlink("../../precious", dest.join("gpu01/sub")).expect("a link");
    fixture.run(&["pull", "~/out", path_str(&dest)]).await.assert_exit_code(1).assert_contains("is a link on this laptop, not a directory");
    assert_eq!(std::fs::read(fixture.local("precious/file")).expect("read"), b"mine");
    fixture.fixture.assert_clean_and_stop().await;
}

/// A device, a file larger than the disk, a tree deeper than the limit: each is named, on both sides, and what is beside it arrives.
#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn devices_huge_files_and_deep_trees_are_refused() {
    let fixture = TransferFixture::new(1).await;
    let (out, dest) = (fixture.remote(0, "out"), fixture.local("got"));
    let make_deep = |root: &Path| write(&(0..130).fold(root.to_owned(), |path, _| path.join("d")).join("file"), b"deep");
    let make_huge = |path: &Path| {
        write(path, b"");
        std::fs::File::options().write(true).open(path).and_then(|file| file.set_len(10 << 40)).expect("a file with one hole");
    };
    write(&out.join("good"), b"good");
    // As stat's mode, since only root makes devices.
    let device = "case \"$*\" in *stat*) printf '%s 21b6 0 1 %s\\n' \"$nonce\" './null';; esac; exec /usr/bin/find \"$@\"";
    fixture.fixture.set_faults("gpu01", &programs(&[("find", device.to_owned())]));
    fixture.run(&["pull", "~/out", path_str(&dest)]).await.assert_exit_code(1).assert_contains("null: a device is not copied");
    fixture.fixture.set_faults("gpu01", &Faults::default());
    fixture.run(&["push", "/dev/null", "~/null"]).await.assert_exit_code(2).assert_contains("/dev/null: a device");
    make_deep(&out);
    let pulled = fixture.run(&["pull", "~/out", path_str(&dest)]).await;
    pulled.assert_exit_code(1).assert_contains("the tree is deeper than 128 directories");
    assert_eq!(std::fs::read(dest.join("gpu01/good")).expect("beside them"), b"good");
    let tree = fixture.local("tree");
    make_deep(&tree);
    fixture.run(&["push", path_str(&tree), "~/in"]).await.assert_exit_code(2).assert_contains("the tree is deeper than 128 directories");
    make_huge(&out.join("huge"));
    let full = fixture.run(&["pull", "~/out/huge", path_str(&dest)]).await;
    full.assert_exit_code(1).assert_contains("no space on this laptop: 10485760 MiB are announced").assert_contains("help: free space");
    make_huge(&fixture.local("huge"));
    let full = fixture.run(&["push", path_str(&fixture.local("huge")), "~/in/huge"]).await;
    full.assert_exit_code(1).assert_contains("no space: 104857");
    assert!(!fixture.remote(0, "null").exists() && !fixture.remote(0, "in/d").exists() && !fixture.remote(0, "in/huge").exists());
    assert!(!dest.join("gpu01/huge").exists());
    fixture.fixture.assert_clean_and_stop().await;
}

/// Faults that replace programs of the host.
fn programs(list: &[(&str, String)]) -> Faults {
    let programs = list.iter().map(|(name, script)| ((*name).to_owned(), script.clone())).collect();
    Faults { programs, ..Faults::default() }
}

/// A file changes after it was announced: it gets its final name on no host, whether small or big.
#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn a_file_that_changes_while_it_is_read_reaches_no_host() {
    let fixture = TransferFixture::new(1).await;
    // A small file goes in an archive, a big one in segments.
    for (round, names) in [(0, &[("a", 1), ("b", 1)][..]), (1, &[("big", 40)])] {
        let (tree, dest) = (fixture.local(&format!("tree{round}")), format!("~/in{round}"));
        for (name, size) in names {
            write(&tree.join(name), &noise(size << 20));
        }
        let (started, go) = (fixture.local(&format!("started{round}")), fixture.local(&format!("go{round}")));
        // The session asks for tar's version first: at that time the directory is listed, and no content is read.
        let wait = format!("touch '{}'; while [ ! -e '{}' ]; do sleep 0.05; done", started.display(), go.display());
        fixture.fixture.set_faults("gpu01", &programs(&[("tar", format!("{wait}; exec /usr/bin/tar \"$@\""))]));
        let push = fixture.laptop.start(&["push", "-i", path_str(&fixture.inventory), path_str(&tree), &dest]);
        wait_until("the host waits", async || started.exists().then_some(())).await;
        let last = tree.join(names.last().expect("a name").0);
        let file = std::fs::File::options().write(true).open(&last).expect("opened");
        file.set_modified(std::time::UNIX_EPOCH + std::time::Duration::from_secs(1_000_000)).expect("a time");
        write(&go, b"");
        let failed = push.wait_for_exit().await;
        failed.assert_exit_code(1).assert_contains(&format!("{}: it changed while it was read", last.display()));
        for (name, _) in names {
            assert!(!fixture.remote(0, &format!("in{round}/{name}")).exists(), "{name}");
        }
        fixture.fixture.set_faults("gpu01", &Faults::default());
        fixture.run(&["push", path_str(&tree), &dest]).await.assert_exit_code(0).assert_contains("changed 1");
        for (name, _) in names {
            let arrived = std::fs::read(fixture.remote(0, &format!("in{round}/{name}"))).expect("read");
            assert_eq!(sha256_hex(&arrived), sha256_hex(&std::fs::read(tree.join(name)).expect("read")), "{name}");
        }
    }
    fixture.fixture.assert_clean_and_stop().await;
}

/// tar's message about a file that changes is reported, and such a file is not kept.
#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn a_file_of_a_host_that_changes_while_it_is_read_is_named() {
    let fixture = TransferFixture::new(1).await;
    let out = fixture.remote(0, "out");
    let version = "case $* in --version) exec /usr/bin/tar --version ;; esac";
    let complaint = "echo 'tar: ./b: file changed as we read it' >&2; exit 1";
    let after = format!("{version}; /usr/bin/tar \"$@\"; touch -d @1000 '{}'; {complaint}", out.join("b").display());
    let before = format!("{version}; echo more >>'{}'; exec /usr/bin/tar \"$@\"", out.join("b").display());
    // In turn: the time changes, the size grows, only tar's message shows it.
    let rounds = [
        (after, "b: it changed while it was read", false),
        (before, "b: it changed while it was read", false),
        (format!("{version}; /usr/bin/tar \"$@\"; {complaint}"), "a file changed while it was read: tar: ./b: file changed as we", true),
    ];
    for (round, (tar, named, kept)) in rounds.into_iter().enumerate() {
        write(&out.join("a"), b"first");
        write(&out.join("b"), b"second");
        let dest = fixture.local(&format!("got{round}"));
        fixture.fixture.set_faults("gpu01", &programs(&[("tar", tar)]));
        fixture.run(&["pull", "~/out", path_str(&dest)]).await.assert_exit_code(1).assert_contains(named).assert_contains("failed 1");
        assert_eq!((dest.join("gpu01/a").exists(), dest.join("gpu01/b").exists()), (true, kept), "{named}");
        fixture.fixture.set_faults("gpu01", &Faults::default());
        fixture.run(&["pull", "~/out", path_str(&dest)]).await.assert_exit_code(0);
        assert_eq!(tree_state(&out), tree_state(&dest.join("gpu01")));
    }
    // A hard link to a file that is larger than announced is not copied.
    let (evil, dest) = (fixture.local("evil"), fixture.local("linked"));
    write(&evil.join("a"), b"first");
    std::fs::hard_link(evil.join("a"), evil.join("b")).expect("a link");
    write(&out.join("a"), b"first");
    write(&out.join("b"), b"b");
    let tar = format!("{version}; exec /usr/bin/tar -cf - -C '{}' ./a ./b", evil.display());
    fixture.fixture.set_faults("gpu01", &programs(&[("tar", tar)]));
    fixture.run(&["pull", "~/out", path_str(&dest)]).await.assert_exit_code(1).assert_contains("b: it changed while it was read");
    assert!(!dest.join("gpu01/b").exists() && dest.join("gpu01/a").exists());
    fixture.fixture.assert_clean_and_stop().await;
}

/// A host that fails in the middle of a big file does not stop the others: the rest of the file is not sent to it.
#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn a_host_that_fails_in_a_big_file_stops_no_other() {
    let fixture = TransferFixture::new(2).await;
    let file = fixture.local("big.bin");
    let content = noise(60 << 20);
    write(&file, &content);
    fixture.fixture.set_faults("gpu01", &programs(&[("tee", "head -c 100000 >/dev/null; exit 1".to_owned())]));
    let push = fixture.run(&["push", path_str(&file), "~/data/big.bin"]).await;
    push.assert_exit_code(1).assert_contains("gpu01: ").assert_contains("no space left on device").assert_contains("changed 1  failed 1");
    assert!(!fixture.remote(0, "data/big.bin").exists());
    assert_eq!(sha256_hex(&std::fs::read(fixture.remote(1, "data/big.bin")).expect("read")), sha256_hex(&content));
    fixture.fixture.set_faults("gpu01", &Faults::default());
    fixture.run(&["push", path_str(&file), "~/data/big.bin"]).await.assert_exit_code(0).assert_contains("ok 1  changed 1");
    assert_eq!(sha256_hex(&std::fs::read(fixture.remote(0, "data/big.bin")).expect("read")), sha256_hex(&content));
    fixture.fixture.assert_clean_and_stop().await;
}
