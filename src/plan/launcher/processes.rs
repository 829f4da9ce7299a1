//! processes: one process a GPU, each with the variables that torch and JAX expect, started by `assets/processes.sh`.
//!
//! `WORLD_SIZE` counts processes. JAX reads the coordinator from its environment, but neither the number of processes nor their ids: a program
//! passes `WORLD_SIZE` and `RANK` (or `JAX_NUM_PROCESSES`, `JAX_PROCESS_ID`) to `jax.distributed.initialize` (jax/_src/distributed.py). The
//! coordinator binds `[::]` by default, which fails where IPv6 is off. Each process gets its own device, so that four of them on a host do
//! not all take every GPU.
//!
//! Gate: rank 0 listens on the master's port when it reaches its `init_process_group` or `initialize`, after its imports. Exit status: that of
//! the first rank, by number, that ended badly. Stop: `reap` sends TERM to every process of the run; the starter waits for all.

use super::builder::{LaunchSpecBuilder, bracket_ipv6, env_map};
use super::spec::{EnvironmentRequirements, HostLaunchSpec, ManualLaunch, RankEnv};

pub(super) fn processes_spec(builder: &LaunchSpecBuilder<'_>) -> HostLaunchSpec {
    let world = builder.layout;
    let nodes = world.fabric_addresses.len().to_string();
    let first = if world.is_symbolic {
        world.node_text("ORCH_FIRST_RANK", "")
    } else if world.is_incomplete() {
        format!("<{} x {}>", builder.node_rank, world.nproc_text(builder.node_rank))
    } else {
        world.first_rank(builder.node_rank).to_string()
    };
    let mut argv = vec!["/bin/sh".to_owned(), builder.run_dir_path("processes"), first, world.nproc_text(builder.node_rank)];
    argv.extend(builder.devices());
    let bind = if world.master_address().contains(':') { "[::]" } else { "0.0.0.0" };
    let master = bracket_ipv6(world.master_address());
    let env = env_map([
        ("WORLD_SIZE", world.process_count_text()),
        ("LOCAL_WORLD_SIZE", world.nproc_text(builder.node_rank)),
        ("NODE_RANK", builder.node_rank_text()),
        ("NNODES", nodes),
        ("MASTER_ADDR", world.master_address().to_owned()),
        ("MASTER_PORT", world.port_text()),
        ("JAX_COORDINATOR_ADDRESS", format!("{master}:{}", world.port_text())),
        ("JAX_COORDINATOR_BIND_ADDRESS", format!("{bind}:{}", world.port_text())),
        ("JAX_NUM_PROCESSES", world.process_count_text()),
    ]);
    let command = prefix_python(builder, builder.program_worker_argv());
    let ranks = rank_envs(builder);
    let own = ranks.iter().map(|rank| rank.env.clone()).collect();
    let entry = find_entry_script(&command);
    HostLaunchSpec {
        argv,
        env,
        ranks,
        files: [("processes".to_owned(), include_str!("../../../assets/processes.sh").to_owned())].into(),
        requirements: EnvironmentRequirements {
            programs: command.first().cloned().into_iter().collect(),
            entry_script: entry,
            ..EnvironmentRequirements::default()
        },
        manual_launch: ManualLaunch::PerRank(prefix_python(builder, builder.program_manual_argv()), own),
        worker_argv: command,
        ..HostLaunchSpec::default()
    }
}

/// A Python script may come without an interpreter: python runs it.
fn prefix_python(builder: &LaunchSpecBuilder<'_>, argv: Vec<String>) -> Vec<String> {
    if argv.first().is_some_and(|first| first.ends_with(".py")) {
        let python = [builder.job.launch.python.clone(), "-u".to_owned()];
        return python.into_iter().chain(argv).collect();
    }
    argv
}

/// The script that an interpreter is given, if that is known.
fn find_entry_script(command: &[String]) -> Option<String> {
    let program = command.first()?.rsplit('/').next()?;
    let words = command.get(1..)?.iter().find(|word| *word != "-u")?;
    (program.starts_with("python") && !words.starts_with('-')).then(|| words.clone())
}

fn rank_envs(builder: &LaunchSpecBuilder<'_>) -> Vec<RankEnv> {
    let first = builder.layout.first_rank(builder.node_rank);
    let of = |title: String, rank: String, local: String, device: Option<&String>| {
        let mut env = env_map([("RANK", rank.clone()), ("LOCAL_RANK", local.clone()), ("JAX_PROCESS_ID", rank)]);
        env.insert("JAX_LOCAL_DEVICE_IDS".to_owned(), if device.is_some() { "0".to_owned() } else { local });
        env.extend(device.map(|device| ("CUDA_VISIBLE_DEVICES".to_owned(), device.clone())));
        RankEnv { title, env }
    };
    if builder.layout.is_incomplete() {
        let text = builder.layout.nproc_text(builder.node_rank);
        let rank = format!("<{} x {text} + LOCAL_RANK>", builder.node_rank);
        return vec![of("each rank".to_owned(), rank, format!("<0 to {text} - 1>"), None)];
    }
    let devices = builder.devices();
    let rank = |local: u32| {
        let rank = first.saturating_add(local);
        of(format!("rank {rank}"), rank.to_string(), local.to_string(), devices.get(local as usize))
    };
    builder.local_ranks().map(rank).collect()
}
