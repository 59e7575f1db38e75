"""What all sources that speak HTTP share: kept connections, TLS, the token, the resolver."""

from __future__ import annotations

import asyncio
import errno
import resource
import socket
import ssl
import time
from collections.abc import Callable
from contextlib import suppress
from ipaddress import ip_address
from typing import NamedTuple
from urllib.parse import urlsplit

from aiohappyeyeballs import start_connection

from gpumon.cluster.sources import answer
from gpumon.cluster.sources.access import Access
from gpumon.cluster.sources.exchange import Answered, Asker, ClosedError, Exchange
from gpumon.cluster.sources.resolver import Addresses, Resolver
from gpumon.config import Config
from gpumon.version import __version__

KEPT_SECONDS = 25.0
"""An unused connection is kept this long; agents close theirs after 30 s."""
NEXT_ADDRESS_SECONDS = 0.25
"""The next address of a name is tried beside the one before after this time (RFC 8305)."""

_FILES_FOR_ALL_ELSE = 0.5
"""Share of the open files that kept connections leave to polls that run, pages and the rest."""


class _Way(NamedTuple):
    """Where a URL leads."""

    host: str
    port: int
    tls: bool
    family: int | None
    """Of an IP address; None: a name, to be looked up."""
    head: bytes
    """Of a request, from its path on to the line with its length."""


class HandshakeError(OSError):
    """TLS could not be agreed on; the cause says why."""


