"""Names of uids, from the account database of the host, which may be slow or silent.

The name service may ask a directory server that is down. That must cost names and not the sample:
one thread asks, and a sample waits for it only a little.
"""

from __future__ import annotations

import pwd
import queue
import threading
import time
from collections.abc import Callable

from gpumon.text import clean

SILENT = "the account database does not answer"

_PATIENCE_SECONDS = 1.0
_KEEP_SECONDS = 600.0
_KEEP_FAILURE_SECONDS = 60.0


def look_up(uid: int) -> str | None:
    """Return the login name through NSS, so from LDAP and the like too; None where it has none."""
    try:
        return clean(pwd.getpwuid(uid).pw_name, 64) or None
    except (KeyError, OSError):
        return None


class Accounts:
    """Login names by uid, kept for ten minutes, failures for one."""

    def __init__(
        self,
        look_up: Callable[[int], str | None] = look_up,
        patience: float = _PATIENCE_SECONDS,
    ) -> None:
        self._look_up = look_up
        self._patience = patience
        self._names: dict[int, tuple[float, str | None]] = {}
        self._pending: dict[int, threading.Event] = {}
        self._wanted: queue.SimpleQueue[tuple[int, float]] = queue.SimpleQueue()
        self._thread: threading.Thread | None = None
        self._now = 0.0
        self._patience_left = 0.0

    def begin(self, now: float) -> None:
        """Begin a sample at `now` (seconds, monotonic), with new patience."""
        self._now = now
        self._patience_left = self._patience

    def name(self, uid: int) -> tuple[str, str | None]:
        """Return the login name, or "uid:1234", and a note where the database did not answer."""
        due, name = self._names.get(uid, (0.0, None))
        if self._now >= due and uid not in self._pending:
            answered = self._request(uid)
            if due == 0.0 and self._patience_left > 0:
                begin = time.monotonic()
                answered.wait(self._patience_left)
                self._patience_left -= time.monotonic() - begin
            due, name = self._names.get(uid, (0.0, None))
        return name or f"uid:{uid}", SILENT if due == 0.0 else None

    def _request(self, uid: int) -> threading.Event:
        """Have the thread ask; return the event that tells of its answer."""
        answered = self._pending[uid] = threading.Event()
        self._wanted.put((uid, self._now))
        if self._thread is None:
            self._thread = threading.Thread(target=self._answer_for_ever, daemon=True)
            self._thread.start()
        return answered

    def _answer_for_ever(self) -> None:
        while True:
            uid, asked_at = self._wanted.get()
            name = self._look_up(uid)
            keep = _KEEP_FAILURE_SECONDS if name is None else _KEEP_SECONDS
            self._names[uid] = (asked_at + keep, name)
            self._pending.pop(uid).set()
