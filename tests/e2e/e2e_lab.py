"""Real hosts on one machine: Debian systems booted by systemd-nspawn, in networks of their own.

Each host has its own systemd, journal, users, sshd, cgroups and address; all share one read-only
tree and write to an overlay. The bridge between them stands in a network namespace of the lab, and
so does whoever controls them: nothing of it touches the machine's own network.
"""

from __future__ import annotations

import contextlib
import os
import shutil
import signal
import subprocess
import sys
import threading
import time
from collections.abc import Iterator
from pathlib import Path
from subprocess import PIPE

from e2e.e2e_remains import CGROUPS, clear, end_cgroups, quietly
from e2e.e2e_trees import BUILD, LOGIN

NET = "10.77.143"
EAR = """
import select, socket, sys
ear = socket.socket(socket.AF_PACKET, socket.SOCK_RAW, socket.htons(3))
print("listening", file=sys.stderr, flush=True)
while True:
    ready, _, _ = select.select([ear, sys.stdin], [], [])
    if sys.stdin in ready:
        break
    sys.stdout.buffer.write(ear.recv(65535))
"""
REBOOT = 133
"""With this code nspawn ends when the host wants to boot anew."""


def why_not() -> str | None:
    """Return why this machine can't have a lab, None where it can."""
    if os.geteuid() != 0:
        return "hosts need root"
    for program in ("systemd-nspawn", "mmdebstrap", "ip", "bridge", "ssh", "nsenter", "curl"):
        if shutil.which(program) is None:
            return f"{program} is not installed"
    if not Path("/etc/apt").is_dir():
        return "the hosts' trees are built with Debian's tools"
    probe = subprocess.run(["unshare", "--net", "--mount", "true"], capture_output=True)
    return None if probe.returncode == 0 else "no new namespaces may be made here"


class Lab:
    """The network and its hosts. Use it as a context manager: everything is gone afterwards."""

    def __init__(self, tree: Path, names: list[str]) -> None:
        self.tag = f"gpumon-e2e-{os.getpid()}"
        self.folder = BUILD / "run" / self.tag
        self.tree = tree
        self.key = self.folder / "id"
        self._tidier: subprocess.Popen[bytes] | None = None
        self.hosts = {
            name: Host(self, name, f"{NET}.{number}") for number, name in enumerate(names, start=11)
        }

    def __enter__(self) -> Lab:
        for left in (BUILD / "run").glob("gpumon-e2e-*"):
            if not Path("/proc", left.name.rpartition("-")[2]).exists():
                clear(left)
        self.folder.mkdir(parents=True)
        self._tidier = subprocess.Popen(
            [sys.executable, "-I", str(Path(__file__).with_name("e2e_remains.py")), self.folder],
            stdin=PIPE,
            start_new_session=True,
        )
        try:
            self._make()
        except BaseException:
            self.__exit__()
            raise
        return self

    def _make(self) -> None:
        run("ssh-keygen", "-q", "-t", "ed25519", "-N", "", "-C", "lab", "-f", str(self.key))
        run("ip", "netns", "add", self.tag)
        self.ip("link", "add", "br0", "type", "bridge")
        self.ip("addr", "add", f"{NET}.1/24", "dev", "br0")
        self.ip("link", "set", "br0", "up")
        self.ip("link", "set", "lo", "up")
        for host in self.hosts.values():
            host.make()
            host.power_on()
        self.write_ssh_files()
        for host in self.hosts.values():
            host.wait_until_up()

    def __exit__(self, *_: object) -> None:
        for host in self.hosts.values():
            host.power_cut()
        clear(self.folder)
        if self._tidier is not None:
            self._tidier.communicate(timeout=30)

    def ip(self, *arguments: str) -> None:
        run("ip", "-n", self.tag, *arguments)

    def inside(self, *command: str, timeout: float = 60) -> subprocess.CompletedProcess[str]:
        """Run a command of this machine in the lab's network."""
        return subprocess.run(
            ["nsenter", f"--net=/run/netns/{self.tag}", *command],
            capture_output=True,
            text=True,
            timeout=timeout,
            stdin=subprocess.DEVNULL,
        )

    @contextlib.contextmanager
    def overheard(self) -> Iterator[Path]:
        """Yield a file that has, at the end, all bytes of every packet between the hosts."""
        file = self.folder / "overheard"
        with file.open("wb") as out:
            command = ["nsenter", f"--net=/run/netns/{self.tag}", sys.executable, "-c", EAR]
            ear = subprocess.Popen(command, stdin=PIPE, stdout=out, stderr=PIPE, text=True)
            try:
                assert ear.stderr is not None
                assert ear.stderr.readline() == "listening\n"
                yield file
            finally:
                ear.communicate(timeout=10)

    def write_ssh_files(self) -> None:
        lines = [
            "Host *",
            f"  User {LOGIN}",
            f"  IdentityFile {self.key}",
            "  IdentitiesOnly yes",
            f"  UserKnownHostsFile {self.folder}/known_hosts",
            "  GlobalKnownHostsFile /dev/null",
            "  StrictHostKeyChecking yes",
            "  ConnectTimeout 5",
            "  ControlMaster auto",
            "  ControlPersist 60",
            f"  ControlPath /tmp/{self.tag}-%C",
            "  LogLevel ERROR",
        ]
        known = []
        for host in self.hosts.values():
            lines += [f"Host {host.name} {host.address}", f"  HostName {host.address}"]
            lines += [f"  HostKeyAlias {host.name}"]
            public = (host.root / "etc/ssh/ssh_host_ed25519_key.pub").read_text().split()
            known.append(f"{host.name} {public[0]} {public[1]}")
        (self.folder / "ssh_config").write_text("\n".join(lines) + "\n")
        (self.folder / "known_hosts").write_text("\n".join(known) + "\n")


