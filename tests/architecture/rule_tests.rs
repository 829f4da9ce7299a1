//! Tests the rules on small synthetic crates.

use std::collections::BTreeMap;

use crate::cycles::{self, FileCycle};
use crate::name_resolution::Crate;
use crate::violations::{ArchitectureRule, Violation};
use crate::{collect_problems, collect_violations, rooms, sizes};

/// A crate of these files. Missing rooms are empty, and every file is declared by its parent module.
fn synthetic_crate(files: &[(&str, &str)]) -> Crate {
    let mut texts: BTreeMap<String, String> =
        files.iter().map(|(path, code)| ((*path).to_owned(), format!("//! A file.\n{code}\n"))).collect();
    for room in rooms::ROOM_ORDER {
        if !texts.keys().any(|path| path.starts_with(&format!("src/{room}/")) || path == &format!("src/{room}.rs")) {
            texts.insert(format!("src/{room}/mod.rs"), "//! A room.\n".to_owned());
        }
    }
    let by_path = |path: &str| files.iter().any(|(_, code)| code.contains(&format!("{:?}", path.rsplit('/').next().unwrap_or(""))));
    let paths = texts.keys().filter(|path| path.starts_with("src/") && *path != "src/main.rs" && !by_path(path));
    let paths: Vec<String> = paths.cloned().collect();
    for path in paths {
        declare_module(&mut texts, path.trim_end_matches(".rs").trim_end_matches("/mod"));
    }
    Crate::from_sources(&texts)
}

fn declare_module(texts: &mut BTreeMap<String, String>, module: &str) {
    let Some((folder, name)) = module.rsplit_once('/').filter(|(_, name)| *name != "lib") else { return };
    let above = if folder == "src" { "src/lib.rs".to_owned() } else { format!("{folder}/mod.rs") };
    let beside = format!("{folder}.rs");
    let text = texts.entry(if texts.contains_key(&beside) { beside } else { above }).or_insert_with(|| "//! A file.\n".to_owned());
    if !text.contains(&format!("mod {name};")) {
        text.push_str(&format!("pub mod {name};\n"));
    }
    declare_module(texts, folder);
}

/// The problems of one file under the rules without a list.
fn problems_in(path: &str, code: &str) -> Vec<String> {
    collect_problems(&synthetic_crate(&[(&format!("src/{path}"), code)]))
}

fn find_cycles_in(files: &[(&str, &str)]) -> Vec<FileCycle> {
    let krate = synthetic_crate(files);
    assert_eq!(krate.problems, Vec::<String>::new(), "{files:?}");
    cycles::find_cycles(&krate)
}

/// The violations of `a.rs` and `b.rs` in one room, where `b.rs` names an item of `a.rs`.
fn cycles_with_b(a: &str) -> Vec<FileCycle> {
    find_cycles_in(&[
        ("src/plan/a.rs", a),
        ("src/plan/b.rs", "use super::a::A;\npub struct B;\npub const NAME: &str = \"\";\npub enum E { One }\nfn f(_: A) {}"),
    ])
}

