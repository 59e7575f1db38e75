"""The GPU host: its driver, the device files, and processes that the kernel hides."""

from __future__ import annotations

import os
from collections.abc import Callable, Iterator
from pathlib import Path

from gpumon.collect import procfs
from gpumon.commands.doctor.finding import Finding, fault, ok, warning
from gpumon.errors import CollectError
from gpumon.model import HostSnapshot

HIDING = ("hidepid=1", "hidepid=2", "hidepid=4", "hidepid=noaccess", "hidepid=invisible")
PTRACEABLE = ("hidepid=4", "hidepid=ptraceable")

_NODES = ("nvidiactl", "nvidia-uvm", "nvidia[0-9]*")


def driver(sample: Callable[[], HostSnapshot]) -> Iterator[Finding]:
    """Look at one sample of this host."""
    name = "driver"
    try:
        snapshot = sample()
    except CollectError as error:
        yield fault(name, str(error), "See dmesg; nvidia-smi should work as the same user")
        return
    if snapshot.gpu_count is None:
        words = " ".join(snapshot.errors) or "the driver can't be asked"
        yield fault(name, words, "Install or repair the NVIDIA driver, or reboot; see nvidia-smi")
        return
    versions = f"driver {snapshot.driver_version}, CUDA {snapshot.cuda_version}"
    if snapshot.gpu_count == 0:
        yield warning(name, f"{versions}, no GPU", "Look for the GPUs with lspci and dmesg")
    else:
        yield ok(name, f"{versions}, {_gpus(snapshot.gpu_count)}")
    for words in snapshot.errors:
        yield warning(name, words, "See docs/health.md, and the agent's log")
    for gpu in snapshot.gpus:
        if gpu.error is not None:
            yield fault("gpu", f"GPU {gpu.index}: {gpu.error}", "See docs/health.md, and dmesg")
    for hint, indexes in _hints(snapshot).items():
        where = ", ".join(map(str, indexes))
        text, _, cure = hint.partition(". ")
        yield warning("gpu", f"GPU {where}: {text}", cure or "See docs/health.md")


def _gpus(count: int) -> str:
    return "1 GPU" if count == 1 else f"{count} GPUs"


def _hints(snapshot: HostSnapshot) -> dict[str, list[int]]:
    found: dict[str, list[int]] = {}
    for gpu in snapshot.gpus:
        for hint in gpu.hints:
            found.setdefault(hint, []).append(gpu.index)
    return found


def devices(folder: Path = Path("/dev")) -> Iterator[Finding]:
    """Look whether this user may open NVIDIA's device files."""
    nodes = sorted({node for pattern in _NODES for node in folder.glob(pattern)})
    if not nodes:
        yield warning(
            "devices",
            f"no {folder}/nvidia*",
            "In a container pass the GPUs in (--gpus all); on a host load the driver with "
            "nvidia-smi. WSL and Jetson have none, and need none",
        )
        return
    closed = [node.name for node in nodes if not os.access(node, os.R_OK | os.W_OK)]
    if closed:
        yield fault(
            "devices",
            f"this user may not open {', '.join(closed)} in {folder}",
            "Run as the user of the service; else add it to the files' group (video, render), or "
            "see NVreg_DeviceFileMode of the driver",
        )
    else:
        yield ok("devices", f"{len(nodes)} device files of NVIDIA, all open to this user")


def processes(mounts: Path = Path("/proc/self/mounts")) -> Iterator[Finding]:
    """Look whether this user sees the processes of others, and whether pids are the host's."""
    name = "processes"
    options = _proc_options(mounts.read_text("utf-8", errors="replace"))
    group = next((int(o[4:]) for o in options if o.startswith("gid=") and o[4:].isdigit()), None)
    exempt = os.geteuid() == 0 or (group is not None and group in os.getgroups())
    if not exempt and set(options) & {*HIDING, *PTRACEABLE}:
        yield warning(
            name,
            "/proc is mounted with hidepid: owners of other people's processes are unknown",
            "Mount /proc with gid=GROUP and put the service's user in it "
            "(SupplementaryGroups=GROUP in the unit)",
        )
    elif not procfs.in_initial_pid_namespace():
        yield warning(
            name,
            "this is a pid namespace of its own: the driver's pids mean other processes here",
            "Start the container with --pid=host",
        )
    else:
        yield ok(name, "this user sees all processes of the host")


def _proc_options(mounts: str) -> list[str]:
    """Return the options of /proc; the last mount on it is the one in force."""
    options: list[str] = []
    for line in mounts.splitlines():
        fields = line.split()
        if len(fields) >= 4 and fields[1] == "/proc":
            options = fields[3].split(",")
    return options
