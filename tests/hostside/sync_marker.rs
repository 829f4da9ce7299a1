//! What the host side of a transfer removes, and the marker file that this requires, in every shell that a host may have.

use std::os::unix::fs::symlink;

use super::transfer::{part_dir, session, session_of_home, shells};

fn remove(names: &[&str]) -> Vec<u8> {
    let list: Vec<u8> = names.iter().flat_map(|name| format!("./{name}\0").into_bytes()).collect();
    [format!("D {}\n", list.len()).as_bytes(), &list, b"Z\n"].concat()
}

/// A marker is valid for one path only, and a home is never marked.
#[test]
fn another_syncs_directory_and_a_home_lose_nothing_in_every_shell() {
    let dir = tempfile::tempdir().expect("a folder");
    for (name, shell) in shells(dir.path()) {
        std::fs::create_dir_all(dir.path().join(name)).expect("made");
        // Replaces the target by a link to another sync's directory, or to its parent.
        let other = dir.path().join(name).join("other");
        std::fs::create_dir_all(other.join("to")).expect("made");
        let made = session(&shell, &other.join("to"), b"W\nZ\n");
        assert!(made.ends_with(b"W\n") && other.join("to/.orchestrate-sync").is_file(), "{name}");
        std::fs::write(other.join("to/precious"), "theirs").expect("written");
        for (link, target, path) in [("by-link", other.join("to"), "by-link"), ("above", other.clone(), "above/to")] {
            let at = dir.path().join(name);
            symlink(&target, at.join(link)).expect("a link");
            let refused = String::from_utf8_lossy(&session(&shell, &at.join(path), &remove(&["precious"]))).into_owned();
            assert!(refused.contains("is for another path"), "{name}, {link}: {refused}");
            assert!(refused.contains(" 0 2 /"), "{name}, {link}: {refused}");
        }
        assert!(other.join("to/precious").exists(), "{name}");
        // A home in different spellings of its path.
        let home = dir.path().join(name).join("home");
        std::fs::create_dir(&home).expect("made");
        assert!(session_of_home(&shell, &home, &home.join("."), b"W\nZ\n").ends_with(b"W\n"), "{name}");
        assert!(!home.join(".orchestrate-sync").exists(), "{name}: a home is not marked");
        for file in [".orchestrate-sync", "keys"] {
            std::fs::write(home.join(file), "").expect("written");
        }
        let refused = String::from_utf8_lossy(&session_of_home(&shell, &home, &home, &remove(&["keys"]))).into_owned();
        assert!(refused.contains("this is a home or /") && home.join("keys").exists(), "{name}: {refused}");
    }
}

/// Only an empty directory is marked, and only a marked one loses files: by name, and never through a link.
#[test]
fn nothing_is_removed_without_the_marker_in_every_shell() {
    let dir = tempfile::tempdir().expect("a folder");
    for (name, shell) in shells(dir.path()) {
        let (root, outside) = (dir.path().join(name).join("to"), dir.path().join(name).join("outside"));
        for path in [&root, &outside] {
            std::fs::create_dir_all(path).expect("made");
        }
        let answer = |commands: &[u8]| String::from_utf8_lossy(&session(&shell, &root, commands)).into_owned();
        let marker = root.join(".orchestrate-sync");
        std::fs::write(root.join("precious"), "mine").expect("written");
        assert!(answer(b"W\nZ\n").ends_with("W\n"), "{name}");
        assert!(!marker.exists(), "{name}: a directory with files is not marked");
        let refused = answer(&remove(&["precious"]));
        assert!(refused.contains("F ") && refused.contains("no sync has made it"), "{name}: {refused}");
        symlink(&outside, &marker).expect("a link");
        assert!(answer(&remove(&["precious"])).contains("no sync has made it"), "{name}: a link is no marker");
        std::fs::remove_file(&marker).expect("removed");
        std::fs::remove_file(root.join("precious")).expect("removed");
        let marked = answer(b"W\nZ\n");
        assert!(marked.ends_with("W\n") && marker.is_file() && !root.join(part_dir()).exists(), "{name}: {marked}");
        assert!(answer(b"Z\n").contains("H 1 ") && answer(b"Z\n").contains(" 0 1 /"), "{name}");
        let listed = answer(b"T\n1\nZ\n");
        assert!(!listed.contains("orchestrate-sync"), "{name}: {listed}");
        // Odd names, a directory with its file, a link to another directory, and a missing file.
        std::fs::create_dir_all(root.join("-d/new\nline")).expect("made");
        for file in ["-rf", "-d/new\nline/f", "kept"] {
            std::fs::write(root.join(file), "x").expect("written");
        }
        std::fs::write(outside.join("f"), "mine").expect("written");
        symlink(&outside, root.join("link")).expect("a link");
        let removed = answer(&remove(&["-rf", "-d/new\nline/f", "-d/new\nline", "-d", "link", "gone"]));
        assert!(removed.ends_with("D\n"), "{name}: {removed}");
        assert!(
            root.join("kept").exists() && outside.join("f").exists() && !root.join("-d").exists() && !root.join("link").exists(),
            "{name}"
        );
        // Removes nothing below a link, and no directory with content.
        symlink(&outside, root.join("d")).expect("a link");
        assert!(answer(&remove(&["d/f"])).contains("a link leads to another directory"), "{name}");
        assert!(outside.join("f").exists(), "{name}");
        std::fs::create_dir(root.join("full")).expect("made");
        std::fs::write(root.join("full/f"), "x").expect("written");
        let full = answer(&remove(&["full"]));
        assert!(full.contains("F ") && full.contains("ot empty") && root.join("full/f").exists(), "{name}: {full}");
    }
}
