//! processes: one process a GPU, each told about the gang as torch and JAX expect it, started by `assets/processes.sh`.
//!
//! `WORLD_SIZE` counts processes. JAX reads the coordinator from its environment, but neither the number of processes nor their ids: a program
//! passes `WORLD_SIZE` and `RANK` (or `JAX_NUM_PROCESSES`, `JAX_PROCESS_ID`) to `jax.distributed.initialize` (jax/_src/distributed.py). The
//! coordinator binds `[::]` by default, which fails where IPv6 is off. Each process is told its own device, so that four of them on a host do
//! not all take every GPU.
//!
//! Gate: rank 0 listens on the master's port when it reaches its `init_process_group` or `initialize`, after its imports. Exit status: that of
//! the first rank, by number, that ended badly. Stop: `reap` sends TERM to every process of the run; the starter waits for all.

use super::{ByHand, Here, Needs, RankStart, Start, variables};

pub(super) fn start(here: &Here<'_>) -> Start {
    let world = here.world;
    let nodes = world.addresses.len().to_string();
    let first =
        if world.open() { format!("<{} x {}>", here.host, world.nproc_text(here.host)) } else { world.first_rank(here.host).to_string() };
    let mut argv = vec!["/bin/sh".to_owned(), here.file("processes"), first, world.nproc_text(here.host)];
    argv.extend(here.devices.iter().cloned());
    let bind = if world.master().contains(':') { "[::]" } else { "0.0.0.0" };
    let master = if world.master().contains(':') { format!("[{}]", world.master()) } else { world.master().to_owned() };
    let env = variables([
        ("WORLD_SIZE", world.processes_text()),
        ("LOCAL_WORLD_SIZE", world.nproc_text(here.host)),
        ("NODE_RANK", here.host.to_string()),
        ("NNODES", nodes),
        ("MASTER_ADDR", world.master().to_owned()),
        ("MASTER_PORT", world.port_text()),
        ("JAX_COORDINATOR_ADDRESS", format!("{master}:{}", world.port_text())),
        ("JAX_COORDINATOR_BIND_ADDRESS", format!("{bind}:{}", world.port_text())),
        ("JAX_NUM_PROCESSES", world.processes_text()),
    ]);
    let command = program(here);
    let ranks = ranks(here);
    let own = ranks.iter().map(|rank| rank.env.clone()).collect();
    let entry = here_entry(&command);
    Start {
        argv,
        env,
        ranks,
        files: [("processes".to_owned(), include_str!("../../../assets/processes.sh").to_owned())].into(),
        needs: Needs { programs: command.first().cloned().into_iter().collect(), entry, ..Needs::default() },
        by_hand: ByHand::Each(by_hand(here), own),
        worker: command,
        ..Start::default()
    }
}

/// A Python script may stand alone: it is the interpreter's.
fn program(here: &Here<'_>) -> Vec<String> {
    with_python(here, here.program_worker())
}

fn by_hand(here: &Here<'_>) -> Vec<String> {
    with_python(here, here.program_by_hand())
}

fn with_python(here: &Here<'_>, words: Vec<String>) -> Vec<String> {
    if words.first().is_some_and(|first| first.ends_with(".py")) {
        let python = [here.job.launch.python.clone(), "-u".to_owned()];
        return python.into_iter().chain(words).collect();
    }
    words
}

/// The script that an interpreter is given, where that can be told.
fn here_entry(command: &[String]) -> Option<String> {
    let program = command.first()?.rsplit('/').next()?;
    let words = command.get(1..)?.iter().find(|word| *word != "-u")?;
    (program.starts_with("python") && !words.starts_with('-')).then(|| words.clone())
}

fn ranks(here: &Here<'_>) -> Vec<RankStart> {
    let first = here.world.first_rank(here.host);
    let of = |title: String, rank: String, local: String, device: Option<&String>| {
        let mut env = variables([("RANK", rank.clone()), ("LOCAL_RANK", local.clone()), ("JAX_PROCESS_ID", rank)]);
        env.insert("JAX_LOCAL_DEVICE_IDS".to_owned(), if device.is_some() { "0".to_owned() } else { local });
        env.extend(device.map(|device| ("CUDA_VISIBLE_DEVICES".to_owned(), device.clone())));
        RankStart { title, env }
    };
    if here.world.open() {
        let text = here.world.nproc_text(here.host);
        let rank = format!("<{} x {text} + LOCAL_RANK>", here.host);
        return vec![of("each rank".to_owned(), rank, format!("<0 to {text} - 1>"), None)];
    }
    let rank = |local: u32| {
        let rank = first.saturating_add(local);
        of(format!("rank {rank}"), rank.to_string(), local.to_string(), here.devices.get(local as usize))
    };
    here.local_ranks().map(rank).collect()
}
