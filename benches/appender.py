#!/usr/bin/env python3
"""The appender of a rank's log compared with a direct write: speed, delay of a line, and cost when idle.

    python3 benches/appender.py [--mib 1024] [--rounds 5] [--seconds 20] [--shells dash,bash,busybox]

No root, no build. For each shell as `sh` (busybox with its own tools): a wrapper with `log_through`, and one with `exec >>log 2>&1`, in
turns, with the log on the disk of the temporary directory. The time ends when the log is complete: at the wrapper's end for the direct
write, at BASE.end for the appender; also with a limit of twice the size. Besides the medians it prints the best of each, which other
programs on the machine disturb least. Three writers: 120-byte lines by `yes LINE | head -c`; a Python program that prints a quarter as many, one by one; 64 KiB
blocks of zeros by `dd`, which compute nothing: this compares one copy of memory with three. The first writer alone keeps two cores busy,
so its result needs a machine with free cores.
"""

import argparse
import shutil
import statistics
import tempfile

from common import *

LINE = "x" * 119
BASE = "run1.rank-0.0"


class Host:
    """A run's scripts, an out directory and one shell as sh."""

    def __init__(self, place, shell):
        self.dir = Path(tempfile.mkdtemp(dir=place))
        for name in ("bin", "in", "out"):
            (self.dir / name).mkdir()
        program = shutil.which(shell)
        (self.dir / "bin/sh").symlink_to(program)
        if shell == "busybox":
            for tool in "cat dd env ls mkfifo readlink rm setsid sleep tee wc".split():
                (self.dir / "bin" / tool).symlink_to(program)
        for source, target in (("append", "append"), ("pipe", "pipe")):
            shutil.copy(ROOT / f"assets/{source}.sh", self.dir / "in" / target)
        (self.dir / "through").write_text('. "$R/pipe"\nlog_through rank-0.0 || exit 99\nPATH=$RANK_PATH "$@"\nexit "$?"\n')
        (self.dir / "direct").write_text('exec >>"${F}rank-0.0.log" 2>&1\nPATH=$RANK_PATH "$@"\nexit "$?"\n')
        self.path = str(self.dir / "bin") + ("" if shell == "busybox" else ":" + os.environ["PATH"])

    def file(self, end):
        return self.dir / "out" / f"{BASE}.{end}"

    def start(self, manner, rank, limit):
        shutil.rmtree(self.dir / "out")
        (self.dir / "out").mkdir()
        env = {"PATH": self.path, "RANK_PATH": os.environ["PATH"], "R": str(self.dir / "in"), "F": str(self.dir / "out/run1."), "log_max": limit}
        return subprocess.Popen([self.dir / "bin/sh", self.dir / manner, *rank], env=env, stdin=subprocess.DEVNULL)

    def finish(self, process, manner):
        if process.wait(600) != 0:
            die(f"{manner}: exit {process.returncode}")
        end = time.monotonic() + 60
        while manner == "through" and not self.file("end").exists():
            if time.monotonic() > end:
                die("the appender does not end")
            time.sleep(0.0005)

    def run(self, manner, rank, size, limit):
        """Seconds until the log is complete."""
        start = time.monotonic()
        self.finish(self.start(manner, rank, limit), manner)
        took = time.monotonic() - start
        if self.file("log").stat().st_size != size or self.file("lost").exists():
            die(f"{manner}: the log is not complete")
        return took

    def appenders(self):
        """The processes that have the log open."""
        found = []
        for process in Path("/proc").glob("[0-9]*"):
            with contextlib.suppress(OSError):
                if any(os.readlink(fd) == str(self.file("log")) for fd in (process / "fd").iterdir()):
                    found.append(process)
        return found


def writers(size):
    count = size // 480
    program = f"import sys\nline = {LINE!r}\nfor _ in range({count}): print(line)"
    return {
        "lines, yes | head": (["sh", "-c", f"yes {LINE} | head -c {size}"], size),
        "lines, python print": ([sys.executable, "-c", program], count * 120),
        "64 KiB blocks, dd": (["dd", "if=/dev/zero", "bs=65536", f"count={size >> 16}", "status=none"], size >> 16 << 16),
    }


