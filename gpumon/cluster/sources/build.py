"""From an entry of `hosts:` to the source that asks it."""

from __future__ import annotations

import asyncio
from collections.abc import AsyncIterator, Callable
from contextlib import asynccontextmanager
from typing import TYPE_CHECKING, NamedTuple

from msgspec import structs

from gpumon.agent.supervisor import Supervisor
from gpumon.cluster.sources.access import Access
from gpumon.cluster.sources.base import Source
from gpumon.cluster.sources.connections import Connections
from gpumon.cluster.sources.nvgpu import NvgpuSource
from gpumon.cluster.sources.resolver import Resolver
from gpumon.cluster.sources.self_host import SelfSource
from gpumon.cluster.sources.server import ServerSource
from gpumon.cluster.sources.simulated import SimulatedSource
from gpumon.cluster.sources.xmlrpc import XmlRpcSource
from gpumon.config import Config, HostEntry
from gpumon.errors import SetupError
from gpumon.simulate import SimulatedHost

if TYPE_CHECKING:  # asyncssh is an optional library
    from gpumon.cluster.sources.ssh.login import Logins


def make_source(
    entry: HostEntry,
    number: int,
    *,
    connections: Connections,
    logins: Logins | None = None,
    supervisor: Supervisor | None = None,
    seed: int = 0,
    patience: float = 0.0,
    timeout: float = 2.0,
) -> Source:
    """Return the source of one entry. `number` (from 0) and `seed` shape a simulated host.

    `patience`: so many seconds `self` may wait for its first sample, within a poll's deadline.
    `timeout`: that deadline, which holds for what is fetched beside polls too.
    Raises ValueError for `self` without the supervisor that samples this machine.
    """
    if entry.source == "self":
        if supervisor is None:
            raise ValueError("the entry self needs the supervisor that samples this machine")
        return SelfSource(supervisor, patience=patience)
    if entry.source == "simulated":
        return SimulatedSource(SimulatedHost(entry.name, number, seed))
    if entry.source == "gpumon":
        return ServerSource(entry, connections, timeout)
    if entry.source == "ssh":
        if logins is None:
            raise ValueError("an entry ssh:// needs the server's logins")
        from gpumon.cluster.sources.ssh.source import SshSource

        return SshSource(entry, logins)
    if entry.source == "nvgpu":
        return NvgpuSource(entry, connections)
    return XmlRpcSource(entry, connections)


def open_logins(config: Config, resolver: Resolver | None = None) -> Logins | None:
    """Return what hosts that are asked by SSH need; None where there is no such host.

    Raises SetupError where the library is missing, or the key or known_hosts can't be used.
    """
    if not any(entry.source == "ssh" for entry in config.hosts):
        return None
    try:
        from gpumon.cluster.sources.ssh.login import Logins
    except ModuleNotFoundError as error:
        if error.name is None or error.name.startswith("gpumon"):
            raise
        raise SetupError(
            f"hosts: ssh:// entries need the library {error.name}, which is not installed. "
            "Install it with: pip install 'gpumon-cluster[server,ssh]'"
        ) from error
    return Logins(config, resolver)


class _Made(NamedTuple):
    """A source, and all that it was made for: where this is the same, it goes on."""

    entry: HostEntry
    """Without what the page alone uses."""
    timeout: float | None
    """Where the source itself goes by it."""
    shared: object
    """What it holds that others hold, too."""
    source: Source


class Sources:
    """The sources of all configured hosts and what they share; they follow the configuration."""

    def __init__(
        self, config: Config, *, supervisor: Supervisor | None = None, seed: int = 0
    ) -> None:
        """Raises SetupError where the token file, a certificate or a key can't be used."""
        self._seed = seed
        self._connections = Connections(config)
        self._logins = open_logins(config)
        self._made: dict[str, _Made] = {}
        self._made = self._all_made(config, self._logins, supervisor)

    @property
    def by_name(self) -> dict[str, Source]:
        """The sources as of now."""
        return {name: made.source for name, made in self._made.items()}

    def prepared(self, config: Config, supervisor: Supervisor | None) -> Callable[[], bool]:
        """Make what another configuration needs; return what puts it to use.

        A host that is asked as before keeps its source. Whoever polls the others closes their
        sources. What is returned tells whether a host that failed may answer now, since token,
        TLS or the deadline have changed. Raises SetupError, and changes nothing then.
        """
        used = self._connections.access
        access = Access.of(config, used)
        logins = self._next_logins(config)
        made = self._all_made(config, logins, supervisor)

        def commit() -> bool:
            self._connections.use(access)
            if logins is not None:
                self._logins = logins
                logins.seconds = config.rpc_timeout
            self._made = made
            return access.opens_more_than(used)

        return commit

    def _next_logins(self, config: Config) -> Logins | None:
        before = self._logins
        logins = open_logins(config, None if before is None else before.resolver)
        if before is not None and logins is not None and logins.same_as(before):
            return before
        return logins

    def _all_made(
        self, config: Config, logins: Logins | None, supervisor: Supervisor | None
    ) -> dict[str, _Made]:
        return {
            entry.name: self._make(entry, number, config, logins, supervisor)
            for number, entry in enumerate(config.hosts)
            if entry.source != "pushed"  # nobody asks those
        }

    def _make(
        self,
        entry: HostEntry,
        number: int,
        config: Config,
        logins: Logins | None,
        supervisor: Supervisor | None,
    ) -> _Made:
        bare = structs.replace(entry, labels={}, drained=False)
        timeout = config.rpc_timeout if entry.source in ("self", "gpumon") else None
        shared = {"ssh": logins, "self": supervisor}.get(entry.source)
        before = self._made.get(entry.name)
        if before is not None and before[:3] == (bare, timeout, shared):
            return before
        source = make_source(
            entry,
            number,
            connections=self._connections,
            logins=logins,
            supervisor=supervisor,
            seed=self._seed,
            patience=config.rpc_timeout / 2,
            timeout=config.rpc_timeout,
        )
        return _Made(bare, timeout, shared, source)

    async def close(self) -> None:
        """Close everything that is open."""
        await asyncio.gather(*(made.source.close() for made in self._made.values()))
        await self._connections.close()
        if self._logins is not None:
            await self._logins.close()


@asynccontextmanager
async def open_sources(
    config: Config, *, supervisor: Supervisor | None = None, seed: int = 0
) -> AsyncIterator[dict[str, Source]]:
    """Yield the sources of all configured hosts by name; close everything they opened.

    Raises StartError where the token file or a certificate can't be used.
    """
    sources = Sources(config, supervisor=supervisor, seed=seed)
    try:
        yield sources.by_name
    finally:
        await sources.close()
