//! Real torchrun of Debian's python3-torch, with gloo between the ranks.

use crate::login_node::Login;

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
    for (name, rendezvous) in [("static", ""), ("c10d", ", rendezvous: c10d")] {
        let launch = format!(
            "env: {{ OMP_NUM_THREADS: 1 }}\nlaunch: {{ with: torchrun, nproc_per_node: 2, command: [{}]{rendezvous} }}\n",
            login.cluster.path("train.py").display()
        );
        let inventory = login.inventory(name, "", &launch);
        login.submit(&inventory);
        login.orchestrate(&["slurm", "attach", "--progress", "plain"], &inventory).expect(0, &["COMPLETED"]);
        let logs = login.orchestrate(&["slurm", "logs"], &inventory).expect(0, &[]);
        for rank in 0..4 {
            assert!(logs.out.contains(&format!("rank {rank} of 4: the sum is 6\n")), "{name}: {}", logs.out);
        }
        login.orchestrate(&["slurm", "down"], &inventory).expect(0, &["nothing of the job is left"]);
    }
}
