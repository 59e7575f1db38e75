"""How long something has been so, in words."""

from __future__ import annotations

from gpumon.units import UNKNOWN, duration


def since(now: float, began: float | None, at_least: bool = False) -> str:
    """Return the time from `began` to `now` (epoch seconds): "3h05", "at least 3h05", "-".

    `at_least` says that nobody watched before `began`, so it may have lasted longer.
    """
    length = UNKNOWN if began is None else duration(now - began)
    return f"at least {length}" if at_least and length != UNKNOWN else length
