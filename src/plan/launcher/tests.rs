//! Every launcher on one, two and three hosts, in containers and without: the plan as a person reads it, beside this in `tests/data/plans`.

use std::path::PathBuf;

use super::*;
use crate::inventory::{Inventory, InventorySource, RuntimeValues};
use crate::model::phase::Phase;
use crate::plan::build::{LaunchInputs, RunIdentity, plan_launch};
use crate::plan::display;
use crate::plan::facts::HostFacts;
use crate::text::golden::matches_golden;

const LAUNCHER_CONFIGS: [(&str, &str); 10] = [
    ("torchrun-static", "with: torchrun\n  command: [train.py, --lr, \"1e-3\"]"),
    ("torchrun-c10d", "with: torchrun\n  rendezvous: c10d\n  max_restarts: 3\n  min_nodes: 1\n  command: [-m, pkg.train]"),
    ("accelerate", "with: accelerate\n  args: [--mixed-precision, bf16, --use_deepspeed]\n  command: [train.py]"),
    ("accelerate-config", "with: accelerate\n  args: [--config_file, accelerate_configs/deepspeed_16gpu.yaml]\n  command: [train.py]"),
    ("deepspeed", "with: deepspeed\n  command: [train.py, --deepspeed, ds_config.json]"),
    ("deepspeed-hostfile", "with: deepspeed\n  rendezvous: hostfile\n  command: [train.py, --deepspeed, ds_config.json]"),
    ("processes", "with: processes\n  setup: source ~/venv/bin/activate\n  command: [python3, train.py]"),
    ("processes-own", "with: processes\n  gpu_visibility: own\n  shell: |\n    exec python3 train.py"),
    ("script", "with: script\n  command: [./train.sh, \"8\", h100]"),
    (
        "prepare",
        "with: script\n  command: [./train.sh]\nprepare:\n  - { name: build, hosts: master, chdir: ~/src, env: { ARCH: \"9.0\" }, run: make wheel, creates: \"dist/*.whl\", retries: 2, delay: 5s, timeout: 1h }\n  - { name: install, run: pip install x, unless: python -m x --version, changed: Successfully }\n  - { name: which commit, run: git -C /work rev-parse HEAD, once: true, register: COMMIT }",
    ),
];

fn test_facts(hosts: usize, gpus: usize) -> Vec<HostFacts> {
    (0..hosts)
        .map(|host| {
            let address = format!("10.0.0.{}", host + 1);
            HostFacts {
                run_dir: "/home/me/.orchestrate".to_owned(),
                home: "/home/me".to_owned(),
                addresses: vec![address.clone()],
                ssh_address: Some(address.clone()),
                interfaces: [(address, "bond0".to_owned())].into(),
                is_writable: true,
                gpu_lines: (0..gpus).map(|i| format!("GPU {i}: H20 (UUID: GPU-{i})")).collect(),
                ..HostFacts::default()
            }
        })
        .collect()
}

/// The plan of an inventory on hosts with so many GPUs each.
fn plan_inventory(text: &str, hosts: usize, gpus: usize) -> crate::plan::Plan {
    let source = InventorySource { name: "inventory.yaml".to_owned(), text: text.to_owned() };
    let inventory = Inventory::load(&[source], &[]).unwrap_or_else(|p| panic!("{text}\n{p:#?}"));
    let mut facts = test_facts(hosts, gpus);
    for (host, facts) in inventory.hosts.iter().zip(&mut facts) {
        if let Some(address) = &host.address {
            facts.addresses = vec![address.clone()];
            facts.interfaces = [(address.clone(), "bond0".to_owned())].into();
            facts.ssh_address = Some(address.clone());
        }
    }
    let addresses = crate::plan::build::resolve_addresses(&inventory, &facts).unwrap_or_default();
    let known = RuntimeValues {
        run_id: "20261121-101500-ab12".to_owned(),
        run_stamp: "20261121101500".to_owned(),
        gpu_counts: inventory
            .hosts
            .iter()
            .zip(&facts)
            .map(|(host, facts)| Some(crate::plan::rank_layout::usable_gpu_count(host, facts)))
            .collect(),
        fabric_addresses: addresses.into_iter().map(Some).collect(),
        master_port: Some(23456),
    };
    let job = inventory.job(&known).unwrap_or_else(|p| panic!("{p:#?}"));
    let ids = RunIdentity { run_id: known.run_id.clone(), ..RunIdentity::default() };
    let texts = vec![(String::new(), String::new()); hosts];
    let terms = LaunchInputs {
        inventory: &inventory,
        job: &job,
        facts: &facts,
        config_texts: &texts,
        identity: &ids,
        secrets: &[],
        registry_passwords: &[],
        check_summaries: &[],
    };
    plan_launch(terms).unwrap_or_else(|t| panic!("{t:?}"))
}

