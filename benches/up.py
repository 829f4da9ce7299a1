#!/usr/bin/env python3
"""The time that `up` adds to the hosts' own, and the delay until the other ranks are stopped after one died. Both in the sandbox.

    cargo build --profile dist
    python3 benches/up.py [--hosts 16] [--gang 64] [--rounds 5] [--only ready|dead] [--bin FILE]

Linux, loopback only, no root needed.
ready: `up --detach --keep` where every host has the container of an ended run. It connects, gathers facts, locks, fetches and clears the
ended run, gathers facts again, checks, launches master-first and returns when all ranks are running. `-vv` logs for every remote command
when it was answered and how long it took; `beyond` is the time without a running remote command on any host: reading files, ssh_config, key
exchange, planning, and the round trips between the steps. A log stream counts as remote from the start of its phase to its end.
dead: one rank exits 1 once all are running. Every other rank records when it received TERM; all use this machine's clock. The hosts of
a sandbox share one process table, so a host's script may find the ranks of another: the first TERM counts.
"""

import argparse
import json

from common import *

JOB = "container:\n  image: demo/train:1\nlaunch:\n  with: script\n  gate: none\n  stop_grace: 10s\n  command: {command}\n"


def events(file):
    found = []
    for line in file.read_text().splitlines():
        with contextlib.suppress(ValueError):
            event = json.loads(line)
            if "kind" in event and "at" in event:
                found.append(event)
    return found


def inventory(place, sandbox, command, name):
    path = place / f"{name}.yaml"
    path.write_text(sandbox.inventory.read_text().replace("name: sandbox\n", f"name: {name}\n", 1) + JOB.format(command=json.dumps(command)))
    return path


def ended(sandbox, name, count):
    """Whether every host's newest run has ended."""
    found = 0
    for host in (sandbox.dir / "hosts").iterdir():
        runs = sorted(host.glob(f"home/.orchestrate/{name}/*.out/*.node.pid"))
        found += bool(runs) and runs[-1].with_suffix(".rc").exists()
    return found == count


def one_up(program, path, place, env):
    out = place / "events.jsonl"
    begin = time.time()
    with open(out, "wb") as stdout:
        result = measure([program, "up", "--detach", "--keep", "-vv", "--progress", "json", str(path)], {**env, "NO_COLOR": "1"}, stdout=stdout)
    if result.rc != 0:
        die(f"up: exit {result.rc}: {result.output[-2000:].decode(errors='replace')}")
    return begin, begin + result.wall, result, events(out)


def remote_times(result, seen, finish):
    """The intervals in which remote commands ran."""
    times = answered_commands(result.output)
    commands = len(times)
    streams = {}
    titles = {}
    for event in seen:
        at = event["at"] / 1000
        if event["kind"] == "run-started":
            titles = {s["id"]: s["phase"] for s in event.get("steps", [])}
        if event["kind"] == "step-started" and titles.get(event["step"]) == "fetch":
            streams[event["step"]] = at
        if event["kind"] in ("step-done", "step-satisfied") and event["step"] in streams:
            times.append((streams.pop(event["step"]), at + 0.001))
    return times, commands


def phases(seen, begin, finish):
    """The phases of the run: name, start, end."""
    marks = [("start: inventory, reporter", begin)]
    for event in seen:
        at = event["at"] / 1000
        if event["kind"] == "phase-started":
            marks.append((str(event["phase"]), at))
    last = max((e["at"] / 1000 for e in seen if e["kind"] == "notice" and "all ranks are running" in e["text"]), default=finish)
    marks.append(("end: goodbye, journal, recap", last))
    ends = [at for _, at in marks[1:]] + [finish]
    return [(name, a, b) for (name, a), b in zip(marks, ends)]


