"""A training job that fails in one way: fail.py KIND. Ranks train over gloo until the failing one fails.

PATIENT=1: no rank ends because it is asked to, so each has time to complain.
"""

import datetime
import os
import signal
import sys
import time

import torch
import torch.distributed as dist

kind = sys.argv[1]
rank, world = int(os.environ["RANK"]), int(os.environ["WORLD_SIZE"])
culprit = 2 % world
if os.environ.get("PATIENT"):
    signal.signal(signal.SIGTERM, signal.SIG_IGN)


def meet(seconds=60, **more):
    dist.init_process_group("gloo", timeout=datetime.timedelta(seconds=seconds), **more)
    print(f"Initialized process group with {dist.get_world_size()} processes", flush=True)


def step(number, size=8):
    loss = torch.rand(size)
    dist.all_reduce(loss)
    print(f"step {number} loss {loss.mean().item():.4f} lr 3.0e-04", flush=True)
    time.sleep(0.1)


def train(bad=None, target=culprit, steps=600):
    """Every rank trains; after some steps the target rank calls `bad`."""
    meet()
    for number in range(steps):
        if bad and number == 5 and rank == target:
            bad()
        step(number)


def alone(bad):
    """One rank fails before it joins the group."""
    if rank == culprit:
        bad()
    meet()


def everybody(bad):
    bad()


def value_error():
    raise ValueError("expected 4 channels, got 3")


def silent():
    sys.exit(3)


def killed():
    os.kill(os.getpid(), 9)


def segv():
    import ctypes

    ctypes.string_at(0)


def missing_module():
    import flash_attn_that_is_not_there  # noqa: F401


def sleep_forever():
    print("loading the dataset", flush=True)
    time.sleep(3600)


def disk_full():
    with open("/small/checkpoint.pt", "wb") as out:
        for _ in range(64):
            out.write(bytes(1 << 20))


def read_only():
    torch.save({"step": 5}, "/mnt/checkpoint.pt")


def dataset_missing():
    open("/data/train/index.json", encoding="utf-8")


def no_cuda():
    torch.zeros(1, device="cuda")


def loaders():
    class Images(torch.utils.data.Dataset):
        def __len__(self):
            return 64

        def __getitem__(self, at):
            return torch.zeros(8 << 20)

    for batch in torch.utils.data.DataLoader(Images(), batch_size=8, num_workers=2):
        print("batch", tuple(batch.shape), flush=True)


def loader_error():
    class Images(torch.utils.data.Dataset):
        def __len__(self):
            return 64

        def __getitem__(self, at):
            raise OSError(5, "Input/output error", f"/data/shard-{at:05}.tar")

    for batch in torch.utils.data.DataLoader(Images(), batch_size=8, num_workers=2):
        print("batch", tuple(batch.shape), flush=True)


def flags():
    import argparse

    parser = argparse.ArgumentParser(prog="train.py")
    parser.add_argument("kind")
    parser.add_argument("--epochs", type=int)
    parser.parse_args([*sys.argv[1:], "--learning-rate", "3e-4"])


def assertion():
    loss = float("nan")
    assert loss == loss, "loss is NaN at step 5"


def shapes():
    torch.nn.Linear(1024, 16)(torch.zeros(4, 768))


def state_dict():
    saved = {"weight": torch.zeros(16, 768), "bias": torch.zeros(16)}
    torch.nn.Linear(1024, 16).load_state_dict(saved)


