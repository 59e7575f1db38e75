"""Agents of nvgpu, asked over HTTP."""

from __future__ import annotations

import asyncio
import json
from pathlib import Path
from typing import Any

import pytest
from cluster_tools import a_config, http, listening
from other_tools import nvgpu_agent, nvgpu_gpu

from gpumon.cluster.sources.base import Reading
from gpumon.cluster.sources.connections import Connections
from gpumon.cluster.sources.nvgpu import NvgpuSource
from gpumon.config import HostEntry, Limits
from gpumon.errors import SourceError
from gpumon.states import is_free

MEMORY = {"total": 34_089_730_048, "used": 11_534_336, "free": 34_078_195_712}


def an_entry(port: int) -> HostEntry:
    return HostEntry(
        name="old",
        source="nvgpu",
        address=f"nvgpu+http://127.0.0.1:{port}",
        host="127.0.0.1",
        port=port,
    )


async def ask(port: int, seconds: float = 5.0, token_file: Path | None = None) -> Reading:
    connections = Connections(a_config(an_entry(port), token_file=token_file))
    source = NvgpuSource(an_entry(port), connections)
    try:
        return await asyncio.wait_for(source.poll(), seconds)
    except asyncio.TimeoutError:
        raise source.timed_out(seconds) from None
    finally:
        await connections.close()


def reading_of(*gpus: Any) -> Reading:
    body = json.dumps({"hostname": "gpu-07", "gpus": gpus}).encode()
    with nvgpu_agent(lambda: (200, body)) as port:
        return asyncio.run(ask(port))


def failure_of(status: int, body: bytes) -> SourceError:
    with nvgpu_agent(lambda: (status, body)) as port, pytest.raises(SourceError) as caught:
        asyncio.run(ask(port))
    assert "\n" not in str(caught.value)
    assert f"nvgpu+http://127.0.0.1:{port}" in str(caught.value)
    return caught.value


def test_what_such_an_agent_tells_is_shown():
    busy = nvgpu_gpu(
        is_available=False, pids="17,4711", users="alice,?", utilization=88, memory=MEMORY
    )
    snapshot = reading_of(nvgpu_gpu(memory=MEMORY), busy).detail()
    empty, held = snapshot.gpus
    assert (snapshot.hostname, snapshot.gpu_count, snapshot.sample_age_seconds) == ("gpu-07", 2, 0)
    assert (empty.index, empty.name) == (0, "Tesla V100-SXM2-32GB")
    assert (empty.memory_total_mib, empty.memory_used_mib, empty.memory_free_mib) == (
        32510,
        11,
        32499,
    )
    assert (empty.utilization_percent, empty.temperature_celsius, empty.sm_clock_mhz) == (
        0,
        40,
        135,
    )
    assert empty.processes == []
    assert [(row.pid, row.user) for row in held.processes] == [(17, "alice"), (4711, None)]
    assert held.processes[0].gpu_memory_used_mib is None


def test_what_it_does_not_tell_is_unknown_with_its_reason():
    [gpu] = reading_of(nvgpu_gpu()).detail().gpus
    for field in ("memory_used_mib", "uuid", "power_draw_watts"):
        assert getattr(gpu, field) is None
        assert gpu.unknown[field] == "not told by an agent of nvgpu"


def test_without_memory_nothing_is_called_free():
    one, other = reading_of(nvgpu_gpu(), nvgpu_gpu(memory=MEMORY)).summary.gpus
    assert is_free(one, Limits()) is None
    assert is_free(other, Limits()) is True


@pytest.mark.parametrize(
    "fields",
    [
        {"pids": "17", "is_available": True},
        {"pids": "", "is_available": False},
        {"pids": "17,x", "is_available": False},
        {"pids": "0", "is_available": False},
        {"pids": "9" * 30, "is_available": False},
        {"pids": None},
        {"is_available": None},
    ],
)
def test_pids_that_make_no_sense_are_unknown_and_not_none(fields):
    [gpu] = reading_of(nvgpu_gpu(memory=MEMORY, **fields)).detail().gpus
    assert gpu.processes is None
    assert gpu.unknown["processes"]


def test_owners_that_can_not_be_matched_with_pids_are_unknown():
    row = nvgpu_gpu(is_available=False, pids="17,18", users="alice,?,bob")
    [gpu] = reading_of(row).detail().gpus
    assert [(row.pid, row.user) for row in gpu.processes] == [(17, None), (18, None)]


def test_a_gpu_without_utilization_may_be_in_mig_mode():
    [gpu] = reading_of(nvgpu_gpu(utilization=None, memory=MEMORY)).summary.gpus
    assert is_free(gpu, Limits()) is None


def test_an_entry_that_can_not_be_read_does_not_hide_the_others():
    odd, sound = reading_of("nothing", nvgpu_gpu(type="V\x1b100")).detail().gpus
    assert odd.error == "its entry could not be read"
    assert sound.name == "V\ufffd100"


@pytest.mark.parametrize(
    ("status", "body", "words"),
    [
        (500, b"Internal Server Error", "from v0.10 on"),
        (404, b"", "HTTP status 404"),
        (302, b"", "a redirect"),
        (200, b"<!doctype html><html>", "an HTML page"),
        (200, b"", "an empty answer"),
        (200, b"{", "JSON that can't be read"),
        (200, b"[" * 100_000, "JSON that can't be read"),
        (200, b"[]", 'without the list "gpus"'),
        (200, b'{"gpus": {}}', 'without the list "gpus"'),
        (200, json.dumps({"gpus": [{}] * 65}).encode(), "65 GPUs"),
        (200, b" " * (1024 * 1024 + 1), "more than 1 MiB"),
        (200, b" " * (17 * 1024 * 1024), "more than 8 MiB"),
    ],
)
def test_what_is_no_reading_is_named_in_one_sentence(status, body, words):
    error = failure_of(status, body)
    assert error.kind == "bad answer"
    assert words in str(error)


def test_our_token_is_not_for_such_agents(tmp_path):
    token = tmp_path / "token"
    token.write_text("s3cret\n")
    token.chmod(0o600)
    seen: list[bytes] = []

    async def behave(reader, writer):
        seen.append(await reader.readuntil(b"\r\n\r\n"))
        writer.write(http(b'{"gpus": []}'))
        await writer.drain()

    async def work():
        async with listening(behave) as port:
            return await ask(port, token_file=token)

    assert asyncio.run(work()).summary.gpu_count == 0
    assert seen[0].startswith(b"GET /gpu_status HTTP/1.1\r\n")
    assert b"s3cret" not in seen[0]
    assert b"authorization" not in seen[0].lower()


def test_an_agent_that_says_nothing_times_out_with_its_own_advice():
    async def behave(reader, writer):
        await asyncio.sleep(3600)

    async def work():
        async with listening(behave) as port:
            await ask(port, 0.3)

    with pytest.raises(SourceError) as caught:
        asyncio.run(work())
    assert caught.value.kind == "timed out"
    assert "Is nvgpu's agent running" in str(caught.value)


def test_a_port_where_nothing_listens_is_refused():
    async def work():
        async with listening(lambda *_: asyncio.sleep(0)) as port:
            pass
        await ask(port)

    with pytest.raises(SourceError) as caught:
        asyncio.run(work())
    assert caught.value.kind == "refused"
    assert "Is nvgpu's agent running" in str(caught.value)
