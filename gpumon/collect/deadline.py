"""Reading what may never come, in a thread that is left behind after a deadline.

The arguments and the environment of a process lie in its own memory. The kernel waits for that
memory, and a page of it can be slow for ever: a dead network mount, or a file system that the
process itself has made. One such process must cost its own row and not the sample.
"""

from __future__ import annotations

import queue
import threading
from collections.abc import Callable, Hashable
from typing import Any, TypeVar

T = TypeVar("T")


class _Job:
    """One call: what to do, and what came of it."""

    def __init__(self, work: Callable[[], Any], finished: Callable[[], None]) -> None:
        self._work = work
        self._finished = finished
        self.done = threading.Event()
        self.value: Any = None
        self.error: BaseException | None = None

    def run(self) -> None:
        try:
            self.value = self._work()
        except BaseException as error:  # it is raised again in the thread that waits for it
            self.error = error
        self._finished()
        self.done.set()


class Deadline:
    """Calls that take `seconds` at most. One thread does them all, as long as none is stuck."""

    def __init__(self, seconds: float, most_stuck: int) -> None:
        """`most_stuck`: so many threads may be left behind; then calls are refused at once."""
        self._seconds = seconds
        self._most_stuck = most_stuck
        self._jobs: queue.SimpleQueue[_Job | None] | None = None
        self._stuck: set[Hashable] = set()

    def call(self, key: Hashable, work: Callable[[], T]) -> T:
        """Return what `work` returns, or raise what it raises.

        Raises TimeoutError when it takes too long; at once while the call before it with this
        `key` is still stuck. For one thread.
        """
        if key in self._stuck or len(self._stuck) >= self._most_stuck:
            raise TimeoutError(f"{key} does not answer")
        if self._jobs is None:
            self._jobs = queue.SimpleQueue()
            threading.Thread(target=_work_on, args=(self._jobs,), daemon=True).start()
        job = _Job(work, lambda: self._stuck.discard(key))
        self._stuck.add(key)
        self._jobs.put(job)
        if not job.done.wait(self._seconds):
            self._jobs.put(None)  # the thread ends when this call does; the next gets another
            self._jobs = None
            raise TimeoutError(f"{key} does not answer")
        if job.error is not None:
            raise job.error
        value: T = job.value
        return value


def _work_on(jobs: queue.SimpleQueue[_Job | None]) -> None:
    while (job := jobs.get()) is not None:
        job.run()
