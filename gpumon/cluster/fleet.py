"""All hosts as the server knows them. Written by the poller's loop, read by any thread."""

from __future__ import annotations

import logging
import secrets
import threading
import time
from collections.abc import Callable

import msgspec

from gpumon.cluster.metrics import PollCounts
from gpumon.cluster.record import Moment, Record
from gpumon.cluster.sources.base import Reading
from gpumon.cluster.status import ClusterStatus
from gpumon.cluster.view import build
from gpumon.config import Config, HostEntry
from gpumon.errors import SourceError
from gpumon.model import HostSnapshot

log = logging.getLogger(__name__)

START_TICK_SECONDS = 0.2
"""While hosts give their first answers, the picture may change this often."""


class Fleet:
    """One immutable record per configured host, and the picture that all faces share."""

    def __init__(
        self,
        config: Config,
        *,
        monotonic: Callable[[], float] = time.monotonic,
        wall: Callable[[], float] = time.time,
    ) -> None:
        self._config = config
        self._monotonic = monotonic
        self._wall = wall
        # The keys never change: a record is swapped by one assignment, and readers need no lock.
        self._records = {entry.name: Record(entry=entry) for entry in config.hosts}
        self._polls_answered = 0
        self._polls_failed = dict.fromkeys(SourceError.KINDS, 0)
        self._tick = max(1.0, config.poll_interval / 2)
        self._building = threading.Lock()
        self._status: ClusterStatus | None = None
        self._built = 0.0
        self._first_answers = False
        # Revisions of another life of this server must not look like one of this.
        self._life = secrets.token_hex(4)
        self._count = 0

    def now(self) -> Moment:
        """Return the present by both clocks."""
        return Moment(monotonic=self._monotonic(), wall=self._wall())

    def entries(self) -> list[HostEntry]:
        """Return the hosts as they are configured, in their order."""
        return [record.entry for record in self._records.values()]

    def polls(self) -> PollCounts:
        """Return how the polls have ended so far."""
        return PollCounts(answered=self._polls_answered, failed=dict(self._polls_failed))

    def record(self, host: str) -> Record:
        """Return the record of a configured host. Raises KeyError for any other."""
        return self._records[host]

    def answered(self, host: str, reading: Reading, *, asked: float) -> None:
        """Take in a good answer to the poll that began at `asked` (monotonic)."""
        self._polls_answered += 1
        self._take_in(
            self._records[host].answered_with(
                reading,
                asked=asked,
                now=self.now(),
                limits=self._config.limits,
                poll_interval=self._config.poll_interval,
            )
        )

    def failed(self, host: str, kind: str, message: str, *, asked: float) -> None:
        """Take in that the poll that began at `asked` (monotonic) brought nothing, and why."""
        self._polls_failed[kind] = self._polls_failed.get(kind, 0) + 1
        self._take_in(self._records[host].failed_with(kind, message, asked=asked, now=self.now()))

    def planned(self, host: str, next_poll: float) -> None:
        """Take in when the host is asked next (monotonic)."""
        record = self._records[host]
        self._records[host] = msgspec.structs.replace(record, next_poll=next_poll)

    def _take_in(self, new: Record) -> None:
        host = new.entry.name
        before = self._records[host].asked
        if before is not None and new.asked is not None and before > new.asked:
            return  # the outcome of a poll that was overtaken by a later one
        self._records[host] = new
        if before is None:
            self._first_answers = True

    def status(self) -> ClusterStatus:
        """Return the cluster as of this tick: the same object until the next one.

        A new picture is made at most once per tick (half a poll interval, at least a second), by
        whoever asks first; others get the one before meanwhile.
        """
        status = self._status
        if status is not None and (self._is_young() or self._building.locked()):
            return status
        with self._building:
            if self._status is None or not self._is_young():
                self._status = self._build()
            return self._status

    def _is_young(self) -> bool:
        tick = START_TICK_SECONDS if self._first_answers else self._tick
        return self._monotonic() - self._built < tick

    def _build(self) -> ClusterStatus:
        now = self.now()
        # Before the records are read: an answer that comes in meanwhile asks for another picture.
        self._first_answers = False
        self._count += 1
        status = build(
            list(self._records.values()),
            config=self._config,
            now=now,
            revision=f"{self._life}-{self._count}",
        )
        # Only now: a picture that could not be made must not pass for one that is young.
        self._built = now.monotonic
        return status

    def detail(self, host: str) -> HostSnapshot | None:
        """Return the whole last reading of a host, as old as it is now.

        None: no such host, or no reading of it yet. A detail that can't be opened is an empty
        snapshot that says why.
        """
        record = self._records.get(host)
        if record is None or record.reading is None:
            return None
        try:
            snapshot = record.reading.detail()
        except ValueError as error:
            log.warning("%s: the detail of its reading can't be opened: %s", host, error)
            snapshot = HostSnapshot(
                hostname=record.reading.summary.hostname,
                time=record.reading.summary.time,
                errors=["the detail of this host's reading can't be opened: see the server's log"],
            )
        snapshot.sample_age_seconds = record.age(self._monotonic())
        snapshot.sampler_error = record.sampler_error
        return snapshot
