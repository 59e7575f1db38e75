"""This machine, through the sampler's supervisor of this very process: no network, no XML-RPC."""

from __future__ import annotations

import asyncio
import gzip
import time
from collections.abc import Callable

from gpumon.agent.latest import NOT_YET
from gpumon.agent.supervisor import Supervisor
from gpumon.cluster.sources.base import Reading
from gpumon.errors import SourceError
from gpumon.summary import decode_summary


class SelfSource:
    """Reads what the running `supervisor` has ready; whoever started it stops it."""

    def __init__(
        self,
        supervisor: Supervisor,
        monotonic: Callable[[], float] = time.monotonic,
        *,
        patience: float = 0.0,
    ) -> None:
        """`patience`: so many seconds a poll waits for the very first sample, already under way."""
        self._supervisor = supervisor
        self._monotonic = monotonic
        self._patience = patience
        self._revision: str | None = None
        self._reading: Reading | None = None

    async def poll(self) -> Reading:
        """Return the newest reading; one without a sample says why."""
        await self._first_sample()
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

    async def _first_sample(self) -> None:
        """Spare whoever opens the page at once an empty one until the next poll."""
        end = self._monotonic() + self._patience
        while self._supervisor.latest().sampler_error == NOT_YET and self._monotonic() < end:
            await asyncio.sleep(0.05)

    def timed_out(self, seconds: float) -> SourceError:
        """Return what to say of a poll that was cut off; this one waits for nothing."""
        return SourceError("timed out", f"timed out: this server was busy for over {seconds:g} s")

    async def close(self) -> None:
        """Nothing is open."""
