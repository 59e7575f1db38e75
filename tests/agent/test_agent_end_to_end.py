"""Agent, real sampler, real binding, a driver that hangs and crashes on demand (the fake NVML)."""

from __future__ import annotations

import asyncio
import os
import re
import signal
import subprocess
import sys
import threading
import time
import xmlrpc.client
from collections.abc import Iterator
from contextlib import contextmanager
from pathlib import Path
from typing import Any

import psutil
import pytest
from fake_nvml.scenario import Scenario, calls, environment, h100
from http_serving import eventually

from gpumon.agent.app import make_app
from gpumon.agent.supervisor import Supervisor
from gpumon.agent.take_one import take_one
from gpumon.http.server import Site, open_sockets, serve
from gpumon.model import HostSnapshot, decode_snapshot
from gpumon.summary import HostSummary, decode_summary

pytestmark = pytest.mark.system


class Agent:
    """A running agent on a host whose driver plays `scenario`."""

    def __init__(self, folder: Path, monkeypatch: pytest.MonkeyPatch, **options: Any) -> None:
        self._path, self._calls = folder / "scenario", folder / "calls"
        self.scenario = Scenario(gpus=[h100(index) for index in range(4)])
        self.write()
        for name, value in environment(self._path, self._calls).items():
            monkeypatch.setenv(name, value)
        quick = {"interval": 0.2, "deadline": 1.0, "retry_pauses": (1.0, 2.0)}
        self.supervisor = Supervisor(**{**quick, **options})
        self.site = Site(
            name="agent", app=make_app(self.supervisor.latest, None), binds=["127.0.0.1:0"]
        )
        [address] = open_sockets(self.site)
        self.url = f"http://{address}"
        self.proxy = xmlrpc.client.ServerProxy(self.url)

    def write(self) -> None:
        """Put the scenario in force."""
        self.scenario.write(self._path)

    def snapshot(self) -> HostSnapshot:
        return decode_snapshot(self.proxy.snapshot_json())

    def summary(self) -> HostSummary:
        return decode_summary(self.proxy.poll()[1])

    def errors(self) -> list[str | None]:
        return [gpu.error for gpu in self.snapshot().gpus]

    def calls(self) -> int:
        """Return how often the driver was asked for a power draw, by all samplers."""
        counted = calls(self._calls)
        return sum(counted["nvmlDeviceGetPowerUsage", gpu] for gpu in range(4))

    def samplers(self) -> list[psutil.Process]:
        return psutil.Process().children()

    async def run(self, stop: asyncio.Event) -> None:
        sampling = asyncio.create_task(self.supervisor.run())
        await serve([self.site], stop)
        sampling.cancel()
        await asyncio.wait({sampling})


@contextmanager
def running(agent: Agent) -> Iterator[Agent]:
    handles: list[tuple[asyncio.AbstractEventLoop, asyncio.Event]] = []

    async def main() -> None:
        stop = asyncio.Event()
        handles.append((asyncio.get_running_loop(), stop))
        await agent.run(stop)

    # The samplers die with the thread that started them, so it must live as long as they do.
    thread = threading.Thread(target=lambda: asyncio.run(main()))
    thread.start()
    try:
        assert eventually(lambda: agent.summary().sample_age_seconds is not None, 20)
        yield agent
    finally:
        loop, stop = handles[0]
        loop.call_soon_threadsafe(stop.set)
        thread.join(20)
        agent.proxy("close")()
    assert not thread.is_alive()
    assert agent.samplers() == []


