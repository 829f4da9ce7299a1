//! script: one process a host, told about the gang as guides 001 and 002 do: `RANK` is the node rank and `WORLD_SIZE` the number of hosts.
//!
//! What the script starts is its own; the run's one rank a host is the script. Gate: its process runs, since only the script knows whether
//! and when a port opens. Exit status: the script's. Stop: `reap` sends TERM to every process of the run, the script's children too.

use super::{ByHand, Here, Needs, RankStart, Start, variables};

pub(super) fn start(here: &Here<'_>) -> Start {
    let world = here.world;
    let nodes = world.addresses.len().to_string();
    let env = variables([
        ("RANK", here.host.to_string()),
        ("NODE_RANK", here.host.to_string()),
        ("WORLD_SIZE", nodes.clone()),
        ("NNODES", nodes),
        ("NPROC_PER_NODE", world.nproc_text(here.host)),
        ("GPUS_PER_NODE", world.nproc_text(here.host)),
        ("MASTER_ADDR", world.master().to_owned()),
        ("MASTER_PORT", world.port_text()),
    ]);
    let command = here.program_worker();
    Start {
        argv: here.wrapper().to_vec(),
        env,
        ranks: vec![RankStart { title: format!("rank {}", here.host), env: variables([("RANK", here.host.to_string())]) }],
        needs: Needs { programs: command.first().cloned().into_iter().collect(), ..Needs::default() },
        by_hand: ByHand::Command(here.program_by_hand()),
        worker: command,
        ..Start::default()
    }
}
