//! accelerate: one `accelerate launch` a host, which runs torchrun's agent inside itself; the workers through our wrapper.
//!
//! Where processes run is always said on the command line, which beats a config file (accelerate/commands/launch.py, `launch_command`). How
//! to train (`--mixed_precision`, `--use_deepspeed`, `--config_file` …) is the user's, in `launch.args`. Without `--same_network` accelerate
//! gives torchrun an endpoint instead of an address; without `--deepspeed_multinode_launcher standard` it runs DeepSpeed's own launcher,
//! which wants pdsh or drops our wrapper's place (accelerate/utils/launch.py, `prepare_deepspeed_cmd_env`). Where no config file is given
//! accelerate reads one from the user's cache in silence: it gets one of ours that says nothing else.
//!
//! Gate: torchrun's agent listens on the master's port. Exit status: 1 when a worker failed. Stop: as torchrun's.

use super::{LaunchSpec, LauncherBuilder, ManualLaunch, RankRequirements};

/// A config file that is looked into before it is used.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct AccelerateConfig {
    /// Its path as given, absolute or beneath the working directory.
    pub path: String,
    /// What the inventory says, by accelerate's key.
    pub expected: Vec<(&'static str, String)>,
}

/// Options that say by themselves which way accelerate trains; `--multi_gpu` beside them is refused by accelerate.
const STRATEGY_FLAGS: [&str; 4] = ["--use_deepspeed", "--use_fsdp", "--use_megatron_lm", "--cpu"];

pub(super) fn accelerate_spec(here: &LauncherBuilder<'_>) -> LaunchSpec {
    let (world, launch) = (here.layout, &here.job.launch);
    let given = |flag: &str| {
        launch.launcher_args.iter().any(|word| word == flag || word.strip_prefix(flag).is_some_and(|rest| rest.starts_with('=')))
    };
    let config = config_file_arg(&launch.launcher_args);
    let alone = world.world_size() == 1;
    let mut argv = here.launcher_argv("accelerate", "accelerate.commands.launch");
    let program = argv.clone();
    if argv.len() == 1 {
        argv.push("launch".to_owned());
    }
    let mut files = std::collections::BTreeMap::new();
    if config.is_none() {
        argv.push(format!("--config_file={}", here.run_dir_path("accelerate.yaml")));
        let kind = if alone { "NO" } else { "MULTI_GPU" };
        let text = format!("compute_environment: LOCAL_MACHINE\ndistributed_type: '{kind}'\nmixed_precision: 'no'\n");
        files.insert("accelerate.yaml".to_owned(), text);
    }
    let mut place = Vec::new();
    // With a config file its `distributed_type` decides, and this would silently turn DeepSpeed or FSDP off.
    if config.is_none() && !alone && !STRATEGY_FLAGS.iter().any(|way| given(way)) {
        place.push("--multi_gpu".to_owned());
    }
    place.extend([
        format!("--num_machines={}", world.fabric_addresses.len()),
        format!("--num_processes={}", world.process_count_text()),
        format!("--machine_rank={}", here.node_rank),
        format!("--main_process_ip={}", world.master_address()),
        format!("--main_process_port={}", world.port_text()),
        "--same_network".to_owned(),
        "--rdzv_backend=static".to_owned(),
        "--deepspeed_multinode_launcher=standard".to_owned(),
    ]);
    if !given("--dynamo_backend") {
        place.push("--dynamo_backend=no".to_owned());
    }
    place.extend(launch.launcher_args.iter().cloned());
    let mut by_hand = program.clone();
    if by_hand.len() == 1 {
        by_hand.push("launch".to_owned());
    }
    by_hand.extend(place.iter().cloned());
    argv.extend(place);
    argv.push("--no_python".to_owned());
    argv.extend(here.worker_wrapper_argv());
    let worker = here.python_worker();
    by_hand.extend(worker.manual_argv);
    let mut programs: Vec<String> = program.first().cloned().into_iter().collect();
    programs.extend(worker.program);
    programs.dedup();
    let mut ranks = here.torch_rank_envs(&[]);
    if world.fabric_addresses.len() == 1 && !alone {
        // On one machine accelerate hands no address on, and torchrun's agent takes its default.
        ranks.iter_mut().for_each(|rank| drop(rank.env.insert("MASTER_ADDR".to_owned(), "127.0.0.1".to_owned())));
    }
    // One process alone is started without torchrun's agent, so nobody would tell it who it is.
    let env = ranks.first().filter(|_| alone).map(|rank| rank.env.clone()).unwrap_or_default();
    let wanted = vec![
        ("num_machines", world.fabric_addresses.len().to_string()),
        ("num_processes", world.process_count_text()),
        ("main_process_ip", world.master_address().to_owned()),
        ("main_process_port", world.port_text()),
    ];
    LaunchSpec {
        argv,
        worker_argv: worker.argv,
        env,
        ranks,
        files,
        requirements: RankRequirements {
            programs,
            entry_script: worker.entry_script,
            accelerate_config: config.map(|path| AccelerateConfig { path, expected: wanted }),
            flags_and_help: None,
        },
        manual_launch: ManualLaunch::Command(by_hand),
        ..LaunchSpec::default()
    }
}

/// The config file that the user gives accelerate.
fn config_file_arg(args: &[String]) -> Option<String> {
    let at = args.iter().position(|word| word == "--config_file" || word.starts_with("--config_file="))?;
    let word = args.get(at)?;
    match word.split_once('=') {
        Some((_, path)) => Some(path.to_owned()),
        None => args.get(at + 1).cloned(),
    }
}

impl AccelerateConfig {
    /// What a config file says that the inventory says otherwise: key, its value, ours. Keys of a file that the command line overrides are
    /// told all the same: whoever reads the file would be misled.
    pub fn find_contradictions(&self, said: &[(String, String)]) -> Vec<(String, String, String)> {
        let mut found = Vec::new();
        for (key, value) in said {
            match self.expected.iter().find(|(wanted, _)| wanted == key) {
                Some((_, ours)) if ours != value && !ours.starts_with('<') => found.push((key.clone(), value.clone(), ours.clone())),
                _ => {}
            }
            let several = self.expected.iter().any(|(key, ours)| *key == "num_processes" && ours != "1");
            match (key.as_str(), value.as_str()) {
                ("distributed_type", "NO") if several => {
                    found.push((key.clone(), value.clone(), "MULTI_GPU, DEEPSPEED, FSDP or MEGATRON_LM".to_owned()));
                }
                ("rdzv_backend", other) if other != "static" => found.push((key.clone(), other.to_owned(), "static".to_owned())),
                ("deepspeed_multinode_launcher", other) if other != "standard" => {
                    found.push((key.clone(), other.to_owned(), "standard".to_owned()));
                }
                ("gpu_ids", other) if other != "all" => found.push((key.clone(), other.to_owned(), "all".to_owned())),
                ("same_network", "false") => found.push((key.clone(), value.clone(), "true".to_owned())),
                _ => {}
            }
        }
        found
    }
}
