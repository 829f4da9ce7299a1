//! Every lint has a file that triggers it and one that does not, in `tests/data/inventories/lints`.

use std::path::PathBuf;

use super::*;
use crate::inventory::InventorySource;
use crate::text::golden::assert_golden;
use crate::text::translation::Lang;

fn load(name: &str, text: &str) -> Inventory {
    let source = InventorySource { name: name.to_owned(), text: text.to_owned() };
    Inventory::load(&[source], &[]).unwrap_or_else(|problems| panic!("{name}: {problems:#?}"))
}

fn load_lint_file(file: &str) -> Inventory {
    let path = PathBuf::from(env!("CARGO_MANIFEST_DIR")).join("tests/data/inventories/lints").join(file);
    let text = std::fs::read_to_string(&path).unwrap_or_else(|error| panic!("{}: {error}", path.display()));
    load(file, &text)
}

fn lint_names(inventory: &Inventory) -> Vec<&'static str> {
    inventory.run_all_lints().unwrap_or_else(|p| panic!("{p:#?}")).into_iter().map(|(lint, _)| lint).collect()
}

#[test]
fn every_lint_has_bad_and_good_file() {
    for (lint, _) in LINTS {
        let bad = load_lint_file(&format!("{lint}.bad.yaml"));
        let found = bad.run_all_lints().expect("a job");
        let own: Vec<&InventoryProblem> = found.iter().filter(|(name, _)| *name == lint).map(|(_, problem)| problem).collect();
        assert!(!own.is_empty(), "{lint}.bad.yaml gives {:?}", lint_names(&bad));
        assert!(own.iter().all(|p| p.line > 0 && p.message.ends_with(&format!("[{lint}]")) && !p.hint.is_empty()), "{own:#?}");
        let good = lint_names(&load_lint_file(&format!("{lint}.good.yaml")));
        assert!(!good.contains(&lint), "{lint}.good.yaml triggers it");
    }
}

/// What every lint says of its bad file, in Chinese. `BLESS=1` rewrites the file for review.
#[test]
fn lints_in_chinese() {
    let mut text = String::new();
    for (lint, _) in LINTS {
        let found = load_lint_file(&format!("{lint}.bad.yaml")).run_all_lints().expect("a job");
        for (_, problem) in found.iter().filter(|(name, _)| *name == lint) {
            text += &format!("{}\n", problem.text(Lang::Zh));
        }
    }
    assert_golden("tests/data/zh/lints.txt", &text);
}

#[test]
fn lint_severities_are_configurable() {
    let text = "name: a\nhosts: [a, b]\nlints: { unexpanded-word: deny, short-grace: warn, undefined-port: allow }\n\
                launch: { nproc_per_node: 1, stop_grace: 5s, command: [t.py, $HOME] }\n";
    let found = |deny: &[&str]| {
        let deny: Vec<String> = deny.iter().map(|d| (*d).to_owned()).collect();
        load("a", text).run_lints(&deny).map(|all| all.iter().map(|f| (f.lint, f.severity)).collect::<Vec<_>>())
    };
    assert_eq!(found(&[]), Ok(vec![("short-grace", Warn), ("unexpanded-word", Deny)]));
    assert_eq!(found(&["warnings"]), Ok(vec![("short-grace", Deny), ("unexpanded-word", Deny)]));
    assert_eq!(found(&["short-grace"]).map(|f| f[0]), Ok(("short-grace", Deny)));
    let wrong = found(&["short-grce"]).expect_err("no such lint");
    assert_eq!(wrong[0].hint, "did you mean `short-grace`?");
}

