"""What the server knows of one host: an immutable record, replaced as a whole by each poll."""

from __future__ import annotations

import msgspec

from gpumon.cluster.missing import Missing, still_missing
from gpumon.cluster.relayed import Relay, Relayed
from gpumon.cluster.sources.base import Reading
from gpumon.config import HostEntry, Limits
from gpumon.states import believed_interval
from gpumon.windows import Watch, advance

REFUSAL_SECONDS = 180.0
"""So long a push that was refused is told on its host's row; an agent tries again every minute."""


class Failure(msgspec.Struct, frozen=True, kw_only=True):
    """Why the last poll brought nothing."""

    kind: str
    message: str
    at: float
    """Epoch seconds by the server's clock."""


class Moment(msgspec.Struct, frozen=True, kw_only=True):
    """Now, by both of the server's clocks."""

    monotonic: float
    wall: float


class Record(msgspec.Struct, frozen=True, kw_only=True):
    """One host. Moments are monotonic unless said otherwise."""

    entry: HostEntry
    asked: float | None = None
    """When the poll began whose outcome this is; None: none has ended yet."""
    next_poll: float | None = None
    answered: float | None = None
    """The last good answer."""
    answered_at: float | None = None
    """The same by the wall clock."""
    reading: Reading | None = None
    """The last reading that holds a sample, or the first answer of an agent without one."""
    sampled: float | None = None
    """When that sample was taken; None: there is no sample yet."""
    sampler_error: str | None = None
    """Of the last good answer: why there is no newer sample."""
    failure: Failure | None = None
    """Of the last poll; None when it was answered."""
    refused: Failure | None = None
    """Of a host that pushes: the last push under its name that was not taken, by whomever."""
    watch: Watch | None = None
    missing: tuple[Missing, ...] = ()
    seen_at: float | None = None
    """The last good answer to the server before its restart, by its wall clock."""
    relay: Relay | None = None
    """Of another gpumon server: what it told last."""

    def answered_with(
        self,
        reading: Reading,
        *,
        asked: float,
        now: Moment,
        limits: Limits,
        poll_interval: float,
    ) -> Record:
        """Return the record after a good answer."""
        record = msgspec.structs.replace(
            self,
            asked=asked,
            answered=now.monotonic,
            answered_at=now.wall,
            sampler_error=reading.summary.sampler_error,
            failure=None,
        )
        if reading.relayed is not None:
            return msgspec.structs.replace(record, relay=self._relay(reading.relayed, now))
        summary = reading.summary
        if summary.sample_age_seconds is None:
            # An agent that has just begun. What was known before grows old, but stays.
            if self.sampled is not None:
                return record
            return msgspec.structs.replace(record, reading=reading)
        # An answer can't be newer than itself, whatever the agent says.
        sampled = now.monotonic - max(0.0, summary.sample_age_seconds)
        watch = advance(
            self.watch,
            summary,
            sampled=sampled,
            limits=limits,
            longest_gap=3 * poll_interval + believed_interval(summary.sample_interval_seconds),
            wall=now.wall - (now.monotonic - sampled),
        )
        missing = self.missing
        if self.reading is not None and self.reading.summary.gpus is not summary.gpus:
            missing = still_missing(missing, self.reading.summary, summary, now.wall)
        return msgspec.structs.replace(
            record, reading=reading, sampled=sampled, watch=watch, missing=missing
        )

    def _relay(self, told: Relayed, now: Moment) -> Relay:
        if self.relay is not None and self.relay.status is told.status:
            return self.relay
        return Relay(
            status=told.status,
            details=told.details,
            received=now.monotonic,
            received_at=now.wall,
        )

    def expected_every(self, poll_interval: float) -> float:
        """Return after how many seconds the next answer is due, of a host that is well."""
        if self.entry.source != "pushed" or self.reading is None:
            return poll_interval
        return max(poll_interval, believed_interval(self.reading.summary.sample_interval_seconds))

    def failed_with(self, kind: str, message: str, *, asked: float, now: Moment) -> Record:
        """Return the record after a poll that brought nothing; the last good values stay."""
        failure = Failure(kind=kind, message=message, at=now.wall)
        pushed = self.entry.source == "pushed" and kind != "silent"
        return msgspec.structs.replace(
            self, asked=asked, failure=failure, refused=failure if pushed else self.refused
        )

    def refused_lately(self, now: Moment) -> Failure | None:
        """Return the push that was not taken, while it is worth a word beside good ones."""
        refused = self.refused
        if refused is None or not 0 <= now.wall - refused.at <= REFUSAL_SECONDS:
            return None
        return refused

    def age(self, now: float) -> float | None:
        """Return how old the values are; None: there are none."""
        return None if self.sampled is None else max(0.0, now - self.sampled)
