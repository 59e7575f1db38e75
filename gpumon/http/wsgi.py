"""From Hypercorn's ASGI messages to a WSGI callable and back.

Hypercorn has a wrapper of its own, but it never starts a response without a body (304, 204, HEAD),
reads bodies without a deadline, and holds a worker thread while a client takes its time. Here the
body is read first, under a limit and a deadline, the application runs in a bounded pool, and its
whole answer is sent from the loop.
"""

from __future__ import annotations

import asyncio
import io
import logging
import sys
from collections.abc import Awaitable, Callable, Iterable
from concurrent.futures import Executor
from typing import Any, NamedTuple
from urllib.parse import unquote_to_bytes

log = logging.getLogger(__name__)

BODY_SECONDS = 15.0
"""A request's body must be here, whole, after this time."""
LINGER_SECONDS = 2.0
"""How long a body that was refused is still taken off the wire, so that the client reads why."""

BodyLimit = Callable[[str, str, "str | None"], "int | None"]
"""Path, query and Authorization -> how many bytes the body may have; None: as many as usual.

Where it answers a number, the application says what is wrong with a larger body (see TOO_LARGE).
"""
TOO_LARGE = "gpumon.body_limit"
"""In the environment of a request whose body had more bytes than this: it comes without it."""
WsgiApp = Callable[[dict[str, Any], Callable[..., Any]], Iterable[bytes]]
Receive = Callable[[], Awaitable[Any]]
Send = Callable[[Any], Awaitable[None]]
Headers = list[tuple[bytes, bytes]]


class Answer(NamedTuple):
    """A whole HTTP answer."""

    status: int
    headers: Headers
    body: bytes


class _Refused(Exception):
    """The request's body is not taken."""

    def __init__(self, status: int, sentence: str) -> None:
        super().__init__(sentence)
        self.status = status
        self.answer = _plain(status, sentence)


class _Gone(Exception):
    """The client left before its request was whole."""


class WsgiAdapter:
    """One WSGI application as Hypercorn calls it (an AppWrapper)."""

    def __init__(
        self,
        name: str,
        app: WsgiApp,
        pool: Executor,
        max_body_bytes: int,
        body_limit: BodyLimit | None = None,
    ) -> None:
        """`body_limit` has the say, before a body is read, where it answers a number."""
        self._name = name
        self._body_limit = body_limit
        self._app = app
        self._pool = pool
        self._max_body_bytes = max_body_bytes

    async def __call__(
        self,
        scope: Any,
        receive: Receive,
        send: Send,
        sync_spawn: Callable[..., Any],
        call_soon: Callable[..., Any],
    ) -> None:
        """Answer one request. `sync_spawn` and `call_soon` are Hypercorn's, and not needed."""
        if scope["type"] == "websocket":
            await send({"type": "websocket.close"})
            return
        own = self._own_limit(scope)
        limit = self._max_body_bytes if own is None else own
        try:
            body = await self._body(scope, receive, limit)
        except _Gone:
            return
        except _Refused as refused:
            answer = refused.answer
            if refused.status == 413 and own is not None:
                answer = _closing(await self._answer(_environ(scope, b"") | {TOO_LARGE: own}))
            await _send(send, answer, more=True)
            await _linger(receive)
            await send({"type": "http.response.body", "body": b"", "more_body": False})
            return
        await _send(send, await self._answer(_environ(scope, body)))

    async def _answer(self, environ: dict[str, Any]) -> Answer:
        return await asyncio.get_running_loop().run_in_executor(self._pool, self._run, environ)

    async def _body(self, scope: Any, receive: Receive, limit: int) -> bytes:
        announced = _header(scope, b"content-length")
        if announced is not None and (
            not announced.isdigit() or len(announced) > 18 or int(announced) > limit
        ):
            raise _too_large(limit)
        try:
            return await asyncio.wait_for(_read(receive, limit), BODY_SECONDS)
        except asyncio.TimeoutError:
            raise _Refused(
                408, f"the body of the request was not here after {BODY_SECONDS:g} seconds"
            ) from None

    def _own_limit(self, scope: Any) -> int | None:
        """Return what `body_limit` says of this request; None: nothing."""
        if self._body_limit is None:
            return None
        authorization = _header(scope, b"authorization")
        return self._body_limit(
            unquote_to_bytes(scope["raw_path"]).decode("latin-1"),
            scope["query_string"].decode("latin-1"),
            None if authorization is None else authorization.decode("latin-1"),
        )

    def _run(self, environ: dict[str, Any]) -> Answer:
        """Call the application, in a thread of the pool. What it raises is logged and hidden."""
        try:
            return _call(self._app, environ)
        except Exception:  # the boundary to the application
            log.exception(
                "%s: %s %r failed", self._name, environ["REQUEST_METHOD"], environ["PATH_INFO"]
            )
            return _plain(
                500,
                f"the {self._name} failed to answer this request; its log says why",
                close=False,
            )