def truncated_checkpoint():
    torch.save({"weight": torch.zeros(1 << 16)}, "/tmp/whole.pt")
    data = open("/tmp/whole.pt", "rb").read()
    with open("/tmp/cut.pt", "wb") as out:
        out.write(data[: len(data) // 2])
    torch.load("/tmp/cut.pt")


def memory():
    torch.zeros(1 << 46)


def too_many_files():
    import resource

    resource.setrlimit(resource.RLIMIT_NOFILE, (64, 64))
    held = [open("/dev/null", "rb") for _ in range(100)]
    print(len(held))


def wrong_address():
    meet(10, init_method=f"tcp://{os.environ.get('NOWHERE', '172.30.77.250')}:29611", rank=rank, world_size=world)


def wrong_name():
    meet(10, init_method="tcp://gpu-master.cluster.internal:29611", rank=rank, world_size=world)


def closed_port():
    meet(10, init_method="tcp://127.0.0.1:29699", rank=rank + 1, world_size=world + 1)


def port_taken():
    import socket

    held = socket.socket(socket.AF_INET6 if socket.has_ipv6 else socket.AF_INET)
    held.bind(("", 29655))
    held.listen()
    os.environ["TORCHELASTIC_USE_AGENT_STORE"] = "False"
    meet(10, init_method="tcp://127.0.0.1:29655", rank=0, world_size=world)


def nccl():
    dist.init_process_group("nccl")


def late():
    """One rank never joins: the others time out."""
    if rank == culprit:
        sleep_forever()
    meet(15)


def straggler():
    """One rank stops in the middle of training."""
    meet(10)
    for number in range(50):
        if number == 5 and rank == culprit:
            time.sleep(3600)
        step(number)


def divisible():
    heads = 40
    if heads % world == 0:
        heads += 1
    if heads % world:
        raise ValueError(f"num_heads ({heads}) must be divisible by ulysses_size ({world})")


def monitored():
    meet()
    if rank == culprit:
        sleep_forever()
    dist.monitored_barrier(timeout=datetime.timedelta(seconds=5))


def uneven():
    """Ranks reduce tensors of different sizes."""
    meet(10)
    for number in range(50):
        step(number, 16 if rank == culprit and number == 5 else 8)


def unused():
    """A parameter does not contribute to the loss."""
    meet()

    class Net(torch.nn.Module):
        def __init__(self):
            super().__init__()
            self.used, self.unused = torch.nn.Linear(4, 4), torch.nn.Linear(4, 4)

        def forward(self, x):
            return self.used(x)

    net = torch.nn.parallel.DistributedDataParallel(Net())
    for _ in range(3):
        net(torch.rand(2, 4)).sum().backward()


def differing_models():
    meet()
    torch.nn.parallel.DistributedDataParallel(torch.nn.Linear(4, 4 + (rank == culprit)))


def weights_only():
    class Settings:
        pass

    sys.modules["__main__"].Settings = Settings
    Settings.__qualname__ = "Settings"
    torch.save({"settings": Settings()}, "/tmp/settings.pt")
    torch.load("/tmp/settings.pt", weights_only=True)


def bad_json():
    import json

    json.loads('{"train_batch_size": 16,}')


def no_hub():
    from huggingface_hub import hf_hub_download

    hf_hub_download("gpt2", "config.json")


def aborted():
    os.abort()


def eats_memory():
    held = []
    while True:
        held.append(bytearray(os.urandom(1 << 20)) * 16)


def deepspeed_batch():
    import deepspeed

    config = {"train_batch_size": 7, "train_micro_batch_size_per_gpu": 2, "gradient_accumulation_steps": 1}
    net = torch.nn.Linear(4, 4)
    deepspeed.ops.__compatible_ops__.clear()
    deepspeed.initialize(model=net, model_parameters=net.parameters(), config=config)


def deepspeed_json():
    import deepspeed

    with open("/tmp/ds.json", "w", encoding="utf-8") as out:
        out.write('{"train_batch_size": 8, "zero_optimization": {"stage": 7}}')
    net = torch.nn.Linear(4, 4)
    deepspeed.ops.__compatible_ops__.clear()
    deepspeed.initialize(model=net, model_parameters=net.parameters(), config="/tmp/ds.json")


def deepspeed_build():
    import deepspeed

    deepspeed.ops.op_builder.CPUAdamBuilder().load()


def accelerate_gpu():
    from accelerate import Accelerator

    Accelerator(mixed_precision="bf16", cpu=False, deepspeed_plugin=None, fsdp_plugin=None, gradient_accumulation_steps=0)


KINDS = {
    "value-error": lambda: train(value_error),
    "silent-exit": lambda: train(silent),
    "killed": lambda: train(killed),
    "segfault": lambda: train(segv),
    "abort": lambda: train(aborted),
    "missing-module": lambda: alone(missing_module),
    "hung-before-init": late,
    "disk-full": lambda: train(disk_full),
    "read-only": lambda: train(read_only, target=0),
    "dataset-missing": lambda: alone(dataset_missing),
    "no-cuda": lambda: everybody(no_cuda),
    "shm-too-small": lambda: train(loaders),
    "loader-error": lambda: train(loader_error),
    "unknown-flag": lambda: everybody(flags),
    "nan": lambda: train(assertion),
    "shapes": lambda: everybody(shapes),
    "state-dict": lambda: everybody(state_dict),
    "truncated-checkpoint": lambda: alone(truncated_checkpoint),
    "memory": lambda: train(memory),
    "host-memory": lambda: train(eats_memory),
    "open-files": lambda: train(too_many_files),
    "wrong-address": lambda: everybody(wrong_address),
    "wrong-name": lambda: everybody(wrong_name),
    "closed-port": lambda: everybody(closed_port),
    "port-taken": lambda: alone(port_taken),
    "nccl-without-gpu": lambda: everybody(nccl),
    "straggler": straggler,
    "divisible": lambda: everybody(divisible),
    "monitored-barrier": monitored,
    "uneven-sizes": uneven,
    "unused-parameters": unused,
    "differing-models": differing_models,
    "weights-only": lambda: everybody(weights_only),
    "bad-json": lambda: everybody(bad_json),
    "no-hub": lambda: everybody(no_hub),
    "deepspeed-batch": lambda: everybody(deepspeed_batch),
    "deepspeed-config": lambda: everybody(deepspeed_json),
    "deepspeed-build": lambda: everybody(deepspeed_build),
    "accelerate-arguments": lambda: everybody(accelerate_gpu),
    "healthy": lambda: train(steps=20),
}

KINDS[kind]()
