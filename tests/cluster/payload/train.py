"""A real DDP job on gloo, as small as one can be: every step is an all-reduce over all ranks."""

import os
import time

import torch
import torch.distributed as dist
from torch.nn.parallel import DistributedDataParallel
from leave import leave

dist.init_process_group("gloo")
rank, world = dist.get_rank(), dist.get_world_size()
print(f"Initialized process group with {world} processes", flush=True)
torch.manual_seed(rank)
model = DistributedDataParallel(torch.nn.Linear(16, 16))
optimizer = torch.optim.SGD(model.parameters(), lr=0.1)
for step in range(int(os.environ.get("STEPS", "3"))):
    loss = model(torch.randn(8, 16)).square().mean()
    optimizer.zero_grad()
    loss.backward()
    optimizer.step()
    print(f"rank {rank} step {step} loss {loss.item():.4f}", flush=True)
    time.sleep(float(os.environ.get("PACE", "0")))
total = torch.ones(1)
dist.all_reduce(total)
weight = next(model.parameters()).detach().clone()
dist.broadcast(weight, src=0)
same = torch.equal(weight, next(model.parameters()).detach())
print(f"rank {rank} of {world}: sum {total.item():.0f}, weights {'equal' if same else 'DIFFER'}", flush=True)
leave(0 if same else 1)
