"""Rank LATE joins init once its control file exists, or never; the others wait. All end once theirs exists."""

import datetime
import os
import pathlib
import time

rank = int(os.environ["RANK"])
# Printed before the slow import of torch: all ranks have printed this when the first one waits.
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
