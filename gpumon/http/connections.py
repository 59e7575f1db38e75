"""Open connections: how many, and until when. On top of Hypercorn's TCPServer.

Hypercorn bounds what a client may send (head, body, silence). What it does not bound stands here:
how many connections there are, how long a client may take to read an answer, and how long a stop
may last. `hypercorn.asyncio.serve` gives no hold for that, so its inner class is used, which ties
us to one minor version (see pyproject.toml).
"""

from __future__ import annotations

import asyncio
import logging
from collections.abc import Awaitable, Callable, Iterator
from contextlib import contextmanager
from functools import partial
from http import HTTPStatus

import h11
from hypercorn.asyncio.tcp_server import TCPServer
from hypercorn.events import Closed, Event, RawData, Updated
from hypercorn.protocol.h11 import H11Protocol
from hypercorn.typing import H11SendableEvent

log = logging.getLogger(__name__)

_REASONS = {status.value: status.phrase.encode() for status in HTTPStatus}

WRITE_SECONDS = 30.0
"""What we write must be taken off our hands within this time, or the connection is cut."""


_REFUSALS = {
    431: "the address and the head of the request are larger than {limit} bytes together",
    501: "the request's body comes in a way that is not known here",
}


class Connection(TCPServer):
    """One client's connection. `idle`: no request of its is being read or answered."""

    idle = True
    _head = b""
    """Of an answer, held back until its body is there: one write for both."""

    async def _read_data(self) -> None:
        # HTTP/1.1 only: a client that upgrades to HTTP/2 and leaves in the middle of an answer
        # leaves a task that never ends (seen with 0.18). An offer to upgrade may be ignored.
        protocol = self.protocol.protocol
        assert isinstance(protocol, H11Protocol)
        protocol._check_protocol = _no_upgrade  # type: ignore[method-assign]
        protocol._send_h11_event = partial(  # type: ignore[method-assign]
            _send_with_reason, protocol._send_h11_event
        )
        protocol._send_error_response = partial(_refuse, protocol)  # type: ignore[method-assign]
        await super()._read_data()
        # The client has left. Hypercorn would keep the connection open until its idle timer ends.
        await self.idle_task.stop()

    async def protocol_send(self, event: Event) -> None:
        if isinstance(event, Updated):
            self.idle = event.idle
            if event.idle and self.reader.at_eof():
                event = Closed()  # the client left; nothing more will come to keep it open for
        if isinstance(event, RawData):
            await self._write(event.data)
        else:
            await super().protocol_send(event)

    async def _write(self, data: bytes) -> None:
        if not self._head and data.startswith(b"HTTP/1.1 ") and data[9:10] != b"1":
            self._head = data  # the body or, where there is none, its end follows at once
            return
        data, self._head = self._head + data, b""
        if data:
            with self._write_deadline():
                await super().protocol_send(RawData(data))

    async def _close(self) -> None:
        with self._write_deadline():
            await super()._close()

    @contextmanager
    def _write_deadline(self) -> Iterator[None]:
        timer = self.loop.call_later(WRITE_SECONDS, self.cut)
        try:
            yield
        finally:
            timer.cancel()

    def cut(self) -> None:
        """Drop the connection at once, with whatever was still to be sent."""
        self.writer.transport.abort()


async def _no_upgrade(event: h11.Request) -> None:
    """Stand in for Hypercorn's look at what else than HTTP/1.1 a request might want."""


async def _send_with_reason(
    send: Callable[[H11SendableEvent], Awaitable[None]], event: H11SendableEvent
) -> None:
    """Send an event of a response; a status gets its standard words, which Hypercorn leaves out.

    Python's xmlrpc.client shows them, and nothing else of an answer that is refused.
    """
    if isinstance(event, h11.Response) and not event.reason:
        event = h11.Response(
            status_code=event.status_code,
            headers=event.headers,
            reason=_REASONS.get(event.status_code, b""),
        )
    await send(event)


async def _refuse(protocol: H11Protocol, status: int) -> None:
    """Answer to what is no request with a sentence, where Hypercorn would send an empty answer."""
    limit = protocol.config.h11_max_incomplete_size
    words = _REFUSALS.get(status, "this is not HTTP/1.1 as it should be").format(limit=limit)
    body = f"{words}\n".encode()
    headers = [
        (b"content-type", b"text/plain; charset=utf-8"),
        (b"content-length", str(len(body)).encode()),
        (b"connection", b"close"),
    ]
    await protocol._send_h11_event(h11.Response(status_code=status, headers=headers))
    await protocol._send_h11_event(h11.Data(data=body))
    await protocol._send_h11_event(h11.EndOfMessage())


class Connections:
    """All connections of one server. When there are `limit`, the longest idle one makes room."""

    def __init__(self, limit: int) -> None:
        self._limit = limit
        self._open: dict[Connection, asyncio.Task[None]] = {}  # oldest first

    def __len__(self) -> int:
        return len(self._open)

    def accept(
        self,
        make: Callable[[asyncio.StreamReader, asyncio.StreamWriter], Connection],
        reader: asyncio.StreamReader,
        writer: asyncio.StreamWriter,
    ) -> None:
        """Serve a new connection in a task of its own."""
        if len(self._open) >= self._limit and not self._make_room():
            writer.transport.abort()
            return
        connection = make(reader, writer)
        task = asyncio.get_running_loop().create_task(_run(connection))
        self._open[connection] = task
        task.add_done_callback(lambda _: self._open.pop(connection, None))

    def _make_room(self) -> bool:
        for connection in self._open:
            if connection.idle:
                connection.cut()
                del self._open[connection]
                return True
        return False

    async def finish(self, seconds: float) -> None:
        """Wait for the answers in work, at most `seconds`, then cut what is left."""
        tasks = list(self._open.values())
        if not tasks:
            return
        _, late = await asyncio.wait(tasks, timeout=seconds)
        for connection, task in list(self._open.items()):
            connection.cut()
            task.cancel()
        if late:
            await asyncio.wait(late, timeout=1.0)


async def _run(connection: Connection) -> None:
    try:
        await connection
    except Exception as error:
        # The boundary to one client: what it sent may upset the protocol code, and costs only
        # this connection. Requests that fail are logged by the adapter.
        log.debug("a connection ended: %r", error)
