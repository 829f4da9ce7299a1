//! The room as its users see it: files in, values or problems out.

use std::fs;
use std::path::PathBuf;
use std::time::Duration;

use super::*;
use crate::text::golden::{assert_golden, matches_golden};
use crate::text::translation::Lang;

mod evaluation;
mod hostile_input;

fn repository_path(name: &str) -> PathBuf {
    PathBuf::from(env!("CARGO_MANIFEST_DIR")).join(name)
}

fn config_source(name: &str) -> InventorySource {
    let text = fs::read_to_string(repository_path("configs").join(name)).expect("the config is there");
    InventorySource { name: name.to_owned(), text }
}

fn text_source(text: &str) -> InventorySource {
    InventorySource { name: "inventory.yaml".to_owned(), text: text.to_owned() }
}

fn load(text: &str) -> Inventory {
    Inventory::load(&[text_source(text)], &[]).unwrap_or_else(|problems| panic!("{}", format_problems(&problems)))
}

fn load_problems(text: &str) -> String {
    format_problems(&Inventory::load(&[text_source(text)], &[]).expect_err("it is wrong"))
}

fn format_problems(problems: &[InventoryProblem]) -> String {
    problems.iter().map(|problem| format!("{problem}\n")).collect()
}

fn runtime_values(inventory: &Inventory, gpus: u32) -> RuntimeValues {
    let count = inventory.hosts.len();
    RuntimeValues {
        run_id: "r1".to_owned(),
        run_stamp: "20261121-0915".to_owned(),
        gpu_counts: vec![Some(gpus); count],
        fabric_addresses: (0..count).map(|i| Some(format!("10.0.0.{}", i + 1))).collect(),
        master_port: None,
    }
}

fn load_job(text: &str) -> Job {
    let inventory = load(text);
    inventory.job(&runtime_values(&inventory, 8)).unwrap_or_else(|problems| panic!("{}", format_problems(&problems)))
}

fn command_words(host: &JobHost) -> Vec<&str> {
    match &host.command {
        LaunchCommand::Argv(words) => words.iter().map(String::as_str).collect(),
        LaunchCommand::Shell(text) => vec![text],
    }
}

const MINIMAL: &str = "name: a\nhosts: [gpu01, gpu02]\nlaunch: { command: [train.py] }\n";

#[test]
fn minimal_inventory_gets_all_defaults() {
    let inventory = load(MINIMAL);
    assert_eq!(inventory.name, "a");
    assert_eq!(inventory.run_dir, "~/.orchestrate");
    assert_eq!(inventory.engine, None);
    assert_eq!(inventory.hosts.iter().map(|host| host.name.as_str()).collect::<Vec<_>>(), ["gpu01", "gpu02"]);
    let job = inventory.job(&runtime_values(&inventory, 4)).expect("a job");
    assert_eq!(job.nproc_per_node, Some(4));
    assert_eq!(job.teardown, Teardown::Always);
    assert_eq!(job.launch.launcher, Launcher::Torchrun(Rendezvous::Static));
    assert_eq!((job.launch.master_port, job.launch.gate, job.launch.start), (Some(29500), StartGate::MasterPort, StartOrder::MasterFirst));
    assert_eq!((job.launch.stop_grace, job.launch.master_timeout), (Duration::from_secs(60), Duration::from_secs(300)));
    assert_eq!(command_words(&job.hosts[1]), ["train.py"]);
    let unknown = inventory.job(&RuntimeValues::default()).expect("a job with gaps");
    assert_eq!(unknown.nproc_per_node, None);
}

#[test]
fn wan22_config_builds_expected_job() {
    let inventory = Inventory::load(&[config_source("wan22.yaml")], &[]).unwrap_or_else(|p| panic!("{}", format_problems(&p)));
    let job = inventory.job(&runtime_values(&inventory, 8)).unwrap_or_else(|p| panic!("{}", format_problems(&p)));
    let words = command_words(&job.hosts[1]);
    let prompt = "A cinematic video. An astronaut in a white spacesuit walks cautiously on the red, dusty surface of Moon. \
        The camera follows the astronaut from behind in a tracking shot. The astronaut stops and looks up in surprise at a giant, dark rock. \
        The camera tilts up to reveal the word \"tenxcloud\" clearly engraved on the rock's surface. The scene is realistic, with a desolate \
        Martian landscape and a faint sun in the background, creating a sense of mystery and discovery.";
    assert_eq!(
        words,
        [
            "generate.py",
            "--task",
            "t2v-A14B",
            "--size",
            "832*480",
            "--ckpt_dir",
            "/Wan2.2-T2V-A14B",
            "--dit_fsdp",
            "--t5_fsdp",
            "--ulysses_size",
            "10",
            "--sample_guide_scale",
            "10",
            "--prompt",
            prompt,
            "--save_file",
            "/workspace/output/20261121-0915.mp4",
        ]
    );
    assert_eq!(job.nproc_per_node, Some(5));
    let container = job.hosts[0].container.as_ref().expect("a container");
    assert_eq!(container.image, "172.31.0.182/system_containers/wan2-2:1014");
    assert!(container.mounts[0].read_only && container.mounts[1].create_source);
}

