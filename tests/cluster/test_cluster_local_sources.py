"""Sources without a network: this machine, and invented hosts."""

from __future__ import annotations

import asyncio
import time

import msgspec
import pytest
from cluster_tools import WALL, Clock, a_gpu, a_snapshot

from gpumon.agent.latest import NOT_YET, Latest
from gpumon.cluster.fleet import Fleet
from gpumon.cluster.sources.build import make_source, open_sources
from gpumon.cluster.sources.self_host import SelfSource
from gpumon.cluster.sources.simulated import SimulatedSource
from gpumon.cluster.sources.xmlrpc import XmlRpcSource
from gpumon.config import Config, HostEntry
from gpumon.errors import SourceError
from gpumon.model import encode
from gpumon.simulate import SimulatedHost
from gpumon.summary import summarize

SNAPSHOT = a_snapshot(a_gpu(), sample_age_seconds=None)


class Supervisor:
    """What a source sees of the real one: the newest sample."""

    def __init__(self) -> None:
        self.now = Latest(revision="s-0", interval=5.0)

    def latest(self) -> Latest:
        return self.now

    def sample(self, revision: str, taken_at: float) -> None:
        self.now = Latest(
            revision=revision,
            interval=5.0,
            snapshot=encode(SNAPSHOT),
            summary=encode(summarize(SNAPSHOT)),
            taken_at=taken_at,
            sampler_error=None,
        )


def polled(source):
    return asyncio.run(source.poll())


def test_this_machine_is_read_from_the_newest_sample():
    clock, supervisor = Clock(), Supervisor()
    supervisor.sample("s-1", taken_at=clock.seconds - 2.0)
    reading = polled(SelfSource(supervisor, clock.monotonic))
    assert reading.summary.sample_age_seconds == 2.0
    assert reading.detail().gpus == SNAPSHOT.gpus


def test_the_first_poll_waits_for_a_first_sample_that_is_under_way():
    supervisor = Supervisor()
    source = SelfSource(supervisor, patience=10.0)

    async def sampled_meanwhile():
        poll = asyncio.create_task(source.poll())
        await asyncio.sleep(0)
        assert not poll.done()
        supervisor.sample("s-1", taken_at=time.monotonic())
        return await poll

    assert asyncio.run(sampled_meanwhile()).detail().gpus == SNAPSHOT.gpus


def test_the_first_poll_does_not_wait_longer_than_it_may():
    reading = polled(SelfSource(Supervisor(), patience=0.1))
    assert reading.summary.sample_age_seconds is None
    assert reading.summary.sampler_error == NOT_YET


def test_the_same_sample_is_not_packed_again_but_grows_old():
    clock, supervisor = Clock(), Supervisor()
    supervisor.sample("s-1", taken_at=clock.seconds)
    source = SelfSource(supervisor, clock.monotonic)
    first = polled(source)
    clock.move(3)
    supervisor.now = msgspec.structs.replace(supervisor.now, sampler_error="hangs")
    second = polled(source)
    assert second.packed is first.packed
    assert (second.summary.sample_age_seconds, second.summary.sampler_error) == (3.0, "hangs")
    supervisor.sample("s-2", taken_at=clock.seconds)
    assert polled(source).summary.sampler_error is None


def test_before_the_first_sample_this_machine_says_why_it_knows_nothing():
    reading = polled(SelfSource(Supervisor()))
    assert reading.summary.sample_age_seconds is None
    assert reading.summary.gpu_count is None
    assert reading.summary.sampler_error == "no sample has been taken yet"


def simulated(alive: bool) -> SimulatedHost:
    hosts = (SimulatedHost(f"gpu-{number}", number) for number in range(100))
    return next(host for host in hosts if host.answers is alive)


def test_an_invented_host_is_marked_as_one():
    reading = polled(SimulatedSource(simulated(alive=True), wall=lambda: WALL))
    assert reading.summary.simulated is True
    assert reading.detail().simulated is True


def test_an_invented_dead_host_does_not_answer():
    with pytest.raises(SourceError, match="simulated") as error:
        polled(SimulatedSource(simulated(alive=False)))
    assert error.value.kind in SourceError.KINDS


def test_each_entry_gets_its_source():
    entries = [
        HostEntry(name="here", source="self", address="self"),
        HostEntry(name="there", source="xmlrpc", address="h:1", host="h", port=1),
        HostEntry(name="nowhere", source="simulated", address="simulated"),
    ]

    async def run() -> None:
        async with open_sources(Config(hosts=entries), supervisor=Supervisor()) as sources:
            kinds = {name: type(source) for name, source in sources.items()}
            assert kinds == {
                "here": SelfSource,
                "there": XmlRpcSource,
                "nowhere": SimulatedSource,
            }
            with pytest.raises(ValueError, match="supervisor"):
                make_source(entries[0], 0, connections=None)

    asyncio.run(run())


def test_invented_hosts_tell_since_when_as_an_agent_there_would():
    """It has watched since the host came up: jobs take their GPUs when they begin."""
    at = 1_764_000_000.0
    entries = [
        HostEntry(name=f"s-{number}", host=f"s-{number}", port=1, address="", source="simulated")
        for number in range(7)
    ]
    fleet = Fleet(Config(hosts=entries), monotonic=lambda: 1000.0, wall=lambda: at)
    for number, entry in enumerate(entries):
        host = SimulatedHost(entry.name, number)
        if host.answers:
            fleet.answered(entry.name, polled(SimulatedSource(host, lambda: at)), asked=999.0)
    states = set()
    for host in fleet.status().hosts:
        for gpu in host.gpus:
            for part in [gpu, *gpu.mig]:
                if host.state == "fresh" and part.state in ("busy", "idle", "free"):
                    states.add(part.state)
                    assert part.since is not None
                    assert not part.since_at_most
                for holder in part.holders:
                    assert holder.on_gpu_since == holder.started_at
                    if part.state == "idle":
                        assert part.since >= holder.on_gpu_since - 0.01
    assert states == {"busy", "idle", "free"}
