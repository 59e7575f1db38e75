"""An invented host, for the demo and for load."""

from __future__ import annotations

import time
from collections.abc import Callable

from gpumon.cluster.sources.base import Reading
from gpumon.errors import SourceError
from gpumon.simulate import SimulatedHost
from gpumon.summary import GpuSummary, MigSummary


class SimulatedSource:
    """Asks a SimulatedHost what it looks like now."""

    def __init__(self, host: SimulatedHost, wall: Callable[[], float] = time.time) -> None:
        self._host = host
        self._wall = wall

    async def poll(self) -> Reading:
        """Return a new reading. Raises SourceError for a host that is invented to be dead."""
        if not self._host.answers:
            raise SourceError(
                "no route", f"no route: no way to {self._host.name}. Is the host up? (simulated)"
            )
        reading = Reading.of(self._host.snapshot(self._wall()))
        for gpu in reading.summary.gpus:
            _seen_to_come(gpu)
            for instance in gpu.mig:
                _seen_to_come(instance)
        return reading

    def timed_out(self, seconds: float) -> SourceError:
        """Return what to say of a poll that was cut off; this one waits for nothing."""
        return SourceError("timed out", f"timed out: this server was busy for over {seconds:g} s")

    async def close(self) -> None:
        """Nothing is open."""


def _seen_to_come(gpu: GpuSummary | MigSummary) -> None:
    """Tell what an agent there would have seen: jobs take their GPUs when they begin."""
    for holder in gpu.holders:
        watched, start = gpu.watched_since, holder.started_at
        if watched is not None and start is not None and watched <= start:
            holder.on_gpu_since = start
