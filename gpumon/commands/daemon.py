"""What agent and server have in common as daemons: log, signals, one loop, an orderly end."""

from __future__ import annotations

import asyncio
import logging
import sys
from collections.abc import Coroutine
from typing import Any

from gpumon.commands.liveness import Work
from gpumon.commands.notify import Notifier, beat
from gpumon.http.server import Site, open_sockets, serve, stop_on_signals
from gpumon.http.tls import server_context

log = logging.getLogger("gpumon")

WELCOME = {"web": "the page is on", "agent": "the agent answers on"}
"""What a person is told, by the site's name, before the address."""


def set_up_logging() -> None:
    """Log to stderr, one line an event; systemd's journal adds the time, a terminal needs it."""
    form = "%(levelname)s %(message)s"
    if sys.stderr.isatty():
        form = "%(asctime)s " + form
    logging.basicConfig(level=logging.INFO, format=form, datefmt="%H:%M:%S", stream=sys.stderr)
    for chatty in ("hypercorn", "asyncio"):
        logging.getLogger(chatty).setLevel(logging.WARNING)


def run_daemon(
    sites: list[Site], *background: Coroutine[Any, Any, None], work: Work | None = None
) -> int:
    """Serve the sites beside the background work until SIGTERM or SIGINT; return the exit code.

    `work` is what systemd's watchdog goes by, where systemd started this.

    Raises StartError when a site can't be served. Background work that ends by an error ends the
    daemon with that error: better a restart by systemd than a server that looks alive.
    """
    try:
        for site in sites:
            if site.tls is not None:
                server_context(site.tls)
        opened = [(site, open_sockets(site)) for site in sites]
        for site, addresses in opened:  # all of it works, so nothing is told that then fails
            scheme = "http" if site.tls is None else "https"
            for address in addresses:
                log.info("%s %s://%s/", WELCOME[site.name], scheme, address)
        return asyncio.run(_run(sites, background, work))
    finally:
        for coroutine in background:
            coroutine.close()


async def _run(
    sites: list[Site], background: tuple[Coroutine[Any, Any, None], ...], work: Work | None
) -> int:
    shutdown = stop_on_signals()
    answering = asyncio.Event()
    server = asyncio.create_task(serve(sites, shutdown, answering.set))
    tasks = [asyncio.create_task(coroutine) for coroutine in background]
    if work is not None and (notifier := Notifier()):
        tasks.append(asyncio.create_task(_tell_systemd(notifier, work, answering)))
    await asyncio.wait([server, *tasks], return_when=asyncio.FIRST_COMPLETED)
    shutdown.set()
    for task in tasks:
        task.cancel()
    for result in await asyncio.gather(server, *tasks, return_exceptions=True):
        if isinstance(result, Exception):
            raise result
    return 0


async def _tell_systemd(notifier: Notifier, work: Work, answering: asyncio.Event) -> None:
    await answering.wait()
    await beat(notifier, work.alive, work.words)
