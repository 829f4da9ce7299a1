#!/usr/bin/env python3
"""Files and tasks beside rsync, Ansible and ssh, in turns and in one run.

    cargo build --profile dist
    apt-get install rsync ansible openssh-server
    python3 benches/files.py [--hosts 4] [--files 10000] [--mib 4096] [--rounds 3] [--only tree|big|tasks] [--without-ansible] [--bin FILE]

Linux, loopback only. `tree` and `big` need root: one OpenSSH server, a user with /bin/sh and an empty home; every "host" is another loopback
address with a home of its own. All ways use the same key and the cipher that orchestrate negotiates. Every copy is compared with its source.
Servers and clients share the machine's cores; CPU counts the laptop's side alone. The peak is the resident memory of the laptop's processes.
tree: a tree of files of 1 to 20 KiB to all hosts, first (the target does not exist) and unchanged (right after it). `push` and `prepare` (one
`sync` task on bare hosts, with preflight, lock and recap); `rsync -a`, one per host, in parallel; Ansible's `synchronize` by ansible-playbook, without
gathering facts. Ansible's `copy` needs several round trips per file: it gets the first --copied files only, once, beside `push` of the same.
big: one file to all hosts; `ssh 'tee f | sha256sum'` and `ssh 'cat >f'`, one per host, in parallel. `push` syncs the file to the disk before
its rename; `tee` does not, so `tee … ; sync f` is measured, too. `read` is what the laptop's process has read by read(2); ssh reads a copy per host.
tasks: `prepare` with ten tasks that `creates` or `unless` skip, on 64 sandbox hosts. `-vv` logs for every remote command when it was answered and how
long it took; `beyond` is the time without a running remote command on any host.
"""

import argparse
import filecmp
import random

from common import *

FLAGS = Path("/proc/cpuinfo").read_text().split("flags", 1)[-1].split("\n", 1)[0].split()
CIPHER = "aes256-gcm@openssh.com" if "aes" in FLAGS else "chacha20-poly1305@openssh.com"
TASKS = "prepare:\n" + "".join(
    f"  - {{ name: task {n}, run: exit 1, {'creates: /bin/sh' if n % 2 else 'unless: test -e /bin/sh'} }}\n" for n in range(10)
)


def make_tree(root, count):
    rng = random.Random(1)
    for n in range(count):
        folder = root / f"{n % 100:02d}" / f"{n % 7}"
        folder.mkdir(parents=True, exist_ok=True)
        (folder / f"file-{n}").write_bytes(rng.randbytes(rng.randint(1 << 10, 20 << 10)))


def equal(a, b):
    compared = filecmp.dircmp(a, b, ignore=[])
    extra = [name for name in compared.right_only if name != ".orchestrate-sync"]
    bad = compared.left_only + extra + compared.funny_files
    return not bad and all(filecmp.cmp(Path(a) / f, Path(b) / f, shallow=False) for f in compared.common_files) and all(
        equal(Path(a) / d, Path(b) / d) for d in compared.common_dirs
    )


def in_parallel(commands):
    """Runs all in parallel; fails if one of them fails."""
    starts = "".join(f'{c} & pids="$pids $!"; ' for c in commands)
    return ["sh", "-c", f"pids=''; {starts}for p in $pids; do wait $p || exit; done"]


