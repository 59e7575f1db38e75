"""Who holds what on one host."""

from __future__ import annotations

from collections.abc import Iterable
from typing import NamedTuple

from gpumon.cluster.shares import holding, parts
from gpumon.cluster.status import GpuStatus, HostStatus, MigStatus
from gpumon.states import earliest, on_gpu_since
from gpumon.summary import Holder


class Held(NamedTuple):
    """What one user holds on one host; on a host that isn't fresh, what was seen last."""

    user: str | None
    """None: owners that are not known, together."""
    gpus: list[int]
    since: float | None
    """Since when one of them."""
    at_most: bool
    """Then or later: then the process began, and nobody saw it come to the GPU."""
    by_rule: bool
    """Whether some of it is theirs by a rule (`owners_by_rule`)."""


def holders(part: GpuStatus | MigStatus) -> list[Holder]:
    """Return who holds a GPU or an instance; of a GPU with instances, those hold, not the GPU."""
    return [] if isinstance(part, GpuStatus) and part.mig else holding(part)


def users(gpu: GpuStatus) -> list[str | None]:
    """Return the users of a GPU and its instances, each once; None is an unknown owner."""
    return list(dict.fromkeys(holder.user for part in parts(gpu) for holder in holders(part)))


def owners_by_rule(gpus: Iterable[GpuStatus]) -> set[str]:
    """Return the holders of `gpus` that were found out by more than the uid of a process.

    By a rule of the configuration, say. Faces mark them, so that nobody takes a rule for a fact.
    """
    held = (holder for gpu in gpus for part in parts(gpu) for holder in holders(part))
    return {one.user for one in held if one.user is not None and one.user_by is not None}


def seen_at(host: HostStatus, now: float) -> float:
    """Return the last moment at which who holds the host's GPUs was seen; both epoch seconds.

    Of a host that is silent since, nobody knows that they held on to them.
    """
    return now if host.state == "fresh" else now - (host.age_seconds or 0.0)


def held_on(host: HostStatus) -> list[Held]:
    """Return who holds GPUs of the host, most GPUs first, unknown owners at the end."""
    gpus: dict[str | None, list[int]] = {}
    begun: dict[str | None, list[tuple[float, bool] | None]] = {}
    for gpu in host.gpus:
        for user in users(gpu):
            gpus.setdefault(user, []).append(gpu.index)
        for part in parts(gpu):
            for holder in holders(part):
                begun.setdefault(holder.user, []).append(on_gpu_since(holder))
    ruled = owners_by_rule(host.gpus)
    found = [
        Held(user, indices, *earliest(begun.get(user, [])), user in ruled)
        for user, indices in gpus.items()
    ]
    found.sort(key=lambda held: (held.user is None, -len(held.gpus), held.user or ""))
    return found
