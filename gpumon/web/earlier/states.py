"""vesta's JSON: `/states/` and `/states/<host>/`.

Keys and nesting are vesta's. Where a number is not known there is null: never a 0 that a script
would take for free. vesta kept a history; here `data` has the reading of now, or nothing.
"""

from __future__ import annotations

from typing import Any

from gpumon.agent.nvgpu import processes, processes_known
from gpumon.cluster.status import ClusterStatus, HostStatus
from gpumon.model import Gpu
from gpumon.web.earlier.readings import (
    RUNNING,
    Detail,
    gpus_now,
    sampled,
    word,
    written,
)

NO_ENTRY = "no entry"


def all_states(status: ClusterStatus, detail: Detail, fetch: int) -> dict[str, Any]:
    """Return every host's state by its name, in the order of the configuration."""
    return {host.name: host_state(host, detail, fetch) for host in status.hosts}


def host_state(host: HostStatus, detail: Detail, fetch: int) -> dict[str, Any]:
    """Return `{data, ip_address, status}`; `fetch` 0 leaves `data` empty, more is one reading."""
    gpus = gpus_now(host, detail)
    snapshot = detail(host.name)
    taken = None if snapshot is None else snapshot.time
    data = {
        "gpu_data": {f"gpu:{gpu.index}": _gpu(gpu, taken) for gpu in gpus},
        "timestamp": written(taken) if taken is not None else NO_ENTRY,
    }
    told = word(host)
    return {
        "data": [data] if fetch else [],
        "ip_address": host.address,
        "status": told,
        # Added: old readers look their keys up by name.
        "reason": None if told == RUNNING else host.reason,
    }


def _gpu(gpu: Gpu, taken: float | None) -> dict[str, Any]:
    free = gpu.memory_free_mib
    return {
        "device_num": gpu.index,
        "uuid": gpu.uuid,
        "gpu_name": gpu.name,
        "temperature": gpu.temperature_celsius,
        "total_memory": gpu.memory_total_mib,
        "available_memory": free,
        "used_memory": gpu.memory_used_mib,
        "gpu_volatile": gpu.utilization_percent,
        "timestamp": sampled(taken),
        "processes": [
            {
                "pid": str(process.pid),
                "name": process.program,
                "user": process.user,
                "used_memory": process.gpu_memory_used_mib,
            }
            for process in processes(gpu)
        ]
        if processes_known(gpu)
        else None,
        "error": gpu.error,
    }