class Hosts:
    """The addresses with their homes, and the commands against them."""

    def __init__(self, arguments, program, place, sshd, homes):
        self.arguments, self.program, self.place, self.homes = arguments, program, place, homes
        self.ssh = f"ssh -F {place}/ssh_config -c {CIPHER}"
        self.inventory = place / "inventory.yaml"
        self.inventory.write_text(sshd.inventory())
        self.results, self.cleared = {}, 0
        ansible = "".join(f"{a} home={h}\n" for a, h in homes.items())
        (place / "ansible.cfg").write_text("")
        (place / "ansible").write_text(
            f"[all]\n{ansible}[all:vars]\nansible_user={sshd.user}\nansible_python_interpreter=/usr/bin/python3\n"
            f"ansible_ssh_common_args=-F {place}/ssh_config -c {CIPHER}\n"
        )
        self.env = clean_env(
            place,
            ANSIBLE_NOCOLOR="1",
            ANSIBLE_CONFIG=str(place / "ansible.cfg"),
            ANSIBLE_LOCAL_TEMP=str(place / "ansible-tmp"),
            # The masters end soon after the measurement.
            ANSIBLE_SSH_ARGS=f"-o ControlMaster=auto -o ControlPersist=5s -o ControlPath={place}/m-%C",
        )

    def push(self, source, target):
        return [self.program, "push", "-i", str(self.inventory), "--progress", "quiet", str(source), f"~/{target}"]

    def prepare(self, source, target):
        path = self.place / "prepare.yaml"
        task = f"prepare:\n  - {{ name: tree, sync: {{ from: {source}, to: ~/{target} }} }}\n"
        path.write_text(self.inventory.read_text() + "teardown: never\nchecks: { skip: [docker, gpu-idle, gpu-count] }\n" + task)
        return [self.program, "prepare", "-i", str(path), "--preflight", "off", "--progress", "quiet"]

    def rsync(self, source, target):
        return in_parallel([f"rsync -a -e '{self.ssh}' {source}/ {a}:{h}/{target}/" for a, h in self.homes.items()])

    def playbook(self, module, source, target):
        path = self.place / f"{target}-{module.rsplit('.', 1)[-1]}.yml"
        more = ", mode: preserve" if module == "copy" else ", use_ssh_args: true, compress: false"
        task = f"{module}: {{ src: {source}/, dest: '{{{{ home }}}}/{target}/'{more} }}"
        path.write_text(f"- hosts: all\n  gather_facts: false\n  tasks:\n    - {task}\n")
        return ["ansible-playbook", "-i", str(self.place / "ansible"), str(path)]

    def clear(self, target):
        """Puts copies aside and removes a big file: ext4 makes new files slowly for minutes after many were removed."""
        self.cleared += 1
        for home in self.homes.values():
            copy = home / target
            if copy.is_dir():
                copy.rename(home / f"aside-{self.cleared}")
            else:
                copy.unlink(missing_ok=True)
        os.sync()

    def run(self, what, command, source, target):
        result = measure(command, self.env, limit=900, watch=True)
        if result.rc != 0:
            die(f"{what}: exit {result.rc}: {result.output.decode(errors='replace')[-2000:]}")
        for home in self.homes.values():
            copy = home / target
            if not (equal(source, copy) if source.is_dir() else filecmp.cmp(source, copy, shallow=False)):
                die(f"{what}: a copy differs")
        self.results.setdefault(what, []).append(result)
        print(f"{what}: {result.wall:.2f} s, CPU here {result.cpu:.2f} s, load {os.getloadavg()[0]:.0f}", file=sys.stderr, flush=True)

    def first_and_unchanged(self, what, command, source, target):
        self.clear(target)
        self.run(f"{what}, first", command, source, target)
        self.run(f"{what}, unchanged", command, source, target)

    def report(self, with_read=False):
        rows = []
        for what, of in self.results.items():
            walls = sorted(r.wall for r in of)
            row = [what, f"{median(walls):.2f} s ({walls[0]:.2f}-{walls[-1]:.2f})", f"{median([r.cpu for r in of]):.2f} s", f"{max(r.peak for r in of) >> 20} MiB"]
            rows.append(row + ([f"{max(r.read for r in of) >> 20} MiB"] if with_read else []))
        table(["what", "wall, median (range)", "CPU here", "peak memory here"] + (["read"] if with_read else []), rows)
        self.results = {}

    def ratio(self, ours, theirs):
        a, b = (median([r.wall for r in self.results[w]]) for w in (ours, theirs))
        print(f"{ours}: {a / b:.2f} x {theirs}", flush=True)


def measure_tree(hosts):
    arguments, tree, part = hosts.arguments, hosts.place / "tree", hosts.place / "part"
    make_tree(tree, arguments.files)
    make_tree(part, arguments.copied)
    for _ in range(arguments.rounds):
        hosts.first_and_unchanged("push", hosts.push(tree, "tree"), tree, "tree")
        hosts.first_and_unchanged("rsync -a", hosts.rsync(tree, "tree"), tree, "tree")
        prepare = hosts.prepare(tree, "tree")
        hosts.first_and_unchanged("prepare", prepare, tree, "tree")
        # On bare hosts a keeper stays.
        measure([prepare[0], "down", "--yes", "--discard-logs", *prepare[2:4], "--progress", "quiet"], hosts.env)
        if arguments.without_ansible:
            continue
        hosts.first_and_unchanged("synchronize", hosts.playbook("ansible.posix.synchronize", tree, "tree"), tree, "tree")
    if not arguments.without_ansible:
        few = f"{arguments.copied} files"
        hosts.first_and_unchanged(f"push, {few}", hosts.push(part, "part"), part, "part")
        hosts.first_and_unchanged(f"copy, {few}", hosts.playbook("copy", part, "part"), part, "part")
    hosts.ratio("push, first", "rsync -a, first")
    hosts.ratio("push, unchanged", "rsync -a, unchanged")
    print()
    hosts.report()
    for home in hosts.homes.values():
        shutil.rmtree(home / "tree")


