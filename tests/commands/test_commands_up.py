"""`gpumon up`, `agent` and `web` with the real ABI of the driver and real processes of users."""

from __future__ import annotations

import json
import os
import subprocess
import time
import xmlrpc.client
from collections.abc import Callable, Iterator
from pathlib import Path
from typing import Any

import pytest
from commands.running import Command, get, wait_until
from fake_nvml.scenario import Scenario, environment, h100

pytestmark = pytest.mark.system

needs_root = pytest.mark.skipif(os.geteuid() != 0, reason="starts processes of other users")


@pytest.fixture
def jobs() -> Iterator[list[tuple[str, int]]]:
    """Real processes of two users: (owner, pid)."""
    owners = ["nobody", "daemon"]
    started = [subprocess.Popen(["sleep", "120"], cwd="/", user=owner) for owner in owners]
    yield [(owner, job.pid) for owner, job in zip(owners, started, strict=True)]
    for job in started:
        job.kill()
        job.wait()


def _status(base: str) -> dict[str, Any]:
    found: dict[str, Any] = json.loads(get(base + "/status.json"))
    return found


def _is_fresh(base: str) -> bool:
    return _status(base)["hosts"][0]["state"] == "fresh"


@needs_root
def test_up_shows_the_gpus_with_the_owners_of_real_processes(
    gpumon: Command,
    tmp_path: Path,
    free_port: Callable[[], int],
    jobs: list[tuple[str, int]],
) -> None:
    scenario = Scenario(gpus=[h100(0), h100(1), h100(2)])
    for gpu, (_, pid) in enumerate(jobs):
        scenario.process(gpu, pid=pid, memory_mib=4096, sm=50)
        scenario.gpus[gpu]["utilization.gpu"] = 50
    gpumon.env |= environment(scenario.write(tmp_path / "scenario"))
    web, rpc = free_port(), free_port()
    base = f"http://127.0.0.1:{web}"
    gpumon.start("up", "--web-port", str(web), "--rpc-port", str(rpc))
    wait_until(lambda: _is_fresh(base), "this host is fresh")

    gpus = _status(base)["hosts"][0]["gpus"]
    assert [gpu["state"] for gpu in gpus] == ["busy", "busy", "free"]
    assert [[holder["user"] for holder in gpu["holders"]] for gpu in gpus] == [
        [jobs[0][0]],
        [jobs[1][0]],
        [],
    ]
    page = get(base + "/", accept="text/html")
    assert all(owner in page for owner, _ in jobs)
    assert "SIMULATED" not in page

    with xmlrpc.client.ServerProxy(f"http://127.0.0.1:{rpc}") as agent:
        legacy = json.loads(str(agent.gpu_stats()))
        snapshot: Any = agent.snapshot()
    assert [row[0]["userid"] if row else None for row in legacy["procs"]] == [
        jobs[0][0],
        jobs[1][0],
        None,
    ]
    process = snapshot["gpus"][0]["processes"][0]
    assert (process["user"], process["pid"]) == jobs[0]
    assert 0 <= process["runtime_seconds"] < 60


