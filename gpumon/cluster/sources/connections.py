"""What all XML-RPC sources share: one HTTP session, TLS, the token, the resolver."""

from __future__ import annotations

from collections.abc import Awaitable, Callable
from types import SimpleNamespace
from typing import Protocol

import aiohttp

from gpumon.cluster.sources import answer
from gpumon.cluster.sources.resolver import Resolver
from gpumon.config import Config, TlsConfig
from gpumon.http.auth import Tokens
from gpumon.http.tls import client_context
from gpumon.version import __version__

KEPT_SECONDS = 25.0
"""An unused connection is kept this long; agents close theirs after 30 s."""


class Asker(Protocol):
    """Whoever asks: told how far the request has come, for the sentence when it is cut off."""

    step: str
    """One of "name", "connecting", "waiting", "reading"."""
    reused: bool
    """Whether the connection had been used before."""


class Connections:
    """One per server. Made within a running loop; close it at the end."""

    def __init__(self, config: Config, resolver: Resolver | None = None) -> None:
        """Raises SetupError where the token file or a certificate can't be used."""
        token = None if config.token_file is None else Tokens.load(config.token_file).first
        self.has_token = token is not None
        # Not a header of the session: hosts of other kinds are not to see it.
        self._for_agents = {} if token is None else {"Authorization": f"Bearer {token}"}
        speaks_tls = any(entry.tls for entry in config.hosts)
        headers = {
            "Content-Type": "text/xml",
            # poll() is packed already.
            "Accept-Encoding": "identity",
            "User-Agent": f"gpumon/{__version__}",
        }
        self._session = aiohttp.ClientSession(
            connector=aiohttp.TCPConnector(
                limit=0,
                use_dns_cache=False,
                resolver=resolver or Resolver(),
                ssl=client_context(config.tls or TlsConfig()) if speaks_tls else True,
                keepalive_timeout=KEPT_SECONDS,
            ),
            headers=headers,
            # The poller's deadline covers everything; a second one would only blur the reason.
            timeout=aiohttp.ClientTimeout(total=None, connect=None, sock_connect=None),
            cookie_jar=aiohttp.DummyCookieJar(),
            auto_decompress=False,
            trace_configs=[_tracing()],
        )

    async def post(self, url: str, body: bytes, asker: Asker) -> tuple[int, str | None, bytes]:
        """Return HTTP status, its words and, with status 200, the body.

        Raises aiohttp.ClientError, OSError or answer.Unexpected.
        """
        asker.step, asker.reused = "connecting", False
        async with self._session.post(
            url,
            data=body,
            headers=self._for_agents,
            allow_redirects=False,
            trace_request_ctx=asker,
        ) as response:
            return await _read(response, asker)

    async def get(self, url: str, asker: Asker) -> tuple[int, str | None, bytes]:
        """Return the same of a GET, which carries no token. Raises the same."""
        asker.step, asker.reused = "connecting", False
        async with self._session.get(
            url, allow_redirects=False, trace_request_ctx=asker
        ) as response:
            return await _read(response, asker)

    async def close(self) -> None:
        await self._session.close()


async def _read(response: aiohttp.ClientResponse, asker: Asker) -> tuple[int, str | None, bytes]:
    if response.status != 200:
        return response.status, response.reason, b""
    asker.step = "reading"
    encoding = response.headers.get("Content-Encoding", "").strip().lower()
    return 200, None, answer.unpacked(await _limited(response), encoding)


async def _limited(response: aiohttp.ClientResponse) -> bytes:
    """Return the body as it came, and not a byte more than MAX_BYTES of it into memory."""
    length = response.content_length
    if length is not None and length > answer.MAX_BYTES:
        raise answer.too_large()
    body = bytearray()
    async for chunk in response.content.iter_any():
        body += chunk
        if len(body) > answer.MAX_BYTES:
            raise answer.too_large()
    return bytes(body)


def _tracing() -> aiohttp.TraceConfig:
    """Return hooks that write down in the asker how far its request has come."""

    def at(step: str, *, reused: bool = False) -> Callable[..., Awaitable[None]]:
        async def note(
            _session: aiohttp.ClientSession, context: SimpleNamespace, _parameters: object
        ) -> None:
            asker: Asker = context.trace_request_ctx
            asker.step = step
            asker.reused = reused

        return note

    trace = aiohttp.TraceConfig()
    trace.on_dns_resolvehost_start.append(at("name"))
    trace.on_dns_resolvehost_end.append(at("connecting"))
    trace.on_connection_create_end.append(at("waiting"))
    trace.on_connection_reuseconn.append(at("waiting", reused=True))
    return trace