#[test]
fn deliberate_violations_are_caught() {
    for (path, code, expected) in [
        ("state/mod.rs", "use crate::report::line;", "state may not use report"),
        ("state/a.rs", "use crate::{event, remote::{ssh, x}};", "state may not use remote"),
        ("text/mod.rs", "fn f() { crate::cli::run() }", "text may not use cli"),
        ("text/mod.rs", "fn f() { println!(\"{}\", crate::cli::NAME) }", "text may not use cli"),
        ("report/progress_bars.rs", "use crate::\n    engine::run;", "report may not use engine"),
        ("tui/mod.rs", "use super::engine::run;", "tui may not use engine"),
        ("tui/view/a.rs", "use super::super::super::remote::x;", "tui may not use remote"),
        ("tui/a.rs", "#[cfg(test)] mod tests { use crate::remote; }", "tui may not use remote"),
        ("sandbox/docker.rs", "use crate::plan;", "sandbox may not use plan"),
        ("engine/mod.rs", "use crate::{text, diagnose};", "engine may not use diagnose"),
        ("cellar/mod.rs", "", "no room of the house"),
        ("engine/mod.rs", "use russh::client;", "russh has its door"),
        ("engine/mod.rs", "use russh;", "russh has its door"),
        ("cli/mod.rs", "fn f() { let x = indicatif::ProgressBar::new(1); }", "indicatif has its door"),
        ("inventory/errors.rs", "use serde_yaml as y;", "serde_yaml has its door"),
        ("engine/a.rs", "#[derive(clap::Parser)] struct Args;", "clap has its door"),
        ("plan/build.rs", "use std::fs;", "only computes, this names std::fs"),
        ("plan/build.rs", "use std::{collections::BTreeMap, fs::File};", "only computes, this names std::fs"),
        ("state/mod.rs", "fn f() { let now = std::time::Instant::now(); }", "this names std::time::Instant::now"),
        ("state/mod.rs", "use std::time::Instant;\nfn f() { let now = Instant::now(); }", "this names std::time::Instant::now"),
        ("state/mod.rs", "#![expect(clippy::disallowed_methods, reason = \"x\")]", "this names clippy::disallowed_methods"),
        ("engine/a.rs", "#[allow(dead_code)] fn f() {}", "instead of allow"),
        ("engine/a.rs", "#![allow(dead_code)]", "instead of allow"),
        ("cli/ps.rs", "fn f() { std::io::stdout().write_all(x) }", "outside the listed files"),
        ("tui/a.rs", "use std::io::stderr;", "outside the listed files"),
        ("tui/a.rs", "use std::io;\nfn f() { g(io::stderr()) }", "outside the listed files"),
    ] {
        let found = problems_in(path, code);
        assert_eq!(found.len(), 1, "{path}: {code}: {found:?}");
        assert!(found[0].contains(expected), "{found:?}");
    }
}

#[test]
fn allowed_code_is_not_reported() {
    for (path, code) in [
        ("state/mod.rs", "// use crate::report;\n/* crate::cli /* nested */ crate::tui */\nconst S: &str = \"crate::engine\";"),
        ("report/plain.rs", "use crate::{event::Event, state::RunState};\nuse super::words;\nfn f<'a>(x: &'a str) {}"),
        ("report/mod.rs", "use crate::report::line;"),
        ("remote/ssh/client_handler.rs", "use russh::client;\nuse crate::model::Command;"),
        ("sandbox/server.rs", "use russh::server;"),
        ("main.rs", "fn main() { orchestrate::cli::main() }"),
        ("plan/mod.rs", "fn f() {}\n#[cfg(test)]\nmod tests { use std::fs; }"),
        ("plan/mod.rs", "mod fs { pub struct A; }\nuse fs::A;\nfn f(x: A) { x.russh.tokio::<A>() }"),
        ("cli/mod.rs", "#![expect(clippy::disallowed_methods, reason = \"x\")]\nuse crate::engine;\nuse clap::Parser;"),
        (
            "cli/a.rs",
            "use std::io::{self, IsTerminal as _};\nfn f() -> bool { io::stdout().is_terminal() && tcgetwinsize(io::stdout()).is_ok() }",
        ),
    ] {
        assert_eq!(problems_in(path, code), Vec::<String>::new(), "{path}: {code}");
    }
}

#[test]
fn reexport_does_not_bypass_room_order() {
    let files = [
        ("src/event.rs", "pub use crate::report::Line;"),
        ("src/state/mod.rs", "use crate::event::Line;"),
        ("src/report/mod.rs", "pub struct Line;"),
    ];
    let found = collect_problems(&synthetic_crate(&files));
    assert_eq!(found, ["src/event.rs:2: event may not use report", "src/state/mod.rs:2: state may not use report"]);
}

