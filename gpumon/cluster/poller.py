"""Asks every host again and again, side by side, and tells the fleet what came of it."""

from __future__ import annotations

import asyncio
import gc
import logging
import random
import time
from collections.abc import Iterator, Mapping
from contextlib import contextmanager

from gpumon.agent.supervisor import Supervisor
from gpumon.cluster.fleet import Fleet
from gpumon.cluster.pace import Pace, places
from gpumon.cluster.sources.base import Reading, Source
from gpumon.cluster.sources.build import open_sources
from gpumon.config import Config
from gpumon.errors import SourceError
from gpumon.text import clean

log = logging.getLogger(__name__)

MOST_BEGINNING = 128
"""So many polls may be in their first moments at once: at the start all hosts are due. Hosts that
failed the last time have as many places of their own: a thousand that hang delay only each other.
"""
BEGINNING_SECONDS = 0.1
"""After this time a poll makes room for the next one: hosts that hang must not hold up the rest."""
COLLECT_AFTER = 50_000
"""New objects before the garbage collector looks at them: about a sweep of 1,000 hosts."""
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
        with collecting_less_often():
            await Poller(fleet, config, sources).run()


@contextmanager
def collecting_less_often() -> Iterator[None]:
    """Let the garbage collector come by less often while the block lasts.

    What a fleet keeps lives until the next reading and is in no cycle. Walking over all of it at
    the usual pace took a quarter of a sweep's CPU time (bench/fleet.py).
    """
    before = gc.get_threshold()
    gc.set_threshold(max(before[0], COLLECT_AFTER), *before[1:])
    try:
        yield
    finally:
        gc.set_threshold(*before)