#[test]
fn violated_constraint_suggests_valid_nproc() {
    let problems =
        Inventory::load(&[config_source("wan22.yaml")], &["launch.nproc_per_node=8".to_owned()]).expect_err("16 does not divide 40");
    assert_eq!(problems.len(), 1, "{}", format_problems(&problems));
    assert_eq!(problems[0].message, "the constraint `num_heads % ulysses_size == 0` does not hold: num_heads is 40, ulysses_size is 16");
    assert_eq!(
        problems[0].hint,
        "launch.nproc_per_node 5 (or 4, 2, 1) per host satisfies all constraints on 2 hosts: 10 processes, 6 GPUs idle"
    );
}

#[test]
fn gang_sizes_satisfy_all_constraints() {
    let text = config_source("wan22.yaml");
    let inventory = Inventory::load_connection(&[text], &["launch.nproc_per_node=8".to_owned()]).expect("a connection");
    let (constraints, fits) = inventory.suggest_gang_sizes(&RuntimeValues::default());
    assert_eq!(constraints, ["ulysses_size == world_size", "num_heads % ulysses_size == 0"]);
    let fits: Vec<(usize, u32, Option<u32>)> = fits.iter().map(|fit| (fit.hosts, fit.nproc, fit.idle_gpus)).collect();
    assert_eq!(fits[..4], [(2, 5, Some(6)), (2, 4, Some(8)), (1, 8, Some(8)), (1, 5, Some(11))]);
}

/// Every file of `bad/` beside the problems that it gives. `BLESS=1` rewrites them for review.
#[test]
fn bad_inventories_report_expected_problems() {
    let folder = repository_path("tests/data/inventories/bad");
    let mut seen = 0;
    let mut wrong = Vec::new();
    for entry in fs::read_dir(&folder).expect("the folder is there") {
        let file = entry.expect("an entry").path();
        if file.extension().is_none_or(|extension| extension != "yaml") {
            continue;
        }
        seen += 1;
        let name = file.file_name().and_then(|name| name.to_str()).expect("a name").to_owned();
        let text = fs::read_to_string(&file).expect("readable");
        let found = match Inventory::load(&[InventorySource { name: name.clone(), text }], &[]) {
            Ok(_) => "nothing\n".to_owned(),
            Err(problems) => format_problems(&problems),
        };
        let expected = file.with_extension("txt");
        if !matches_golden(expected.to_str().expect("a path"), &found) {
            wrong.push(format!("{}; found:\n{found}", expected.display()));
        }
    }
    assert!(wrong.is_empty(), "{}", wrong.join("\n"));
    assert!(seen >= 20, "only {seen} bad files");
}

/// The problems of every file of `bad/` in Chinese, in one file. `BLESS=1` rewrites it for review.
#[test]
fn bad_inventories_in_chinese() {
    let mut files: Vec<PathBuf> = fs::read_dir(repository_path("tests/data/inventories/bad"))
        .expect("the folder is there")
        .map(|entry| entry.expect("an entry").path())
        .filter(|file| file.extension().is_some_and(|extension| extension == "yaml"))
        .collect();
    files.sort();
    let mut found = String::new();
    for file in files {
        let name = file.file_name().and_then(|name| name.to_str()).expect("a name").to_owned();
        let text = fs::read_to_string(&file).expect("readable");
        let problems = Inventory::load(&[InventorySource { name, text }], &[]).err().unwrap_or_default();
        problems.iter().for_each(|problem| found += &format!("{}\n", problem.text(Lang::Zh)));
    }
    assert_golden("tests/data/zh/inventories.txt", &found);
}

