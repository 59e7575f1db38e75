"""To whom a uid of a user namespace was given: /etc/subuid."""

from __future__ import annotations

import os
from pathlib import Path

_MOST_BYTES = 4 * 1024 * 1024


class Subuids:
    """Reads the file again when it has changed."""

    def __init__(self, path: str = "/etc/subuid") -> None:
        self._path = path
        self._stamp: tuple[int, int, int] | None = None
        self._ranges: list[tuple[str, int, int]] = []

    def owners_of(self, uid: int) -> set[str]:
        """Return who has `uid` in one of their ranges, each as the file has it: name or number."""
        self._refresh()
        return {owner for owner, first, count in self._ranges if first <= uid < first + count}

    def _refresh(self) -> None:
        try:
            status = os.stat(self._path)
            stamp = (status.st_mtime_ns, status.st_size, status.st_ino)
            if stamp == self._stamp:
                return
            with Path(self._path).open(encoding="utf-8", errors="replace") as file:
                text = file.read(_MOST_BYTES)
        except OSError:
            self._stamp, self._ranges = None, []
            return
        self._stamp, self._ranges = stamp, _parse(text)


def _parse(text: str) -> list[tuple[str, int, int]]:
    """Return the ranges, as (owner, first, count). Lines of another form are skipped."""
    ranges = []
    for line in text.splitlines():
        owner, *numbers = line.strip().split(":")
        if owner and len(numbers) == 2 and all(n.isascii() and n.isdecimal() for n in numbers):
            ranges.append((owner, int(numbers[0]), int(numbers[1])))
    return ranges
