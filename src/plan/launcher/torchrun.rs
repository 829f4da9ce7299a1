//! torchrun: one agent a host, the workers through our wrapper.
//!
//! Flags with underscores, since older torch rejects dashes (huggingface/pytorch-image-models#1742). Static by default: under c10d
//! `--node_rank` is ignored and ranks follow the sorted node descriptors (torch/distributed/elastic/rendezvous/dynamic_rendezvous.py), so
//! it is never given there; `is_host` names the host of the store, since guessing it fails behind NAT and aliases
//! (torch/distributed/elastic/rendezvous/c10d_rendezvous_backend.py). Only c10d can begin with fewer hosts or start workers again: the static
//! rendezvous gives every rank once.
//!
//! Gate: the agent of node rank 0 listens on the master's port before any user code runs. Exit status: 1 when a worker failed, regardless of
//! that worker's status (torch/distributed/elastic/multiprocessing/errors), which is in its wrapper's file. Stop: the agent forwards TERM
//! to its workers and kills them after 30 s.

use super::builder::{LaunchSpecBuilder, bracket_ipv6};
use super::spec::{EnvironmentRequirements, HostLaunchSpec, ManualLaunch};
use crate::inventory::Rendezvous;

pub(super) fn torchrun_spec(builder: &LaunchSpecBuilder<'_>, rendezvous: Rendezvous) -> HostLaunchSpec {
    torchrun_spec_for_program(builder, rendezvous, builder.launcher_argv("torchrun", "torch.distributed.run"))
}

/// Everything behind the words that begin it.
pub(super) fn torchrun_spec_for_program(builder: &LaunchSpecBuilder<'_>, rendezvous: Rendezvous, program: Vec<String>) -> HostLaunchSpec {
    let launch = &builder.job.launch;
    let mut argv = program.clone();
    argv.extend(rendezvous_flags(builder, rendezvous));
    argv.extend(launch.launcher_args.iter().cloned());
    let mut by_hand = argv.clone();
    // Without it torchrun leaves a folder in /tmp; in a container that goes with the container, and folders made by its root in the run
    // directory could not be removed by the ssh user.
    if !builder.context.in_container && !launch.launcher_args.iter().any(|word| word.starts_with("--log_dir")) {
        argv.push(format!("--log_dir={}", format_args!("{}torchelastic", builder.context.run_file_prefix())));
    }
    argv.push("--no_python".to_owned());
    argv.extend(builder.worker_wrapper_argv());
    let worker = builder.python_worker(&program);
    by_hand.extend(worker.manual_argv);
    let mut flags: Vec<String> = launch.launcher_args.iter().filter(|word| word.starts_with("--")).cloned().collect();
    if rendezvous == Rendezvous::C10d {
        flags.push("--local_addr".to_owned());
    }
    let help = program.iter().cloned().chain(["--help".to_owned()]).collect();
    HostLaunchSpec {
        argv,
        worker_argv: worker.argv,
        ranks: builder.torch_rank_envs(&[]),
        requirements: EnvironmentRequirements {
            programs: worker.programs,
            entry_script: worker.entry_script,
            accelerate_config: None,
            flags_and_help: (!flags.is_empty()).then_some((flags, help)),
        },
        manual_launch: ManualLaunch::Command(by_hand),
        ..HostLaunchSpec::default()
    }
}

fn rendezvous_flags(builder: &LaunchSpecBuilder<'_>, rendezvous: Rendezvous) -> Vec<String> {
    let world = builder.layout;
    let nodes = world.fabric_addresses.len();
    let launch = &builder.job.launch;
    let nnodes = match launch.min_nodes {
        Some(least) if usize::try_from(least).is_ok_and(|least| least < nodes) => format!("--nnodes={least}:{nodes}"),
        _ => format!("--nnodes={nodes}"),
    };
    let mut flags = vec![nnodes, format!("--nproc_per_node={}", world.nproc_text(builder.node_rank))];
    match rendezvous {
        Rendezvous::Static => flags.extend([
            format!("--node_rank={}", builder.node_rank_text()),
            format!("--master_addr={}", world.master_address()),
            format!("--master_port={}", world.port_text()),
        ]),
        Rendezvous::C10d => {
            flags.extend([
                "--rdzv_backend=c10d".to_owned(),
                format!("--rdzv_endpoint={}:{}", bracket_ipv6(world.master_address()), world.port_text()),
                format!("--rdzv_id={}", world.node_text("ORCH_RENDEZVOUS_ID", &builder.context.run_id)),
                format!("--rdzv_conf=is_host={}", world.node_text("ORCH_IS_MASTER", u8::from(builder.node_rank == 0))),
                format!(
                    "--local_addr={}",
                    world.node_text("ORCH_ADDRESS", world.fabric_addresses.get(builder.node_rank).map_or("", String::as_str))
                ),
            ]);
            if launch.max_restarts > 0 {
                flags.push(format!("--max_restarts={}", launch.max_restarts));
            }
        }
    }
    flags
}
