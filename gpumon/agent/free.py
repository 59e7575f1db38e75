"""Which GPUs of this host nobody holds. Pure; judges by `gpumon.states` like every other face."""

from __future__ import annotations

import math

import msgspec

from gpumon.model import HostSnapshot
from gpumon.states import fault_of, is_held
from gpumon.summary import GpuSummary, HostSummary, MigSummary


class FreeGpu(msgspec.Struct, kw_only=True, frozen=True):
    """A GPU or MIG instance to take: set CUDA_VISIBLE_DEVICES to its `uuid`."""

    index: int
    """Of the GPU; an instance has its GPU's."""
    mig_index: int | None
    uuid: str | None
    name: str | None
    memory_free_mib: int | None


def free_gpus(
    snapshot: HostSnapshot, summary: HostSummary, min_free_mib: int, name: str
) -> list[FreeGpu]:
    """Return what is free, least used first, then most free memory, then by index.

    `summary` is that of `snapshot`. Where `min_free_mib` is asked for, what has an unknown amount
    is left out. A GPU in MIG mode is never given as a whole; its free instances are, by their UUID.
    """
    details = {gpu.index: gpu for gpu in snapshot.gpus}
    found: list[tuple[tuple[float, ...], FreeGpu]] = []
    for gpu in summary.gpus:
        if gpu.error is not None or fault_of(gpu) is not None:
            continue
        detail = details[gpu.index]
        parts: list[tuple[GpuSummary | MigSummary, FreeGpu]] = []
        if gpu.mig_mode:
            memory = {instance.index: instance.memory_free_mib for instance in detail.mig}
            parts += [
                (
                    instance,
                    FreeGpu(
                        index=gpu.index,
                        mig_index=instance.index,
                        uuid=instance.uuid,
                        name=f"{gpu.name or 'unknown GPU'} MIG {instance.name or '?'}",
                        memory_free_mib=memory[instance.index],
                    ),
                )
                for instance in gpu.mig
                if instance.error is None and instance.uuid is not None
            ]
        elif detail.compute_mode != "prohibited":
            whole = FreeGpu(
                index=gpu.index,
                mig_index=None,
                uuid=gpu.uuid,
                name=gpu.name,
                memory_free_mib=detail.memory_free_mib,
            )
            parts.append((gpu, whole))
        use = math.inf if gpu.utilization_percent is None else gpu.utilization_percent
        for part, offer in parts:
            memory_free = offer.memory_free_mib
            if is_held(part) is not False or name.casefold() not in (offer.name or "").casefold():
                continue
            if min_free_mib > 0 and (memory_free is None or memory_free < min_free_mib):
                continue
            order = (use, -(memory_free or 0), offer.index, offer.mig_index or 0)
            found.append((order, offer))
    return [offer for _, offer in sorted(found, key=lambda entry: entry[0])]