class Poller:
    """One loop per host. `sources` holds one source for every host of the fleet."""

    def __init__(self, fleet: Fleet, config: Config, sources: Mapping[str, Source]) -> None:
        self._fleet = fleet
        self._interval = config.poll_interval
        self._timeout = config.rpc_timeout
        self._sources = dict(sources)
        self._gate = asyncio.Semaphore(MOST_BEGINNING)
        self._gate_of_the_failing = asyncio.Semaphore(MOST_BEGINNING)
        self._start = 0.0
        self._hosts: dict[str, _Host] = {}
        self._loops: dict[str, asyncio.Task[None]] = {}
        self._ending: set[asyncio.Task[None]] = set()
        """Of hosts that are no longer wanted, until their last poll and their source are closed."""
        self._broken: asyncio.Future[None] | None = None

    async def run(self) -> None:
        """Poll until cancelled."""
        self._broken = asyncio.get_running_loop().create_future()
        self._start = time.monotonic()
        try:
            self._begin()
            # None of the loops ends but by a fault, and without hosts there is nothing but to wait.
            await self._broken
        finally:
            tasks = [*self._loops.values(), *self._ending]
            for task in self._loops.values():
                task.cancel()
            await asyncio.gather(*tasks, return_exceptions=True)

    def update(self, config: Config, sources: Mapping[str, Source], *, again: bool = False) -> None:
        """Poll the hosts of another configuration from now on; call it in the poller's loop.

        First tell the fleet (`Fleet.reconfigure`). A host whose source is the same object as before
        goes on as if nothing had been; one with another source is asked anew. Sources that are not
        among the new ones are closed as soon as their poll has ended. `again`: those that failed
        the last time are asked at once.
        """
        self._interval, self._timeout = config.poll_interval, config.rpc_timeout
        for name, source in self._sources.items():
            if sources.get(name) is not source:
                self._retire(name)
        self._sources = dict(sources)
        if self._broken is not None:  # else run() begins with them
            self._begin()
            for host in self._hosts.values():
                if again and host.failing:
                    host.wake()

    def _begin(self) -> None:
        """Start the loops that are missing; give every host its place in the round.

        Hosts that are polled at this interval already keep theirs.
        """
        kept = {
            name: host.pace.phase
            for name, host in self._hosts.items()
            if host.pace.interval == self._interval
        }
        for name, place in places(self._sources, self._interval, kept).items():
            pace = Pace(start=self._start, phase=place, interval=self._interval)
            if name in self._hosts:
                self._hosts[name].repace(pace)
            else:
                self._hosts[name] = _Host(name, self._sources[name], pace)
                self._loops[name] = asyncio.create_task(self._watch(self._hosts[name]))
                self._loops[name].add_done_callback(self._loop_ended)

    def _loop_ended(self, loop: asyncio.Task[None]) -> None:
        assert self._broken is not None
        if not loop.cancelled() and not self._broken.done():
            error = loop.exception()
            assert error is not None, "the loop of a host has no end"
            self._broken.set_exception(error)

    def _retire(self, name: str) -> None:
        host, loop = self._hosts.pop(name, None), self._loops.pop(name, None)
        if host is not None and loop is not None:
            loop.cancel()
            ending = asyncio.create_task(self._close(host, loop))
            self._ending.add(ending)
            ending.add_done_callback(self._ending.discard)

    async def _close(self, host: _Host, loop: asyncio.Task[None]) -> None:
        await asyncio.wait({loop})
        try:
            await host.source.close()
        except Exception:  # a boundary to the outside: the host is gone, the others go on
            log.exception("%s: its source could not be closed", host.name)

    async def _watch(self, host: _Host) -> None:
        """Poll one host until cancelled: at once, then at its pace."""
        silent_since: float | None = time.monotonic()
        while True:
            asked, answered = await self._poll(host)
            ended, host.failing = time.monotonic(), not answered
            if answered:
                silent_since = None
            elif silent_since is None:
                silent_since = asked
            failing_for = None if silent_since is None else ended - silent_since
            await self._rest(host, asked, ended, failing_for)

    async def _rest(
        self, host: _Host, asked: float, ended: float, failing_for: float | None
    ) -> None:
        """Wait until the host's next poll is due, which another pace moves."""
        luck = random.random()  # noqa: S311
        due = False
        while not due:
            now = time.monotonic()
            next_poll = host.pace.next_poll(asked, ended, failing_for, luck)
            if next_poll < now:  # by a shorter interval: not all of them at once
                next_poll = host.pace.next_poll(asked, now, failing_for, luck)
            self._fleet.planned(host.name, next_poll)
            due = await host.rest(next_poll - now)

    async def _poll(self, host: _Host) -> tuple[float, bool]:
        """Poll one host once and tell the fleet. Return when it was asked and whether it answered.

        Whatever goes wrong costs this host this poll.
        """
        asked = time.monotonic()
        try:
            async with self._gate_of_the_failing if host.failing else self._gate:
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
            # Its traceback holds the poll, which holds it, and all that was read: megabytes that
            # would wait for the garbage collector.
            error.__traceback__ = error.__cause__ = error.__context__ = None
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

    def __init__(self, name: str, source: Source, pace: Pace) -> None:
        self.name = name
        self.source = source
        self.pace = pace
        self.failing = False
        """Whether the last poll brought nothing."""
        self._waker: asyncio.Future[bool] | None = None
        """While it rests: set to whether it is to be asked now, else its pace is another one."""
        self._due = False
        """Whether it is to be asked whatever its pace has become."""
        self._running: asyncio.Task[Reading] | None = None
        self._noted: str | None = None
        self._fault_noted: str | None = None

    def repace(self, pace: Pace) -> None:
        """Ask it at this pace from now on, not only after its next poll."""
        if pace != self.pace:
            self.pace = pace
            self._end_rest(False)

    def wake(self) -> None:
        """Ask it now, if it rests."""
        self._due = self._waker is not None
        self._end_rest(True)

    def _end_rest(self, due: bool) -> None:
        if self._waker is not None and not self._waker.done():
            self._waker.set_result(due)

    async def rest(self, seconds: float) -> bool:
        """Wait so long; return whether to ask now. False: the pace is another one meanwhile."""
        loop = asyncio.get_running_loop()
        self._waker = loop.create_future()
        timer = loop.call_later(seconds, self._end_rest, True)
        try:
            return await self._waker or self._due
        finally:
            timer.cancel()
            self._waker, self._due = None, False

    def begin(self) -> asyncio.Task[Reading]:
        """Start a poll. Raises SourceError while an earlier one has still not ended."""
        if self._running is not None:
            raise SourceError("failed", "failed: an earlier poll was cut off and has not ended yet")
        self._running = asyncio.get_running_loop().create_task(self.source.poll())
        return self._running

    def end(self, seconds: float) -> Reading:
        """Return what the poll brought. Raises what it raised, or that `seconds` were too few."""
        poll = self._running
        assert poll is not None
        if not poll.done():
            raise self.source.timed_out(seconds)
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