#[test]
fn unparsable_and_undeclared_files_are_reported() {
    let texts = [("src/lib.rs", "//! x\n"), ("src/a.rs", "//! x\n"), ("src/b.rs", "fn f( {")];
    let krate = Crate::from_sources(&texts.map(|(path, text)| (path.to_owned(), text.to_owned())).into());
    assert_eq!(krate.problems.len(), 2, "{:?}", krate.problems);
    assert!(krate.problems[0].starts_with("src/b.rs: is no Rust: "), "{:?}", krate.problems);
    assert_eq!(krate.problems[1], "src/a.rs: no module declares this file");
    assert_eq!(problems_in("cli/a.rs", "").len(), 0);
    let bare = Crate::from_sources(&[("src/lib.rs".to_owned(), "use std::io;\n".to_owned())].into());
    assert_eq!(sizes::header_and_allow_problems(&bare), ["src/lib.rs: does not open with what it is for (//!)"]);
}

#[test]
fn cycle_is_found_through_any_path_form() {
    for a in [
        "pub struct A;\nuse super::b::B;",
        "pub struct A;\nuse crate::plan::b::{B as Other};",
        "pub struct A;\nuse super::b;\nfn f(_: b::B) {}",
        "pub struct A;\nfn f() { use super::b::B; }",
        "pub struct A(Vec<crate::plan::b::B>);",
        "pub struct A;\nfn f() { assert_eq!(super::b::NAME, \"\", \"{}\", 1); }",
        "pub struct A;\nuse super::b;\nfn f() { format!(\"{}\", b::NAME); }",
        "pub struct A;\nfn f() { let super::b::E::One = x; }",
        "pub struct A;\nuse super::b::*;\nfn f(_: B) {}",
        "pub struct A;\nmod inner { use super::super::b::B; }",
        "pub struct A;\n#[serde(with(super::b::B))]\nstruct C;",
        "pub struct A;\n#[cfg(any(test, unix))]\nuse super::b::B;",
        "pub struct A;\n#[cfg(not(test))]\nuse super::b::B;",
        "pub struct A;\nmacro_rules! m { () => { $crate::plan::b::B } }",
    ] {
        let found = cycles_with_b(a);
        assert_eq!(found.len(), 1, "{a}");
        assert_eq!(found[0].files, ["src/plan/a.rs", "src/plan/b.rs"], "{a}");
        assert_eq!(found[0].edges.len(), 2, "{a}");
    }
}

#[test]
fn paths_without_items_close_no_cycle() {
    for a in [
        "pub struct A;",
        "pub struct A;\nuse super::b;",
        "pub struct A;\n// super::b::B\nconst S: &str = \"super::b::B\";",
        "pub struct A;\npub use super::b::B;",
        "pub struct A;\n#[cfg(test)]\nmod tests { use super::super::b::B; }",
        "pub struct A;\n#[cfg(all(test, unix))]\nuse super::b::B;",
        "pub struct A;\nimpl A { #[cfg(test)] fn f(_: super::b::B) {} }",
        "pub struct A;\n#[test]\nfn f() { super::b::B; }",
        "pub struct A;\n#[tokio::test]\nasync fn f() { super::b::B; }",
        // Not detected: text, and the file in which a method is defined.
        "pub struct A;\nuse super::b;\nfn f() { format!(\"{b::NAME}\"); x.b::<A>().B }",
        "pub struct A;\n#[serde(default = \"super::b::B\")]\nstruct C;",
        // A field or a method with the name of an item.
        "pub struct A;\npub use super::b::NAME;\nfn f() { assert!(x.NAME); x.NAME() }",
    ] {
        assert_eq!(cycles_with_b(a).len(), 0, "{a}");
    }
}

