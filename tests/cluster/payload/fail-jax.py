"""A JAX job that fails in one way: fail-jax.py KIND."""

import os
import sys
import time

import jax

kind = sys.argv[1]
world, rank = int(os.environ["WORLD_SIZE"]), int(os.environ["RANK"])
culprit = 2 % world

if kind == "no-arguments":
    os.environ.pop("JAX_COORDINATOR_ADDRESS", None)
    jax.distributed.initialize(num_processes=world, process_id=rank)
if kind == "too-late":
    print(jax.numpy.ones(3).sum(), flush=True)
if kind == "stays-away" and rank == culprit:
    print("loading the dataset", flush=True)
    time.sleep(3600)
jax.distributed.initialize(num_processes=world, process_id=rank, initialization_timeout=15, heartbeat_timeout_seconds=10)
print(f"process {jax.process_index()} of {jax.process_count()}", flush=True)
for step in range(600):
    if kind == "killed" and step == 5 and rank == culprit:
        os.kill(os.getpid(), 9)
    total = jax.pmap(lambda x: jax.lax.psum(x, "all"), axis_name="all")(jax.numpy.ones(jax.local_device_count()))
    print(f"step {step} loss {float(total[0]):.3f}", flush=True)
    time.sleep(0.1)