fn inventory_text(launch: &str, hosts: usize, contained: bool) -> String {
    let names: Vec<String> = (1..=hosts).map(|i| format!("gpu0{i}")).collect();
    let container = if contained { "container: { image: \"train:1\" }\nworkdir: /work\n" } else { "workdir: ~/work\n" };
    format!("name: train\nhosts: [{}]\n{container}env: {{ OMP_NUM_THREADS: 8 }}\nlaunch:\n  {launch}\n", names.join(", "))
}

#[test]
fn launcher_plans_match_golden_files() {
    assert!(Launcher::ALL.iter().all(|launcher| LAUNCHER_CONFIGS.iter().any(|(name, _)| name.starts_with(launcher.as_str()))));
    let mut wrong = Vec::new();
    for (name, launch) in LAUNCHER_CONFIGS {
        let mut found = String::new();
        for (hosts, contained) in [(1, true), (1, false), (2, true), (2, false), (3, true), (3, false)] {
            let text = inventory_text(launch, hosts, contained);
            found.push_str(&format!("=== {hosts} x {}\n", if contained { "docker" } else { "bare" }));
            found.push_str(&display::format_plan(&plan_inventory(&text, hosts, 2), None, false));
        }
        if !matches_golden(&format!("tests/data/plans/{name}.txt"), &found) {
            wrong.push(name);
        }
    }
    assert!(wrong.is_empty(), "{wrong:?} differ from tests/data/plans; BLESS=1 rewrites them for review");
}

fn launch_specs(text: &str, hosts: usize) -> Vec<HostLaunchSpec> {
    let steps = plan_inventory(text, hosts, 2).steps;
    let starts = steps.into_iter().filter_map(|step| match step.action {
        crate::plan::action::Action::WriteRunFiles(prepare) => Some(prepare.launch_spec),
        _ => None,
    });
    starts.collect()
}

/// torchrun itself takes the text after the last colon of address and port as the port; in an endpoint, brackets are usual.
#[test]
fn launchers_format_ipv6_master_addresses() {
    for (name, launch) in LAUNCHER_CONFIGS {
        let text = inventory_text(launch, 2, false)
            .replace("gpu01, gpu02", "{name: gpu01, address: 'fd00::1'}, {name: gpu02, address: 'fd00::2'}");
        for (host, start) in launch_specs(&text, 2).iter().enumerate() {
            let output = start.argv.join(" ");
            let expected = match name {
                "torchrun-static" | "deepspeed" | "deepspeed-hostfile" => "--master_addr=fd00::1 --master_port=29500".to_owned(),
                "torchrun-c10d" => format!(
                    "--rdzv_endpoint=[fd00::1]:29500 --rdzv_id=20261121-101500-ab12 --rdzv_conf=is_host={} --local_addr=fd00::{}",
                    1 - host,
                    host + 1
                ),
                "accelerate" | "accelerate-config" => "--main_process_ip=fd00::1 --main_process_port=29500".to_owned(),
                _ => String::new(),
            };
            assert!(output.contains(&expected), "{name}: {output}");
            let of = |variable: &str| start.env.get(variable).cloned().unwrap_or_default();
            match name {
                "processes" | "processes-own" => {
                    let jax = (of("JAX_COORDINATOR_ADDRESS"), of("JAX_COORDINATOR_BIND_ADDRESS"));
                    assert_eq!(jax, ("[fd00::1]:29500".to_owned(), "[::]:29500".to_owned()), "{name}");
                    assert_eq!(of("MASTER_ADDR"), "fd00::1", "{name}");
                }
                "script" => assert_eq!(of("MASTER_ADDR"), "fd00::1"),
                _ => assert!(start.ranks.iter().all(|rank| rank.env.get("MASTER_ADDR").is_none_or(|a| a == "fd00::1")), "{name}"),
            }
        }
    }
}

