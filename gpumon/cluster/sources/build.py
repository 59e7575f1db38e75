"""From an entry of `hosts:` to the source that asks it."""

from __future__ import annotations

from collections.abc import AsyncIterator
from contextlib import asynccontextmanager

from gpumon.agent.supervisor import Supervisor
from gpumon.cluster.sources.base import Source
from gpumon.cluster.sources.connections import Connections
from gpumon.cluster.sources.self_host import SelfSource
from gpumon.cluster.sources.server import ServerConnections, ServerSource
from gpumon.cluster.sources.simulated import SimulatedSource
from gpumon.cluster.sources.xmlrpc import XmlRpcSource
from gpumon.config import Config, HostEntry
from gpumon.simulate import SimulatedHost


def make_source(
    entry: HostEntry,
    number: int,
    *,
    connections: Connections,
    servers: ServerConnections | None = None,
    supervisor: Supervisor | None = None,
    seed: int = 0,
    patience: float = 0.0,
) -> Source:
    """Return the source of one entry. `number` (from 0) and `seed` shape a simulated host.

    `patience`: so many seconds `self` may wait for its first sample, within a poll's deadline.
    Raises ValueError for `self` without the supervisor that samples this machine.
    """
    if entry.source == "self":
        if supervisor is None:
            raise ValueError("the entry self needs the supervisor that samples this machine")
        return SelfSource(supervisor, patience=patience)
    if entry.source == "simulated":
        return SimulatedSource(SimulatedHost(entry.name, number, seed))
    if entry.source == "gpumon":
        if servers is None:
            raise ValueError("another server needs the connections to servers")
        return ServerSource(entry, servers)
    return XmlRpcSource(entry, connections)


@asynccontextmanager
async def open_sources(
    config: Config, *, supervisor: Supervisor | None = None, seed: int = 0
) -> AsyncIterator[dict[str, Source]]:
    """Yield the sources of all configured hosts by name; close everything they opened.

    Raises StartError where the token file or a certificate can't be used.
    """
    connections, servers = Connections(config), ServerConnections(config)
    sources: dict[str, Source] = {}
    try:
        for number, entry in enumerate(config.hosts):
            if entry.source == "pushed":
                continue  # nobody asks it
            sources[entry.name] = make_source(
                entry,
                number,
                connections=connections,
                servers=servers,
                supervisor=supervisor,
                seed=seed,
                patience=config.rpc_timeout / 2,
            )
        yield sources
    finally:
        for source in sources.values():
            await source.close()
        await servers.close()
        await connections.close()
