"""Name resolution that no dead name server can turn against the other hosts.

The system's resolver blocks its thread for as long as it likes. Here each name has a thread of its
own while it is looked up, at most one per name, and nobody waits for a thread at the end. Known
addresses are used at once and looked up again beside that.
"""

from __future__ import annotations

import asyncio
import socket
import threading
import time
from collections.abc import Callable
from typing import Any, NamedTuple

FRESH_SECONDS = 60.0
"""Known addresses are looked up again after this time."""
USABLE_SECONDS = 3600.0
"""They are used meanwhile, but no longer than this."""
MOST_THREADS = 64

Lookup = Callable[..., list[Any]]
Addresses = list[tuple[int, str]]
"""Family and address."""


class _Known(NamedTuple):
    addresses: Addresses
    at: float


class Resolver:
    """Looks up host names with `lookup` (the system's getaddrinfo by default)."""

    def __init__(
        self, lookup: Lookup = socket.getaddrinfo, clock: Callable[[], float] = time.monotonic
    ) -> None:
        self._lookup = lookup
        self._clock = clock
        self._known: dict[str, _Known] = {}
        self._running: dict[str, asyncio.Task[Addresses]] = {}
        self._threads = asyncio.Semaphore(MOST_THREADS)

    async def addresses(self, host: str) -> Addresses:
        """Return the addresses of `host`. Raises OSError (socket.gaierror) where it has none."""
        known = self._known.get(host)
        age = None if known is None else self._clock() - known.at
        if age is None or age > FRESH_SECONDS:
            running = self._running.get(host) or self._start(host)
            if known is None or age is None or age > USABLE_SECONDS:
                # Shielded: the lookup goes on for the next poll when this one's time is over.
                return await asyncio.shield(running)
        assert known is not None
        return known.addresses

    def _start(self, host: str) -> asyncio.Task[Addresses]:
        task = asyncio.get_running_loop().create_task(self._look_up(host))
        self._running[host] = task
        task.add_done_callback(lambda done: self._ended(host, done))
        return task

    def _ended(self, host: str, task: asyncio.Task[Addresses]) -> None:
        del self._running[host]
        # Asking for the exception counts as having seen it: perhaps nobody waits any more.
        if not task.cancelled() and task.exception() is None:
            self._known[host] = _Known(task.result(), self._clock())

    async def _look_up(self, host: str) -> Addresses:
        async with self._threads:
            loop = asyncio.get_running_loop()
            answer: asyncio.Future[list[Any]] = loop.create_future()

            def deliver(found: list[Any] | None, error: OSError | None) -> None:
                if not answer.done():
                    if error is not None:
                        answer.set_exception(error)
                    else:
                        answer.set_result(found or [])

            def work() -> None:
                found, failed = None, None
                try:
                    found = self._lookup(host, None, type=socket.SOCK_STREAM)
                except OSError as error:
                    failed = error
                except UnicodeError:
                    failed = socket.gaierror(socket.EAI_NONAME, "not a host name")
                try:
                    loop.call_soon_threadsafe(deliver, found, failed)
                except RuntimeError:
                    return  # the loop has ended meanwhile: nobody wants to know

            try:
                threading.Thread(target=work, name=f"lookup {host}", daemon=True).start()
            except RuntimeError as error:
                raise OSError(f"no thread to look up {host}: {error}") from error
            rows = await answer
        if not rows:
            raise socket.gaierror(socket.EAI_NONAME, "no address")
        return [(family, address[0]) for family, _, _, _, address in rows]

    async def close(self) -> None:
        """Stop waiting for lookups; their threads end by themselves."""
        for task in list(self._running.values()):
            task.cancel()
