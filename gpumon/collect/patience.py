"""Asking what may be slow or silent for ever, such as the name service of the host.

A directory server that is down must cost names and not the sample: one thread asks, and a sample
waits for it only a little.
"""

from __future__ import annotations

import queue
import threading
import time
from collections.abc import Callable, Hashable
from typing import Generic, TypeVar

K = TypeVar("K", bound=Hashable)
V = TypeVar("V")

_KEEP_SECONDS = 600.0
_KEEP_FAILURE_SECONDS = 60.0
_MOST_KEPT = 10_000
"""Far more than one host has users; who can choose what is asked can't fill the memory."""


class Patience(Generic[K, V]):
    """Answers by key, kept for ten minutes; None, the answer "there is none", for one.

    An answer is never replaced by None: a directory that is down says "there is none" like one that
    has none, and an account that is gone was still whose the running processes are.

    `ask` runs in a thread of its own and must not raise. `patience` is how many seconds a sample
    waits in all for answers that it has never had.
    """

    def __init__(self, ask: Callable[[K], V | None], patience: float) -> None:
        self._ask = ask
        self._patience = patience
        self._kept: dict[K, tuple[float, V | None]] = {}
        self._pending: dict[K, threading.Event] = {}
        self._wanted: queue.SimpleQueue[tuple[K, float]] = queue.SimpleQueue()
        self._thread: threading.Thread | None = None
        self._now = 0.0
        self._patience_left = 0.0

    def begin(self, now: float) -> None:
        """Begin a sample at `now` (seconds, monotonic), with new patience."""
        self._now = now
        self._patience_left = self._patience
        if len(self._kept) > _MOST_KEPT:
            self._kept = {}

    def answer(self, key: K) -> tuple[V | None, bool]:
        """Return the answer for `key`, and whether there is one yet."""
        due, value = self._kept.get(key, (0.0, None))
        if self._now >= due and key not in self._pending and len(self._pending) < _MOST_KEPT:
            answered = self._request(key)
            if due == 0.0 and self._patience_left > 0:
                begin = time.monotonic()
                answered.wait(self._patience_left)
                self._patience_left -= time.monotonic() - begin
            due, value = self._kept.get(key, (0.0, None))
        return value, due != 0.0

    def _request(self, key: K) -> threading.Event:
        """Have the thread ask; return the event that tells of its answer."""
        answered = self._pending[key] = threading.Event()
        self._wanted.put((key, self._now))
        if self._thread is None:
            self._thread = threading.Thread(target=self._answer_for_ever, daemon=True)
            self._thread.start()
        return answered

    def _answer_for_ever(self) -> None:
        while True:
            key, asked_at = self._wanted.get()
            value = self._ask(key)
            if value is None:
                _, value = self._kept.get(key, (0.0, None))
            keep = _KEEP_FAILURE_SECONDS if value is None else _KEEP_SECONDS
            self._kept[key] = (asked_at + keep, value)
            self._pending.pop(key).set()
