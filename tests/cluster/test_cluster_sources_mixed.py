"""A cluster of every kind of host on one page: the same shape for all, each failing for itself."""

from __future__ import annotations

import asyncio
import json
import os
import time
from collections.abc import Awaitable, Callable
from contextlib import ExitStack
from pathlib import Path
from typing import Any

import msgspec
import pytest
from cluster_tools import a_gpu, a_snapshot, until
from fake_nvml.scenario import Scenario, environment, h100
from other_tools import (
    gpumonitor_agent,
    gpumonitor_gpu,
    gpumonitor_stats,
    nvgpu_agent,
    nvgpu_gpu,
)
from ssh_host import SSHD, USER, SshHost, a_process_row, a_row
from web_client import BROWSER, get

from gpumon.agent.app import make_app as agent_app
from gpumon.agent.latest import Latest
from gpumon.agent.supervisor import Supervisor
from gpumon.cluster.fleet import Fleet
from gpumon.cluster.poller import poll_forever
from gpumon.config import Config, HostEntry
from gpumon.config.loader import load
from gpumon.http.server import Site, open_sockets, serve
from gpumon.model import encode
from gpumon.summary import summarize
from gpumon.web.app import make_app

pytestmark = [
    pytest.mark.system,
    pytest.mark.skipif(SSHD is None, reason="there is no sshd on this machine"),
]

MEMORY = {"total": 34_089_730_048, "used": 11_534_336, "free": 34_078_195_712}
NVGPU = json.dumps({"hostname": "gpu-old", "gpus": [nvgpu_gpu(memory=MEMORY)]}).encode()
KINDS = ("invented", "ours", "gpumonitor", "ssh", "nvgpu", "self")
OWN = a_snapshot(a_gpu(7), sample_age_seconds=None)


class Cluster:
    """Hosts of all kinds; what each answers can be changed while they are polled."""

    def __init__(self, folder: Path, stack: ExitStack) -> None:
        self.stats: Callable[[], Any] = lambda: gpumonitor_stats(gpumonitor_gpu())
        self.report = (200, NVGPU)
        self.ssh = stack.enter_context(SshHost(folder))
        self.ssh.says([a_row(uuid="GPU-ssh")], [a_process_row(os.getpid(), gpu_uuid="GPU-ssh")])
        gpumonitor = stack.enter_context(gpumonitor_agent(lambda: self.stats()))
        nvgpu = stack.enter_context(nvgpu_agent(lambda: self.report))
        latest = Latest(
            revision="x-1",
            interval=5.0,
            snapshot=encode(OWN),
            summary=encode(summarize(OWN)),
            taken_at=time.monotonic(),
            sampler_error=None,
        )
        self.agent = Site(name="agent", app=agent_app(lambda: latest, None), binds=["127.0.0.1:0"])
        ours = int(open_sockets(self.agent)[0].rpartition(":")[2])
        path = folder / "config.yml"
        path.write_text(
            f"""
rpc_timeout: 5
poll_interval: 0.5
ssh: {{user: {USER}, key_file: client, known_hosts: known_hosts}}
hosts:
  - {{name: ours, address: "127.0.0.1:{ours}"}}
  - {{name: gpumonitor, address: "127.0.0.1:{gpumonitor}"}}
  - {{name: ssh, address: "ssh://127.0.0.1:{self.ssh.port}"}}
  - {{name: nvgpu, address: "nvgpu+http://127.0.0.1:{nvgpu}"}}
  - self
"""
        )
        config = load(str(path), environ={})
        invented = HostEntry(name="invented", source="simulated", address="invented")
        self.config: Config = msgspec.structs.replace(config, hosts=[invented, *config.hosts])
        self.fleet = Fleet(self.config)

    def page(self) -> Any:
        return make_app(status=self.fleet.status, detail=self.fleet.detail, config=self.config)

    def hosts(self) -> dict[str, Any]:
        """The hosts of /status.json by name."""
        status = json.loads(get(self.page(), "/status.json").text)
        return {host["name"]: host for host in status["hosts"]}

    def run(self, work: Callable[[], Awaitable[None]]) -> None:
        """Poll everybody while `work` is done."""

        async def main() -> None:
            shutdown = asyncio.Event()
            supervisor = Supervisor(interval=0.5)
            others = [
                asyncio.create_task(serve([self.agent], shutdown)),
                asyncio.create_task(supervisor.run()),
                asyncio.create_task(poll_forever(self.fleet, self.config, supervisor=supervisor)),
            ]
            try:
                await asyncio.wait_for(work(), 60)
            finally:
                shutdown.set()
                for task in others[1:]:
                    task.cancel()
                await asyncio.wait(others, timeout=20)
            assert all(task.done() for task in others)

        asyncio.run(main())


