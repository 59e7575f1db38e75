"""One row a host: what page and text say about it."""

from __future__ import annotations

from collections.abc import Iterator
from typing import NamedTuple

from gpumon.cluster.certificates import is_warning
from gpumon.cluster.status import GpuStatus, HostStatus
from gpumon.units import UNKNOWN, duration
from gpumon.web.gpus import percent
from gpumon.web.holding import Held, held_on

USERS_A_HOST = 3
"""So many users of a host are named in its row."""


class HostRow(NamedTuple):
    """A host in words."""

    host: HostStatus
    model: str
    free: str
    """Whole GPUs that are free; "-" where that can't be known now."""
    free_instances: int
    """Free MIG instances; 0 also where there are none."""
    held: list[Held]
    remark: str | None
    """The sentence under the users: why the host is not as it should be."""
    lines: int
    """So many lines of text may stand beside the GPUs; an opened list keeps clear of them."""
    instead: str | None
    """A sentence in place of the GPUs where the host shows none."""
    cpu: str
    memory: str
    seen: str
    mark: str
    """The word that a reader must see: "stale", "down", "never", "error", "note"; "" for a sound
    host."""


def host_row(host: HostStatus) -> HostRow:
    """Return the row of `host`."""
    fresh = host.state == "fresh"
    held, mark = held_on(host), _mark(host)
    remark = host.reason or next(_own_notes(host), None)
    free_instances = _free_instances(host) if fresh else 0
    return HostRow(
        host=host,
        model=_model(host.gpus),
        free=_free(host) if fresh else UNKNOWN,
        free_instances=free_instances,
        held=held,
        remark=remark,
        lines=max(
            min(len(held), USERS_A_HOST) + (remark is not None),
            2 if mark or free_instances else 1,
        ),
        instead=None if host.gpus else _no_gpus(host),
        cpu=percent(host.cpu_percent) if fresh else UNKNOWN,
        memory=_memory(host) if fresh else UNKNOWN,
        seen=duration(host.age_seconds),
        mark=mark,
    )


def has_readings(host: HostStatus) -> bool:
    """Return whether the host answers and its GPUs are read.

    What stands in its `errors` then is worth a note, and no fault of the host.
    """
    counted = host.gpu_count is not None and host.gpu_count > 0
    return host.state == "fresh" and host.reason_kind is None and counted


def _mark(host: HostStatus) -> str:
    if host.state != "fresh":
        return host.state
    if (host.errors or host.reason) and not has_readings(host):
        return "error"
    return "note" if host.errors or any(_own_notes(host)) else ""


def _own_notes(host: HostStatus) -> Iterator[str]:
    """Yield what is worth a word in the host's row; what warns of all hosts at once has its own."""
    return (note for note in host.notes if not is_warning(note))


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
    # The reason is of now; errors of a host that is silent are those of its last answer.
    said = [host.reason, *host.errors]
    unsaid = "has not answered yet" if host.state == "never" else "GPUs not known"
    return next((text for text in said if text), unsaid)


def _memory(host: HostStatus) -> str:
    """Return how much of the host's memory is in use."""
    total, available = host.memory_total_mib, host.memory_available_mib
    if total is None or available is None or total <= 0:
        return UNKNOWN
    return percent(100 * (total - available) / total)
