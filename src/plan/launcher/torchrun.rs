//! torchrun: one agent a host, the workers through our wrapper.
//!
//! Flags with underscores, since older torch rejects dashes (huggingface/pytorch-image-models#1742). Static by default: under c10d
//! `--node_rank` is ignored and ranks follow the sorted node descriptors (torch/distributed/elastic/rendezvous/dynamic_rendezvous.py), so
//! it is never given there; who hosts the store is said with `is_host`, since guessing it fails behind NAT and aliases
//! (torch/distributed/elastic/rendezvous/c10d_rendezvous_backend.py). Only c10d can begin with fewer hosts or start workers again: the static
//! rendezvous gives every rank once.
//!
//! Gate: the agent of node rank 0 listens on the master's port before any user code runs. Exit status: 1 when a worker failed, whatever that
//! worker's was (torch/distributed/elastic/multiprocessing/errors); the worker's own is in its wrapper's file. Stop: the agent hands TERM on
//! to its workers and kills after 30 s.

use super::{ByHand, Here, Needs, Start};
use crate::inventory::Rendezvous;
use crate::plan::launcher::PythonWorker;

pub(super) fn start(here: &Here<'_>, rendezvous: Rendezvous) -> Start {
    with(here, rendezvous, here.program("torchrun", "torch.distributed.run"))
}

/// Everything behind the words that begin it.
pub(super) fn with(here: &Here<'_>, rendezvous: Rendezvous, program: Vec<String>) -> Start {
    let launch = &here.job.launch;
    let mut argv = program.clone();
    argv.extend(meeting(here, rendezvous));
    argv.extend(launch.args.iter().cloned());
    let mut by_hand = argv.clone();
    // Without it torchrun leaves a folder in /tmp; in a container that goes with the container, and folders made by its root in the run
    // directory could not be removed by the ssh user.
    if !here.site.contained && !launch.args.iter().any(|word| word.starts_with("--log_dir")) {
        argv.push(format!("--log_dir={}", format_args!("{}torchelastic", here.site.run_files())));
    }
    argv.push("--no_python".to_owned());
    argv.extend(here.wrapper());
    let worker: PythonWorker = here.python_worker();
    by_hand.extend(worker.by_hand);
    let mut programs: Vec<String> = program.first().cloned().into_iter().collect();
    programs.extend(worker.program);
    programs.dedup();
    let mut flags: Vec<String> = launch.args.iter().filter(|word| word.starts_with("--")).cloned().collect();
    if rendezvous == Rendezvous::C10d {
        flags.push("--local_addr".to_owned());
    }
    let help = program.iter().cloned().chain(["--help".to_owned()]).collect();
    Start {
        argv,
        worker: worker.command,
        ranks: here.torch_ranks(&[]),
        needs: Needs { programs, entry: worker.entry, config: None, flags: (!flags.is_empty()).then_some((flags, help)) },
        by_hand: ByHand::Command(by_hand),
        ..Start::default()
    }
}

fn meeting(here: &Here<'_>, rendezvous: Rendezvous) -> Vec<String> {
    let world = here.world;
    let nodes = world.addresses.len();
    let launch = &here.job.launch;
    let nnodes = match launch.min_nodes {
        Some(least) if usize::try_from(least).is_ok_and(|least| least < nodes) => format!("--nnodes={least}:{nodes}"),
        _ => format!("--nnodes={nodes}"),
    };
    let mut flags = vec![nnodes, format!("--nproc_per_node={}", world.nproc_text(here.host))];
    match rendezvous {
        Rendezvous::Static => flags.extend([
            format!("--node_rank={}", here.host),
            format!("--master_addr={}", world.master()),
            format!("--master_port={}", world.port_text()),
        ]),
        Rendezvous::C10d => {
            flags.extend([
                "--rdzv_backend=c10d".to_owned(),
                format!("--rdzv_endpoint={}:{}", bracketed(world.master()), world.port_text()),
                format!("--rdzv_id={}", here.site.run),
                format!("--rdzv_conf=is_host={}", u8::from(here.host == 0)),
                format!("--local_addr={}", world.addresses.get(here.host).map_or("", String::as_str)),
            ]);
            if launch.max_restarts > 0 {
                flags.push(format!("--max_restarts={}", launch.max_restarts));
            }
        }
    }
    flags
}

fn bracketed(address: &str) -> String {
    if address.contains(':') { format!("[{address}]") } else { address.to_owned() }
}
