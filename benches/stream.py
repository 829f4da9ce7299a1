#!/usr/bin/env python3
"""One stream: `orchestrate exec -- cat FILE > copy` on one host, compared with `ssh host cat FILE > copy`.

    cargo build --profile dist
    python3 benches/stream.py [--mib 1024] [--rounds 5] [--bin FILE]

As root, on Linux, on loopback only: one OpenSSH server with default settings, a user with /bin/sh and an empty home. In turns, all into the
same directory: ssh with its default cipher, ssh with the one that orchestrate negotiates, orchestrate; each includes connecting. The file has
lines of text and is in the page cache; the copies must have the same sha256. `cat FILE > copy` on the same disk is the upper bound.
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


def main():
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("--mib", type=int, default=1024)
    parser.add_argument("--rounds", type=int, default=5)
    parser.add_argument("--bin")
    arguments = parser.parse_args()
    program = binary(arguments.bin)
    size = arguments.mib << 20
    print(f"{machine()}; {arguments.mib} MiB, {arguments.rounds} rounds\n")
    with workplace() as place, Sshd(place, ["127.0.1.1"]) as sshd:
        file, copy = place / "file", place / "copy"
        line = b"".join(b"%06d %s\n" % (n, b"x" * 112) for n in range(8192))
        with open(file, "wb") as f:
            for at in range(0, size, len(line)):
                f.write(line[: size - at])
        file.chmod(0o644)
        wanted = digest(file)
        inventory = place / "inventory.yaml"
        inventory.write_text(sshd.inventory())
        ssh = ["ssh", "-F", str(place / "ssh_config")]
        ways = {
            "ssh cat, default cipher": [*ssh, "127.0.1.1", f"cat {file}"],
            f"ssh cat, {OURS}": [*ssh, "-c", OURS, "127.0.1.1", f"cat {file}"],
            "orchestrate exec": [program, "exec", "-i", str(inventory), "--", "cat", str(file)],
            "cat, no network": ["cat", str(file)],
        }
        results = {way: [] for way in ways}
        for _ in range(arguments.rounds):
            for way, command in ways.items():
                copy.unlink(missing_ok=True)
                os.sync()
                with open(copy, "wb") as out:
                    result = measure(command, clean_env(place), stdout=out)
                if result.rc != 0 or digest(copy) != wanted:
                    die(f"{way}: exit {result.rc}, or the bytes differ: {result.output[-500:].decode(errors='replace')}")
                results[way].append(result)
    rate = lambda way: median([size / r.wall / 1e6 for r in results[way]])
    # Ratios are taken pair by pair, so that a drift in the machine's speed cancels out.
    ratio = lambda way, to: median([t.wall / r.wall for r, t in zip(results[way], results[to])])
    default, same = list(ways)[:2]
    rows = []
    for way, rounds in results.items():
        rates = [size / r.wall / 1e6 for r in rounds]
        rows.append([
            way, f"{rate(way):.0f} MB/s", f"{min(rates):.0f}–{max(rates):.0f}", f"{ratio(way, default):.0%}", f"{ratio(way, same):.0%}",
            f"{median([r.cpu for r in rounds]):.2f} s", f"{max(r.peak for r in rounds) / 2**20:.0f} MiB",
        ])
    table(["way", "rate, median", "range", "of ssh, default", "of ssh, our cipher", "client CPU", "peak memory"], rows)
    print("every copy equal by sha256")


main()
