"""Says something once in a while rather than with every request. Its memory is bounded."""

from __future__ import annotations

import threading
import time
from collections import OrderedDict
from collections.abc import Callable, Hashable

SECONDS = 600.0
MOST = 1024


class Seldom:
    """Remembers what was said when. For any thread."""

    def __init__(
        self,
        seconds: float = SECONDS,
        most: int = MOST,
        clock: Callable[[], float] = time.monotonic,
    ) -> None:
        self._seconds = seconds
        self._most = most
        self._clock = clock
        self._said: OrderedDict[Hashable, float] = OrderedDict()
        self._lock = threading.Lock()

    def allows(self, what: Hashable) -> bool:
        """Return whether `what` was not said in the last while, and take it as said now."""
        now = self._clock()
        with self._lock:
            before = self._said.get(what)
            if before is not None and now - before < self._seconds:
                return False
            self._said[what] = now
            self._said.move_to_end(what)
            while len(self._said) > self._most:
                self._said.popitem(last=False)
            return True
