"""Child processes that surely end, and what they use: CPU time and memory."""

from __future__ import annotations

import contextlib
import ctypes
import os
import signal
import subprocess
import time
from collections.abc import Iterator
from pathlib import Path
from typing import Any

from fake_nvml.scenario import environment

_PR_SET_PDEATHSIG = 1
_libc = ctypes.CDLL(None)


class Trouble(Exception):
    """A contender could not be measured. The message is one sentence."""


def child_environment(scenario: Path, counts: Path | None = None) -> dict[str, str]:
    """Return the environment of whatever reads GPUs: the fake NVML, and none of our settings."""
    env = {
        name: value
        for name, value in environment(scenario, counts).items()
        if not name.startswith(("GPUMON_", "PYTHON"))
    }
    # Where this runs in a container, the pids in the scenario are the container's own.
    return {**env, "GPUMON_PIDS_ARE_MINE": "1"}


@contextlib.contextmanager
def running(command: list[str], **options: Any) -> Iterator[subprocess.Popen[bytes]]:
    """Run a child while the block lasts. It also ends when this process dies, whatever the way."""
    try:
        process = subprocess.Popen(command, preexec_fn=die_with_parent, **options)
    except OSError as error:
        raise Trouble(f"{command[0]} could not be started ({error.strerror})") from error
    try:
        yield process
    finally:
        end(process)


def die_with_parent() -> None:
    """Have the kernel end this process with its parent; runs in the child."""
    _libc.prctl(_PR_SET_PDEATHSIG, signal.SIGTERM)


def end(process: subprocess.Popen[bytes]) -> None:
    """End a child politely, then by force, and close its pipes."""
    if process.poll() is None:
        process.terminate()
        try:
            process.wait(5)
        except subprocess.TimeoutExpired:
            process.kill()
            process.wait()
    for stream in (process.stdin, process.stdout, process.stderr):
        if stream is not None:
            with contextlib.suppress(OSError):  # what was not yet written has no reader any more
                stream.close()


def cpu_seconds(pid: int) -> float:
    """Return the CPU time of a process with all its threads, to the nanosecond; without children.

    The kernel has a clock per process; its number is made of the pid (man 3 clock_getcpuclockid).
    """
    try:
        return time.clock_gettime((~pid << 3) | 2)
    except OSError as error:
        raise Trouble(f"process {pid} has ended") from error


def rss_mib(pid: int) -> float:
    """Return the resident memory of a process."""
    try:
        pages = int(Path(f"/proc/{pid}/statm").read_text().split()[1])
    except OSError as error:
        raise Trouble(f"process {pid} has ended") from error
    return pages * os.sysconf("SC_PAGE_SIZE") / 2**20


def pss_mib(pid: int) -> float | None:
    """Return resident memory with shared pages divided among their users; None: not told."""
    try:
        lines = Path(f"/proc/{pid}/smaps_rollup").read_text().splitlines()
    except OSError:
        return None
    kib = next((int(line.split()[1]) for line in lines if line.startswith("Pss:")), None)
    return None if kib is None else kib / 1024


def open_files(pid: int) -> int:
    """Return how many files and connections a process has open."""
    return len(os.listdir(f"/proc/{pid}/fd"))


def child_pids(pid: int) -> list[int]:
    """Return the direct children of a process."""
    text = Path(f"/proc/{pid}/task/{pid}/children").read_text()
    return [int(word) for word in text.split()]
