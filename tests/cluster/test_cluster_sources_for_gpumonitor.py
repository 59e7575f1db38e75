"""An unchanged web server of gpumonitor asks our agent: a stock client, its path, its types."""

from __future__ import annotations

import asyncio
import json
import time
import xmlrpc.client
from typing import Any

import pytest
from cluster_tools import a_gpu, a_process, a_snapshot

from gpumon.agent.app import make_app
from gpumon.agent.latest import Latest
from gpumon.http.server import Site, open_sockets, serve
from gpumon.model import Gpu, encode
from gpumon.summary import summarize

SNAPSHOT = a_snapshot(
    a_gpu(
        0,
        utilization_percent=97,
        memory_used_mib=30_500,
        memory_free_mib=50_559,
        temperature_celsius=71,
        processes=[
            a_process(program="python train.py", runtime_seconds=93784.2),
            a_process(78, None, gpu_memory_used_mib=None),
        ],
    ),
    a_gpu(1),
    Gpu(index=2, error="GPU is lost", lost=True),
    sample_age_seconds=None,
)


def asked(path: str) -> dict[str, Any]:
    """What a stock client gets that calls gpu_stats() at `path` of our real agent."""
    latest = Latest(
        revision="x-1",
        interval=5.0,
        snapshot=encode(SNAPSHOT),
        summary=encode(summarize(SNAPSHOT)),
        taken_at=time.monotonic(),
        sampler_error=None,
    )

    def call(port: int) -> object:
        with xmlrpc.client.ServerProxy(f"http://127.0.0.1:{port}{path}") as proxy:
            return proxy.gpu_stats()

    async def work() -> object:
        site = Site(name="agent", app=make_app(lambda: latest, None), binds=["127.0.0.1:0"])
        port = int(open_sockets(site)[0].rpartition(":")[2])
        shutdown = asyncio.Event()
        server = asyncio.create_task(serve([site], shutdown))
        try:
            return await asyncio.wait_for(asyncio.to_thread(call, port), 10)
        finally:
            shutdown.set()
            await asyncio.wait_for(server, 10)

    answer = asyncio.run(work())
    assert isinstance(answer, str), "one text that holds JSON"
    found: dict[str, Any] = json.loads(answer)
    return found


@pytest.mark.parametrize("path", ["", "/", "/RPC2"])
def test_it_is_answered_on_the_paths_that_its_client_posts_to(path):
    assert len(asked(path)["gpus"]) == 3


def test_every_value_has_the_type_and_unit_that_it_reads():
    told = asked("")
    assert len(told["procs"]) == len(told["gpus"]) == 3
    for gpu in told["gpus"]:
        assert {key: type(gpu[key]) for key in ("memory_total", "memory_used", "memory_free")} == {
            "memory_total": float,
            "memory_used": float,
            "memory_free": float,
        }
        assert gpu["memory_total"] > 0
        assert type(gpu["utilization"]) is int
        assert type(gpu["model"]) is str
        assert gpu["temperature"] == "N/A" or type(gpu["temperature"]) is int
    for row in [row for rows in told["procs"] for row in rows]:
        assert {key: type(row[key]) for key in row if key not in ("kinds", "unknown")} == {
            "pid": int,
            "process_name": str,
            "used_memory": int,
            "unit": str,
            "userid": str,
            "time": str,
            "started_at": type(row["started_at"]),
        }


def test_it_sees_what_the_agent_sampled():
    told = asked("/")
    first, second, lost = told["gpus"]
    assert (first["memory_total"], first["memory_used"], first["memory_free"]) == (
        81559.0,
        30500.0,
        50559.0,
    )
    assert (first["utilization"], first["temperature"]) == (97, 71)
    assert (second["utilization"], told["procs"][1]) == (0, [])
    row, unseen = told["procs"][0]
    assert (row["pid"], row["userid"], row["used_memory"]) == (77, "bob", 30000)
    assert (row["process_name"], row["unit"], row["time"]) == (
        "python train.py",
        "MiB",
        "1 day, 2:03:04",
    )
    assert (unseen["userid"], unseen["used_memory"]) == ("?", 0)
    assert lost["memory_used"] == lost["memory_total"], "a lost GPU never looks free"
