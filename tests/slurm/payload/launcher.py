"""Stands in for `accelerate launch` and `python3 -m torch.distributed.run`: starts the workers of one node with torchrun's variables."""

import os
import subprocess
import sys


def option(*names):
    for place, word in enumerate(sys.argv):
        for name in names:
            if word == name:
                return sys.argv[place + 1]
            if word.startswith(name + "="):
                return word.split("=", 1)[1]
    raise SystemExit(f"launcher: none of {names} in {sys.argv}")


nodes = int(option("--nnodes", "--num_machines"))
if "--num_processes" in " ".join(sys.argv):
    local_size = int(option("--num_processes")) // nodes
else:
    local_size = int(option("--nproc_per_node"))
node = int(option("--node_rank", "--machine_rank"))
worker = sys.argv[sys.argv.index("--no_python") + 1 :]
workers = []
for local in range(local_size):
    own = {
        "RANK": node * local_size + local,
        "LOCAL_RANK": local,
        "WORLD_SIZE": nodes * local_size,
        "LOCAL_WORLD_SIZE": local_size,
        "GROUP_RANK": node,
        "MASTER_ADDR": option("--master_addr", "--main_process_ip"),
        "MASTER_PORT": option("--master_port", "--main_process_port"),
    }
    workers.append(subprocess.Popen(worker, env={**os.environ, **{name: str(value) for name, value in own.items()}}))
sys.exit(max(abs(worker.wait()) for worker in workers))
