"""All hosts as the server knows them. Written from any thread, read from any thread."""

from __future__ import annotations

import logging
import secrets
import threading
import time
from collections.abc import Callable, Mapping

import msgspec

from gpumon.cluster.kept import Kept
from gpumon.cluster.metrics import PollCounts
from gpumon.cluster.record import Moment, Record
from gpumon.cluster.relayed import Loop, Relayed, relayed_name, without_loops
from gpumon.cluster.sources.base import Reading
from gpumon.cluster.status import ClusterStatus
from gpumon.cluster.view import build
from gpumon.config import Config, HostEntry
from gpumon.errors import SourceError
from gpumon.model import HostSnapshot
from gpumon.summary import HostSummary

log = logging.getLogger(__name__)

_LOOP = "is this very server. Remove its entry from hosts"
_LEFT_OUT = "came through this server, or over too many servers"
_NO_HOSTS = "its server lists no hosts, or only such as came through this one"

START_TICK_SECONDS = 0.2
"""While hosts give their first answers, the picture may change this often."""


class Fleet:
    """One immutable record per host, and the picture that all faces share.

    Hosts are those of the configuration, which may be replaced, and those that pushed without
    being in it.
    """

    def __init__(
        self,
        config: Config,
        *,
        monotonic: Callable[[], float] = time.monotonic,
        wall: Callable[[], float] = time.time,
        seen: Mapping[str, float] | None = None,
    ) -> None:
        """`seen`: host -> when it answered last, before this server started (epoch seconds)."""
        self._config = config
        self._monotonic = monotonic
        self._wall = wall
        self._writing = threading.Lock()
        """Held by whoever replaces a record or the table. Readers need none: they see one table."""
        self._seen = dict(seen or {})
        self._records: dict[str, Record] = {}
        self._pushed: dict[str, str] = {}
        self._newcomers: dict[str, HostEntry] = {}
        self._arrange()
        self._polls_answered = 0
        self._polls_failed = dict.fromkeys(SourceError.KINDS, 0)
        self._building = threading.Lock()
        self._status: ClusterStatus | None = None
        self._kept = Kept()
        self._built = 0.0
        # Revisions of another life of this server must not look like one of this.
        self._life = secrets.token_hex(4)
        self.instance = secrets.token_hex(8)
        """Names this server to others that show its hosts."""
        self._left_out: dict[str, int] = {}
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
        """Return the record of a host. Raises KeyError for one that there is not."""
        return self._records[host]

    def records(self) -> list[Record]:
        """Return the records of all hosts, in the order of the page."""
        return list(self._records.values())

    def pushed(self, machine: str) -> str | None:
        """Return the host that pushes as `machine` (in any case of letters); None: there is none.

        A name that merely belongs to a host which is asked is none of them.
        """
        return self._pushed.get(machine.lower())

    def newcomers(self) -> int:
        """Return how many hosts there are that stand in no configuration."""
        return len(self._newcomers)

    def poll_interval(self) -> float:
        """Return the seconds between two polls of a host, as configured now."""
        return self._config.poll_interval

    def reconfigure(self, config: Config) -> None:
        """Take over another configuration. A host that is in both keeps what is known of it."""
        with self._writing:
            self._config = config
            for entry in config.hosts:
                self._newcomers.pop(entry.name, None)
            self._arrange()

    def add(self, entry: HostEntry) -> None:
        """Add a host that is not in the configuration, after all others."""
        with self._writing:
            self._newcomers[entry.name] = entry
            self._arrange()

    def _arrange(self) -> None:
        """Make the table anew from what the hosts are now. The caller holds the lock."""
        entries = [*self._config.hosts, *self._newcomers.values()]
        self._records = {entry.name: self._continued(entry) for entry in entries}
        self._pushed = {e.host: e.name for e in entries if e.source == "pushed"}
        self._first_answers = True  # whatever came or went is to be seen soon

    def _continued(self, entry: HostEntry) -> Record:
        """Return the record of an entry: that of before, unless another machine has its name."""
        known = self._records.get(entry.name)
        if known is None or (known.entry.source, known.entry.address) != (
            entry.source,
            entry.address,
        ):
            return Record(entry=entry, seen_at=self._seen.get(entry.name))
        return msgspec.structs.replace(known, entry=entry)

    def answered(self, host: str, reading: Reading, *, asked: float) -> None:
        """Take in a good answer to the poll that began at `asked` (monotonic)."""
        if reading.relayed is not None:
            try:
                reading = self._without_loops(host, reading.relayed)
            except Loop:
                self.failed(host, "loop", f"loop: {host} {_LOOP}", asked=asked)
                return
        with self._writing:
            record = self._records.get(host)
            if record is None:
                return  # it was taken out of the configuration meanwhile
            self._polls_answered += 1
            self._take_in(
                record.answered_with(
                    reading,
                    asked=asked,
                    now=self.now(),
                    limits=self._config.limits,
                    poll_interval=self._config.poll_interval,
                )
            )

    def _without_loops(self, host: str, told: Relayed) -> Reading:
        """Return another server's picture without what came from here. Raises Loop."""
        record = self._records.get(host)
        relay = None if record is None else record.relay
        if relay is not None and relay.status.revision == told.status.revision:
            status = relay.status
        else:
            status, left_out = without_loops(told.status, self.instance)
            if left_out != self._left_out.get(host, 0):
                log.warning("%s: left out of its hosts: %d, which %s", host, left_out, _LEFT_OUT)
            self._left_out[host] = left_out
        return Reading(
            summary=HostSummary(sampler_error=None if status.hosts else _NO_HOSTS),
            packed=b"",
            relayed=Relayed(status=status, details=told.details),
        )

    def failed(self, host: str, kind: str, message: str, *, asked: float) -> None:
        """Take in that the poll that began at `asked` (monotonic) brought nothing, and why."""
        with self._writing:
            record = self._records.get(host)
            if record is not None:
                self._polls_failed[kind] = self._polls_failed.get(kind, 0) + 1
                self._take_in(record.failed_with(kind, message, asked=asked, now=self.now()))

    def planned(self, host: str, next_poll: float) -> None:
        """Take in when the host is asked next (monotonic)."""
        with self._writing:
            record = self._records.get(host)
            if record is not None:
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
        tick = START_TICK_SECONDS if self._first_answers else self._tick()
        return self._monotonic() - self._built < tick

    def _tick(self) -> float:
        return max(1.0, self._config.poll_interval / 2)

    def _build(self) -> ClusterStatus:
        now = self.now()
        # Before the records are read: an answer that comes in meanwhile asks for another picture.
        self._first_answers = False
        self._count += 1
        status = build(
            self.records(),
            config=self._config,
            now=now,
            revision=f"{self._life}-{self._count}",
            instance=self.instance,
            kept=self._kept,
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
        if record is None:
            return self._relayed_detail(host)
        if record.reading is None:
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

    def _relayed_detail(self, host: str) -> HostSnapshot | None:
        """Return the whole last reading of another server's host, as far as it is here."""
        for record in self.records():
            relay = record.relay
            if relay is not None:
                for told in relay.status.hosts:
                    if relayed_name(record.entry, told.name) == host:
                        return relay.details.get(told.name)
        return None
