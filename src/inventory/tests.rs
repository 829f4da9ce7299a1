//! The room as its users see it: files in, values or problems out.
#![expect(clippy::disallowed_methods, reason = "the files of configs/ and tests/data/ are read")]

use std::fs;
use std::path::PathBuf;
use std::time::Duration;

use super::*;

mod hostile;

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
        "launch.nproc_per_node 5, 4, 2, 1 on 2 hosts satisfies all constraints, the one that uses most GPUs first: 10 processes, 6 GPUs idle"
    );
}

#[test]
fn what_would_satisfy_all_constraints_is_suggested() {
    let text = config("wan22.yaml");
    let inventory = Inventory::load_connection(&[text], &["launch.nproc_per_node=8".to_owned()]).expect("a connection");
    let (constraints, fits) = inventory.suggest(&Known::default());
    assert_eq!(constraints, ["ulysses_size == world_size", "num_heads % ulysses_size == 0"]);
    let fits: Vec<(usize, u32, Option<u32>)> = fits.iter().map(|fit| (fit.hosts, fit.nproc, fit.idle)).collect();
    assert_eq!(fits[..4], [(2, 5, Some(6)), (2, 4, Some(8)), (1, 8, Some(8)), (1, 5, Some(11))]);
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

/// The reference file has every key that there is: those of this version as keys, the others behind a `#`.
#[test]
fn the_reference_is_complete() {
    let reference = config("inventory.yaml");
    let (node, problems) = raw::parse(&reference.name, &reference.text);
    assert_eq!(problems, []);
    let tree = node.expect("a tree");
    let first = |keys: &[&str]| tree.find(keys).and_then(|node| node.items().iter().find(|item| !item.entries().is_empty())).cloned();
    let blocks = [
        (&schema::ROOT, Some(tree.clone())),
        (&schema::HOST, first(&["hosts"])),
        (&schema::SSH, tree.get("ssh").cloned()),
        (&schema::CONTAINER, tree.get("container").cloned()),
        (&schema::MOUNT, first(&["container", "mounts"])),
        (&schema::REGISTRY, tree.find(&["container", "registry"]).cloned()),
        (&schema::LAUNCH, tree.get("launch").cloned()),
        (&schema::CHECKS, tree.get("checks").cloned()),
    ];
    for (block, node) in blocks {
        let node = node.unwrap_or_else(|| panic!("no {}", block.path));
        for (key, status) in block.keys {
            let said = reference.text.lines().any(|line| line.trim_start().starts_with(&format!("# {key}:")));
            // `command` and `shell` exclude each other, and only `processes` has GPUs to hand out.
            let commented = *status == schema::Status::Later || matches!(*key, "shell" | "gpu_visibility");
            assert_eq!(node.get(key).is_none(), commented, "{}.{key}", block.path);
            assert!(said || !commented, "{}.{key} is not even in a comment", block.path);
        }
    }
}

#[test]
fn every_short_form_is_a_host() {
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
    assert_eq!(inventory.hosts[0].gpus, Gpus::List(vec![4, 5]));
}

#[test]
fn later_files_and_sets_override_key_by_key() {
    let base = source(
        "name: a\nenv: { A: 1, B: 2 }\nhosts:\n- { name: gpu01.lan, gpus: 8, env: { X: 1 } }\n- gpu02\nlaunch: { nproc_per_node: 2, command: [a.py] }",
    );
    let over = Source {
        name: "over.yaml".to_owned(),
        text: "env: { B: 3 }\nhosts:\n- gpu03\n- { name: gpu01.lan, gpus: 4 }\nlaunch: { command: [b.py] }".to_owned(),
    };
    let sets = ["launch.nproc_per_node=3", "hosts.gpu01.lan.env.X=9", "env.C=a=b", "env.D="].map(str::to_owned);
    let inventory = Inventory::load(&[base.clone(), over], &sets).unwrap_or_else(|p| panic!("{}", shown(&p)));
    let job = inventory.job(&Known::default()).expect("a job");
    assert_eq!(inventory.hosts.iter().map(|host| host.name.as_str()).collect::<Vec<_>>(), ["gpu01.lan", "gpu02", "gpu03"]);
    assert_eq!(inventory.hosts[0].gpus, Gpus::Count(4));
    assert_eq!((job.nproc_per_node, words(&job.hosts[0])), (Some(3), vec!["b.py"]));
    let env: Vec<String> = job.hosts[0].env.iter().map(|(key, value)| format!("{key}={value}")).collect();
    assert_eq!(env, ["A=1", "B=3", "C=a=b", "D=", "X=9"]);
    for (set, says) in [
        ("launch", "--set: `launch` has no =\n"),
        (".a=1", "--set: `.a` is not a key\n"),
        ("launch.nproc_per_node=many", "--set: launch.nproc_per_node: `many` where a whole number is expected\n"),
        ("launch.nproc=4", "--set: launch.nproc: unknown key `nproc`\n    help: did you mean `nproc_per_node`?\n"),
        ("hosts.gpu9.gpus=4", "--set: `hosts.gpu9.gpus` names no host and its key\n"),
        ("env.A=[", "--set: env.A: not YAML"),
    ] {
        let problems = shown(&Inventory::load(std::slice::from_ref(&base), &[set.to_owned()]).expect_err(set));
        assert!(problems.starts_with(says), "{set}: {problems}");
    }
}

#[test]
fn what_a_connection_needs_is_read_from_a_file_that_is_otherwise_wrong() {
    let text = "name: a\nhosts: [gpu01]\nrun_dir: /scratch/runs\nnonsense: 1\ncontainer: { host: 'unix:///x', image: [] }\nlaunch: 5\nconstraints: ['1 ==']\nenv: 7\n";
    assert!(Inventory::load(&[source(text)], &[]).is_err());
    let inventory = Inventory::load_connection(&[source(text)], &[]).unwrap_or_else(|p| panic!("{}", shown(&p)));
    assert_eq!(inventory.run_dir, "/scratch/runs");
    assert_eq!(inventory.engine, Some(Engine { host: Some("unix:///x".to_owned()) }));
    let wrong = Inventory::load_connection(&[source("name: A\nhosts: ['a b']\nssh: { prot: 1 }\n")], &[]).expect_err("wrong");
    assert_eq!(wrong.iter().map(|problem| problem.path.as_str()).collect::<Vec<_>>(), ["name", "hosts[0]", "ssh.prot"]);
}

#[test]
fn templates_keep_types_and_know_their_host() {
    let job = job(
        "name: t\nvars: { heads: 40, size: '{{ world_size }}', words: [--a, '{{ heads // 8 }}'], cmd: \"x 'y z'\", deep: { k: [1, '{{ size }}'] } }\n\
         hosts: [{ name: gpu01, gpus: 2 }, { name: gpu02, gpus: 2, workdir: '/w/{{ host.rank }}' }]\nenv: { H: '{{ host.name }}={{ host.address }}', P: '{{ master.port + 1 }}' }\n\
         workdir: '/{{ name }}'\ncontainer: { image: x, mounts: ['/d/{{ host.name }}:/d'], shm_size: '{{ heads }}m' }\n\
         launch:\n  nproc_per_node: '{{ heads // 20 }}'\n  command: [a.py, '{{ words }}', '{{ size * 2 }}', '{{ cmd }}', \"{{ '{{' }}x}}\", '{% if %}{# c #}${HOME}', \
         '{{ host.name }}-{{ run.id }}', '{{ master.name }} {{ master[\"address\"] }} {{ nnodes }}', '{{ deep.k[1] }}', '{{ heads > 3 }}', '{{ [1,2]|join(\"-\") }}']\n",
    );
    assert_eq!(
        words(&job.hosts[1]),
        ["a.py", "--a", "5", "8", "x 'y z'", "{{x}}", "{% if %}{# c #}${HOME}", "gpu02-r1", "gpu01 10.0.0.1 2", "4", "true", "1-2"]
    );
    assert_eq!(job.launch.command, job.hosts[0].command);
    assert_eq!((job.hosts[1].env["H"].as_str(), job.hosts[0].env["P"].as_str()), ("gpu02=10.0.0.2", "29501"));
    assert_eq!(job.hosts.iter().map(|host| host.workdir.as_deref().unwrap_or("")).collect::<Vec<_>>(), ["/t", "/w/1"]);
    let container = job.hosts[1].container.as_ref().expect("a container");
    assert_eq!((container.mounts[0].from.as_str(), container.shm_size.as_str()), ("/d/gpu02", "40m"));
}

#[test]
fn a_command_may_be_one_line() {
    let line = |command: &str| {
        let text =
            format!("name: a\nvars: {{ cmd: \"b.py --x 'y z'\", p: \"it's > that\" }}\nhosts: [gpu01]\nlaunch: {{ command: {command:?} }}");
        words(&job(&text).hosts[0]).into_iter().map(str::to_owned).collect::<Vec<_>>()
    };
    assert_eq!(line("a.py 832*480 \"b c\" $HOME --p={{ p }}"), ["a.py", "832*480", "b c", "$HOME", "--p=it's > that"]);
    assert_eq!(line("{{ cmd }}"), ["b.py", "--x", "y z"]);
}

#[test]
fn what_is_not_known_yet_says_where_it_comes_from() {
    let inventory = load(
        "name: a\nvars: { size: '{{ world_size }}' }\nhosts: [gpu01, gpu02]\nlaunch: { command: [a.py, '{{ size }}', 'tcp://{{ master.address }}:1', '{{ run.stamp }}'] }\nconstraints: [40 % size == 0]",
    );
    let job = inventory.job(&Known::default()).expect("a job with gaps");
    assert_eq!(words(&job.hosts[0]), ["a.py", "<from gpu01: GPU count>", "tcp://<from gpu01: fabric address>:1", "<run.stamp>"]);
    let problems = shown(&inventory.job(&known(&inventory, 8)).expect_err("16 does not divide 40"));
    assert!(problems.contains("launch.nproc_per_node 5, 4, 2, 1 on 2 hosts"), "{problems}");
}

#[test]
fn script_counts_hosts() {
    let job = job(
        "name: a\nhosts: [{ name: gpu01, gpus: 4 }, { name: gpu02, gpus: 4 }]\nlaunch: { with: script, shell: 'exec ./go {{ world_size }} {{ nproc_per_node }} {{ host.rank }}\n' }",
    );
    assert_eq!(words(&job.hosts[1]), ["exec ./go 2 4 1 "]);
    assert_eq!((job.launch.gate, job.nproc_per_node), (Gate::Started, Some(4)));
}

#[test]
fn a_hosts_container_lies_over_the_common_one() {
    let job = job(
        "name: a\nhosts: [gpu01, { name: gpu02, container: { image: y, env: { B: 3 }, mounts: ['/o:/b/:ro', '/c:/c'], gpus: [1] } }]\n\
         container: { image: x, env: { A: 1, B: 2 }, mounts: ['/a:/a', '/b:/b'], gpus: 1, user: 1000:100 }\nlaunch: { command: [a.py] }",
    );
    let container = job.hosts[1].container.as_ref().expect("a container");
    let mounts: Vec<String> = container.mounts.iter().map(|m| format!("{}:{}:{}", m.from, m.to, m.read_only)).collect();
    assert_eq!(mounts, ["/a:/a:false", "/o:/b:true", "/c:/c:false"]);
    assert_eq!((container.image.as_str(), container.env["A"].as_str(), container.env["B"].as_str()), ("y", "1", "3"));
    assert_eq!((&container.gpus, &container.user), (&ContainerGpus::List(vec![1]), &User::Ids("1000:100".to_owned())));
    assert_eq!(job.hosts[0].container.as_ref().map(|c| &c.gpus), Some(&ContainerGpus::Count(1)));
}

#[test]
fn limits_renumber_and_hashes_tell_what_differs() {
    let text = "name: a\nmaster: gpu02\nhosts: [{ name: 'gpu[01-03]', gpus: 4 }]\ncontainer: { image: x }\nlaunch: { command: [a.py, '{{ host.rank }}', '{{ world_size }}', '{{ run.id }}'] }";
    let mut inventory = load(text);
    let before = inventory.hash_text(1);
    assert!(before.launch.contains(r#"command ["a.py", "1", "12", "<run.id>"]"#), "{}", before.launch);
    assert_eq!(before.container, load(&text.replace("a.py", "b.py")).hash_text(1).container);
    assert_ne!(before.launch, load(&text.replace("a.py", "b.py")).hash_text(1).launch);
    assert_ne!(before.container, load(&text.replace("image: x", "image: y")).hash_text(1).container);
    assert_eq!(before.launch, load(&text.replace("image: x", "image: y")).hash_text(1).launch);
    assert_eq!(before, load(text).hash_text(1));
    inventory.limit("!gpu02").expect("two are left");
    assert_eq!(inventory.hosts.iter().map(|host| host.name.as_str()).collect::<Vec<_>>(), ["gpu01", "gpu03"]);
    let job = inventory.job(&known(&inventory, 4)).expect("a job");
    assert_eq!(words(&job.hosts[0]), ["a.py", "0", "8", "r1"]);
    let problem = inventory.limit("gpu02").expect_err("it is gone");
    assert_eq!(problem.to_string(), "--limit: no host is called `gpu02`\n    help: the hosts are gpu[01,03]");
}

#[test]
fn plain_words_stay_as_they_are_written() {
    let job = job(
        "name: a\nhosts: [gpu01]\nx: &e { A: yes, B: 1.10, C: 0x10, D: true, E: 1e3, F: 'null', G: '' }\nlaunch: { command: [a.py, 1.10, 007, yes, on, -1, .5] }\nenv: { <<: *e, A: no }"
            .replace("x: &e", "vars: &e")
            .as_str(),
    );
    assert_eq!(words(&job.hosts[0]), ["a.py", "1.10", "007", "yes", "on", "-1", ".5"]);
    let env: Vec<String> = job.hosts[0].env.iter().map(|(key, value)| format!("{key}={value}")).collect();
    assert_eq!(env, ["A=no", "B=1.10", "C=0x10", "D=true", "E=1e3", "F=null", "G="]);
}

#[test]
fn what_torchrun_may_begin_with() {
    let begins = |command: &str| {
        let text = format!("name: a\nhosts: [{{ name: gpu01, gpus: 1 }}]\nlaunch: {{ command: {command} }}");
        Inventory::load(&[source(&text)], &[]).map_err(|problems| problems[0].says.clone()).map(|_| ())
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
fn values_know_their_line_and_column() {
    let text = "\u{feff}name: a\r\nvars:\r\n  日本: &x [1, {k: v}]\r\n  b: >-\r\n    folded\r\n    text\r\n  c: *x\r\n";
    let (node, problems) = raw::parse("f", text);
    assert_eq!(problems, []);
    let node = node.expect("a tree");
    let at = |node: &tree::Node| format!("{}:{} {}", node.place.line, node.place.column, node.place.path);
    let find = |keys: &[&str]| node.find(keys).expect("it is there");
    assert_eq!(at(find(&["name"])), "1:7 name");
    assert_eq!(at(&find(&["vars", "日本"]).items()[1]), "3:14 vars.日本[1]");
    // A folded text stands where its first word does.
    assert_eq!(at(find(&["vars", "b"])), "5:5 vars.b");
    assert!(matches!(&find(&["vars", "b"]).kind, tree::Kind::Scalar { text, .. } if text == "folded text"));
    // An alias has the path of its use and the place of its text.
    assert_eq!(at(&find(&["vars", "c"]).items()[0]), "3:11 vars.c[0]");
}
