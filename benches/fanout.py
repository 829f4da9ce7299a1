#!/usr/bin/env python3
"""`exec -- true` on many hosts, compared with asyncssh, pdsh, clush and ansible.

    cargo build --profile dist
    apt-get install pdsh clustershell ansible openssh-server; python3 -m venv V; V/bin/pip install asyncssh
    python3 benches/fanout.py --asyncssh V/bin/python [--hosts 256] [--rounds 3] [--forks 64] [--only sandbox|sshd] [--bin FILE]

As root, on Linux, on loopback only. `sandbox`: `orchestrate sandbox` in its own process. `sshd`: one OpenSSH server with default
settings at one address per host (MaxStartups raised, else the other tools lose connections), a user with /bin/sh and an empty home.
Every tool gets the same ssh_config, key, known_hosts and number of parallel connections, and uses its own default key exchange; ansible
runs `raw` without a terminal and without ControlPersist, whose master processes outlive the measurement. A missing tool is reported and skipped.
wall: median of the rounds, in which the tools take turns. CPU a host: (user + sys with children) / hosts, median.
memory a host: (peak at N - peak at 1) / (N - 1), peak = largest sum of resident memory of the process and its children, sampled
every 10 ms in a separate run that is not timed; a shared page counts once per process.
"""

import argparse
import shutil

from common import *

HERE = Path(__file__).resolve().parent


def tools(program, arguments, place, config, user, names, inventory):
    """The commands to compare, by name."""
    forks = str(arguments.forks)
    (place / "names").write_text("\n".join(names) + "\n")
    (place / "ansible").write_text("[all]\n" + "\n".join(names) + "\n")
    (place / "ansible.cfg").write_text("")
    all_of_them = ",".join(names)
    found = {"orchestrate": ([program, "exec", "--forks", forks, "-i", str(inventory), "--", "true"], {})}
    if arguments.asyncssh:
        found["asyncssh"] = ([arguments.asyncssh, str(HERE / "asyncssh_true.py"), str(config), forks, str(place / "names")], {})
    if shutil.which("pdsh"):
        found["pdsh"] = (
            ["pdsh", "-R", "ssh", "-S", "-f", forks, "-l", user, "-w", all_of_them, "true"],
            {"PDSH_SSH_ARGS_APPEND": f"-F {config}"},
        )
    if shutil.which("clush"):
        found["clush"] = (["clush", "-S", "-f", forks, "-l", user, "-o", f"-F {config}", "-w", all_of_them, "true"], {})
    if shutil.which("ansible"):
        more = {
            "ANSIBLE_SSH_ARGS": f"-F {config} -o ControlMaster=no",
            "ANSIBLE_LOCAL_TEMP": str(place / "ansible-tmp"),
            "ANSIBLE_NOCOLOR": "1",
            "ANSIBLE_SSH_USETTY": "False",
            "ANSIBLE_CONFIG": str(place / "ansible.cfg"),
        }
        found["ansible"] = (["ansible", "all", "-i", str(place / "ansible"), "-f", forks, "-u", user, "-m", "raw", "-a", "true"], more)
    return found


def compare(title, program, arguments, place, config, user, names, write_inventory):
    count = len(names)
    everything = tools(program, arguments, place, config, user, names, write_inventory("all", names))
    one = place / "one"
    one.mkdir()
    single = tools(program, arguments, one, config, user, names[:1], write_inventory("one", names[:1]))
    walls = {t: [] for t in everything}
    cpus = {t: [] for t in everything}
    failed = {}
    for _ in range(arguments.rounds):
        for tool, (command, more) in everything.items():
            result = measure(command, clean_env(place, **more))
            if result.rc != 0:
                failed.setdefault(tool, []).append(f"exit {result.rc}: {result.output[-300:].decode(errors='replace').strip()}")
            walls[tool].append(result.wall)
            cpus[tool].append(result.cpu)
    memory = {}
    for tool in everything:
        peaks = [measure(c, clean_env(place, **more), watch=True).peak for c, more in (single[tool], everything[tool])]
        memory[tool] = ((peaks[1] - peaks[0]) / (count - 1), peaks[0], peaks[1])
    ours = median(walls["orchestrate"])
    rows = []
    for tool in everything:
        wall = median(walls[tool])
        each, at_one, at_all = memory[tool]
        rows.append([
            tool, f"{wall:.2f} s", f"{min(walls[tool]):.2f}–{max(walls[tool]):.2f}", "" if tool == "orchestrate" else f"{wall / ours:.1f}×",
            f"{median(cpus[tool]) / count * 1000:.2f} ms", f"{each / 1024:.0f} KiB", f"{at_one / 2**20:.0f} → {at_all / 2**20:.0f} MiB",
        ])
    print(f"### {title}\n")
    table(["tool", "wall", "range", "of ours", "CPU a host", "memory a host", f"peak at 1 → {count}"], rows)
    for tool, why in failed.items():
        print(f"{tool} failed in {len(why)} of {arguments.rounds}: {why[0]}")


def main():
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("--hosts", type=int, default=256)
    parser.add_argument("--rounds", type=int, default=3)
    parser.add_argument("--forks", type=int, default=64)
    parser.add_argument("--asyncssh", help="a python that has asyncssh")
    parser.add_argument("--only", choices=["sandbox", "sshd"])
    parser.add_argument("--bin")
    arguments = parser.parse_args()
    program = binary(arguments.bin)
    print(f"{machine()}; {arguments.hosts} hosts, {arguments.forks} at once, {arguments.rounds} rounds\n")
    if arguments.only != "sshd":
        with workplace() as place, Sandbox(program, arguments.hosts, clean_env(place)) as sandbox:
            def write(name, names):
                text = sandbox.inventory.read_text()
                kept = [l for l in text.splitlines() if "- { name:" not in l or l.split("name: ")[1].split(",")[0] in names]
                path = place / f"{name}.yaml"
                path.write_text("\n".join(kept) + "\n")
                return path
            compare("Against the sandbox", program, arguments, place, sandbox.dir / "ssh_config", "demo", sandbox.names(), write)
    if arguments.only != "sandbox":
        addresses = [f"127.0.{1 + i // 128}.{1 + i % 128}" for i in range(arguments.hosts)]
        with workplace() as place, Sshd(place, addresses) as sshd:
            def write(name, names):
                path = place / f"{name}.yaml"
                sshd.addresses = names
                path.write_text(sshd.inventory())
                return path
            compare("Against one OpenSSH server", program, arguments, place, place / "ssh_config", sshd.user, addresses, write)


main()
