#!/usr/bin/env python3
"""The cost of following on a host: processor time of the log stream script and its children while ranks write.

    python3 benches/follower.py [--ranks 8] [--lines 50] [--seconds 10] [--revision REV ...]

Each rank writes LINES lines of 55 bytes a second. The scripts of every revision and of the working tree are measured in turn, twice.
"""

import argparse
import os
import shutil
import subprocess
import tempfile
import threading
import time
from pathlib import Path

ASSETS = Path(__file__).parent.parent / "assets"
DIRS = ("h.in/run1", "h.out", "h.private")


def asset(revision, name):
    if revision is None:
        return (ASSETS / name).read_text()
    return subprocess.check_output(["git", "show", f"{revision}:assets/{name}"], text=True, cwd=ASSETS)


def acknowledge(follower, received):
    """Reads the frames like the laptop, and acknowledges each."""
    done = frames = 0
    while head := follower.stdout.readline().split():
        if head[0] == b"F":
            length = int(head[3])
            follower.stdout.read(length)
            done += length
            received[0] = done
        elif head[0] != b"H":
            continue
        frames += 1
        try:
            follower.stdin.write(b"%d %d\n" % (done, frames))
            follower.stdin.flush()
        except BrokenPipeError:
            return


def measure(revision, ranks, lines, seconds):
    """Processor seconds and bytes received."""
    base = tempfile.mkdtemp()
    for name in DIRS:
        os.makedirs(f"{base}/{name}")
    Path(f"{base}/h.private/run1.json").write_text("{}")
    logs = [open(f"{base}/h.out/run1.rank-{rank}.0.log", "ab", buffering=0) for rank in range(ranks)]
    over = threading.Event()

    def write():
        step = 0
        while not over.wait(1 / lines):
            step += 1
            for log in logs:
                log.write(b"step %7d  loss 1.2340  12345.6 tokens/s  memory 61 GB\n" % step)

    script = (
        f"umask 077\nonce='' guards='' F='{base}/h.out/run1.' record='{base}/h.private/run1.json' note= mark=\n"
        + asset(revision, "read.sh")
        + asset(revision, "follow.sh")
    )
    follower = subprocess.Popen(["/bin/sh", "-c", script], stdin=subprocess.PIPE, stdout=subprocess.PIPE)
    received = [0]
    threading.Thread(target=write, daemon=True).start()
    threading.Thread(target=acknowledge, args=(follower, received), daemon=True).start()
    time.sleep(seconds)
    # utime and stime of the process and of its ended children, in ticks.
    fields = Path(f"/proc/{follower.pid}/stat").read_text().rsplit(")", 1)[1].split()
    spent = sum(map(int, fields[11:15])) / os.sysconf("SC_CLK_TCK")
    over.set()
    follower.kill()
    follower.wait()
    shutil.rmtree(base)
    return spent, received[0]


def main():
    words = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    words.add_argument("--ranks", type=int, default=8)
    words.add_argument("--lines", type=int, default=50)
    words.add_argument("--seconds", type=int, default=10)
    words.add_argument("--revision", action="append", default=[])
    given = words.parse_args()
    for _ in range(2):
        for revision in [*given.revision, None]:
            spent, received = measure(revision, given.ranks, given.lines, given.seconds)
            share = 100 * spent / given.seconds
            print(f"{revision or 'working tree':>12}  {given.ranks} ranks  {share:6.1f} % of a core  {received} bytes", flush=True)


if __name__ == "__main__":
    main()
