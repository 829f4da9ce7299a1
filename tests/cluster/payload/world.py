"""All ranks meet over gloo, each says where it is, and everybody prints the whole map: world.py torch|accelerate|deepspeed."""

import faulthandler
import os
import sys

import torch
import torch.distributed as dist
from leave import leave

# Who hangs says where, before the test gives up.
faulthandler.dump_traceback_later(100, exit=True)
how = sys.argv[1]
if how == "accelerate":
    from accelerate import PartialState

    state = PartialState(cpu=True, backend="gloo")
    assert state.num_processes == int(os.environ["WORLD_SIZE"]), state
elif how == "deepspeed":
    import deepspeed

    # There is no compiler here: on a CPU it would build an operator for shared memory.
    deepspeed.ops.__compatible_ops__.clear()
    deepspeed.init_distributed(dist_backend="gloo", verbose=False)
else:
    dist.init_process_group("gloo")
rank, world = dist.get_rank(), dist.get_world_size()
where = [None] * world
dist.all_gather_object(where, os.environ["ORCH_HOST"] + "/" + os.environ["LOCAL_RANK"])
total = torch.ones(1)
dist.all_reduce(total)
# One write with its newline: ranks that share a pipe do not run into one another.
os.write(1, f"rank {rank}: world {world} sum {total.item():.0f} map {' '.join(where)}\n".encode())
leave()
