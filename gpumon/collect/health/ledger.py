"""What happened to one GPU: faults that go on, and those of the last day. Pure: now is an argument.

Two kinds of entries. Something that *happened* (an XID) counts as going on for an hour after its
last time, an error of a program not at all. Something that *holds* (a counter, a state) goes on
until it is seen to be over. What is over keeps its times for a day.
"""

from __future__ import annotations

import msgspec

from gpumon.collect.health.times import Shift, known
from gpumon.model import HealthEvent, HealthLevel
from gpumon.units import clock

HOUR = 3600.0
DAY = 24 * HOUR
MOST_EVENTS = 16

DRIVER = "driver"
KERNEL_LOG = "kernel log"

_ENDS_WITH_A_START = ("ecc", "lost", "row_remap", "retired_pages", "recovery")
"""States that a start of the machine ends by their nature: counts since the last reset, what waits
for a reset or asks for one, a driver's loss of a GPU. Where it goes on, the next reading says so.
Memory that can't be replaced, and a GPU that is not there, are the same after it."""

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
    unread_since: float | None = None
    """Of a state: since when nothing says whether it still holds."""
    began_at: float | None = None
    """Since when it goes on without a break; None: nobody saw it begin."""
    first_unseen: bool = False
    last_unseen: bool = False
    """Whether the first time, or the last, is that of a first look, which found it there."""

    def count(self) -> int:
        """Return how often it happened.

        Both sources see the same events, one of them perhaps not all: they are not added up.
        """
        return max(seen.count for seen in self.sources.values())

    def first_at(self) -> float:
        """Return when it happened first."""
        return min(seen.first_at for seen in self.sources.values())

    def last_at(self) -> float:
        """Return when it happened last, by the source that saw most; the kernel log is exact."""
        best = max(self.sources, key=lambda name: (self.sources[name].count, name == KERNEL_LOG))
        return self.sources[best].last_at

    def shift(self, shift: Shift) -> None:
        """Move all times as the clock was."""
        for seen in self.sources.values():
            seen.first_at, seen.last_at = shift(seen.first_at), shift(seen.last_at)
        if self.ended_at is not None:
            self.ended_at = shift(self.ended_at)
        if self.unread_since is not None:
            self.unread_since = shift(self.unread_since)
        if self.began_at is not None:
            self.began_at = shift(self.began_at)

    def take(self, other: Entry) -> None:
        """Add what another knows of the same; whoever saw it last says whether it goes on."""
        if other.last_at() > self.last_at():
            self.holds, self.ended_at = other.holds, other.ended_at
            self.unread_since = other.unread_since
            self.began_at, self.last_unseen = other.began_at, other.last_unseen
        elif self.last_unseen and other.ended_at is None:
            self._was_known_as(other)
        if other.first_at() <= self.first_at():
            self.first_unseen = other.first_unseen
        for name, theirs in other.sources.items():
            ours = self.sources.setdefault(name, theirs)
            ours.count = max(ours.count, theirs.count)
            ours.first_at = min(ours.first_at, theirs.first_at)
            ours.last_at = max(ours.last_at, theirs.last_at)

    def _was_known_as(self, other: Entry) -> None:
        """Take over when it began from a memory that comes after the first look."""
        self.began_at = other.began_at
        if self.count() == other.count():
            self.last_unseen = other.last_unseen
            for name, theirs in other.sources.items():
                if name in self.sources:
                    self.sources[name].last_at = theirs.last_at

    def event(self, now: float) -> HealthEvent | None:
        """Return the entry as a snapshot has it; None for one that is over nobody knows when."""
        ended_at = None if self.ended_at is None else known(self.ended_at, now)
        if self.ended_at is not None and ended_at is None:
            return None
        text = self.text
        if self.holds and self.unread_since is not None:
            since = known(self.unread_since, now)
            text += (
                " (not readable any more)"
                if since is None
                else (f" (not readable since {clock(since, now)})")
            )
        return HealthEvent(
            kind=self.kind,
            code=self.code,
            level=self.level,
            text=text,
            advice=self.advice,
            first_at=None if self.first_unseen else _rounded(known(self.first_at(), now)),
            last_at=None if self.last_unseen else _rounded(known(self.last_at(), now)),
            count=self.count(),
            ended_at=_rounded(ended_at),
            source=", ".join(sorted(self.sources)),
            since=self._since(now),
        )

    def _since(self, now: float) -> float | None:
        if self.began_at is None or self.ended_at is not None:
            return None
        return _rounded(known(self.began_at, now))


