"""nvgpu's JSON of one host, so that its pages and scripts can ask a gpumon agent."""

from __future__ import annotations

from collections.abc import Collection, Iterator
from typing import Any

from gpumon.model import Gpu, HostSnapshot, Process
from gpumon.states import fault_of
from gpumon.summary import summarize
from gpumon.units import duration

MIB = 1024 * 1024
_CUT = 25


def gpu_status(
    snapshot: HostSnapshot, name: str | None = None, *, kept_out: Collection[int] = ()
) -> dict[str, Any]:
    """Return `{hostname, gpus}` of one host; `name` in place of its own.

    The GPUs with an index in `kept_out`, broken ones, and those that take no program are not
    available, whatever runs on them. Where nobody knows what GPUs there are, an `error` says why.
    """
    broken = [gpu.index for gpu in summarize(snapshot).gpus if fault_of(gpu) is not None]
    closed = [gpu.index for gpu in snapshot.gpus if gpu.compute_mode == "prohibited"]
    not_to_take = {*kept_out, *broken, *closed}
    told: dict[str, Any] = {
        "hostname": name or snapshot.hostname,
        "gpus": [
            _device(gpu, snapshot.time, gpu.index not in not_to_take) for gpu in snapshot.gpus
        ],
    }
    if not snapshot.gpus and snapshot.gpu_count is None:
        told["error"] = unknown_gpus(snapshot)
    return told


def unknown_gpus(snapshot: HostSnapshot) -> str:
    """Return why nobody knows what GPUs the host has."""
    found = [*snapshot.errors, snapshot.sampler_error]
    return "; ".join(text for text in found if text) or "what GPUs this host has is not known"


def _device(gpu: Gpu, now: float | None, may_be_taken: bool) -> dict[str, Any]:
    compute = [process for process in processes(gpu) if "compute" in process.kinds]
    starts = [process.started_at for process in compute if process.started_at is not None]
    oldest = min(starts) if starts and now is not None else None
    return {
        "type": gpu.name,
        # False where nobody knows: a script takes what is available.
        "is_available": may_be_taken
        and processes_known(gpu)
        and not compute
        and not gpu.unattributed_mib,
        "pids": ",".join(str(process.pid) for process in compute),
        "users": ",".join(process.user or "?" for process in compute),
        "running_since": (
            f"{duration(now - oldest)} ago" if oldest is not None and now is not None else None
        ),
        "utilization": gpu.utilization_percent,
        "memory": {
            "total": _bytes(gpu.memory_total_mib),
            "used": _bytes(gpu.memory_used_mib),
            "free": _bytes(gpu.memory_free_mib),
        },
        "clock_mhz": gpu.sm_clock_mhz,
        "temperature": gpu.temperature_celsius,
        "cmd": _command(compute),
        "error": gpu.error,
    }


def _command(compute: list[Process]) -> str | None:
    program = next((process.program for process in compute if process.program), None)
    if program is None or len(program) <= _CUT:
        return program
    return f"{program[:_CUT]}..."


def _bytes(mib: int | None) -> int | None:
    return None if mib is None else mib * MIB


def processes(gpu: Gpu) -> Iterator[Process]:
    """Yield the processes of a GPU and of its MIG instances."""
    yield from gpu.processes or []
    for instance in gpu.mig:
        yield from instance.processes or []


def processes_known(gpu: Gpu) -> bool:
    """Return whether the list of processes is whole: none is missing that the GPU has."""
    if gpu.error is not None:
        return False
    lists = [instance.processes for instance in gpu.mig]
    if not (gpu.mig_mode and gpu.mig):
        lists.append(gpu.processes)
    return all(found is not None for found in lists)
