"""Asks every host again and again, side by side, and tells the fleet what came of it."""

from __future__ import annotations

import asyncio
import logging
import random
import time
from collections.abc import Mapping

from gpumon.agent.supervisor import Supervisor
from gpumon.cluster.fleet import Fleet
from gpumon.cluster.pace import Pace, phase
from gpumon.cluster.sources.base import Reading, Source
from gpumon.cluster.sources.build import open_sources
from gpumon.config import Config
from gpumon.errors import SourceError
from gpumon.text import clean

log = logging.getLogger(__name__)

MOST_BEGINNING = 64
"""So many polls may be in their first moments at once: at the start all hosts are due."""
BEGINNING_SECONDS = 0.25
"""After this time a poll makes room for the next one: hosts that hang must not hold up the rest."""
CANCEL_SECONDS = 1.0
"""A poll that was cut off has to end within this time."""


async def poll_forever(
    fleet: Fleet, config: Config, *, supervisor: Supervisor | None = None, seed: int = 0
) -> None:
    """Poll all hosts of `config` into `fleet` until cancelled.

    `supervisor` samples this machine, for the entry `self`; `seed` shapes simulated hosts. Raises
    StartError before the first poll where the token file or a certificate can't be used.
    """
    async with open_sources(config, supervisor=supervisor, seed=seed) as sources:
        await Poller(fleet, config, sources).run()


class Poller:
    """One loop per host. `sources` holds one source for every host of the fleet."""

    def __init__(self, fleet: Fleet, config: Config, sources: Mapping[str, Source]) -> None:
        self._fleet = fleet
        self._interval = config.poll_interval
        self._timeout = config.rpc_timeout
        self._sources = sources
        self._gate = asyncio.Semaphore(MOST_BEGINNING)

    async def run(self) -> None:
        """Poll until cancelled."""
        start, count = time.monotonic(), len(self._sources)
        loops = [
            asyncio.create_task(
                self._watch(
                    _Host(name, source),
                    Pace(
                        start=start,
                        phase=phase(number, count, self._interval),
                        interval=self._interval,
                    ),
                )
            )
            for number, (name, source) in enumerate(self._sources.items())
        ]
        try:
            # None of them ends; without hosts there is nothing to do but to wait.
            await asyncio.gather(*loops, asyncio.Event().wait())
        finally:
            for task in loops:
                task.cancel()
            await asyncio.gather(*loops, return_exceptions=True)

    async def _watch(self, host: _Host, pace: Pace) -> None:
        """Poll one host until cancelled: at once, then at its pace."""
        silent_since: float | None = pace.start
        while True:
            asked, answered = await self._poll(host)
            now = time.monotonic()
            if answered:
                silent_since = None
            elif silent_since is None:
                silent_since = asked
            failing_for = None if silent_since is None else now - silent_since
            next_poll = pace.next_poll(asked, now, failing_for, random.random())  # noqa: S311
            self._fleet.planned(host.name, next_poll)
            await asyncio.sleep(next_poll - now)

    async def _poll(self, host: _Host) -> tuple[float, bool]:
        """Poll one host once and tell the fleet. Return when it was asked and whether it answered.

        Whatever goes wrong costs this host this poll.
        """
        asked = time.monotonic()
        try:
            async with self._gate:
                asked = time.monotonic()
                poll = host.begin()
                await asyncio.wait({poll}, timeout=min(BEGINNING_SECONDS, self._timeout))
            if not poll.done():
                left = asked + self._timeout - time.monotonic()
                await asyncio.wait({poll}, timeout=max(0.0, left))
            self._fleet.answered(host.name, host.end(self._timeout), asked=asked)
        except SourceError as error:
            host.note(error.kind, str(error))
            self._fleet.failed(host.name, error.kind, str(error), asked=asked)
            return asked, False
        except Exception as error:  # a loop that must live: a fault of ours costs this host only
            words = host.note_fault(error)
            self._fleet.failed(host.name, "failed", words, asked=asked)
            return asked, False
        finally:
            await host.give_up()
        host.note(None, "answers")
        return asked, True


class _Host:
    """One host's source, the poll of it that runs, and what the log knows of it."""

    def __init__(self, name: str, source: Source) -> None:
        self.name = name
        self._source = source
        self._running: asyncio.Task[Reading] | None = None
        self._noted: str | None = None
        self._fault_noted: str | None = None

    def begin(self) -> asyncio.Task[Reading]:
        """Start a poll. Raises SourceError while an earlier one has still not ended."""
        if self._running is not None:
            raise SourceError("failed", "failed: an earlier poll was cut off and has not ended yet")
        self._running = asyncio.get_running_loop().create_task(self._source.poll())
        return self._running

    def end(self, seconds: float) -> Reading:
        """Return what the poll brought. Raises what it raised, or that `seconds` were too few."""
        poll = self._running
        assert poll is not None
        if not poll.done():
            raise self._source.timed_out(seconds)
        if poll.cancelled():
            # Passed on, it would look as if this host's loop itself had been cancelled.
            raise RuntimeError("a poll was cancelled by itself")
        return poll.result()

    async def give_up(self) -> None:
        """Cut off the poll that still runs; its answer, should it come, is nobody's."""
        poll = self._running
        if poll is not None and not poll.done():
            poll.cancel()
            await asyncio.wait({poll}, timeout=CANCEL_SECONDS)
        if poll is not None and poll.done():
            self._running = None
            if not poll.cancelled():
                poll.exception()  # seen: it is not to be reported as never looked at

    def note(self, kind: str | None, sentence: str) -> None:
        """Log a change: that the host fails, fails otherwise, or answers again."""
        if kind != self._noted:
            log.log(
                logging.INFO if kind is None else logging.WARNING, "%s: %s", self.name, sentence
            )
        self._noted = kind

    def note_fault(self, error: Exception) -> str:
        """Log an error of our own with its traceback, once; return the sentence for the row."""
        words = clean(f"{type(error).__name__}: {error}", 200)
        if words != self._fault_noted:
            log.error("%s: a poll failed by a fault of gpumon's", self.name, exc_info=error)
        self._fault_noted = words
        self._noted = "failed"
        return (
            f"failed: {words}. This is a fault of gpumon's: please report it with the server's log"
        )
