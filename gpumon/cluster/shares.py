"""What one host adds to the sums over the cluster. Pure; made anew when its GPUs' rows are."""

from __future__ import annotations

from collections.abc import Sequence

import msgspec

from gpumon.cluster.status import GpuStatus, HostStatus, MigStatus, Place
from gpumon.states import GpuState
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
    since: float | None


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
    users: dict[str | None, _User] = {}
    for gpu in gpus:
        states[gpu.state] = states.get(gpu.state, 0) + 1
        for part in parts(gpu):
            name = f"{gpu.model} MIG {part.name or 'instance'}" if gpu.mig else gpu.model
            model = models.get(name)
            if model is None or model.memory_total_mib is None:
                model = models[name] = OfModel(
                    part.memory_total_mib, {} if model is None else model.states
                )
            model.states[part.state] = model.states.get(part.state, 0) + 1
            for holder in holding(part):
                user = users.get(holder.user)
                if user is None:
                    user = users[holder.user] = _User()
                user.gpus[gpu.index] = gpu.state == "idle"
                user.holders.append(holder)
    return Share(
        host=host.name,
        fresh=host.state == "fresh",
        gpus=gpus,
        states=states,
        models=models,
        users={name: user.total(host.name) for name, user in users.items()},
    )


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


class _User:
    """What one user has on the host."""

    __slots__ = ("gpus", "holders")

    def __init__(self) -> None:
        self.gpus: dict[int, bool] = {}
        """Index -> whether it is idle."""
        self.holders: list[Holder] = []

    def total(self, host: str) -> OfUser:
        memory = [
            one.gpu_memory_used_mib for one in self.holders if one.gpu_memory_used_mib is not None
        ]
        starts = [one.started_at for one in self.holders if one.started_at is not None]
        return OfUser(
            place=Place(host=host, gpus=sorted(self.gpus)),
            idle=sum(self.gpus.values()),
            processes=len(set().union(*(one.pids for one in self.holders))),
            memory_used_mib=sum(memory) if memory else None,
            since=min(starts, default=None),
        )
