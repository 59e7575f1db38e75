"""Lists and counts as a person would say them."""

from __future__ import annotations

from collections.abc import Iterable, Sequence

from gpumon.cluster.status import GpuStatus
from gpumon.states import GPU_STATES
from gpumon.web.cells import free_instances


def counted(number: int, noun: str) -> str:
    """Return "1 host", "2 hosts", "0 hosts"."""
    return f"{number} {noun}" if number == 1 else f"{number} {noun}s"


def listed(parts: Sequence[str]) -> str:
    """Return "0", "0 and 5", "0, 3 and 5"."""
    if len(parts) < 2:
        return "".join(parts)
    return f"{', '.join(parts[:-1])} and {parts[-1]}"


def numbers(indices: Iterable[int]) -> str:
    """Return GPU indices as CUDA_VISIBLE_DEVICES takes them: "0,1,4"."""
    return ",".join(map(str, sorted(indices)))


def sentence(gpus: Sequence[GpuStatus]) -> str:
    """Return the states of a host's GPUs as one sentence: "5 busy, 2 free: 0 and 5".

    It stands beside the row of cells for everybody who doesn't see them. Which ones are busy is
    left out: nobody looks for those.
    """
    parts = []
    for state in ("busy", *(s for s in GPU_STATES if s != "busy")):
        indices = [str(gpu.index) for gpu in gpus if gpu.state == state]
        if indices:
            where = "" if state == "busy" else f": {listed(indices)}"
            parts.append(f"{len(indices)} {state}{where}")
    for gpu in gpus:
        if gpu.mig and gpu.state not in ("unknown", "fault", "drained"):
            free = free_instances(gpu)
            parts.append(f"GPU {gpu.index} has {free} of {len(gpu.mig)} MIG instances free")
    return ", ".join(parts)
