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

use super::{ByHand, Here, Needs, Start, torchrun};
use crate::inventory::Form;

pub(super) fn start(here: &Here<'_>, form: Form) -> Start {
    match form {
        Form::Torchrun(rendezvous) => {
            let program = [here.job.launch.python.as_str(), "-m", "torch.distributed.run"].map(str::to_owned).to_vec();
            let mut start = torchrun::with(here, rendezvous, program);
            // Installed with the package: an image without it would only be found out by a traceback.
            start.needs.programs.push("deepspeed".to_owned());
            start
        }
        Form::Hostfile => hostfile(here),
    }
}

fn hostfile(here: &Here<'_>) -> Start {
    let (world, launch) = (here.world, &here.job.launch);
    let program = here.program("deepspeed", "deepspeed.launcher.runner");
    let flags = |hostfile: String| {
        let flags = [
            format!("--hostfile={hostfile}"),
            "--no_ssh".to_owned(),
            format!("--node_rank={}", here.host),
            format!("--master_addr={}", world.master()),
            format!("--master_port={}", world.port_text()),
        ];
        program.iter().cloned().chain(flags).chain(launch.args.iter().cloned()).collect::<Vec<String>>()
    };
    let mut argv = flags(here.file("hostfile"));
    argv.extend(["--no_python".to_owned(), "--no_local_rank".to_owned()]);
    argv.extend(here.wrapper());
    let worker = here.python_worker();
    let mut by_hand = flags(format!("/tmp/{}.hostfile", here.site.name));
    by_hand.push("--no_local_rank".to_owned());
    by_hand.extend(worker.by_hand);
    let mut programs: Vec<String> = program.first().cloned().into_iter().collect();
    programs.extend(worker.program);
    programs.dedup();
    let nodes = world.addresses.len().to_string();
    let further = [("LOCAL_SIZE", world.nproc_text(here.host)), ("CROSS_RANK", here.host.to_string()), ("CROSS_SIZE", nodes)];
    let mut ranks = here.torch_ranks(&further);
    for rank in &mut ranks {
        // torch's agent sets these, DeepSpeed's launcher does not.
        rank.env.remove("LOCAL_WORLD_SIZE");
        rank.env.remove("GROUP_RANK");
    }
    Start {
        argv,
        worker: worker.command,
        ranks,
        needs: Needs { programs, entry: worker.entry, ..Needs::default() },
        by_hand: ByHand::Command(by_hand),
        ..Start::default()
    }
}
