"""How long something has been so, in words."""

from __future__ import annotations

from gpumon.units import UNKNOWN, duration


def since(now: float, began: float | None, at_least: bool = False, at_most: bool = False) -> str:
    """Return the time from `began` to `now` (epoch seconds): "3h05", "at least 3h05", "-".

    `at_least` says that nobody watched before `began`, so it may have lasted longer. `at_most` says
    that a process began then and nobody saw it come, so it may have lasted less.
    """
    length = UNKNOWN if began is None else duration(now - began)
    if length == UNKNOWN:
        return length
    return f"at least {length}" if at_least else f"at most {length}" if at_most else length


def short_since(
    now: float, began: float | None, at_least: bool = False, at_most: bool = False
) -> str:
    """Return the same for narrow columns: "3h05", ">=3h05", "<=3h05", "-"."""
    words = since(now, began, at_least, at_most)
    return words.replace("at least ", ">=").replace("at most ", "<=")
