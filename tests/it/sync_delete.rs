//! What `delete` removes on hosts, and what it never removes: `sync` tasks and `push --delete`.

use std::path::Path;

use crate::prepare::job_with_tasks;
use crate::support::{SandboxFixture, path_str};

fn write(path: &Path, content: &str) {
    std::fs::create_dir_all(path.parent().expect("a folder")).expect("made");
    std::fs::write(path, content).expect("written");
}

/// The names in a directory without the marker.
fn names(dir: &Path) -> Vec<String> {
    let mut names: Vec<String> =
        std::fs::read_dir(dir).expect("a folder").map(|entry| entry.expect("an entry").file_name().into_string().expect("text")).collect();
    names.retain(|name| name != ".orchestrate-sync");
    names.sort();
    names
}

#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn sync_deletes_only_in_a_directory_that_a_sync_made() {
    let tasks = r#"
  - { name: code, sync: { from: ./src, to: ~/code, exclude: ["*.ckpt"], delete: true } }
"#;
    let fixture = SandboxFixture::with_hosts(2).await;
    let laptop = fixture.new_laptop("laptop");
    let file = fixture.write_inventory("deleting", &job_with_tasks(&fixture, false, tasks));
    let source = file.parent().expect("a folder").join("src");
    for (name, text) in [("a.py", "a"), ("d/b.py", "b"), (".gitignore", "__pycache__/\n"), ("old/c.py", "c")] {
        write(&source.join(name), text);
    }
    let home = |host: usize| fixture.host_home(host);
    // An existing directory: nothing in it changes.
    write(&home(1).join("code/precious"), "mine");
    let prepare = async |more: &[&str]| laptop.run(&[&["prepare", path_str(&file), "--progress", "plain"], more].concat()).await;
    let refused = prepare(&[]).await;
    refused
        .assert_exit_code(1)
        .assert_contains("code: 1 entries, for example precious, would be removed, but no sync has made this directory")
        .assert_contains("leave out `delete`, or remove the directory there");
    assert_eq!(names(&home(1).join("code")), ["precious"]);
    std::fs::remove_dir_all(home(1).join("code")).expect("removed");
    prepare(&[]).await.assert_exit_code(0);
    // Files that ranks and users have added are removed, except those that the filters exclude.
    for host in 0..2 {
        for name in ["extra.py", "d/extra/deep/x", "model.ckpt", "d/__pycache__/b.pyc", "runs/last.ckpt"] {
            write(&home(host).join("code").join(name), "x");
        }
    }
    std::fs::remove_dir_all(source.join("old")).expect("removed");
    prepare(&[]).await.assert_exit_code(0).assert_contains("tasks     changed 2");
    for host in 0..2 {
        let code = home(host).join("code");
        assert_eq!(names(&code), [".gitignore", "a.py", "d", "model.ckpt", "runs"], "host {host}");
        assert_eq!(names(&code.join("d")), ["__pycache__", "b.py"], "host {host}");
    }
    let journal = std::fs::read_to_string(laptop.run_dirs().last().expect("a run").join("journal.jsonl")).expect("a journal");
    assert_eq!(journal.matches("6 deleted, 0 B").count(), 2, "extra.py, d/extra, deep, x, old, c.py");
    prepare(&[]).await.assert_exit_code(0).assert_contains("tasks     changed 0  ok 2");
    // An empty source would remove everything.
    std::fs::remove_dir_all(&source).expect("removed");
    std::fs::create_dir(&source).expect("made");
    prepare(&[]).await.assert_exit_code(2).assert_contains("`delete` would remove everything on the hosts");
    assert_eq!(names(&home(0).join("code")).len(), 5);
    laptop.run(&["down", path_str(&file)]).await.assert_exit_code(0);
    fixture.assert_clean_and_stop().await;
}

#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn push_delete_names_what_it_removes() {
    let fixture = SandboxFixture::with_hosts(2).await;
    let laptop = fixture.new_laptop("laptop");
    let file = fixture.write_inventory("deleting", &crate::support::JobSpec::default());
    let tree = laptop.home.join("tree");
    for name in ["a", "d/b", "d/c"] {
        write(&tree.join(name), "x");
    }
    let push = async |more: &[&str]| laptop.run(&[&["push", "-i", path_str(&file)], more, &[path_str(&tree), "~/in"]].concat()).await;
    push(&["--delete"]).await.assert_exit_code(0).assert_contains("changed 2");
    std::fs::remove_dir_all(tree.join("d")).expect("removed");
    let dry = push(&["--delete", "--dry-run", "--diff"]).await;
    dry.assert_exit_code(0).assert_contains("would change  gpu[01-02]: 3 deleted, 0 B").assert_contains("\n  - d/c\n  - d/b\n  - d\n");
    assert_eq!(names(&fixture.host_home(0).join("in")), ["a", "d"]);
    push(&[]).await.assert_exit_code(0).assert_contains("ok 2  changed 0");
    push(&["--delete"]).await.assert_exit_code(0).assert_contains("changed  gpu[01-02]: 3 deleted, 0 B");
    assert_eq!(names(&fixture.host_home(0).join("in")), ["a"]);
    push(&["--delete"]).await.assert_exit_code(0).assert_contains("ok 2  changed 0");
    for (arguments, message) in [
        (["push", "-i", path_str(&file), "--delete", path_str(&tree), "~"], "--delete would remove everything in `~`"),
        (["push", "-i", path_str(&file), "--delete", path_str(&tree.join("a")), "~/x"], "--delete needs a directory"),
    ] {
        laptop.run(&arguments).await.assert_exit_code(2).assert_contains(message);
    }
    fixture.assert_clean_and_stop().await;
}