/// The reference file has every key that there is: those of this version as keys, the others behind a `#`.
#[test]
fn reference_config_lists_every_key() {
    let reference = config_source("inventory.yaml");
    let (node, problems) = yaml_parser::parse_document(&reference.name, &reference.text);
    assert_eq!(problems, []);
    let tree = node.expect("a tree");
    let first = |keys: &[&str]| tree.get_path(keys).and_then(|node| node.items().iter().find(|item| !item.entries().is_empty())).cloned();
    let blocks = [
        (&schema::ROOT_SCHEMA, Some(tree.clone())),
        (&schema::HOST_SCHEMA, first(&["hosts"])),
        (&schema::SSH_SCHEMA, tree.get("ssh").cloned()),
        (&schema::CONTAINER_SCHEMA, tree.get("container").cloned()),
        (&schema::MOUNT_SCHEMA, first(&["container", "mounts"])),
        (&schema::REGISTRY_SCHEMA, tree.get_path(&["container", "registry"]).cloned()),
        (&schema::LAUNCH_SCHEMA, tree.get("launch").cloned()),
        (&schema::TASK_SCHEMA, first(&["prepare"])),
        (&schema::SLURM_SCHEMA, tree.get("slurm").cloned()),
        (&schema::CHECKS_SCHEMA, tree.get("checks").cloned()),
    ];
    for (block, node) in blocks {
        let node = node.unwrap_or_else(|| panic!("no {}", block.path));
        for (key, is_planned) in block.keys().map(|key| (key, false)).chain(block.planned().map(|key| (key, true))) {
            let said = reference.text.lines().any(|line| line.trim_start().starts_with(&format!("# {key}:")));
            // `command` and `shell` exclude each other, as `register` and `creates`, `sync`, `copy` and `run`; only `processes` has GPUs to hand out.
            let commented = is_planned || matches!(key, "shell" | "gpu_visibility" | "register" | "sync" | "copy");
            assert_eq!(node.get(key).is_none(), commented, "{}.{key}", block.path);
            assert!(said || !commented, "{}.{key} is not even in a comment", block.path);
        }
    }
}

#[test]
fn short_host_forms_are_parsed() {
    let inventory = load(
        "name: a\nmaster: n2\nssh: { user: me, port: 22 }\nhosts:\n- gpu[01-02]\n- root@172.31.0.90:2222\n- '[fd00::1]:23'\n\
         - { name: 'n[1-2]', address: '10.0.0.[8-9]', gpus: [4, 5], ssh: { user: li } }\n- { name: x, address: '{{ host.name }}.lan' }\n\
         launch: { nproc_per_node: 1, command: [t.py] }",
    );
    let seen: Vec<String> = inventory
        .hosts
        .iter()
        .map(|host| {
            let user = host.ssh.user.as_deref().unwrap_or("-");
            format!("{user}@{}:{} {}", host.name, host.ssh.port.unwrap_or(0), host.address.as_deref().unwrap_or("-"))
        })
        .collect();
    assert_eq!(
        seen,
        [
            "li@n2:22 10.0.0.9",
            "me@gpu01:22 -",
            "me@gpu02:22 -",
            "root@172.31.0.90:2222 -",
            "me@fd00::1:23 -",
            "li@n1:22 10.0.0.8",
            "me@x:22 x.lan"
        ]
    );
    assert_eq!(inventory.hosts[0].gpus, GpuSelection::List(vec![4, 5]));
}

