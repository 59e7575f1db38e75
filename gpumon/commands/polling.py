"""The server's polls, which begin anew with another configuration while the fleet stays."""

from __future__ import annotations

import asyncio
from collections.abc import Collection, Coroutine
from typing import Any

from msgspec import structs

from gpumon.agent.supervisor import Supervisor
from gpumon.cluster.fleet import Fleet
from gpumon.cluster.poller import poll_forever
from gpumon.cluster.sources.build import open_sources
from gpumon.commands.agent import make_supervisor
from gpumon.commands.ways_in import WaysIn, token_files
from gpumon.config import Config

HOT = (
    "hosts",
    "rpc_port",
    "rpc_timeout",
    "poll_interval",
    "token_file",
    "tls",
    "ssh",
    "limits",
    "web.push_accept_new",
)
"""Settings of a server that may change while it runs."""


class Polling:
    """Polls the hosts of a configuration, and then those of the next one."""

    def __init__(
        self, fleet: Fleet, config: Config, ways_in: WaysIn, supervisor: Supervisor | None = None
    ) -> None:
        """`supervisor` samples this machine and is run by somebody else.

        Without it, one is made and run here as soon as `self` is among the hosts.
        """
        self._fleet = fleet
        self._config = config
        self._ways_in = ways_in
        self._supervisor = supervisor
        self._changed = asyncio.Event()

    async def run(self) -> None:
        """Poll until cancelled. Raises what the polls raise."""
        sampling: asyncio.Task[None] | None = None
        tasks: list[asyncio.Task[Any]] = []
        try:
            while True:
                self._changed.clear()
                if self._supervisor is None and _wants_self(self._config):
                    self._supervisor = make_supervisor(self._config)
                    sampling = asyncio.create_task(self._supervisor.run())
                tasks = [asyncio.create_task(work) for work in (self._poll(), self._changed.wait())]
                running = {*tasks, *([sampling] if sampling else [])}
                await asyncio.wait(running, return_when=asyncio.FIRST_COMPLETED)
                if not self._changed.is_set():
                    for task in running:
                        if task.done():
                            await task
                await _end(tasks)
        finally:
            await _end([*tasks, *([sampling] if sampling else [])])

    def _poll(self) -> Coroutine[Any, Any, None]:
        return poll_forever(self._fleet, self._config, supervisor=self._supervisor)

    async def change(self, config: Config) -> None:
        """Go over to another configuration. Raises SetupError, and changes nothing then."""
        commit = self._ways_in.prepared(config)
        # The others need no file, and `self` a sampler that runs already or is made then.
        asked = [entry for entry in config.hosts if entry.source != "self"]
        async with open_sources(structs.replace(config, hosts=asked)):
            pass  # its token, certificates, keys and libraries can be used
        commit()
        self._config = config
        self._fleet.reconfigure(config)
        self._changed.set()


def hot(old: Config, new: Config) -> Collection[str]:
    """Return what may change between two configurations of a server while it runs."""
    before, after = token_files(old.web), token_files(new.web)
    # To open or close an entrance takes a restart; another file for an open one does not.
    return [*HOT, *(key for key in before if key in after)]


def _wants_self(config: Config) -> bool:
    return any(entry.source == "self" for entry in config.hosts)


async def _end(tasks: list[asyncio.Task[Any]]) -> None:
    for task in tasks:
        task.cancel()
    await asyncio.gather(*tasks, return_exceptions=True)
