#!/usr/bin/env python3
"""The log path: 1 GiB of 120-byte lines in a rank's log, from the host to a file on the laptop, compared with `ssh host cat`.

    cargo build --profile dist
    python3 benches/logpath.py [--mib 1024] [--rounds 3] [--bin FILE]

As root, on Linux, on loopback only: one OpenSSH server with default settings, a user with /bin/sh and an empty home. A real run on that
bare host (`up -d --keep`) writes the log and ends. Then, in turns, all into the same directory: `ssh host cat LOG > file` with ssh's default
cipher and with the one that orchestrate negotiates, and `orchestrate logs --tail 1` from a fresh state directory, which connects,
lists the logs, fetches each one with the framed stream into its file, writes its journal and shows one line. The page cache is warm in all
cases. The copies must have the same sha256. `cat LOG > file` on the same disk is the upper bound.
"""

import argparse
import hashlib

from common import *

# The cipher that remote/ssh/connection.rs prefers on a processor with AES, and without.
FLAGS = Path("/proc/cpuinfo").read_text().split("flags", 1)[-1].split("\n", 1)[0].split()
OURS = "aes256-gcm@openssh.com" if "aes" in FLAGS else "chacha20-poly1305@openssh.com"


def digest(path):
    with open(path, "rb") as f:
        return hashlib.file_digest(f, "sha256").hexdigest()


def write_log(program, place, sshd, size):
    """Starts a real run that writes `size` bytes and ends; returns the path of its log on the host."""
    line = "x" * 119
    launch = f"launch:\n  with: script\n  gate: none\n  command: [sh, -c, \"yes {line} | head -c {size}\"]\n"
    inventory = place / "inventory.yaml"
    inventory.write_text(sshd.inventory(launch))
    env = clean_env(place)
    up = measure([program, "up", "--detach", "--keep", "--progress", "plain", str(inventory)], env)
    if up.rc != 0:
        die(f"up: exit {up.rc}: {up.output[-2000:].decode(errors='replace')}")
    logs = lambda: [p for p in (sshd.home / ".orchestrate").rglob("*.log") if p.stat().st_size == size]
    wait_for(logs, 120, "the log")
    wait_for(lambda: list(logs()[0].parent.glob("*rank-*.rc")) or list(logs()[0].parent.glob("*node.rc")), 60, "the end of the run")
    return inventory, logs()[0]


def main():
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("--mib", type=int, default=1024)
    parser.add_argument("--rounds", type=int, default=3)
    parser.add_argument("--bin")
    arguments = parser.parse_args()
    program = binary(arguments.bin)
    size = arguments.mib << 20
    print(f"{machine()}; {arguments.mib} MiB, {arguments.rounds} rounds\n")
    with workplace() as place, Sshd(place, ["127.0.1.1"]) as sshd:
        inventory, log = write_log(program, place, sshd, size)
        wanted = digest(log)
        env = clean_env(place)
        ssh = ["ssh", "-F", str(place / "ssh_config")]
        copy = place / "copy"
        rates, cpu, peaks = {}, {}, {}

        def note(what, result, file):
            if result.rc != 0 or digest(file) != wanted:
                die(f"{what}: exit {result.rc}, or the bytes differ: {result.output[-500:].decode(errors='replace')}")
            rates.setdefault(what, []).append(size / result.wall / 1e6)
            cpu.setdefault(what, []).append(result.cpu)
            peaks.setdefault(what, []).append(result.peak)

        def into_file(what, command):
            copy.unlink(missing_ok=True)
            os.sync()
            with open(copy, "wb") as out:
                note(what, measure(command, env, stdout=out), copy)
            copy.unlink()

        def ours():
            state = place / "fresh"
            shutil.rmtree(state, ignore_errors=True)
            os.sync()
            result = measure([program, "logs", "--tail", "1", "-i", str(inventory)], {**env, "XDG_STATE_HOME": str(state)})
            copies = [p for p in state.rglob("*.log") if p.stat().st_size == size]
            if not copies:
                die(f"logs: exit {result.rc}: {result.output[-2000:].decode(errors='replace')}")
            note("orchestrate logs", result, copies[0])
            journal = next(state.rglob("journal.jsonl")).read_text()
            if f'"len":{size}' not in journal and sum_of_ranges(journal) < size:
                die("the journal does not know all ranges")
            shutil.rmtree(state)

        for _ in range(arguments.rounds):
            into_file("ssh cat, default cipher", [*ssh, "127.0.1.1", f"cat {log}"])
            into_file(f"ssh cat, {OURS}", [*ssh, "-c", OURS, "127.0.1.1", f"cat {log}"])
            ours()
            into_file("cat, no network", ["cat", str(log)])
    default, same = (median(rates[k]) for k in ("ssh cat, default cipher", f"ssh cat, {OURS}"))
    rows = []
    for what, values in rates.items():
        rate = median(values)
        rows.append([
            what, f"{rate:.0f} MB/s", f"{min(values):.0f}–{max(values):.0f}", f"{rate / default:.0%}", f"{rate / same:.0%}",
            f"{median(cpu[what]):.2f} s", f"{max(peaks[what]) / 2**20:.0f} MiB",
        ])
    table(["way", "rate", "range", "of ssh, default", "of ssh, our cipher", "client CPU", "peak memory"], rows)
    print("every copy equal by sha256; the journal has every range")


def sum_of_ranges(journal):
    import json
    events = [json.loads(l) for l in journal.splitlines() if l.strip()]
    return sum(e.get("len", 0) for e in events if e.get("kind") == "log" and "rank" in str(e.get("file")))


main()
