"""Sums over the cluster: GPUs by state, by model, by user. Pure."""

from __future__ import annotations

from collections import Counter
from collections.abc import Callable, Iterable, Sequence
from typing import NamedTuple

from gpumon.cluster.shares import OfUser, Share, States, share_of
from gpumon.cluster.status import (
    Block,
    Counts,
    GpuStatus,
    HostStatus,
    ModelTotals,
    Place,
    Totals,
    UserTotals,
)
from gpumon.states import earliest
from gpumon.units import natural_key


class CountedGpu(NamedTuple):
    """A GPU with the host that it is counted under."""

    host: HostStatus
    gpu: GpuStatus


def counted_gpus(hosts: Sequence[HostStatus]) -> list[CountedGpu]:
    """Return every GPU once, in the order of the hosts.

    A GPU that two hosts list (one machine under two names) counts under the first that is fresh,
    else under the first; where one of the fresh ones is drained, under that: nobody may have it.
    One that tells no UUID counts where the others of its host do.
    """
    return [CountedGpu(host, gpu) for host, gpus in _counted(hosts) for gpu in gpus]


def shares_of(
    hosts: Sequence[HostStatus],
    make: Callable[[HostStatus, Sequence[GpuStatus]], Share] = share_of,
) -> list[Share]:
    """Return what each host adds to the sums; `make` may know some of it already."""
    return [make(host, gpus) for host, gpus in _counted(hosts)]


def _counted(hosts: Sequence[HostStatus]) -> list[tuple[HostStatus, list[GpuStatus]]]:
    """Return the hosts with those of their GPUs that are counted there: most often their own list.

    This says what `counted_gpus` does.
    """
    named = [gpu.uuid for host in hosts for gpu in host.gpus if gpu.uuid is not None]
    if len(set(named)) == len(named):  # that was a tenth of the work
        return [(host, host.gpus) for host in hosts]
    freshest: dict[str, HostStatus] = {}
    rank: dict[str, int] = {}
    for host in hosts:
        for gpu in host.gpus:
            if gpu.uuid is not None:
                here = (host.state == "fresh") + (gpu.state == "drained")
                if here > rank.get(gpu.uuid, -1):
                    rank[gpu.uuid], freshest[gpu.uuid] = here, host
    return [(host, _of_host(host, freshest)) for host in hosts]


def _of_host(host: HostStatus, freshest: dict[str, HostStatus]) -> list[GpuStatus]:
    uuids = [gpu.uuid for gpu in host.gpus if gpu.uuid is not None]
    twin = bool(uuids) and all(freshest[uuid] is not host for uuid in uuids)
    found = [
        gpu for gpu in host.gpus if (not twin if gpu.uuid is None else freshest[gpu.uuid] is host)
    ]
    return host.gpus if len(found) == len(host.gpus) else found


def cluster_totals(hosts: Sequence[HostStatus], shares: Iterable[Share]) -> Totals:
    """Return the sums of the whole cluster."""
    by_state = Counter(host.state for host in hosts)
    gpus = _counts(share.states for share in shares)
    return Totals(
        gpus=None if not gpus.total and mute_hosts(hosts) else gpus,
        hosts=len(hosts),
        hosts_fresh=by_state["fresh"],
        hosts_stale=by_state["stale"],
        hosts_down=by_state["down"],
        hosts_never=by_state["never"],
    )


def mute_hosts(hosts: Iterable[HostStatus]) -> int:
    """Return how many hosts never told how many GPUs they have."""
    return sum(host.gpu_count is None and not host.gpus for host in hosts)


def _counts(parts: Iterable[States]) -> Counts:
    counts = Counts()
    for part in parts:
        for state, count in part.items():
            setattr(counts, state, getattr(counts, state) + count)
            counts.total += count
    return counts


def model_totals(shares: Iterable[Share]) -> list[ModelTotals]:
    """Return the sums per model, in natural order."""
    models: dict[str, list[Share]] = {}
    for share in shares:
        for model in share.models:
            models.setdefault(model, []).append(share)
    return [_model(model, models[model]) for model in sorted(models, key=natural_key)]


def _model(model: str, shares: list[Share]) -> ModelTotals:
    sizes = (share.models[model].memory_total_mib for share in shares)
    free = [(share.host, share.models[model].states.get("free", 0)) for share in shares]
    return ModelTotals(
        model=model,
        memory_total_mib=next((size for size in sizes if size is not None), None),
        counts=_counts(share.models[model].states for share in shares),
        blocks=[
            Block(host=host, free=count)
            for host, count in sorted(free, key=lambda item: (-item[1], natural_key(item[0])))
            if count
        ],
    )


def user_totals(shares: Iterable[Share]) -> list[UserTotals]:
    """Return what each user holds on fresh hosts, most GPUs first, then most memory."""
    users: dict[str | None, list[OfUser]] = {}
    for share in shares:
        if share.fresh:
            for user, held in share.users.items():
                users.setdefault(user, []).append(held)
    found = [_user(user, held) for user, held in users.items()]
    found.sort(
        key=lambda user: (
            -user.gpus,
            user.gpu_memory_used_mib is None,
            -(user.gpu_memory_used_mib or 0),
            user.user or "",
        )
    )
    return found


def _user(user: str | None, held: list[OfUser]) -> UserTotals:
    memory = [one.memory_used_mib for one in held if one.memory_used_mib is not None]
    places: list[Place] = [one.place for one in held]
    since, at_most = earliest(one.since for one in held)
    return UserTotals(
        user=user,
        gpus=sum(len(place.gpus) for place in places),
        idle_gpus=sum(one.idle for one in held),
        processes=sum(one.processes for one in held) or None,
        gpu_memory_used_mib=sum(memory) if memory else None,
        since=since,
        since_at_most=at_most,
        places=places,
    )
