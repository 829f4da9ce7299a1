"""The smoke of `check --smoke`: one of these runs on every host (one a GPU), where the ranks of the job would run.

They meet at a store on rank 0, make a process group (NCCL where every rank has a GPU, gloo else), all-reduce buffers that grow,
and send buffers between pairs of hosts. What they find goes to standard output, a line each: `orch-smoke {JSON}`. Nothing is
written anywhere. Every wait is bounded: a rank that waits too long reports the phase and exits. Python 3.8 and torch 1.13 are enough.
"""

import datetime
import faulthandler
import json
import os
import socket
import sys
import threading
import time

IMPORT, MEET, GROUP, STEP, ALL = 120, 45, 60, 60, 300  # seconds: the longest that each phase may take
RING, PAIRS = 6.0, 8.0  # seconds: how long is measured
MIB = 1 << 20

BEGAN = time.monotonic()
RANK, WORLD = int(os.environ["RANK"]), int(os.environ["WORLD_SIZE"])
LOCAL, NODE = int(os.environ["LOCAL_RANK"]), int(os.environ["NODE_RANK"])
ADDRESS, PORT = os.environ["MASTER_ADDR"], int(os.environ["MASTER_PORT"])
PHASE = ["import", None]  # what is done now, and when that must have ended


def emit(word, **more):
    more.update(smoke=word, at=round(time.monotonic() - BEGAN, 2))
    sys.stdout.write("\norch-smoke " + json.dumps(more) + "\n")
    sys.stdout.flush()


def leave(status):
    sys.stdout.flush()
    sys.stderr.flush()
    os._exit(status)  # what a library would clean up may hang


def fail(why):
    emit("failed", phase=PHASE[0], why=" ".join(str(why).split())[:600])
    leave(1)


def phase(name, seconds):
    PHASE[:] = [name, time.monotonic() + seconds]


def watch():
    """Ends this rank when a phase does not end: calls into torch need not come back."""
    while True:
        time.sleep(0.2)
        name, end = PHASE
        if end is not None and time.monotonic() > end:
            PHASE[1] = None
            fail("no end within its time")


def has_store_listener(until):
    """Whether the store's port answers, tried until then; why not."""
    why = "no answer"
    while time.monotonic() < until:
        try:
            socket.create_connection((ADDRESS, PORT), max(0.2, min(5.0, until - time.monotonic()))).close()
            return None
        except socket.timeout:
            why = "no answer"
        except OSError as error:
            why = error.strerror or str(error)
            time.sleep(0.2)
    return why


def seconds(count):
    return datetime.timedelta(seconds=max(0.05, count))


def there(store, keys, wait):
    try:
        store.wait(keys, seconds(wait))
        return True
    except Exception:  # its kind differs between versions of torch
        return False


def make_store(dist):
    options = {"timeout": seconds(MEET), "wait_for_workers": False}
    try:  # the other backend is not in every build, and not known to every version
        return dist.TCPStore(ADDRESS, PORT, WORLD, RANK == 0, use_libuv=False, **options)
    except TypeError:
        return dist.TCPStore(ADDRESS, PORT, WORLD, RANK == 0, **options)


def meet(dist, nccl):
    """The store at which every rank registers; the common backend and the node of each rank."""
    phase("store", MEET + 10)
    until = time.monotonic() + MEET
    if RANK > 0:
        why = has_store_listener(until)
        if why is not None:
            fail("{} from {}:{} in {} s".format(why, ADDRESS, PORT, MEET))
    store = make_store(dist)
    emit("store")
    phase("arrive", MEET + 10)
    store.set("here/{}".format(RANK), json.dumps([NODE, nccl]))
    if RANK == 0:
        keys = ["here/{}".format(rank) for rank in range(WORLD)]
        missing = []
        if not there(store, keys, until + 2 - time.monotonic()):
            missing = [rank for rank in range(WORLD) if not there(store, [keys[rank]], 0.05)]
        arrivals = [] if missing else [json.loads(store.get(key)) for key in keys]
        store.set("all", json.dumps([missing, arrivals]))
    if not there(store, ["all"], MEET + 5):
        fail("rank 0 did not say who is there")
    missing, arrivals = json.loads(store.get("all"))
    if missing:
        emit("waiting", missing=missing[:1024])
        time.sleep(1.0 if RANK == 0 else 0.0)  # the others ask the store for this too
        leave(1)
    emit("arrived")
    return store, "nccl" if all(has for _, has in arrivals) else "gloo", [node for node, _ in arrivals]


