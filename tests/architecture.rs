//! Holds the house together: floors, forbidden pairs, one door a crate, pure ground floor, no circles of files, sizes that can be read,
//! one meaning a type name.
//!
//! `architecture/exceptions.toml` lists today's violations with their numbers. The test fails where a number differs, for the better too.
#![expect(clippy::disallowed_methods, reason = "reads the sources")]

use std::collections::{BTreeMap, BTreeSet};
use std::fs;
use std::io;
use std::path::{Path, PathBuf};

use exceptions::Violation;
use names::Crate;

#[path = "architecture/attributes.rs"]
mod attributes;
#[path = "architecture/circles.rs"]
mod circles;
#[path = "architecture/exceptions.rs"]
mod exceptions;
#[path = "architecture/names.rs"]
mod names;
#[path = "architecture/proof.rs"]
mod proof;
#[path = "architecture/rooms.rs"]
mod rooms;
#[path = "architecture/sizes.rs"]
mod sizes;
#[path = "architecture/syntax.rs"]
mod syntax;

const LIST: &str = "tests/architecture/exceptions.toml";
/// Where code of ours lies, for sizes; the other rules judge `src` alone.
const FOLDERS: [&str; 3] = ["src", "tests", "benches"];

fn sources() -> io::Result<BTreeMap<String, String>> {
    let root = Path::new(env!("CARGO_MANIFEST_DIR"));
    let mut waiting: Vec<PathBuf> = FOLDERS.iter().map(|folder| root.join(folder)).collect();
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

fn problems(krate: &Crate) -> Vec<String> {
    let mut problems = krate.problems.clone();
    problems.extend(rooms::problems(krate));
    problems.extend(sizes::problems(krate));
    problems
}

fn violations(krate: &Crate) -> Vec<Violation> {
    let mut violations = sizes::violations(krate);
    violations.extend(circles::find(krate).iter().map(Violation::circle));
    violations
}

#[test]
fn the_house_stands() {
    let krate = Crate::read(&sources().expect("readable sources"));
    let rooms: BTreeSet<&str> = rooms::FLOORS.into_iter().collect();
    assert_eq!(krate.rooms(), rooms, "the modules of src/lib.rs are the rooms of the house");
    let mut problems = problems(&krate);
    let root = Path::new(env!("CARGO_MANIFEST_DIR"));
    let text = fs::read_to_string(root.join(LIST)).expect("the list of exceptions");
    let found = violations(&krate);
    match exceptions::parse(&text) {
        Ok(listed) => problems.extend(exceptions::compare(&listed, &found)),
        Err(error) => problems.push(format!("{LIST}: {error}")),
    }
    let list = exceptions::render(&found);
    if problems.is_empty() && text != list {
        problems.push(format!("{LIST} is not sorted, or its comments were changed"));
    }
    let copy = Path::new(env!("CARGO_TARGET_TMPDIR")).join("exceptions.toml");
    fs::write(&copy, list).expect("a place for the list");
    assert!(
        problems.is_empty(),
        "\n{}\n{} problems. The list for the code as it is: {}\n",
        problems.join("\n"),
        problems.len(),
        copy.display()
    );
}