#[test]
fn reexports_resolve_to_the_defining_file() {
    // a -> (through mod.rs, renamed, and through the library's root) b -> a; mod.rs only re-exports.
    let files = [
        ("src/lib.rs", "pub mod plan;\npub use plan::Again as Root;"),
        ("src/plan/mod.rs", "pub mod a;\nmod b;\npub use b::B as Again;"),
        ("src/plan/a.rs", "use crate::Root;\npub struct A;"),
        ("src/plan/b.rs", "use super::a::A;\npub struct B;"),
    ];
    let found = find_cycles_in(&files);
    assert_eq!(found.len(), 1);
    let expected = ["src/plan/a.rs uses src/plan/b.rs: B (line 2)", "src/plan/b.rs uses src/plan/a.rs: A (line 2)"];
    assert_eq!(found[0].describe_edges(), expected);
}

#[test]
fn import_does_not_resolve_to_itself() {
    let krate = synthetic_crate(&[("src/plan/a.rs", "use log::log;\nuse tracing::*;\nfn f() { log::now(); info::now() }")]);
    let targets: Vec<String> =
        krate.named_paths().into_iter().filter_map(|named| named.target).map(|target| format!("{target:?}")).collect();
    let foreign = |path: &[&str]| format!("ForeignPath({path:?})");
    let expected = [&["log", "log"][..], &["tracing"], &["log", "log", "now"], &["info", "now"]];
    assert_eq!(targets, expected.map(foreign));
}

#[test]
fn test_only_files_join_no_cycle() {
    for (declares, path) in [
        ("#[cfg(test)]\nmod tests;", "src/plan/a/tests.rs"),
        ("#[cfg(test)]\n#[path = \"a_tests.rs\"]\nmod tests;", "src/plan/a_tests.rs"),
        ("mod tests;", "src/plan/a/tests.rs"),
    ] {
        let inner = if declares == "mod tests;" { "#![cfg(test)]\nuse super::A;\npub struct T;" } else { "use super::A;\npub struct T;" };
        let files = [("src/plan/a.rs", &*format!("{declares}\npub struct A;\nfn f(_: tests::T) {{}}")), (path, inner)];
        assert_eq!(find_cycles_in(&files).len(), 0, "{declares}");
    }
    let files =
        [("src/plan/a.rs", "mod tests;\npub struct A;\nfn f(_: tests::T) {}"), ("src/plan/a/tests.rs", "use super::A;\npub struct T;")];
    assert_eq!(find_cycles_in(&files).len(), 1, "the same without #[cfg(test)]");
}

#[test]
fn separate_cycles_are_reported_separately() {
    let files = [
        ("src/plan/a.rs", "use super::b::B;\npub struct A;"),
        ("src/plan/b.rs", "use super::c::{C, D, D as E};\npub struct B;"),
        ("src/plan/c.rs", "use super::a::A;\nuse super::e::E;\npub struct C;\npub struct D;"),
        ("src/plan/e.rs", "use super::mod_b::F;\npub struct E;"),
        ("src/plan/mod_b.rs", "use super::e::E;\npub struct F;\nuse crate::text::S;"),
        ("src/text/mod.rs", "pub struct S;"),
    ];
    let found = find_cycles_in(&files);
    let names: Vec<String> = found.iter().map(|circle| circle.files.join(" ")).collect();
    assert_eq!(names, ["src/plan/a.rs src/plan/b.rs src/plan/c.rs", "src/plan/e.rs src/plan/mod_b.rs"]);
    assert_eq!(found[0].describe_edges().last().map(String::as_str), Some("src/plan/b.rs uses src/plan/c.rs: C (line 2), D (line 2)"));
}

fn violation_numbers(files: &[(&str, &str)], rule: ArchitectureRule) -> Vec<(String, usize)> {
    let krate = synthetic_crate(files);
    collect_violations(&krate)
        .into_iter()
        .filter(|violation| violation.rule == rule)
        .map(|violation| (violation.key, violation.number))
        .collect()
}

