//! Overviews of every file in configs/, and the environment of a rank.

use std::path::{Path, PathBuf};

use unicode_width::UnicodeWidthStr as _;

use super::*;
use crate::inventory::InventorySource;
use crate::plan::rank_environment::format_rank_environment;
use crate::text::golden::{assert_golden, matches_golden};

fn inventory(text: &str) -> Inventory {
    let source = InventorySource { name: "inventory.yaml".to_owned(), text: text.to_owned() };
    Inventory::load(&[source], &[]).unwrap_or_else(|problems| panic!("{problems:#?}"))
}

/// Every file in configs/ that names hosts, by its name.
fn example_configs() -> Vec<(String, Inventory)> {
    let mut files: Vec<PathBuf> = std::fs::read_dir(Path::new(env!("CARGO_MANIFEST_DIR")).join("configs"))
        .expect("configs")
        .map(|entry| entry.expect("an entry").path())
        .filter(|path| path.extension().is_some_and(|extension| extension == "yaml"))
        .collect();
    files.sort();
    let read = |path: PathBuf| {
        let text = std::fs::read_to_string(&path).expect("text");
        (path.file_stem().expect("a name").to_string_lossy().into_owned(), inventory(&text))
    };
    // Without hosts `plan` refuses it.
    files.into_iter().map(read).filter(|(_, inventory)| !inventory.hosts.is_empty()).collect()
}

/// What the hosts would answer: eight idle GPUs each, nothing of ours.
fn answers(inventory: &Inventory) -> Vec<HostFacts> {
    let facts = |(at, host): (usize, &crate::inventory::InventoryHost)| {
        let address = host.address.clone().unwrap_or_else(|| format!("10.0.0.{}", at + 1));
        HostFacts {
            run_dir: "/home/me/.orchestrate".to_owned(),
            home: "/home/me".to_owned(),
            addresses: vec![address.clone()],
            interfaces: [(address.clone(), "bond0".to_owned())].into(),
            ssh_address: Some(address),
            is_writable: true,
            gpu_lines: (0..8).map(|gpu| format!("GPU {gpu}: H20 (UUID: GPU-{gpu})")).collect(),
            free_port: Some(23456),
            ..HostFacts::default()
        }
    };
    inventory.hosts.iter().enumerate().map(facts).collect()
}

fn overview(inventory: &Inventory, asked: bool, columns: usize) -> String {
    overview_in(Lang::En, inventory, asked, columns)
}

fn overview_in(lang: Lang, inventory: &Inventory, asked: bool, columns: usize) -> String {
    let facts =
        if asked { answers(inventory) } else { inventory.hosts.iter().map(|host| placeholder_facts(inventory, &host.name)).collect() };
    let preview = build_plan(inventory, &facts, "<run id>", "<run stamp>").unwrap_or_else(|error| panic!("{error:?}"));
    preview.overview(inventory, asked.then_some(&facts), lang, columns)
}

#[test]
fn every_config_is_planned_on_one_screen() {
    let mut wrong = Vec::new();
    let configs = example_configs();
    assert!(configs.len() >= 8, "{}", configs.len());
    for (name, inventory) in configs {
        for (asked, kind) in [(false, "plan"), (true, "facts")] {
            for (columns, lang) in [60, 80, 120].into_iter().flat_map(|columns| [(columns, Lang::En), (columns, Lang::Zh)]) {
                let text = overview_in(lang, &inventory, asked, columns);
                let widest = text.lines().map(|line| line.width()).max().unwrap_or(0);
                assert!(widest <= columns, "{name} {kind}: {widest} of {columns} columns\n{text}");
                let lines = text.lines().count();
                assert!(columns < 80 || lines <= 40, "{name} {kind}: {lines} lines\n{text}");
            }
            if !matches_golden(&format!("tests/data/overviews/{name}-{kind}.txt"), &overview(&inventory, asked, 80)) {
                wrong.push(format!("{name}-{kind}"));
            }
        }
    }
    assert!(wrong.is_empty(), "{wrong:?} differ from tests/data/overviews; `BLESS=1 cargo test --lib planned_on_one_screen` writes them");
}

/// `BLESS=1` rewrites the file for review.
#[test]
fn plan_in_chinese() {
    let all = example_configs();
    let wanted = |name: &str| all.iter().find(|(config, _)| config == name).map(|(_, inventory)| inventory).expect("a config");
    let pages = [("wan22", false), ("wan22", true), ("translation", true), ("cpu", false)];
    let found: String = pages.iter().map(|(name, asked)| overview_in(Lang::Zh, wanted(name), *asked, 80) + "\n").collect();
    assert_golden("tests/data/zh/plan.txt", &found);
}

