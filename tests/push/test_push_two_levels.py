"""A server that shows another server's hosts: real servers, real HTTP, ages that only add up."""

from __future__ import annotations

import asyncio
import gzip
import logging
from collections.abc import AsyncIterator
from contextlib import AsyncExitStack, asynccontextmanager

import msgspec
import pytest
from cluster_tools import (
    WALL,
    Clock,
    a_config,
    a_gpu,
    a_process,
    a_reading,
    http,
    listening,
    read_request,
    saying,
    until,
)

from gpumon.cluster.fleet import Fleet
from gpumon.cluster.poller import Poller
from gpumon.cluster.relayed import MOST_HOPS, Relayed
from gpumon.cluster.sources import server as server_module
from gpumon.cluster.sources.base import Reading
from gpumon.cluster.sources.build import open_sources
from gpumon.cluster.sources.connections import Connections
from gpumon.cluster.sources.server import ServerSource
from gpumon.cluster.status import ClusterStatus
from gpumon.config import HostEntry
from gpumon.errors import SourceError
from gpumon.http.server import Site, open_sockets, serve
from gpumon.model import encode
from gpumon.summary import HostSummary
from gpumon.web.app import make_app


def other(name: str, port: int, **more: object) -> HostEntry:
    return HostEntry(
        name=name,
        source="gpumon",
        address=f"gpumon+http://127.0.0.1:{port}",
        host="127.0.0.1",
        port=port,
        **more,
    )


def simulated(*names: str) -> list[HostEntry]:
    return [HostEntry(name=name, source="simulated", address="simulated") for name in names]


class Node:
    """A whole server: its page on a port, and polls of what it is told to poll."""

    def __init__(self) -> None:
        self.config = a_config(poll_interval=0.5)
        self.fleet = Fleet(self.config)
        app = make_app(
            status=lambda: self.fleet.status(),
            detail=lambda host: self.fleet.detail(host),
            config=self.config,
        )
        self.site = Site(name="web", app=app, binds=["127.0.0.1:0"])
        self.port = int(open_sockets(self.site)[0].rpartition(":")[2])
        self.shutdown = asyncio.Event()

    @asynccontextmanager
    async def running(self, *hosts: HostEntry) -> AsyncIterator[Node]:
        self.config = msgspec.structs.replace(self.config, hosts=list(hosts))
        self.fleet.reconfigure(self.config)
        page = asyncio.create_task(serve([self.site], self.shutdown))
        async with open_sources(self.config) as sources:
            polls = asyncio.create_task(Poller(self.fleet, self.config, sources).run())
            try:
                yield self
            finally:
                polls.cancel()
                await asyncio.gather(polls, return_exceptions=True)
                self.shutdown.set()
                await asyncio.wait_for(page, 10)

    def hosts(self) -> dict[str, object]:
        return {host.name: host for host in self.fleet.status().hosts}

    def state(self, name: str) -> str | None:
        host = self.hosts().get(name)
        return None if host is None else host.state


def run(work) -> None:
    asyncio.run(asyncio.wait_for(work, 60))


@pytest.mark.system
def test_the_hosts_of_another_server_are_shown_with_their_details_and_when_it_dies():
    async def work() -> None:
        north, top = Node(), Node()
        async with AsyncExitStack() as stack:
            await stack.enter_async_context(north.running(*simulated("gpu-01", "gpu-02", "gpu-07")))
            entry = other("north", north.port, labels={"site": "north"})
            await stack.enter_async_context(top.running(*simulated("here"), entry))
            await until(lambda: top.state("north:gpu-01") == "fresh", 10)
            assert [*top.hosts()] == ["here", "north:gpu-01", "north:gpu-02", "north:gpu-07"]

            shown, own = top.hosts()["north:gpu-01"], north.hosts()["gpu-01"]
            assert [gpu.uuid for gpu in shown.gpus] == [gpu.uuid for gpu in own.gpus]
            assert shown.age_seconds >= 1.0, "a picture may be a tick old when it is sent"
            assert shown.labels["site"] == "north"
            assert shown.simulated
            totals = top.fleet.status().totals
            assert totals.hosts == 4
            # "here" is the same invented machine as gpu-01, by the UUIDs of its GPUs.
            uuids = {gpu.uuid for host in top.hosts().values() for gpu in host.gpus}
            assert totals.gpus.total == len(uuids) == 24

            first = top.fleet.detail("north:gpu-01")
            assert "on their way" in first.errors[0]
            await until(lambda: top.fleet.detail("north:gpu-01").gpus)
            detail = top.fleet.detail("north:gpu-01")
            assert len(detail.gpus) == len(own.gpus)
            assert detail.sample_age_seconds is not None
            assert top.fleet.detail("north:nobody") is None

            north.shutdown.set()
            await until(lambda: top.state("north:gpu-01") == "stale", 15)
            gone = top.hosts()["north:gpu-01"]
            assert gone.reason.startswith("its server north does not answer: ")
            assert {gpu.state for gpu in gone.gpus} == {"unknown"}
            assert gone.age_seconds > shown.age_seconds

    run(work())


