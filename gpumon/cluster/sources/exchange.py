"""One HTTP connection to one host: a request, a whole answer, and the next one when it is over.

httptools (the parser of Node.js) takes the answer apart; what is bounded, and what an end of the
connection means, is decided here. Measured by bench/fleet.py: a poll over this costs the loop about
a third of what it costs over a general HTTP client.
"""

from __future__ import annotations

import asyncio
import ssl
from collections.abc import Callable
from typing import NamedTuple, Protocol

import httptools

from gpumon.cluster.sources import answer

MOST_HEAD_BYTES = 16 * 1024
"""Of an answer's head, where it comes in several parts."""
FRAMING_BYTES = 1024 * 1024
"""Of an answer's head and the seams between its chunks, beside the most that its body may have."""


class Asker(Protocol):
    """Whoever asks: told how far the request has come, for the sentence when it is cut off."""

    step: str
    """One of "name", "connecting", "waiting", "reading"."""
    reused: bool
    """Whether the connection had been used before."""


class Answered(NamedTuple):
    """An answer; `body` is as it came, and empty unless the status is 200."""

    status: int
    reason: str
    encoding: str
    body: bytes
    etag: str | None = None


class ClosedError(ConnectionError):
    """The other side closed the connection before its answer began."""


_NOT_HTTP = {
    b"SSH-": "an SSH banner",
    b"\x15\x03": "TLS, so its entry in hosts must begin with https://",
    b"<html": "an HTML page without HTTP",
}


def not_http(start: bytes) -> answer.Unexpected:
    """Return what to raise for something that begins like `start`."""
    found = [words for mark, words in _NOT_HTTP.items() if start.lower().startswith(mark.lower())]
    return answer.Unexpected(found[0] if found else "something that is not HTTP")


class Exchange(asyncio.Protocol):
    """The protocol of one connection. Any fault in an answer ends the connection with it."""

    def __init__(self, ended: Callable[[Exchange], None]) -> None:
        """`ended` is called when the connection is gone."""
        self._ended = ended
        self._transport: asyncio.Transport | None = None
        self._parser: httptools.HttpResponseParser | None = httptools.HttpResponseParser(self)
        self._answer: asyncio.Future[Answered] | None = None
        self._asker: Asker | None = None
        self.kept_since = 0.0
        """When it was last put away unused, by the clock of whoever keeps it."""
        self._start = b""
        self._raw = 0
        self._most = answer.MAX_BYTES
        self._forget()

    def _forget(self) -> None:
        """Be ready for the head of an answer."""
        self._in_body = False
        self._status = 0
        self._ends_by_itself = False
        self._reason = b""
        self._encoding = b""
        self._etag: bytes | None = None
        self._body: list[bytes] = []
        self._size = 0

    @property
    def usable(self) -> bool:
        """Whether another request may be sent."""
        return self._transport is not None and not self._transport.is_closing()

    @property
    def tls(self) -> ssl.SSLContext | None:
        """What its TLS was agreed on under; None: it is without TLS, or closed."""
        found: ssl.SSLContext | None = None
        if self._transport is not None:
            found = self._transport.get_extra_info("sslcontext")
        return found

    async def ask(self, request: bytes, asker: Asker, most: int = answer.MAX_BYTES) -> Answered:
        """Send a request and return the answer, whose body has at most `most` bytes.

        Raises ClosedError or another OSError where the connection ends, answer.Unexpected where
        what comes can't be used. Cut off, it closes the connection.
        """
        if self._transport is None:
            raise ClosedError("the connection is closed")
        self._answer = asyncio.get_running_loop().create_future()
        self._asker, self._start, self._raw, self._most = asker, b"", 0, most
        self._forget()
        self._transport.write(request)
        try:
            return await self._answer
        except BaseException:
            self.close()
            raise
        finally:
            self._answer = self._asker = None
            self._body = []

    def close(self) -> None:
        """Close at once, without waiting for the other side."""
        if self._transport is not None:
            self._transport.abort()

    # ---- What the transport calls ----

    def connection_made(self, transport: asyncio.BaseTransport) -> None:
        assert isinstance(transport, asyncio.Transport)
        self._transport = transport

    def data_received(self, data: bytes) -> None:
        if self._parser is None or self._answer is None or self._answer.done():
            self.close()  # nobody asked for this
            return
        self._raw += len(data)
        if len(self._start) < 64:
            self._start += data[:64]
        try:
            self._parser.feed_data(data)
        except httptools.HttpParserUpgrade:
            self._fail(answer.Unexpected("another protocol (HTTP status 101)"))
        except httptools.HttpParserError:
            self._fail(self._garbled())
        if self._raw > self._most + FRAMING_BYTES:
            self._fail(answer.too_large(self._most))
        elif self._raw > MOST_HEAD_BYTES and not self._in_body:
            self._fail(not_http(self._start))

    def _garbled(self) -> answer.Unexpected:
        if self._in_body:
            return answer.Unexpected("an answer that breaks the rules of HTTP")
        return not_http(self._start)

    def connection_lost(self, error: Exception | None) -> None:
        self._transport = self._parser = None
        if error is None and self._in_body and not self._ends_by_itself:
            self._finish()
        elif self._in_body:
            self._fail(answer.Unexpected("an answer cut short"))
        else:
            self._fail(error or ClosedError("the connection was closed without an answer"))
        self._ended(self)

    # ---- What the parser calls ----

    def on_message_begin(self) -> None:
        if self._answer is None or self._answer.done():
            self.close()  # a second answer to one question
        self._forget()

    def on_status(self, reason: bytes) -> None:
        self._reason += reason

    def on_header(self, name: bytes, value: bytes) -> None:
        name = name.lower()
        if name == b"content-length":
            self._ends_by_itself = True
            if value.isdigit() and int(value[:20]) > self._most:
                self._fail(answer.too_large(self._most))
        elif name == b"transfer-encoding":
            self._ends_by_itself = True
        elif name == b"content-encoding":
            self._encoding = value
        elif name == b"etag":
            self._etag = value

    def on_headers_complete(self) -> None:
        assert self._parser is not None
        self._status = self._parser.get_status_code()
        if self._status < 200:
            return  # "100 Continue": the answer is still to come
        self._in_body = True
        if self._asker is not None:
            self._asker.step = "reading"
        if self._status != 200:
            self._finish()
            self.close()  # its body is nobody's business

    def on_body(self, data: bytes) -> None:
        self._body.append(data)
        self._size += len(data)
        if self._size > self._most:
            self._fail(answer.too_large(self._most))

    def on_message_complete(self) -> None:
        if self._in_body and self._parser is not None:
            self._finish()
            if not self._parser.should_keep_alive():
                self.close()

    # ---- How an answer ends ----

    def _finish(self) -> None:
        if self._answer is not None and not self._answer.done():
            self._answer.set_result(
                Answered(
                    self._status,
                    self._reason.decode("latin-1"),
                    self._encoding.decode("latin-1").strip().lower(),
                    b"".join(self._body),
                    None if self._etag is None else self._etag.decode("latin-1"),
                )
            )

    def _fail(self, error: Exception) -> None:
        if self._answer is not None and not self._answer.done():
            self._answer.set_exception(error)
        self.close()