def test_an_agent_with_a_token_is_polled_by_a_server_with_the_same(
    gpumon: Command, tmp_path: Path, free_port: Callable[[], int]
) -> None:
    gpumon.env |= environment(Scenario(gpus=[h100(0)]).write(tmp_path / "scenario"))
    web, rpc = free_port(), free_port()
    base = f"http://127.0.0.1:{web}"
    (tmp_path / "token").write_text("a-token-of-this-test\n")
    (tmp_path / "token").chmod(0o600)
    (tmp_path / "config.yml").write_text(
        f"web_port: {web}\nrpc_port: {rpc}\npoll_interval: 1\ntoken_file: token\n"
        "hosts: [127.0.0.1]\nagent: {bind: 127.0.0.1, sample_interval: 1}\n"
    )
    agent = gpumon.start("agent")
    gpumon.start("web")
    wait_until(lambda: _is_fresh(base), "the agent's host is fresh")

    with (
        xmlrpc.client.ServerProxy(f"http://127.0.0.1:{rpc}") as anonymous,
        pytest.raises(xmlrpc.client.ProtocolError, match="401"),
    ):
        anonymous.snapshot()
    url = f"http://gpumon:a-token-of-this-test@127.0.0.1:{rpc}"
    with xmlrpc.client.ServerProxy(url) as named:
        snapshot: Any = named.snapshot()
    assert snapshot["gpus"][0]["name"] == "NVIDIA H100 80GB HBM3"

    # Two polls after the agent is gone its GPU is unknown, not free, and keeps its last values.
    code, said = gpumon.stop(agent)
    assert code == 0
    assert "a-token-of-this-test" not in said
    wait_until(lambda: not _is_fresh(base), "the host is no longer fresh")
    host = _status(base)["hosts"][0]
    assert host["gpus"][0]["state"] == "unknown"
    assert host["reason_kind"] == "refused"
    assert _status(base)["totals"]["gpus"]["free"] == 0


def test_a_hanging_driver_leaves_the_agent_answering_with_its_age(
    gpumon: Command, tmp_path: Path, free_port: Callable[[], int]
) -> None:
    """The pace of one GPU's fault, recovery included, is the supervisor's test; here: the faces."""
    scenario = Scenario(gpus=[h100(0), h100(1)])
    path = scenario.write(tmp_path / "scenario")
    gpumon.env |= environment(path)
    rpc = free_port()
    (tmp_path / "config.yml").write_text(f"rpc_port: {rpc}\nagent: {{sample_interval: 0.5}}\n")
    gpumon.start("agent")
    with xmlrpc.client.ServerProxy(f"http://127.0.0.1:{rpc}") as agent:
        _hang_and_heal(agent, scenario, path)


def _hang_and_heal(agent: Any, scenario: Scenario, path: Path) -> None:
    wait_until(lambda: agent.snapshot()["gpu_count"] == 2, "the first sample is there")

    scenario.hang("nvmlDeviceGetCount")
    scenario.hang("nvmlDeviceGetUtilizationRates")
    scenario.write(path)
    wait_until(lambda: agent.health()["sample_age_seconds"] > 2, "the age grows")
    slowest = 0.0
    for _ in range(20):
        began = time.perf_counter()
        agent.snapshot_json()
        slowest = max(slowest, time.perf_counter() - began)
    assert slowest < 1, "an answer waited for the driver"
    assert agent.snapshot()["gpus"][0]["name"] == "NVIDIA H100 80GB HBM3"

    scenario.heal()
    scenario.write(path)
    wait_until(lambda: agent.health()["sample_age_seconds"] < 1.5, "it has recovered")


def test_make_run_shows_the_demo_where_no_driver_answers_and_says_so(
    gpumon: Command, free_port: Callable[[], int]
) -> None:
    port = free_port()
    base = f"http://127.0.0.1:{port}"
    process = gpumon.start("up", "--or-demo", "--web-port", str(port))
    wait_until(lambda: "SIMULATED" in get(base + "/"), "the demo is shown")
    code, said = gpumon.stop(process)
    assert code == 0
    assert "demo" in said
    assert "driver" in said


def test_make_run_shows_real_gpus_where_a_driver_answers(
    gpumon: Command, tmp_path: Path, free_port: Callable[[], int]
) -> None:
    gpumon.env |= environment(Scenario(gpus=[h100(0)]).write(tmp_path / "scenario"))
    web, rpc = free_port(), free_port()
    base = f"http://127.0.0.1:{web}"
    gpumon.start("up", "--or-demo", "--web-port", str(web), "--rpc-port", str(rpc))
    wait_until(lambda: _is_fresh(base), "this host is fresh")
    assert _status(base)["simulated"] is False