def measure_big(hosts):
    arguments, big = hosts.arguments, hosts.place / "big"
    subprocess.run(["sh", "-c", f"head -c {arguments.mib << 20} /dev/urandom >{big}"], check=True)
    streams = {
        "ssh 'tee f \\| sha256sum'": "tee {0}/big | sha256sum",
        "ssh 'tee f \\| sha256sum; sync f'": "tee {0}/big | sha256sum; sync {0}/big",
        "ssh 'cat >f'": "cat >{0}/big",
    }
    ways = {what: in_parallel([f"{hosts.ssh} {a} '{of.format(h)}' <{big}" for a, h in hosts.homes.items()]) for what, of in streams.items()}
    for _ in range(arguments.rounds):
        for what, command in {"push": hosts.push(big, "big"), **ways}.items():
            hosts.clear("big")
            hosts.run(what, command, big, "big")
    for way in ways:
        hosts.ratio(way, "push")
    print()
    hosts.report(with_read=True)


def measure_files(arguments, program):
    addresses = [f"127.0.1.{n + 1}" for n in range(arguments.hosts)]
    with workplace() as place:
        homes = {address: place / "home" / address for address in addresses}
        own_home = "Subsystem sftp internal-sftp\n" + "".join(f"Match LocalAddress {a}\n  SetEnv HOME={h}\n" for a, h in homes.items())
        with Sshd(place, addresses, own_home) as sshd:
            entry = pwd.getpwnam(sshd.user)
            for home in homes.values():
                home.mkdir()
                os.chown(home, entry.pw_uid, entry.pw_gid)
            hosts = Hosts(arguments, program, place, sshd, homes)
            if arguments.only != "big":
                print(f"### {arguments.files} files of 1-20 KiB to {arguments.hosts} hosts\n")
                measure_tree(hosts)
            if arguments.only != "tree":
                print(f"### One file of {arguments.mib} MiB to {arguments.hosts} hosts\n")
                measure_big(hosts)


def measure_tasks(arguments, program):
    rows, beyond = [], []
    with workplace() as place, Sandbox(program, arguments.task_hosts, clean_env(place)) as sandbox:
        env = {**clean_env(place), "NO_COLOR": "1"}
        path = place / "tasks.yaml"
        path.write_text(sandbox.inventory.read_text().replace("name: sandbox\n", "name: skipped\n", 1) + "teardown: never\n" + TASKS)
        for _ in range(arguments.rounds):
            begin = time.time()
            result = measure([program, "prepare", "-vv", "--progress", "plain", str(path)], env)
            expected = f"skipped {10 * arguments.task_hosts}"
            if result.rc != 0 or expected not in " ".join(result.output.decode(errors="replace").split()):
                die(f"prepare: exit {result.rc}: {result.output[-2000:].decode(errors='replace')}")
            times = answered_commands(result.output)
            own = union(times, begin, begin + result.wall)
            beyond.append(result.wall - own)
            rows.append([f"{result.wall:.2f} s", f"{own:.2f} s", f"{result.wall - own:.2f} s", f"{result.cpu:.2f} s", len(times)])
        measure([program, "down", "--yes", "--progress", "quiet", str(path)], env)
    print(f"### Ten skipped tasks on {arguments.task_hosts} sandbox hosts\n")
    table(["wall", "remote commands' own", "beyond", "CPU here", "remote commands"], rows)
    print(f"median beyond: {median(beyond):.2f} s\n")


def main():
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("--hosts", type=int, default=4)
    parser.add_argument("--files", type=int, default=10_000)
    parser.add_argument("--copied", type=int, default=100)
    parser.add_argument("--mib", type=int, default=4096)
    parser.add_argument("--task-hosts", type=int, default=64)
    parser.add_argument("--rounds", type=int, default=3)
    parser.add_argument("--only", choices=["tree", "big", "tasks"])
    parser.add_argument("--without-ansible", action="store_true")
    parser.add_argument("--bin")
    arguments = parser.parse_args()
    program = binary(arguments.bin)
    print(f"{machine()}; {arguments.rounds} rounds\n", flush=True)
    if arguments.only != "tasks":
        tools = ["rsync"] + ["ansible-playbook"] * (not arguments.without_ansible)
        missing = [tool for tool in tools if not shutil.which(tool)]
        if missing:
            die(f"{' and '.join(missing)} missing: apt-get install rsync ansible")
        measure_files(arguments, program)
    if arguments.only in (None, "tasks"):
        measure_tasks(arguments, program)


if __name__ == "__main__":
    main()
