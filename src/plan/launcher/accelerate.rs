//! accelerate: one `accelerate launch` a host, which runs torchrun's agent inside itself; the workers through our wrapper.
//!
//! The placement of processes is always on the command line, which overrides a config file (accelerate/commands/launch.py, `launch_command`). How
//! to train (`--mixed_precision`, `--use_deepspeed`, `--config_file` …) is the user's, in `launch.args`. Without `--same_network` accelerate
//! gives torchrun an endpoint instead of an address; without `--deepspeed_multinode_launcher standard` it runs DeepSpeed's own launcher,
//! which wants pdsh or drops our wrapper's place (accelerate/utils/launch.py, `prepare_deepspeed_cmd_env`). Where no config file is given
//! accelerate reads one from the user's cache in silence: it gets one of ours that says nothing else.
//!
//! Gate: torchrun's agent listens on the master's port. Exit status: 1 when a worker failed. Stop: as torchrun's.

use super::accelerate_config::{AccelerateConfig, config_file_arg};
use super::builder::LaunchSpecBuilder;
use super::spec::{EnvironmentRequirements, HostLaunchSpec, ManualLaunch, RankEnv};

/// Options that select the training mode of accelerate; `--multi_gpu` beside them is refused by accelerate.
const STRATEGY_FLAGS: [&str; 4] = ["--use_deepspeed", "--use_fsdp", "--use_megatron_lm", "--cpu"];

pub(super) fn accelerate_spec(builder: &LaunchSpecBuilder<'_>) -> HostLaunchSpec {
    let config = config_file_arg(&builder.job.launch.launcher_args);
    let alone = builder.layout.world_size() == 1;
    let mut program = builder.launcher_argv("accelerate", "accelerate.commands.launch");
    let worker = builder.python_worker(&program);
    if program.len() == 1 {
        program.push("launch".to_owned());
    }
    let mut argv = program.clone();
    let mut files = std::collections::BTreeMap::new();
    if config.is_none() {
        argv.push(format!("--config_file={}", builder.run_dir_path("accelerate.yaml")));
        let kind = if alone { "NO" } else { "MULTI_GPU" };
        let text = format!("compute_environment: LOCAL_MACHINE\ndistributed_type: '{kind}'\nmixed_precision: 'no'\n");
        files.insert("accelerate.yaml".to_owned(), text);
    }
    let flags = placement_flags(builder, config.is_some());
    argv.extend(flags.iter().cloned());
    argv.push("--no_python".to_owned());
    argv.extend(builder.worker_wrapper_argv());
    let ranks = rank_envs(builder);
    // A single process is started without torchrun's agent, which would set its rank.
    let env = ranks.first().filter(|_| alone).map(|rank| rank.env.clone()).unwrap_or_default();
    HostLaunchSpec {
        argv,
        worker_argv: worker.argv,
        env,
        ranks,
        files,
        requirements: EnvironmentRequirements {
            programs: worker.programs,
            entry_script: worker.entry_script,
            accelerate_config: config.map(|path| AccelerateConfig { path, expected: expected_settings(builder) }),
            flags_and_help: None,
        },
        manual_launch: ManualLaunch::Command(program.into_iter().chain(flags).chain(worker.manual_argv).collect()),
        ..HostLaunchSpec::default()
    }
}

/// Where processes run, and the user's own options.
fn placement_flags(builder: &LaunchSpecBuilder<'_>, has_config: bool) -> Vec<String> {
    let (world, args) = (builder.layout, &builder.job.launch.launcher_args);
    let given = |flag: &str| args.iter().any(|word| word == flag || word.strip_prefix(flag).is_some_and(|rest| rest.starts_with('=')));
    let mut flags = Vec::new();
    // With a config file its `distributed_type` decides, and this would silently turn DeepSpeed or FSDP off.
    if !has_config && world.world_size() != 1 && !STRATEGY_FLAGS.iter().any(|way| given(way)) {
        flags.push("--multi_gpu".to_owned());
    }
    flags.extend([
        format!("--num_machines={}", world.fabric_addresses.len()),
        format!("--num_processes={}", world.process_count_text()),
        format!("--machine_rank={}", builder.node_rank_text()),
        format!("--main_process_ip={}", world.master_address()),
        format!("--main_process_port={}", world.port_text()),
        "--same_network".to_owned(),
        "--rdzv_backend=static".to_owned(),
        "--deepspeed_multinode_launcher=standard".to_owned(),
    ]);
    if !given("--dynamo_backend") {
        flags.push("--dynamo_backend=no".to_owned());
    }
    flags.extend(args.iter().cloned());
    flags
}

fn rank_envs(builder: &LaunchSpecBuilder<'_>) -> Vec<RankEnv> {
    let mut ranks = builder.torch_rank_envs(&[]);
    if builder.layout.fabric_addresses.len() == 1 && builder.layout.world_size() != 1 {
        // On one machine accelerate hands no address on, and torchrun's agent takes its default.
        ranks.iter_mut().for_each(|rank| drop(rank.env.insert("MASTER_ADDR".to_owned(), "127.0.0.1".to_owned())));
    }
    ranks
}

/// The required values of a config file's keys, if it has them.
fn expected_settings(builder: &LaunchSpecBuilder<'_>) -> Vec<(&'static str, String)> {
    let world = builder.layout;
    vec![
        ("num_machines", world.fabric_addresses.len().to_string()),
        ("num_processes", world.process_count_text()),
        ("main_process_ip", world.master_address().to_owned()),
        ("main_process_port", world.port_text()),
    ]
}
