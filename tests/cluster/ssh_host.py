"""A real sshd on loopback with keys and configuration of its own, and a stand-in for nvidia-smi."""

from __future__ import annotations

import asyncio
import json
import os
import pwd
import shutil
import socket
import subprocess
import sys
import time
from collections.abc import Awaitable, Callable
from contextlib import suppress
from pathlib import Path
from typing import Any, TypeVar

import msgspec

from gpumon.cluster.sources.ssh.login import Logins
from gpumon.cluster.sources.ssh.source import SshSource
from gpumon.config import Config, HostEntry, SshConfig

USER = pwd.getpwuid(os.geteuid()).pw_name
SSHD = shutil.which("sshd", path="/usr/sbin:/usr/local/sbin:/usr/bin")

Result = TypeVar("Result")

GPU = {
    "uuid": "GPU-11111111-2222-3333-4444-555555555555",
    "pci.bus_id": "00000000:3B:00.0",
    "name": "NVIDIA A100-SXM4-80GB",
    "count": 1,
    "driver_version": "550.90.12",
    "index": 0,
    "utilization.gpu": 97,
    "utilization.memory": 41,
    "memory.total": 81920,
    "memory.used": 20500,
    "memory.free": 60807,
    "memory.reserved": 613,
    "temperature.gpu": 61,
    "power.draw": "301.42",
    "enforced.power.limit": "400.00",
    "clocks.current.sm": 1410,
    "clocks.current.memory": 1593,
    "fan.speed": "[N/A]",
    "pstate": "P0",
    "clocks_event_reasons.active": "0x0000000000000004",
    "ecc.mode.current": "Enabled",
    "ecc.errors.corrected.volatile.total": 0,
    "ecc.errors.uncorrected.volatile.total": 0,
    "ecc.errors.corrected.aggregate.total": 2,
    "ecc.errors.uncorrected.aggregate.total": 0,
    "compute_mode": "Default",
    "persistence_mode": "Enabled",
    "retired_pages.pending": "No",
    "pcie.link.gen.current": 4,
    "pcie.link.width.current": 16,
    "mig.mode.current": "Disabled",
}


def a_row(index: int = 0, **fields: Any) -> dict[str, Any]:
    """One GPU as nvidia-smi prints it; names of columns with "_" for "."."""
    row = {**GPU, "index": index, "uuid": f"GPU-{index:04}"}
    for name, value in fields.items():
        matching = [key for key in row if key.replace(".", "_") == name]
        row[matching[0] if matching else name] = value
    return row


def a_process_row(pid: int, gpu: int = 0, **fields: Any) -> dict[str, Any]:
    row = {"gpu_uuid": f"GPU-{gpu:04}", "pid": pid, "used_gpu_memory": 19000}
    return {**row, "process_name": "/opt/conda/bin/python", **fields}


