"""From an agent's sample over the real wire to the page: no value changes on its way."""

from __future__ import annotations

import asyncio
import json
import xmlrpc.client
from typing import Any, NamedTuple

import msgspec
import pytest
from agent_examples import latest
from cluster_tools import a_config, a_gpu, a_process, a_snapshot, an_entry
from http_serving import running
from web_client import Page, get

from gpumon.agent.app import make_app as agent_app
from gpumon.cluster.fleet import Fleet
from gpumon.cluster.sources.connections import Connections
from gpumon.cluster.sources.xmlrpc import XmlRpcSource
from gpumon.http.server import Site
from gpumon.model import Gpu, HostSnapshot, Process, decode_snapshot
from gpumon.web.app import make_app

CONTROLS = "".join(map(chr, [*range(0x20), *range(0x7F, 0xA0), 0x202E, 0xFFFE]))


class Carried(NamedTuple):
    """One sample, at every place that it comes to."""

    native: dict[str, Any]
    """`snapshot()` of the agent as Python's own client reads it."""
    text: HostSnapshot
    """`snapshot_json()`, read as well."""
    legacy: dict[str, Any]
    """`gpu_stats()`, for readers of gpumonitor's."""
    detail: HostSnapshot
    """What the server holds after a poll."""
    row: dict[str, Any]
    """The host in the server's /status.json."""
    html: str
    """The host's page."""
    plain: str
    """The same as text."""


def carried(sample: HostSnapshot) -> Carried:
    """Let a real agent have this sample and a real source poll it."""
    known = latest(sample)
    site = Site(name="agent", app=agent_app(lambda: known, None), binds=["127.0.0.1:0"])
    with running(site) as [port]:
        with xmlrpc.client.ServerProxy(f"http://127.0.0.1:{port}") as proxy:
            native, text = proxy.snapshot(), proxy.snapshot_json()
            legacy = json.loads(proxy.gpu_stats())
        config = a_config(an_entry("gpu-01", port))
        fleet = Fleet(config)

        async def poll() -> None:
            connections = Connections(config)
            try:
                reading = await XmlRpcSource(config.hosts[0], connections).poll()
            finally:
                await connections.close()
            fleet.answered("gpu-01", reading, asked=fleet.now().monotonic)

        asyncio.run(asyncio.wait_for(poll(), 10))
    detail = fleet.detail("gpu-01")
    assert detail is not None
    app = make_app(status=fleet.status, detail=fleet.detail, config=config)
    [row] = json.loads(get(app, "/status.json").body)["hosts"]
    return Carried(
        native=native,
        text=decode_snapshot(text),
        legacy=legacy,
        detail=detail,
        row=row,
        html=get(app, "/host/gpu-01").text,
        plain=get(app, "/host/gpu-01", accept="text/plain").text,
    )


@pytest.mark.parametrize("mib", [2**11, 81_920, 2**31, 2**40])
def test_numbers_beyond_32_bits_are_the_same_on_every_way(mib):
    started = 1_763_999_999.123
    holder = a_process(4_194_304, uid=2**32 - 2, gpu_memory_used_mib=mib - 1, started_at=started)
    gpu = a_gpu(
        memory_total_mib=mib,
        memory_used_mib=mib - 1,
        ecc_aggregate_corrected=2**53 - 1,
        processes=[holder],
    )
    sample = a_snapshot(gpu, sample_age_seconds=None)
    found = carried(sample)
    for read in (found.text, found.detail):
        assert (read.gpus, read.time) == (sample.gpus, sample.time)
    assert found.native["gpus"] == msgspec.to_builtins(sample.gpus)
    assert found.native["time"] == sample.time
    assert found.legacy["gpus"][0]["memory_total"] == float(mib)
    assert found.legacy["procs"][0][0]["used_memory"] == mib - 1
    [shown] = found.row["gpus"]
    assert (shown["memory_total_mib"], shown["memory_used_mib"]) == (mib, mib - 1)
    [owner] = shown["holders"]
    assert owner["pids"] == [4_194_304]
    assert (owner["gpu_memory_used_mib"], owner["started_at"]) == (mib - 1, started)


def test_a_gpu_of_which_nothing_is_known_is_nowhere_zero_or_empty_or_free():
    sample = a_snapshot(Gpu(index=0), sample_age_seconds=None)
    found = carried(sample)
    nothing = [f.name for f in msgspec.structs.fields(Gpu) if f.default is None]
    assert len(nothing) > 30
    for field in nothing:
        assert found.native["gpus"][0][field] is None
        assert getattr(found.text.gpus[0], field) is getattr(found.detail.gpus[0], field) is None
    [shown] = found.row["gpus"]
    for field in nothing:
        assert shown.get(field) is None
    assert shown["state"] == "unknown"
    [cells] = [row for row in Page(found.html).rows if len(row) == 9 and row[0] == "0"]
    assert [cell.strip() for cell in cells[3:8]] == ["-"] * 5
    [line] = [line for line in found.plain.splitlines() if line.split()[:1] == ["0"]]
    assert "0%" not in line
    # Old readers know no unknown: what misleads least, and which values are meant.
    assert set(found.legacy["gpus"][0]["unknown"]) >= {"memory_used", "utilization"}


def test_control_characters_in_every_text_break_no_answer_and_reach_no_face():
    def odd(kind: type) -> dict[str, Any]:
        texts = [f.name for f in msgspec.structs.fields(kind) if f.type in (str, str | None)]
        assert texts
        return dict.fromkeys(texts, f"<b>{CONTROLS}</b>")

    process = Process(pid=7, **odd(Process))
    gpu = a_gpu(**odd(Gpu) | {"error": None}, processes=[process])
    # The agent adds what it says of its sampler to the bytes of a sample.
    host = odd(HostSnapshot) | {"sampler_error": None, "errors": [CONTROLS]}
    found = carried(a_snapshot(gpu, **host, sample_age_seconds=None))
    assert found.native["gpus"][0]["processes"][0]["pid"] == 7
    assert found.row["gpus"][0]["holders"][0]["pids"] == [7]
    told = [*texts_in(msgspec.to_builtins(found.detail)), *texts_in(found.row)]
    assert sum("<b>" in text for text in told) > 20, "what can be shown is"
    assert [text for text in told if not text.isprintable()] == []
    for face in (found.html, found.plain):
        assert not (set(CONTROLS) - {"\n"}) & set(face)


def texts_in(value: Any) -> list[str]:
    """Return all text in decoded JSON."""
    if isinstance(value, str):
        return [value]
    inner = value.values() if isinstance(value, dict) else value if isinstance(value, list) else []
    return [text for item in inner for text in texts_in(item)]
