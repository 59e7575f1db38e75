"""What the tests of the cluster share: readings, clocks, and real servers on loopback."""

from __future__ import annotations

import asyncio
import base64
import gzip
import ssl
import time
from collections.abc import AsyncIterator, Awaitable, Callable
from contextlib import asynccontextmanager, suppress

import msgspec
import pytest

from gpumon.cluster.sources.base import Reading
from gpumon.config import Config, HostEntry
from gpumon.http.xmlrpc import array, enveloped, json_text, string
from gpumon.model import Gpu, HostSnapshot, Process, encode
from gpumon.summary import summarize

# Python 3.10 takes a TLS connection that the peer broke off for one that was left open.
BROKEN_OFF = pytest.mark.filterwarnings("ignore::pytest.PytestUnraisableExceptionWarning")

WALL = 1_764_000_000.0


class Clock:
    """Both clocks of the server, moved by hand."""

    def __init__(self) -> None:
        self.seconds = 1000.0

    def monotonic(self) -> float:
        return self.seconds

    def wall(self) -> float:
        return WALL + self.seconds - 1000.0

    def move(self, seconds: float) -> None:
        self.seconds += seconds


def a_gpu(index: int = 0, **fields: object) -> Gpu:
    """A healthy, empty GPU."""
    empty = Gpu(
        index=index,
        uuid=f"GPU-{index:04}",
        name="NVIDIA H100 80GB HBM3",
        utilization_percent=0,
        memory_total_mib=81559,
        memory_used_mib=4,
        memory_reserved_mib=500,
        processes=[],
    )
    return msgspec.structs.replace(empty, **fields)


def a_process(pid: int = 77, user: str | None = "bob", **fields: object) -> Process:
    process = Process(pid=pid, user=user, kinds=["compute"], gpu_memory_used_mib=30_000)
    return msgspec.structs.replace(process, **fields)


def a_snapshot(*gpus: Gpu, **fields: object) -> HostSnapshot:
    """A reading that was taken this moment, by the wall clock of `Clock` at its start."""
    snapshot = HostSnapshot(
        sample_age_seconds=0.0,
        hostname="gpu-01",
        time=WALL,
        sample_interval_seconds=5.0,
        agent_version="0.1.0",
        driver_version="570.1",
        gpu_count=len(gpus),
        gpus=list(gpus),
    )
    return msgspec.structs.replace(snapshot, **fields)


def a_reading(*gpus: Gpu, **fields: object) -> Reading:
    return Reading.of(a_snapshot(*gpus, **fields))


def an_answer(snapshot: HostSnapshot, revision: str = "a-1") -> bytes:
    """The body that an agent sends when it has news."""
    return enveloped(
        array(
            [
                string(revision.encode()),
                string(json_text(encode(summarize(snapshot)))),
                string(base64.b64encode(gzip.compress(encode(snapshot)))),
            ]
        )
    )


def an_unchanged_answer(revision: str, age: float, error: str | None = None) -> bytes:
    news = encode({"sample_age_seconds": age, "sampler_error": error})
    return enveloped(array([string(revision.encode()), string(json_text(news))]))


def an_entry(name: str, port: int, *, host: str = "127.0.0.1", tls: bool = False) -> HostEntry:
    scheme = "https://" if tls else ""
    return HostEntry(
        name=name, source="xmlrpc", address=f"{scheme}{host}:{port}", host=host, port=port, tls=tls
    )


def a_config(*entries: HostEntry, **fields: object) -> Config:
    return msgspec.structs.replace(Config(hosts=list(entries)), **fields)


Behaviour = Callable[[asyncio.StreamReader, asyncio.StreamWriter], Awaitable[None]]


@asynccontextmanager
async def listening(
    behave: Behaviour,
    *,
    host: str = "127.0.0.1",
    port: int = 0,
    tls: ssl.SSLContext | None = None,
) -> AsyncIterator[int]:
    """A real TCP server on loopback that does on each connection what `behave` says; its port."""
    tasks: set[asyncio.Task[None]] = set()

    async def handle(reader: asyncio.StreamReader, writer: asyncio.StreamWriter) -> None:
        task = asyncio.current_task()
        assert task is not None
        tasks.add(task)
        # Clients that go away are part of what is tested.
        with suppress(ConnectionError, asyncio.IncompleteReadError, asyncio.CancelledError):
            await behave(reader, writer)
        writer.transport.abort() if tls else writer.close()
        tasks.discard(task)

    server = await asyncio.start_server(handle, host, port, ssl=tls)
    try:
        yield server.sockets[0].getsockname()[1]
    finally:
        server.close()
        for task in list(tasks):
            task.cancel()
        if tasks:
            await asyncio.wait(tasks, timeout=2)


async def read_request(reader: asyncio.StreamReader) -> tuple[dict[str, str], bytes]:
    """Return headers (with the request line as "request") and body of one HTTP request."""
    head = (await reader.readuntil(b"\r\n\r\n")).decode("latin-1").split("\r\n")
    headers = {"request": head[0]}
    for line in head[1:-2]:
        name, _, value = line.partition(":")
        headers[name.lower()] = value.strip()
    return headers, await reader.readexactly(int(headers.get("content-length", "0")))


def http(body: bytes, status: str = "200 OK", *headers: str) -> bytes:
    """A whole HTTP answer."""
    lines = [f"HTTP/1.1 {status}", f"Content-Length: {len(body)}", *headers]
    return ("\r\n".join(lines) + "\r\n\r\n").encode() + body


def saying(*parts: bytes, then_close: bool = True) -> Behaviour:
    """A server that reads one request, says `parts` whatever it was, and closes or falls silent."""

    async def behave(reader: asyncio.StreamReader, writer: asyncio.StreamWriter) -> None:
        await read_request(reader)
        for part in parts:
            writer.write(part)
            await writer.drain()
        if not then_close:
            await asyncio.sleep(3600)

    return behave


class Agent:
    """A small real agent: speaks HTTP with keep-alive and answers poll(since)."""

    def __init__(self, snapshot: HostSnapshot, revision: str = "a-1") -> None:
        self.snapshot = snapshot
        self.revision = revision
        self.age = 0.0
        self.requests: list[tuple[dict[str, str], bytes]] = []
        self.connections = 0
        self.token: str | None = None
        self.hang_up = False
        """Close each connection after one answer, without a word about it."""

    async def __call__(self, reader: asyncio.StreamReader, writer: asyncio.StreamWriter) -> None:
        self.connections += 1
        while True:
            headers, body = await read_request(reader)
            self.requests.append((headers, body))
            writer.write(self._answer(headers, body))
            await writer.drain()
            if self.hang_up:
                return

    def _answer(self, headers: dict[str, str], body: bytes) -> bytes:
        if self.token is not None and headers.get("authorization") != f"Bearer {self.token}":
            return http(b"a token is needed\n", "401 Unauthorized")
        if f"<string>{self.revision}</string>".encode() in body:
            return http(an_unchanged_answer(self.revision, self.age))
        return http(an_answer(self.snapshot, self.revision))


async def until(condition: Callable[[], object], seconds: float = 5.0) -> None:
    """Wait until `condition` holds. Fails after `seconds`."""
    deadline = time.monotonic() + seconds
    while not condition():
        assert time.monotonic() < deadline, "it did not happen in time"
        await asyncio.sleep(0.01)
