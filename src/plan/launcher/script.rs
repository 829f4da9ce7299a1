//! script: one process a host, told about the gang as guides 001 and 002 do: `RANK` is the node rank and `WORLD_SIZE` the number of hosts.

use std::collections::BTreeMap;

use crate::inventory::Payload;
use crate::plan::site::Site;
use crate::plan::world::World;

pub(super) fn start(
    world: &World,
    site: &Site,
    host: usize,
    worker: &str,
    payload: &Payload,
    env: &mut BTreeMap<String, String>,
) -> (Vec<String>, Vec<String>, Vec<String>) {
    let nodes = world.addresses.len().to_string();
    for (name, value) in [
        ("RANK", host.to_string()),
        ("NODE_RANK", host.to_string()),
        ("WORLD_SIZE", nodes.clone()),
        ("NNODES", nodes),
        ("NPROC_PER_NODE", world.nproc_text()),
        ("GPUS_PER_NODE", world.nproc_text()),
        ("MASTER_ADDR", world.master().to_owned()),
        ("MASTER_PORT", world.port.to_string()),
    ] {
        env.insert(name.to_owned(), value);
    }
    let command = match payload {
        Payload::Argv(words) => words.clone(),
        Payload::Shell(_) => vec!["bash".to_owned(), format!("{}/script", site.run_dir())],
    };
    let needs = command.first().cloned().into_iter().collect();
    (vec!["/bin/sh".to_owned(), worker.to_owned()], command, needs)
}
