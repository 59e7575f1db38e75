"""A small HTTP client for load: some connections that ask again and again, and slow ones."""

from __future__ import annotations

import asyncio
import math
import time
from dataclasses import dataclass

ANSWER_SECONDS = 10.0
"""How long an answer may take before the measurement fails."""

SLOW = {
    "silent": b"",
    "half a header": b"POST /RPC2 HTTP/1.1\r\nHost: 127.0.0.1\r\nContent-Le",
    "half a body": b"POST /RPC2 HTTP/1.1\r\nHost: 127.0.0.1\r\nContent-Type: text/xml\r\n"
    b"Content-Length: 400\r\n\r\n<?xml version='1.0'?><methodCall>",
}
"""What the kinds of slow clients send before they fall silent."""


@dataclass(frozen=True)
class Load:
    """What some connections have seen in some time."""

    latencies: list[float]
    """Seconds, sorted."""
    seconds: float

    @property
    def rate(self) -> float:
        """Answers per second."""
        return len(self.latencies) / self.seconds

    def percentile_ms(self, percent: float) -> float:
        """Return the latency that `percent` of the answers did not exceed, in ms."""
        rank = math.ceil(percent / 100 * len(self.latencies))
        return 1000 * self.latencies[max(0, rank - 1)]


class _Client(asyncio.Protocol):
    """Sends a request, waits for the whole answer, and so on."""

    def __init__(self, request: bytes, until: float) -> None:
        self.latencies: list[float] = []
        self.done: asyncio.Future[None] = asyncio.get_running_loop().create_future()
        self._request = request
        self._until = until
        self._data = bytearray()
        self._missing: int | None = None

    def connection_made(self, transport: asyncio.BaseTransport) -> None:
        assert isinstance(transport, asyncio.Transport)
        self._transport = transport
        self._ask()

    def data_received(self, data: bytes) -> None:
        if self._missing is not None:
            self._missing -= len(data)
        else:
            self._data += data
            head, found, body = self._data.partition(b"\r\n\r\n")
            if not found:
                return
            if not head.startswith(b"HTTP/1.1 200"):
                self._end(ConnectionError(f"200 was expected, found {bytes(head[:40])!r}"))
                return
            self._missing = _content_length(bytes(head)) - len(body)
            self._data.clear()
        if self._missing == 0:
            self._answered(time.perf_counter())

    def _answered(self, now: float) -> None:
        self.latencies.append(now - self._asked_at)
        if now < self._until:
            self._ask()
        else:
            self._end(None)

    def connection_lost(self, error: Exception | None) -> None:
        self._end(ConnectionError(f"the server closed the connection ({error})"))

    def _ask(self) -> None:
        self._missing = None
        self._asked_at = time.perf_counter()
        self._transport.write(self._request)

    def _end(self, error: Exception | None) -> None:
        if self.done.done():
            return
        if error is None:
            self.done.set_result(None)
        else:
            self.done.set_exception(error)
        self._transport.close()


def request(path: str, body: bytes = b"", *, gzip: bool = False) -> bytes:
    """Return a request: a POST of XML where there is a body."""
    head = [f"{'POST' if body else 'GET'} {path} HTTP/1.1", "Host: 127.0.0.1"]
    head += ["Accept-Encoding: gzip"] if gzip else []
    head += ["Content-Type: text/xml", f"Content-Length: {len(body)}"] if body else []
    return "\r\n".join([*head, "", ""]).encode() + body


async def load(port: int, asked: bytes, connections: int, seconds: float) -> Load:
    """Ask over some connections, each at once again after its answer. Raises OSError."""
    loop = asyncio.get_running_loop()
    begin = time.perf_counter()
    clients = []
    for _ in range(connections):
        _, client = await loop.create_connection(
            lambda: _Client(asked, begin + seconds), "127.0.0.1", port
        )
        clients.append(client)
    done = asyncio.gather(*(client.done for client in clients))
    await asyncio.wait_for(done, seconds + ANSWER_SECONDS)
    passed = time.perf_counter() - begin
    return Load(sorted(value for client in clients for value in client.latencies), passed)


class Slow:
    """Slow clients of one kind, attached while the block lasts."""

    def __init__(self, port: int, kind: str | None, count: int) -> None:
        self._port = port
        self._sent = b"" if kind is None else SLOW[kind]
        self._count = 0 if kind is None else count
        self._writers: list[asyncio.StreamWriter] = []

    async def __aenter__(self) -> None:
        for _ in range(self._count):
            _, writer = await asyncio.open_connection("127.0.0.1", self._port)
            writer.write(self._sent)
            self._writers.append(writer)
        await asyncio.sleep(0.05 if self._count else 0)  # let the server take them all

    async def __aexit__(self, *_: object) -> None:
        for writer in self._writers:
            writer.transport.abort()
        await asyncio.sleep(0.05 if self._count else 0)


def _content_length(head: bytes) -> int:
    for line in head.split(b"\r\n"):
        name, _, value = line.partition(b":")
        if name.lower() == b"content-length":
            return int(value)
    raise ConnectionError("an answer with Content-Length was expected")