async def _read(receive: Receive, limit: int) -> bytes:
    body = bytearray()
    while True:
        message = await receive()
        if message["type"] != "http.request":
            raise _Gone
        body += message.get("body", b"")
        if len(body) > limit:
            raise _too_large(limit)
        if not message.get("more_body"):
            return bytes(body)


def _too_large(limit: int) -> _Refused:
    return _Refused(413, f"the body of the request is larger than {limit} bytes")


def _call(app: WsgiApp, environ: dict[str, Any]) -> Answer:
    started: list[tuple[str, list[tuple[str, str]]]] = []
    chunks: list[bytes] = []

    def start_response(
        status: str, headers: list[tuple[str, str]], exc_info: object = None
    ) -> Callable[[bytes], None]:
        started[:] = [(status, headers)]
        return chunks.append

    result = app(environ, start_response)
    try:
        chunks.extend(result)
    finally:
        close = getattr(result, "close", None)
        if close is not None:
            close()
    status_line, fields = started[0]
    status, body = int(status_line[:3]), b"".join(chunks)
    headers = [(name.lower().encode("latin-1"), value.encode("latin-1")) for name, value in fields]
    if status in (204, 304):
        # Neither has a body; a length here makes some clients wait for one.
        return Answer(status, _without_length(headers), b"")
    if environ["REQUEST_METHOD"] == "HEAD":
        return Answer(status, headers, b"")  # the length is that of the answer to GET
    return Answer(status, [*_without_length(headers), _length(body)], body)


def _without_length(headers: Headers) -> Headers:
    return [(name, value) for name, value in headers if name != b"content-length"]


def _length(body: bytes) -> tuple[bytes, bytes]:
    return (b"content-length", str(len(body)).encode())


def _closing(answer: Answer) -> Answer:
    """Return the answer as the last one on its connection."""
    return answer._replace(headers=[*answer.headers, (b"connection", b"close")])


def _plain(status: int, sentence: str, *, close: bool = True) -> Answer:
    """Return an answer that is one sentence; `close`: the connection can't be used again."""
    body = f"{sentence}\n".encode()
    headers = [
        (b"content-type", b"text/plain; charset=utf-8"),
        (b"x-content-type-options", b"nosniff"),
        (b"cache-control", b"no-store"),
        _length(body),
    ]
    if close:
        headers.append((b"connection", b"close"))
    return Answer(status, headers, body)


async def _send(send: Send, answer: Answer, *, more: bool = False) -> None:
    await send({"type": "http.response.start", "status": answer.status, "headers": answer.headers})
    await send({"type": "http.response.body", "body": answer.body, "more_body": more})


async def _linger(receive: Receive) -> None:
    """Take the rest of a refused body off the wire, for a while.

    Closed over unread bytes, a connection is reset, and the client never reads our answer.
    """

    async def drop() -> None:
        while True:
            message = await receive()
            if message["type"] != "http.request" or not message.get("more_body"):
                return

    try:
        await asyncio.wait_for(drop(), LINGER_SECONDS)
    except asyncio.TimeoutError:
        return


def _header(scope: Any, name: bytes) -> bytes | None:
    for found, value in scope["headers"]:
        if found == name:
            return bytes(value)
    return None


def _environ(scope: Any, body: bytes) -> dict[str, Any]:
    """Return the WSGI environment (PEP 3333: bytes as latin-1 text)."""
    host, port = scope.get("server") or ("localhost", 80)
    environ: dict[str, Any] = {
        "REQUEST_METHOD": scope["method"],
        "SCRIPT_NAME": "",
        "PATH_INFO": unquote_to_bytes(scope["raw_path"]).decode("latin-1"),
        "QUERY_STRING": scope["query_string"].decode("latin-1"),
        "SERVER_NAME": host,
        "SERVER_PORT": str(port),
        "SERVER_PROTOCOL": f"HTTP/{scope['http_version']}",
        "wsgi.version": (1, 0),
        "wsgi.url_scheme": scope["scheme"],
        "wsgi.input": io.BytesIO(body),
        "wsgi.errors": sys.stderr,
        "wsgi.multithread": True,
        "wsgi.multiprocess": False,
        "wsgi.run_once": False,
    }
    if scope.get("client") is not None:
        # A socket for both families shows IPv4 clients as ::ffff:192.0.2.7.
        environ["REMOTE_ADDR"] = scope["client"][0].removeprefix("::ffff:")
    for raw_name, raw_value in scope["headers"]:
        name = raw_name.decode("latin-1")
        if "_" in name or name in ("content-length", "transfer-encoding"):
            # X_Forwarded_For would pass for X-Forwarded-For; the body is here, decoded, with its
            # true length below.
            continue
        key = name.upper().replace("-", "_")
        if key != "CONTENT_TYPE":
            key = f"HTTP_{key}"
        # WSGI carries bytes as Latin-1, and Bottle reads them as UTF-8: what is none must not
        # make it fail.
        value = raw_value.decode("utf-8", "replace").encode("utf-8").decode("latin-1")
        environ[key] = f"{environ[key]},{value}" if key in environ else value
    if body:
        environ["CONTENT_LENGTH"] = str(len(body))
    return environ
