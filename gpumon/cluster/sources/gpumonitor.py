"""Agents of gpumonitor, the tool before gpumon: gpu_stats() -> our model.

They speak XML-RPC on the same port, have the one method gpu_stats, and answer with one text that
holds JSON: {"gpus": [...], "procs": [[...], ...]}, memory in MiB, "N/A" for what the driver does
not tell, run times as "H:MM:SS" or "N days, H:MM:SS". What they don't tell is unknown here.
"""

from __future__ import annotations

import json
import re
import xmlrpc.client
from typing import Any

from gpumon.cluster.sources import answer
from gpumon.cluster.sources.base import Reading
from gpumon.cluster.sources.foreign import (
    LONGEST_RUN,
    MOST_MIB,
    MOST_PROCESSES,
    as_owner,
    as_pid,
    as_reading,
    explain,
    put,
)
from gpumon.cluster.sources.trust import MOST_GPUS
from gpumon.errors import SourceError
from gpumon.model import Gpu, HostSnapshot, Process
from gpumon.text import clean

REQUEST = xmlrpc.client.dumps((), "gpu_stats").encode()

ASK_AGAIN_SECONDS = 60.0
"""So long an agent without poll() is asked by gpu_stats() before poll() is tried again."""

NOT_TOLD = "not told by an agent of gpumonitor"

_RUN_TIME = re.compile(r"(?:(\d{1,6}) days?, )?(\d{1,3}):([0-5]\d):([0-5]\d)(?:\.\d+)?\Z")


class Habit:
    """Which of the two ways one agent is asked. An upgrade is noticed within a minute."""

    def __init__(self) -> None:
        self._until: float | None = None

    def by_gpu_stats(self, now: float) -> bool:
        """Return whether the agent is known to have no poll(), as of `now` (monotonic)."""
        return self._until is not None and now < self._until

    def has_no_poll(self, now: float) -> None:
        """Take in that the agent does not know poll()."""
        self._until = now + ASK_AGAIN_SECONDS

    def failed(self) -> None:
        """Take in that it did not answer: perhaps it is being replaced."""
        self._until = None


def reading(body: bytes, now: float) -> Reading:
    """Return what the answer to gpu_stats() says; `now` is epoch seconds.

    Raises answer.Unexpected, answer.NoSuchMethod or answer.Faulty.
    """
    stats = _stats(answer.value(body, "gpu_stats"))
    gpus, lists = stats.get("gpus"), stats.get("procs")
    if not isinstance(gpus, list) or not isinstance(lists, list):
        raise answer.Garbled('an answer without the lists "gpus" and "procs"')
    if len(gpus) > MOST_GPUS:
        raise answer.Garbled(f"{len(gpus)} GPUs on one host")
    rows = [
        _gpu(index, told, lists[index] if index < len(lists) else None, now)
        for index, told in enumerate(gpus)
    ]
    try:
        return as_reading(
            HostSnapshot(sample_age_seconds=0.0, gpu_count=len(rows), errors=[], gpus=rows)
        )
    except ValueError as error:
        raise answer.Garbled(str(error)) from error


def agent_fault(where: str, fault: answer.Faulty) -> SourceError:
    """Say what such an agent reports: one process that ends while it is read is enough."""
    words = clean(str(fault.text), 160)
    return SourceError(
        "failed",
        f"failed: gpumonitor's agent on {where} reports: {words}. A process that ends meanwhile "
        "makes it fail for that poll; if it stays: journalctl -u gpumonitor-rpc there, or install "
        "gpumon's agent",
    )


def _stats(text: object) -> dict[str, Any]:
    if not isinstance(text, str):
        raise answer.Garbled("an answer to gpu_stats() that is no text")
    try:
        # Python's writer puts NaN and Infinity, which are no JSON, for numbers that are none.
        stats = json.loads(text, parse_constant=lambda _: None)
    except (ValueError, RecursionError) as error:
        raise answer.Garbled("an answer to gpu_stats() that is no JSON") from error
    if not isinstance(stats, dict):
        raise answer.Garbled("an answer to gpu_stats() of another form")
    return stats


def _gpu(index: int, told: Any, processes: Any, now: float) -> Gpu:
    gpu = Gpu(index=index)
    if not isinstance(told, dict):
        gpu.error = "its entry could not be read"
        explain(gpu, gpu.error)
        return gpu
    # Where gpumon's own agent answers this way, some of its numbers stand for "unknown".
    fillers = told.get("unknown")
    told = {key: value for key, value in told.items() if key not in _texts(fillers)}
    put(gpu, "memory_total_mib", told.get("memory_total"), 1, MOST_MIB, round)
    most = gpu.memory_total_mib or MOST_MIB
    put(gpu, "memory_used_mib", told.get("memory_used"), 0, most, round)
    put(gpu, "memory_free_mib", told.get("memory_free"), 0, most, round)
    put(gpu, "utilization_percent", told.get("utilization"), 0, 100)
    put(gpu, "temperature_celsius", told.get("temperature"), -50, 250)
    name, uuid, error = (_text(told.get(key)) for key in ("model", "uuid", "error"))
    gpu.name, gpu.uuid, gpu.error = name, uuid, error
    gpu.processes = _processes(processes, now)
    if gpu.processes is None or "processes" in _texts(fillers):
        gpu.processes = None
        gpu.unknown["processes"] = "its list of processes could not be read"
    if gpu.utilization_percent is None:
        # The driver gives none under MIG, and such an agent does not tell the two apart.
        gpu.unknown["mig"] = NOT_TOLD
    explain(gpu, NOT_TOLD)
    return gpu


def _texts(value: Any) -> list[str]:
    return [item for item in value if isinstance(item, str)] if isinstance(value, list) else []


def _text(value: Any) -> str | None:
    return clean(value) or None if isinstance(value, str) else None


def _processes(told: Any, now: float) -> list[Process] | None:
    """Return the processes of one GPU; None where one of them makes no sense."""
    if not isinstance(told, list) or len(told) > MOST_PROCESSES:
        return None
    rows = [_process(one, now) for one in told]
    return None if None in rows else [row for row in rows if row is not None]


def _process(told: Any, now: float) -> Process | None:
    if not isinstance(told, dict):
        return None
    pid = as_pid(told.get("pid"))
    if pid is None:
        return None
    process = Process(pid=pid, kinds=["compute"])
    memory = told.get("used_memory")
    # 0 stands for "the driver does not tell": no process on a GPU holds nothing.
    if isinstance(memory, (int, float)) and not isinstance(memory, bool) and 0 < memory < MOST_MIB:
        process.gpu_memory_used_mib = round(memory)
    if isinstance(told.get("userid"), str):
        process.user = as_owner(told["userid"])
    if isinstance(told.get("process_name"), str):
        process.program = _program(told["process_name"])
    seconds = run_time(told.get("time"))
    if seconds is not None:
        process.runtime_seconds = seconds
        process.started_at = now - seconds
    return process


def _program(name: str) -> str | None:
    """Return the program without path and arguments, which are nobody else's business."""
    words = name.split()
    base = words[0].rpartition("/")[2] if words else ""
    return clean(base, 64) if base not in ("", "?") else None


def run_time(text: Any) -> float | None:
    """Return the seconds of a run time as Python writes it; None for anything else."""
    match = _RUN_TIME.match(text) if isinstance(text, str) else None
    if match is None:
        return None
    days, hours, minutes, seconds = (int(part or 0) for part in match.groups())
    total = float(days * 86400 + hours * 3600 + minutes * 60 + seconds)
    return total if total <= LONGEST_RUN else None
