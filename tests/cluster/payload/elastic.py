"""Works with all the others, and is called anew, without those that are gone: elastic.py.

Gloo's mesh of processes that were called anew fails now and then, and each further call costs half a minute of the
rendezvous's last call: so only the first gang makes one."""

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
