//! script: one process a host, with the variables of guides 001 and 002: `RANK` is the node rank and `WORLD_SIZE` the number of hosts.
//!
//! What the script starts is its own; the run's one rank a host is the script. Gate: its process runs, since only the script knows whether
//! and when a port opens. Exit status: the script's. Stop: `reap` sends TERM to every process of the run, the script's children too.

use super::builder::{LaunchSpecBuilder, env_map};
use super::spec::{EnvironmentRequirements, HostLaunchSpec, ManualLaunch, RankEnv};

pub(super) fn script_spec(builder: &LaunchSpecBuilder<'_>) -> HostLaunchSpec {
    let world = builder.layout;
    let nodes = world.fabric_addresses.len().to_string();
    let env = env_map([
        ("RANK", builder.node_rank_text()),
        ("NODE_RANK", builder.node_rank_text()),
        ("WORLD_SIZE", nodes.clone()),
        ("NNODES", nodes),
        ("NPROC_PER_NODE", world.nproc_text(builder.node_rank)),
        ("GPUS_PER_NODE", world.nproc_text(builder.node_rank)),
        ("MASTER_ADDR", world.master_address().to_owned()),
        ("MASTER_PORT", world.port_text()),
    ]);
    let command = builder.program_worker_argv();
    HostLaunchSpec {
        argv: builder.worker_wrapper_argv().to_vec(),
        env,
        ranks: vec![RankEnv { title: format!("rank {}", builder.node_rank), env: env_map([("RANK", builder.node_rank.to_string())]) }],
        requirements: EnvironmentRequirements {
            programs: command.first().cloned().into_iter().collect(),
            ..EnvironmentRequirements::default()
        },
        manual_launch: ManualLaunch::Command(builder.program_manual_argv()),
        worker_argv: command,
        ..HostLaunchSpec::default()
    }
}
