"""Names: cached, looked up beside everything else, and never waited for longer than asked."""

from __future__ import annotations

import asyncio
import socket
import threading

import pytest
from cluster_tools import Agent, Clock, a_config, a_gpu, a_snapshot, an_entry, listening, until

from gpumon.cluster.sources.connections import Connections
from gpumon.cluster.sources.resolver import FRESH_SECONDS, USABLE_SECONDS, Resolver
from gpumon.cluster.sources.xmlrpc import XmlRpcSource


class Names:
    """A name server for tests, in the place of getaddrinfo."""

    def __init__(self) -> None:
        self.asked: list[str] = []
        self.addresses = {"a": "127.0.0.1"}
        self.gate = threading.Event()
        self.gate.set()

    def __call__(self, host: str, port: object, **_: object) -> list[object]:
        self.asked.append(host)
        self.gate.wait(10)
        if host not in self.addresses:
            raise socket.gaierror(socket.EAI_NONAME, "Name or service not known")
        return [(socket.AF_INET, socket.SOCK_STREAM, 6, "", (self.addresses[host], 0))]


async def address(resolver: Resolver, host: str) -> str:
    return (await resolver.addresses(host))[0][1]


def test_a_known_name_is_not_looked_up_again_for_a_minute():
    names, clock = Names(), Clock()

    async def run():
        resolver = Resolver(names, clock.monotonic)
        assert await address(resolver, "a") == "127.0.0.1"
        clock.move(FRESH_SECONDS)
        assert await address(resolver, "a") == "127.0.0.1"
        assert names.asked == ["a"]

    asyncio.run(run())


def test_an_old_address_is_used_at_once_and_renewed_beside_that():
    names, clock = Names(), Clock()

    async def run():
        resolver = Resolver(names, clock.monotonic)
        await address(resolver, "a")
        names.addresses["a"] = "127.0.0.2"
        names.gate.clear()  # the name server is slow now
        clock.move(FRESH_SECONDS + 1)
        assert await address(resolver, "a") == "127.0.0.1"
        names.gate.set()
        while await address(resolver, "a") == "127.0.0.1":
            await asyncio.sleep(0.005)
        assert await address(resolver, "a") == "127.0.0.2"
        assert names.asked == ["a", "a"]

    asyncio.run(asyncio.wait_for(run(), 5))


def test_addresses_of_yesterday_are_not_used():
    names, clock = Names(), Clock()

    async def run():
        resolver = Resolver(names, clock.monotonic)
        await address(resolver, "a")
        del names.addresses["a"]
        clock.move(USABLE_SECONDS + 1)
        with pytest.raises(socket.gaierror):
            await address(resolver, "a")

    asyncio.run(run())


def test_one_lookup_serves_all_who_wait_and_outlives_those_who_gave_up():
    names = Names()

    async def run():
        resolver = Resolver(names)
        names.gate.clear()
        for _ in range(3):
            with pytest.raises(asyncio.TimeoutError):
                await asyncio.wait_for(address(resolver, "a"), 0.02)
        names.gate.set()
        assert await address(resolver, "a") == "127.0.0.1"
        assert names.asked == ["a"]

    asyncio.run(run())


def test_what_is_no_host_name_is_not_found():
    async def run():
        with pytest.raises(socket.gaierror):
            await Resolver().addresses("a" * 70 + ".invalid")

    asyncio.run(run())


def test_a_name_without_any_address_is_not_found():
    async def run():
        with pytest.raises(socket.gaierror):
            await Resolver(lambda *_, **__: []).addresses("a")

    asyncio.run(run())


def test_a_name_that_is_never_resolved_delays_nobody_else_and_not_the_end():
    names = Names()
    agent = Agent(a_snapshot(a_gpu()))

    async def run():
        async with listening(agent) as port:
            healthy = an_entry("healthy", port, host="a")
            stuck = [an_entry(f"stuck{i}", port, host=f"dead{i}") for i in range(40)]
            connections = Connections(a_config(healthy, *stuck), Resolver(names))
            try:
                await XmlRpcSource(healthy, connections).poll()
                names.gate.clear()
                sources = [XmlRpcSource(entry, connections) for entry in stuck]
                polls = [asyncio.create_task(source.poll()) for source in sources]
                await until(lambda: len(names.asked) == 41)
                await asyncio.wait_for(XmlRpcSource(healthy, connections).poll(), 1)
                for poll in polls:
                    poll.cancel()
                await asyncio.gather(*polls, return_exceptions=True)
                assert "while looking up its name" in str(sources[0].timed_out(2.0))
            finally:
                await connections.close()

    asyncio.run(asyncio.wait_for(run(), 5))  # threads still sit in the lookup here
    names.gate.set()
