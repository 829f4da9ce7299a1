//! The room as its users see it: files in, values or problems out.
#![expect(clippy::disallowed_methods, reason = "the files of configs/ and tests/data/ are read")]

use std::fs;
use std::path::PathBuf;
use std::time::Duration;

use super::*;

fn path(name: &str) -> PathBuf {
    PathBuf::from(env!("CARGO_MANIFEST_DIR")).join(name)
}

fn config(name: &str) -> Source {
    let text = fs::read_to_string(path("configs").join(name)).expect("the config is there");
    Source { name: name.to_owned(), text }
}

fn source(text: &str) -> Source {
    Source { name: "inventory.yaml".to_owned(), text: text.to_owned() }
}

fn load(text: &str) -> Inventory {
    Inventory::load(&[source(text)], &[]).unwrap_or_else(|problems| panic!("{}", shown(&problems)))
}

fn problems(text: &str) -> String {
    shown(&Inventory::load(&[source(text)], &[]).expect_err("it is wrong"))
}

fn shown(problems: &[Problem]) -> String {
    problems.iter().map(|problem| format!("{problem}\n")).collect()
}

fn known(inventory: &Inventory, gpus: u32) -> Known {
    let count = inventory.hosts.len();
    Known {
        run_id: "r1".to_owned(),
        run_stamp: "20261121-0915".to_owned(),
        gpus: vec![Some(gpus); count],
        addresses: (0..count).map(|i| Some(format!("10.0.0.{}", i + 1))).collect(),
        master_port: None,
    }
}

fn job(text: &str) -> Job {
    let inventory = load(text);
    inventory.job(&known(&inventory, 8)).unwrap_or_else(|problems| panic!("{}", shown(&problems)))
}

fn words(host: &JobHost) -> Vec<&str> {
    match &host.command {
        Payload::Argv(words) => words.iter().map(String::as_str).collect(),
        Payload::Shell(text) => vec![text],
    }
}

const SMALL: &str = "name: a\nhosts: [gpu01, gpu02]\nlaunch: { command: [train.py] }\n";

#[test]
fn the_smallest_file_has_every_default() {
    let inventory = load(SMALL);
    assert_eq!(inventory.name, "a");
    assert_eq!(inventory.run_dir, "~/.orchestrate");
    assert_eq!(inventory.engine, None);
    assert_eq!(inventory.hosts.iter().map(|host| host.name.as_str()).collect::<Vec<_>>(), ["gpu01", "gpu02"]);
    let job = inventory.job(&known(&inventory, 4)).expect("a job");
    assert_eq!(job.nproc_per_node, Some(4));
    assert_eq!(job.teardown, Teardown::Always);
    assert_eq!(job.launch.with, Launcher::Torchrun(Rendezvous::Static));
    assert_eq!((job.launch.master_port, job.launch.gate, job.launch.start), (Some(29500), Gate::Port, Start::MasterFirst));
    assert_eq!((job.launch.stop_grace, job.launch.master_timeout), (Duration::from_secs(60), Duration::from_secs(300)));
    assert_eq!(words(&job.hosts[1]), ["train.py"]);
    let unknown = inventory.job(&Known::default()).expect("a job with gaps");
    assert_eq!(unknown.nproc_per_node, None);
}

#[test]
fn the_first_guide_arrives_whole() {
    let inventory = Inventory::load(&[config("wan22.yaml")], &[]).unwrap_or_else(|p| panic!("{}", shown(&p)));
    let job = inventory.job(&known(&inventory, 8)).unwrap_or_else(|p| panic!("{}", shown(&p)));
    let words = words(&job.hosts[1]);
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
    assert!(container.mounts[0].read_only && container.mounts[1].create);
}

#[test]
fn the_guides_first_attempt_is_refused_with_the_numbers_that_work() {
    let problems = Inventory::load(&[config("wan22.yaml")], &["launch.nproc_per_node=8".to_owned()]).expect_err("16 does not divide 40");
    assert_eq!(problems.len(), 1, "{}", shown(&problems));
    assert_eq!(problems[0].says, "the constraint `num_heads % ulysses_size == 0` does not hold: num_heads is 40, ulysses_size is 16");
    assert_eq!(
        problems[0].hint,
        "launch.nproc_per_node 5, 4, 2, 1 on 2 hosts satisfies all constraints, the one that uses most GPUs first"
    );
}

#[test]
fn every_config_loads() {
    for entry in fs::read_dir(path("configs")).expect("configs/ is there") {
        let name = entry.expect("an entry").file_name().into_string().expect("a name");
        Inventory::load(&[config(&name)], &[]).unwrap_or_else(|p| panic!("{}", shown(&p)));
    }
}

/// Every file of `bad/` beside the problems that it gives. `BLESS=1` writes them anew, for a person to read.
#[test]
fn bad_files_are_told_what_is_wrong() {
    let folder = path("tests/data/inventories/bad");
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
        let found = match Inventory::load(&[Source { name: name.clone(), text }], &[]) {
            Ok(_) => "nothing\n".to_owned(),
            Err(problems) => shown(&problems),
        };
        let expected = file.with_extension("txt");
        if std::env::var_os("BLESS").is_some() {
            fs::write(&expected, &found).expect("written");
        }
        let expected = fs::read_to_string(expected).unwrap_or_default();
        if expected != found {
            wrong.push(format!("{name}\n-- expected\n{expected}-- found\n{found}"));
        }
    }
    assert!(wrong.is_empty(), "{}", wrong.join("\n"));
    assert!(seen >= 20, "only {seen} bad files");
}
