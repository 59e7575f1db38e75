"""What one host adds to the sums over the cluster. Pure; made anew when its GPUs' rows are."""

from __future__ import annotations

from collections.abc import Sequence

import msgspec

from gpumon.cluster.status import GpuStatus, HostStatus, MigStatus, Place
from gpumon.states import GpuState, on_gpu_since
from gpumon.summary import Holder

States = dict[GpuState, int]
"""How many are in which state; those in which none is are left out."""


class OfModel(msgspec.Struct, frozen=True, gc=False):
    """The GPUs (or MIG instances) of one model."""

    memory_total_mib: int | None
    states: States


class OfUser(msgspec.Struct, frozen=True, gc=False):
    """What one user holds."""

    place: Place
    idle: int
    """GPUs."""
    processes: int
    memory_used_mib: int | None
    since: tuple[float, bool] | None
    """See `states.on_gpu_since`."""


class Share(msgspec.Struct, frozen=True, gc=False):
    """One host."""

    host: str
    fresh: bool
    gpus: Sequence[GpuStatus]
    """Those that are counted under this host."""
    states: States
    models: dict[str, OfModel]
    users: dict[str | None, OfUser]


def share_of(host: HostStatus, gpus: Sequence[GpuStatus]) -> Share:
    """Return what these GPUs of the host add; GPUs in MIG mode count by their instances."""
    states: States = {}
    models: dict[str, OfModel] = {}
    users: dict[str | None, list[tuple[GpuStatus, Holder]]] = {}
    for gpu in gpus:
        states[gpu.state] = states.get(gpu.state, 0) + 1
        for part in gpu.mig or (gpu,):
            name = f"{gpu.model} MIG {part.name or 'instance'}" if gpu.mig else gpu.model
            model = models.get(name)
            if model is None or model.memory_total_mib is None:
                known: States = {} if model is None else model.states
                model = models[name] = OfModel(part.memory_total_mib, known)
            model.states[part.state] = model.states.get(part.state, 0) + 1
            for holder in holding(part):
                held = users.get(holder.user)
                if held is None:
                    users[holder.user] = [(gpu, holder)]
                else:
                    held.append((gpu, holder))
    return Share(
        host=host.name,
        fresh=host.state == "fresh",
        gpus=gpus,
        states=states,
        models=models,
        users={name: _of_user(host.name, held) for name, held in users.items()},
    )


def _of_user(host: str, held: list[tuple[GpuStatus, Holder]]) -> OfUser:
    # One loop in place of five: this is most of what a picture's sums cost.
    idle: dict[int, bool] = {}
    pids: set[int] = set()
    memory: int | None = None
    since: tuple[float, bool] | None = None
    for gpu, holder in held:
        idle[gpu.index] = gpu.state == "idle"
        pids.update(holder.pids)
        used, start = holder.gpu_memory_used_mib, on_gpu_since(holder)
        if used is not None:
            memory = used if memory is None else memory + used
        if start is not None and (since is None or start < since):
            since = start
    place = Place(host=host, gpus=sorted(idle))
    return OfUser(place, sum(idle.values()), len(pids), memory, since)


def parts(gpu: GpuStatus) -> Sequence[GpuStatus | MigStatus]:
    """Return what can be held one by one: the MIG instances of a GPU, else the GPU itself."""
    return gpu.mig or [gpu]


def holding(gpu: GpuStatus | MigStatus) -> list[Holder]:
    """Return who holds a GPU: a display server only where it takes more than its due.

    A GPU held by memory alone is held by somebody unknown.
    """
    owners = [holder for holder in gpu.holders if not holder.graphics_only]
    if owners or gpu.state not in ("busy", "idle"):
        return owners
    return gpu.holders or [Holder(gpu_memory_used_mib=gpu.memory_used_mib)]
