"""How a rank leaves its gang after its work: it waits until all ranks are done, and skips the teardown of the group.

Gloo's destroy_process_group hangs now and then (about once in ten runs on a loaded machine), and a rank that leaves while
another is still in the last collective resets its connection.
"""

import atexit
import datetime
import os
import sys

import torch.distributed as dist

PATIENCE = datetime.timedelta(seconds=60)


def leave(code=0):
    store = dist.distributed_c10d._get_default_store()
    rank, world = dist.get_rank(), dist.get_world_size()
    store.set(f"done/{rank}", "1")
    store.wait([f"done/{other}" for other in range(world)], PATIENCE)
    # Rank 0 may host the store, so it exits last.
    store.set(f"left/{rank}", "1")
    if rank == 0:
        store.wait([f"left/{other}" for other in range(world)], PATIENCE)
    sys.stdout.flush()
    # Torch creates directories in /tmp and removes them at exit.
    atexit._run_exitfuncs()
    os._exit(code)
