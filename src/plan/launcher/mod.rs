//! What each launcher is told: one launcher a file, with its flags, the workers' command and what its environment means.
//!
//! Uses `inventory` and `plan/world`. A launcher's own flags are built here and typed nowhere else.

mod script;
mod torchrun;

use std::collections::BTreeMap;

use crate::inventory::{Job, Launcher, Payload};
use crate::plan::site::Site;
use crate::plan::world::World;

/// What one host's node wrapper and worker wrappers are given.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct Start {
    /// The launcher's argument vector.
    pub argv: Vec<String>,
    /// The workers' argument vector.
    pub worker: Vec<String>,
    /// A script that the workers run, where the job is one.
    pub script: Option<String>,
    /// The environment beyond the container's, in the order of its names.
    pub env: BTreeMap<String, String>,
    /// Programs that must be found where the ranks run.
    pub needs: Vec<String>,
}

/// Builds the start of host number `host`.
pub fn start(job: &Job, world: &World, site: &Site, host: usize, hosts: &[String]) -> Start {
    let worker = format!("{}/worker", site.run_dir());
    let mut env = common(job, world, site, host, hosts);
    let part = job.hosts.get(host);
    if let Some(part) = part {
        env.extend(part.env.clone());
    }
    let payload = part.map_or(&job.launch.command, |p| &p.command);
    let (argv, command, needs) = match job.launch.with {
        Launcher::Torchrun(rendezvous) => torchrun::start(job, world, site, host, rendezvous, &worker, payload),
        Launcher::Script => script::start(world, site, host, &worker, payload, &mut env),
    };
    let script = match payload {
        Payload::Shell(text) => Some(text.clone()),
        Payload::Argv(_) => None,
    };
    Start { argv, worker: command, script, env, needs }
}

/// The names that mean one thing only, whatever the launcher makes of `WORLD_SIZE`.
fn common(job: &Job, world: &World, site: &Site, host: usize, hosts: &[String]) -> BTreeMap<String, String> {
    let mut env: BTreeMap<String, String> = [
        ("ORCH_RUN_ID", site.run.clone()),
        ("ORCH_NAME", site.name.clone()),
        ("ORCH_RUN_DIR", site.run_dir()),
        ("ORCH_HOST", site.host.clone()),
        ("ORCH_HOSTS", hosts.join(",")),
        ("ORCH_NNODES", world.addresses.len().to_string()),
        ("ORCH_NODE_RANK", host.to_string()),
        ("ORCH_GPUS_PER_NODE", world.nproc_text()),
        ("ORCH_WORLD_SIZE", world.processes_text()),
        ("ORCH_MASTER_ADDR", world.master().to_owned()),
        ("ORCH_MASTER_PORT", world.port.to_string()),
        // Else the log of a Python rank stays empty for minutes (mission.md 5.7).
        ("PYTHONUNBUFFERED", "1".to_owned()),
    ]
    .into_iter()
    .map(|(k, v)| (k.to_owned(), v))
    .collect();
    env.insert("ORCH_WORKDIR".to_owned(), job.hosts.get(host).and_then(|h| h.workdir.clone()).unwrap_or_default());
    env
}
