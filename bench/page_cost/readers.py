"""Readers that any web server can serve: each request over a connection of its own."""

from __future__ import annotations

import asyncio
import contextlib
import time
from collections.abc import AsyncIterator
from dataclasses import dataclass, field

ANSWER_SECONDS = 10.0
"""An open page asks as often; what has not come by then, it has missed."""


@dataclass
class Tally:
    """What readers got."""

    latencies: list[float] = field(default_factory=list)
    """Seconds, of answers with status 200."""
    missed: int = 0
    """Requests without an answer in time."""
    refused: str = ""
    """Status line of the last answer that was not 200."""
    body_bytes: int = 0

    @property
    def kept(self) -> float | None:
        """Share of the requests that were answered in time; None: nothing was asked."""
        asked = len(self.latencies) + self.missed
        return len(self.latencies) / asked if asked else None


async def ask(port: int, path: str, tally: Tally) -> None:
    """Ask once, and write down what came of it."""
    began = time.perf_counter()
    try:
        status, body = await asyncio.wait_for(_answer(port, path), ANSWER_SECONDS)
    except (OSError, asyncio.TimeoutError, asyncio.IncompleteReadError):
        tally.missed += 1
        return
    if b" 200 " not in status:
        tally.refused, tally.missed = status.decode("latin-1"), tally.missed + 1
        return
    tally.latencies.append(time.perf_counter() - began)
    tally.body_bytes = len(body)


async def _answer(port: int, path: str) -> tuple[bytes, bytes]:
    reader, writer = await asyncio.open_connection("127.0.0.1", port)
    try:
        writer.write(
            f"GET {path} HTTP/1.1\r\nHost: 127.0.0.1:{port}\r\nAccept: text/html\r\n"
            "Accept-Encoding: gzip\r\nConnection: close\r\n\r\n".encode()
        )
        whole = await reader.read(-1)
    finally:
        writer.transport.abort()
    head, found, body = whole.partition(b"\r\n\r\n")
    if not found:
        raise ConnectionError("the connection was closed before an answer")
    return head.partition(b"\r\n")[0], body


async def hurry(port: int, path: str, readers: int, seconds: float) -> Tally:
    """Have `readers` ask again at once after each answer, for so long."""
    tally, end = Tally(), time.monotonic() + seconds

    async def reader() -> None:
        while time.monotonic() < end:
            await ask(port, path, tally)

    tasks = [asyncio.create_task(reader()) for _ in range(readers)]
    _, late = await asyncio.wait(tasks, timeout=seconds)
    for task in late:  # what was asked and not answered within the time is not counted
        task.cancel()
    await asyncio.gather(*tasks, return_exceptions=True)
    return tally


@contextlib.asynccontextmanager
async def open_pages(port: int, path: str, count: int) -> AsyncIterator[Tally]:
    """Keep `count` pages open that ask every ANSWER_SECONDS, spread over that time."""
    tally, closed = Tally(), asyncio.Event()

    async def page(wait: float) -> None:
        while not closed.is_set():  # an answer that comes with the cancellation would swallow it
            await asyncio.sleep(wait)
            began = time.monotonic()
            await ask(port, path, tally)
            wait = max(0.0, ANSWER_SECONDS - (time.monotonic() - began))

    pages = [asyncio.create_task(page(ANSWER_SECONDS * n / max(1, count))) for n in range(count)]
    try:
        yield tally
    finally:
        closed.set()
        for one in pages:
            one.cancel()
        await asyncio.gather(*pages, return_exceptions=True)