def delays(host, manner, count=200):
    """Milliseconds from before a line is written until it is in the file."""
    program = "import sys, time\nfor n in range(%d):\n  time.sleep(0.01)\n  print(time.monotonic_ns(), flush=True)" % count
    process = host.start(manner, [sys.executable, "-c", program], "")
    wait_for(host.file("log").exists, 10, "the log")
    seen, tail = [], b""
    with open(host.file("log"), "rb", buffering=0) as log:
        end = time.monotonic() + 60
        while len(seen) < count and time.monotonic() < end:
            piece = log.read(65536)
            now = time.monotonic_ns()
            *lines, tail = (tail + piece).split(b"\n")
            seen += [(now - int(line)) / 1e6 for line in lines]
            time.sleep(0 if piece else 0.0002)
    host.finish(process, manner)
    if len(seen) != count:
        die("lines are missing")
    return statistics.median(seen), max(seen)


def idle(host, seconds, limit):
    """PSS in KiB, percent of a core, and the number of processes."""
    process = host.start("through", ["sh", "-c", f"echo here; exec sleep {seconds + 3}"], limit)
    wait_for(lambda: host.file("log").exists() and host.file("log").stat().st_size == 5, 10, "the line")
    time.sleep(1)
    ours = host.appenders()
    ticks = lambda: sum(sum(map(int, (p / "stat").read_text().rsplit(") ", 1)[1].split()[11:15])) for p in ours)
    before = ticks()
    time.sleep(seconds)
    cpu = (ticks() - before) / os.sysconf("SC_CLK_TCK") / seconds * 100
    pss = sum(int(line.split()[1]) for p in ours for line in (p / "smaps_rollup").read_text().splitlines() if line.startswith("Pss:"))
    host.finish(process, "through")
    return pss, cpu, len(ours)


def started(host, manner):
    """Milliseconds of a wrapper with an empty rank."""
    took = []
    for _ in range(20):
        start = time.monotonic()
        process = host.start(manner, ["true"], "")
        process.wait(60)
        took.append((time.monotonic() - start) * 1e3)
        host.finish(process, manner)
    return statistics.median(took)


def main():
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("--mib", type=int, default=1024)
    parser.add_argument("--rounds", type=int, default=5)
    parser.add_argument("--seconds", type=int, default=20)
    parser.add_argument("--shells", default="dash,bash,busybox")
    arguments = parser.parse_args()
    print(f"{machine()}; {arguments.mib} MiB, {arguments.rounds} rounds in turns, medians")
    with tempfile.TemporaryDirectory() as place:
        for shell in arguments.shells.split(","):
            if not shutil.which(shell):
                print(f"\n{shell}: not run: it is not installed")
                continue
            host = Host(place, shell)
            print(f"\n{shell}")
            for name, (rank, size) in writers(arguments.mib << 20).items():
                took = {"direct": [], "through": [], "bounded": []}
                for _ in range(arguments.rounds):
                    took["direct"].append(host.run("direct", rank, size, ""))
                    took["through"].append(host.run("through", rank, size, ""))
                    took["bounded"].append(host.run("through", rank, size, str(size * 2)))
                print(f"  {name}")
                for what, of in (("median", statistics.median), ("best", min)):
                    rate = {manner: size / 1e6 / of(times) for manner, times in took.items()}
                    part = {manner: f"{rate[manner]:.0f} ({rate[manner] / rate['direct']:.0%})" for manner in rate}
                    print(f"    {what:7} direct {rate['direct']:.0f} MB/s, appender {part['through']}, with a bound {part['bounded']}", flush=True)
            for manner in ("direct", "through"):
                middle, most = delays(host, manner)
                print(f"  a line in the file, {manner:8} median {middle:.2f} ms, longest {most:.2f} ms; a wrapper of nothing {started(host, manner):.1f} ms")
            for limit in ("", "1000000000"):
                pss, cpu, count = idle(host, arguments.seconds, limit)
                print(f"  idle{', with a bound' if limit else '':14}  {count} processes, PSS {pss} KiB, {cpu:.3f} % of a core over {arguments.seconds} s")


if __name__ == "__main__":
    main()
