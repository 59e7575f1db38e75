"""Network, agent, driver and GPU faults are told apart; a cut answer is one failed poll."""

from __future__ import annotations

import asyncio
import socket
from contextlib import AsyncExitStack

import pytest
from cluster_tools import (
    Agent,
    a_config,
    a_gpu,
    a_snapshot,
    an_answer,
    an_entry,
    http,
    listening,
    read_request,
    saying,
    until,
)

from gpumon.cluster.fleet import Fleet
from gpumon.cluster.poller import poll_forever
from gpumon.cluster.sources.connections import Connections
from gpumon.cluster.sources.xmlrpc import XmlRpcSource
from gpumon.errors import SourceError
from gpumon.http.xmlrpc import array, enveloped, string
from gpumon.web.advice import AGENT_LOG, for_error, for_host

SNAPSHOT = a_snapshot(a_gpu())
OF_ANOTHER_AGE = [string(b"r"), string(b'{"schema": 0, "gpus": {}}'), string(b"H4sI")]
BAD_DRIVER = {"gpus": [], "gpu_count": None}


async def silent(reader, writer):
    await asyncio.sleep(3600)


HOSTS = {
    "timed out": silent,
    "bad answer": saying(http(b"<html>")),
    "wrong token": saying(http(b"", "401 Unauthorized")),
    "version too old": saying(http(enveloped(array(OF_ANOTHER_AGE)))),
    "no driver": Agent(
        a_snapshot(**BAD_DRIVER, errors=["no driver is loaded"], error_kind="no driver")
    ),
    "version mismatch": Agent(
        a_snapshot(**BAD_DRIVER, errors=["reboot it"], error_kind="version mismatch")
    ),
    "no GPU": Agent(a_snapshot()),
    "no sample": Agent(a_snapshot(a_gpu(), sampler_error="the driver has not answered")),
    None: Agent(a_snapshot(a_gpu(0, lost=True, error="the GPU is lost"), a_gpu(1))),
}
"""What one fake host of each kind does, by the word that has to stand on its row."""


def test_every_way_to_fail_has_a_word_and_advice_of_its_own():
    async def work() -> dict[str, object]:
        async with AsyncExitStack() as stack:
            entries = [
                an_entry(str(kind), await stack.enter_async_context(listening(behave)))
                for kind, behave in HOSTS.items()
            ]
            with socket.socket() as closed:
                closed.bind(("127.0.0.1", 0))
                entries.append(an_entry("refused", closed.getsockname()[1]))
            entries.append(an_entry("name not found", 8043, host="nonexistent.invalid"))
            entries.append(an_entry("no route", 8043, host="255.255.255.255"))
            fleet = Fleet(a_config(*entries, rpc_timeout=0.5))
            polls = asyncio.create_task(
                poll_forever(fleet, a_config(*entries, rpc_timeout=0.5, poll_interval=60.0))
            )
            try:
                await until(lambda: all(record.asked for record in fleet.records()))
                return {host.name: host for host in fleet.status().hosts}
            finally:
                polls.cancel()
                await asyncio.gather(polls, return_exceptions=True)

    hosts = asyncio.run(asyncio.wait_for(work(), 20))
    assert {name: str(host.reason_kind) for name, host in hosts.items()} == {
        name: name for name in hosts
    }
    assert len({host.reason for host in hosts.values()}) == len(hosts)
    lost = hosts.pop("None")
    assert [gpu.state for gpu in lost.gpus] == ["fault", "free"]
    answering = ("no driver", "version mismatch", "no GPU", "no sample")
    assert {name for name, host in hosts.items() if host.state == "fresh"} == set(answering)
    advice = [for_error(name) if name in answering else for_host(name) for name in hosts]
    said = [words for words in advice if words]
    assert len(set(said)) == len(said) == len(hosts) - 1, "the sentence of no sample says it all"
    assert AGENT_LOG not in said


@pytest.mark.parametrize("with_length", [True, False])
def test_an_answer_that_ends_early_on_the_wire_is_a_failed_poll_wherever_it_ends(with_length):
    whole, end = an_answer(SNAPSHOT), 0

    async def behave(reader, writer):
        await read_request(reader)
        length = f"Content-Length: {len(whole)}\r\n" if with_length else "Connection: close\r\n"
        writer.write(f"HTTP/1.1 200 OK\r\n{length}\r\n".encode() + whole[:end])

    async def work() -> set[str]:
        nonlocal end
        kinds = set()
        async with listening(behave) as port:
            entry = an_entry("x", port)
            connections = Connections(a_config(entry))
            source = XmlRpcSource(entry, connections)
            try:
                # Its last byte is the end of a line, without which it is whole.
                for end in [*range(0, len(whole) - 2, 61), len(whole) - 2]:  # noqa: B007
                    with pytest.raises(SourceError) as caught:
                        await asyncio.wait_for(source.poll(), 5)
                    kinds.add(caught.value.kind)
                end = len(whole)
                assert (await source.poll()).detail() == SNAPSHOT
            finally:
                await connections.close()
        return kinds

    assert asyncio.run(asyncio.wait_for(work(), 30)) == {"bad answer"}
