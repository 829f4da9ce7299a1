"""Shared by the benchmarks: a temporary OpenSSH server, a sandbox, and the measurement of a command.

Standard library only. Everything runs on loopback, every wait is bounded, and everything created is removed at the end.
The OpenSSH server needs root: it creates an unprivileged user with /bin/sh and an empty home, and removes it at the end.
"""

import contextlib
import os
import pwd
import re
import shutil
import signal
import socket
import statistics
import subprocess
import sys
import tempfile
import threading
import time
from datetime import datetime
from pathlib import Path

PAGE = os.sysconf("SC_PAGE_SIZE")
ROOT = Path(__file__).resolve().parent.parent


def die(text):
    sys.exit(f"{Path(sys.argv[0]).name}: {text}")


def binary(given):
    """The program under test: --bin, or the release build of this checkout."""
    target = Path(os.environ.get("CARGO_TARGET_DIR", ROOT / "target"))
    path = Path(given) if given else target / "dist" / "orchestrate"
    if not path.is_file():
        die(f"{path} is not there: cargo build --profile dist, or give --bin")
    return str(path.resolve())


def machine():
    """One line about this machine, without names."""
    cpu = next((l.split(":", 1)[1].strip() for l in Path("/proc/cpuinfo").read_text().splitlines() if l.startswith("model name")), "?")
    memory = int(Path("/proc/meminfo").read_text().split()[1]) / 1024 / 1024
    system = next((l.split("=", 1)[1].strip('"') for l in Path("/etc/os-release").read_text().splitlines() if l.startswith("PRETTY_NAME")), "?")
    ssh = subprocess.run(["ssh", "-V"], capture_output=True, text=True).stderr.split(",")[0].strip()
    load = os.getloadavg()[0]
    date = time.strftime("%Y-%m-%d %H:%M")
    return f"{os.cpu_count()} cores ({cpu}), {memory:.0f} GiB, {system}, {ssh}; load {load:.1f} before; {date}"


@contextlib.contextmanager
def workplace():
    """A directory that every user can enter, removed at the end."""
    path = Path(tempfile.mkdtemp(prefix="bench-"))
    path.chmod(0o755)
    try:
        yield path
    finally:
        shutil.rmtree(path, ignore_errors=True)


def clean_env(home, **more):
    """An environment without the user's agent, keys and settings."""
    env = {k: v for k, v in os.environ.items() if k in ("PATH", "LANG", "LC_ALL", "TERM")}
    env.update(HOME=str(home), USER="root", LOGNAME="root", XDG_STATE_HOME=str(home / "state"), **more)
    return env


