"""The poller against the real agent application on the real HTTP server."""

from __future__ import annotations

import asyncio
import socket
import time
from collections.abc import AsyncIterator
from contextlib import asynccontextmanager

import msgspec
import pytest
from certificates import issue
from cluster_tools import BROKEN_OFF, a_config, a_gpu, a_process, a_snapshot, an_entry, until

from gpumon.agent.app import make_app
from gpumon.agent.latest import Latest
from gpumon.cluster.fleet import Fleet
from gpumon.cluster.poller import poll_forever
from gpumon.cluster.sources.connections import Connections
from gpumon.cluster.sources.resolver import Resolver
from gpumon.cluster.sources.xmlrpc import XmlRpcSource
from gpumon.config import TlsConfig
from gpumon.errors import SourceError
from gpumon.http.auth import Tokens
from gpumon.http.server import Site, open_sockets, serve
from gpumon.model import encode
from gpumon.summary import summarize

SNAPSHOT = a_snapshot(
    a_gpu(0, processes=[a_process(program='a "quoted" <&> zoë')]), a_gpu(1), sample_age_seconds=None
)


class Sampled:
    """The newest sample of an agent, as its supervisor would give it."""

    def __init__(self) -> None:
        self.latest = Latest(revision="x-0", interval=5.0)

    def sample(self, revision: str = "x-1") -> None:
        self.latest = Latest(
            revision=revision,
            interval=5.0,
            snapshot=encode(SNAPSHOT),
            summary=encode(summarize(SNAPSHOT)),
            taken_at=time.monotonic() - 1.0,
            sampler_error=None,
        )


@asynccontextmanager
async def agent(
    sampled: Sampled, tokens: Tokens | None = None, tls: TlsConfig | None = None
) -> AsyncIterator[int]:
    """Serve the real agent on loopback. Yields its port."""
    site = Site(
        name="agent",
        app=make_app(lambda: sampled.latest, tokens),
        binds=["127.0.0.1:0"],
        tls=tls,
    )
    port = int(open_sockets(site)[0].rpartition(":")[2])
    shutdown = asyncio.Event()
    server = asyncio.create_task(serve([site], shutdown))
    try:
        yield port
    finally:
        shutdown.set()
        await asyncio.wait_for(server, 10)


def run(work) -> None:
    asyncio.run(asyncio.wait_for(work, 30))


def everything_is_here(*_: object, **__: object) -> list[object]:
    """A name server for which every name is this machine."""
    return [(socket.AF_INET, socket.SOCK_STREAM, 6, "", ("127.0.0.1", 0))]


async def failure(port: int, *, host: str = "127.0.0.1", **config: object) -> SourceError:
    entry = an_entry("one", port, host=host, tls=config.get("tls") is not None)
    connections = Connections(a_config(entry, **config), Resolver(everything_is_here))
    try:
        with pytest.raises(SourceError) as caught:
            await XmlRpcSource(entry, connections).poll()
        return caught.value
    finally:
        await connections.close()


def test_the_fleet_shows_what_the_agent_sampled():
    async def work() -> None:
        sampled = Sampled()
        async with agent(sampled) as port:
            config = a_config(an_entry("one", port), poll_interval=0.1)
            fleet = Fleet(config)
            poller = asyncio.create_task(poll_forever(fleet, config))
            await until(lambda: fleet.record("one").answered is not None)
            host = fleet.status().hosts[0]
            assert (host.state, host.reason) == ("stale", "no sample has been taken yet")

            sampled.sample()
            await until(lambda: fleet.record("one").sampled is not None)
            reading = fleet.record("one").reading
            assert 1.0 <= fleet.record("one").age(time.monotonic()) < 5.0
            assert fleet.detail("one").gpus == SNAPSHOT.gpus
            assert reading.summary.gpus == summarize(SNAPSHOT).gpus

            # Unchanged answers let the reading be, and tell why it grows old.
            sampled.latest = msgspec.structs.replace(sampled.latest, sampler_error="NVML hangs")
            await until(lambda: fleet.record("one").sampler_error == "NVML hangs")
            assert fleet.record("one").reading.packed is reading.packed
            poller.cancel()
            await asyncio.gather(poller, return_exceptions=True)

    run(work())


def test_the_agents_answer_is_cut_at_its_seams_without_a_parser(monkeypatch):
    async def work() -> None:
        sampled = Sampled()
        sampled.sample()
        async with agent(sampled) as port:
            entry = an_entry("one", port)
            connections = Connections(a_config(entry))
            source = XmlRpcSource(entry, connections)
            # The agent reads our call with the parser; ours must not be needed.
            monkeypatch.setattr("gpumon.cluster.sources.answer._parsed", None)
            for _ in range(2):
                assert (await source.poll()).detail().gpus == SNAPSHOT.gpus
            await connections.close()

    run(work())


def test_the_agent_takes_our_token_and_refuses_another(tmp_path):
    async def work() -> None:
        sampled = Sampled()
        sampled.sample()
        tokens = tmp_path / "token"
        async with agent(sampled, Tokens(["right"])) as port:
            assert (await failure(port)).kind == "wrong token"
            tokens.write_text("wrong\n")
            tokens.chmod(0o600)
            assert (await failure(port, token_file=tokens)).kind == "wrong token"
            tokens.write_text("right\nold\n")
            entry = an_entry("one", port)
            connections = Connections(a_config(entry, token_file=tokens))
            assert (await XmlRpcSource(entry, connections).poll()).summary.gpu_count == 2
            await connections.close()

    run(work())


def test_an_open_agent_that_is_called_by_a_strange_name_says_what_to_write():
    async def work() -> None:
        async with agent(Sampled()) as port:
            error = await failure(port, host="alias.invalid")
            assert error.kind == "bad answer"
            assert "does not go by this name (421)" in str(error)

    run(work())


@BROKEN_OFF
def test_a_certificate_that_the_agent_misses_is_asked_for_in_the_sentence(tmp_path):
    authority = issue(tmp_path, "authority")
    host = issue(tmp_path, "host", authority)

    async def work() -> None:
        tls = TlsConfig(cert=host.cert, key=host.key, ca=authority.cert)
        async with agent(Sampled(), tls=tls) as port:
            error = await failure(port, tls=TlsConfig(ca=authority.cert))
            assert "Then set tls.cert and tls.key" in str(error)

    run(work())
