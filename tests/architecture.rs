//! Checks the architecture: order of rooms, forbidden pairs, one entry per foreign crate, pure rooms, no cycles of files, sizes of files and
//! functions, one meaning per type name.
#![expect(clippy::disallowed_methods, reason = "reads the sources")]

use std::collections::{BTreeMap, BTreeSet};
use std::fs;
use std::io;
use std::path::{Path, PathBuf};

use name_resolution::Crate;
use violations::Violation;

#[path = "architecture/attributes.rs"]
mod attributes;
#[path = "architecture/cycles.rs"]
mod cycles;
#[path = "architecture/name_resolution.rs"]
mod name_resolution;
#[path = "architecture/rooms.rs"]
mod rooms;
#[path = "architecture/rule_tests.rs"]
mod rule_tests;
#[path = "architecture/sizes.rs"]
mod sizes;
#[path = "architecture/syntax.rs"]
mod syntax;
#[path = "architecture/translation.rs"]
mod translation;
#[path = "architecture/untranslated.rs"]
mod untranslated;
#[path = "architecture/violations.rs"]
mod violations;

/// The directories of our code. Sizes apply to all of them, the other rules to `src` alone.
const SOURCE_FOLDERS: [&str; 3] = ["src", "tests", "benches"];

fn read_sources() -> io::Result<BTreeMap<String, String>> {
    let root = Path::new(env!("CARGO_MANIFEST_DIR"));
    let mut waiting: Vec<PathBuf> = SOURCE_FOLDERS.iter().map(|folder| root.join(folder)).collect();
    let mut found = BTreeMap::new();
    while let Some(folder) = waiting.pop() {
        for entry in fs::read_dir(&folder)? {
            let path = entry?.path();
            if path.is_dir() && path.file_name().is_some_and(|name| name != "target") {
                waiting.push(path);
            } else if path.extension().is_some_and(|end| end == "rs") {
                let name = path.strip_prefix(root).unwrap_or(&path).to_string_lossy().into_owned();
                found.insert(name, fs::read_to_string(&path)?);
            }
        }
    }
    Ok(found)
}

fn collect_problems(krate: &Crate) -> Vec<String> {
    let mut problems = krate.problems.clone();
    problems.extend(rooms::room_problems(krate));
    problems.extend(sizes::header_and_allow_problems(krate));
    problems
}

fn collect_violations(krate: &Crate) -> Vec<Violation> {
    let mut violations = sizes::size_violations(krate);
    violations.extend(cycles::find_cycles(krate).iter().map(Violation::from_cycle));
    violations
}

#[test]
fn source_tree_follows_architecture_rules() {
    let krate = Crate::from_sources(&read_sources().expect("readable sources"));
    let rooms: BTreeSet<&str> = rooms::ROOM_ORDER.into_iter().collect();
    assert_eq!(krate.rooms(), rooms, "the modules of src/lib.rs are the listed rooms");
    let mut problems = collect_problems(&krate);
    problems.extend(collect_violations(&krate).iter().map(Violation::message));
    assert!(problems.is_empty(), "\n{}\n{} problems\n", problems.join("\n"), problems.len());
}

#[test]
fn every_text_has_its_translation() {
    let root = Path::new(env!("CARGO_MANIFEST_DIR"));
    let table = fs::read_to_string(root.join("assets/zh.po")).expect("the table of translations");
    let problems = translation::translation_problems(&read_sources().expect("readable sources"), &table);
    assert!(problems.is_empty(), "{}", problems.join("\n"));
}
