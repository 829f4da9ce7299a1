#!/usr/bin/env python3
"""`orchestrate push` compared with `rsync -a` and `ssh 'cat >f'` in one run.

    cargo build --profile dist
    python3 benches/transfer.py [--hosts 4] [--files 10000] [--mib 1024] [--rounds 3] [--bin FILE] [--rsync FILE]

As root, on Linux, on loopback only: one OpenSSH server, a user with /bin/sh and an empty home; every "host" is another loopback address with its own
target directory. Small files: a tree of 1-20 KiB files to all hosts, first and unchanged; rsync runs once per host, all in parallel. Big file: one file to all
hosts; `ssh 'tee f | sha256sum'` and `ssh 'cat >f'` run once per host in parallel, with the cipher that orchestrate negotiates. The peak is the resident
memory of the whole process tree on the laptop's side. Every copy is compared with its source.
"""

import argparse
import filecmp
import random

from common import *

FLAGS = Path("/proc/cpuinfo").read_text().split("flags", 1)[-1].split("\n", 1)[0].split()
CIPHER = "aes256-gcm@openssh.com" if "aes" in FLAGS else "chacha20-poly1305@openssh.com"


def make_tree(root, count):
    rng = random.Random(1)
    for n in range(count):
        folder = root / f"{n % 100:02d}" / f"{n % 7}"
        folder.mkdir(parents=True, exist_ok=True)
        (folder / f"file-{n}").write_bytes(rng.randbytes(rng.randint(1 << 10, 20 << 10)))


def equal(a, b):
    compared = filecmp.dircmp(a, b, ignore=[])
    bad = compared.left_only + compared.right_only + compared.funny_files
    return not bad and all(filecmp.cmp(Path(a) / f, Path(b) / f, shallow=False) for f in compared.common_files) and all(
        equal(Path(a) / d, Path(b) / d) for d in compared.common_dirs
    )


def in_parallel(commands):
    """Runs all in parallel; fails if one of them fails."""
    starts = "".join(f'{c} & pids="$pids $!"; ' for c in commands)
    return ["sh", "-c", f"pids=''; {starts}for p in $pids; do wait $p || exit; done"]


def main():
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("--hosts", type=int, default=4)
    parser.add_argument("--files", type=int, default=10_000)
    parser.add_argument("--mib", type=int, default=1024)
    parser.add_argument("--rounds", type=int, default=3)
    parser.add_argument("--bin")
    parser.add_argument("--rsync", default=shutil.which("rsync"))
    arguments = parser.parse_args()
    program = binary(arguments.bin)
    addresses = [f"127.0.1.{n + 1}" for n in range(arguments.hosts)]
    print(f"{machine()}; {arguments.hosts} hosts, {arguments.files} files, {arguments.mib} MiB, {arguments.rounds} rounds\n")
    with workplace() as place:
        homes = {address: place / "home" / address for address in addresses}
        own_home = "".join(f"Match LocalAddress {a}\n  SetEnv HOME={h}\n" for a, h in homes.items())
        with Sshd(place, addresses, own_home) as sshd:
            entry = pwd.getpwnam(sshd.user)
            for home in homes.values():
                home.mkdir()
                os.chown(home, entry.pw_uid, entry.pw_gid)
            measure_all(arguments, program, place, sshd, homes)


def measure_all(arguments, program, place, sshd, homes):
    tree, big, inventory = place / "tree", place / "big", place / "inventory.yaml"
    make_tree(tree, arguments.files)
    subprocess.run(["sh", "-c", f"head -c {arguments.mib << 20} /dev/urandom >{big}"], check=True)
    inventory.write_text(sshd.inventory())
    results = {}

    def clear():
        for home in homes.values():
            subprocess.run(["rm", "-rf", home / "tree", home / "big"], check=True)
        os.sync()

    def run(what, command):
        result = measure(command, clean_env(place), limit=600, watch=True)
        if result.rc != 0:
            die(f"{what}: exit {result.rc}: {result.output.decode(errors='replace')[-500:]}")
        for home in homes.values():
            same = equal(tree, home / "tree") if (home / "tree").exists() else filecmp.cmp(big, home / "big", shallow=False)
            if not same:
                die(f"{what}: a copy differs")
        results.setdefault(what, []).append(result)

    ssh = f"ssh -F {place}/ssh_config -c {CIPHER}"
    push = [program, "push", "-i", str(inventory), "--progress", "quiet"]
    rsync = [f"{arguments.rsync} -a --rsync-path={arguments.rsync} -e '{ssh}' {tree}/ {a}:{h}/tree/" for a, h in homes.items()]
    for _ in range(arguments.rounds):
        for what, command in {"push": [*push, str(tree), "~/tree"], "rsync -a": in_parallel(rsync)}.items():
            if arguments.rsync or what == "push":
                clear()
                run(f"{what}, tree, first", command)
                run(f"{what}, tree, unchanged", command)
        streams = {"ssh 'tee f \\| sha256sum'": "tee {0}/big | sha256sum", "ssh 'cat >f'": "cat >{0}/big"}
        ways = {what: in_parallel([f"{ssh} {a} '{of.format(h)}' <{big}" for a, h in homes.items()]) for what, of in streams.items()}
        for what, command in {"push": [*push, str(big), "~/big"], **ways}.items():
            clear()
            run(f"{what}, big file", command)
    rows = []
    for what, of in results.items():
        walls = sorted(r.wall for r in of)
        rows.append([what, f"{median(walls):.2f} s ({walls[0]:.2f}-{walls[-1]:.2f})", f"{median([r.cpu for r in of]):.2f} s", f"{max(r.peak for r in of) >> 20} MiB"])
    table(["what", "wall, median (range)", "CPU here", "peak memory here"], rows)


if __name__ == "__main__":
    main()
