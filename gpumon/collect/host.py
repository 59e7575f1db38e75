"""CPU, memory, disk and uptime of the host."""

from __future__ import annotations

import os
from collections.abc import Callable
from typing import Any

import psutil

from gpumon.collect.memory import MIB
from gpumon.collect.moment import Moment
from gpumon.model import HostInfo
from gpumon.text import clean


class HostReader:
    """Reads the host's own figures; keeps the CPU counters of the sample before."""

    def __init__(self) -> None:
        self._first = True

    def read(self, now: Moment, errors: list[str]) -> HostInfo:
        """Return the figures; each fails alone, with a sentence in `errors`."""

        def ask(what: str, question: Callable[..., Any], *args: object) -> Any:
            try:
                return question(*args)
            except Exception as error:  # whatever /proc or psutil has for us
                found = clean(f"{type(error).__name__}: {error}", 160)
                errors.append(f"The host's {what} could not be read: {found}.")
                return None

        info = HostInfo(uptime_seconds=round(now.boot, 1))
        cpu_percent = ask("CPU utilization", psutil.cpu_percent)
        if not self._first:
            info.cpu_percent = cpu_percent
        self._first = False
        info.cpu_count = ask("number of CPUs", os.cpu_count)
        load = ask("load", os.getloadavg)
        if load is not None:
            info.load_1m, info.load_5m, info.load_15m = (round(value, 2) for value in load)
        memory = ask("memory", psutil.virtual_memory)
        if memory is not None:
            info.memory_total_mib = memory.total // MIB
            info.memory_available_mib = memory.available // MIB
        disk = ask("root file system", psutil.disk_usage, "/")
        if disk is not None:
            info.disk_total_mib = disk.total // MIB
            info.disk_free_mib = disk.free // MIB
        return info
