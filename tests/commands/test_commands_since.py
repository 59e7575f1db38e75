"""Since when, as a server tells that was started late: real agent, real process, fake driver."""

from __future__ import annotations

import asyncio
import json
import os
import time
from collections.abc import Callable
from pathlib import Path
from typing import Any

import psutil
import pytest
from cluster.cluster_tools import a_config, an_entry
from commands.running import Command, get, wait_until
from fake_nvml.scenario import Scenario, environment, h100

from gpumon.cluster.fleet import Fleet
from gpumon.cluster.sources.connections import Connections
from gpumon.cluster.sources.resolver import Resolver
from gpumon.cluster.sources.xmlrpc import XmlRpcSource
from gpumon.cluster.status import GpuStatus
from gpumon.config import Limits
from gpumon.web.waste import wasted

pytestmark = pytest.mark.system

IDLE_SECONDS = 3.0
ABOUT = 1.5
"""Seconds: a sample each half, and the way."""


class Server:
    """A server that begins to watch now; idle is what is unused for IDLE_SECONDS."""

    def __init__(self, port: int) -> None:
        self._config = a_config(
            an_entry("one", port, host="127.0.0.1"), limits=Limits(idle_minutes=IDLE_SECONDS / 60)
        )
        self.fleet = Fleet(self._config)

    def poll(self) -> list[GpuStatus]:
        asyncio.run(asyncio.wait_for(self._poll(), 10))
        return self.fleet.status().hosts[0].gpus

    async def _poll(self) -> None:
        connections = Connections(self._config, Resolver())
        try:
            asked = self.fleet.now().monotonic
            source = XmlRpcSource(self._config.hosts[0], connections)
            self.fleet.answered("one", await source.poll(), asked=asked)
        finally:
            await connections.close()


class Host:
    """An agent that has watched two empty GPUs for longer than IDLE_SECONDS."""

    def __init__(self, gpumon: Command, folder: Path, port: int) -> None:
        self.port = port
        self._path = folder / "scenario"
        self.scenario = Scenario(gpus=[h100(0), h100(1)])
        for gpu in self.scenario.gpus:
            gpu["utilization.gpu"] = 0
        gpumon.env |= environment(self.scenario.write(self._path))
        (folder / "config.yml").write_text(f"rpc_port: {port}\nagent: {{sample_interval: 0.5}}\n")
        gpumon.start("agent")
        wait_until(lambda: self._free_for() > IDLE_SECONDS + 1, "it is free for long")

    def write(self) -> float:
        """Put the scenario in force; return when."""
        self.scenario.write(self._path)
        return time.time()

    def gpus(self) -> Any:
        return json.loads(get(f"http://127.0.0.1:{self.port}/snapshot.json"))["gpus"]

    def _free_for(self) -> float:
        try:
            gpus = self.gpus()
        except OSError:
            return 0.0
        since = gpus[0]["free_since"] if gpus else None
        return 0.0 if since is None else time.time() - since


@pytest.fixture
def host(gpumon: Command, tmp_path: Path, free_port: Callable[[], int]) -> Host:
    return Host(gpumon, tmp_path, free_port())


def test_a_late_server_accuses_nobody_who_has_just_come(
    host: Host, gpumon: Command, tmp_path: Path, free_port: Callable[[], int]
) -> None:
    """The process is older than the watch, and the GPU was unused before it came."""
    host.scenario.process(0, pid=os.getpid(), memory_mib=4096)
    host.scenario.lose(1)
    at = host.write()
    assert psutil.Process().create_time() < at - IDLE_SECONDS
    wait_until(lambda: bool(host.gpus()[0]["processes"]), "the process is seen")

    server = Server(host.port)
    held, lost = server.poll()
    seen_after = time.time() - at
    assert held.state == "busy", f"{seen_after:.1f} s after the process came"
    assert held.since == pytest.approx(at, abs=ABOUT)
    assert (held.since_at_least, held.since_at_most) == (False, False)
    assert held.holders[0].on_gpu_since == pytest.approx(at, abs=ABOUT)
    [user] = server.fleet.status().users
    assert (user.since, user.since_at_most) == (held.since, False)
    assert [row.kind for row in wasted(server.fleet.status())] == ["fault"]
    assert (lost.state, lost.since_at_least) == ("fault", False)
    assert lost.since == pytest.approx(at, abs=ABOUT)

    wait_until(lambda: Server(host.port).poll()[0].state == "idle", "another server calls it idle")
    idle, lost_still = Server(host.port).poll()
    assert idle.since == pytest.approx(at, abs=ABOUT)
    assert idle.since >= at - 0.1  # never before the process was there
    assert lost_still.since == pytest.approx(lost.since, abs=0.5)

    port = free_port()
    (tmp_path / "config.yml").write_text(f"web_port: {port}\nhosts: [127.0.0.1:{host.port}]\n")
    gpumon.start("web")
    address = f"http://127.0.0.1:{port}/status.json"
    wait_until(lambda: bool(json.loads(get(address))["hosts"][0]["gpus"]), "the host is read")
    shown = json.loads(get(address))["hosts"][0]["gpus"]
    assert shown[0]["state"] == "busy"
    assert shown[0]["since"] == pytest.approx(at, abs=ABOUT)


def test_who_was_there_when_the_agent_began_is_told_with_its_start_as_the_earliest(
    gpumon: Command, tmp_path: Path, free_port: Callable[[], int]
) -> None:
    scenario = Scenario(gpus=[h100(0)])
    scenario.process(0, pid=os.getpid(), memory_mib=4096)
    gpumon.env |= environment(scenario.write(tmp_path / "scenario"))
    port = free_port()
    (tmp_path / "config.yml").write_text(f"rpc_port: {port}\nagent: {{sample_interval: 0.5}}\n")
    gpumon.start("agent")
    wait_until(lambda: _answers(port), "it answers")
    [held] = Server(port).poll()
    assert (held.since_at_most, held.since_at_least) == (True, False)
    assert held.since == pytest.approx(psutil.Process().create_time(), abs=2.0)
    assert held.holders[0].on_gpu_since is None


def _answers(port: int) -> bool:
    try:
        return bool(json.loads(get(f"http://127.0.0.1:{port}/snapshot.json"))["gpus"])
    except OSError:
        return False
