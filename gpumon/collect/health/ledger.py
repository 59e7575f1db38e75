"""What happened to one GPU: faults that go on, and those of the last day. Pure: now is an argument.

Two kinds of entries. Something that *happened* (an XID) counts as going on for an hour after its
last time, an error of a program not at all. Something that *holds* (a counter, a state) goes on
until it is seen to be over. What is over keeps its times for a day.
"""

from __future__ import annotations

import msgspec

from gpumon.model import HealthEvent, HealthLevel

HOUR = 3600.0
DAY = 24 * HOUR
MOST_EVENTS = 16

DRIVER = "driver"
KERNEL_LOG = "kernel log"

_LEVELS: tuple[HealthLevel, ...] = ("fault", "warning", "application")


class Seen(msgspec.Struct):
    """How often one source saw it. Times are epoch seconds."""

    count: int
    first_at: float
    last_at: float


class Entry(msgspec.Struct):
    """One kind of event of one GPU."""

    kind: str
    code: int | None
    level: HealthLevel
    text: str
    advice: str
    sources: dict[str, Seen]
    holds: bool = False
    """It is a state that was not seen to be over."""
    ended_at: float | None = None

    def count(self) -> int:
        """Return how often it happened.

        Both sources see the same events, one of them perhaps not all: they are not added up.
        """
        return max(seen.count for seen in self.sources.values())

    def last_at(self) -> float:
        """Return when it happened last, by the source that saw most; the kernel log is exact."""
        best = max(self.sources, key=lambda name: (self.sources[name].count, name == KERNEL_LOG))
        return self.sources[best].last_at

    def not_after(self, now: float) -> None:
        """Let nothing have happened in the future: the clock was set back."""
        for seen in self.sources.values():
            seen.first_at, seen.last_at = min(seen.first_at, now), min(seen.last_at, now)
        if self.ended_at is not None:
            self.ended_at = min(self.ended_at, now)

    def event(self) -> HealthEvent:
        """Return the entry as a snapshot has it."""
        return HealthEvent(
            kind=self.kind,
            code=self.code,
            level=self.level,
            text=self.text,
            advice=self.advice,
            first_at=round(min(seen.first_at for seen in self.sources.values()), 3),
            last_at=round(self.last_at(), 3),
            count=self.count(),
            ended_at=None if self.ended_at is None else round(self.ended_at, 3),
            source=", ".join(sorted(self.sources)),
        )


class Ledger:
    """The entries of one GPU, one per kind and code."""

    def __init__(self, entries: list[Entry] | None = None) -> None:
        self._entries = {(entry.kind, entry.code): entry for entry in entries or []}

    def entries(self) -> list[Entry]:
        """Return all entries."""
        return list(self._entries.values())

    def events(self) -> list[HealthEvent]:
        """Return what a snapshot shows: what goes on first, then the worst, then the newest."""
        return [entry.event() for entry in self._entries.values()]

    def happened(
        self,
        kind: str,
        code: int | None,
        level: HealthLevel,
        text: str,
        advice: str,
        *,
        at: float,
        source: str,
    ) -> None:
        """Note that it happened at `at` (epoch seconds), as `source` says."""
        entry = self._entry(kind, code, level, text, advice)
        seen = entry.sources.get(source)
        if seen is None:
            entry.sources[source] = Seen(1, at, at)
        else:
            seen.count += 1
            seen.last_at = max(seen.last_at, at)
        if level == "application":
            entry.ended_at = entry.last_at()
        elif entry.ended_at is not None and at > entry.ended_at:
            entry.ended_at = None

    def holds(
        self,
        kind: str,
        level: HealthLevel,
        text: str,
        advice: str,
        *,
        now: float,
        count: int | None = None,
    ) -> None:
        """Note that a state holds, `count` times where that is told; else its onsets are counted.

        Its `last_at` is when it last began or changed its count, not `now` as long as it goes on.
        """
        entry = self._entry(kind, None, level, text, advice)
        seen = entry.sources.setdefault(DRIVER, Seen(0, now, now))
        begins = entry.ended_at is not None or seen.count == 0
        grown = seen.count + begins if count is None else count
        if begins or grown != seen.count:
            seen.last_at = now
        seen.count = grown
        entry.holds, entry.ended_at = True, None

    def over(self, kind: str, now: float) -> None:
        """Note that a state does not hold."""
        entry = self._entries.get((kind, None))
        if entry is not None and entry.ended_at is None:
            entry.holds, entry.ended_at = False, now

    def reset(self, at: float) -> None:
        """Note that the machine was started anew at `at`: what happened before is over."""
        for entry in self._entries.values():
            if entry.ended_at is None and not entry.holds:
                entry.ended_at = max(at, entry.last_at())

    def tidy(self, now: float) -> None:
        """End what happened long enough ago, drop what has been over for a day, keep the worst."""
        for entry in self._entries.values():
            entry.not_after(now)
            if entry.ended_at is None and not entry.holds:
                counts_until = entry.last_at() + HOUR
                if now >= counts_until:
                    entry.ended_at = counts_until
        kept = [
            entry
            for entry in self._entries.values()
            if entry.ended_at is None or now - entry.ended_at <= DAY
        ]
        kept.sort(key=_rank)
        self._entries = {(entry.kind, entry.code): entry for entry in kept[:MOST_EVENTS]}

    def _entry(
        self, kind: str, code: int | None, level: HealthLevel, text: str, advice: str
    ) -> Entry:
        entry = self._entries.get((kind, code))
        if entry is None:
            entry = Entry(kind, code, level, text, advice, {})
            self._entries[kind, code] = entry
        entry.level, entry.text, entry.advice = level, text, advice
        return entry


def _rank(entry: Entry) -> tuple[bool, int, float]:
    return entry.ended_at is not None, _LEVELS.index(entry.level), -entry.last_at()