#[test]
fn keeper_start_timeout_covers_the_launch() {
    use crate::plan::action::{Action, Execution};
    let plan = plan_inventory(&inventory_text("master_timeout: 1000s\n  command: [train.py]", 2, true), 2, 2);
    let mut may_take = 0;
    for phase in [Phase::Container, Phase::Environment, Phase::Master, Phase::Workers] {
        for host in 0..2 {
            let steps = plan.steps.iter().filter(|step| step.phase == phase && step.host == host);
            let deadlines = steps.map(|step| match step.action.execution() {
                Execution::Script(command) | Execution::PullImage(command) => command.timeout.as_secs(),
                _ => 0,
            });
            let all: u64 = deadlines.sum();
            // Beside each other on all hosts, one phase after the other.
            if host == 0 || phase == Phase::Workers {
                may_take += all;
            }
        }
    }
    let given = plan.steps.iter().filter_map(|step| match &step.action {
        Action::WriteRunFiles(prepare) => Some(prepare.start_timeout_secs),
        _ => None,
    });
    assert_eq!(given.collect::<Vec<_>>(), [may_take; 2]);
}

#[test]
fn worker_argv_matches_the_launcher_command() {
    let worker = |command: &str| launch_specs(&inventory_text(&format!("command: {command}"), 1, true), 1).remove(0);
    assert_eq!(worker("[train.py, -m, x]").worker_argv, ["python3", "-u", "train.py", "-m", "x"]);
    assert_eq!(worker("[train.py, -m, x]").requirements.entry_script.as_deref(), Some("train.py"));
    assert_eq!(worker("[-m, pkg.train]").worker_argv, ["python3", "-u", "-m", "pkg.train"]);
    assert_eq!(worker("[-m, pkg.train]").requirements.entry_script, None);
    assert_eq!(worker("[--no_python, ./a, b]").worker_argv, ["./a", "b"]);
}

/// The environment of the named interpreter need not be on PATH.
#[test]
fn named_interpreter_is_the_only_program_that_must_be_found() {
    for launcher in ["torchrun", "accelerate", "deepspeed", "deepspeed, rendezvous: hostfile"] {
        let launch = format!("{{ with: {launcher}, python: /opt/venv/bin/python, command: [train.py] }}");
        let text = inventory_text("command: [train.py]", 1, false).replace("launch:\n  command: [train.py]", &format!("launch: {launch}"));
        assert_eq!(launch_specs(&text, 1)[0].requirements.programs, ["/opt/venv/bin/python"], "{launcher}");
    }
}

#[test]
fn interface_env_is_a_default_only() {
    let launch = "with: processes\n  command: [./a]";
    let both = &launch_specs(&inventory_text(launch, 2, true), 2)[1].env_defaults;
    assert_eq!(both.get("NCCL_SOCKET_IFNAME").map(String::as_str), Some("=bond0"));
    assert_eq!(both.get("GLOO_SOCKET_IFNAME").map(String::as_str), Some("bond0"));
    assert!(launch_specs(&inventory_text(launch, 1, true), 1)[0].env_defaults.is_empty(), "one host alone needs no network");
    let own = inventory_text(launch, 2, true).replace("env: {", "env: { NCCL_SOCKET_IFNAME: ib0,");
    assert_eq!(launch_specs(&own, 2)[0].env_defaults.keys().collect::<Vec<_>>(), ["GLOO_SOCKET_IFNAME"]);
    let bridged = inventory_text(launch, 2, true).replace("image: \"train:1\"", "image: \"train:1\", network: bridge");
    assert!(launch_specs(&bridged, 2)[0].env_defaults.is_empty(), "inside another network interfaces have other names");
}

#[test]
fn auto_master_port_is_used_everywhere() {
    let start = launch_specs(&inventory_text("master_port: auto\n  command: [train.py]", 2, false), 2).remove(1);
    assert!(start.argv.contains(&"--master_port=23456".to_owned()), "{:?}", start.argv);
    assert_eq!(start.env["ORCH_MASTER_PORT"], "23456");
}

