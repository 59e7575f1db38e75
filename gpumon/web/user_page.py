"""What one user holds now, GPU by GPU."""

from __future__ import annotations

from collections.abc import Iterator

import msgspec

from gpumon.cluster.shares import parts
from gpumon.cluster.status import ClusterStatus, GpuStatus, HostStatus, MigStatus, UserTotals
from gpumon.model import SCHEMA
from gpumon.states import GpuState, HostState, earliest, on_gpu_since
from gpumon.summary import Holder
from gpumon.web.holding import holders
from gpumon.web.words import counted


class UserGpu(msgspec.Struct, kw_only=True, frozen=True):
    """One GPU or MIG instance that the user holds; on a host that isn't fresh, held when seen."""

    host: str
    host_state: HostState
    gpu: int
    mig: int | None
    """Index of the MIG instance; None: the whole GPU."""
    uuid: str | None
    model: str
    state: GpuState
    since: float | None
    since_at_least: bool
    since_at_most: bool
    utilization_percent: int | None
    memory_total_mib: int | None
    gpu_memory_used_mib: int | None
    """Of this user's processes."""
    started_at: float | None
    """Start of this user's oldest process there."""
    held_since: float | None
    """Since when this user holds it."""
    held_since_at_most: bool
    """Then or later: then the process began, and nobody saw it come to the GPU."""
    pids: list[int]
    program: str | None
    user_by: str | None
    """How the user was found out, where it took more than the uid of a process."""


class UserAnswer(msgspec.Struct, kw_only=True, frozen=True):
    """`/user/NAME.json`, and what the page is made of."""

    schema: int = SCHEMA
    simulated: bool
    revision: str
    time: float
    user: str
    totals: UserTotals | None
    """None: holds nothing on a fresh host."""
    gpus: list[UserGpu]


def user_answer(status: ClusterStatus, user: str) -> UserAnswer:
    """Return what `user` holds; nothing is an answer too, since nobody knows all users."""
    return UserAnswer(
        simulated=status.simulated,
        revision=status.revision,
        time=status.time,
        user=user,
        totals=next((totals for totals in status.users if totals.user == user), None),
        gpus=[held for host in status.hosts for held in _held(host, user)],
    )


def summary_words(answer: UserAnswer) -> str:
    """Return the answer in one sentence."""
    totals = answer.totals
    if totals is None:
        return f"{answer.user} holds no GPU, as far as the hosts answer."
    hosts = counted(len(totals.places), "host")
    unused = f", {totals.idle_gpus} of them idle" if totals.idle_gpus else ""
    return f"{answer.user} holds {counted(totals.gpus, 'GPU')} on {hosts}{unused}."


def _held(host: HostStatus, user: str) -> Iterator[UserGpu]:
    for gpu in host.gpus:
        for part in parts(gpu):
            for holder in holders(part):
                if holder.user == user:
                    yield _user_gpu(host, gpu, part, holder)


def _user_gpu(
    host: HostStatus, gpu: GpuStatus, part: GpuStatus | MigStatus, holder: Holder
) -> UserGpu:
    whole = isinstance(part, GpuStatus)
    held_since, at_most = earliest([on_gpu_since(holder)])
    return UserGpu(
        host=host.name,
        host_state=host.state,
        gpu=gpu.index,
        mig=None if whole else part.index,
        uuid=part.uuid,
        model=gpu.model if whole else f"{gpu.model} MIG {part.name or part.index}",
        state=part.state,
        since=part.since,
        since_at_least=part.since_at_least,
        since_at_most=part.since_at_most,
        utilization_percent=gpu.utilization_percent if whole else None,
        memory_total_mib=part.memory_total_mib,
        gpu_memory_used_mib=holder.gpu_memory_used_mib,
        started_at=holder.started_at,
        held_since=held_since,
        held_since_at_most=at_most,
        pids=holder.pids,
        program=holder.program,
        user_by=holder.user_by,
    )
