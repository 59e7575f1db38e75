"""What the sources of other tools' readings share: each value is checked alone, nothing is guessed.

A value that is missing or can't be true is unknown, with its reason in `Gpu.unknown`.
"""

from __future__ import annotations

from collections.abc import Callable
from typing import Any

import msgspec

from gpumon.cluster.sources.base import Reading
from gpumon.cluster.sources.trust import bounded
from gpumon.model import Gpu, HostSnapshot
from gpumon.text import clean

MOST_MIB = 2**30
"""No card has a pebibyte."""
MOST_PID = 2**31 - 1
MOST_PROCESSES = 4096
"""Per GPU; beyond these somebody is joking."""
LONGEST_RUN = 100 * 366 * 86400.0
"""Seconds that a process may have run."""

_NEVER_UNKNOWN = frozenset(
    {
        "error",
        "missing_since",
        "mig_mode_pending",
        "unused_since",
        "free_since",
        "held_since",
        "fault_since",
        "watched_since",
    }
)
"""Fields whose None says something else, or is explained elsewhere."""

_CAN_BE_UNKNOWN = [
    field.name
    for field in msgspec.structs.fields(Gpu)
    if field.default is None and field.name not in _NEVER_UNKNOWN
]


def put(
    gpu: Gpu, field: str, value: Any, low: float, high: float, kind: Callable[[float], Any] = int
) -> None:
    """Set `field` to `kind(value)` where it is a number from `low` to `high`; else say why not.

    None is left to `explain`.
    """
    if value is None:
        return
    if isinstance(value, bool) or not isinstance(value, (int, float)):
        gpu.unknown[field] = f"not told by the driver ({clean(str(value), 40)})"
    elif not low <= value <= high:  # so NaN is out too
        gpu.unknown[field] = f"out of range (found {clean(str(value), 40)})"
    else:
        setattr(gpu, field, kind(value))


def explain(gpu: Gpu, reason: str) -> None:
    """Give every field that is None and has no reason yet the same one."""
    for field in _CAN_BE_UNKNOWN:
        if getattr(gpu, field) is None:
            gpu.unknown.setdefault(field, reason)


def as_pid(value: Any) -> int | None:
    """Return a pid, None for everything that is none."""
    if isinstance(value, int) and not isinstance(value, bool) and 0 < value <= MOST_PID:
        return value
    return None


def as_owner(name: str) -> str | None:
    """Return an owner as gpumon writes it: a number without a name is "uid:1234"."""
    name = clean(name.strip(), 64)
    if not name or name == "?":
        return None
    return f"uid:{name}" if name.isascii() and name.isdigit() else name


def as_reading(snapshot: HostSnapshot) -> Reading:
    """Return the reading of a snapshot. Raises ValueError for lists beyond reason."""
    reading = Reading.of(snapshot)
    bounded(reading.summary)
    return reading