class Ledger:
    """The entries of one GPU, one per kind and code."""

    def __init__(self, entries: list[Entry] | None = None) -> None:
        self._entries = {(entry.kind, entry.code): entry for entry in entries or []}
        self._well: set[str] = set()
        """The states that the last reading said not to hold: what holds now has begun since."""

    def entries(self) -> list[Entry]:
        """Return all entries."""
        return list(self._entries.values())

    def events(self, now: float) -> list[HealthEvent]:
        """Return what a snapshot shows: what goes on first, then the worst, then the newest."""
        events = [entry.event(now) for entry in self._entries.values()]
        return [event for event in events if event is not None]

    def merge(self, other: Ledger) -> None:
        """Add what another ledger of the same GPU holds."""
        for key, theirs in other._entries.items():
            ours = self._entries.setdefault(key, theirs)
            if ours is not theirs:
                ours.take(theirs)

    def shift(self, shift: Shift) -> None:
        """Move all times as the clock was."""
        for entry in self._entries.values():
            entry.shift(shift)

    def forget_unread(self) -> None:
        """Drop the states of which nothing says any more whether they hold: somebody knows."""
        self._entries = {
            key: entry
            for key, entry in self._entries.items()
            if not entry.holds or entry.unread_since is None
        }

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
        if not entry.sources or entry.ended_at is not None or at > entry.last_at() + HOUR:
            entry.began_at = at
        entry.last_unseen = False
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
        One that is there at the first look has begun nobody knows when.
        """
        entry = self._entry(kind, None, level, text, advice)
        new = not entry.sources
        seen = entry.sources.setdefault(DRIVER, Seen(0, now, now))
        begins = entry.ended_at is not None or seen.count == 0
        grown = seen.count + begins if count is None else count
        if begins or grown != seen.count:
            seen.last_at = now
            unseen = begins and kind not in self._well
            entry.last_unseen = unseen
            if begins:
                entry.began_at = None if unseen else now
            if new:
                entry.first_unseen = unseen
        self._well.discard(kind)
        seen.count = grown
        entry.holds, entry.ended_at, entry.unread_since = True, None, None

    def unread(self, kind: str, now: float) -> None:
        """Note that nothing says whether a state holds: it is not over, and not sure either."""
        self._well.discard(kind)
        entry = self._entries.get((kind, None))
        if entry is not None and entry.holds and entry.unread_since is None:
            entry.unread_since = now

    def over(self, kind: str, now: float) -> None:
        """Note that a state does not hold."""
        self._well.add(kind)
        entry = self._entries.get((kind, None))
        if entry is not None and entry.ended_at is None:
            entry.holds, entry.ended_at = False, now

    def reset(self, at: float) -> None:
        """Note that the machine was started anew at `at`: what happened before is over.

        So are states that a start ends. The others go on until a reading says otherwise.
        """
        for entry in self._entries.values():
            over = not entry.holds or entry.kind in _ENDS_WITH_A_START
            if entry.ended_at is None and over:
                entry.holds, entry.ended_at = False, max(at, entry.last_at())

    def tidy(self, now: float) -> None:
        """End what happened long enough ago, drop what has been over for a day, keep the worst."""
        for entry in self._entries.values():
            if entry.ended_at is None and not entry.holds:
                last_at = entry.last_at()
                if known(last_at, now) is None:
                    entry.ended_at = last_at  # of another clock: it must not go on until that time
                elif now >= last_at + HOUR:
                    entry.ended_at = last_at + HOUR
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


def _rounded(at: float | None) -> float | None:
    return None if at is None else round(at, 3)


def _rank(entry: Entry) -> tuple[bool, int, float]:
    return entry.ended_at is not None, _LEVELS.index(entry.level), -entry.last_at()
