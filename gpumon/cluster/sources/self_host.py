"""This machine, through the sampler's supervisor of this very process: no network, no XML-RPC."""

from __future__ import annotations

import gzip
import time
from collections.abc import Callable

from gpumon.agent.supervisor import Supervisor
from gpumon.cluster.sources.base import Reading
from gpumon.errors import SourceError
from gpumon.summary import decode_summary


class SelfSource:
    """Reads what the running `supervisor` has ready; whoever started it stops it."""

    def __init__(
        self, supervisor: Supervisor, monotonic: Callable[[], float] = time.monotonic
    ) -> None:
        self._supervisor = supervisor
        self._monotonic = monotonic
        self._revision: str | None = None
        self._reading: Reading | None = None

    async def poll(self) -> Reading:
        """Return the newest reading; one without a sample says why."""
        now = self._monotonic()
        latest = self._supervisor.latest()
        if self._reading is not None and latest.revision == self._revision:
            return self._reading.aged(latest.age(now), latest.sampler_error)
        self._revision = latest.revision
        self._reading = Reading(
            summary=decode_summary(latest.summary_json(now)),
            packed=gzip.compress(latest.snapshot_json(now), 1),
        )
        return self._reading

    def timed_out(self, seconds: float) -> SourceError:
        """Return what to say of a poll that was cut off; this one waits for nothing."""
        return SourceError("timed out", f"timed out: this server was busy for over {seconds:g} s")

    async def close(self) -> None:
        """Nothing is open."""
