"""Every process of a JAX gang adds its one to a psum over all devices of all processes."""

import os

import jax

world, rank = int(os.environ["WORLD_SIZE"]), int(os.environ["RANK"])
# JAX reads the coordinator's address from the environment, but not the number of processes.
jax.distributed.initialize(num_processes=world, process_id=rank, initialization_timeout=120)
total = jax.pmap(lambda x: jax.lax.psum(x, "all"), axis_name="all")(jax.numpy.ones(jax.local_device_count()))
where = os.environ["ORCH_HOST"] + "/" + os.environ["LOCAL_RANK"]
print(f"rank {jax.process_index()}: world {jax.process_count()} sum {float(total[0]):.0f} map {where}", flush=True)
