//! Templates, defaults, containers of hosts, and `--limit`, evaluated into a job.

use super::*;

#[test]
fn templates_keep_types_and_host_context() {
    let job = load_job(
        "name: t\nvars: { heads: 40, size: '{{ world_size }}', words: [--a, '{{ heads // 8 }}'], cmd: \"x 'y z'\", deep: { k: [1, '{{ size }}'] } }\n\
         hosts: [{ name: gpu01, gpus: 2 }, { name: gpu02, gpus: 2, workdir: '/w/{{ host.rank }}' }]\nenv: { H: '{{ host.name }}={{ host.address }}', P: '{{ master.port + 1 }}' }\n\
         workdir: '/{{ name }}'\ncontainer: { image: x, mounts: ['/d/{{ host.name }}:/d'], shm_size: '{{ heads }}m' }\n\
         launch:\n  nproc_per_node: '{{ heads // 20 }}'\n  command: [a.py, '{{ words }}', '{{ size * 2 }}', '{{ cmd }}', \"{{ '{{' }}x}}\", '{% if %}{# c #}${HOME}', \
         '{{ host.name }}-{{ run.id }}', '{{ master.name }} {{ master[\"address\"] }} {{ nnodes }}', '{{ deep.k[1] }}', '{{ heads > 3 }}', '{{ [1,2]|join(\"-\") }}']\n",
    );
    assert_eq!(
        command_words(&job.hosts[1]),
        ["a.py", "--a", "5", "8", "x 'y z'", "{{x}}", "{% if %}{# c #}${HOME}", "gpu02-r1", "gpu01 10.0.0.1 2", "4", "true", "1-2"]
    );
    assert_eq!((job.hosts[1].env["H"].as_str(), job.hosts[0].env["P"].as_str()), ("gpu02=10.0.0.2", "29501"));
    assert_eq!(job.hosts.iter().map(|host| host.workdir.as_deref().unwrap_or("")).collect::<Vec<_>>(), ["/t", "/w/1"]);
    let container = job.hosts[1].container.as_ref().expect("a container");
    assert_eq!((container.mounts[0].source.as_str(), container.shm_size.as_str()), ("/d/gpu02", "40m"));
}

#[test]
fn command_accepts_single_line() {
    let line = |command: &str| {
        let text =
            format!("name: a\nvars: {{ cmd: \"b.py --x 'y z'\", p: \"it's > that\" }}\nhosts: [gpu01]\nlaunch: {{ command: {command:?} }}");
        command_words(&load_job(&text).hosts[0]).into_iter().map(str::to_owned).collect::<Vec<_>>()
    };
    assert_eq!(line("a.py 832*480 \"b c\" $HOME --p={{ p }}"), ["a.py", "832*480", "b c", "$HOME", "--p=it's > that"]);
    assert_eq!(line("{{ cmd }}"), ["b.py", "--x", "y z"]);
}

#[test]
fn unknown_values_render_as_placeholders() {
    let inventory = load(
        "name: a\nvars: { size: '{{ world_size }}' }\nhosts: [gpu01, gpu02]\nlaunch: { command: [a.py, '{{ size }}', 'tcp://{{ master.address }}:1', '{{ run.stamp }}'] }\nconstraints: [40 % size == 0]",
    );
    let job = inventory.job(&RuntimeValues::default()).expect("a job with gaps");
    assert_eq!(command_words(&job.hosts[0]), ["a.py", "<from gpu01: GPU count>", "tcp://<from gpu01: fabric address>:1", "<run.stamp>"]);
    let problems = format_problems(&inventory.job(&runtime_values(&inventory, 8)).expect_err("16 does not divide 40"));
    assert!(problems.contains("launch.nproc_per_node 5 (or 4, 2, 1) per host satisfies all constraints on 2 hosts"), "{problems}");
}

#[test]
fn script_launcher_world_size_counts_hosts() {
    let job = load_job(
        "name: a\nhosts: [{ name: gpu01, gpus: 4 }, { name: gpu02, gpus: 4 }]\nlaunch: { with: script, shell: 'exec ./go {{ world_size }} {{ nproc_per_node }} {{ host.rank }}\n' }",
    );
    assert_eq!(command_words(&job.hosts[1]), ["exec ./go 2 4 1 "]);
    assert_eq!((job.launch.gate, job.nproc_per_node), (StartGate::MasterStarted, Some(4)));
}

/// The number of processes must not depend on a rendezvous that it decides.
#[test]
fn rendezvous_may_depend_on_the_world_size() {
    for (launcher, nproc) in [("torchrun", ""), ("torchrun", "nproc_per_node: 4, "), ("deepspeed", "nproc_per_node: 4, ")] {
        let job = load_job(&format!(
            "name: a\nhosts: [{{ name: gpu01, gpus: 4 }}, {{ name: gpu02, gpus: 4 }}]\n\
             launch: {{ with: {launcher}, {nproc}rendezvous: \"{{{{ 'c10d' if world_size > 4 else 'static' }}}}\", command: [a.py] }}",
        ));
        assert!(job.launch.launcher.has_dynamic_ranks(), "{launcher} {nproc}");
    }
}

