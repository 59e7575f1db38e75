"""The server's polls, which go over to another configuration while they run."""

from __future__ import annotations

import asyncio
from collections.abc import Callable, Collection
from typing import Any

from gpumon.agent.supervisor import Supervisor
from gpumon.cluster.fleet import Fleet
from gpumon.cluster.poller import Poller, collecting_less_often
from gpumon.cluster.sources.build import Sources
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
    """Polls the hosts of a configuration. With the next one, those that stay go on undisturbed."""

    def __init__(
        self, fleet: Fleet, config: Config, ways_in: WaysIn, supervisor: Supervisor | None = None
    ) -> None:
        """`supervisor` samples this machine and is run by somebody else.

        Without it, one is made and run here as long as `self` is among the hosts. Raises SetupError
        where the token file, a certificate or a key can't be used.
        """
        self._fleet = fleet
        self._ways_in = ways_in
        self._given = supervisor
        self._own: Supervisor | None = None
        self._config = config
        self._changed = asyncio.Event()
        self._own = self._next_own(config)
        self._sources = Sources(config, supervisor=supervisor or self._own)
        self._poller = Poller(fleet, config, self._sources.by_name)

    async def run(self) -> None:
        """Poll until cancelled. Raises what the polls raise."""
        polls = asyncio.create_task(self._poller.run())
        sampling: asyncio.Task[None] | None = None
        sampled: Supervisor | None = None
        changed: asyncio.Task[Any] | None = None
        try:
            with collecting_less_often():
                while True:
                    self._changed.clear()
                    if sampled is not self._own:
                        await _end(sampling)
                        sampled = self._own
                        sampling = None if sampled is None else asyncio.create_task(sampled.run())
                    changed = asyncio.create_task(self._changed.wait())
                    running = [task for task in (polls, sampling, changed) if task is not None]
                    done, _ = await asyncio.wait(running, return_when=asyncio.FIRST_COMPLETED)
                    for task in done:
                        task.result()
                    await _end(changed)
        finally:
            await _end(polls, sampling, changed)
            await self._sources.close()

    def prepared(self, config: Config, wanted: Config) -> Callable[[], None]:
        """Read what another configuration names; return what goes over to it.

        `config` is the one to go over to, `wanted` the one that would hold after a restart. Raises
        SetupError, and changes nothing then.
        """
        own = self._next_own(config)
        use_entrances = self._ways_in.prepared(wanted)
        use_sources = self._sources.prepared(config, self._given or own)

        def commit() -> None:
            use_entrances()
            again = use_sources()
            self._config, self._own = config, own
            self._fleet.reconfigure(config)
            self._poller.update(config, self._sources.by_name, again=again)
            self._changed.set()

        return commit

    def _next_own(self, config: Config) -> Supervisor | None:
        """Return what samples this machine; None where nobody asks, or somebody else does it."""
        if self._given is not None or all(entry.source != "self" for entry in config.hosts):
            return None
        if self._own is not None and config.limits == self._config.limits:
            return self._own
        return make_supervisor(config)


def hot(old: Config, new: Config) -> Collection[str]:
    """Return what may change between two configurations of a server while it runs."""
    before, after = token_files(old.web), token_files(new.web)
    # To open or close an entrance takes a restart; another file for an open one does not.
    return [*HOT, *(key for key in before if key in after)]


async def _end(*tasks: asyncio.Task[Any] | None) -> None:
    running = [task for task in tasks if task is not None]
    for task in running:
        task.cancel()
    await asyncio.gather(*running, return_exceptions=True)
