//! Log copies: names, gaps, generations, limits, links.

use std::os::unix::fs::PermissionsExt;

use proptest::prelude::*;

use super::generations::MAX_GENERATIONS;
use super::*;

const RANK: LogFile = LogFile::Rank { rank: 3, restart: 0 };

fn names(text: &str) -> Vec<String> {
    text.split_whitespace().map(str::to_owned).collect()
}

/// A store of a run on the hosts `a` and `b`.
fn two_host_store() -> (tempfile::TempDir, LogStore) {
    let dir = tempfile::tempdir().expect("a folder");
    let mut store = LogStore::open(&dir.path().join("logs")).expect("a store");
    store.set_default_hosts(&names("a b"));
    store.save_node_list().expect("written");
    (dir, store)
}

fn copy_path(store: &LogStore, host: &str, file: LogFile) -> PathBuf {
    store.path(host, file).expect("a host of the run")
}

fn list_files(store: &LogStore) -> Vec<(String, u64)> {
    store.list_files().expect("listed")
}

fn owned_entries<const N: usize>(files: [(&str, u64); N]) -> Vec<(String, u64)> {
    files.map(|(name, len)| (name.to_owned(), len)).to_vec()
}

#[test]
fn writes_reject_gaps_and_skip_duplicates() {
    let (_dir, mut store) = two_host_store();
    assert_eq!(store.log_len("b", RANK).expect("len"), 0);
    store.write_at("b", RANK, 0, b"hello ").expect("written");
    store.write_at("b", RANK, 3, b"lo world\n").expect("the known part is skipped");
    store.write_at("b", RANK, 0, b"hello").expect("all known");
    assert!(matches!(store.write_at("b", RANK, 16, b"x"), Err(LogStoreError::Gap { len: 12, offset: 16, .. })));
    assert_eq!(fs::read(copy_path(&store, "b", RANK)).expect("there"), b"hello world\n");
    let again = LogStore::open(&store.dir).map(|mut store| store.log_len("b", RANK).expect("len"));
    assert_eq!(again.expect("opens"), 12, "another process continues where this one ended");
}

#[test]
fn files_are_named_by_recorded_node_rank() {
    let (_dir, mut store) = two_host_store();
    store.write_at("a", LogFile::Launcher, 0, b"of a").expect("written");
    store.write_at("b", LogFile::Launcher, 0, b"of b, longer").expect("written");
    store.write_at("b", RANK, 0, b"rank").expect("written");
    // A later command reads an inventory in which the hosts are turned round, with one that the record does not have.
    let mut later = LogStore::open(&store.dir).expect("opens again");
    later.set_default_hosts(&names("c b a"));
    later.save_node_list().expect("the first list stays");
    assert_eq!(later.log_lengths("b").expect("lens"), [(LogFile::Launcher, 12), (RANK, 4)]);
    assert_eq!(later.log_lengths("a").expect("lens"), [(LogFile::Launcher, 4)]);
    assert_eq!(later.log_lengths("c").expect("lens"), []);
    later.write_at("b", RANK, 4, b"!").expect("continues");
    later.write_at("c", LogFile::Launcher, 0, b"of c").expect("the next free number");
    assert_eq!(list_files(&later), owned_entries([("node-0.log", 4), ("node-1.log", 12), ("node-2.log", 4), ("rank-3.log", 5)]));
    assert_eq!(store.log_lengths("c").expect("lens"), [], "unknown to a store that was opened earlier");
    store.write_at("c", LogFile::Launcher, 0, b"of c").expect("found now");
    assert_eq!(list_files(&store).len(), 4);
}

