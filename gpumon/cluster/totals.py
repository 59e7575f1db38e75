"""Sums over the cluster: GPUs by state, by model, by user. Pure."""

from __future__ import annotations

from collections import Counter
from collections.abc import Iterable, Sequence
from typing import NamedTuple

from gpumon.cluster.status import (
    Block,
    Counts,
    GpuStatus,
    HostStatus,
    MigStatus,
    ModelTotals,
    Place,
    Totals,
    UserTotals,
)
from gpumon.states import GpuState, earliest, on_gpu_since
from gpumon.summary import Holder
from gpumon.units import natural_key


class CountedGpu(NamedTuple):
    """A GPU with the host that it is counted under."""

    host: HostStatus
    gpu: GpuStatus


def counted_gpus(hosts: list[HostStatus]) -> list[CountedGpu]:
    """Return every GPU once, in the order of the hosts.

    A GPU that two hosts list (one machine under two names) counts under the first that is fresh,
    else under the first; where one of the fresh ones is drained, under that: nobody may have it.
    One that tells no UUID counts where the others of its host do.
    """
    freshest: dict[str, HostStatus] = {}
    rank: dict[str, int] = {}
    for host in hosts:
        for gpu in host.gpus:
            if gpu.uuid is not None:
                here = (host.state == "fresh") + (gpu.state == "drained")
                if here > rank.get(gpu.uuid, -1):
                    rank[gpu.uuid], freshest[gpu.uuid] = here, host
    found = []
    for host in hosts:
        named = [gpu for gpu in host.gpus if gpu.uuid is not None]
        twin = bool(named) and all(freshest[gpu.uuid or ""] is not host for gpu in named)
        found += [
            CountedGpu(host, gpu)
            for gpu in host.gpus
            if (not twin if gpu.uuid is None else freshest[gpu.uuid] is host)
        ]
    return found


def cluster_totals(hosts: list[HostStatus], counted: list[CountedGpu]) -> Totals:
    """Return the sums of the whole cluster."""
    by_state = Counter(host.state for host in hosts)
    return Totals(
        gpus=_counts(gpu.state for _, gpu in counted),
        hosts=len(hosts),
        hosts_fresh=by_state["fresh"],
        hosts_stale=by_state["stale"],
        hosts_down=by_state["down"],
        hosts_never=by_state["never"],
    )


def _counts(states: Iterable[GpuState]) -> Counts:
    counts = Counts()
    for state, count in Counter(states).items():
        setattr(counts, state, count)
        counts.total += count
    return counts


def model_totals(counted: list[CountedGpu]) -> list[ModelTotals]:
    """Return the sums per model, in natural order; GPUs in MIG mode count by their instances."""
    models: dict[str, _Model] = {}
    for host, gpu in counted:
        if gpu.mig:
            for part in gpu.mig:
                model = f"{gpu.model} MIG {part.name or 'instance'}"
                models.setdefault(model, _Model()).add(host.name, part)
        else:
            models.setdefault(gpu.model, _Model()).add(host.name, gpu)
    return [models[model].totals(model) for model in sorted(models, key=natural_key)]


class _Model:
    """What is added up for one model."""

    def __init__(self) -> None:
        self.states: list[GpuState] = []
        self.free: Counter[str] = Counter()
        self.memory_total_mib: int | None = None

    def add(self, host: str, gpu: GpuStatus | MigStatus) -> None:
        self.states.append(gpu.state)
        if gpu.state == "free":
            self.free[host] += 1
        if self.memory_total_mib is None:
            self.memory_total_mib = gpu.memory_total_mib

    def totals(self, model: str) -> ModelTotals:
        return ModelTotals(
            model=model,
            memory_total_mib=self.memory_total_mib,
            counts=_counts(self.states),
            blocks=[
                Block(host=host, free=free)
                for host, free in sorted(
                    self.free.items(), key=lambda item: (-item[1], natural_key(item[0]))
                )
            ],
        )


def user_totals(counted: list[CountedGpu]) -> list[UserTotals]:
    """Return what each user holds on fresh hosts, most GPUs first, then most memory."""
    users: dict[str | None, _User] = {}
    for host, gpu in counted:
        if host.state == "fresh":
            parts: Sequence[GpuStatus | MigStatus] = gpu.mig or (gpu,)
            for part in parts:
                for holder in holding(part):
                    user = users.get(holder.user)
                    if user is None:
                        user = users[holder.user] = _User()
                    user.add(host.name, gpu, holder)
    found = [user.totals(name) for name, user in users.items()]
    found.sort(
        key=lambda user: (
            -user.gpus,
            user.gpu_memory_used_mib is None,
            -(user.gpu_memory_used_mib or 0),
            user.user or "",
        )
    )
    return found


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
    """What is added up for one user."""

    def __init__(self) -> None:
        self.places: dict[str, dict[int, bool]] = {}
        """Host -> index of a GPU -> whether it is idle."""
        self.pids: dict[str, list[int]] = {}
        """Host -> its processes of this user, once per GPU."""
        self.memory: int | None = None
        self.since: tuple[float | None, bool] = (None, False)
        self._host: str | None = None
        """Where the last GPU was: they come host by host."""
        self._gpus: dict[int, bool] = {}
        self._pids: list[int] = []

    def add(self, host: str, gpu: GpuStatus, holder: Holder) -> None:
        if host != self._host:
            self._host = host
            self._gpus = self.places.setdefault(host, {})
            self._pids = self.pids.setdefault(host, [])
        self._gpus[gpu.index] = gpu.state == "idle"
        self._pids += holder.pids
        memory = holder.gpu_memory_used_mib
        if memory is not None:
            self.memory = memory if self.memory is None else self.memory + memory
        since, at_most = self.since
        known = None if since is None else (since, at_most)
        self.since = earliest((known, on_gpu_since(holder)))

    def totals(self, user: str | None) -> UserTotals:
        return UserTotals(
            user=user,
            gpus=sum(len(gpus) for gpus in self.places.values()),
            idle_gpus=sum(sum(gpus.values()) for gpus in self.places.values()),
            processes=sum(len(set(pids)) for pids in self.pids.values()) or None,
            gpu_memory_used_mib=self.memory,
            since=self.since[0],
            since_at_most=self.since[1],
            places=[Place(host=host, gpus=sorted(gpus)) for host, gpus in self.places.items()],
        )