class Host:
    """One Debian system."""

    def __init__(self, lab: Lab, name: str, address: str) -> None:
        self.lab, self.name, self.address = lab, name, address
        self.folder = lab.folder / name
        self.root = self.folder / "root"
        self.netns = f"{lab.tag}-{name}"
        self.port = f"v{address.rpartition('.')[2]}"
        self.groups: list[Path] = []
        self._process: subprocess.Popen[bytes] | None = None
        self._wanted = False
        self._watcher: threading.Thread | None = None

    # ---- Power. ----

    def make(self) -> None:
        """Give it a disk, an identity and a cable."""
        upper, work = self.folder / "upper", self.folder / "work"
        for folder in (upper, work, self.root):
            folder.mkdir(parents=True)
        layers = f"lowerdir={self.lab.tree},upperdir={upper},workdir={work}"
        run("mount", "-t", "overlay", self.netns, "-o", layers, str(self.root))
        etc = self.root / "etc"
        etc.joinpath("machine-id").write_text(os.urandom(16).hex() + "\n")
        etc.joinpath("hostname").write_text(self.name + "\n")
        names = [f"{host.address} {host.name}" for host in self.lab.hosts.values()]
        etc.joinpath("hosts").write_text("\n".join(["127.0.0.1 localhost", *names]) + "\n")
        key = etc / "ssh/ssh_host_ed25519_key"
        run("ssh-keygen", "-q", "-t", "ed25519", "-N", "", "-C", self.name, "-f", str(key))
        home = self.root / "home" / LOGIN
        keys = home / ".ssh/authorized_keys"
        shutil.copy(f"{self.lab.key}.pub", keys)
        os.chown(keys, home.stat().st_uid, home.stat().st_gid)
        run("ip", "netns", "add", self.netns)
        self.lab.ip("link", "add", self.port, "type", "veth", "peer", "eth0", "netns", self.netns)
        self.lab.ip("link", "set", self.port, "master", "br0")
        run("ip", "-n", self.netns, "addr", "add", f"{self.address}/24", "dev", "eth0")

    def power_on(self) -> None:
        self._wanted = True
        self._boot()
        self._watcher = threading.Thread(target=self._watch, name=self.name, daemon=True)
        self._watcher.start()

    def _boot(self) -> None:
        for namespace, link in (
            (self.netns, "lo"),
            (self.netns, "eth0"),
            (self.lab.tag, self.port),
        ):
            run("ip", "-n", namespace, "link", "set", link, "up")
        self.groups = make_cgroups(self.netns)
        (self.folder / "cgroups").write_text("".join(f"{group}\n" for group in self.groups))
        command = [
            "systemd-nspawn", "--quiet", "--register=no", "--keep-unit",
            f"--directory={self.root}", f"--machine={self.netns}", f"--hostname={self.name}",
            f"--network-namespace-path=/run/netns/{self.netns}", "--resolv-conf=off",
            "--timezone=off", "--link-journal=no", "--console=pipe", "--kill-signal=SIGRTMIN+3",
            "--capability=CAP_NET_ADMIN,CAP_NET_RAW,CAP_BPF,CAP_PERFMON,CAP_IPC_LOCK,CAP_SYSLOG",
            "--system-call-filter=bpf", "/usr/local/sbin/gpumon-lab-init",
        ]  # fmt: skip
        with (self.folder / "console.log").open("ab") as console:
            self._process = subprocess.Popen(
                command,
                stdin=subprocess.DEVNULL,
                stdout=console,
                stderr=console,
                env={**os.environ, "SYSTEMD_NSPAWN_API_VFS_WRITABLE": "network"},
                start_new_session=True,
                preexec_fn=self._enter_cgroups,
            )

    def _enter_cgroups(self) -> None:
        for group in self.groups:
            (group / "cgroup.procs").write_text("0")

    def _watch(self) -> None:
        """Boot it again when it wants to."""
        while self._wanted and self._process is not None:
            if self._process.wait() != REBOOT or not self._wanted:
                return
            self._boot()

    def power_cut(self) -> None:
        """Pull the plug, and end whatever is left of it."""
        self._wanted = False
        self.thaw()
        # Else the kernel, which the hosts share, would answer for it that nothing listens.
        quietly("ip", "-n", self.lab.tag, "link", "set", self.port, "down")
        leader = self.leader()
        if leader is not None:
            with contextlib.suppress(ProcessLookupError):
                os.kill(leader, signal.SIGKILL)
        if self._process is not None:
            with contextlib.suppress(subprocess.TimeoutExpired):
                self._process.wait(10)
        end_cgroups(self.groups)
        if self._process is not None and self._process.poll() is None:
            self._process.kill()
            self._process.wait(10)

    def leader(self) -> int | None:
        """Return the pid, outside, of the host's systemd."""
        if self._process is None or self._process.poll() is not None:
            return None
        children = Path(f"/proc/{self._process.pid}/task/{self._process.pid}/children")
        with contextlib.suppress(OSError):
            found = children.read_text().split()
            return int(found[0]) if found else None
        return None

    def wait_until_up(self, seconds: float = 60) -> None:
        """Wait until it answers SSH."""
        end = time.monotonic() + seconds
        command = ["ssh", "-F", str(self.lab.folder / "ssh_config"), "-o", "ConnectTimeout=1"]
        # A connection that is kept would speak for the host as it was before.
        command += ["-o", "ControlPath=none", self.name, "true"]
        while time.monotonic() < end:
            if self.lab.inside(*command).returncode == 0:
                return
            time.sleep(0.2)
        console = (self.folder / "console.log").read_text(errors="replace")
        raise AssertionError(f"{self.name} did not come up:\n{console[-3000:]}")

    def wait_until_booted(self, before: int | None, seconds: float = 60) -> None:
        """Wait until it answers SSH with another systemd than the one of that pid."""
        end = time.monotonic() + seconds
        while self.leader() in (before, None):
            assert time.monotonic() < end, f"{self.name} does not boot"
            time.sleep(0.1)
        self.wait_until_up(seconds)

    # ---- Faults. ----

    def cut(self) -> None:
        """Let every packet vanish."""
        run("bridge", "-n", self.lab.tag, "link", "set", "dev", self.port, "state", "0")

    def heal(self) -> None:
        run("bridge", "-n", self.lab.tag, "link", "set", "dev", self.port, "state", "3")

    def freeze(self) -> None:
        """Hang every process; the kernel still takes connections."""
        self._freezer("FROZEN", "1")

    def thaw(self) -> None:
        self._freezer("THAWED", "0")

    def _freezer(self, old: str, new: str) -> None:
        for group in self.groups:
            for name, word in (("freezer.state", old), ("cgroup.freeze", new)):
                if (group / name).exists() and group.is_relative_to(CGROUPS / "freezer"):
                    (group / name).write_text(word)
                    return

    # ---- Use. ----

    def run(self, *command: str, timeout: float = 60) -> subprocess.CompletedProcess[str]:
        """Run a command on it as root, without SSH."""
        leader = self.leader()
        assert leader is not None, f"{self.name} is off"
        return subprocess.run(
            ["nsenter", "-t", str(leader), "-m", "-u", "-i", "-n", "-p", "-C", "--", *command],
            capture_output=True,
            text=True,
            timeout=timeout,
            stdin=subprocess.DEVNULL,
        )

    def ask(self, *command: str) -> str:
        """Return what a command on it prints; it has to succeed."""
        done = self.run(*command)
        assert done.returncode == 0, f"{self.name}: {' '.join(command)}: {done.stderr}"
        return done.stdout.strip()

    def write(self, path: str, text: str, mode: int = 0o644) -> None:
        target = self.root / path.lstrip("/")
        target.parent.mkdir(parents=True, exist_ok=True)
        target.write_text(text)
        target.chmod(mode)


def make_cgroups(name: str) -> list[Path]:
    """Return new groups below this process's own, one in each hierarchy."""
    groups = []
    for line in Path("/proc/self/cgroup").read_text().splitlines():
        _, controllers, path = line.split(":", 2)
        hierarchy = CGROUPS / (controllers.removeprefix("name=") or "unified")
        if not controllers and not hierarchy.exists():
            hierarchy = CGROUPS
        above = hierarchy / path.lstrip("/")
        if not (above / "cgroup.procs").exists():
            continue
        group = above / name
        group.mkdir(exist_ok=True)
        for key in ("cpuset.cpus", "cpuset.mems"):  # in v1 they start empty
            if hierarchy.name == "cpuset":
                (group / key).write_text((above / key).read_text())
        groups.append(group)
    return groups


def run(*command: str) -> None:
    done = subprocess.run(command, capture_output=True, text=True, timeout=60)
    assert done.returncode == 0, f"{' '.join(command)}: {done.stderr}"