#[test]
fn host_container_overrides_common_container() {
    let job = load_job(
        "name: a\nhosts: [gpu01, { name: gpu02, container: { image: y, env: { B: 3 }, mounts: ['/o:/b/:ro', '/c:/c'], gpus: [1] } }]\n\
         container: { image: x, env: { A: 1, B: 2 }, mounts: ['/a:/a', '/b:/b'], gpus: 1, user: 1000:100 }\nlaunch: { command: [a.py] }",
    );
    let container = job.hosts[1].container.as_ref().expect("a container");
    let mounts: Vec<String> = container.mounts.iter().map(|m| format!("{}:{}:{}", m.source, m.target, m.read_only)).collect();
    assert_eq!(mounts, ["/a:/a:false", "/o:/b:true", "/c:/c:false"]);
    assert_eq!((container.image.as_str(), container.env["A"].as_str(), container.env["B"].as_str()), ("y", "1", "3"));
    assert_eq!((&container.gpus, &container.user), (&ContainerGpus::List(vec![1]), &ContainerUser::Ids("1000:100".to_owned())));
    assert_eq!(job.hosts[0].container.as_ref().map(|c| &c.gpus), Some(&ContainerGpus::Count(1)));
}

#[test]
fn limit_renumbers_ranks_and_fingerprints_differ() {
    let text = "name: a\nmaster: gpu02\nhosts: [{ name: 'gpu[01-03]', gpus: 4 }]\ncontainer: { image: x }\nlaunch: { command: [a.py, '{{ host.rank }}', '{{ world_size }}', '{{ run.id }}'] }";
    let mut inventory = load(text);
    let before = inventory.fingerprint_text(1);
    assert!(before.launch.contains(r#"command ["a.py", "1", "12", "<run.id>"]"#), "{}", before.launch);
    assert_eq!(before.container, load(&text.replace("a.py", "b.py")).fingerprint_text(1).container);
    assert_ne!(before.launch, load(&text.replace("a.py", "b.py")).fingerprint_text(1).launch);
    assert_ne!(before.container, load(&text.replace("image: x", "image: y")).fingerprint_text(1).container);
    assert_eq!(before.launch, load(&text.replace("image: x", "image: y")).fingerprint_text(1).launch);
    assert_eq!(before, load(text).fingerprint_text(1));
    inventory.limit_hosts("!gpu02").expect("two are left");
    assert_eq!(inventory.hosts.iter().map(|host| host.name.as_str()).collect::<Vec<_>>(), ["gpu01", "gpu03"]);
    let job = inventory.job(&runtime_values(&inventory, 4)).expect("a job");
    assert_eq!(command_words(&job.hosts[0]), ["a.py", "0", "8", "r1"]);
    let problem = inventory.limit_hosts("gpu02").expect_err("it is gone");
    assert_eq!(problem.to_string(), "--limit: no host is named `gpu02`\n    help: the hosts are gpu[01,03]");
}

/// `master` is the first host of the run in a copy as in a launch; a source that the run leaves out is named before any host is asked.
#[test]
fn limit_moves_the_master_of_a_copy_and_refuses_a_source_that_is_left_out() {
    let task = |from: &str| {
        let text = format!(
            "name: a\nmaster: gpu02\nhosts: ['gpu[01-03]']\nprepare: [{{ name: t, copy: {{ from: '{from}:~/x', to: /tmp/ }} }}]\n{MINIMAL}",
        );
        let mut inventory = load(&text.replace("name: a\nhosts: [gpu01, gpu02]\n", ""));
        let limited = |inventory: &Inventory| {
            let job = inventory.job(&runtime_values(inventory, 4)).map_err(|problems| format_problems(&problems))?;
            match job.tasks[0].files.as_ref().map(|files| &files.source) {
                Some(FileSource::HostFiles { host, .. }) => Ok(inventory.hosts[*host].name.clone()),
                other => Err(format!("{other:?}")),
            }
        };
        let whole = limited(&inventory);
        inventory.limit_hosts("gpu01,gpu03").expect("two are left");
        (whole, limited(&inventory))
    };
    assert_eq!(task("master"), (Ok("gpu02".to_owned()), Ok("gpu01".to_owned())));
    assert_eq!(task("gpu03"), (Ok("gpu03".to_owned()), Ok("gpu03".to_owned())));
    let (whole, left_out) = task("gpu02");
    assert_eq!(whole, Ok("gpu02".to_owned()));
    let left_out = left_out.expect_err("its files cannot be read");
    assert!(left_out.contains("prepare[0].copy.from: --limit leaves out gpu02, whose files are copied"), "{left_out}");
    assert!(left_out.contains("help: add gpu02 to --limit"), "{left_out}");
}

#[test]
fn plain_scalars_keep_their_spelling() {
    let job = load_job(
        "name: a\nhosts: [gpu01]\nx: &e { A: yes, B: 1.10, C: 0x10, D: true, E: 1e3, F: 'null', G: '' }\nlaunch: { command: [a.py, 1.10, 007, yes, on, -1, .5] }\nenv: { <<: *e, A: no }"
            .replace("x: &e", "vars: &e")
            .as_str(),
    );
    assert_eq!(command_words(&job.hosts[0]), ["a.py", "1.10", "007", "yes", "on", "-1", ".5"]);
    let env: Vec<String> = job.hosts[0].env.iter().map(|(key, value)| format!("{key}={value}")).collect();
    assert_eq!(env, ["A=no", "B=1.10", "C=0x10", "D=true", "E=1e3", "F=null", "G="]);
}