def ready(program, arguments):
    hosts = arguments.hosts
    with workplace() as place, Sandbox(program, hosts, clean_env(place)) as sandbox:
        env = clean_env(place)
        path = inventory(place, sandbox, ["sleep", "3"], "ready")
        one_up(program, path, place, env)
        rounds = []
        for _ in range(arguments.rounds):
            wait_for(lambda: ended(sandbox, "ready", hosts), 60, "the end of the run")
            begin, finish, result, seen = one_up(program, path, place, env)
            times, commands = remote_times(result, seen, finish)
            # From the last unlock on, the log streams report the start of every rank.
            running = max((e["at"] / 1000 for e in seen if e["kind"] in ("rank-started", "launcher-started")), default=finish)
            last = max(b for _, b in times)
            times.append((last, max(last, running)))
            table_of = [(name, b - a, union(times, a, b)) for name, a, b in phases(seen, begin, finish)]
            rounds.append((finish - begin, union(times, begin, finish), result.cpu, commands, table_of))
        down = measure([program, "down", "--yes", "--progress", "quiet", str(path)], env)
        if down.rc != 0:
            print(f"down: exit {down.rc}")
    beyond = [wall - own for wall, own, *_ in rounds]
    print(f"### `up` of a ready container on {hosts} sandbox hosts\n")
    rows = [[f"{w:.3f} s", f"{o:.3f} s", f"{(w - o) * 1000:.0f} ms", f"{c * 1000:.0f} ms", n] for w, o, c, n, _ in rounds]
    table(["wall", "remote commands' own", "beyond", "client CPU", "remote commands"], rows)
    print(f"median beyond: {median(beyond) * 1000:.0f} ms\n")
    middle = sorted(rounds, key=lambda r: r[0] - r[1])[len(rounds) // 2]
    rows = [[name, f"{wall * 1000:.0f} ms", f"{own * 1000:.0f} ms", f"{(wall - own) * 1000:.0f} ms"] for name, wall, own in middle[4]]
    table(["phase (the median round)", "wall", "remote", "beyond"], rows)


def dead(program, arguments):
    hosts, rounds = arguments.gang, []
    for _ in range(max(1, arguments.rounds // 2)):
        with workplace() as place, Sandbox(program, hosts, clean_env(place)) as sandbox:
            env = clean_env(place)
            go, culprit = place / "go", hosts // 2
            script = (
                f'if [ "$RANK" = {culprit} ]; then while [ ! -e {go} ]; do sleep 0.1; done; read t _ </proc/uptime; echo $t; exit 1; fi; '
                "sleep 600 & trap 'read t _ </proc/uptime; echo $t; kill $!; exit 143' TERM; wait"
            )
            path = inventory(place, sandbox, ["sh", "-c", script], "dead")
            out = place / "events.jsonl"
            with open(out, "wb") as stdout:
                up = subprocess.Popen([program, "up", "--progress", "json", str(path)], env=env, stdin=subprocess.DEVNULL, stdout=stdout, stderr=subprocess.PIPE)
                try:
                    wait_for(lambda: b'"kind":"ready"' in out.read_bytes() or up.poll() is not None, 120, "the gang")
                    time.sleep(2)
                    go.touch()
                    said = up.communicate(timeout=120)[1]
                finally:
                    up.kill()
            if up.returncode != 1:
                die(f"up: exit {up.returncode}: {said[-2000:].decode(errors='replace')}")
            logs = {p.name: p.read_text().split() for p in (place / "state").rglob("rank-*.log")}
            boot = time.time() - float(Path("/proc/uptime").read_text().split()[0])
            fell = boot + float(logs.pop(f"rank-{culprit}.log")[0])
            stopped = [boot + float(words[0]) for words in logs.values() if words]
            seen = events(out)
            known = next(e["at"] for e in seen if e["kind"] == "rank-exited" and e["rank"] == culprit) / 1000
            ordered = [e["at"] / 1000 for e in seen if e["kind"] == "ranks-signaled" and e["signal"] == "TERM"]
            turned = next(e["at"] for e in seen if e["kind"] == "goal-changed") / 1000
            first = [t for t in ordered if t <= turned + 5]
            over = max(e["at"] for e in seen if e["kind"] == "run-finished") / 1000
            rounds.append((known - fell, max(first) - known, max(stopped) - fell, median(stopped) - fell, len(stopped), over - fell))
    print(f"### One rank dead of {hosts} sandbox hosts\n")
    rows = [[f"{k * 1000:.0f} ms", f"{o * 1000:.0f} ms", f"{m:.2f} s", f"{h:.2f} s", f"{n} of {hosts - 1}", f"{e:.1f} s"] for k, o, h, m, n, e in rounds]
    table(["death → known", "known → last order given", "death → TERM, median rank", "death → TERM, last rank", "ranks stopped", "death → all removed"], rows)


def main():
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("--hosts", type=int, default=16)
    parser.add_argument("--gang", type=int, default=64)
    parser.add_argument("--rounds", type=int, default=5)
    parser.add_argument("--only", choices=["ready", "dead"])
    parser.add_argument("--bin")
    arguments = parser.parse_args()
    program = binary(arguments.bin)
    print(f"{machine()}; {arguments.rounds} rounds\n")
    if arguments.only != "dead":
        ready(program, arguments)
    if arguments.only != "ready":
        dead(program, arguments)


main()