@pytest.mark.system
def test_two_servers_that_poll_each_other_show_each_others_hosts_once(caplog):
    async def work() -> None:
        one, two = Node(), Node()
        async with AsyncExitStack() as stack:
            await stack.enter_async_context(one.running(*simulated("a"), other("two", two.port)))
            await stack.enter_async_context(two.running(*simulated("b"), other("one", one.port)))
            await until(lambda: [*one.hosts()] == ["a", "two:b"], 10)
            await until(lambda: [*two.hosts()] == ["b", "one:a"], 10)
            for _ in range(10):  # it stays so
                await asyncio.sleep(0.15)
                assert [*one.hosts()] == ["a", "two:b"]
                assert [*two.hosts()] == ["b", "one:a"]

    with caplog.at_level(logging.WARNING):
        run(work())
    assert "came through this server" in caplog.text


@pytest.mark.system
def test_a_server_that_polls_itself_is_told_so():
    async def work() -> None:
        one = Node()
        async with one.running(other("me", one.port)):
            await until(lambda: one.fleet.record("me").failure is not None, 10)
            assert one.fleet.record("me").failure.kind == "loop"
            await asyncio.sleep(1.2)
            [host] = one.fleet.status().hosts
            assert (host.state, host.reason_kind) == ("never", "loop")
            assert "Remove its entry" in host.reason

    run(work())


@pytest.mark.system
def test_over_three_levels_ages_and_the_way_add_up():
    async def work() -> None:
        bottom, middle, top = Node(), Node(), Node()
        async with AsyncExitStack() as stack:
            enter = stack.enter_async_context
            await enter(bottom.running(*simulated("gpu-01")))
            await enter(middle.running(other("south", bottom.port)))
            await enter(top.running(other("europe", middle.port)))
            name = "europe:south:gpu-01"
            await until(lambda: top.state(name) == "fresh", 15)
            host = top.hosts()[name]
            assert host.via == [middle.fleet.instance, bottom.fleet.instance]
            assert host.age_seconds >= 2.0
            bottom.shutdown.set()
            await until(lambda: top.state(name) == "stale", 20)
            assert "its server south does not answer" in top.hosts()[name].reason

    run(work())


class Told:
    """A server above one that is written by hand, with a clock moved by hand."""

    def __init__(self, **fleet: object) -> None:
        self.clock = Clock()
        self.top = Fleet(
            a_config(other("north", 1, **fleet), poll_interval=5.0),
            monotonic=self.clock.monotonic,
            wall=self.clock.wall,
        )
        below = Fleet(
            a_config(*simulated("gpu-01", "gpu-02"), poll_interval=5.0),
            monotonic=self.clock.monotonic,
            wall=lambda: self.clock.wall() - 86_400.0,  # its clock is a day behind
        )
        below.answered("gpu-01", a_reading(a_gpu(processes=[a_process()])), asked=1000.0)
        self.status = below.status()

    def tell(self, **changes: object) -> None:
        self.status = msgspec.structs.replace(self.status, **changes)
        relayed = Relayed(status=self.status, details=None)
        reading = Reading(summary=HostSummary(), packed=b"", relayed=relayed)
        self.top.answered("north", reading, asked=self.clock.monotonic())

    def hosts(self):
        return self.top.status().hosts


def test_ages_and_times_do_not_depend_on_the_other_servers_clock():
    told = Told()
    told.tell()
    held, silent = told.hosts()
    assert (held.state, held.age_seconds, held.answered_at) == ("fresh", 2.5, WALL - 2.5)
    assert held.gpus[0].holders[0].user == "bob"
    assert (silent.state, silent.age_seconds) == ("never", None)


def test_an_unchanged_picture_grows_old_however_often_it_is_sent():
    told = Told()
    told.tell()
    for _ in range(4):
        told.clock.move(4)
        told.tell()
    held, silent = told.hosts()
    assert (held.state, held.age_seconds) == ("stale", 18.5)
    assert "nothing new for" in held.reason
    assert silent.state == "never"


def test_a_server_that_is_silent_for_long_takes_its_hosts_down_with_it():
    told = Told()
    told.tell()
    told.clock.move(20)
    told.top.failed("north", "refused", "refused: ...", asked=told.clock.monotonic())
    assert told.hosts()[0].state == "stale"
    assert told.hosts()[0].reason == "its server north does not answer: refused: ..."
    told.clock.move(300)
    held, silent = told.hosts()
    assert (held.state, silent.state) == ("down", "never")
    assert held.gpus[0].state == "unknown"


def test_a_drained_server_has_no_free_gpus():
    told = Told(drained=True)
    told.tell()
    assert told.hosts()[0].gpus[0].state == "drained"


def test_a_host_that_came_over_too_many_servers_is_left_out(caplog):
    told = Told()
    far = msgspec.structs.replace(told.status.hosts[0], via=["x"] * MOST_HOPS)
    told.tell(hosts=[far, told.status.hosts[1]])
    assert [host.name for host in told.hosts()] == ["north:gpu-02"]
    assert "left out" in caplog.text


