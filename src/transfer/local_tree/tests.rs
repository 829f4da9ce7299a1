//! Walks and contents of local trees.

use super::*;

fn names(tree: &LocalTree) -> Vec<String> {
    tree.entries.iter().map(|e| e.name.display()).collect()
}

fn make_tree() -> tempfile::TempDir {
    let dir = tempfile::tempdir().expect("a folder");
    for path in [".git/HEAD", "src/main.py", "src/big.ckpt", "out/log", ".hidden", ".orchestrate-part/n.1", "src/.orchestrate-part.0/x"] {
        let path = dir.path().join(path);
        std::fs::create_dir_all(path.parent().expect("a folder")).expect("made");
        std::fs::write(path, "x").expect("written");
    }
    std::fs::write(dir.path().join(".gitignore"), "out/\n").expect("written");
    dir
}

#[test]
fn filters_leave_out_what_they_name() {
    let dir = make_tree();
    let all = LocalTree::walk(dir.path(), &TreeFilter::default()).expect("a tree");
    assert_eq!(names(&all), [".git", ".git/HEAD", ".gitignore", ".hidden", "out", "out/log", "src", "src/big.ckpt", "src/main.py"]);
    let filter = TreeFilter { exclude: vec!["*.ckpt".to_owned()], gitignore: true };
    let some = LocalTree::walk(dir.path(), &filter).expect("a tree");
    assert_eq!(names(&some), [".gitignore", ".hidden", "src", "src/main.py"]);
}

#[test]
fn links_out_and_fifos_are_named() {
    let dir = make_tree();
    std::os::unix::fs::symlink("/etc/passwd", dir.path().join("bad")).expect("a link");
    std::os::unix::fs::symlink("src/main.py", dir.path().join("good")).expect("a link");
    rustix::fs::mknodat(rustix::fs::CWD, dir.path().join("pipe"), rustix::fs::FileType::Fifo, 0o644.into(), 0).expect("a fifo");
    let problems = LocalTree::walk(dir.path(), &TreeFilter::default()).expect_err("refused");
    assert_eq!(problems.len(), 2, "{problems:?}");
    assert!(problems.iter().any(|p| p.contains("/bad: the link leads out of the directory")), "{problems:?}");
    assert!(problems.iter().any(|p| p.contains("/pipe: a fifo cannot be sent")), "{problems:?}");
}

#[test]
fn holes_are_noticed() {
    let dir = tempfile::tempdir().expect("a folder");
    std::fs::write(dir.path().join("full"), vec![1; 100_000]).expect("written");
    std::fs::File::create_new(dir.path().join("holes")).and_then(|file| file.set_len(1 << 20)).expect("made");
    let tree = LocalTree::walk(dir.path(), &TreeFilter::default()).expect("a tree");
    assert_eq!([0, 1, 2].map(|index| tree.has_holes(index)), [false, true, false]);
}

#[tokio::test]
async fn contents_come_in_order_and_a_changed_file_is_an_error() {
    let dir = tempfile::tempdir().expect("a folder");
    std::fs::write(dir.path().join("a"), vec![b'a'; 100_000]).expect("written");
    std::fs::write(dir.path().join("b"), "bb").expect("written");
    let tree = LocalTree::walk(dir.path(), &TreeFilter::default()).expect("a tree");
    let mut pieces = tree.read_contents(vec![(0, 99_999), (1, 0)]);
    let mut bytes = Vec::new();
    while let Some(piece) = pieces.recv().await {
        bytes.extend_from_slice(&piece.expect("content"));
    }
    assert_eq!(bytes, b"abb");
    let digests = tree.prefix_digests(0, vec![0, 3]).await.expect("digests");
    assert_eq!(digests[1], hex(Sha256::new_with_prefix(b"aaa")));
    std::fs::write(dir.path().join("b"), "b").expect("written");
    let mut pieces = tree.read_contents(vec![(1, 0)]);
    assert!(pieces.recv().await.expect("an answer").is_err_and(|e| e.what.contains("changed while it was read")));
}

/// A file that cannot be read to its end would leave out too little: it is named, also beside a pattern that is no glob.
#[test]
fn every_gitignore_that_cannot_be_read_is_named() {
    let dir = make_tree();
    std::fs::write(dir.path().join(".gitignore"), b"a{\nout/\n\xff\n").expect("written");
    std::fs::write(dir.path().join("src/.gitignore"), b"{b\n").expect("written");
    let problems = LocalTree::walk(dir.path(), &TreeFilter { exclude: Vec::new(), gitignore: true }).expect_err("refused");
    assert_eq!(problems.len(), 1, "{problems:?}");
    assert!(problems[0].contains("/.gitignore: line 3: ") && problems[0].contains("UTF-8"), "{problems:?}");
}
