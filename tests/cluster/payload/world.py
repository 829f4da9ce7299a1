"""All ranks meet over gloo and exchange their locations, and each rank prints the whole map: world.py torch|accelerate|deepspeed."""

import faulthandler
import os
import sys

import torch
import torch.distributed as dist
from leave import leave

# A hung rank prints its stack before the test times out.
faulthandler.dump_traceback_later(100, exit=True)
how = sys.argv[1]
if how == "accelerate":
    from accelerate import PartialState

    state = PartialState(cpu=True, backend="gloo")
    assert state.num_processes == int(os.environ["WORLD_SIZE"]), state
elif how == "deepspeed":
    import deepspeed

    # There is no compiler here; on a CPU, DeepSpeed would compile an operator for shared memory.
    deepspeed.ops.__compatible_ops__.clear()
    deepspeed.init_distributed(dist_backend="gloo", verbose=False)
else:
    dist.init_process_group("gloo")
rank, world = dist.get_rank(), dist.get_world_size()
where = [None] * world
dist.all_gather_object(where, os.environ["ORCH_HOST"] + "/" + os.environ["LOCAL_RANK"])
total = torch.ones(1)
dist.all_reduce(total)
# A single write including the newline, so that ranks that share a pipe do not interleave.
os.write(1, f"rank {rank}: world {world} sum {total.item():.0f} map {' '.join(where)}\n".encode())
leave()
