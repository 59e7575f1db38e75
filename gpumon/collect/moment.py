"""The clocks of one sample, read once, and what else holds for all of it."""

from __future__ import annotations

import time

import msgspec


class Moment(msgspec.Struct, frozen=True):
    """One point in time on three clocks, in seconds."""

    wall: float
    """Since the epoch; may be stepped at any time."""
    monotonic: float
    boot: float
    """Since the start of the machine, sleep included: the clock of process start times."""


class Round(msgspec.Struct, frozen=True):
    """What one reading of all GPUs goes by."""

    now: Moment
    elapsed: float | None
    """Seconds since the reading before; None at the first one."""
    pid_max: int
    """The highest pid that there can be."""


def now() -> Moment:
    """Return this moment."""
    return Moment(time.time(), time.monotonic(), time.clock_gettime(time.CLOCK_BOOTTIME))
