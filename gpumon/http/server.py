"""Agent and server as HTTP servers: WSGI applications on Hypercorn, several sites in one loop."""

from __future__ import annotations

import asyncio
import logging
import resource
import signal
import socket
import ssl
from collections.abc import Callable
from concurrent.futures import ThreadPoolExecutor
from functools import partial

import msgspec
from hypercorn.asyncio.worker_context import WorkerContext
from hypercorn.config import Config as HypercornConfig

from gpumon.config import TlsConfig
from gpumon.http.connections import Connection, Connections
from gpumon.http.handshake import Accepted, Handshakes
from gpumon.http.sockets import BACKLOG, join_address, open_listeners
from gpumon.http.tls import server_context
from gpumon.http.wsgi import BodyLimit, WsgiAdapter, WsgiApp

log = logging.getLogger(__name__)

KEEP_ALIVE_SECONDS = 30
"""A connection without a whole request head for this long is closed; polls come every few."""
READ_SECONDS = 35
"""A connection on which nothing at all arrives for this long is closed, whatever it waits for."""
HEAD_BYTES = 16 * 1024
GRACE_SECONDS = 3.0
THREADS = 8
MAX_CONNECTIONS = 4096
WANTED_FILES = 16_384


class Site(msgspec.Struct, kw_only=True):
    """One application and where it listens."""

    name: str
    """"agent" or "web": stands in sentences and in the log."""
    app: WsgiApp
    binds: list[str]
    """"host:port" each; "[::1]:8043" for IPv6; port 0 takes a free one (see `open_sockets`)."""
    tls: TlsConfig | None = None
    """With `ca` set, clients must show a certificate that it signed."""
    max_body_bytes: int = 64 * 1024
    body_limit: BodyLimit | None = None
    """Has the say about single requests, before their body is read (see `wsgi.BodyLimit`)."""
    sockets: list[socket.socket] = []


def open_sockets(site: Site) -> list[str]:
    """Listen on the site's addresses, if it does not yet; return them as "host:port".

    `serve` does it by itself; call it before to learn which port a bind to port 0 was given.
    Raises StartError.
    """
    if not site.sockets:
        site.sockets = open_listeners(site.name, site.binds)
    return [join_address(*listener.getsockname()[:2]) for listener in site.sockets]


def stop_on_signals() -> asyncio.Event:
    """Return an event that SIGTERM and SIGINT set: `shutdown` of `serve`. For the main thread."""
    shutdown = asyncio.Event()
    loop = asyncio.get_running_loop()
    for number in (signal.SIGTERM, signal.SIGINT):
        loop.add_signal_handler(number, shutdown.set)
    return shutdown


async def serve(
    sites: list[Site], shutdown: asyncio.Event, started: Callable[[], None] = lambda: None
) -> None:
    """Serve the sites until `shutdown` is set, then finish what is in work and return.

    `started` is called once all of them answer.

    Raises StartError before anything is served when an address or a certificate can't be used.
    """
    _raise_file_limit()
    try:
        contexts = [None if site.tls is None else server_context(site.tls) for site in sites]
        for site in sites:
            open_sockets(site)
        await _serve_open(sites, contexts, shutdown, started)
    finally:
        for site in sites:
            for listener in site.sockets:
                listener.close()


async def _serve_open(
    sites: list[Site],
    contexts: list[ssl.SSLContext | None],
    shutdown: asyncio.Event,
    started: Callable[[], None],
) -> None:
    context = WorkerContext(None)
    connections = Connections(_connection_limit())
    pool = ThreadPoolExecutor(THREADS, thread_name_prefix="http")
    loop = asyncio.get_running_loop()
    servers: list[asyncio.Server] = []
    handshakes: list[Handshakes] = []
    try:
        for site, tls in zip(sites, contexts, strict=True):
            adapter = WsgiAdapter(site.name, site.app, pool, site.max_body_bytes, site.body_limit)
            for listener in site.sockets:
                accept = _accepting(adapter, context, connections)
                if tls is None:
                    server = await asyncio.start_server(accept, sock=listener, backlog=BACKLOG)
                else:
                    handshakes.append(Handshakes(site.name, tls, _connection_limit(), accept))
                    begin = partial(Accepted, handshakes[-1])
                    server = await loop.create_server(begin, sock=listener, backlog=BACKLOG)
                servers.append(server)
        started()
        await shutdown.wait()
    finally:
        for server in servers:
            server.close()
        for handshake in handshakes:
            handshake.cancel()
        await context.terminated.set()
        await connections.finish(GRACE_SECONDS)
        pool.shutdown(wait=False, cancel_futures=True)


def _accepting(
    adapter: WsgiAdapter, context: WorkerContext, connections: Connections
) -> Callable[[asyncio.StreamReader, asyncio.StreamWriter], None]:
    """Return what takes in a new connection that is ready for a request."""
    loop = asyncio.get_running_loop()
    config = _hypercorn_config()

    def make(reader: asyncio.StreamReader, writer: asyncio.StreamWriter) -> Connection:
        return Connection(adapter, loop, config, context, {}, reader, writer)

    return lambda reader, writer: connections.accept(make, reader, writer)


def _hypercorn_config() -> HypercornConfig:
    config = HypercornConfig()
    config.include_server_header = False
    config.keep_alive_timeout = KEEP_ALIVE_SECONDS
    config.read_timeout = READ_SECONDS
    config.h11_max_incomplete_size = HEAD_BYTES
    config.accesslog = None
    config.errorlog = log
    # The adapter answers before a refused body has ended. With a bounded queue, the rest of that
    # body would block Hypercorn's reader, and the connection could never be closed.
    config.max_app_queue_size = 0
    return config


def _raise_file_limit() -> None:
    """Raise the limit of open files towards what the system allows: a client is one of them."""
    soft, hard = resource.getrlimit(resource.RLIMIT_NOFILE)
    wanted = WANTED_FILES if hard == resource.RLIM_INFINITY else min(hard, WANTED_FILES)
    if soft != resource.RLIM_INFINITY and soft < wanted:
        resource.setrlimit(resource.RLIMIT_NOFILE, (wanted, hard))


def _connection_limit() -> int:
    """Return how many connections to keep; a quarter of the files is left for everything else."""
    soft, _ = resource.getrlimit(resource.RLIMIT_NOFILE)
    if soft == resource.RLIM_INFINITY:
        return MAX_CONNECTIONS
    return min(MAX_CONNECTIONS, soft * 3 // 4)