#[test]
fn file_and_function_sizes_are_measured() {
    for (path, most) in [("src/cli/a.rs", 350), ("tests/it/a.rs", 500)] {
        let longest = "\n".repeat(most - 2);
        assert_eq!(violation_numbers(&[(path, &longest)], ArchitectureRule::FileLines), []);
        let longer = "\n".repeat(most - 1);
        assert_eq!(violation_numbers(&[(path, &longer)], ArchitectureRule::FileLines), [(path.to_owned(), most + 1)]);
    }
    let body = |lines: usize| format!("{{{}}}", "\n".repeat(lines - 1));
    let code = format!(
        "struct A;\nimpl A {{ #[x]\npub fn fits() {} fn over() {} }}\nimpl B for A {{ fn over() {} }}\nmod m {{ fn over() {} }}",
        body(60),
        body(61),
        body(62),
        body(63)
    );
    let found = violation_numbers(&[("src/cli/a.rs", &code)], ArchitectureRule::FunctionLines);
    let expected = [("<A as B>::over", 62), ("A::over", 61), ("m::over", 63)];
    assert_eq!(found, expected.map(|(name, lines)| (format!("src/cli/a.rs {name}"), lines)));
    let twins = format!("#[cfg(unix)] fn f() {}\n#[cfg(not(unix))] fn f() {}", body(80), body(70));
    assert_eq!(violation_numbers(&[("src/cli/a.rs", &twins)], ArchitectureRule::FunctionLines), [("src/cli/a.rs f".to_owned(), 80)]);
}

#[test]
fn parameters_are_counted() {
    let code = "fn five(a: A, b: A, c: A, d: A, e: A) {}\nfn six(a: A, b: A, c: A, d: A, e: A, f: A) {}\n\
                impl A { fn with_self(&self, a: A, b: A, c: A, d: A, e: A) {} }\n\
                impl B for A { fn prescribed(a: A, b: A, c: A, d: A, e: A, f: A) { fn inner(a: A, b: A, c: A, d: A, e: A, f: A, g: A) {} } }";
    let found = violation_numbers(&[("src/cli/a.rs", code)], ArchitectureRule::ParameterCount);
    let expected = [("<A as B>::prescribed::inner", 7), ("A::with_self", 6), ("six", 6)];
    assert_eq!(found, expected.map(|(name, count)| (format!("src/cli/a.rs {name}"), count)));
}

#[test]
fn duplicate_type_name_is_reported() {
    let of = |a: &str, b: &str| violation_numbers(&[("src/plan/a.rs", a), ("src/tui/b.rs", b)], ArchitectureRule::DuplicateTypes);
    for (a, b) in [
        ("pub struct Row;", "pub enum Row {}"),
        ("pub(crate) struct Row;", "pub(super) type Row = u8;"),
        ("mod m { pub struct Row; }", "pub trait Row {}"),
    ] {
        assert_eq!(of(a, b), [("Row".to_owned(), 2)], "{a} {b}");
    }
    for (a, b) in [
        ("pub struct Row;", "struct Row;"),
        ("pub struct Args;", "pub struct Args;"),
        ("pub struct View;", "pub struct View;"),
        ("pub struct Row;\nmod m { pub struct Row; }", ""),
        ("pub struct Row;", "#[cfg(test)]\nmod tests { pub struct Row; }"),
        ("pub struct Row;", "fn f() { pub struct Row; }"),
        ("pub struct Row;", "pub use crate::plan::a::Row;"),
    ] {
        assert_eq!(of(a, b), [], "{a} {b}");
    }
}

#[test]
fn message_says_the_number_the_place_and_the_remedy() {
    let cycle = Violation::new(ArchitectureRule::Cycles, "src/a.rs src/b.rs", 2);
    let cycle = Violation { locations: vec!["src/a.rs uses src/b.rs: B (line 3)".to_owned()], ..cycle };
    let message = cycle.message();
    for part in ["src/a.rs src/b.rs: 2 (edges between files", "\n    src/a.rs uses src/b.rs: B (line 3)\n", "Remedy: cut an edge"] {
        assert!(message.contains(part), "{part}: {message}");
    }
}