@pytest.fixture
def cluster(tmp_path: Path, monkeypatch: pytest.MonkeyPatch):
    scenario = tmp_path / "scenario"
    Scenario(gpus=[h100(0), h100(1)]).write(scenario)
    for name, value in environment(scenario).items():
        monkeypatch.setenv(name, value)
    with ExitStack() as stack:
        yield Cluster(tmp_path, stack)


def states(hosts: dict[str, Any]) -> dict[str, str]:
    return {name: host["state"] for name, host in hosts.items()}


def test_every_kind_of_host_is_on_one_page_with_the_same_shape(cluster):
    async def work() -> None:
        await until(lambda: set(states(cluster.hosts()).values()) == {"fresh"}, 30)
        hosts = cluster.hosts()
        assert tuple(hosts) == KINDS
        assert len({tuple(host) for host in hosts.values()}) == 1
        gpus = [gpu for host in hosts.values() for gpu in host["gpus"]]
        assert len({tuple(gpu) for gpu in gpus}) == 1
        assert len(gpus) >= 7
        assert all(host["errors"] == [] for host in hosts.values())
        assert hosts["invented"]["simulated"]
        counted = {name: host["gpu_count"] for name, host in hosts.items()}
        assert {**counted, "invented": 0} == {
            "ours": 1, "gpumonitor": 1, "ssh": 1, "nvgpu": 1, "self": 2, "invented": 0
        }  # fmt: skip
        assert [hosts[name]["gpus"][0]["state"] for name in KINDS[1:]] == [
            "free", "free", "busy", "free", "free"
        ]  # fmt: skip
        assert hosts["ssh"]["gpus"][0]["holders"][0]["user"] == USER

        front = get(cluster.page(), "/", Accept=BROWSER)
        assert front.code == 200
        for name in KINDS:
            assert f">{name}<" in front.text
            detail = get(cluster.page(), f"/host/{name}", Accept=BROWSER)
            assert detail.code == 200
        assert (
            "not told by an agent of gpumonitor"
            in get(cluster.page(), "/host/gpumonitor", Accept=BROWSER).text
        )

    cluster.run(work)


def test_each_kind_that_breaks_costs_its_own_row_only(cluster):
    def broken() -> str:
        raise ValueError("process no longer exists (pid=1)")

    async def work() -> None:
        await until(lambda: set(states(cluster.hosts()).values()) == {"fresh"}, 30)
        cluster.stats = broken
        cluster.report = (500, b"Internal Server Error")
        cluster.ssh.authorize("other")
        for pid in cluster.ssh.sessions():
            os.kill(pid, 9)
        failing = ("gpumonitor", "ssh", "nvgpu")
        await until(lambda: all(states(cluster.hosts())[name] != "fresh" for name in failing), 30)
        hosts = cluster.hosts()
        assert {name: hosts[name]["state"] for name in ("ours", "self", "invented")} == {
            "ours": "fresh", "self": "fresh", "invented": "fresh"
        }  # fmt: skip
        assert {name: hosts[name]["reason_kind"] for name in failing} == {
            "gpumonitor": "failed", "ssh": "login refused", "nvgpu": "bad answer"
        }  # fmt: skip
        for name in failing:
            assert hosts[name]["gpus"][0]["state"] == "unknown", "old values are not passed for now"
            assert len(hosts[name]["reason"]) > 40

        cluster.stats = lambda: gpumonitor_stats(gpumonitor_gpu())
        cluster.report = (200, NVGPU)
        cluster.ssh.authorize("client")
        await until(lambda: set(states(cluster.hosts()).values()) == {"fresh"}, 40)

    cluster.run(work)
