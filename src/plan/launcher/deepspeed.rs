//! deepspeed: `python -m torch.distributed.run` by default, or with `rendezvous: hostfile` DeepSpeed's own launcher, one a host.
//!
//! Why the torchrun form is the default: docs/decisions/0011. DeepSpeed's own (deepspeed/launcher/runner.py, launch.py): `--no_ssh` needs
//! `--node_rank` and a hostfile that lists all hosts in the same order everywhere, whose names are labels; without `--master_addr` it would
//! ask ssh; `--no_local_rank` keeps it from putting `--local_rank` between our wrapper and its words.
//!
//! Gate: torchrun's agent listens on the master's port; under the hostfile form rank 0 does when it reaches `init_process_group`. Exit status:
//! the torchrun form's is 1; launch.py ends with Python's negative code, which the shell sees as 256 - N (247: a rank was killed by signal
//! 9), and the runner around it ends with 0 when launch.py itself was killed by a signal, so only the ranks' own are trusted. Stop: the runner
//! does not hand TERM on; `reap` sends it to every process of the run.

use super::builder::LaunchSpecBuilder;
use super::spec::{EnvironmentRequirements, HostLaunchSpec, ManualLaunch};
use super::torchrun;
use crate::inventory::{DEFAULT_PYTHON, DeepspeedLauncher};

pub(super) fn deepspeed_spec(builder: &LaunchSpecBuilder<'_>, form: DeepspeedLauncher) -> HostLaunchSpec {
    match form {
        DeepspeedLauncher::Torchrun(rendezvous) => {
            let program = [builder.job.launch.python.as_str(), "-m", "torch.distributed.run"].map(str::to_owned).to_vec();
            let mut start = torchrun::torchrun_spec_for_program(builder, rendezvous, program);
            // Installed with the package: an image without it would only be found out by a traceback. The environment of another
            // interpreter may not be on PATH.
            if builder.job.launch.python == DEFAULT_PYTHON {
                start.requirements.programs.push("deepspeed".to_owned());
            }
            start
        }
        DeepspeedLauncher::Hostfile => hostfile_spec(builder),
    }
}

fn hostfile_spec(builder: &LaunchSpecBuilder<'_>) -> HostLaunchSpec {
    let (world, launch) = (builder.layout, &builder.job.launch);
    let program = builder.launcher_argv("deepspeed", "deepspeed.launcher.runner");
    let flags = |hostfile: String| {
        let flags = [
            format!("--hostfile={hostfile}"),
            "--no_ssh".to_owned(),
            format!("--node_rank={}", builder.node_rank_text()),
            format!("--master_addr={}", world.master_address()),
            format!("--master_port={}", world.port_text()),
        ];
        program.iter().cloned().chain(flags).chain(launch.launcher_args.iter().cloned()).collect::<Vec<String>>()
    };
    let mut argv = flags(builder.run_dir_path("hostfile"));
    argv.extend(["--no_python".to_owned(), "--no_local_rank".to_owned()]);
    argv.extend(builder.worker_wrapper_argv());
    let worker = builder.python_worker(&program);
    let mut by_hand = flags(format!("/tmp/{}.hostfile", builder.context.name));
    by_hand.push("--no_local_rank".to_owned());
    by_hand.extend(worker.manual_argv);
    let nodes = world.fabric_addresses.len().to_string();
    let further =
        [("LOCAL_SIZE", world.nproc_text(builder.node_rank)), ("CROSS_RANK", builder.node_rank.to_string()), ("CROSS_SIZE", nodes)];
    let mut ranks = builder.torch_rank_envs(&further);
    for rank in &mut ranks {
        // torch's agent sets these, DeepSpeed's launcher does not.
        rank.env.remove("LOCAL_WORLD_SIZE");
        rank.env.remove("GROUP_RANK");
    }
    HostLaunchSpec {
        argv,
        worker_argv: worker.argv,
        ranks,
        requirements: EnvironmentRequirements {
            programs: worker.programs,
            entry_script: worker.entry_script,
            ..EnvironmentRequirements::default()
        },
        manual_launch: ManualLaunch::Command(by_hand),
        ..HostLaunchSpec::default()
    }
}