class Sshd:
    """One OpenSSH server on every loopback address, for a user that exists only as long as the server."""

    def __init__(self, place, addresses, extra=""):
        if os.geteuid() != 0:
            die("the OpenSSH part needs root: it makes a throw-away user")
        self.place, self.addresses, self.extra = place, addresses, extra
        self.user = f"orch-bench-{os.getpid()}"
        self.home = place / "home"
        with socket.socket() as s:
            s.bind(("127.0.0.1", 0))
            self.port = s.getsockname()[1]

    def __enter__(self):
        place = self.place
        keygen = ["ssh-keygen", "-q", "-t", "ed25519", "-N", "", "-C", "bench"]
        subprocess.run([*keygen, "-f", place / "host_key"], check=True)
        subprocess.run([*keygen, "-f", place / "client_key"], check=True)
        shutil.copy(place / "client_key.pub", place / "authorized")
        (place / "authorized").chmod(0o644)
        subprocess.run(["useradd", "-M", "-d", self.home, "-s", "/bin/sh", "-p", "*", self.user], check=True)
        try:
            self.start()
        except BaseException:
            self.__exit__()
            raise
        return self

    def start(self):
        place = self.place
        self.home.mkdir()
        entry = pwd.getpwnam(self.user)
        os.chown(self.home, entry.pw_uid, entry.pw_gid)
        Path("/run/sshd").mkdir(mode=0o755, exist_ok=True)
        (place / "sshd_config").write_text(
            f"Port {self.port}\nListenAddress 0.0.0.0\nHostKey {place}/host_key\nPidFile none\n"
            f"AuthorizedKeysFile {place}/authorized\nStrictModes no\nAllowUsers {self.user}\n"
            "PasswordAuthentication no\nKbdInteractiveAuthentication no\nUsePAM no\nX11Forwarding no\nPrintMotd no\nPrintLastLog no\n"
            "MaxStartups 1000:30:1000\nLogLevel ERROR\nUseDNS no\n" + self.extra
        )
        key = " ".join((place / "host_key.pub").read_text().split()[:2])
        (place / "known_hosts").write_text("".join(f"[{a}]:{self.port} {key}\n" for a in self.addresses))
        (place / "ssh_config").write_text(
            f"Host *\n  User {self.user}\n  Port {self.port}\n  IdentityFile {place}/client_key\n  IdentitiesOnly yes\n  IdentityAgent none\n"
            f"  UserKnownHostsFile {place}/known_hosts\n  GlobalKnownHostsFile /dev/null\n  StrictHostKeyChecking yes\n  BatchMode yes\n  LogLevel ERROR\n"
        )
        self.log = open(place / "sshd.log", "wb")
        sshd = shutil.which("sshd", path="/usr/sbin:/usr/bin:/sbin") or die("there is no sshd")
        self.process = subprocess.Popen([sshd, "-D", "-e", "-f", place / "sshd_config"], stderr=self.log, stdin=subprocess.DEVNULL)
        wait_for(lambda: answers(self.port), 10, "sshd")

    def __exit__(self, *_):
        if getattr(self, "process", None):
            self.process.terminate()
            self.process.wait(10)
        # Only processes of the temporary user.
        uid = pwd.getpwnam(self.user).pw_uid
        for pid in [p for p in processes() if owner(p) == uid]:
            with contextlib.suppress(ProcessLookupError):
                os.kill(pid, signal.SIGKILL)
        wait_for(lambda: not [p for p in processes() if owner(p) == uid], 10, "the end of the user's processes")
        subprocess.run(["userdel", self.user], check=True)

    def inventory(self, extra=""):
        hosts = "".join(f"  - {{ name: {a.replace('.', '-')}, address: {a}, fabric_address: 127.0.0.1 }}\n" for a in self.addresses)
        hosts = hosts.replace("name: 127", "name: h127")
        return (
            f"name: bench\nhosts:\n{hosts}ssh:\n  user: {self.user}\n  port: {self.port}\n  config: {self.place}/ssh_config\n"
            f"  identity: {self.place}/client_key\n  known_hosts: {self.place}/known_hosts\n{extra}"
        )


class Sandbox:
    """`orchestrate sandbox` in its own process."""

    def __init__(self, program, hosts, env):
        self.command, self.env = [program, "sandbox", "--hosts", str(hosts)], env

    def __enter__(self):
        self.process = subprocess.Popen(self.command, stdout=subprocess.PIPE, text=True, env=self.env, stdin=subprocess.DEVNULL)
        line = []
        reader = threading.Thread(target=lambda: line.append(self.process.stdout.readline().strip()), daemon=True)
        reader.start()
        reader.join(60)
        if not line or not line[0]:
            self.process.kill()
            die("the sandbox did not start")
        self.inventory = Path(line[0])
        self.dir = self.inventory.parent
        return self

    def __exit__(self, *_):
        self.process.send_signal(signal.SIGINT)
        try:
            self.process.wait(60)
        except subprocess.TimeoutExpired:
            self.process.kill()
            self.process.wait()

    def names(self):
        return [l.split()[1] for l in (self.dir / "ssh_config").read_text().splitlines() if l.startswith("Host ") and "*" not in l]


