"""Times of events under a clock that may be set: their age is true, whatever the calendar says."""

from __future__ import annotations

import msgspec

FUTURE_SECONDS = 60.0
"""A time further ahead than this is from another clock: when it was is not known."""

_STEP_SECONDS = 1.0
"""Less is the clock being slewed, or the two readings of a moment."""


class Shift(msgspec.Struct, frozen=True):
    """By how much the clock was set, and which times were told by it before. Epoch seconds."""

    begin: float
    end: float
    seconds: float

    @classmethod
    def between(cls, before: float, after: float, boot: float) -> Shift | None:
        """Return how to move the times of this boot; None: the clock was not set.

        `before` and `after` are the start of the machine by the clock as it was and as it is,
        `boot` how long ago that is. Times before the start, and those after now, are of other boots
        and of their clocks; they stay.
        """
        seconds = after - before
        if abs(seconds) < _STEP_SECONDS:
            return None
        return cls(before - _STEP_SECONDS, before + boot + _STEP_SECONDS, seconds)

    def __call__(self, at: float) -> float:
        """Return the time by the clock as it is now."""
        return round(at + self.seconds, 3) if self.begin <= at <= self.end else at


def known(at: float, now: float) -> float | None:
    """Return a time of the past; None for one that can only be of another clock."""
    return None if at > now + FUTURE_SECONDS else min(at, now)
