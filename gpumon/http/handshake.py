"""TLS for accepted connections: like `asyncio.start_server(ssl=...)`, but a failure is told.

asyncio drops a connection whose handshake fails without a word, and a wrong certificate of the
server would show in no log of the agent.
"""

from __future__ import annotations

import asyncio
import logging
import ssl
from collections.abc import Callable

from gpumon.http.seldom import Seldom

log = logging.getLogger(__name__)

HANDSHAKE_SECONDS = 10

Accept = Callable[[asyncio.StreamReader, asyncio.StreamWriter], None]


class Accepted(asyncio.Protocol):
    """A connection that was just accepted, until its handshake begins."""

    def __init__(self, handshakes: Handshakes) -> None:
        self._handshakes = handshakes

    def connection_made(self, transport: asyncio.BaseTransport) -> None:
        assert isinstance(transport, asyncio.Transport)
        self._handshakes.begin(transport)


class Handshakes:
    """Handshakes of one site that go on, `limit` at most. `accept` gets what came of them."""

    def __init__(self, name: str, context: ssl.SSLContext, limit: int, accept: Accept) -> None:
        self._name = name
        self._context = context
        self._limit = limit
        self._accept = accept
        self._told = Seldom()
        self._running: set[asyncio.Task[None]] = set()

    def begin(self, plain: asyncio.Transport) -> None:
        """Start the handshake on a connection that was just accepted."""
        if len(self._running) >= self._limit:
            plain.abort()
            return
        # Its first step stops reading before a byte of the handshake can be taken for the request.
        task = asyncio.get_running_loop().create_task(self._secure(plain))
        self._running.add(task)
        task.add_done_callback(self._running.discard)

    def cancel(self) -> None:
        """Give up what still goes on."""
        for task in list(self._running):
            task.cancel()

    async def _secure(self, plain: asyncio.Transport) -> None:
        loop = asyncio.get_running_loop()
        reader = asyncio.StreamReader(loop=loop)
        protocol = asyncio.StreamReaderProtocol(reader, loop=loop)
        try:
            transport = await loop.start_tls(
                plain,
                protocol,
                self._context,
                server_side=True,
                ssl_handshake_timeout=HANDSHAKE_SECONDS,
            )
        except OSError as error:  # ssl.SSLError and lost connections are
            self._tell(plain, error)
            return
        if transport is None:  # the client left in the last step
            plain.abort()
            return
        protocol.connection_made(transport)
        self._accept(reader, asyncio.StreamWriter(transport, protocol, reader, loop))

    def _tell(self, plain: asyncio.Transport, error: OSError) -> None:
        """Log why, once in a while for each client and reason. Who only left is worth no line."""
        if not isinstance(error, ssl.SSLError):
            return
        peer = plain.get_extra_info("peername")
        address = str(peer[0]) if peer else "a client"
        words = _words(error)
        if self._told.allows((address, words)):
            log.warning("%s: %s was refused: tls: %s", self._name, address, words)


def _words(error: ssl.SSLError) -> str:
    if isinstance(error, ssl.SSLCertVerificationError):
        return f"its certificate is not accepted ({error.verify_message})"
    reason = (error.reason or str(error)).replace("_", " ").lower()
    if reason == "peer did not return a certificate":
        return "it showed no certificate, and tls.ca asks for one"
    if reason in ("http request", "wrong version number"):
        return "it does not speak TLS"
    if "alert" in reason:
        return f"it does not accept this machine's certificate ({reason})"
    return reason
