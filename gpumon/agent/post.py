"""A small HTTP client for pushing: POST over one kept connection, with the base install alone.

Its caller puts one deadline around all of it. Nothing here blocks the loop, name resolution
included, and no answer takes more memory than MAX_ANSWER_BYTES.
"""

from __future__ import annotations

import asyncio
import socket
import ssl
import threading
from collections.abc import Callable
from contextlib import suppress
from typing import Any
from urllib.parse import urlsplit

import h11

MAX_ANSWER_BYTES = 64 * 1024
CONNECT_SECONDS = 3.0
"""So long an address is tried where the name has more of them."""

Addresses = list[tuple[Any, ...]]


class Answer:
    """Status and body of one answer."""

    def __init__(self, status: int, body: bytes) -> None:
        self.status = status
        self.body = body


class PostClient:
    """Posts to one URL, one request at a time."""

    def __init__(
        self,
        url: str,
        headers: dict[str, str],
        context: ssl.SSLContext | None,
        lookup: Callable[..., Addresses] = socket.getaddrinfo,
    ) -> None:
        """`url` has scheme, host, perhaps a port, and a path. `context` is for https."""
        parts = urlsplit(url)
        assert parts.hostname is not None
        self._host = parts.hostname
        self._port = parts.port or (443 if parts.scheme == "https" else 80)
        self._context = context if parts.scheme == "https" else None
        self._target = parts.path or "/"
        self._headers = [("Host", parts.netloc), *headers.items()]
        self._lookup = lookup
        self._looking: asyncio.Future[Addresses] | None = None
        self._streams: tuple[asyncio.StreamReader, asyncio.StreamWriter] | None = None
        self._protocol = h11.Connection(h11.CLIENT)

    async def post(self, body: bytes) -> Answer:
        """Return the answer to `body`. Raises OSError or h11.RemoteProtocolError.

        A kept connection that the other side closed meanwhile is made anew, once.
        """
        reused = self._streams is not None
        try:
            return await self._exchange(body)
        except (ConnectionError, h11.RemoteProtocolError):
            if not reused:
                raise
        return await self._exchange(body)

    async def _exchange(self, body: bytes) -> Answer:
        try:
            if self._streams is None:
                self._streams = await self._connect()
                self._protocol = h11.Connection(h11.CLIENT)
            answer = await self._ask(*self._streams, body)
            if self._protocol.our_state is h11.DONE and self._protocol.their_state is h11.DONE:
                self._protocol.start_next_cycle()
            else:
                self.close()
        except BaseException:  # a deadline too: the connection is in the middle of something
            self.close()
            raise
        return answer

    async def _ask(
        self, reader: asyncio.StreamReader, writer: asyncio.StreamWriter, body: bytes
    ) -> Answer:
        protocol = self._protocol
        headers = [*self._headers, ("Content-Length", str(len(body)))]
        request = h11.Request(method="POST", target=self._target, headers=headers)
        writer.write((protocol.send(request) or b"") + (protocol.send(h11.Data(data=body)) or b""))
        protocol.send(h11.EndOfMessage())
        await writer.drain()
        status, found = 0, bytearray()
        while True:
            event = protocol.next_event()
            if event is h11.NEED_DATA:
                protocol.receive_data(await reader.read(65536))
            elif isinstance(event, h11.Response):
                status = event.status_code
            elif isinstance(event, h11.Data):
                found += event.data
                if len(found) > MAX_ANSWER_BYTES:
                    raise h11.RemoteProtocolError("the answer is too large")
            elif isinstance(event, (h11.EndOfMessage, h11.ConnectionClosed)):
                return Answer(status, bytes(found))
            elif event is h11.PAUSED:
                raise h11.RemoteProtocolError("more than one answer")

    async def _connect(self) -> tuple[asyncio.StreamReader, asyncio.StreamWriter]:
        failed: OSError | None = None
        addresses = await self._addresses()
        for *_, where in addresses:
            connecting = asyncio.open_connection(
                where[0],
                self._port,
                ssl=self._context,
                server_hostname=self._host if self._context else None,
            )
            try:
                if len(addresses) == 1:
                    return await connecting
                return await asyncio.wait_for(connecting, CONNECT_SECONDS)
            except asyncio.TimeoutError:
                failed = failed or TimeoutError("timed out")
            except OSError as error:
                failed = error
        raise failed or OSError("the name has no address")

    async def _addresses(self) -> Addresses:
        """Look the name up in a thread of its own, which nobody waits for at the end.

        While a name server is silent there is one such thread and not one for each try.
        """
        if self._looking is None:
            self._looking = asyncio.get_running_loop().create_future()
            threading.Thread(
                target=self._look_up,
                args=(asyncio.get_running_loop(), self._looking),
                name="push-lookup",
                daemon=True,
            ).start()
        looking = self._looking
        try:
            return await asyncio.shield(looking)
        finally:
            if looking.done():
                self._looking = None

    def _look_up(self, loop: asyncio.AbstractEventLoop, told: asyncio.Future[Addresses]) -> None:
        try:
            found = self._lookup(self._host, self._port, type=socket.SOCK_STREAM)
        except (OSError, UnicodeError) as error:
            failed = error if isinstance(error, OSError) else OSError(str(error))
            with suppress(RuntimeError):  # the loop has ended meanwhile
                loop.call_soon_threadsafe(_settle, told, None, failed)
            return
        with suppress(RuntimeError):
            loop.call_soon_threadsafe(_settle, told, found, None)

    async def end(self) -> None:
        """Drop the connection, and let the loop close its socket."""
        self.close()
        await asyncio.sleep(0)

    def close(self) -> None:
        """Drop the connection; the next request makes another one."""
        if self._streams is not None:
            self._streams[1].transport.abort()
            self._streams = None


def _settle(
    told: asyncio.Future[Addresses], found: Addresses | None, failed: OSError | None
) -> None:
    if told.done():
        return
    if failed is not None:
        told.set_exception(failed)
        told.exception()  # nobody may be waiting any more
    else:
        told.set_result(found or [])