#[test]
fn two_hosts_with_one_rank_write_two_files() {
    let (_dir, mut store) = two_host_store();
    let restarted = LogFile::Rank { rank: 3, restart: 2 };
    for (host, file) in [("a", RANK), ("b", RANK), ("b", restarted), ("b", LogFile::Launcher)] {
        store.write_at(host, file, 0, host.as_bytes()).expect("written");
    }
    let mut store = LogStore::open(&store.dir).expect("opens again");
    store.write_at("b", RANK, 1, b"!").expect("continues");
    assert_eq!(list_files(&store), owned_entries([("node-1.log", 1), ("rank-3.2.log", 1), ("rank-3.log", 1), ("rank-3@1.log", 2)]));
    let mode = |path: &Path| fs::metadata(path).expect("there").permissions().mode() & 0o777;
    assert_eq!((mode(&store.dir), mode(&copy_path(&store, "a", RANK))), (0o700, 0o600));
    assert_eq!(mode(&store.dir.join(".nodes")), 0o600);
}

#[test]
fn processes_agree_on_rank_owner() {
    let (_dir, mut one) = two_host_store();
    let mut other = LogStore::open(&one.dir).expect("opens");
    one.write_at("a", RANK, 0, b"of a").expect("written");
    other.write_at("b", RANK, 0, b"of b").expect("written");
    assert_eq!(fs::read(copy_path(&one, "a", RANK)).expect("there"), b"of a");
    assert_eq!(copy_path(&other, "b", RANK), one.dir.join("rank-3@1.log"));
}

#[test]
fn shrunk_log_restarts_and_keeps_old_copy() {
    let (_dir, mut store) = two_host_store();
    for (number, text) in (1..).zip([&b"first life"[..], b"second"]) {
        store.write_at("a", RANK, 0, text).expect("written");
        let kept = store.start_new_generation("a", RANK, 2).expect("kept").expect("there was something");
        assert_eq!(kept, store.dir.join(format!("rank-3.log.{number}")));
        assert_eq!(fs::read(&kept).expect("there"), text);
        assert_eq!(store.log_len("a", RANK).expect("len"), 0);
    }
    store.write_at("a", RANK, 0, b"ab").expect("written");
    assert_eq!(list_files(&store), owned_entries([("rank-3.log", 2), ("rank-3.log.1", 10), ("rank-3.log.2", 6)]));
    assert_eq!(store.log_lengths("a").expect("lens"), [(RANK, 2)], "what was kept is no log of its own");
    assert_eq!(store.read_generation("a", RANK, 1, 6..15).expect("read"), b"life");
    assert_eq!(store.read_generation("a", RANK, 3, 0..9).expect("read"), b"ab");
    assert_eq!(store.start_new_generation("a", RANK, 2).expect("asked"), None, "another process has begun it again already");
    assert_eq!(store.start_new_generation("a", LogFile::Launcher, 0).expect("asked"), None, "there is none");
}

#[test]
fn generation_count_is_bounded_without_loss() {
    let (_dir, mut store) = two_host_store();
    for n in 0..MAX_GENERATIONS + 5 {
        store.write_at("a", RANK, 0, format!("{n}\n").as_bytes()).expect("written");
        store.start_new_generation("a", RANK, 0).expect("kept");
    }
    let files = list_files(&store);
    assert_eq!(files.len(), MAX_GENERATIONS as usize);
    let last = fs::read_to_string(store.dir.join(format!("rank-3.log.{MAX_GENERATIONS}"))).expect("there");
    assert_eq!(last, "99\n100\n101\n102\n103\n104\n");
}

#[test]
fn failed_sync_discards_the_copy() {
    let (_dir, mut store) = two_host_store();
    store.write_at("a", RANK, 0, b"text").expect("written");
    store.sync().expect("on the disk");
    assert!(store.unsynced.is_empty() && store.earlier_files_synced);
    store.write_at("b", LogFile::Launcher, 0, b"more").expect("written");
    assert_eq!(store.unsynced, BTreeSet::from(["node-1.log".to_owned()]));
    fs::remove_file(copy_path(&store, "b", LogFile::Launcher)).expect("removed");
    let error = store.sync().expect_err("it is not there");
    assert!(error.to_string().contains("could not sync") && error.to_string().contains("node-1.log"), "{error}");
    assert_eq!(store.log_len("b", LogFile::Launcher).expect("len"), 0);
    store.write_at("b", LogFile::Launcher, 0, b"more").expect("from the first byte");
    store.sync().expect("on the disk");
    // What another process has written counts as well.
    std::os::unix::fs::symlink("/nowhere", store.dir.join("rank-9.log")).expect("linked");
    store.sync().expect("it was looked at before");
    assert!(LogStore::open(&store.dir).expect("opens").sync().is_err());
}

