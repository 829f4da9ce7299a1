#!/usr/bin/env python3
"""The cost of the dashboard on a terminal of 200 columns and 60 rows, and its delay.

    cargo build --profile dist && cargo bench --no-run --bench dashboard
    python3 benches/dashboard.py [--only idle|flood|sandbox] [--seconds 60] [--rounds 5] [--bin FILE] [--bench FILE]

Linux, loopback only, no root needed; it ends by itself.
idle: `replay` of a journal of 64 hosts with 8 GPUs each, with values once a second and without values: CPU time of the whole program, from
the scheduler's accounting of its threads.
flood: 64 ranks write 100,000 lines a second through the reporter, which stores them on disk, once without a display and once with the
dashboard. Ten times a second a key is pressed, and the time until its screen appears is measured. The memory is each program's peak.
sandbox: `up --progress tui` on 8 hosts over SSH. A rank writes lines and records the times; the terminal shows its log. Another rank dies and
records the time. The delay ends when either is on the screen. This file keeps the screen's cells like a terminal, since a frame may add
several lines at once. `cargo bench --bench dashboard` measures the cost of a frame.
"""

import argparse
import codecs
import fcntl
import json
import pty
import re
import struct
import termios

from common import *

SIZE = (60, 200)
RUN = "20261121-120000-0000"


class Grid:
    """The cells of a terminal; understands only the dashboard's sequences."""

    def __init__(self):
        self.cells, self.x, self.y, self.rest = [[" "] * SIZE[1] for _ in range(SIZE[0])], 0, 0, ""

    def feed(self, text):
        text = self.rest + text
        done = 0
        for part in re.finditer(r"\x1b\[([?\d;]*)([A-Za-z])|\x1b\][^\x07]*\x07|\x1b[^\[\]]|([\r\n])|([^\x1b\r\n]+)", text):
            done = part.end()
            numbers, letter, turn, plain = part.groups()
            if plain:
                for c in plain:
                    if self.x < SIZE[1]:
                        self.cells[self.y][self.x] = c
                    self.x += 1
            elif turn == "\r":
                self.x = 0
            elif turn == "\n":
                self.y = min(self.y + 1, SIZE[0] - 1)
            elif letter in ("H", "C", "G", "J") and "?" not in numbers:
                args = [int(n or 1) for n in numbers.split(";")]
                if letter == "H":
                    self.y, self.x = min(args[0], SIZE[0]) - 1, (args[1] if len(args) > 1 else 1) - 1
                elif letter == "C":
                    self.x += args[0]
                elif letter == "G":
                    self.x = args[0] - 1
                else:
                    self.cells = [[" "] * SIZE[1] for _ in range(SIZE[0])]
        self.rest = text[done:]

    def rows(self):
        return ["".join(row) for row in self.cells]


class Screen:
    """A program in a terminal; keeps its output with times."""

    def __init__(self, command, env):
        self.pieces, self.text = [], b""
        self.changed = threading.Condition()
        master, slave = pty.openpty()
        fcntl.ioctl(slave, termios.TIOCSWINSZ, struct.pack("HHHH", *SIZE, 0, 0))
        env = {**env, "TERM": "xterm-256color", "LC_ALL": "C.UTF-8"}
        self.process = subprocess.Popen(command, stdin=slave, stdout=slave, stderr=slave, env=env, start_new_session=True)
        os.close(slave)
        self.master = master
        self.reader = threading.Thread(target=self.read, daemon=True)
        self.reader.start()

    def read(self):
        while True:
            try:
                data = os.read(self.master, 1 << 16)
            except OSError:
                data = b""
            if not data:
                return
            if b"\x1b[6n" in data:
                # Answers the query for the cursor position like a terminal.
                os.write(self.master, b"\x1b[1;1R")
            with self.changed:
                self.pieces.append((time.time(), len(self.text), data))
                self.text += data
                self.changed.notify_all()

    def press(self, keys):
        os.write(self.master, keys.encode())

    def mark(self):
        with self.changed:
            return len(self.text)

    def wait(self, wanted, start, seconds=30):
        """The time when all of `wanted` (bytes) was there, searched from `start`; None: not in time."""
        end = time.monotonic() + seconds
        with self.changed:
            while True:
                at = self.text.find(wanted, start)
                if at >= 0:
                    last = at + len(wanted)
                    return next(when for when, begin, data in self.pieces if begin + len(data) >= last)
                left = end - time.monotonic()
                if left <= 0 or not self.changed.wait(left):
                    return None

    def first(self, pattern):
        """The time of the first frame with each text that matches the pattern."""
        grid, seen, text = Grid(), {}, codecs.getincrementaldecoder("utf-8")("replace")
        with self.changed:
            pieces = list(self.pieces)
        for when, _, data in pieces:
            grid.feed(text.decode(data))
            if b"\x1b[?2026l" in data:
                for found in re.findall(pattern, "\n".join(grid.rows())):
                    seen.setdefault(found, when)
        return seen

    def frames(self):
        """The size of every frame in bytes."""
        with self.changed:
            return [len(f) for f in re.findall(rb"\x1b\[\?2026h(.*?)\x1b\[\?2026l", self.text, re.S)]

    def end(self, keys="Q"):
        with contextlib.suppress(OSError):
            self.press(keys)
        try:
            self.process.wait(60)
        except subprocess.TimeoutExpired:
            self.process.kill()
            self.process.wait()
        self.reader.join(5)
        os.close(self.master)