class Gang:
    """The process group, with what is measured in it."""

    def __init__(self, torch, dist, backend, device):
        self.torch, self.dist, self.device, self.backend = torch, dist, device, backend

    def tensor(self, count):
        return self.torch.ones(count, dtype=self.torch.float32, device=self.device)

    def settle(self):
        if self.backend == "nccl":
            self.torch.cuda.synchronize()

    def worst(self, value):
        """The greatest value of all ranks: what all decide by."""
        both = self.torch.tensor([value], dtype=self.torch.float64, device=self.device)
        self.dist.all_reduce(both, op=self.dist.ReduceOp.MAX)
        return float(both.item())

    def ring(self):
        spent, turns, size, most = 0.0, 3, MIB, (256 if self.backend == "nccl" else 64) * MIB
        while spent < RING:
            phase("ring", STEP)
            begin = time.monotonic()
            data = self.tensor(size // 4)
            self.dist.all_reduce(data)
            self.settle()
            self.worst(0.0)
            first = time.monotonic()
            for _ in range(turns):
                self.dist.all_reduce(data)
            self.settle()
            took = self.worst((time.monotonic() - first) / turns)
            emit("ring", bytes=size, gbps=2.0 * (WORLD - 1) / WORLD * size / max(took, 1e-9) / 1e9)
            spent += self.worst(time.monotonic() - begin)
            if size * 4 <= most and spent + took * 4 * 5 < RING:
                size *= 4
            else:  # as great as it gets: again, for about a second each time; step by step, since a network may be fast for a moment
                turns = int(max(1.0, min(1000.0, 4.0 * turns, 1.0 / max(took, 1e-6))))

    def swap(self, other, first, data):
        """There and back; the seconds of one way."""
        begin = time.monotonic()
        for sends in (first, not first):
            (self.dist.send if sends else self.dist.recv)(data, other)
        self.settle()
        return (time.monotonic() - begin) / 2

    def pair(self, other, first, budget):
        small, size = self.tensor(MIB // 4), MIB
        self.swap(other, first, small)
        took = self.swap(other, first, small)
        turns = self.tensor(1) * (min(8.0, budget / max(took * 2 * 8, 1e-6)) if first else 0.0)
        (self.dist.send if first else self.dist.recv)(turns, other)
        if int(turns.item()) > 0:
            data, size = self.tensor(8 * MIB // 4), 8 * MIB
            took = min(self.swap(other, first, data) for _ in range(int(turns.item())))
        return size / max(took, 1e-9) / 1e9

    def pairs(self, leaders):
        every = rounds(len(leaders))
        for edges in every:
            phase("pairs", STEP)
            for one, two in edges:
                if RANK in (leaders[one], leaders[two]):
                    first = RANK == leaders[one]
                    if first:
                        emit("trying", pair=[one, two])
                    gbps = self.pair(leaders[two] if first else leaders[one], first, PAIRS / len(every))
                    if first:
                        emit("pair", pair=[one, two], gbps=gbps)
            self.worst(0.0)


def rounds(nodes):
    """Which pairs of nodes are measured, and when: up to 8 nodes every pair alone; else neighbours, side by side."""
    if nodes <= 8:
        return [[(one, two)] for one in range(nodes) for two in range(one + 1, nodes)]
    found = []
    for edge in [(node, (node + 1) % nodes) for node in range(nodes)]:
        free = [one for one in found if not any(node in other for other in one for node in edge)]
        (free or found.append([]) or found[-1:])[0].append(edge)
    return found


def main():
    faulthandler.dump_traceback_later(ALL, exit=True)
    phase("import", IMPORT)
    threading.Thread(target=watch, daemon=True).start()
    try:
        import torch
        import torch.distributed as dist
    except ModuleNotFoundError as error:
        if (error.name or "").split(".")[0] == "torch":
            emit("skip", why="torch")
            leave(0)
        raise
    if not dist.is_available():
        emit("skip", why="torch.distributed")
        leave(0)
    gpus = torch.cuda.device_count() if torch.cuda.is_available() else 0
    emit("imported", torch=str(torch.__version__), gpus=gpus)
    store, backend, nodes = meet(dist, gpus > LOCAL and dist.is_nccl_available())
    phase("group", GROUP)
    if backend == "nccl":
        torch.cuda.set_device(LOCAL)
    pg = dist.PrefixStore("group", store)
    dist.init_process_group(backend, store=pg, rank=RANK, world_size=WORLD, timeout=seconds(GROUP))
    gang = Gang(torch, dist, backend, torch.device("cuda", LOCAL) if backend == "nccl" else torch.device("cpu"))
    gang.worst(0.0)
    emit("group", backend=backend)
    gang.ring()
    gang.pairs([nodes.index(node) for node in sorted(set(nodes))])
    phase("end", 10)
    emit("done")
    store.set("done/{}".format(RANK), "1")
    if RANK == 0:  # the store ends with this process
        there(store, ["done/{}".format(rank) for rank in range(WORLD)], 8)
    leave(0)


if __name__ == "__main__":
    try:
        main()
    except Exception as error:
        fail("{}: {}".format(type(error).__name__, error))
