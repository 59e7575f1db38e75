"""Agents of nvgpu: GET /gpu_status -> our model.

They answer with JSON: {"hostname": ..., "gpus": [...]}. Of a GPU they tell its kind, whether a
process is on it, pids and owners as joined texts, utilization, temperature and clock. Memory is
told by those only that give it as {"total", "used", "free"} in bytes.
"""

from __future__ import annotations

import json
from typing import Any

from gpumon.cluster.sources import answer, failures
from gpumon.cluster.sources.base import Reading
from gpumon.cluster.sources.connections import Connections
from gpumon.cluster.sources.foreign import (
    MOST_MIB,
    MOST_PROCESSES,
    as_owner,
    as_pid,
    as_reading,
    explain,
    put,
)
from gpumon.cluster.sources.trust import MOST_GPUS
from gpumon.config import HostEntry
from gpumon.errors import SourceError
from gpumon.model import Gpu, HostSnapshot, Process
from gpumon.text import clean

NOT_TOLD = "not told by an agent of nvgpu"

_MIB = 1024 * 1024
_WHO = "nvgpu's agent"


class NvgpuSource:
    """One agent of nvgpu, over the HTTP session that all sources share."""

    def __init__(self, entry: HostEntry, connections: Connections) -> None:
        self._where = entry.address
        self._tls = entry.tls
        host = f"[{entry.host}]" if ":" in entry.host else entry.host
        self._url = f"{'https' if entry.tls else 'http'}://{host}:{entry.port}/gpu_status"
        self._connections = connections
        self.step = "connecting"
        self.reused = False

    async def poll(self) -> Reading:
        """Return the agent's reading. Raises SourceError."""
        try:
            status, _, body = await self._connections.get(self._url, self)
            if status != 200:
                raise _bad_status(self._where, status)
            return reading(body)
        except OSError as error:
            raise failures.way_failed(error, self._where, tls=self._tls, who=_WHO) from error
        except answer.Unexpected as error:
            raise _bad_answer(self._where, str(error)) from error

    def timed_out(self, seconds: float) -> SourceError:
        """Return what to say of a poll that was cut off."""
        return failures.timed_out(self._where, seconds, self.step, who=_WHO)

    async def close(self) -> None:
        """Give up its connection, one of those that belong to all sources together."""
        self._connections.forget(self._url)


def reading(body: bytes) -> Reading:
    """Return what the JSON of /gpu_status says. Raises answer.Unexpected."""
    if len(body) > answer.MAX_PARSED_BYTES:
        raise answer.Unexpected("a document of more than 1 MiB")
    try:
        # Python's writer puts NaN and Infinity, which are no JSON, for numbers that are none.
        told = json.loads(body, parse_constant=lambda _: None)
    except (ValueError, RecursionError) as error:
        raise answer.Unexpected(answer.looks_like(body, "JSON")) from error
    gpus = told.get("gpus") if isinstance(told, dict) else None
    if not isinstance(gpus, list):
        raise answer.Unexpected('JSON without the list "gpus"')
    if len(gpus) > MOST_GPUS:
        raise answer.Unexpected(f"{len(gpus)} GPUs on one host")
    hostname = told.get("hostname")
    snapshot = HostSnapshot(
        sample_age_seconds=0.0,
        hostname=clean(hostname, 253) if isinstance(hostname, str) else "",
        gpu_count=len(gpus),
        gpus=[_gpu(index, gpu) for index, gpu in enumerate(gpus)],
    )
    try:
        return as_reading(snapshot)
    except ValueError as error:
        raise answer.Unexpected(str(error)) from error


def _gpu(index: int, told: Any) -> Gpu:
    gpu = Gpu(index=index)
    if not isinstance(told, dict):
        gpu.error = "its entry could not be read"
        explain(gpu, gpu.error)
        return gpu
    if isinstance(told.get("type"), str):
        gpu.name = clean(told["type"]) or None
    put(gpu, "utilization_percent", told.get("utilization"), 0, 100)
    put(gpu, "temperature_celsius", told.get("temperature"), -50, 250)
    put(gpu, "sm_clock_mhz", told.get("clock_mhz"), 0, 20_000)
    memory = told.get("memory")
    if isinstance(memory, dict):
        most = MOST_MIB * _MIB
        put(gpu, "memory_total_mib", memory.get("total"), _MIB, most, _whole_mib)
        if gpu.memory_total_mib is not None:
            most = memory["total"]
        put(gpu, "memory_used_mib", memory.get("used"), 0, most, _whole_mib)
        put(gpu, "memory_free_mib", memory.get("free"), 0, most, _whole_mib)
    gpu.processes = _processes(told)
    if gpu.utilization_percent is None:
        # The driver gives none under MIG, and such an agent does not tell the two apart.
        gpu.unknown["mig"] = NOT_TOLD
    explain(gpu, NOT_TOLD)
    return gpu


def _whole_mib(value: float) -> int:
    return int(value) // _MIB


def _processes(told: dict[str, Any]) -> list[Process] | None:
    """Return the processes; None where pids and "is_available" do not agree or make no sense."""
    pids, users = told.get("pids"), told.get("users")
    if not isinstance(pids, str):
        return None
    words = [word.strip() for word in pids.split(",") if word.strip()]
    if len(words) > MOST_PROCESSES or (told.get("is_available") is True) != (not words):
        return None
    numbers = [as_pid(int(word)) if _is_number(word) else None for word in words]
    rows = [Process(pid=pid, kinds=["compute"]) for pid in numbers if pid is not None]
    if len(rows) != len(words):
        return None
    owners = users.split(",") if isinstance(users, str) else []
    # One owner a process; where there are more or fewer, nobody knows whose is whose.
    for row, owner in zip(rows, owners if len(owners) == len(rows) else (), strict=False):
        row.user = as_owner(owner)
    return rows


def _is_number(word: str) -> bool:
    return word.isascii() and word.isdigit() and len(word) <= 10


def _bad_status(where: str, status: int) -> SourceError:
    found = f"HTTP status {status}"
    if status == 500:
        found += ", as from every agent of nvgpu from v0.10 on. Install gpumon's agent on that host"
    elif 300 <= status < 400:
        found = f"a redirect (HTTP status {status})"
    return _bad_answer(where, found)


def _bad_answer(where: str, found: str) -> SourceError:
    return SourceError(
        "bad answer",
        f"bad answer: expected the JSON of nvgpu's agent on {where}, found {found}",
    )
