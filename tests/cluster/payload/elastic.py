"""One rank of an elastic gang; after a failure it starts again with the remaining ranks: elastic.py.

Gloo's mesh of restarted processes fails now and then, and each further rendezvous costs half a minute of its last-call
timeout: so only the first gang creates a process group."""

import os

import torch
import torch.distributed as dist

world = int(os.environ["WORLD_SIZE"])
if world > 2:
    dist.init_process_group("gloo")
    print("a gang of", world, flush=True)
    while True:
        # Fails as soon as another rank is gone; the launcher then starts a new rendezvous for the others.
        dist.all_reduce(torch.ones(1))
print("two are left", os.environ["TORCHELASTIC_RESTART_COUNT"], flush=True)