#[test]
fn later_files_and_sets_override_by_key() {
    let base = text_source(
        "name: a\nenv: { A: 1, B: 2 }\nhosts:\n- { name: gpu01.lan, gpus: 8, env: { X: 1 } }\n- gpu02\nlaunch: { nproc_per_node: 2, command: [a.py] }",
    );
    let over = InventorySource {
        name: "over.yaml".to_owned(),
        text: "env: { B: 3 }\nhosts:\n- gpu03\n- { name: gpu01.lan, gpus: 4 }\nlaunch: { command: [b.py] }".to_owned(),
    };
    let sets = ["launch.nproc_per_node=3", "hosts.gpu01.lan.env.X=9", "env.C=a=b", "env.D="].map(str::to_owned);
    let inventory = Inventory::load(&[base.clone(), over], &sets).unwrap_or_else(|p| panic!("{}", format_problems(&p)));
    let job = inventory.job(&RuntimeValues::default()).expect("a job");
    assert_eq!(inventory.hosts.iter().map(|host| host.name.as_str()).collect::<Vec<_>>(), ["gpu01.lan", "gpu02", "gpu03"]);
    assert_eq!(inventory.hosts[0].gpus, GpuSelection::Count(4));
    assert_eq!((job.nproc_per_node, command_words(&job.hosts[0])), (Some(3), vec!["b.py"]));
    let env: Vec<String> = job.hosts[0].env.iter().map(|(key, value)| format!("{key}={value}")).collect();
    assert_eq!(env, ["A=1", "B=3", "C=a=b", "D=", "X=9"]);
    for (set, message) in [
        ("launch", "--set: `launch` has no =\n"),
        (".a=1", "--set: `.a` is not a key\n"),
        ("launch.nproc_per_node=many", "--set: launch.nproc_per_node: expected a whole number, found `many`\n"),
        ("launch.nproc=4", "--set: launch.nproc: unknown key `nproc`\n    help: did you mean `nproc_per_node`?\n"),
        ("hosts.gpu9.gpus=4", "--set: `hosts.gpu9.gpus` does not name a host and its key\n"),
        ("env.A=[", "--set: env.A: not YAML"),
    ] {
        let problems = format_problems(&Inventory::load(std::slice::from_ref(&base), &[set.to_owned()]).expect_err(set));
        assert!(problems.starts_with(message), "{set}: {problems}");
    }
}

#[test]
fn connection_loads_despite_unrelated_errors() {
    let text = "name: a\nhosts: [gpu01]\nrun_dir: /scratch/runs\nnonsense: 1\ncontainer: { host: 'unix:///x', image: [] }\nlaunch: 5\nconstraints: ['1 ==']\nenv: 7\n";
    assert!(Inventory::load(&[text_source(text)], &[]).is_err());
    let inventory = Inventory::load_connection(&[text_source(text)], &[]).unwrap_or_else(|p| panic!("{}", format_problems(&p)));
    assert_eq!(inventory.run_dir, "/scratch/runs");
    assert_eq!(inventory.engine, Some(ContainerEngine { host: Some("unix:///x".to_owned()) }));
    let wrong = Inventory::load_connection(&[text_source("name: A\nhosts: ['a b']\nssh: { prot: 1 }\n")], &[]).expect_err("wrong");
    assert_eq!(wrong.iter().map(|problem| problem.key_path.as_str()).collect::<Vec<_>>(), ["name", "hosts[0]", "ssh.prot"]);
}

#[test]
fn torchrun_command_must_start_with_script() {
    let begins = |command: &str| {
        let text = format!("name: a\nhosts: [{{ name: gpu01, gpus: 1 }}]\nlaunch: {{ command: {command} }}");
        Inventory::load(&[text_source(&text)], &[]).map_err(|problems| problems[0].message.clone()).map(|_| ())
    };
    for fine in ["[-m, pkg.train]", "[--no_python, bash, x.sh]", "[train.py, --nnodes=2]", "pythonic.py", "'{{ name }}.py --master_port 1'"]
    {
        assert_eq!(begins(fine), Ok(()), "{fine}");
    }
    for bad in ["[bash, x.sh]", "[python3, a.py]", "[--master-port=1, a.py]", "[-m, torch.distributed.run, a.py]", "'torchrun a.py'"] {
        assert!(begins(bad).is_err(), "{bad}");
    }
}

#[test]
fn values_keep_line_and_column() {
    let text = "\u{feff}name: a\r\nvars:\r\n  日本: &x [1, {k: v}]\r\n  b: >-\r\n    folded\r\n    text\r\n  c: *x\r\n";
    let (node, problems) = yaml_parser::parse_document("f", text);
    assert_eq!(problems, []);
    let node = node.expect("a tree");
    let at = |node: &yaml_tree::YamlNode| format!("{}:{} {}", node.location.line, node.location.column, node.location.path);
    let find = |keys: &[&str]| node.get_path(keys).expect("it is there");
    assert_eq!(at(find(&["name"])), "1:7 name");
    assert_eq!(at(&find(&["vars", "日本"]).items()[1]), "3:14 vars.日本[1]");
    // The location of a folded text is its first word.
    assert_eq!(at(find(&["vars", "b"])), "5:5 vars.b");
    assert!(matches!(&find(&["vars", "b"]).kind, yaml_tree::YamlKind::Scalar { text, .. } if text == "folded text"));
    // An alias has the path of its use and the place of its text.
    assert_eq!(at(&find(&["vars", "c"]).items()[0]), "3:11 vars.c[0]");
}
