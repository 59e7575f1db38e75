"""One line of the doctor's answer."""

from __future__ import annotations

from collections.abc import Callable, Iterable
from typing import Literal

import msgspec

Level = Literal["ok", "warning", "fault"]


class Finding(msgspec.Struct, frozen=True, kw_only=True):
    """What one check found. `cure` says what to do, where something is to be done."""

    check: str
    level: Level
    text: str
    cure: str | None = None


class Check(msgspec.Struct, frozen=True, kw_only=True):
    """A check, and how many seconds it may take. `look` yields what it finds."""

    name: str
    look: Callable[[], Iterable[Finding]]
    seconds: float = 5.0


def ok(check: str, text: str) -> Finding:
    """Return that something is well."""
    return Finding(check=check, level="ok", text=text)


def warning(check: str, text: str, cure: str) -> Finding:
    """Return that something works and wants attention."""
    return Finding(check=check, level="warning", text=text, cure=cure)


def fault(check: str, text: str, cure: str) -> Finding:
    """Return that something does not work."""
    return Finding(check=check, level="fault", text=text, cure=cure)