class Connections:
    """One per server. Made within a running loop; close it at the end."""

    def __init__(
        self,
        config: Config,
        resolver: Resolver | None = None,
        *,
        clock: Callable[[], float] = time.monotonic,
    ) -> None:
        """Raises SetupError where the token file or a certificate can't be used."""
        self.use(Access.of(config))
        self._resolver = resolver or Resolver()
        self._clock = clock
        self._ways: dict[str, _Way] = {}
        self._idle: dict[_Way, list[Exchange]] = {}
        self._open: set[Exchange] = set()
        self._certificate_ends: dict[_Way, float] = {}
        self._most_kept = most_kept()

    def use(self, access: Access) -> None:
        """Ask with this token and TLS from the next request on.

        A connection under other certificates or authorities is not used for another request.
        """
        self.access = access
        self._agents_only = access.head()

    @property
    def has_token(self) -> bool:
        """Whether agents are shown a token."""
        return self.access.token is not None

    async def post(self, url: str, body: bytes, asker: Asker) -> tuple[int, str | None, bytes]:
        """Call an agent; return HTTP status, its words and, with status 200, the body.

        Raises OSError or answer.Unexpected.
        """
        found = await self._asked(url, b"POST", self._agents_only, body, asker)
        return found.status, found.reason, _unpacked(found)

    async def get(self, url: str, asker: Asker) -> tuple[int, str | None, bytes]:
        """Return the same of a GET, for hosts that are no agents: it carries no token."""
        found = await self._asked(url, b"GET", b"", b"", asker)
        return found.status, found.reason, _unpacked(found)

    async def fetch(self, url: str, asker: Asker, *, etag: str | None, most: int) -> Answered:
        """Return the answer to a conditional GET, packed as it came, of at most `most` bytes.

        It carries no token. Raises OSError or answer.Unexpected.
        """
        head = b"accept: application/json\r\n"
        if etag is not None:
            head += b"if-none-match: %b\r\n" % etag.encode("latin-1", "ignore")
        return await self._asked(url, b"GET", head, b"", asker, most=most, packed=True)

    def certificate_ends(self, url: str) -> float | None:
        """Return when the certificate ends that was shown last at `url`, in epoch seconds.

        None: none was. It is read at each handshake, of which a kept connection has one.
        """
        way = self._ways.get(url)
        return None if way is None else self._certificate_ends.get(way)

    async def close(self) -> None:
        """Close all connections and stop waiting for lookups."""
        for exchange in list(self._open):
            exchange.close()
        await self._resolver.close()
        await asyncio.sleep(0)  # transports close in the loop's next turn

    async def _asked(
        self,
        url: str,
        method: bytes,
        head: bytes,
        body: bytes,
        asker: Asker,
        *,
        most: int = answer.MAX_BYTES,
        packed: bool = False,
    ) -> Answered:
        way = self._ways.get(url) or self._find_way(url)
        # poll() is packed already.
        head += b"accept-encoding: %b\r\n" % (b"gzip" if packed else b"identity")
        request = b"%b %b%bcontent-length: %d\r\n\r\n%b" % (
            method, way.head, head, len(body), body,
        )  # fmt: skip
        asker.step, asker.reused = "connecting", False
        kept = self._kept(way)
        if kept is not None:
            asker.step, asker.reused = "waiting", True
            try:
                return await self._over(kept, way, request, asker, most)
            except (ClosedError, ConnectionResetError, BrokenPipeError):
                # The agent closed the kept connection meanwhile, which says nothing about it.
                asker.step, asker.reused = "connecting", False
        return await self._over(await self._connected(way, asker), way, request, asker, most)

    async def _over(
        self, exchange: Exchange, way: _Way, request: bytes, asker: Asker, most: int
    ) -> Answered:
        asker.step = "waiting"
        found = await exchange.ask(request, asker, most)
        self._keep(exchange, way)
        return found

    def _find_way(self, url: str) -> _Way:
        parts = urlsplit(url)
        tls = parts.scheme == "https"
        target = (parts.path or "/") + (f"?{parts.query}" if parts.query else "")
        lines = [
            f"{target} HTTP/1.1",
            f"host: {parts.netloc.rpartition('@')[2]}",
            f"user-agent: gpumon/{__version__}",
        ]
        head = "".join(f"{line}\r\n" for line in lines).encode()
        port = parts.port or (443 if tls else 80)
        host = parts.hostname or ""
        way = self._ways[url] = _Way(host, port, tls, _family(host), head)
        return way

    # ---- Connections that are kept ----

    def _kept(self, way: _Way) -> Exchange | None:
        idle = self._idle.get(way)
        while idle:
            exchange = idle.pop()
            young = self._clock() - exchange.kept_since < KEPT_SECONDS
            if young and self._fits(exchange, way):
                return exchange
            exchange.close()
        return None

    def _keep(self, exchange: Exchange, way: _Way) -> None:
        if not exchange.usable:
            return
        if len(self._open) > self._most_kept or not self._fits(exchange, way):
            exchange.close()
            return
        exchange.kept_since = self._clock()
        self._idle.setdefault(way, []).append(exchange)

    def forget(self, url: str) -> None:
        """Close what is kept for a host that is not asked any more."""
        way = self._ways.pop(url, None)
        if way is not None:
            for exchange in self._idle.pop(way, []):
                exchange.close()

    def _fits(self, exchange: Exchange, way: _Way) -> bool:
        """Return whether the next request may go over a connection that was opened earlier."""
        return exchange.usable and exchange.tls is (self.access.tls if way.tls else None)

    def _too_many_files(self) -> None:
        """Close what is not in use, and keep less from now on."""
        self._most_kept = min(self._most_kept, len(self._open)) // 2
        for idle in self._idle.values():
            for exchange in idle:
                exchange.close()
        self._idle.clear()

    # ---- New connections ----

    async def _connected(self, way: _Way, asker: Asker) -> Exchange:
        try:
            return await self._connect(way, asker)
        except OSError as error:
            if error.errno in (errno.EMFILE, errno.ENFILE):
                self._too_many_files()
            raise

    async def _connect(self, way: _Way, asker: Asker) -> Exchange:
        addresses = await self._addresses(way, asker)
        sock = await start_connection(
            [
                (family, socket.SOCK_STREAM, socket.IPPROTO_TCP, "", (address, way.port))
                for family, address in addresses
            ],
            happy_eyeballs_delay=NEXT_ADDRESS_SECONDS,
            interleave=1,
        )
        loop = asyncio.get_running_loop()
        if not way.tls:
            _, exchange = await loop.create_connection(self._new, sock=sock)
            return self._opened(exchange)
        try:
            transport, exchange = await loop.create_connection(
                self._new,
                sock=sock,
                ssl=self.access.tls,
                server_hostname=way.host,
                # No poll waits that long; this is for the connection that one was cut off from.
                ssl_handshake_timeout=self.access.timeout,
            )
        except OSError as error:
            raise HandshakeError("the TLS handshake failed") from error
        self._opened(exchange)
        shown = transport.get_extra_info("peercert") or {}
        with suppress(KeyError, ValueError):  # without its end it is as good as any other
            self._certificate_ends[way] = float(ssl.cert_time_to_seconds(shown["notAfter"]))
        return exchange

    async def _addresses(self, way: _Way, asker: Asker) -> Addresses:
        if way.family is not None:
            return [(way.family, way.host)]
        asker.step = "name"
        addresses = await self._resolver.addresses(way.host)
        asker.step = "connecting"
        return addresses

    def _new(self) -> Exchange:
        return Exchange(self._open.discard)

    def _opened(self, exchange: Exchange) -> Exchange:
        if exchange.usable:
            self._open.add(exchange)
        return exchange


def _unpacked(found: Answered) -> bytes:
    return answer.unpacked(found.body, found.encoding) if found.status == 200 else b""


def _family(host: str) -> int | None:
    """Return the family of an IP address; None for a name."""
    try:
        return socket.AF_INET6 if ip_address(host).version == 6 else socket.AF_INET
    except ValueError:
        return None


def most_kept() -> int:
    """Return how many connections may stay open between polls."""
    soft, _ = resource.getrlimit(resource.RLIMIT_NOFILE)
    if soft == resource.RLIM_INFINITY:
        return 2**30
    return int(soft * (1 - _FILES_FOR_ALL_ELSE))
