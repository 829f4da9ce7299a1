"""Training steps with DeepSpeed's ZeRO on a CPU as `accelerate launch` sets it up, then the map of the gang: zero.py."""

import os

import deepspeed
import torch
import torch.distributed as dist
from accelerate import PartialState
from leave import leave

# There is no compiler here; on a CPU, DeepSpeed would compile operators.
deepspeed.ops.__compatible_ops__.clear()
# Accelerator() itself would require transformers.
state = PartialState(backend="gloo")
assert state.distributed_type == "DEEPSPEED", state.distributed_type
stage = int(os.environ["ACCELERATE_DEEPSPEED_ZERO_STAGE"])
config = {
    "train_micro_batch_size_per_gpu": 1,
    "zero_optimization": {"stage": stage},
    "zero_allow_untested_optimizer": True,
}
model = torch.nn.Linear(4, 1)
optimizer = torch.optim.SGD(model.parameters(), lr=0.1)
engine, _, _, _ = deepspeed.initialize(model=model, optimizer=optimizer, config=config)
assert engine.zero_optimization_stage() == stage == 1
losses = []
for _ in range(4):
    loss = (engine(torch.ones(1, 4)) - 1).square().mean()
    engine.backward(loss)
    engine.step()
    losses.append(loss.item())
assert losses[-1] < losses[0], losses
rank, world = dist.get_rank(), dist.get_world_size()
where = [None] * world
dist.all_gather_object(where, os.environ["ORCH_HOST"] + "/" + os.environ["LOCAL_RANK"])
total = torch.ones(1)
dist.all_reduce(total)
os.write(1, f"rank {rank}: world {world} sum {total.item():.0f} map {' '.join(where)}\n".encode())
leave()