#[test]
fn many_unequal_hosts_still_fit() {
    let hosts: Vec<String> = (1..=64)
        .map(|n| format!("  - {{ name: gpu{n:03}, address: 10.0.0.{n}, gpus: 8, container: {{ mounts: [\"/d{n}:/data\"] }} }}"))
        .collect();
    let text = format!(
        "name: many\nhosts:\n{}\ncontainer: {{ image: \"train:1\" }}\nlaunch: {{ nproc_per_node: 8, command: [train.py] }}\n",
        hosts.join("\n")
    );
    let text = overview(&inventory(&text), false, 80);
    assert!(text.lines().count() <= 40 && text.lines().all(|line| line.width() <= 80), "{text}");
    assert!(text.contains("… and other ones on gpu[003-064]") && text.contains("gpu[001-064]: 8 GPUs and 8 ranks each"), "{text}");
    assert!(text.contains("0-7 on gpu001, 8-15 on gpu002, …, 504-511 on gpu064"), "{text}");
}

#[test]
fn a_rank_has_its_whole_environment_without_secrets() {
    let inventory = inventory(
        "name: envs\nhosts: [{ name: gpu01, address: 10.0.0.1, env: { A: host } }, { name: gpu02, address: 10.0.0.2 }]\n\
         container: { image: \"train:1\", env: { A: image, B: b c } }\nenv: { A: job }\nsecrets: [TOKEN]\n\
         prepare: [{ name: the commit, run: git rev-parse HEAD, hosts: gpu01, register: COMMIT }]\n\
         launch: { nproc_per_node: 2, command: [train.py] }\n",
    );
    let preview = build_plan(&inventory, &answers(&inventory), "run1", "stamp").expect("a plan");
    let environment = |rank| format_rank_environment(&preview.plan, &preview.job, rank);
    let text = environment(3).expect("rank 3");
    assert!(text.starts_with("# rank 3 on gpu02, local rank 1\n"), "{text}");
    for line in [
        "A=job",
        "B='b c'",
        "RANK=3",
        "LOCAL_RANK=1",
        "WORLD_SIZE=4",
        "TOKEN=***",
        "COMMIT=<output of task 1>",
        "NCCL_SOCKET_IFNAME==bond0",
    ] {
        assert!(text.lines().any(|found| found.replace('\'', "") == line.replace('\'', "")), "{line}\n{text}");
    }
    assert!(environment(0).expect("rank 0").contains("\nA=host\n"));
    assert_eq!(environment(9).expect_err("no such rank"), "no rank 9: this run has ranks 0-3");
}

#[test]
fn ids_of_the_ssh_user_are_not_invented() {
    let inventory = inventory(
        "name: ids\nhosts: [{ name: gpu01, address: 10.0.0.1, gpus: 1 }, { name: gpu02, address: 10.0.0.2, gpus: 1 }]\n\
         container: { image: \"train:1\", user: me }\nlaunch: { nproc_per_node: 1, command: [train.py] }\n",
    );
    let text = overview(&inventory, false, 80);
    assert!(text.contains("--user=<from <host>: uid:gid>") && !text.contains("0:0"), "{text}");
    let mut facts = answers(&inventory);
    facts.iter_mut().for_each(|facts| (facts.uid, facts.gid) = (Some(1007), Some(100)));
    let preview = build_plan(&inventory, &facts, "<run id>", "<run stamp>").expect("a plan");
    let text = preview.overview(&inventory, Some(&facts), Lang::En, 80);
    assert!(text.contains("--user=1007:100"), "{text}");
}

#[test]
fn effect_on_existing_runs_is_reported() {
    let described = |existing| describe_up(existing).join("\n");
    assert!(described(ExistingRun::NoRun).contains("`up` launches one"));
    let live = |differences: &[&str]| ExistingRun::Live {
        run_id: "r1".to_owned(),
        differences: differences.iter().map(|text| (*text).to_owned()).collect(),
    };
    assert_eq!(described(live(&[])), "r1 is live and matches: `up` attaches to it");
    let differs = described(live(&["launch.nproc_per_node: 4 → 8"]));
    assert!(differs.contains("refuses, --recreate replaces it") && differs.ends_with("launch.nproc_per_node: 4 → 8"), "{differs}");
}