def test_a_server_without_hosts_keeps_a_row_that_says_so():
    told = Told()
    told.tell(hosts=[])
    [host] = told.hosts()
    assert (host.name, host.state) == ("north", "stale")
    assert "lists no hosts" in host.reason


def test_a_reload_keeps_the_hosts_of_another_server():
    told = Told()
    told.tell()
    told.top.reconfigure(a_config(other("north", 1), *simulated("new"), poll_interval=5.0))
    assert [host.name for host in told.hosts()] == ["north:gpu-01", "north:gpu-02", "new"]


async def poll(body: bytes, *headers: str) -> ClusterStatus:
    async with listening(saying(http(body, "200 OK", *headers))) as port:
        entry = other("north", port)
        connections = Connections(a_config(entry))
        source = ServerSource(entry, connections, 2.0)
        try:
            return (await source.poll()).relayed.status
        finally:
            await source.close()
            await connections.close()


def refused(body: bytes, *headers: str) -> SourceError:
    with pytest.raises(SourceError) as caught:
        asyncio.run(poll(body, *headers))
    assert len(str(caught.value)) < 500
    return caught.value


def status_with(**changes: object) -> bytes:
    return encode(msgspec.structs.replace(Told().status, **changes))


def test_what_is_no_status_of_a_server_is_a_bad_answer():
    host = Told().status.hosts[0]
    twice = [host, host]
    crowded = msgspec.structs.replace(host, gpus=[host.gpus[0]] * 129)
    late = msgspec.structs.replace(host, answered_at=1e300)
    bodies = [
        b"",
        b"<html>",
        b"[]",
        b"[" * 100_000,
        status_with(hosts=twice),
        status_with(hosts=[crowded]),
        status_with(hosts=[late]),
        encode({"hosts": []}),
    ]
    for body in bodies:
        assert refused(body).kind == "bad answer"
    assert refused(b'{"schema": 99}').kind == "version too old"


def test_a_server_that_is_not_there_and_one_that_is_none_say_what_was_found():
    async def ask(port: int) -> str:
        connections = Connections(a_config(other("north", port)))
        try:
            with pytest.raises(SourceError) as caught:
                await ServerSource(other("north", port), connections, 2.0).poll()
            return str(caught.value)
        finally:
            await connections.close()

    async def work() -> tuple[str, ...]:
        async with listening(saying(b"SSH-2.0-x\r\n")) as ssh:
            banner = await ask(ssh)
        gone = await ask(ssh)
        async with listening(saying(http(b"", "401 Unauthorized"))) as port:
            login = await ask(port)
        async with listening(saying(http(b"", "304 Not Modified"))) as port:
            return banner, gone, login, await ask(port)

    banner, gone, login, unchanged = asyncio.run(work())
    assert "found an SSH banner. Write the address of its front page" in banner
    assert gone.startswith("refused: nothing listens on gpumon+http://127.0.0.1:")
    assert gone.endswith("Is 'gpumon web' running on that host?")
    assert "asks for a login (401)" in login
    assert "HTTP status 304" in unchanged


def test_text_of_another_server_is_cleaned():
    host = msgspec.structs.replace(Told().status.hosts[0], reason="\x1b[31mred\u202e")
    status = asyncio.run(poll(status_with(hosts=[host])))
    assert status.hosts[0].reason == "\ufffd[31mred\ufffd"


def test_bombs_and_floods_are_cut_off(monkeypatch):
    monkeypatch.setattr(server_module, "MAX_STATUS_BYTES", 1024 * 1024)
    bomb = gzip.compress(b" " * 5_000_000)
    assert "unpacks to 200 times its size" in str(refused(bomb, "Content-Encoding: gzip"))
    assert "more than 1 MiB" in str(refused(b" " * 2_500_000))
    assert "compression is broken" in str(refused(b"no gzip", "Content-Encoding: gzip"))
    cut = gzip.compress(status_with())[:-20]
    assert "cut short" in str(refused(cut, "Content-Encoding: gzip"))
    assert "not asked for" in str(refused(b"x", "Content-Encoding: br"))


def test_no_token_of_the_agents_is_sent_to_another_server(tmp_path):
    token = tmp_path / "token"
    token.write_text("s3cret\n")
    token.chmod(0o600)
    seen: list[dict[str, str]] = []

    async def behave(reader, writer):
        headers, _ = await read_request(reader)
        seen.append(headers)
        writer.write(http(status_with(), "200 OK", 'ETag: "r-1"'))

    async def work() -> None:
        async with listening(behave) as port:
            config = a_config(other("north", port), token_file=token)
            async with open_sources(config) as sources:
                await sources["north"].poll()
                await sources["north"].poll()

    asyncio.run(work())
    assert "s3cret" not in str(seen)
    assert [headers.get("if-none-match") for headers in seen] == [None, '"r-1"']
