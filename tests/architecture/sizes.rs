//! Sizes of files and functions, numbers of parameters, ambiguous type names, the header of a file.

use std::collections::{BTreeMap, BTreeSet};

use crate::name_resolution::Crate;
use crate::violations::{ArchitectureRule, Violation};

const MAX_SOURCE_LINES: usize = 350;
/// For tests and benches.
const MAX_TEST_LINES: usize = 500;
const MAX_FUNCTION_LINES: usize = 60;
const MAX_PARAMETERS: usize = 5;
/// These names have one meaning everywhere: the arguments of a command, the view of a pane.
const SHARED_TYPE_NAMES: [&str; 2] = ["Args", "View"];

pub(crate) fn size_violations(krate: &Crate) -> Vec<Violation> {
    let mut found = duplicate_types(krate);
    for (path, file) in &krate.files {
        if file.lines > if path.starts_with("src/") { MAX_SOURCE_LINES } else { MAX_TEST_LINES } {
            found.push(Violation::new(ArchitectureRule::FileLines, path, file.lines));
        }
        // A function may exist twice, once per platform: the larger number counts.
        let mut numbers: BTreeMap<(ArchitectureRule, String), usize> = BTreeMap::new();
        for function in &file.functions {
            let key = format!("{path} {}", function.name);
            for (rule, number, max) in [
                (ArchitectureRule::FunctionLines, function.lines, MAX_FUNCTION_LINES),
                (ArchitectureRule::ParameterCount, function.parameters, MAX_PARAMETERS),
            ] {
                if number > max {
                    let greatest = numbers.entry((rule, key.clone())).or_insert(number);
                    *greatest = number.max(*greatest);
                }
            }
        }
        found.extend(numbers.into_iter().map(|((rule, key), number)| Violation::new(rule, &key, number)));
    }
    found
}

/// Type names that several files define and other files can name.
fn duplicate_types(krate: &Crate) -> Vec<Violation> {
    let mut files: BTreeMap<&str, BTreeSet<&str>> = BTreeMap::new();
    for (path, file) in krate.files.iter().filter(|(path, _)| path.starts_with("src/") && !krate.is_test_only(path)) {
        for name in &file.visible_types {
            files.entry(name).or_default().insert(path);
        }
    }
    files.retain(|name, files| files.len() > 1 && !SHARED_TYPE_NAMES.contains(name));
    let describe = |(name, files): (&str, BTreeSet<&str>)| {
        let places = files.iter().map(|file| (*file).to_owned()).collect();
        Violation { locations: places, ..Violation::new(ArchitectureRule::DuplicateTypes, name, files.len()) }
    };
    files.into_iter().map(describe).collect()
}

/// Problems that are no number beyond a limit.
pub(crate) fn header_and_allow_problems(krate: &Crate) -> Vec<String> {
    let mut problems = Vec::new();
    for (path, file) in krate.files.iter().filter(|(path, _)| path.starts_with("src/")) {
        if !file.has_doc_header && path != "src/main.rs" {
            problems.push(format!("{path}: does not open with what it is for (//!)"));
        }
        let allows = file.allow_lines.iter().map(|line| format!("{path}:{line}: say #[expect(…, reason = …)] instead of allow"));
        problems.extend(allows);
    }
    problems
}
