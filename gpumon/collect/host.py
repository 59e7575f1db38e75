"""CPU, memory, disk and uptime of the host, from /proc and the root file system.

psutil gives the same figures; its import and its answers took a tenth of a small host's sample.
"""

from __future__ import annotations

import os
from collections.abc import Callable
from typing import TypeVar

from gpumon.collect.memory import MIB
from gpumon.collect.moment import Moment
from gpumon.model import HostInfo
from gpumon.text import clean

T = TypeVar("T")

_KIB = 1024
_FIRST_BYTES = 4096
"""Of a file: the first line of /proc/stat and the first five of /proc/meminfo are all it takes."""
_IDLE = (3, 4)
"""Places of idle and of waiting for I/O in the line "cpu" of /proc/stat."""
_COUNTERS = 8
"""What follows is the time of guests, which is in the others already."""


class HostReader:
    """Reads the host's own figures; keeps the CPU counters of the sample before."""

    def __init__(self, *, proc: str = "/proc", root: str = "/") -> None:
        self._proc = proc
        self._root = root
        self._counters: list[int] | None = None

    def read(self, now: Moment, errors: list[str]) -> HostInfo:
        """Return the figures; each fails alone, with a sentence in `errors`."""

        def ask(what: str, question: Callable[[], T]) -> T | None:
            try:
                return question()
            except Exception as error:  # whatever /proc or the file system has for us
                found = clean(f"{type(error).__name__}: {error}", 160)
                errors.append(f"The host's {what} could not be read: {found}.")
                return None

        info = HostInfo(uptime_seconds=round(now.boot, 1))
        info.cpu_percent = ask("CPU utilization", self._cpu_percent)
        info.cpu_count = ask("number of CPUs", os.cpu_count)
        load = ask("load", os.getloadavg)
        if load is not None:
            info.load_1m, info.load_5m, info.load_15m = (round(value, 2) for value in load)
        memory = ask("memory", self._memory)
        if memory is not None:
            info.memory_total_mib, info.memory_available_mib = memory
        disk = ask("root file system", self._disk)
        if disk is not None:
            info.disk_total_mib, info.disk_free_mib = disk
        return info

    def _cpu_percent(self) -> float | None:
        """Return the share of time that was not idle since the call before; None: there is none."""
        name, *fields = self._read("stat").split(b"\n", 1)[0].split()
        if name != b"cpu" or len(fields) <= max(_IDLE):
            raise ValueError("a line cpu was expected in /proc/stat, found none")
        counters = [int(field) for field in fields[:_COUNTERS]]
        before, self._counters = self._counters, counters
        if before is None:
            return None
        # A CPU that goes offline takes its time along, and some counters run backwards a little.
        passed = [max(0, new - old) for new, old in zip(counters, before, strict=True)]
        total = sum(passed)
        idle = sum(passed[place] for place in _IDLE)
        return None if total == 0 else round(100 * (total - idle) / total, 1)

    def _memory(self) -> tuple[int, int]:
        """Return total and available memory in MiB."""
        amounts = {}
        for line in self._read("meminfo").split(b"\n"):
            name, found, rest = line.partition(b":")
            if found and name in (b"MemTotal", b"MemFree", b"MemAvailable"):
                amounts[name] = int(rest.split()[0]) * _KIB // MIB
        try:
            total, available = amounts[b"MemTotal"], amounts[b"MemAvailable"]
            # Some containers show their own total beside the host's available memory.
            return total, available if available <= total else amounts[b"MemFree"]
        except KeyError as missing:
            line = missing.args[0].decode()
            raise ValueError(f"a line {line} was expected in /proc/meminfo, found none") from None

    def _disk(self) -> tuple[int, int]:
        """Return size and free space in MiB, as far as ordinary users may take it."""
        found = os.statvfs(self._root)
        return found.f_blocks * found.f_frsize // MIB, found.f_bavail * found.f_frsize // MIB

    def _read(self, name: str) -> bytes:
        fd = os.open(f"{self._proc}/{name}", os.O_RDONLY | os.O_CLOEXEC)
        try:
            return os.read(fd, _FIRST_BYTES)
        finally:
            os.close(fd)
