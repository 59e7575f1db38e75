"""From an entry of `hosts:` to the source that asks it."""

from __future__ import annotations

from collections.abc import AsyncIterator
from contextlib import asynccontextmanager
from typing import TYPE_CHECKING

from gpumon.agent.supervisor import Supervisor
from gpumon.cluster.sources.base import Source
from gpumon.cluster.sources.connections import Connections
from gpumon.cluster.sources.nvgpu import NvgpuSource
from gpumon.cluster.sources.self_host import SelfSource
from gpumon.cluster.sources.server import ServerSource
from gpumon.cluster.sources.simulated import SimulatedSource
from gpumon.cluster.sources.xmlrpc import XmlRpcSource
from gpumon.config import Config, HostEntry
from gpumon.errors import SetupError
from gpumon.extras import how_to_install
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


def open_logins(config: Config) -> Logins | None:
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
            f"{how_to_install('server', 'ssh')}"
        ) from error
    return Logins(config)


@asynccontextmanager
async def open_sources(
    config: Config, *, supervisor: Supervisor | None = None, seed: int = 0
) -> AsyncIterator[dict[str, Source]]:
    """Yield the sources of all configured hosts by name; close everything they opened.

    Raises StartError where the token file or a certificate can't be used.
    """
    logins = open_logins(config)
    connections = Connections(config)
    sources: dict[str, Source] = {}
    try:
        for number, entry in enumerate(config.hosts):
            if entry.source == "pushed":
                continue  # nobody asks it
            sources[entry.name] = make_source(
                entry,
                number,
                connections=connections,
                logins=logins,
                supervisor=supervisor,
                seed=seed,
                patience=config.rpc_timeout / 2,
                timeout=config.rpc_timeout,
            )
        yield sources
    finally:
        for source in sources.values():
            await source.close()
        await connections.close()
        if logins is not None:
            await logins.close()
