"""One rank comes to init when told, or never; the others wait for it. All end when told. LATE: its number."""

import datetime
import os
import pathlib
import time

rank = int(os.environ["RANK"])
# Before torch, whose import takes long: all ranks have printed this when the first one waits.
print(f"rank {rank} builds the model", flush=True)

import torch
import torch.distributed as dist
from leave import leave


def wait_for(order):
    while not pathlib.Path(os.environ["SUITE"], "ctl", os.environ["ORCH_NAME"], order).exists():
        time.sleep(0.2)


if rank == int(os.environ["LATE"]):
    wait_for("come")
print(f"rank {rank} joins the group", flush=True)
dist.init_process_group("gloo", timeout=datetime.timedelta(minutes=5))
total = torch.ones(1)
dist.all_reduce(total)
print(f"rank {rank} sum {total.item()}", flush=True)
wait_for("end")
leave()
