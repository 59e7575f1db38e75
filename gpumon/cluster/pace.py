"""When a host is asked next. Pure: moments are monotonic and come as arguments."""

from __future__ import annotations

import heapq
import math
from collections.abc import Collection, Mapping

import msgspec

from gpumon.states import DOWN_AFTER_SECONDS

LONGEST_WAIT_SECONDS = 60.0
"""A host that is down is asked at least this often."""
SLOWING = 5.0
"""A host that has been down for t seconds is asked every t / SLOWING seconds."""
JITTER = 0.2
"""Share by which a long wait is shortened at random, so that a rack that died together does not
come up for its polls together."""
GOLDEN = 0.618
SLOT_SECONDS = 0.1
"""Polls begin in slots of this length: a few together cost the loop half of as many one by one."""


def places(
    hosts: Collection[str], interval: float, kept: Mapping[str, float] | None = None
) -> dict[str, float]:
    """Return the place of every host in the round (`Pace.phase`): evenly spread, in whole slots.

    Those of `kept` keep theirs, and the others come where the fewest are.
    """
    count = len(hosts)
    if not kept:
        return {
            host: math.floor(interval * number / count / SLOT_SECONDS) * SLOT_SECONDS
            for number, host in enumerate(hosts)
        }
    slots = max(1, math.ceil(interval / SLOT_SECONDS))
    taken = [0] * slots
    for place in kept.values():
        taken[round(place / SLOT_SECONDS) % slots] += 1
    # Of slots that are equally empty, neighbours are not taken one after the other.
    empty = [(many, slot * GOLDEN % 1.0, slot) for slot, many in enumerate(taken)]
    heapq.heapify(empty)
    found = {}
    for host in hosts:
        if host in kept:
            found[host] = kept[host]
        else:
            many, turn, slot = empty[0]
            heapq.heapreplace(empty, (many + 1, turn, slot))
            found[host] = slot * SLOT_SECONDS
    return found


class Pace(msgspec.Struct, frozen=True, kw_only=True):
    """One host's place in the round: it is asked at start + phase + k * interval."""

    start: float
    phase: float
    """Seconds, 0 <= phase < interval (see `places`)."""
    interval: float

    def next_poll(self, asked: float, now: float, failing_for: float | None, luck: float) -> float:
        """Return when to ask next.

        `asked` is when the last poll began, `failing_for` for how long the host has not answered
        (None: it did), `luck` a random number from 0 to 1. A host that just began to fail keeps its
        pace, so that its return is seen within two polls; one that is down is asked less and less.
        """
        if failing_for is not None:
            wait = min((failing_for - DOWN_AFTER_SECONDS) / SLOWING, LONGEST_WAIT_SECONDS)
            if wait > self.interval:
                return now + wait * (1.0 - JITTER * luck)
        # Half an interval: the first poll, which comes out of turn, is no reason to skip a turn.
        earliest = max(now, asked + self.interval / 2)
        turn = math.floor((earliest - self.start - self.phase) / self.interval) + 1
        return self.start + self.phase + turn * self.interval