def cpu(pid):
    """CPU seconds of a process's living threads."""
    total = 0
    for task in os.listdir(f"/proc/{pid}/task"):
        with contextlib.suppress(OSError):
            total += int(Path(f"/proc/{pid}/task/{task}/schedstat").read_text().split()[0])
    return total / 1e9


def peak(pid):
    with contextlib.suppress(OSError):
        for line in Path(f"/proc/{pid}/status").read_text().splitlines():
            if line.startswith("VmHWM:"):
                return int(line.split()[1]) / 1024
    return 0


def part(values, share):
    values = sorted(values)
    return values[min(len(values) - 1, int(len(values) * share))] if values else float("nan")


def journal(state, seconds, samples):
    folder = state / "orchestrate" / "runs" / RUN
    shutil.rmtree(folder, ignore_errors=True)
    folder.mkdir(parents=True)
    seq, begin = 0, 1_795_262_400_000

    def event(at, kind, **fields):
        nonlocal seq
        seq += 1
        return json.dumps({"seq": seq, "at": begin + at, "kind": kind, **fields}) + "\n"

    head = '{"format":"1.2","orchestrate":"0.1.0"}\n'
    hosts = [f"gpu{n:02}" for n in range(64)]
    ranks = [{"rank": n, "host": n // 8, "local_rank": n % 8} for n in range(512)]
    fields = dict(format="1.2", name="bench", run=RUN, command="up", attempt=1, hosts=hosts, ranks=ranks, steps=[])
    lines = [head, event(0, "run-started", **fields)]
    lines += [event(1, "host-connected", host=n, clock_offset=1, uncertainty=1) for n in range(64)]
    lines += [event(2, "rank-started", host=n // 8, rank=n, restart=0, when=begin) for n in range(512)]
    lines += [event(3, "ready"), event((seconds + 60) * 1000, "notice", host=None, text="the end", warn=False)]
    (folder / "journal.jsonl").write_text("".join(lines))
    with open(folder / "gpus.jsonl", "w") as out:
        out.write(head)
        for second in range(seconds if samples else 0):
            for host in range(64):
                wave = [(host * 7 + g * 13 + second * 5) % 40 for g in range(8)]
                gpus = [
                    dict(index=g, uuid=f"GPU-{host}-{g}", name="NVIDIA H100 80GB HBM3", utilization=60 + w, memory_used=60000 + 100 * w,
                         memory_total=81559, power=500 + 5 * w, power_limit=700, temperature=50 + w // 2, clock=1900 - w, clock_max=1980, reasons=0)
                    for g, w in enumerate(wave)
                ]
                out.write(event(second * 1000 + host * 15, "gpus", host=host, gpus=gpus))


def idle(program, arguments):
    rows = []
    with workplace() as place:
        env = clean_env(place)
        for name, samples, key in [("64 × 8 at 1 Hz, overview", True, "1"), ("64 × 8 at 1 Hz, GPUs", True, "5"), ("no samples", False, "1")]:
            journal(place / "state", arguments.seconds + 20, samples)
            screen = Screen([program, "replay", RUN], env)
            if screen.wait(b"Overview", 0) is None:
                die("the dashboard did not come")
            screen.press(key)
            time.sleep(8)
            before, frames, load = cpu(screen.process.pid), len(screen.frames()), os.getloadavg()[0]
            time.sleep(arguments.seconds)
            took, drawn = cpu(screen.process.pid) - before, screen.frames()[frames:]
            memory = peak(screen.process.pid)
            screen.end()
            rows.append([name, f"{took / arguments.seconds * 100:.2f} %", f"{len(drawn) / arguments.seconds:.1f}",
                         f"{part(drawn, 0.5):.0f}", f"{memory:.0f} MB", f"{load:.1f}"])
    print(f"### Idle, {arguments.seconds} s at {SIZE[1]}x{SIZE[0]}\n")
    table(["journal", "of a core", "frames/s", "bytes a frame", "peak memory", "load"], rows)


def flood(arguments):
    bench = arguments.bench or newest_bench()
    rows, costs = [], {}
    for output in ["quiet", "tui"]:
        with workplace() as place:
            env = clean_env(place)
            screen = Screen([bench, "flood", output, "20", str(place)], env)
            keys, memory = [], 0
            begin = time.monotonic()
            while screen.process.poll() is None and time.monotonic() - begin < 120:
                memory = max(memory, peak(screen.process.pid))
                if output == "tui" and time.monotonic() - begin > 1:
                    for key, wanted in (("3", b"[Ranks]"), ("1", b"[Overview]")):
                        start, sent = screen.mark(), time.time()
                        with contextlib.suppress(OSError):
                            screen.press(key)
                        came = screen.wait(wanted, start, 2)
                        if came:
                            keys.append((came - sent) * 1000)
                time.sleep(0.1)
            frames = screen.frames()
            screen.end()
            result = json.loads((place / "flood.json").read_text())
        costs[output] = result["cpu"] / result["wall"] * 100
        rows.append([output, f"{result['lines'] / result['wall']:.0f}", f"{costs[output]:.1f} %", "yes" if result["whole"] else "NO",
                     f"{memory:.0f} MB", f"{part(keys, 0.5):.0f} / {part(keys, 0.99):.0f} ms ({len(keys)})" if keys else "",
                     f"{part(frames, 0.5):.0f} / {max(frames)}" if frames else "", f"{os.getloadavg()[0]:.1f}"])
    print("### A flood: 100,000 lines a second of 64 ranks\n")
    table(["output", "lines/s", "of a core", "all kept", "peak memory", "key to frame p50 / p99", "bytes a frame p50 / most", "load"], rows)
    print(f"cost of the dashboard beyond the same without it: {costs['tui'] - costs['quiet']:.1f} % of a core\n")


def newest_bench():
    target = Path(os.environ.get("CARGO_TARGET_DIR", ROOT / "target"))
    found = [f for f in (target / "release" / "deps").glob("dashboard-*") if f.suffix == "" and os.access(f, os.X_OK)]
    return str(max(found, key=lambda f: f.stat().st_mtime)) if found else die("cargo bench --no-run --bench dashboard first, or give --bench")


RANK = """
import os, random, sys, time
place, rank = sys.argv[1], int(os.environ["NODE_RANK"])
for n in range(100000):
    if rank == 0:
        last = "x" + "".join(random.choice("abcdefghijklmnopqrstuvw") for _ in range(22)) + "x"
        with open(place + "/lines", "a") as out:
            out.write(f"{last} {time.time()}\\n")
        print(last, flush=True)
        time.sleep(0.2 + random.random() / 3)
    elif rank == 5:
        if os.path.exists(place + "/die"):
            with open(place + "/died", "w") as out:
                out.write(str(time.time()))
            sys.exit(3)
        time.sleep(0.01)
    else:
        print(f"step {n} loss 2.318 tokens/s 51000", flush=True)
        time.sleep(1)
"""


def sandbox(program, arguments):
    lines, deaths, costs = [], [], []
    for number in range(arguments.rounds):
        with workplace() as place, Sandbox(program, 8, clean_env(place)) as cluster:
            (place / "rank.py").write_text(RANK)
            path = place / "bench.yaml"
            job = f"launch:\n  with: script\n  gate: none\n  stop_grace: 5s\n  command: [python3, {place}/rank.py, {place}]\n"
            path.write_text(cluster.inventory.read_text().replace("name: sandbox\n", "name: bench\n", 1) + job)
            screen = Screen([program, "up", "--progress", "tui", str(path)], clean_env(place))
            wait_for(lambda: (place / "lines").exists(), 60, "the first line")
            screen.press("4")
            time.sleep(3)
            before, begun = cpu(screen.process.pid), time.time()
            seconds = arguments.seconds if number == 0 else 5
            time.sleep(seconds)
            costs.append((cpu(screen.process.pid) - before) / seconds * 100)
            noted, shown = [l.split() for l in (place / "lines").read_text().splitlines()], screen.first("x[a-w]{22}x")
            for text, at in [(t, float(a)) for t, a in noted if begun < float(a) < time.time() - 2]:
                lines.append((shown[text] - at) * 1000 if text in shown else float("inf"))
            screen.press("3")
            time.sleep(1)
            mark = screen.mark()
            (place / "die").touch()
            came = screen.wait(b"exit 3", mark, 10)
            deaths.append((came - float((place / "died").read_text())) * 1000 if came else float("inf"))
            screen.end("")
    print(f"### 8 sandbox hosts over SSH, {arguments.rounds} runs\n")
    rows = [["a line → the screen", len(lines), f"{part(lines, 0.5):.0f} ms", f"{part(lines, 0.99):.0f} ms", f"{max(lines):.0f} ms"],
            ["a dead rank → the screen", len(deaths), f"{part(deaths, 0.5):.0f} ms", "", f"{max(deaths):.0f} ms"]]
    table(["", "of", "median", "p99", "worst"], rows)
    print(f"CPU of `up --progress tui` meanwhile: {costs[0]:.1f} % of a core over {arguments.seconds} s; load {os.getloadavg()[0]:.1f}\n")


def main():
    parser = argparse.ArgumentParser()
    parser.add_argument("--only", choices=["idle", "flood", "sandbox"])
    parser.add_argument("--seconds", type=int, default=60)
    parser.add_argument("--rounds", type=int, default=5)
    parser.add_argument("--bin")
    parser.add_argument("--bench")
    arguments = parser.parse_args()
    print(machine() + "\n")
    if arguments.only in (None, "idle"):
        idle(binary(arguments.bin), arguments)
    if arguments.only in (None, "flood"):
        flood(arguments)
    if arguments.only in (None, "sandbox"):
        sandbox(binary(arguments.bin), arguments)


main()
