//! Real torchrun of Debian's python3-torch, with gloo between the ranks.

use std::os::unix::fs::PermissionsExt as _;

use crate::login_node::Login;

/// Debian's torch 1.13 is older than its Python 3.11, for which a flag of zero is no member.
const TORCHRUN: &str = "#!/usr/bin/python3
import torch.distributed.elastic.multiprocessing.api as api

api.Std.from_str = classmethod(lambda cls, text: cls.NONE)
from torch.distributed.run import main

main()
";

const TRAIN: &str = "import torch
import torch.distributed as dist

dist.init_process_group('gloo')
value = torch.tensor([float(dist.get_rank())])
dist.all_reduce(value)
print(f'rank {dist.get_rank()} of {dist.get_world_size()}: the sum is {value.item():.0f}', flush=True)
dist.destroy_process_group()
";

#[test]
#[ignore = "needs a SLURM cluster, root and Debian's packages: tests/cluster/slurm up"]
fn torchrun_trains_across_nodes() {
    let login = Login::new();
    std::fs::write(login.cluster.path("train.py"), TRAIN).expect("written");
    let torchrun = login.cluster.path("bin/torchrun");
    std::fs::create_dir_all(login.cluster.path("bin")).expect("made");
    std::fs::write(&torchrun, TORCHRUN).expect("written");
    std::fs::set_permissions(torchrun, std::fs::Permissions::from_mode(0o755)).expect("made executable");
    // c10d needs `--local_addr`, which this torch does not have.
    let launch = format!(
        "env: {{ OMP_NUM_THREADS: 1 }}\nlaunch: {{ with: torchrun, nproc_per_node: 2, command: [{}] }}\n",
        login.cluster.path("train.py").display()
    );
    let inventory = login.inventory("torch", "", &launch);
    login.submit(&inventory);
    login.orchestrate(&["slurm", "attach", "--progress", "plain"], &inventory).expect(0, &["COMPLETED"]);
    let logs = login.orchestrate(&["slurm", "logs"], &inventory).expect(0, &[]);
    for rank in 0..4 {
        assert!(logs.out.contains(&format!("rank {rank} of 4: the sum is 6\n")), "{}", logs.out);
    }
    login.orchestrate(&["slurm", "down"], &inventory).expect(0, &["nothing of the job is left"]);
}