def answers(port):
    with socket.socket() as s:
        s.settimeout(1)
        try:
            s.connect(("127.0.0.1", port))
            return s.recv(4) == b"SSH-"
        except OSError:
            return False


def wait_for(condition, seconds, what):
    end = time.monotonic() + seconds
    while not condition():
        if time.monotonic() > end:
            die(f"{what}: not within {seconds} s")
        time.sleep(0.02)


def processes():
    return [int(p) for p in os.listdir("/proc") if p.isdigit()]


def owner(pid):
    try:
        return os.stat(f"/proc/{pid}").st_uid
    except OSError:
        return None


def tree_rss(root):
    """Resident bytes of a process and its descendants."""
    parent, rss = {}, {}
    for pid in processes():
        try:
            with open(f"/proc/{pid}/stat", "rb") as f:
                fields = f.read().rsplit(b")", 1)[1].split()
        except OSError:
            continue
        parent[pid], rss[pid] = int(fields[1]), int(fields[21]) * PAGE
    total = 0
    for pid in rss:
        above = pid
        while above not in (0, 1, root) and above in parent:
            above = parent[above]
        if above == root:
            total += rss[pid]
    return total


ANSWERED = re.compile(r"(\S+Z)\s+DEBUG .*answered.*took_us=(\d+).*")


def answered_commands(output):
    """The intervals in which remote commands ran, from the lines of `-vv`."""
    found = []
    for match in filter(None, map(ANSWERED.match, output.decode(errors="replace").splitlines())):
        end = datetime.fromisoformat(match[1].replace("Z", "+00:00")).timestamp()
        found.append((end - int(match[2]) / 1e6, end))
    return found


def union(intervals, low, high):
    """Seconds of [low, high] that the intervals cover."""
    total, end = 0.0, low
    for a, b in sorted(intervals):
        a, b = max(a, end), min(b, high)
        if b > a:
            total += b - a
            end = b
    return total


def bytes_read(pid):
    """What a process has read by `read`: files and pipes; sockets are read by `recv`."""
    with contextlib.suppress(OSError):
        return int(Path(f"/proc/{pid}/io").read_text().split("rchar: ", 1)[1].split()[0])
    return 0


class Result:
    """The cost of one command."""

    def __init__(self, wall, cpu, rc, peak, output, read):
        self.wall, self.cpu, self.rc, self.peak, self.output, self.read = wall, cpu, rc, peak, output, read


def measure(command, env, limit=180, watch=False, stdout=None):
    """Runs a command to its end: wall, user + system time with its children, and, if watched, the peak of the tree's resident memory
    and the bytes that its first process has read."""
    with tempfile.TemporaryFile() as said:
        begin = time.monotonic()
        child = subprocess.Popen(command, env=env, stdin=subprocess.DEVNULL, stdout=stdout or said, stderr=said, start_new_session=True)
        timer = threading.Timer(limit, lambda: os.killpg(child.pid, signal.SIGKILL))
        timer.start()
        peak, read = [0], [0]
        done = threading.Event()

        def look():
            while not done.wait(0.01):
                peak[0], read[0] = max(peak[0], tree_rss(child.pid)), max(read[0], bytes_read(child.pid))

        watcher = threading.Thread(target=look, daemon=True)
        if watch:
            watcher.start()
        _, status, usage = os.wait4(child.pid, 0)
        wall = time.monotonic() - begin
        timer.cancel()
        done.set()
        if watch:
            watcher.join()
        child.returncode = os.waitstatus_to_exitcode(status)
        said.seek(0)
        output = said.read()
    peak = max(peak[0], usage.ru_maxrss * 1024) if watch else usage.ru_maxrss * 1024
    return Result(wall, usage.ru_utime + usage.ru_stime, child.returncode, peak, output, read[0])


def median(values):
    return statistics.median(values)


def table(head, rows):
    print("| " + " | ".join(head) + " |")
    print("|" + "---|" * len(head))
    for row in rows:
        print("| " + " | ".join(str(c) for c in row) + " |")
    print(flush=True)
