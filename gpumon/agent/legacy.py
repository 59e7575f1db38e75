"""gpumonitor's JSON, so that its web server can go on asking a gpumon agent.

That server reads by key and computes with what it reads: memory and utilization must be numbers,
`memory_total` not 0, and there must be as many lists of processes as GPUs. Keys that it does not
know do no harm. So what is unknown is given as the number that misleads least (no utilization, all
memory used) and named in the additional key `unknown`.
"""

from __future__ import annotations

from datetime import timedelta
from typing import Any

import msgspec

from gpumon.model import Gpu, HostSnapshot, MigInstance, Process

NOT_AVAILABLE = "N/A"
NOBODY_KNOWS = "?"


def gpu_stats(snapshot: HostSnapshot) -> str:
    """Return `{"gpus": [...], "procs": [[...], ...]}` as JSON; memory in MiB."""
    stats = {
        "gpus": [_gpu(gpu) for gpu in snapshot.gpus],
        "procs": [_processes(gpu) for gpu in snapshot.gpus],
        "hostname": snapshot.hostname,
        "time": snapshot.time,
    }
    return msgspec.json.encode(stats).decode()


def without_readings(snapshot: HostSnapshot, reason: str) -> HostSnapshot:
    """Return `snapshot` with its GPUs but nothing that was measured on them."""
    blind = [
        Gpu(index=gpu.index, uuid=gpu.uuid, name=gpu.name, error=gpu.error or reason)
        for gpu in snapshot.gpus
    ]
    return msgspec.structs.replace(snapshot, gpus=blind)


def _gpu(gpu: Gpu) -> dict[str, Any]:
    unknown = []
    total, used, free = gpu.memory_total_mib, gpu.memory_used_mib, gpu.memory_free_mib
    if not total or used is None:
        # Full, so that nobody takes it for free.
        unknown += ["memory_used", "memory_free"]
        total, used, free = total or 1, total or 1, 0
    if not gpu.memory_total_mib:
        unknown.append("memory_total")
    if free is None:
        free = max(0, total - used - (gpu.memory_reserved_mib or 0))
    if gpu.utilization_percent is None:
        unknown.append("utilization")
    if gpu.temperature_celsius is None:
        unknown.append("temperature")
    if any(part.processes is None for part in _parts(gpu)):
        unknown.append("processes")
    return {
        "memory_total": float(total),
        "memory_used": float(used),
        "memory_free": float(free),
        "utilization": 0 if gpu.utilization_percent is None else gpu.utilization_percent,
        "temperature": (
            NOT_AVAILABLE if gpu.temperature_celsius is None else gpu.temperature_celsius
        ),
        "model": gpu.name or "unknown GPU",
        "index": gpu.index,
        "uuid": gpu.uuid,
        "error": gpu.error,
        "unknown": unknown,
    }


def _processes(gpu: Gpu) -> list[dict[str, Any]]:
    """Return the GPU's processes, with those in its MIG instances."""
    rows = []
    for part in _parts(gpu):
        if part.processes is None:
            # An empty list would say that nobody is there.
            rows.append(_row(Process(pid=0, program="the process list could not be read")))
        else:
            rows += [_row(process) for process in part.processes]
    return rows


def _parts(gpu: Gpu) -> list[Gpu | MigInstance]:
    """Return what has a process list: the GPU, and its instances.

    In MIG mode many drivers refuse the GPU's own list; then the instances have all there is.
    """
    if gpu.mig_mode and gpu.mig and gpu.processes is None:
        return [*gpu.mig]
    return [gpu, *gpu.mig]


def _row(process: Process) -> dict[str, Any]:
    memory, runtime = process.gpu_memory_used_mib, process.runtime_seconds
    return {
        "pid": process.pid,
        "process_name": process.program or NOBODY_KNOWS,
        "used_memory": 0 if memory is None else memory,
        "unit": "MiB",
        "userid": _login(process),
        "time": NOBODY_KNOWS if runtime is None else str(timedelta(seconds=int(runtime))),
        "kinds": process.kinds,
        "started_at": process.started_at,
        "unknown": ["used_memory"] if memory is None else [],
    }


def _login(process: Process) -> str:
    """Return the owner as gpumonitor writes it: a login name, or the bare number without one."""
    return NOBODY_KNOWS if process.user is None else process.user.removeprefix("uid:")