class SshHost:
    """The host. `scenario` says what nvidia-smi prints; call `says` to change it."""

    def __init__(self, folder: Path, **sshd: str) -> None:
        self.folder = folder
        self.port = _free_port()
        self._made: set[str] = set()
        for name in ("host", "client", "other"):
            self.make_key(name)
        self.authorize("client")
        self.known_hosts = folder / "known_hosts"
        self.know("host")
        self.bin = folder / "bin"
        self.bin.mkdir()
        fake = Path(__file__).with_name("fake_smi.py").read_text("utf-8")
        program = self.bin / "nvidia-smi"
        program.write_text(f"#!{os.path.realpath(sys.executable)} -SE\n{fake}")
        program.chmod(0o755)
        self.options = {
            "Port": str(self.port),
            "ListenAddress": "127.0.0.1",
            "HostKey": str(folder / "host"),
            "PidFile": "none",
            "AuthorizedKeysFile": str(folder / "authorized_keys"),
            "StrictModes": "no",
            "UsePAM": "no",
            "PasswordAuthentication": "no",
            "KbdInteractiveAuthentication": "no",
            "PermitRootLogin": "prohibit-password",
            "SetEnv": f"PATH={self.bin}:/usr/bin:/bin",
            **sshd,
        }
        self._sshd: subprocess.Popen[bytes] | None = None
        self.says([a_row()], [])

    def make_key(self, name: str, passphrase: str = "") -> Path:
        path = self.folder / name
        subprocess.run(
            ["ssh-keygen", "-q", "-t", "ed25519", "-N", passphrase, "-f", str(path)], check=True
        )
        return path

    def authorize(self, key: str, options: str = "") -> None:
        public = (self.folder / f"{key}.pub").read_text()
        (self.folder / "authorized_keys").write_text(f"{options} {public}".lstrip())

    def know(self, key: str) -> None:
        """Write the key of that name as the host's into known_hosts."""
        public = " ".join((self.folder / f"{key}.pub").read_text().split()[:2])
        self.known_hosts.write_text(f"[127.0.0.1]:{self.port} {public}\n")

    def says(self, gpus: Any, processes: Any = (), **more: Any) -> None:
        """Let nvidia-smi print these rows, or do what the mappings say (see fake_smi.py)."""
        rows = processes if isinstance(processes, dict) else list(processes)
        text = json.dumps({"gpus": gpus, "processes": rows, **more})
        fresh = self.bin / "scenario.new"
        fresh.write_text(text)
        fresh.replace(self.bin / "scenario.json")

    def calls(self) -> list[list[str]]:
        """The pids and options of all nvidia-smi that were started."""
        path = self.bin / "calls"
        return [line.split() for line in path.read_text().splitlines()] if path.exists() else []

    def __enter__(self) -> SshHost:
        self.start()
        return self

    def __exit__(self, *_: object) -> None:
        self.stop()

    def start(self) -> None:
        """Start sshd with `options` and wait until it listens."""
        config = self.folder / "sshd_config"
        config.write_text("".join(f"{key} {value}\n" for key, value in self.options.items()))
        if os.geteuid() == 0:
            os.makedirs("/run/sshd", exist_ok=True)
        assert SSHD is not None
        with (self.folder / "sshd.log").open("ab") as log:
            self._sshd = subprocess.Popen([SSHD, "-D", "-e", "-f", str(config)], stderr=log)
        deadline = time.monotonic() + 10
        while time.monotonic() < deadline:
            with socket.socket() as probe:
                if probe.connect_ex(("127.0.0.1", self.port)) == 0:
                    return
            assert self._sshd.poll() is None, (self.folder / "sshd.log").read_text()
            time.sleep(0.02)
        raise AssertionError("sshd did not listen in time")

    def sessions(self) -> list[int]:
        """The pids of sshd's processes that serve a connection."""
        assert self._sshd is not None
        return _descendants(self._sshd.pid, name="sshd")

    def stop(self) -> None:
        """End sshd and the sessions that it serves."""
        if self._sshd is None:
            return
        for pid in self.sessions():
            kill(pid)
        self._sshd.kill()
        self._sshd.wait(5)
        self._sshd = None

    def entry(self, **fields: Any) -> HostEntry:
        entry = HostEntry(
            name="gpu-ssh",
            source="ssh",
            address=f"ssh://127.0.0.1:{self.port}",
            host="127.0.0.1",
            port=self.port,
        )
        return msgspec.structs.replace(entry, **fields)

    def config(self, **fields: Any) -> Config:
        ssh = SshConfig(user=USER, key_file=self.folder / "client", known_hosts=self.known_hosts)
        return msgspec.structs.replace(
            Config(hosts=[self.entry()], ssh=ssh, rpc_timeout=8.0), **fields
        )

    def run(self, work: Callable[[SshSource], Awaitable[Result]], **fields: Any) -> Result:
        """Run `work` with a source for this host."""

        async def go() -> Result:
            logins = Logins(self.config(**fields))
            source = SshSource(self.entry(), logins)
            try:
                return await asyncio.wait_for(work(source), 30)
            finally:
                await source.close()
                await logins.close()

        return asyncio.run(go())


def kill(pid: int) -> None:
    """End one process, if it is still there."""
    with suppress(ProcessLookupError):
        os.kill(pid, 9)


def is_running(pid: int) -> bool:
    """Whether the process runs: one that only waits to be collected does not."""
    try:
        state = Path(f"/proc/{pid}/stat").read_text().rpartition(")")[2].split()[0]
    except (FileNotFoundError, ProcessLookupError):
        return False
    return state != "Z"


def _descendants(pid: int, name: str) -> list[int]:
    children: dict[int, list[tuple[int, str]]] = {}
    for folder in Path("/proc").iterdir():
        if folder.name.isdigit():
            try:
                stat = (folder / "stat").read_text()
            except OSError:
                continue
            parent = int(stat.rpartition(")")[2].split()[1])
            program = stat.partition("(")[2].rpartition(")")[0]
            children.setdefault(parent, []).append((int(folder.name), program))
    found, queue = [], [pid]
    while queue:
        for child, program in children.get(queue.pop(), []):
            queue.append(child)
            if program.startswith(name):
                found.append(child)
    return found


def _free_port() -> int:
    with socket.socket() as probe:
        probe.bind(("127.0.0.1", 0))
        return int(probe.getsockname()[1])