#[test]
fn unknown_lint_names_are_rejected() {
    let text = "name: a\nhosts: [a]\nlints: { rdzv-id-dat: deny, no-gate: never }\nlaunch: { nproc_per_node: 1, command: [t.py] }\n";
    let source = InventorySource { name: "a".to_owned(), text: text.to_owned() };
    let problems = Inventory::load(&[source], &[]).expect_err("it is wrong");
    assert_eq!(
        problems.iter().map(|p| p.hint.as_str()).collect::<Vec<_>>(),
        ["did you mean `rdzv-id-date`?", "possible values: allow, warn, deny"]
    );
}

#[test]
fn tasks_are_linted_like_the_launch() {
    let lints_of = |task: &str| {
        let text = format!("name: a\nhosts: [a, b]\nprepare: [{{ name: t, {task} }}]\nlaunch: {{ nproc_per_node: 1, command: [t.py] }}\n");
        lint_names(&load("task", &text))
    };
    for (task, lint) in [
        ("env: { TORCH_CUDA_ARCH_LIST: '7.5 8.6' }, run: make", "cuda-arch-list"),
        ("run: 'TORCH_CUDA_ARCH_LIST=\"7.5\" make'", "cuda-arch-list"),
        ("run: \"TORCH_CUDA_ARCH_LIST='9.0' DS_BUILD_UTILS=1\\npython3 setup.py bdist_wheel\"", "unexported-assignment"),
        ("run: pip install x", "pip-without-unless"),
        ("run: 'make &'", "background-command"),
    ] {
        assert!(lints_of(task).contains(&lint), "{task}: {:?}", lints_of(task));
    }
    let good = lints_of("env: { TORCH_CUDA_ARCH_LIST: '9.0' }, run: make");
    assert!(!good.contains(&"cuda-arch-list"), "{good:?}");
}

#[test]
fn lints_see_what_settings_mean() {
    for (lint, settings, finds) in [
        ("host-access", "run_dir: '/scratch/{{ name }}', container: { image: 'x:1', mounts: ['/scratch/a:/x'] }", true),
        ("ipc-host", "container: { image: 'x:1', args: [--ipc, host] }", true),
        ("renamed-variable", "launch: { with: script, shell: 'NCCL_HEARTBEAT_TIMEOUT_SEC=9 ./t' }", true),
        ("renamed-variable", "launch: { with: script, shell: 'TORCH_NCCL_BLOCKING_WAIT=1 ./t' }", false),
        ("undefined-port", "prepare: [{ name: t, run: make }]", false),
    ] {
        let more = if settings.contains("launch") || !finds { "" } else { ", launch: { nproc_per_node: 1, command: [t.py] }" };
        let found = lint_names(&load(lint, &format!("{{ name: a, hosts: [a, b], {settings}{more} }}")));
        assert_eq!(found.contains(&lint), finds, "{lint}: {found:?}");
    }
}

#[test]
fn lint_table_is_sorted() {
    assert!(LINTS.is_sorted_by_key(|(name, _)| *name));
}

#[test]
fn shipped_configs_trigger_no_lints() {
    let folder = PathBuf::from(env!("CARGO_MANIFEST_DIR")).join("configs");
    for entry in std::fs::read_dir(folder).expect("configs/ is there") {
        let path = entry.expect("an entry").path();
        let text = std::fs::read_to_string(&path).expect("readable");
        // The reference raises a lint that is allowed by default, to show how.
        let text = text.replace(", short-grace: warn", "");
        let found = load(&path.display().to_string(), &text).run_lints(&[]).unwrap_or_else(|p| panic!("{p:#?}"));
        let found: Vec<String> = found.iter().map(|finding| finding.problem.to_string()).collect();
        assert!(found.is_empty(), "{found:#?}");
    }
}

#[test]
fn lint_documentation_is_complete() {
    let page = std::fs::read_to_string(PathBuf::from(env!("CARGO_MANIFEST_DIR")).join("docs/lints.md")).expect("the page");
    for (name, severity) in LINTS {
        let word = format!("{severity:?}").to_lowercase();
        assert!(page.contains(&format!("| `{name}` | {word} | ")), "{name}");
    }
}