#[test]
fn contradicting_accelerate_config_is_reported() {
    let start =
        launch_specs(&inventory_text("with: accelerate\n  args: [--config_file=a.yaml]\n  command: [train.py]", 2, true), 2).remove(0);
    assert!(!start.argv.iter().any(|w| w == "--multi_gpu"), "the file's distributed_type decides");
    let config = start.requirements.accelerate_config.expect("a config file");
    let output = |pairs: &[(&str, &str)]| pairs.iter().map(|(k, v)| ((*k).to_owned(), (*v).to_owned())).collect::<Vec<_>>();
    let found = config.find_contradictions(&output(&[("num_machines", "1"), ("num_processes", "16"), ("zero_stage", "3")]));
    assert_eq!(
        found,
        [("num_machines".to_owned(), "1".to_owned(), "2".to_owned()), ("num_processes".to_owned(), "16".to_owned(), "4".to_owned())]
    );
    assert_eq!(
        config.find_contradictions(&output(&[("num_machines", "2"), ("num_processes", "4"), ("deepspeed_multinode_launcher", "standard")])),
        []
    );
    assert_eq!(config.find_contradictions(&output(&[("deepspeed_multinode_launcher", "pdsh"), ("distributed_type", "NO")])).len(), 2);
}

/// Every launcher by hand, on the second of two hosts. The files are checked by shellcheck where it is installed.
#[test]
fn rendered_scripts_match_golden_files() {
    let (mut wrong, mut files) = (Vec::new(), Vec::new());
    for (name, launch) in LAUNCHER_CONFIGS {
        for (place, contained) in [("docker", true), ("bare", false)] {
            let text = inventory_text(launch, 2, contained);
            let source = InventorySource { name: "inventory.yaml".to_owned(), text: text.clone() };
            let job = Inventory::load(&[source], &[]).and_then(|i| i.job(&RuntimeValues::default())).unwrap_or_else(|p| panic!("{p:#?}"));
            let scripts = crate::plan::render::render_scripts(&plan_inventory(&text, 2, 2), &job, &str::to_owned);
            assert_eq!(crate::plan::render::find_placeholders(&scripts), Vec::<String>::new());
            let file = format!("tests/data/rendered/{name}-{place}.sh");
            if !matches_golden(&file, &scripts[1].1) {
                wrong.push(file.clone());
            }
            files.push(file);
        }
    }
    assert!(wrong.is_empty(), "{wrong:?} differ; BLESS=1 rewrites them for review");
    match std::process::Command::new("shellcheck").current_dir(env!("CARGO_MANIFEST_DIR")).args(&files).output() {
        Ok(out) => assert!(out.status.success(), "{}", String::from_utf8_lossy(&out.stdout)),
        Err(error) => eprintln!("shellcheck was not run: {error}"),
    }
}

#[test]
fn rendered_script_has_every_flag_of_the_user() {
    let args = ["--mount=type=tmpfs,target=/scratch", "--log-driver=local", "--ulimit=memlock=-1:-1"];
    let text = inventory_text("with: script\n  command: [./train.sh]", 1, true)
        .replace("image: \"train:1\"", &format!("image: \"train:1\", args: {args:?}"));
    let source = InventorySource { name: "inventory.yaml".to_owned(), text: text.clone() };
    let job = Inventory::load(&[source], &[]).and_then(|i| i.job(&RuntimeValues::default())).unwrap_or_else(|p| panic!("{p:#?}"));
    let scripts = crate::plan::render::render_scripts(&plan_inventory(&text, 1, 2), &job, &str::to_owned);
    for arg in args {
        assert!(scripts[0].1.contains(&format!("  {arg} \\\n")), "{arg}\n{}", scripts[0].1);
    }
}

/// The guides' jobs, each on two hosts: the plan beneath a comment with the guide's own commands and what is otherwise here.
#[test]
fn guide_plans_match_golden_files() {
    let root = PathBuf::from(env!("CARGO_MANIFEST_DIR"));
    let mut wrong = Vec::new();
    for name in ["wan22", "taehv", "pretraining", "pi0-jax", "translation"] {
        let text = std::fs::read_to_string(root.join(format!("configs/{name}.yaml"))).expect("the config");
        let file = format!("tests/data/guides/{name}.txt");
        let golden = std::fs::read_to_string(root.join(&file)).expect("the guide's commands");
        let comment: String = golden.lines().take_while(|line| line.starts_with('#')).map(|line| format!("{line}\n")).collect();
        assert!(comment.contains("# Here otherwise, and why:"), "{name}");
        let found = format!("{comment}\n{}", display::format_plan(&plan_inventory(&text, 2, 8), None, false));
        if !matches_golden(&file, &found) {
            wrong.push(name);
        }
    }
    assert!(wrong.is_empty(), "{wrong:?} differ from tests/data/guides; BLESS=1 rewrites them for review");
}
