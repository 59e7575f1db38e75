"""What a reader must know about the machine before any figure."""

from __future__ import annotations

import importlib.metadata
import os
import platform
import shlex
import time
from pathlib import Path

LIBRARIES = ("nvidia-ml-py", "msgspec", "psutil", "bottle", "hypercorn")


def heading(
    command: list[str],
    title: str = "What the agent costs",
    world: str = "8 H100 of the fake NVML; processes: real ones",
) -> str:
    """Return the lines that stand above the tables."""
    load = ", ".join(f"{value:.2f}" for value in os.getloadavg())
    libraries = ", ".join(f"{name} {importlib.metadata.version(name)}" for name in LIBRARIES)
    return "\n".join(
        [
            f"# {title}",
            "",
            f"* command: `{shlex.join(command)}`, {time.strftime('%Y-%m-%d %H:%M')}",
            f"* machine: {len(os.sched_getaffinity(0))} cores ({cpu_name()}), "
            f"{platform.system()} {platform.release()}, load at the start {load}",
            f"* Python {platform.python_version()}; {libraries}",
            f"* GPUs: {world}",
            "* figures are medians of interleaved rounds, with (lowest-highest); "
            "absolute ones differ from machine to machine, ratios hardly",
            "",
        ]
    )


def cpu_name() -> str:
    try:
        lines = Path("/proc/cpuinfo").read_text().splitlines()
    except OSError:
        lines = []
    for line in lines:
        if line.startswith("model name"):
            return line.partition(":")[2].strip()
    return platform.machine()