@pytest.fixture
def agent(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> Iterator[Agent]:
    with running(Agent(tmp_path, monkeypatch)) as running_agent:
        yield running_agent


def answer_times(agent: Agent, count: int = 20) -> list[float]:
    took = []
    for _ in range(count):
        began = time.monotonic()
        agent.proxy.poll()
        took.append(time.monotonic() - began)
    return sorted(took)


def test_a_healthy_host_is_sampled_on_time(agent):
    snapshot = agent.snapshot()
    assert [gpu.name for gpu in snapshot.gpus] == ["NVIDIA H100 80GB HBM3"] * 4
    assert snapshot.sampler_error is None
    assert len(agent.proxy.free(8)) == 4
    assert len(agent.samplers()) == 1


def test_values_that_can_not_be_are_counted_by_field(agent):
    assert agent.proxy.health()["out_of_range"] == {}
    agent.scenario.gpus[1]["temperature"] = 510
    agent.write()
    assert eventually(
        lambda: agent.proxy.health()["out_of_range"].get("temperature_celsius", 0) >= 2
    )
    assert list(agent.proxy.health()["out_of_range"]) == ["temperature_celsius"]
    assert agent.errors() == [None] * 4


def test_since_when_a_gpu_is_broken_outlives_the_sampler(agent):
    """It has no state file: a new sampler finds the trouble, and can't say when it began.

    Of a GPU that was lost it does not even get the UUID.
    """
    agent.scenario.lose(1)
    agent.scenario.gpus[2]["ecc.volatile.uncorrected"] = 2
    agent.write()
    assert eventually(lambda: all(gpu.health for gpu in agent.snapshot().gpus[1:3]))
    _, lost, ecc, _ = agent.snapshot().gpus
    (event,) = ecc.health
    assert event.first_at is not None
    [sampler] = agent.samplers()
    sampler.kill()
    assert eventually(lambda: agent.proxy.health()["restarts"] == 1, 20)
    assert eventually(lambda: agent.snapshot().sampler_error is None, 20)
    _, still_lost, still_ecc, _ = agent.snapshot().gpus
    (again,) = still_ecc.health
    assert (again.first_at, again.last_at, again.since) == pytest.approx(
        (event.first_at, event.last_at, event.since), abs=0.5
    )
    for before, after in ((lost, still_lost), (ecc, still_ecc)):
        assert after.fault_since == pytest.approx(before.fault_since, abs=0.5)
        assert after.fault_since > after.watched_since


@pytest.mark.parametrize("how", ["hang", "crash"])
def test_a_gpu_that_hangs_or_crashes_nvml_costs_its_own_row_and_comes_back(agent, how):
    getattr(agent.scenario, how)("nvmlDeviceGetPowerUsage", gpu=1)
    agent.write()
    first = agent.summary().sample_age_seconds
    if how == "hang":
        assert eventually(lambda: agent.summary().sample_age_seconds > 0.5)
        assert agent.summary().sample_age_seconds > first
        assert answer_times(agent)[-2] < 0.05  # while the driver hangs
    assert eventually(
        lambda: [error is None for error in agent.errors()] == [True, False, True, True]
    )
    assert eventually(lambda: agent.summary().sample_age_seconds < 0.4)
    bad = agent.snapshot().gpus[1]
    assert (bad.uuid, bad.name) == (str(agent.scenario.gpus[1]["uuid"]), "NVIDIA H100 80GB HBM3")
    assert "GPU 1" in bad.error
    assert len(agent.proxy.free(8)) == 3
    # It is tried again in vain: no sample is lost by that.
    began = time.monotonic()
    while time.monotonic() - began < 2.5:
        assert agent.summary().sample_age_seconds < 1.0
        time.sleep(0.05)
    agent.scenario.heal()
    agent.write()
    assert eventually(lambda: agent.errors() == [None] * 4, 20)
    assert agent.proxy.health()["skipped"] == []


def test_a_driver_that_hangs_as_a_whole_is_told_with_the_time_and_comes_back(tmp_path, monkeypatch):
    with running(Agent(tmp_path, monkeypatch, start_deadline=3.0)) as agent:
        agent.scenario.hang("nvmlInit")
        agent.write()
        agent.samplers()[0].kill()  # its successor meets the hang
        says = re.compile(r"the driver has not answered since \d\d:\d\d:\d\d; look for NVRM .*")
        assert eventually(lambda: says.fullmatch(agent.summary().sampler_error or ""))
        assert answer_times(agent)[-2] < 0.05
        assert [gpu.uuid for gpu in agent.snapshot().gpus] == [
            str(gpu["uuid"]) for gpu in agent.scenario.gpus
        ]
        assert agent.proxy.health()["skipped"] == []
        agent.scenario.heal()
        agent.write()
        assert eventually(lambda: agent.summary().sampler_error is None, 20)


def test_a_sampler_that_somebody_kills_is_replaced(agent):
    [sampler] = agent.samplers()
    sampler.kill()
    assert eventually(lambda: agent.proxy.health()["restarts"] == 1)
    assert "signal SIGKILL" in agent.proxy.health()["last_error"]
    assert eventually(lambda: agent.summary().sample_age_seconds < 0.4)
    assert [one.pid for one in agent.samplers()] != [sampler.pid]


def test_many_callers_of_a_slow_driver_cause_no_calls_and_no_threads(tmp_path, monkeypatch):
    agent = Agent(tmp_path, monkeypatch, deadline=20.0)
    agent.scenario.slow("nvmlInit", 1000)
    agent.scenario.slow("nvmlDeviceGetPowerUsage", 400)  # of four GPUs: 1.6 s a sample
    agent.write()
    with running(agent):
        before, threads, began = agent.calls(), threading.active_count(), time.monotonic()
        most, took = 0, []

        def ask() -> None:
            with xmlrpc.client.ServerProxy(agent.url) as proxy:
                for _ in range(40):
                    asked = time.monotonic()
                    proxy.poll()
                    took.append(time.monotonic() - asked)
                    time.sleep(0.05)

        callers = [threading.Thread(target=ask) for _ in range(20)]
        for caller in callers:
            caller.start()
        while any(caller.is_alive() for caller in callers):
            most = max(most, threading.active_count() - len(callers))
            time.sleep(0.01)
        samples = (time.monotonic() - began) / 1.6 + 2
        assert samples > 3, "the driver is slow while they ask"
        assert agent.calls() - before <= 4 * samples  # one after another, whoever asks
        assert len(took) == 800
        assert sorted(took)[-20] < 0.4, "nobody waits for the driver"
        assert most <= threads + 8
        assert agent.summary().sampler_error is None


def test_one_sample_without_a_daemon_survives_a_gpu_that_hangs(tmp_path, monkeypatch):
    agent = Agent(tmp_path, monkeypatch)
    agent.scenario.hang("nvmlDeviceGetPowerUsage", gpu=2)
    agent.write()
    for listener in agent.site.sockets:
        listener.close()
    snapshot = take_one(7.0)
    assert [gpu.error is None for gpu in snapshot.gpus] == [True, True, False, True]


def test_the_sampler_takes_no_code_from_the_current_folder(tmp_path, monkeypatch):
    (tmp_path / "gpumon").mkdir()
    marker = tmp_path / "was-here"
    (tmp_path / "gpumon" / "__init__.py").write_text(f"open({str(marker)!r}, 'w')")
    monkeypatch.chdir(tmp_path)
    monkeypatch.setenv("FAKE_NVML_SCENARIO", "")
    assert take_one(20.0).agent_version is not None
    assert not marker.exists()


PARENT = """
import asyncio, sys
from gpumon.agent.app import make_app
from gpumon.agent.supervisor import Supervisor
from gpumon.http.server import Site, serve
async def main():
    supervisor = Supervisor(interval=0.1)
    site = Site(name="agent", app=make_app(supervisor.latest, None), binds=["127.0.0.1:0"])
    sampling = asyncio.create_task(supervisor.run())
    serving = asyncio.create_task(serve([site], asyncio.Event()))
    while supervisor.latest().snapshot is None:
        await asyncio.sleep(0.05)
    print("pynvml" in sys.modules, "aiohttp" in sys.modules, "psutil" in sys.modules, flush=True)
    await serving
asyncio.run(main())
"""


def test_the_parent_never_loads_the_binding_and_its_sampler_dies_with_it(tmp_path):
    scenario = Scenario(gpus=[h100(0)]).write(tmp_path / "scenario")
    command = [sys.executable, "-c", PARENT]
    with subprocess.Popen(command, stdout=subprocess.PIPE, env=environment(scenario)) as parent:
        try:
            assert parent.stdout.readline() == b"False False False\n"
            [sampler] = psutil.Process(parent.pid).children()
        finally:
            os.kill(parent.pid, signal.SIGKILL)
    assert eventually(lambda: not sampler.is_running())