#[test]
fn open_file_count_is_bounded() {
    let (_dir, mut store) = two_host_store();
    for round in 0..3_u64 {
        for rank in 0..(MAX_OPEN_FILES as u32 * 2) {
            store.write_at("a", LogFile::Rank { rank, restart: 0 }, round, b"x").expect("written");
        }
    }
    assert!(store.open_files.len() <= MAX_OPEN_FILES);
    assert!(list_files(&store).iter().all(|(_, len)| *len == 3));
}

#[test]
fn symlinks_are_not_followed() {
    let (dir, mut store) = two_host_store();
    let victim = dir.path().join("victim");
    fs::write(&victim, "precious").expect("written");
    std::os::unix::fs::symlink(&victim, copy_path(&store, "a", RANK)).expect("linked");
    assert!(matches!(store.write_at("a", RANK, 0, b"evil"), Err(LogStoreError::Io { what: "write", .. })));
    store.lengths.insert((0, RANK), 0);
    assert!(matches!(store.write_at("a", RANK, 0, b"evil"), Err(LogStoreError::Io { what: "write", .. })), "nor one that came later");
    assert!(store.start_new_generation("a", RANK, 0).is_err(), "nor is it moved");
    assert_eq!(fs::read(&victim).expect("there"), b"precious");
}

#[test]
fn tail_of_a_log() {
    let (_dir, mut store) = two_host_store();
    let text: String = (0..20_000).map(|n| format!("line {n}\n")).collect();
    store.write_at("a", RANK, 0, text.as_bytes()).expect("written");
    store.write_at("a", RANK, text.len() as u64, b"half").expect("written");
    assert_eq!(store.tail("a", RANK, 2).expect("read"), b"line 19999\nhalf");
    assert_eq!(store.tail("a", RANK, 0).expect("read"), b"");
    assert_eq!(store.tail("a", RANK, 1 << 20).expect("read").len(), text.len() + 4);
    assert_eq!(store.tail("a", LogFile::Launcher, 3).expect("no file"), b"");
}

#[test]
fn log_file_names_parse_strictly() {
    assert_eq!(parse_file_name("node-7.log"), Some(LogFile::Launcher));
    assert_eq!(parse_file_name("rank-3.log"), Some(RANK));
    assert_eq!(parse_file_name("rank-3@12.log"), Some(RANK));
    assert_eq!(parse_file_name("rank-3.2@1.log"), Some(LogFile::Rank { rank: 3, restart: 2 }));
    for other in ["rank-3.log.1", "rank-3", "rank-.log", "x.log", ".nodes", "rank-3.2.1.log"] {
        assert_eq!(parse_file_name(other), None, "{other}");
    }
}

proptest! {
    #[test]
    fn overlapping_writes_give_the_same_file(cuts in proptest::collection::vec((0..100_usize, 0..100_usize), 0..20)) {
        let (_dir, mut store) = two_host_store();
        let text: Vec<u8> = (0..100).collect();
        for (from, len) in cuts {
            let piece = &text[from..(from + len).min(100)];
            match store.write_at("a", RANK, from as u64, piece) {
                Ok(()) | Err(LogStoreError::Gap { .. }) => {}
                Err(error) => panic!("{error}"),
            }
        }
        let have = fs::read(copy_path(&store, "a", RANK)).unwrap_or_default();
        prop_assert_eq!(&have[..], &text[..have.len()]);
        prop_assert_eq!(store.log_len("a", RANK).expect("len"), have.len() as u64);
    }
}
