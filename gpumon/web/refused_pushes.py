"""One log line for each kind of refusal, and not one for each request of a flood."""

from __future__ import annotations

import logging
import threading
import time
from collections.abc import Callable

from gpumon.text import clean

log = logging.getLogger(__name__)

QUIET_SECONDS = 60.0
"""The same refusal is logged again after this time at the earliest."""
MOST_LINES = 20
"""In that time, whatever is refused to whom."""


class Refusals:
    """Logs refused requests. For any thread."""

    def __init__(self, monotonic: Callable[[], float] = time.monotonic) -> None:
        self._monotonic = monotonic
        self._lock = threading.Lock()
        self._began = -QUIET_SECONDS
        self._told: set[tuple[str, str, str]] = set()
        self._untold = 0

    def note(self, address: str, who: str, sentence: str) -> None:
        """Log that a request of `who` from `address` was refused, unless it was just now."""
        line = (clean(address, 64), clean(who, 64), clean(sentence, 300))
        with self._lock:
            now = self._monotonic()
            untold = 0
            if now - self._began >= QUIET_SECONDS:
                untold, self._untold = self._untold, 0
                self._began = now
                self._told.clear()
            known = line in self._told or len(self._told) >= MOST_LINES
            if known:
                self._untold += 1
            else:
                self._told.add(line)
        if untold:
            log.warning("%d more pushes were refused in the minute before", untold)
        if not known:
            log.warning(
                "a push of %s from %s was refused: %s", line[1] or "nobody", line[0], line[2]
            )
