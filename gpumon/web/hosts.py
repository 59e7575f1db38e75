"""One row a host: what page and text say about it."""

from __future__ import annotations

from typing import NamedTuple

from gpumon.cluster.status import GpuStatus, HostStatus
from gpumon.units import UNKNOWN, duration
from gpumon.web.gpus import percent
from gpumon.web.holding import Held, held_on


class HostRow(NamedTuple):
    """A host in words."""

    host: HostStatus
    model: str
    free: str
    """Whole GPUs that are free; "-" where that can't be known now."""
    free_instances: int
    """Free MIG instances; 0 also where there are none."""
    held: list[Held]
    instead: str | None
    """A sentence in place of the GPUs where the host shows none."""
    cpu: str
    memory: str
    seen: str
    mark: str
    """The word that a reader must see: "stale", "down", "never", "error"; "" for a sound host."""


def host_row(host: HostStatus) -> HostRow:
    """Return the row of `host`."""
    fresh = host.state == "fresh"
    return HostRow(
        host=host,
        model=_model(host.gpus),
        free=_free(host) if fresh else UNKNOWN,
        free_instances=_free_instances(host) if fresh else 0,
        held=held_on(host),
        instead=None if host.gpus else _no_gpus(host),
        cpu=percent(host.cpu_percent) if fresh else UNKNOWN,
        memory=_memory(host) if fresh else UNKNOWN,
        seen=duration(host.age_seconds),
        mark=_mark(host),
    )


def _mark(host: HostStatus) -> str:
    if host.state != "fresh":
        return host.state
    return "error" if host.errors or host.reason else ""


def _model(gpus: list[GpuStatus]) -> str:
    """Return "H100 80G", or "4 A100 80G, 2 T4 16G" for a mixed host."""
    models: dict[str, int] = {}
    for gpu in gpus:
        models[gpu.model] = models.get(gpu.model, 0) + 1
    if len(models) == 1:
        return next(iter(models))
    return ", ".join(f"{count} {model}" for model, count in models.items()) or UNKNOWN


def _free(host: HostStatus) -> str:
    if host.gpu_count is None and not host.gpus:
        return UNKNOWN
    return str(sum(gpu.state == "free" and not gpu.mig for gpu in host.gpus))


def _free_instances(host: HostStatus) -> int:
    return sum(instance.state == "free" for gpu in host.gpus for instance in gpu.mig)


def _no_gpus(host: HostStatus) -> str:
    """Return why there is no GPU to show."""
    if host.state == "fresh" and host.gpu_count == 0:
        return "no GPU in this host"
    if host.errors:
        return host.errors[0]
    return host.reason or ("has not answered yet" if host.state == "never" else "GPUs not known")


def _memory(host: HostStatus) -> str:
    """Return how much of the host's memory is in use."""
    total, available = host.memory_total_mib, host.memory_available_mib
    if total is None or available is None or total <= 0:
        return UNKNOWN
    return percent(100 * (total - available) / total)
