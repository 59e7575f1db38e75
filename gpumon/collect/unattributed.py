"""GPU memory that no listed process explains: of orphaned contexts, of processes nobody can see."""

from __future__ import annotations

from gpumon.model import Gpu
from gpumon.states import memory_floor_mib


def unattributed(gpu: Gpu) -> int | None:
    """Return the MiB in use on `gpu` beyond the sum of its processes, all of them.

    0 where the difference is no more than what a GPU that nobody holds may have in use (see
    `gpumon.states.memory_floor_mib`): the driver's own memory belongs to no process either. None
    where the difference can't be told: memory in use or that of a process is unknown, one of the
    lists of processes could not be read, the GPU is or may be in MIG mode, or shares the host's
    memory.
    """
    if gpu.mig_mode or "mig" in gpu.unknown or gpu.unified_memory:
        return None
    if gpu.memory_used_mib is None or gpu.processes is None or "processes" in gpu.unknown:
        return None
    explained = 0
    for process in gpu.processes:
        if process.gpu_memory_used_mib is None:
            return None
        explained += process.gpu_memory_used_mib
    rest = gpu.memory_used_mib - explained
    floor = memory_floor_mib(gpu.memory_total_mib, gpu.memory_reserved_mib is not None)
    return rest if rest > floor else 0
