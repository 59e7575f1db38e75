"""What agent and server have in common as daemons: log, signals, one loop, an orderly end."""

from __future__ import annotations

import asyncio
import logging
import sys
from collections.abc import Coroutine
from typing import Any

from gpumon.http.server import Site, open_sockets, serve, stop_on_signals

log = logging.getLogger("gpumon")


def set_up_logging() -> None:
    """Log to stderr, one line an event; systemd's journal adds the time, a terminal needs it."""
    form = "%(levelname)s %(message)s"
    if sys.stderr.isatty():
        form = "%(asctime)s " + form
    logging.basicConfig(level=logging.INFO, format=form, datefmt="%H:%M:%S", stream=sys.stderr)
    for chatty in ("hypercorn", "asyncio", "aiohttp"):
        logging.getLogger(chatty).setLevel(logging.WARNING)


def run_daemon(sites: list[Site], *background: Coroutine[Any, Any, None]) -> int:
    """Serve the sites beside the background work until SIGTERM or SIGINT; return the exit code.

    Raises StartError when a site can't be served. Background work that ends by an error ends the
    daemon with that error: better a restart by systemd than a server that looks alive.
    """
    try:
        for site in sites:
            scheme = "http" if site.tls is None else "https"
            for address in open_sockets(site):
                log.info("%s on %s://%s/", site.name, scheme, address)
        return asyncio.run(_run(sites, background))
    finally:
        for work in background:
            work.close()


async def _run(sites: list[Site], background: tuple[Coroutine[Any, Any, None], ...]) -> int:
    shutdown = stop_on_signals()
    server = asyncio.create_task(serve(sites, shutdown))
    tasks = [asyncio.create_task(work) for work in background]
    await asyncio.wait([server, *tasks], return_when=asyncio.FIRST_COMPLETED)
    shutdown.set()
    for task in tasks:
        task.cancel()
    for result in await asyncio.gather(server, *tasks, return_exceptions=True):
        if isinstance(result, Exception):
            raise result
    return 0
